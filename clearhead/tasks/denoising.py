"""Denoising: an encoder-decoder restores corrupted texts (Raffel et al. 2020; Lewis et al. 2020)."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field
from tokenizers import AddedToken

from clearhead.config import ModelConfig
from clearhead.data.batches import pieces_of, token_budget_batches
from clearhead.data.corpus import encoded_text
from clearhead.data.sequences import Sequences
from clearhead.errors import UserError
from clearhead.generation.settings import changed, searching
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.randomness import key
from clearhead.recipe import Recipe
from clearhead.recipe.data import Corruption, Source, Spans, TextData
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.networks import check_fits, total_loss
from clearhead.tasks.reading import measured_text, text_report
from clearhead.tasks.reports import SplitsReport
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.sequence_to_sequence import SequenceToSequence, check_encoder_decoder
from clearhead.tasks.task import Batch, Files, HeadLoss, Prediction, Prepared, RecipeTask, Trained, defaults
from clearhead.text.special_tokens import SpecialTokens, with_mask_token, with_special
from clearhead.text.tokenizers import Tokenizer

N_SENTINELS = 100
ENDS = (".", "!", "?", "。", "！", "？")
"""Tokens that end a sentence."""


@dataclass(frozen=True)
class SpanCorruptor:
    """Spans become sentinels; the target is each sentinel with its span, and one more (Raffel et al. 2020, 3.1.4).

    Every place of the spans is equally likely. (The program of the paper always ends a text with a span.)
    """

    sentinels: tuple[int, ...]
    share: float
    mean_length: float

    @property
    def extra(self) -> int:
        """The largest id that it puts into a text."""
        return max(self.sentinels)

    def counts(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of tokens in spans, and of spans: one at least, and with a token between two."""
        n_noise = np.clip(np.round(lengths * self.share).astype(np.int64), 1, np.maximum(lengths - 1, 1))
        n_spans = np.round(n_noise / self.mean_length).astype(np.int64)
        return n_noise, np.clip(n_spans, 1, np.maximum(np.minimum(n_noise, lengths - n_noise + 1), 1))

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """n 2: the ids that the encoder reads and the decoder writes for texts of these lengths, n."""
        n_noise, n_spans = self.counts(lengths)
        if (most := int(n_spans.max())) >= len(self.sentinels):
            raise UserError(
                f"data.length: expected at most {len(self.sentinels) - 1} spans in a text, one less than the tokenizer"
                f" has sentinels, got {most}; lower it"
            )
        return np.stack([lengths - n_noise + n_spans, n_noise + n_spans + 1], axis=1)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[list[int], list[int]]:
        """The source and the target of a text, without marks."""
        (n_noise,), (n_spans,) = self.counts(np.array([len(ids)]))
        noise = _parts(int(n_noise), int(n_spans), random)
        # Before the first span and after the last one there may be nothing.
        kept = _parts(len(ids) - int(n_noise) + 2, int(n_spans) + 1, random)
        kept[0] -= 1
        source, target, at = list[int](), list[int](), 0
        for sentinel, n_kept, n_gone in zip(self.sentinels, kept, noise, strict=False):
            source += [*ids[at : at + n_kept].tolist(), sentinel]
            target += [sentinel, *ids[at + n_kept : at + n_kept + n_gone].tolist()]
            at += n_kept + n_gone
        return [*source, *ids[at:].tolist()], [*target, self.sentinels[int(n_spans)]]


