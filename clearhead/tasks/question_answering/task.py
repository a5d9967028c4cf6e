"""Extractive question answering: the span of a context that answers a question, or none (Devlin et al. 2018, 4.2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from clearhead.config import ModelConfig, SpanHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import Encoded
from clearhead.data.sequences import largest_of
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.task import BATCH_TOKENS, most_tokens
from clearhead.tasks.evaluation import Evaluation, Example, Sample, part_of, worst
from clearhead.tasks.question_answering.data import NO_ANSWER, AnswerColumns, Question, Window, Windows, question_splits
from clearhead.tasks.question_answering.scores import QuestionReport, answer_scores, exact, question_split
from clearhead.tasks.scores import Score
from clearhead.tasks.task import (
    Batch,
    Files,
    Pair,
    Prediction,
    Prepared,
    RecipeTask,
    Trained,
    check_length,
    check_vocabulary,
    layers_of,
    with_head,
)
from clearhead.text.tokenizers import Tokenizer

MOST_TOKENS = 30
"""Tokens of an answer at most, as in the scripts of Devlin et al. 2018."""


@dataclass(frozen=True)
class Found:
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


def check_span_head(config: ModelConfig) -> None:
    """Raises UserError for any other head."""
    if not isinstance(config.head, SpanHead):
        raise UserError(
            f"model: expected a span head, got {config.head.kind}; try clearhead train question_answering first"
        )


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
    found: list[np.ndarray] = [np.empty((0, 2))] * len(data.windows)
    budget = max([BATCH_TOKENS, *data.lengths])
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(data.lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            tokens = batch_of([data.windows[i] for i in examples], tokenizer, packed=True)
            tokens = tokens.to(next(network.parameters()).device)
            grid = on_grid(network(tokens), tokens).double().cpu().numpy()
            for i, row in zip(examples, grid, strict=True):
                found[i] = row[: len(data.windows[i].ids)]
    return found


def best_of(data: Windows, logits: Sequence[np.ndarray]) -> list[Found]:
    """The best answer of each question: the span with the largest score in any window.

    It is none if, in every window, the cell of no answer has a larger score than that span (Devlin et al. 2018, 4.3).
    """
    spans: list[Found | None] = [None] * data.n_questions
    none = [Found(0, 0, np.inf, 0.0)] * data.n_questions
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


def _none(rows: np.ndarray) -> Found:
    return Found(0, 0, float(rows[NO_ANSWER].sum()), _share(rows, NO_ANSWER, NO_ANSWER))


def _best(window: Window, rows: np.ndarray) -> Found | None:
    if not (n := len(window.places)):
        return None
    cells = rows[window.start : window.start + n]
    sums = cells[:, :1] + cells[None, :, 1]
    sums[np.tril_indices(n, -1)] = -np.inf
    sums[np.triu_indices(n, MOST_TOKENS)] = -np.inf
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    share = _share(rows, window.start + int(first), window.start + int(last))
    return Found(window.places[first][0], window.places[last][1], float(sums[first, last]), share)


def _share(rows: np.ndarray, first: int, last: int) -> float:
    shares = np.exp(rows - rows.max(0))
    shares /= shares.sum(0)
    return float(shares[first, 0] * shares[last, 1])


def said(
    network: Transformer, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], *, limit: int, overlap: int
) -> Iterator[Prediction]:
    """The answer to each question in its context; an empty line if there is none."""
    data = Windows.of(pairs, tokenizer, limit=limit, overlap=overlap)
    for (_, context), found in zip(pairs, best_of(data, logits_of(network, data, tokenizer)), strict=True):
        answer = found.text(context)
        place: JsonObject = {"start": found.start, "end": found.end} if answer else {"start": None, "end": None}
        line = tabbed(" ".join(answer.split()))
        yield Prediction(line, {"answer": answer, **place, "probability": found.probability})


N_MISTAKES = 5
USUAL_LENGTH = 384
"""Tokens of a window in the scripts of Devlin et al. 2018."""


class QuestionData(TestedData):
    """Questions about contexts that hold their answers."""

    question: Column = "question"
    context: Column = "context"
    answer: Column = "answer"
    """The columns of a table or dataset; SQuAD's files have fields of their own."""
    max_length: Annotated[int, Field(ge=16)] = 384
    """Most tokens of a question with its context; longer contexts are read in windows."""
    overlap: NonNegativeInt = 128
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


@dataclass(frozen=True)
class Asked:
    """Questions and their windows."""

    questions: Sequence[Question]
    data: Windows

    @classmethod
    def of(cls, questions: Sequence[Question], tokenizer: Tokenizer, *, limit: int, overlap: int) -> Self:
        """Encodes the questions."""
        pairs = [(one.question, one.context) for one in questions]
        return cls(questions, Windows.of(pairs, tokenizer, limit=limit, overlap=overlap))

    def taken(self, rows: Sequence[int]) -> Self:
        """The questions with these numbers."""
        return type(self)([self.questions[i] for i in rows], self.data.taken(rows))

    def label(self, window: Window) -> tuple[int, int]:
        """The cells where the first answer begins and ends, or twice the cell of no answer if the window lacks it."""
        answers = self.questions[window.question].answers
        found = window.cells(answers[0]) if answers else None
        return found or (NO_ANSWER, NO_ANSWER)


