"""The common part of encoder-decoder tasks: batches of pairs for teacher forcing, the loss, and decoding."""

from collections.abc import Sequence

import numpy as np
import torch

from clearhead.config import ModelConfig
from clearhead.config.inputs import Continuous
from clearhead.data.batches import token_budget_batches
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sequences import largest_of, lengths_of
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.networks import Ids, check_fits, check_writes, total_loss
from clearhead.tasks.task import Batch
from clearhead.text.special_tokens import source_tokens, start_token, target_tokens
from clearhead.text.tokenizers import Tokenizer


class SequenceToSequence:
    """p(target | source), one token after another; sources and targets are ids without marks."""

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int, packed: bool, generation: GenerationConfig) -> None:
        self.tokenizer, self.max_tokens, self.packed, self.generation = tokenizer, max_tokens, packed, generation
        self.start = start_token(tokenizer, generation)
        self.source_tokens, self.target_tokens = source_tokens(tokenizer), target_tokens(tokenizer, generation)

    def lengths(self, source: Ids, target: Ids) -> np.ndarray:
        """n 2: the tokens of each pair's sides, with marks."""
        sides = lengths_of(source) + len(self.source_tokens), lengths_of(target) + len(self.target_tokens)
        return np.stack(sides, axis=1)

    def batch(self, source: Ids, target: Ids) -> Batch:
        """Source with its marks; start + written -> written, which is the target with its marks: bos x -> x eos."""
        written = [self.target_tokens.around(ids) for ids in target]
        read = [self.source_tokens.around(ids) for ids in source]
        inputs = Tokens.pad(read, fill=self.pad, packed=self.packed)
        outputs = Tokens.pad([[self.start, *ids[:-1]] for ids in written], fill=self.pad, packed=self.packed)
        return Batch((inputs, outputs), torch.tensor([token for ids in written for token in ids]))

    def plan(self, train: EncodedPairs, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """The batches of one epoch as numbers of pairs."""
        lengths = self.lengths(train.source, train.target)
        return token_budget_batches(lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    @property
    def pad(self) -> int:
        """The token of cells that are padding."""
        pad = self.generation.pad_id
        return (self.tokenizer.pad_id if pad is None else pad) or 0

    def check(self, config: ModelConfig, *both: EncodedPairs, remedy: str) -> None:
        """Raises UserError unless a network can read these pairs."""
        longest = np.maximum.reduce([self.lengths(some.source, some.target).max(axis=0) for some in both]).tolist()
        largest = [max(map(largest_of, side)) for side in zip(*((one.source, one.target) for one in both), strict=True)]
        check_fits(config, *zip(longest, largest, strict=True), remedy=remedy)

    def write(self, network: Transformer, source: Ids, generation: GenerationConfig) -> list[str]:
        """The best output for each source, as text."""
        hypotheses = complete(
            network,
            source=[self.source_tokens.around(ids) for ids in source],
            config=generation,
            bos_id=self.start,
            eos_id=self.target_tokens.after[-1],
            pad_id=self.pad,
            scored=False,
        )
        return self.tokenizer.decode_batch([best[0].tokens for best in hypotheses])

    def log_loss(self, network: Transformer, source: Ids, target: Ids) -> tuple[float, int]:
        """The targets' negative log-likelihood in nats, without label smoothing, and the number of their tokens."""
        lengths = self.lengths(source, target)
        budget = max(self.max_tokens, 4096, int(lengths.sum(axis=1).max()))
        plan = token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0)
        batches = (self.batch([source[i] for i in some], [target[i] for i in some]) for some in plan)
        return total_loss(network, batches, len(plan))


def check_encoder_decoder(config: ModelConfig, what: str, *, where: str, remedy: str) -> None:
    """Raises UserError unless the network is an encoder-decoder that gives every token a probability."""
    if config.encoder is None or config.decoder is None:
        raise UserError(f"{where}: expected an encoder and a decoder {what}, got one of them; {remedy}")
    if isinstance(reads := config.encoder.input, Continuous):
        raise UserError(f"{where}: expected an encoder of texts {what}, got one of {reads.medium}s; {remedy}")
    check_writes(config, where=where)