@dataclass(frozen=True)
class Infiller:
    """Spans of Poisson lengths become one mask token each, and sentences change places; the target is the text.

    A span of length 0 is a mask token where nothing is missing (Lewis et al. 2020, 2.2).
    """

    mask_id: int
    ends: frozenset[int]
    """The ids that end a sentence; none keeps the sentences in order."""
    share: float
    mean_length: float

    @property
    def extra(self) -> int:
        """The id that it puts into a text."""
        return self.mask_id

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """n 2: the most ids that the encoder reads and the decoder writes for texts of these lengths, n."""
        return np.stack([lengths, lengths], axis=1)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[list[int], list[int]]:
        """The source and the target of a text, without marks."""
        return self.masked(self.permuted(ids, random), random), ids.tolist()

    def permuted(self, ids: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The sentences in random order."""
        stops = [i + 1 for i, token in enumerate(ids[:-1].tolist()) if token in self.ends]
        sentences = np.split(ids, stops)
        return np.concatenate([sentences[i] for i in random.permutation(len(sentences))])

    def masked(self, ids: np.ndarray, random: np.random.Generator) -> list[int]:
        """The ids with mask tokens: never more ids than before."""
        wanted = max(1, round(self.share * len(ids)))
        drawn = random.poisson(self.mean_length, 2 * wanted + 8)
        lengths = drawn[: int((drawn.cumsum() < wanted).sum()) + 1]
        lengths[-1] -= max(0, int(lengths.sum()) - wanted)
        too_many = max(0, len(lengths) - int(lengths.sum()))
        lengths = np.delete(lengths, np.flatnonzero(lengths == 0)[:too_many])
        n_kept = len(ids) - int(lengths.sum())
        # No two spans begin at one place, so that there is an id between them.
        gaps = np.sort(random.choice(n_kept + 1, min(len(lengths), n_kept + 1), replace=False))
        found, at, kept = list[int](), 0, 0
        for gap, length in zip(gaps.tolist(), lengths.tolist(), strict=False):
            found += [*ids[at : at + gap - kept].tolist(), self.mask_id]
            at, kept = at + gap - kept + length, gap
        return [*found, *ids[at:].tolist()]


Corruptor: TypeAlias = SpanCorruptor | Infiller
"""From the ids of a text to what the encoder reads and what the decoder writes."""


def _parts(n: int, n_parts: int, random: np.random.Generator) -> list[int]:
    """Draws numbers of at least 1 whose sum is n. All such sequences are equally likely."""
    cuts = np.sort(random.choice(n - 1, n_parts - 1, replace=False)) + 1
    return np.diff([0, *cuts.tolist(), n]).tolist()


# --- with a tokenizer ---------------------------------------------------------------------------------------------


def extended_for(config: Corruption, tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that is trained here, with the special tokens of a corruption."""
    if isinstance(config, Spans):
        names = [f"<extra_id_{i}>" for i in range(N_SENTINELS)]
        return with_special(tokenizer, [AddedToken(name, normalized=False) for name in names])
    return with_mask_token(tokenizer)


def corruptor(config: Corruption, tokenizer: Tokenizer) -> Corruptor:
    """The corruption with a tokenizer's special tokens. Raises UserError if it lacks them."""
    if isinstance(config, Spans):
        found = [tokenizer.library.token_to_id(f"<extra_id_{i}>") for i in range(N_SENTINELS)]
        sentinels = tuple(i for i in found if i is not None)
        if not sentinels:
            raise UserError(
                "tokenizer: expected sentinels such as <extra_id_0>, got none; try data.corruption.kind = infilling"
            )
        return SpanCorruptor(sentinels, config.share, config.mean_length)
    names = enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))
    ends = frozenset(i for i, name in names if name.strip("▁#") in ENDS) if config.permute_sentences else frozenset()
    return Infiller(tokenizer.need("mask"), ends, config.share, config.mean_length)


N_SAMPLES = 2


class DenoisingData(TextData):
    """Texts: the documents of one or several sources, or one running text, cut into pieces."""

    length: Annotated[int, Field(ge=8)] = 128
    """Most tokens of a text; longer ones are cut into pieces."""
    corruption: Corruption = Spans()


class DenoisingRecipe(Recipe):
    """How to pretrain an encoder-decoder."""

    task: Literal["denoising"]
    data: DenoisingData