class QuestionAnswering(RecipeTask[QuestionRecipe]):
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
        self, tokenizer: Tokenizer, train: Asked, valid: Asked, *, max_tokens: int, packed: bool = True
    ) -> None:
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.max_tokens, self.packed = max_tokens, packed

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.data.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        windows = [self.train.data.windows[i] for i in examples]
        labels = torch.tensor([self.train.label(window) for window in windows])
        return Batch((batch_of(windows, self.tokenizer, packed=self.packed),), labels)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            raise UserError(f"{where}: expected an encoder alone to find answers, got a decoder; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a span head. Replaces any other by a new one."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        both = self.train.data, self.valid.data
        largest = max(largest_of([window.ids for window in data.windows]) for data in both)
        check_length(
            "encoder", config.output, max(max(data.lengths) for data in both), remedy="try a lower data.max_length"
        )
        check_vocabulary("encoder", config.output, largest)
        head = config.head if isinstance(config.head, SpanHead) else SpanHead(**layers_of(config.head))
        return with_head(config, head)

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The mean cross-entropy of start and end over the tokens of each window, in nats."""
        logits = network(*batch.inputs)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return span_loss(on_grid(logits, batch.inputs[0]), batch.labels, smoothing=smoothing), batch.count

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.measure(network, part_of(self.valid, self.few))

    def judged_sizes(self) -> Sequence[int]:
        sizes = [0] * self.valid.data.n_questions
        for window in self.valid.data.windows:
            sizes[window.question] += len(window.ids)
        return sizes

    def measure(self, network: Transformer, asked: Asked) -> Evaluation:
        """The scores on these questions, and the wrong answers with the largest loss."""
        logits = logits_of(network, asked.data, self.tokenizer)
        found = best_of(asked.data, logits)
        outputs = [one.text(asked_.context) for one, asked_ in zip(found, asked.questions, strict=True)]
        references = [[answer.text for answer in one.answers] for one in asked.questions]
        losses = np.zeros(len(outputs))
        for window, rows in zip(asked.data.windows, logits, strict=True):
            loss = span_loss(torch.from_numpy(rows)[None], torch.tensor([asked.label(window)]))
            losses[window.question] = max(losses[window.question], float(loss))
        examples = tuple(
            Example(
                one.question,
                output,
                " | ".join(dict.fromkeys(right)) or "(no answer)",
                float(own),
                not exact(output, right),
                one.where.rpartition("/")[2],
            )
            for one, output, right, own in zip(asked.questions, outputs, references, losses, strict=True)
        )
        samples = [
            Sample(f"{one.place}: {one.source}", one.output, one.reference) for one in worst(examples, N_MISTAKES)
        ]
        loss = float(losses.mean())
        scores = (*answer_scores(references, outputs), Score("loss", loss))
        return Evaluation(scores, tuple(samples), tuple(outputs), loss, examples)

    @classmethod
    def prepared(cls, recipe: QuestionRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        splits = question_splits(data, data.columns, data.held_out)
        train = splits["train"]
        texts = {text: None for one in train for text in (one.question, one.context)}
        tokenizer = with_pairs(tokenizer or Tokenizer.train(texts, recipe.tokenizer))
        encoded = {
            name: Asked.of(split, tokenizer, limit=data.max_length, overlap=data.overlap)
            for name, split in splits.items()
        }
        report = QuestionReport(
            vocab_size=tokenizer.vocab_size,
            splits=tuple(question_split(name, one.questions, one.data, train=train) for name, one in encoded.items()),
        )
        task = cls(
            tokenizer,
            encoded["train"],
            encoded["valid"],
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
        )
        sha = {
            name: fingerprint(*([(e.question, e.context, *(f"{a.start} {a.text}" for a in e.answers))] for e in split))
            for name, split in splits.items()
        }
        return Prepared(task, Encoded(tokenizer, encoded["train"], encoded["valid"], report, sha))

    @classmethod
    def measured(
        cls, model: Trained, recipe: QuestionRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        check_span_head(model.network.config)
        data = None if recipe is None else recipe.data
        if source is not None:
            questions = (data.columns if data else AnswerColumns()).read(source)
        else:
            assert data is not None
            splits = question_splits(data, data.columns, data.held_out)
            questions = splits.get("test", splits["valid"])
        asked = Asked.of(questions, model.tokenizer, **_reach(model))
        return cls(model.tokenizer, asked, asked, max_tokens=BATCH_TOKENS).evaluate(model.network)

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Answers each question. An input is a question, a tab and its context.

        Raises UserError for a text without a tab.
        """
        check_span_head(model.network.config)
        pairs: list[tuple[str, str]] = []
        for text in texts:
            question, context = text.texts if isinstance(text, Pair) else text.partition("\t")[::2]
            if not context.strip():
                raise UserError(f"{text[:60]!r}: expected a question, a tab and its context, got no context; add them")
            pairs.append((question, context))
        yield from said(model.network, model.tokenizer, pairs, **_reach(model))


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


def _reach(model: Trained) -> dict[Literal["limit", "overlap"], int]:
    """The length of windows and their overlap: as in training, otherwise those of Devlin et al. 2018."""
    limit, overlap = most_tokens(model, USUAL_LENGTH), model.contract.overlap
    limit = limit if model.contract.max_length else min(limit, USUAL_LENGTH)
    return {"limit": limit, "overlap": limit // 3 if overlap is None else overlap}
