"""Extractive question answering: the span of a context that answers a question, or none (Devlin et al. 2018, 4.2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from clearhead.brief import amount
from clearhead.config import ModelConfig
from clearhead.config.heads import SpanHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.splits import complete_splits
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.evaluation import Evaluation, Example, worst_samples
from clearhead.tasks.networks import (
    BATCH_TOKENS,
    batch_of,
    check_fits,
    extent_of,
    layers_of,
    most_tokens,
    outputs_of,
    with_head,
)
from clearhead.tasks.parts import EncodedExamples
from clearhead.tasks.question_answering.data import (
    NO_ANSWER,
    USUAL_LENGTH,
    Question,
    QuestionData,
    Window,
    Windows,
    answer_scores,
    exact,
    read_questions,
)
from clearhead.tasks.reports import SplitReport
from clearhead.tasks.scores import Score
from clearhead.tasks.task import Batch, ExampleTask, Files, Pair, Prediction, Trained
from clearhead.text.tokenizers import Tokenizer

MOST_TOKENS = 30
"""Tokens of an answer at most, as in the scripts of Devlin et al. 2018."""


class QuestionRecipe(Recipe):
    """How to train a network that finds answers in texts."""

    task: Literal["question_answering"]
    data: QuestionData
    tokenizer: TokenizerConfig = WordPiece(lowercase=True)
    model: ModelChoice = ModelChoice(preset="classifier")


Asked: TypeAlias = EncodedExamples[Question, Windows]


def label_of(window: Window, data: Asked) -> tuple[int, int]:
    """The cells where the first answer begins and ends, or twice the cell of no answer if the window lacks it."""
    answers = data.examples[window.example].answers
    cells = window.cells(answers[0]) if answers else None
    return cells or (NO_ANSWER, NO_ANSWER)


@dataclass(eq=False)
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

    tokenizer: Tokenizer
    _: KW_ONLY
    limit: int
    """The most tokens of a window."""
    overlap: int
    """Tokens of the context that two windows share."""
    max_tokens: int = BATCH_TOKENS
    packed: bool = True

    # --- data

    @classmethod
    def read(cls, source: Source, data: QuestionData) -> list[Question]:
        return read_questions(source, data)

    @classmethod
    def split(cls, splits: dict[str, list[Question]], data: QuestionData) -> dict[str, list[Question]]:
        """Completes the splits. A split without a source gets the questions about some of the contexts."""
        train = splits["train"]
        if not any(one.answers for one in train):
            where = train[0].where
            raise UserError(f"{where}: expected questions with answers to train on, got none; try another column")
        return complete_splits(splits, data.held_out, expected="contexts, to hold some out")

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

    def describe(self, name: str, examples: Sequence[Question], data: Asked, train: Sequence[Question]) -> SplitReport:
        """The report on a split. Raises UserError if no training window holds an answer."""
        windows = data.inputs
        counts, held = [0] * len(examples), [0] * len(examples)
        for window in windows.parts:
            counts[window.example] += 1
            answers = examples[window.example].answers
            held[window.example] += bool(answers and window.cells(answers[0]))
        answered = [one for one in examples if one.answers]
        lost = [one for one, n in zip(examples, held, strict=True) if one.answers and not n]
        if name == "train" and not any(held):
            raise UserError(
                f"{lost[0].where}: expected a window that holds an answer, got none; try a larger data.overlap"
            )
        moved = [one for one in examples if one.is_moved]
        known = {one.normalized for one in train}
        shared = [one for one in examples if one.normalized in known]
        n, n_contexts = len(examples), len({one.normalized for one in examples})
        each = f"{sum(len(one.answers[0].text) for one in answered) / max(len(answered), 1):.1f} characters each"
        length = f"{sum(windows.lengths) / len(windows.lengths):.1f} tokens each, at most {max(windows.lengths):,}"
        lines = [
            f"{name}: {amount(n, 'questions')} about {amount(n_contexts, 'contexts')}; {length}",
            f"  answers: {len(answered):,} questions, {each}; {n - len(answered):,} without one",
            f"  labels: {sum(held):,} of {len(windows.parts):,} windows hold the answer",
        ]
        n_duplicates = n - len({one.asked for one in examples})

        def such(some: Sequence[Question]) -> str:
            return f"such as {some[0].where}" if some else ""

        findings = {
            "n_windowed": (sum(n > 1 for n in counts), "contexts are read in several windows"),
            "n_lost": (len(lost), f"answers are in no window, {such(lost)}; try a larger data.overlap"),
            "n_moved": (len(moved), f"answers are not where answer_start says, {such(moved)}; the nearest is taken"),
            "n_duplicates": (n_duplicates, "duplicates, kept"),
            "n_shared": (len(shared), f"({len(shared) / n:.1%}) have a context that is also in train, {such(shared)}"),
        }
        sizes = {"n_questions": n, "n_contexts": n_contexts, "n_windows": len(windows.parts), "n_labels": sum(held)}
        return SplitReport.of_texts(lines, findings, windows.ids, self.tokenizer, name=name, **sizes)

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return token_budget_batches(self.train.inputs.lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        windows = [self.train.inputs.parts[i] for i in examples]
        labels = torch.tensor([label_of(window, self.train) for window in windows])
        inputs = batch_of(self.tokenizer, **Windows(windows, 0).read, packed=self.packed)
        return Batch(inputs, labels)

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            raise UserError(f"{where}: expected an encoder alone to find answers, got a decoder; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a span head. Replaces any other by a new one."""
        self.check_kind(config, where="model", remedy="try preset classifier")
        size = extent_of(self.train.inputs.ids, self.valid.inputs.ids)
        check_fits(config, size, remedy="try a lower data.max_length")
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
        for window, rows in zip(data.inputs.parts, logits, strict=True):
            loss = span_loss(torch.from_numpy(rows)[None], torch.tensor([label_of(window, data)]))
            losses[window.example] = max(losses[window.example], float(loss))
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
    logits: list[np.ndarray] = [np.empty((0, 2))] * len(data.parts)
    for rows, tokens, output in outputs_of(network, tokenizer, **data.read):
        for i, cells in zip(rows, on_grid(output, tokens).double().cpu().numpy(), strict=True):
            logits[i] = cells[: len(data.parts[i].ids)]
    return logits


