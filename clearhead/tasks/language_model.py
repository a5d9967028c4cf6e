"""Language modelling: the next token of a text (Radford et al. 2019)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import PositiveInt

from clearhead.config import ModelConfig
from clearhead.data.corpus import encoded_text
from clearhead.data.encoded import EncodedText
from clearhead.json_text import tabbed
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source, TextData
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Characters, TokenizerConfig
from clearhead.tasks.evaluation import Evaluation, Example, Sample
from clearhead.tasks.floors import Floor
from clearhead.tasks.networks import check_decoder, check_fits, losses
from clearhead.tasks.reading import Reading, RowsTask, complete_text, count, measured_text, predicted, read_as
from clearhead.tasks.reports import SplitReport, SplitsReport
from clearhead.tasks.scores import Score, ScoredRows, bits_per_byte, of_each, perplexity, ratio
from clearhead.tasks.task import Files, Prediction, Prepared, RecipeTask, Trained
from clearhead.text.special_tokens import template_tokens
from clearhead.text.tokenizers import Tokenizer

EVALUATION_TOKENS = 8192
PROMPT_TOKENS = 16


class LanguageData(TextData):
    """Running text."""

    length: PositiveInt = 256
    """Tokens of context a window holds."""


class LanguageRecipe(Recipe):
    """How to train a language model."""

    task: Literal["lm"]
    data: LanguageData
    tokenizer: TokenizerConfig = Characters()
    model: ModelChoice = ModelChoice(preset="nano")
    generation: GenerationConfig = GenerationConfig(max_new_tokens=256, temperature=0.8)


class LanguageModel(RowsTask, RecipeTask[LanguageRecipe]):
    """p(token | the tokens before it, `length` at most)."""

    recipe = LanguageRecipe
    files = Files("a text", {"kind": "text", "paths": "--text"})
    verb = "generate"
    use = 'generate {} "The beginning"'
    main_score = "loss"
    higher_is_better = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        train: EncodedText,
        valid: EncodedText,
        *,
        length: int,
        max_tokens: int,
        generation: GenerationConfig,
    ) -> None:
        self.tokenizer, self.length, self.generation = tokenizer, length, generation
        self.train = read_as(train, length, tokenizer, name="train")
        self.valid = read_as(valid, length, tokenizer, name="valid")
        self.train_text, self.valid_text = train, valid
        self.batch_size = max(1, max_tokens // length)

    @property
    def rows(self) -> Reading:
        return self.train

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_decoder(config, "to model language", where=where, remedy=remedy)

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset nano")
        largest = max(self.train.largest, self.valid.largest)
        check_fits(config, (self.length, largest), remedy="try a lower data.length")
        return config

    def score(self, network: Transformer, data: Reading) -> Evaluation:
        """The scores, and the text that the network writes after the beginning of the validation text."""
        ids = self.tokenizer.encode(self.valid_text.beginning)[: min(PROMPT_TOKENS, self.length // 2)]
        prompt = [*template_tokens(self.tokenizer).before, *ids]
        sample = complete_text(network, self.tokenizer, prompt, self.generation)
        scores = self.scores(network, data)
        return Evaluation(scores, (Sample(self.tokenizer.decode(prompt), sample, ""),), loss=scores[0].value)

    def scores(self, network: Transformer, data: Reading, *, windows: int | None = None) -> tuple[Score, ...]:
        """Measures loss, perplexity and bits per byte over every token of the validation text, in separate windows.

        If some windows are chosen, bits per byte takes all tokens to have equally many bytes. The scores have a row for
        each batch, of `windows` windows.
        """
        size = windows or max(1, EVALUATION_TOKENS // self.length)
        sums = losses(network, data.everything(size), -(-len(data.rows_chosen) // size))
        nats, counts = (np.array(column) for column in zip(*sums, strict=True))
        total, n = sum(nats.tolist()), int(counts.sum())
        per_byte = bits_per_byte(total, self.valid_text.n_bytes * n / sum(data.sizes))
        rows = ScoredRows(ratio, (nats, counts))
        return Score("loss", total / n, unit="nats a token", rows=rows), perplexity(total, n), per_byte

    def floors(self, held_out: Mapping[str, EncodedText]) -> Iterator[Floor]:
        """A unigram model: each token's share of the training text, after each is counted once more."""
        counts, wanted = (
            predicted(text.ids, self.tokenizer.vocab_size) for text in (self.train_text, held_out["valid"])
        )
        nats = np.log((counts + 1).sum()) - np.log(counts + 1)
        found = perplexity(float(nats @ wanted), int(wanted.sum()))
        loss = Score("loss", math.log(found.value))
        yield Floor.of("unigram", "valid", loss, about=f"perplexity {found.value:.1f}")

    @classmethod
    def prepare(cls, recipe: LanguageRecipe, tokenizer: Tokenizer | None) -> Prepared:
        found = encoded_text(recipe, tokenizer, held_out=recipe.data.held_out)
        task = cls(
            found.tokenizer,
            found.train,
            found.valid,
            length=recipe.data.length,
            max_tokens=recipe.training.max_tokens,
            generation=recipe.generation,
        )
        return Prepared(task, replace(found, report=task.report({"train": found.train, "valid": found.valid})))

    def report(self, splits: Mapping[str, EncodedText]) -> SplitsReport:
        """Counts the documents and tokens of each split."""
        reports = list[SplitReport]()
        unknown = np.array([token for token in (self.tokenizer.unk_id,) if token is not None], np.int64)
        for name, text in splits.items():
            n, n_unknown = int(text.ids.lengths.sum()), count(text.ids, unknown)
            what = "one text" if text.is_running else f"{len(text.ids):,} documents"
            line = f"{name}: {what}, {n:,} tokens ({n_unknown / n:.2%} unknown)"
            reports.append(SplitReport.of([line], {}, name=name, n_tokens=n, n_unknown=n_unknown))
        return SplitsReport(about=(f"vocabulary: {self.tokenizer.vocab_size:,} tokens",), splits=tuple(reports))

    @classmethod
    def measure(
        cls, model: Trained, recipe: LanguageRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        """Lists each window with its loss."""
        length = recipe.data.length if source is None and recipe else model.network.config.output.max_length or 256
        text = measured_text(model, source, None if recipe is None else recipe.data)
        task = cls(model.tokenizer, text, text, length=length, max_tokens=8192, generation=model.generation)
        scores = task.scores(model.network, task.valid, windows=1)
        texts = [model.tokenizer.decode(batch.labels.tolist()) for batch in task.valid.everything(1)]
        examples = tuple(
            Example(text, "", "", nats, is_wrong=True) for text, nats in zip(texts, of_each(scores[0]), strict=True)
        )
        return Evaluation(scores, loss=scores[0].value, examples=examples)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        for text in texts:
            written = model.generate(text)
            yield Prediction(tabbed(text + written), {"text": written})