class Pieces:
    """Pieces of texts, each corrupted anew in every epoch.

    Example epoch * n_pieces + piece is a piece in an epoch. Its corruption depends on this number and a seed alone.
    """

    def __init__(
        self, texts: Sequences, length: int, corrupt: Corruptor, *, seed: int | str, marks: Sequence[int]
    ) -> None:
        """`marks` counts the special tokens around a source and around a target."""
        self.texts, self.corrupt, self.seed = texts, corrupt, seed
        self.places = pieces_of(texts.lengths, length)
        self.both_sizes = corrupt.sizes(self.places[:, 2] - self.places[:, 1]) + np.array(marks)
        """n 2: the most tokens of each pair's sides."""
        self.chosen = np.arange(len(self.places))
        """The pieces of an evaluation."""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def sizes(self) -> list[int]:
        """The tokens of each pair."""
        return self.both_sizes.sum(axis=1).tolist()

    def take(self, rows: Sequence[int]) -> Self:
        """The same pieces, but an evaluation measures only these."""
        part = copy(self)
        part.chosen = np.array(rows)
        return part

    def pair(self, example: int) -> tuple[list[int], list[int]]:
        """The source and the target of an example, without marks."""
        epoch, piece = divmod(example, len(self))
        document, start, stop = self.places[piece].tolist()
        ids = self.texts.read(document, start, stop).astype(np.int64)
        return self.corrupt(ids, np.random.default_rng(key(self.seed, "corruption", epoch, piece)))

    def pairs(self, examples: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
        """The sources and the targets of examples."""
        both = [self.pair(example) for example in examples]
        return [source for source, _ in both], [target for _, target in both]


class Denoising(HeadLoss, RecipeTask[DenoisingRecipe]):
    """p(what is missing, or the text | the corrupted text)."""

    recipe = DenoisingRecipe
    files = Files("a text", {"kind": "text", "paths": "--text"})
    use = 'predict {} "A text with a mask or sentinel in it."'
    main_score = "loss"
    higher_is_better = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: Sequences,
        valid: Sequences,
        *,
        corruption: Corruption,
        length: int,
        max_tokens: int,
        packed: bool = True,
        generation: GenerationConfig,
        seed: int = 0,
    ) -> None:
        """Texts without marks. `seed` decides the corruption; that of `valid` is always the same."""
        corrupt = corruptor(corruption, tokenizer)
        self.tokenizer, self.length, self.generation = tokenizer, length, changed(generation, {"temperature": 0})
        self.pairs = SequenceToSequence(tokenizer, max_tokens=max_tokens, packed=packed, generation=generation)
        marks = len(self.pairs.source_tokens), len(self.pairs.target_tokens)
        self.train = Pieces(train, length, corrupt, seed=seed, marks=marks)
        self.valid = Pieces(valid, length, corrupt, seed="validation", marks=marks)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        sizes, most = self.train.both_sizes, self.pairs.max_tokens
        plan = token_budget_batches(sizes, max_tokens=most, seed=seed, epoch=epoch)
        return replace(plan, order=plan.order + epoch * len(self.train))

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.pairs.batch(*self.train.pairs(examples))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to restore texts", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        both = self.train, self.valid
        longest = np.max([pieces.both_sizes.max(axis=0) for pieces in both], axis=0).tolist()
        largest = max(max(pieces.texts.largest, pieces.corrupt.extra) for pieces in both)
        check_fits(config, *((length, largest) for length in longest), remedy="try a lower data.length")
        return config

    def score(self, network: Transformer, data: Pieces) -> Evaluation:
        """Measures loss and perplexity of the targets. Every evaluation uses the same corruptions."""
        sizes = data.both_sizes[data.chosen]
        budget = max(self.pairs.max_tokens, int(sizes.sum(axis=1).max()))
        plan = token_budget_batches(sizes, max_tokens=budget, seed=0, epoch=0)
        batches = (self.pairs.batch(*data.pairs(data.chosen[examples].tolist())) for examples in plan)
        nats, n = total_loss(network, batches, len(plan))
        scores = Score("loss", nats / n, unit="nats a token of the targets"), perplexity(nats, n)
        sources, targets = data.pairs(range(min(N_SAMPLES, len(data))))
        outputs = self.pairs.write(network, sources, self.generation)
        shown = partial(self.tokenizer.library.decode_batch, skip_special_tokens=False)
        triples = zip(shown(sources), outputs, shown(targets), strict=True)
        return Evaluation(scores, tuple(Sample(*one) for one in triples), loss=nats / n)

    @classmethod
    def prepare(cls, recipe: DenoisingRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        found = encoded_text(
            recipe,
            tokenizer,
            held_out=data.held_out,
            extended=lambda trained: extended_for(data.corruption, trained),
            marks=SpecialTokens(),
        )
        task = cls(
            found.tokenizer,
            found.train.ids,
            found.valid.ids,
            corruption=data.corruption,
            length=data.length,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            generation=recipe.generation,
            seed=recipe.training.seed,
        )
        return Prepared(task, replace(found, report=task.report()))

    def report(self) -> SplitsReport:
        """Counts the texts, tokens and examples of each split."""
        both = {"train": self.train, "valid": self.valid}
        trained = {name: int(pieces.both_sizes[:, 1].sum()) for name, pieces in both.items()}
        return text_report(both, self.tokenizer, length=self.length, trained=trained)

    @classmethod
    def measure(
        cls, model: Trained, recipe: DenoisingRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        data = defaults(cls.recipe, model) if recipe is None else recipe.data
        text = measured_text(model, source, data, SpecialTokens()).ids
        both = {"corruption": data.corruption, "generation": searching(model.generation, {})}
        task = cls(model.tokenizer, text, text, length=data.length, max_tokens=4096, **both)
        return task.score(model.network, task.valid)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Restores each corrupted text, with the search of a translation."""
        for text in model.translate(texts):
            yield Prediction(tabbed(text), {"text": text})