def best_of(data: Windows, logits: Sequence[np.ndarray]) -> list[Span]:
    """The best answer of each question: the span with the largest score in any window.

    It is none if, in every window, the cell of no answer has a larger score than that span (Devlin et al. 2018, 4.3).
    """
    nothing = [Span(0, 0, np.inf, 0.0)] * data.n_examples
    best = [Span(0, 0, -np.inf, 0.0)] * data.n_examples
    for window, rows in zip(data.parts, logits, strict=True):
        q, shares = window.example, np.exp(rows - rows.max(0))
        shares /= shares.sum(0)
        if n := len(window.places):
            cells = rows[window.start : window.start + n]
            sums = cells[:, :1] + cells[None, :, 1]
            sums[np.tril_indices(n, -1)] = -np.inf
            sums[np.triu_indices(n, MOST_TOKENS)] = -np.inf
            first, last = np.unravel_index(int(sums.argmax()), sums.shape)
            share = float(shares[window.start + first, 0] * shares[window.start + last, 1])
            span = Span(window.places[first][0], window.places[last][1], float(sums[first, last]), share)
            best[q] = max(best[q], span, key=lambda one: one.score)
        none = Span(0, 0, float(rows[NO_ANSWER].sum()), float(shares[NO_ANSWER].prod()))
        nothing[q] = min(nothing[q], none, key=lambda one: one.score)
    return [none if none.score > span.score else span for span, none in zip(best, nothing, strict=True)]
