"""Denoising: an encoder-decoder restores corrupted texts (Raffel et al. 2020; Lewis et al. 2020)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from clearhead.config import ModelConfig
from clearhead.data.batches import OnDemand, pieces_of, token_budget_batches
from clearhead.data.corpus import encoded_text
from clearhead.data.corruption import Corruptor, corruptor, extended_for
from clearhead.data.sequences import Sequences
from clearhead.data.text_report import TextReport, text_report
from clearhead.generation.settings import changed, searching
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.randomness import key
from clearhead.recipe import Recipe
from clearhead.recipe.data import Corruption, Source, Spans, TextData
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.checks import check_length, check_vocabulary
from clearhead.tasks.head_task import HeadTask
from clearhead.tasks.measuring import total_loss
from clearhead.tasks.metrics import Score, perplexity
from clearhead.tasks.reading import bare_text
from clearhead.tasks.sequence_to_sequence import SequenceToSequence, check_encoder_decoder
from clearhead.tasks.task import Batch, Evaluation, Files, Prediction, Prepared, Sample, Trained
from clearhead.text.special_tokens import SpecialTokens
from clearhead.text.tokenizers import Tokenizer

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

    def __init__(self, texts: Sequences, length: int, corrupt: Corruptor, seed: int | str) -> None:
        self.texts, self.corrupt, self.seed = texts, corrupt, seed
        self.places = pieces_of(texts.lengths, length)
        self.sizes = corrupt.sizes(self.places[:, 2] - self.places[:, 1])

    def __len__(self) -> int:
        return len(self.places)

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


@dataclass(frozen=True, eq=False)
class Shifted(OnDemand[list[int]]):
    """Batches with `first` added to the number of each example."""

    batches: Sequence[Sequence[int]]
    first: int

    def __len__(self) -> int:
        return len(self.batches)

    def make(self, i: int) -> list[int]:
        return [self.first + example for example in self.batches[i]]


class Denoising(HeadTask[DenoisingRecipe]):
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
        self.train, self.valid = Pieces(train, length, corrupt, seed), Pieces(valid, length, corrupt, "validation")
        self.pairs = SequenceToSequence(tokenizer, max_tokens=max_tokens, packed=packed, generation=generation)
        self.largest = max(train.largest, valid.largest, corrupt.extra)

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        plan = token_budget_batches(self.sizes(self.train), max_tokens=self.pairs.max_tokens, seed=seed, epoch=epoch)
        return Shifted(plan, epoch * len(self.train))

    def sizes(self, pieces: Pieces) -> np.ndarray:
        """n 2: the most tokens of each pair's sides, with marks."""
        return pieces.sizes + np.array([len(self.pairs.source_tokens), len(self.pairs.target_tokens)])

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.pairs.batch(*self.train.pairs(examples))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_encoder_decoder(config, "to restore texts", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset transformer-tiny")
        assert config.encoder is not None
        longest = np.maximum(*(self.sizes(some).max(axis=0) for some in (self.train, self.valid))).tolist()
        for name, stack, length in zip(("encoder", "decoder"), (config.encoder, config.output), longest, strict=True):
            check_length(name, stack, length, remedy="try a lower data.length")
            check_vocabulary(name, stack, self.largest)
        return config

    def evaluate(self, network: Transformer) -> Evaluation:
        """Measures loss and perplexity of the targets. Every evaluation uses the same corruptions."""
        rows = np.arange(len(self.valid)) if self.few is None else np.array(self.few.rows)
        sizes = self.sizes(self.valid)[rows]
        budget = max(self.pairs.max_tokens, int(sizes.sum(axis=1).max()))
        plan = token_budget_batches(sizes, max_tokens=budget, seed=0, epoch=0)
        batches = (self.pairs.batch(*self.valid.pairs(rows[examples].tolist())) for examples in plan)
        nats, n = total_loss(network, batches, len(plan))
        scores = Score("loss", nats / n, unit="nats a token of the targets"), perplexity(nats, n)
        sources, targets = self.valid.pairs(range(min(N_SAMPLES, len(self.valid))))
        outputs = self.pairs.write(network, sources, self.generation)
        shown = partial(self.tokenizer.library.decode_batch, skip_special_tokens=False)
        triples = zip(shown(sources), outputs, shown(targets), strict=True)
        return Evaluation(scores, tuple(Sample(*one) for one in triples), loss=nats / n)

    def judged_sizes(self) -> Sequence[int]:
        return self.sizes(self.valid).sum(axis=1).tolist()

    @classmethod
    def prepared(cls, recipe: DenoisingRecipe, tokenizer: Tokenizer | None) -> Prepared:
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

    def report(self) -> TextReport:
        """Counts the texts, tokens and examples of each split."""
        both = {"train": self.train, "valid": self.valid}
        return text_report(
            {name: pieces.texts for name, pieces in both.items()},
            vocab_size=self.tokenizer.vocab_size,
            length=self.length,
            unknown=self.tokenizer.unk_id,
            examples={name: len(pieces) for name, pieces in both.items()},
            trained={name: int(self.sizes(pieces)[:, 1].sum()) for name, pieces in both.items()},
        )

    @classmethod
    def measured(
        cls, model: Trained, recipe: DenoisingRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        data = DenoisingData.model_construct() if recipe is None else recipe.data
        text = bare_text(model, source, data, data.held_out)
        both = {"corruption": data.corruption, "generation": searching(model.generation, {})}
        return cls(model.tokenizer, text, text, length=data.length, max_tokens=4096, **both).evaluate(model.network)

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Restores each corrupted text, with the search of a translation."""
        for text in model.translate(texts):
            yield Prediction(tabbed(text), {"text": text})
