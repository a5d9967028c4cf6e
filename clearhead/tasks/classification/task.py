"""Sequence classification: labels for a text, or for two texts together, by an encoder, a decoder or both."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import shorten
from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.config.inputs import TokenInput
from clearhead.data.batches import token_budget_batches
from clearhead.data.sequences import largest_of
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Transformer
from clearhead.model.heads import scores
from clearhead.model.target_scaling import UNSCALED, TargetScale
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.beginning import begin_linear, begin_matching, can_begin
from clearhead.tasks.classification.data import (
    MOST_NAMES,
    NO_LIMIT,
    ClassificationData,
    Inputs,
    LabelledText,
    names_of,
    read_labelled,
    split_labelled,
    until_padding,
)
from clearhead.tasks.classification.defaults import BLEND, lines_of, settle
from clearhead.tasks.classification.linear import Answers, linear, majority
from clearhead.tasks.classification.scores import accuracy, label_findings, macro_f1, micro_f1, spearman
from clearhead.tasks.evaluation import Evaluation, Example, worst_samples
from clearhead.tasks.floors import Floor
from clearhead.tasks.networks import (
    BATCH_TOKENS,
    batch_of,
    check_fits,
    check_vocabulary,
    distinct,
    extent_of,
    most_tokens,
    outputs_of,
    with_head,
)
from clearhead.tasks.parts import EncodedExamples
from clearhead.tasks.reports import SplitReport, check_known, repeats, shares_line
from clearhead.tasks.scores import Score, ScoredRows, mean, scored
from clearhead.tasks.task import Batch, ExampleTask, Files, Prediction, Trained, texts_of
from clearhead.text.special_tokens import start_again
from clearhead.text.tokenizers import Tokenizer

MAIN: dict[ProblemType, tuple[str, Callable[..., float]]] = {
    "single_label_classification": ("accuracy", accuracy),
    "multi_label_classification": ("micro_f1", micro_f1),
    "regression": ("spearman", spearman),
}
"""The score that chooses the best checkpoint."""


class ClassificationRecipe(Recipe):
    """How to train a classifier."""

    task: Literal["classification"]
    data: ClassificationData
    tokenizer: TokenizerConfig = WordPiece(lowercase=True)
    model: ModelChoice = ModelChoice(preset="classifier")
    begin: Literal["random", "words"] = "random"
    """The first weights of a new network: random, or what counting words says (docs/classification.md)."""
    rereads: bool = False
    """Whether a decoder reads each text again after an encoder (Lewis et al. 2019). A run takes it from its network."""

    @property
    def leaves_length(self) -> bool:
        """Whether the number of passes over the data follows from them."""
        return self.begin == "words" and self.training.steps is None and self.training.epochs is None


Labelled: TypeAlias = EncodedExamples[LabelledText, Inputs]


@dataclass(eq=False)
class Classification(ExampleTask[ClassificationRecipe, LabelledText, Labelled]):
    """p(label | text), or numbers for a text."""

    recipe = ClassificationRecipe
    files = Files("a table of texts and labels", {"kind": "table", "path": "--data"})
    verb, pair = "classify", ("text", "text_pair")
    use = 'classify {} "A text."'
    samples = "worst mistakes"
    heads = ("classification",)
    higher_is_better = True
    unit = "texts"

    tokenizer: Tokenizer
    _: KW_ONLY
    labels: Sequence[str]
    problem_type: ProblemType
    limit: int = NO_LIMIT
    """The most tokens of a text."""
    max_tokens: int = BATCH_TOKENS
    packed: bool = True
    again: GenerationConfig | None = None
    """With it, a decoder reads each text again after an encoder."""
    target_scale: TargetScale = UNSCALED
    """Its unit is that of the squared error of a regression."""
    begins: Literal["random", "words"] = "random"
    """The first weights of a new network."""

    def __post_init__(self) -> None:
        self.main_score = MAIN[self.problem_type][0]

    # --- data

    @classmethod
    def read(cls, source: Source, data: ClassificationData) -> list[LabelledText]:
        return read_labelled(source, data)

    @classmethod
    def split(cls, splits: dict[str, list[LabelledText]], data: ClassificationData) -> dict[str, list[LabelledText]]:
        return split_labelled(splits, data)

    @classmethod
    def from_recipe(
        cls, recipe: ClassificationRecipe, splits: Mapping[str, Sequence[LabelledText]], tokenizer: Tokenizer | None
    ) -> "Classification":
        data, train = recipe.data, splits["train"]
        tokenizer = tokenizer or Tokenizer.train((text for e in train for text in e.texts), recipe.tokenizer)
        end = " {end}" if recipe.rereads else ""
        if data.text_pair is not None and not tokenizer.library.num_special_tokens_to_add(is_pair=True):
            tokenizer = tokenizer.templated(f"$A{end}", f"$A {{end}} $B:1{end and end + ':1'}")
        elif recipe.rereads:
            tokenizer = tokenizer.ending()
        is_number = data.problem_type == "regression"
        return cls(
            tokenizer,
            labels=(str(data.label),) if is_number else names_of(train),
            problem_type=data.problem_type,
            limit=data.max_length,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            again=recipe.generation if recipe.rereads else None,
            target_scale=TargetScale.of([float(e.labels[0]) for e in train if not e.is_blank])
            if is_number
            else UNSCALED,
            begins=recipe.begin,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: ClassificationRecipe | None) -> "Classification":
        """Where a decoder reads texts again, an end token is after each."""
        head, rereads = head_of(model.network.config), model.network.config.is_encoder_decoder
        return cls(
            model.tokenizer.ending() if rereads else model.tokenizer,
            labels=names_in(head),
            problem_type=head.problem_type or "single_label_classification",
            limit=most_tokens(model, NO_LIMIT),
            again=model.generation if rereads else None,
        )

    def known(self, examples: list[LabelledText]) -> list[LabelledText]:
        if self.problem_type != "regression":
            check_known(examples, self.labels, remedy="correct it, or train with texts of it")
        return examples

    def encode(self, examples: Sequence[LabelledText]) -> Labelled:
        kept = [example for example in examples if not example.is_blank]
        return Labelled(kept, self.inputs([example.texts for example in kept]))

    def inputs(self, texts: Sequence[tuple[str, ...]]) -> Inputs:
        """What the network reads of single texts or of pairs."""
        inputs = Inputs.of(texts, self.tokenizer, self.limit)
        return replace(inputs, start=start_again(self.tokenizer, self.again, inputs.ids)) if self.again else inputs

    @classmethod
    def content(cls, example: LabelledText) -> Sequence[str]:
        return *example.texts, *example.labels

    def describe(
        self, name: str, examples: Sequence[LabelledText], data: Labelled, train: Sequence[LabelledText]
    ) -> SplitReport:
        kept, lengths, limit = data.examples, data.inputs.lengths, self.limit
        found = Counter(label for example in kept for label in example.labels)
        labels = {label: found[label] for label in (() if self.problem_type == "regression" else self.labels)}
        n_blank, n_cut = len(examples) - len(kept), sum(length > limit for length in lengths)
        mean, most = sum(lengths) / max(len(lengths), 1), max(lengths, default=0)
        left_out = f" ({n_blank:,} empty, left out)" if n_blank else ""
        longest = max(zip(lengths, kept, strict=True), key=lambda pair: pair[0])[1].where if kept else ""
        cut = f"; {n_cut:,} cut to {limit:,}, the longest of them {longest}" if n_cut else ""
        size = f"{len(kept):,} of {len(examples):,} examples{left_out}"
        lines = [f"{name}: {size}, {mean:.1f} tokens each, at most {most:,}{cut}"]
        if labels:
            lines.append(f"  labels: {shares_line(labels, MOST_NAMES)}")
        if none := [label for label, count in labels.items() if not count]:
            lines.append(f"  no example of {shorten(none, MOST_NAMES)}: its scores say nothing about that")
        return SplitReport.of_texts(
            lines,
            repeats(
                kept,
                train,
                labels=lambda one: frozenset(one.labels),
                place=lambda one: one.where,
                another="with another label",
            ),
            data.inputs.ids,
            self.tokenizer,
            name=name,
            n_read=len(examples),
            n_blank=n_blank,
            n_cut=n_cut,
            max_length=most,
            labels=labels,
        )

    # --- training

    def settle(self, recipe: ClassificationRecipe) -> tuple[ClassificationRecipe, Sequence[str]]:
        """The recipe completed from the data, and the lines that report it."""
        recipe = settle(recipe, n_tokens=sum(self.train.sizes), n_labels=len(self.labels))
        return recipe, [*lines_of(recipe)]

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        lengths = np.array(self.train.sizes)
        lengths = lengths if self.again is None else np.stack([lengths, lengths], axis=1)
        return token_budget_batches(lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        rows = self.train.take(examples)
        inputs = batch_of(self.tokenizer, **rows.inputs.read, packed=self.packed)
        return Batch(inputs, self.targets(rows.examples))

    def targets(self, examples: Sequence[LabelledText]) -> Tensor:
        """n: the class of each example; or n v: which labels it has, or its number."""
        if self.problem_type == "regression":
            return torch.tensor([[float(number) for number in example.labels] for example in examples])
        index = {name: i for i, name in enumerate(self.labels)}
        rows = [[index[name] for name in example.labels] for example in examples]
        if self.problem_type == "single_label_classification":
            return torch.tensor([row[0] for row in rows])
        return torch.tensor([[float(i in row) for i in range(len(self.labels))] for row in rows])

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if not isinstance(config.first.input, TokenInput):
            raise UserError(f"{where}: expected a network of texts to classify them, got one of pictures; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Keeps a classification head, but gives it the labels of the data. Replaces any other head by a new one.

        A decoder is asked at the last token. After an encoder, a dense layer comes before the labels (Lewis et al.).
        """
        self.check_kind(config, where="model", remedy="try preset classifier")
        sizes = extent_of(self.train.inputs.ids, self.valid.inputs.ids)
        check_fits(config, *[sizes] * len(config.stacks), remedy="try a lower data.max_length")
        own = {"n_labels": len(self.labels), "labels": tuple(self.labels), "problem_type": self.problem_type}
        if isinstance(config.head, ClassificationHead):
            return with_head(config, config.head.model_copy(update=own))
        layers: dict[str, Any] = {} if config.decoder is None else {"pool": "last"}
        layers |= {"pooler": True} if config.is_encoder_decoder else {}
        return with_head(config, ClassificationHead(**own, **layers))

    def begin(self, network: Transformer) -> float | None:
        if self.begins == "random" or not can_begin(network.config):
            return None
        if self.train.inputs.types is not None:
            begin_matching(network, self.train.inputs.ids, self.tokenizer.need("eos"))
            return None
        splits = {"train": self.train, "valid": self.valid}
        is_linear = begin_linear(
            network,
            {split: data.inputs.ids for split, data in splits.items()},
            {split: self.answers(data.examples) for split, data in splits.items()},
            problem_type=self.problem_type,
            score=MAIN[self.problem_type][1],
            logits=lambda rows: logits_of(network, self.train.inputs.take(rows), self.tokenizer),
        )
        return BLEND if is_linear and self.problem_type == "single_label_classification" else None

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of the class; for several labels the mean of theirs; for a number the squared error."""
        each = label_losses(network(*batch.inputs), batch.labels, self.problem_type, smoothing=smoothing)
        return each.sum() / self.target_scale.unit**2, batch.count

    # --- use

    def score(self, network: Transformer, data: Labelled) -> Evaluation:
        """The scores on these data, and the mistakes with the largest loss."""
        logits, targets = logits_of(network, data.inputs, self.tokenizer), self.targets(data.examples)
        each = label_losses(logits, targets, self.problem_type) / self.target_scale.unit**2
        about = [(" / ".join(e.texts), " ".join(e.labels), e.place) for e in data.examples]
        return label_evaluation(network.config, logits, targets, each, about, self.labels, self.problem_type)

    def floors(self, held_out: Mapping[str, Labelled]) -> Iterator[Floor]:
        """The most frequent label (or the mean number), and the linear model of TF-IDF that is best on validation."""
        name, score = MAIN[self.problem_type]
        unit = "-1 to 1" if self.problem_type == "regression" else "0 to 1"
        every = {"train": self.train, **held_out}
        texts = {split: [e.texts for e in data.examples] for split, data in every.items()}
        targets = {split: self.answers(data.examples) for split, data in every.items()}

        def scores(answers: Answers) -> dict[str, Score]:
            return {split: scored(name, score, targets[split], x, unit=unit) for split, x in answers.outputs.items()}

        train = texts.pop("train")
        chosen = [majority(targets["train"], texts, self.problem_type)]
        fitted = [*linear(train, targets["train"], texts, self.problem_type)]
        chosen += [max(fitted, key=lambda one: scores(one)["valid"].value)] if fitted else []
        for one in chosen:
            yield from (
                Floor.of(one.name, split, found, setting=one.setting, about=one.about)
                for split, found in scores(one).items()
            )

    def answers(self, examples: Sequence[LabelledText]) -> np.ndarray:
        """n: the class or the number of each example; or n v of bool: which labels it has."""
        targets = self.targets(examples).numpy()
        return targets if targets.ndim == 1 else targets[:, 0] if self.problem_type == "regression" else targets > 0

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the probability of each label, or a number."""
        yield from predictions_of(model.network.config, read_logits(model, [*map(texts_of, texts)]))


