"""Translation: source sentences in, target sentences out, by teacher forcing (Vaswani et al. 2017, 3.1)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clearhead.config import ModelConfig
from clearhead.data.batches import token_budget_batches
from clearhead.data.sources import Pairs
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.metrics import Score, bleu, chrf, exact_match, perplexity
from clearhead.tasks.task import Batch, Evaluation, Sample, Task, check_length, check_writes

N_SAMPLES = 4


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as text and as ids, without bos and eos."""

    text: Pairs
    source: list[list[int]]
    target: list[list[int]]

    def lengths(self) -> list[tuple[int, int]]:
        """Tokens of each pair as the network sees them."""
        return [(len(s) + 1, len(t) + 1) for s, t in zip(self.source, self.target, strict=True)]


class Translation(Task):
    """p(target | source), one token after another."""

    main_score = "bleu"
    higher_is_better = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: EncodedPairs,
        valid: EncodedPairs,
        *,
        max_tokens: int,
        packed: bool = True,
        generation: GenerationConfig,
    ) -> None:
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.max_tokens, self.packed, self.generation = max_tokens, packed, generation

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.lengths(), max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.batch(self.train, examples)

    def batch(self, pairs: EncodedPairs, examples: Sequence[int]) -> Batch:
        """Source + eos; bos + target -> target + eos."""
        bos, eos, pad = (self.tokenizer.need(role) for role in ("bos", "eos", "pad"))
        source = Tokens.pad([[*pairs.source[i], eos] for i in examples], fill=pad, packed=self.packed)
        target = Tokens.pad([[bos, *pairs.target[i]] for i in examples], fill=pad, packed=self.packed)
        labels = [token for i in examples for token in (*pairs.target[i], eos)]
        return Batch((source, target), torch.tensor(labels))

    def check(self, config: ModelConfig) -> None:
        check_writes(config)
        if config.encoder is None or config.decoder is None:
            raise UserError(
                "model: expected an encoder and a decoder to translate, got one of them; try preset transformer-tiny"
            )
        lengths = [*self.train.lengths(), *self.valid.lengths()]
        for name, stack, side in (("encoder", config.encoder, 0), ("decoder", config.decoder, 1)):
            longest = max(pair[side] for pair in lengths)
            check_length(name, stack, longest, remedy="try a lower data.preparation.max_length")

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.measure(network, self.valid, self.generation)

    def measure(self, network: Transformer, pairs: EncodedPairs, generation: GenerationConfig) -> Evaluation:
        """BLEU, chrF, exact match and perplexity on these pairs."""
        outputs = self.translate(network, pairs.source, generation)
        references = [[text] for text in pairs.text.target]
        scores = (
            bleu(outputs, references),
            chrf(outputs, references),
            exact_match(outputs, references),
            self.perplexity(network, pairs),
        )
        triples = zip(pairs.text.source, outputs, pairs.text.target, strict=True)
        samples = tuple(Sample(*triple) for triple in itertools.islice(triples, N_SAMPLES))
        return Evaluation(scores, samples, tuple(outputs))

    def translate(
        self, network: Transformer, source: Sequence[Sequence[int]], generation: GenerationConfig
    ) -> list[str]:
        """The best output for each source, as text."""
        hypotheses = complete(
            network,
            source=[[*ids, self.tokenizer.need("eos")] for ids in source],
            config=generation,
            bos_id=self.tokenizer.need("bos"),
            eos_id=self.tokenizer.need("eos"),
            pad_id=self.tokenizer.need("pad"),
        )
        return self.tokenizer.decode_batch([best[0].tokens for best in hypotheses])

    def perplexity(self, network: Transformer, pairs: EncodedPairs) -> Score:
        """Of the targets given the sources, without label smoothing."""
        nats, n_tokens = 0.0, 0
        budget = max(self.max_tokens, 4096, *map(sum, pairs.lengths()))
        training = network.training
        network.eval()
        with torch.inference_mode():
            for examples in token_budget_batches(pairs.lengths(), max_tokens=budget, seed=0, epoch=0):
                batch = self.batch(pairs, examples).to(next(network.parameters()).device)
                total, count = self.loss(network, batch)
                nats, n_tokens = nats + total.item(), n_tokens + count
        network.train(training)
        return perplexity(nats, n_tokens)
