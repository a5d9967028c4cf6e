"""The common part of encoder-decoder tasks: batches of pairs for teacher forcing, the loss, and decoding."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from clearhead.config import ModelConfig
from clearhead.config.inputs import Continuous
from clearhead.data.batches import token_budget_batches
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sequences import largest_of, lengths_of
from clearhead.data.sources import Pairs
from clearhead.data.sources import pairs_of as pairs_in
from clearhead.data.splits import pair_splits
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.json_text import tabbed
from clearhead.model import Tokens, Transformer
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation, Example, Sample
from clearhead.tasks.networks import check_fits, check_writes, total_loss
from clearhead.tasks.scores import Score, of_each, perplexity
from clearhead.tasks.task import Batch, HeadLoss, Prediction, R, RecipeTask, Trained
from clearhead.tasks.text_scores import chrf
from clearhead.text.special_tokens import source_tokens, start_token, target_tokens
from clearhead.text.tokenizers import Tokenizer

N_SAMPLES = 4
Ids = Sequence[Sequence[int]]


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


class PairTask(HeadLoss, RecipeTask[R]):
    """A task that learns from encoded pairs of texts."""

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: EncodedPairs
    pairs: SequenceToSequence
    higher_is_better = True

    @abstractmethod
    def scores(self, outputs: Sequence[str], text: Pairs) -> tuple[Score, ...]:
        """The scores of these outputs, the main one first."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return self.pairs.plan(self.train, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.pairs.batch([self.train.source[i] for i in examples], [self.train.target[i] for i in examples])

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        self.pairs.check(config, self.train, self.valid, remedy="try a lower data.preparation.max_length")
        return config

    def sizes(self) -> Sequence[int]:
        return self.pairs.lengths(self.valid.source, self.valid.target).sum(axis=1).tolist()

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.score(network, self.valid if self.few is None else self.valid.take(self.few.rows))

    def score(self, network: Transformer, pairs: EncodedPairs) -> Evaluation:
        """Writes an output for each source, and measures the outputs and the perplexity of the targets."""
        outputs = self.pairs.write(network, pairs.source, self.pairs.generation)
        nats, n_tokens = self.pairs.log_loss(network, pairs.source, pairs.target)
        scores = (*self.scores(outputs, pairs.text), perplexity(nats, n_tokens))
        sentences = next((score for score in scores if score.name == "chrf"), None)
        sentences = sentences or chrf(outputs, [[target] for target in pairs.text.target])
        rows = zip(pairs.text.source, outputs, pairs.text.target, of_each(sentences), strict=True)
        examples = tuple(
            Example(source, output, target, 100 - share, output != target) for source, output, target, share in rows
        )
        samples = tuple(Sample(one.source, one.output, one.reference) for one in examples[:N_SAMPLES])
        return Evaluation(scores, samples, tuple(outputs), nats / n_tokens, examples)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the output text for each input."""
        for text in model.translate(texts):
            yield Prediction(tabbed(text), {"text": text})


def pairs_of(model: Trained, recipe: Any, source: Source | None, *, prefix: str = "", tag: str = "") -> EncodedPairs:
    """The pairs of a source, or the test (else validation) pairs of a recipe, as the model reads them.

    `prefix` is put before each source. So is `tag`, with which the pairs of the recipe begin that are taken.
    """
    if source is not None:
        text = Pairs.of((prefix + tag + text, target) for text, target in pairs_in(source))
    else:
        splits = pair_splits(recipe.data, recipe.data.held_out, prefix=prefix)
        text = Pairs.of(row for row in splits.get("test", splits["valid"]) if row[0].startswith(tag))
    pairs, limit = EncodedPairs.of(text, model.tokenizer), model.contract.max_length
    room = None if limit is None else max(limit - len(source_tokens(model.tokenizer)), 0)
    return replace(pairs, source=[ids[:room] for ids in pairs.source])


def check_encoder_decoder(config: ModelConfig, what: str, *, where: str, remedy: str) -> None:
    """Raises UserError unless the network is an encoder-decoder that gives every token a probability."""
    if config.encoder is None or config.decoder is None:
        raise UserError(f"{where}: expected an encoder and a decoder {what}, got one of them; {remedy}")
    if isinstance(reads := config.encoder.input, Continuous):
        raise UserError(f"{where}: expected an encoder of texts {what}, got one of {reads.medium}s; {remedy}")
    check_writes(config, where=where)