# --- logits of texts --------------------------------------------------------------------------------------------------


def logits_of(network: Transformer, inputs: Inputs, tokenizer: Tokenizer) -> Tensor:
    """n v: the logits of every input, on the CPU."""
    logits = torch.empty(len(inputs.ids), head_of(network.config).n_labels)
    for rows, _, output in outputs_of(network, tokenizer, **inputs.read):
        logits[rows] = output.float().cpu()
    return logits


def read_logits(model: Trained, texts: Sequence[tuple[str, ...]]) -> Tensor:
    """n v: the logits of single texts and of pairs.

    Raises UserError for tokens that the network does not have.
    """
    config, task = model.network.config, Classification.from_model(model, None)
    logits = torch.empty(len(texts), head_of(config).n_labels)
    for size in {len(row) for row in texts}:
        alike = [i for i, row in enumerate(texts) if len(row) == size]
        inputs = task.inputs([texts[i] for i in alike])
        ids = [until_padding(row, config, model.generation.pad_id) for row in inputs.ids]
        check_vocabulary(next(iter(config.stacks)), config.first, largest_of(ids))
        logits[alike] = logits_of(model.network, replace(inputs, ids=ids), task.tokenizer)
    return logits


# --- labels from logits -----------------------------------------------------------------------------------------------


