"""Extractive question answering: the span of a context that answers a question, or none (Devlin et al. 2018, 4.2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.heads import SpanHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.sequences import largest_of
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.evaluation import Evaluation, Example, worst_samples
from clearhead.tasks.networks import BATCH_TOKENS, check_fits, layers_of, most_tokens, outputs_of, with_head
from clearhead.tasks.question_answering.data import (
    NO_ANSWER,
    AnswerColumns,
    Question,
    Window,
    Windows,
    split_questions,
)
from clearhead.tasks.question_answering.scores import QuestionReport, answer_scores, exact, question_split
from clearhead.tasks.scores import Score
from clearhead.tasks.task import Batch, EncodedExamples, ExampleTask, Files, Pair, Prediction, Trained
from clearhead.text.tokenizers import Tokenizer

USUAL_LENGTH, USUAL_OVERLAP = 384, 128
"""Tokens of a window, and those that two have in common, in the scripts of Devlin et al. 2018."""
MOST_TOKENS = 30
"""Tokens of an answer at most, as in the scripts of Devlin et al. 2018."""


class QuestionData(TestedData):
    """Questions about contexts that hold their answers."""

    question: Column = "question"
    context: Column = "context"
    answer: Column = "answer"
    """The columns of a table or dataset; SQuAD's files have fields of their own."""
    max_length: Annotated[int, Field(ge=16)] = USUAL_LENGTH
    """Most tokens of a question with its context; longer contexts are read in windows."""
    overlap: NonNegativeInt = USUAL_OVERLAP
    """Tokens of the context that two windows have in common."""

    @property
    def columns(self) -> AnswerColumns:
        """The columns of its questions."""
        return AnswerColumns(self.question, self.context, self.answer)


class QuestionRecipe(Recipe):
    """How to train a network that finds answers in texts."""

    task: Literal["question_answering"]
    data: QuestionData
    tokenizer: TokenizerConfig = WordPiece(lowercase=True)
    model: ModelChoice = ModelChoice(preset="classifier")


Asked: TypeAlias = EncodedExamples[Question, Windows]


def label_of(window: Window, data: Asked) -> tuple[int, int]:
    """The cells where the first answer begins and ends, or twice the cell of no answer if the window lacks it."""
    answers = data.examples[window.question].answers
    cells = window.cells(answers[0]) if answers else None
    return cells or (NO_ANSWER, NO_ANSWER)