def label_losses(logits: Tensor, targets: Tensor, problem_type: ProblemType, *, smoothing: float = 0.0) -> Tensor:
    """The loss of each row, n: in nats, or squared."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    match problem_type:
        case "single_label_classification":
            return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
        case "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none").mean(-1)
        case "regression":
            return F.mse_loss(logits, targets.to(logits.dtype), reduction="none").mean(-1)


def label_evaluation(
    config: ModelConfig,
    logits: Tensor,
    targets: Tensor,
    losses: Tensor,
    about: Sequence[tuple[str, str, str]],
    labels: Sequence[str],
    problem_type: ProblemType,
) -> Evaluation:
    """The scores of logits n v, from the loss of each row, n, and the mistakes with the largest loss.

    `about` has each example's source, reference and place.
    """
    outputs = tuple(prediction.line for prediction in predictions_of(config, logits))
    main, wrong = label_scores(logits, targets, problem_type)
    rows = zip(about, outputs, losses.tolist(), wrong.tolist(), strict=True)
    examples = tuple(
        Example(source, output, reference, loss, is_wrong, place)
        for (source, reference, place), output, loss, is_wrong in rows
    )
    loss = losses.mean().item()
    own = Score("loss", loss, rows=ScoredRows(mean, (losses.double().numpy(),)))
    tables = label_findings(labels, logits, targets, problem_type)
    return Evaluation((*main, own), worst_samples(examples), outputs, loss, examples, tables)


def label_scores(logits: Tensor, targets: Tensor, problem_type: ProblemType) -> tuple[tuple[Score, ...], np.ndarray]:
    """The scores of these answers, the main one first, and which are wrong: all numbers, which are never exact."""
    match problem_type:
        case "single_label_classification":
            both = targets.numpy(), logits.argmax(-1).numpy()
            found = scored("accuracy", accuracy, *both), scored("macro_f1", macro_f1, *both)
        case "multi_label_classification":
            both = targets.bool().numpy(), (logits > 0).numpy()
            found = scored("micro_f1", micro_f1, *both), scored("accuracy", accuracy, *both)
        case "regression":
            both = targets[:, 0].numpy(), logits[:, 0].numpy()
            return (scored("spearman", spearman, *both, unit="-1 to 1"),), np.ones(len(logits), dtype=bool)
    return found, (both[0] != both[1]).reshape(len(logits), -1).any(1)


def head_of(config: ModelConfig) -> ClassificationHead:
    """The classification head. Raises UserError for any other."""
    if not isinstance(config.head, ClassificationHead):
        raise UserError(f"model: expected a classification head, got {config.head.kind}; try clearhead train first")
    return config.head


def names_in(head: ClassificationHead) -> tuple[str, ...]:
    """The names of a head's labels."""
    return distinct(head.labels) or tuple(f"LABEL_{i}" for i in range(head.n_labels))


def predictions_of(config: ModelConfig, logits: Tensor) -> list[Prediction]:
    """What the network says of each row: its labels with their probabilities, with tabs between them, or a number."""
    head = head_of(config)
    rows: list[list[float]] = scores(head, logits).tolist()
    if head.problem_type == "regression":
        return [Prediction(tabbed(*(f"{number:.4g}" for number in row)), {"values": [*row]}) for row in rows]
    several, names = head.problem_type == "multi_label_classification", names_in(head)
    return [labelled(dict(zip(names, row, strict=True)), several=several) for row in rows]


def labelled(row: Mapping[str, float], *, several: bool) -> Prediction:
    """Labels with their scores as a prediction: the likeliest label, or all that are more likely than not."""
    ordered = sorted(row, key=lambda name: -row[name])
    best = [name for name in ordered if row[name] > 0.5] if several else ordered[:1]
    said: JsonObject = {"labels": [*best]} if several else {"label": best[0]}
    shares: JsonObject = {name: row[name] for name in ordered}
    cells = (cell for name in best for cell in (name, f"{row[name]:.4f}"))
    return Prediction(tabbed(*cells), {**said, "probabilities": shares})