class QuestionAnswering(ExampleTask[QuestionRecipe, Question, Asked]):
    """p(start | question, context) and p(end | question, context)."""

    recipe = QuestionRecipe
    files = Files("questions with their contexts", {"kind": "squad", "paths": "--data"})
    verb, pair = "answer", ("question", "context")
    use = 'answer {} "A question?" --context "A context."'
    samples = "worst mistakes"
    heads = ("span",)
    main_score = "f1"
    higher_is_better = True
    unit = "windows"

    def __init__(
        self, tokenizer: Tokenizer, *, limit: int, overlap: int, max_tokens: int = BATCH_TOKENS, packed: bool = True
    ) -> None:
        """`limit` is the most tokens of a window, and `overlap` those of the context that two windows share."""
        self.tokenizer, self.limit, self.overlap = tokenizer, limit, overlap
        self.max_tokens, self.packed = max_tokens, packed

    # --- data

    @classmethod
    def read(cls, source: Source, data: QuestionData) -> list[Question]:
        return data.columns.read(source)

    @classmethod
    def split(cls, splits: dict[str, list[Question]], data: QuestionData) -> dict[str, list[Question]]:
        return split_questions(splits, data.held_out)

    @classmethod
    def from_recipe(
        cls, recipe: QuestionRecipe, splits: Mapping[str, Sequence[Question]], tokenizer: Tokenizer | None
    ) -> Self:
        texts = {text: None for one in splits["train"] for text in (one.question, one.context)}
        return cls(
            with_pairs(tokenizer or Tokenizer.train(texts, recipe.tokenizer)),
            limit=recipe.data.max_length,
            overlap=recipe.data.overlap,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: QuestionRecipe | None) -> Self:
        """The length of windows and their overlap are those of training, otherwise those of Devlin et al. 2018."""
        if not isinstance(head := model.network.config.head, SpanHead):
            remedy = "try clearhead train question_answering first"
            raise UserError(f"model: expected a span head, got {head.kind}; {remedy}")
        limit, overlap = most_tokens(model, USUAL_LENGTH), model.contract.overlap
        limit = limit if model.contract.max_length else min(limit, USUAL_LENGTH)
        return cls(model.tokenizer, limit=limit, overlap=limit // 3 if overlap is None else overlap)

    def known(self, examples: list[Question]) -> list[Question]:
        return examples

    def encode(self, examples: Sequence[Question]) -> Asked:
        return Asked(examples, self.windows([(one.question, one.context) for one in examples]))

    def windows(self, pairs: Sequence[tuple[str, str]]) -> Windows:
        """Questions and their contexts as the network reads them."""
        return Windows.of(pairs, self.tokenizer, limit=self.limit, overlap=self.overlap)

    @classmethod
    def content(cls, example: Question) -> Sequence[str]:
        return example.question, example.context, *(f"{answer.start} {answer.text}" for answer in example.answers)

    def report(self, splits: Mapping[str, Sequence[Question]], encoded: Mapping[str, Asked]) -> QuestionReport:
        train = splits["train"]
        counts = (question_split(name, one.examples, one.inputs, train=train) for name, one in encoded.items())
        return QuestionReport(vocab_size=self.tokenizer.vocab_size, splits=tuple(counts))

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.inputs.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        windows = [self.train.inputs.windows[i] for i in examples]
        labels = torch.tensor([label_of(window, self.train) for window in windows])
        return Batch((batch_of(windows, self.tokenizer, packed=self.packed),), labels)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            raise UserError(f"{where}: expected an encoder alone to find answers, got a decoder; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a span head. Replaces any other by a new one."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        both = self.train.inputs, self.valid.inputs
        largest = max(largest_of([window.ids for window in data.windows]) for data in both)
        longest = max(max(data.lengths) for data in both)
        check_fits(config, (longest, largest), remedy="try a lower data.max_length")
        head = config.head if isinstance(config.head, SpanHead) else SpanHead(**layers_of(config.head))
        return with_head(config, head)

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The mean cross-entropy of start and end over the tokens of each window, in nats."""
        logits = network(*batch.inputs)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return span_loss(on_grid(logits, batch.inputs[0]), batch.labels, smoothing=smoothing), batch.count

    # --- use

    def score(self, network: Transformer, data: Asked) -> Evaluation:
        """The scores on these questions, and the wrong answers with the largest loss."""
        logits = logits_of(network, data.inputs, self.tokenizer)
        spans = zip(best_of(data.inputs, logits), data.examples, strict=True)
        outputs = [span.text(question.context) for span, question in spans]
        references = [[answer.text for answer in one.answers] for one in data.examples]
        losses = np.zeros(len(outputs))
        for window, rows in zip(data.inputs.windows, logits, strict=True):
            loss = span_loss(torch.from_numpy(rows)[None], torch.tensor([label_of(window, data)]))
            losses[window.question] = max(losses[window.question], float(loss))
        examples = tuple(
            Example(
                question.question,
                output,
                " | ".join(dict.fromkeys(right)) or "(no answer)",
                loss,
                not exact(output, right),
                question.where.rpartition("/")[2],
            )
            for question, output, right, loss in zip(data.examples, outputs, references, losses.tolist(), strict=True)
        )
        loss = float(losses.mean())
        scores = (*answer_scores(references, outputs), Score("loss", loss))
        return Evaluation(scores, worst_samples(examples), tuple(outputs), loss, examples)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Answers each question; the line is empty if there is no answer.

        An input is a question, a tab and its context. Raises UserError for a text without a tab.
        """
        task, pairs = cls.from_model(model, None), list[tuple[str, str]]()
        for text in texts:
            question, context = text.texts if isinstance(text, Pair) else text.partition("\t")[::2]
            if not context.strip():
                raise UserError(f"{text[:60]!r}: expected a question, a tab and its context, got no context; add them")
            pairs.append((question, context))
        windows = task.windows(pairs)
        spans = best_of(windows, logits_of(model.network, windows, task.tokenizer))
        for (_, context), span in zip(pairs, spans, strict=True):
            answer = span.text(context)
            place: JsonObject = {"start": span.start, "end": span.end} if answer else {"start": None, "end": None}
            line = tabbed(" ".join(answer.split()))
            yield Prediction(line, {"answer": answer, **place, "probability": span.probability})


def span_loss(grid: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Half the summed cross-entropy of starts and ends; b t 2, b 2."""
    logs = grid.log_softmax(1)
    loss = -logs.gather(1, labels[:, None]).sum() / 2
    if not smoothing:
        return loss
    counts = grid.isfinite()
    even = -(logs.masked_fill(~counts, 0.0).sum(1) / counts.sum(1)).sum() / 2
    return (1 - smoothing) * loss + smoothing * even


def with_pairs(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, with its end token between two texts if it has no template for them."""
    has_template = tokenizer.library.num_special_tokens_to_add(is_pair=True)
    return tokenizer if has_template else tokenizer.templated("{end} $A", "{end} $A {end} $B:1")


# --- answers from logits ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Characters [start, end) of a context, or none of them."""

    start: int
    end: int
    score: float
    """The logit of the start and that of the end."""
    probability: float
    """The product of the probabilities of its start and its end in its window."""

    def text(self, context: str) -> str:
        """The text of the answer; empty without one."""
        return context[self.start : self.end]


def batch_of(windows: Sequence[Window], tokenizer: Tokenizer, *, packed: bool) -> Tokens:
    """These windows as one batch, with the type of each text."""
    tokens = Tokens.pad([one.ids for one in windows], fill=tokenizer.pad_id or 0, packed=packed)
    types = Tokens.pad([one.types for one in windows]).ids
    return Tokens(tokens.ids, tokens.valid, tokens.rows, types=types)


def on_grid(logits: Tensor, tokens: Tokens) -> Tensor:
    """n 2 or b t 2 -> b t 2, with -inf in the padding."""
    if tokens.valid is None:
        return logits if logits.ndim == 3 else logits.unflatten(0, tokens.grid)
    if logits.ndim == 3:
        return logits.masked_fill(~tokens.valid[..., None], -torch.inf)
    grid = logits.new_full((tokens.valid.numel(), 2), -torch.inf)
    grid[tokens.valid.flatten()] = logits
    return grid.view(*tokens.valid.shape, 2)


def logits_of(network: Transformer, data: Windows, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The logits of each window's cells, t 2, on the CPU."""

    def collate(rows: Sequence[int]) -> tuple[Tokens, ...]:
        return (batch_of([data.windows[i] for i in rows], tokenizer, packed=True),)

    logits: list[np.ndarray] = [np.empty((0, 2))] * len(data.windows)
    for rows, (tokens,), output in outputs_of(network, data.lengths, collate):
        for i, cells in zip(rows, on_grid(output, tokens).double().cpu().numpy(), strict=True):
            logits[i] = cells[: len(data.windows[i].ids)]
    return logits


def best_of(data: Windows, logits: Sequence[np.ndarray]) -> list[Span]:
    """The best answer of each question: the span with the largest score in any window.

    It is none if, in every window, the cell of no answer has a larger score than that span (Devlin et al. 2018, 4.3).
    """
    spans: list[Span | None] = [None] * data.n_questions
    none = [Span(0, 0, np.inf, 0.0)] * data.n_questions
    for window, rows in zip(data.windows, logits, strict=True):
        q = window.question
        found, nothing, best = _best(window, rows), _none(rows), spans[q]
        if found is not None and (best is None or found.score > best.score):
            spans[q] = found
        none[q] = min(none[q], nothing, key=lambda one: one.score)
    return [
        nothing if span is None or nothing.score > span.score else span
        for span, nothing in zip(spans, none, strict=True)
    ]


def _none(rows: np.ndarray) -> Span:
    return Span(0, 0, float(rows[NO_ANSWER].sum()), _share(rows, NO_ANSWER, NO_ANSWER))


def _best(window: Window, rows: np.ndarray) -> Span | None:
    if not (n := len(window.places)):
        return None
    cells = rows[window.start : window.start + n]
    sums = cells[:, :1] + cells[None, :, 1]
    sums[np.tril_indices(n, -1)] = -np.inf
    sums[np.triu_indices(n, MOST_TOKENS)] = -np.inf
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    share = _share(rows, window.start + int(first), window.start + int(last))
    return Span(window.places[first][0], window.places[last][1], float(sums[first, last]), share)


def _share(rows: np.ndarray, first: int, last: int) -> float:
    shares = np.exp(rows - rows.max(0))
    shares /= shares.sum(0)
    return float(shares[first, 0] * shares[last, 1])
