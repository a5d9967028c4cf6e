"""Sequence classification: labels for a text, or for two texts together, by an encoder, a decoder or both."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.config.inputs import TokenInput
from clearhead.data.batches import token_budget_batches
from clearhead.data.sequences import largest_of
from clearhead.data.splits import SplitsReport
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.model.target_scaling import UNSCALED, TargetScale
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.data import (
    NO_LIMIT,
    Inputs,
    LabelledSplit,
    LabelledText,
    Labelling,
    check_known,
    labelled_split,
    names_of,
    split_labelled,
    until_padding,
)
from clearhead.tasks.classification.scores import accuracy, label_findings, macro_f1, micro_f1, spearman
from clearhead.tasks.evaluation import Evaluation, Example, worst_samples
from clearhead.tasks.networks import (
    BATCH_TOKENS,
    check_fits,
    check_vocabulary,
    distinct,
    most_tokens,
    outputs_of,
    with_head,
)
from clearhead.tasks.scores import Score, ScoredRows, mean, scored
from clearhead.tasks.task import Batch, EncodedExamples, ExampleTask, Files, Prediction, Trained, texts_of
from clearhead.text.special_tokens import start_again
from clearhead.text.tokenizers import Tokenizer

MAIN_SCORES: dict[ProblemType, str] = {
    "single_label_classification": "accuracy",
    "multi_label_classification": "micro_f1",
    "regression": "spearman",
}


class ClassificationData(TestedData):
    """Texts with labels, in the columns of a table or dataset. Its sources name the column of the text."""

    text_pair: Column | None = None
    """Column of the second text, if a label belongs to a pair of texts."""
    label: Column = "label"
    """Column of the labels."""
    problem_type: ProblemType = "single_label_classification"
    """Whether a text has one label, any number of labels, or a number to predict."""
    separator: Annotated[str, Field(min_length=1)] = "|"
    """Separates the labels of a text that may have several."""
    max_length: PositiveInt = 256
    """Most tokens of an example, special ones included; longer ones are cut."""

    @property
    def labelling(self) -> Labelling:
        """The columns of its texts and labels."""
        return Labelling(self.text_pair, self.label, self.problem_type, self.separator)


class ClassificationRecipe(Recipe):
    """How to train a classifier."""

    task: Literal["classification"]
    data: ClassificationData
    tokenizer: TokenizerConfig = WordPiece(lowercase=True)
    model: ModelChoice = ModelChoice(preset="classifier")
    rereads: bool = False
    """Whether a decoder reads each text again after an encoder (Lewis et al. 2019). A run takes it from its network."""


Labelled: TypeAlias = EncodedExamples[LabelledText, Inputs]


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

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        labels: Sequence[str],
        problem_type: ProblemType,
        limit: int = NO_LIMIT,
        max_tokens: int = BATCH_TOKENS,
        packed: bool = True,
        again: GenerationConfig | None = None,
        target_scale: TargetScale = UNSCALED,
    ) -> None:
        """`limit` is the most tokens of a text. With `again`, a decoder reads each text again after an encoder.

        The loss of a regression is the squared error in the unit of `target_scale`.
        """
        self.tokenizer, self.labels, self.problem_type = tokenizer, tuple(labels), problem_type
        self.limit, self.max_tokens, self.packed, self.again = limit, max_tokens, packed, again
        self.target_scale = target_scale
        self.main_score = MAIN_SCORES[problem_type]

    # --- data

    @classmethod
    def read(cls, source: Source, data: ClassificationData) -> list[LabelledText]:
        return data.labelling.read(source)

    @classmethod
    def split(cls, splits: dict[str, list[LabelledText]], data: ClassificationData) -> dict[str, list[LabelledText]]:
        return split_labelled(splits, data.labelling, data.held_out)

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
        numbers = [float(e.labels[0]) for e in train if not e.is_blank] if is_number else []
        return cls(
            tokenizer,
            labels=(str(data.label),) if is_number else names_of(train),
            problem_type=data.problem_type,
            limit=data.max_length,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            again=recipe.generation if recipe.rereads else None,
            target_scale=TargetScale.of(numbers) if is_number else UNSCALED,
        )

    @classmethod
    def from_model(cls, model: Trained, recipe: ClassificationRecipe | None) -> "Classification":
        """Where a decoder reads texts again, an end token is after each."""
        head, rereads = head_of(model.network.config), len(model.network.config.stacks) == 2
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

    def report(
        self, splits: Mapping[str, Sequence[LabelledText]], encoded: Mapping[str, Labelled]
    ) -> SplitsReport[LabelledSplit]:
        names, train = () if self.problem_type == "regression" else self.labels, splits["train"]
        counts = tuple(
            labelled_split(name, split, encoded[name].inputs.lengths, names=names, limit=self.limit, train=train)
            for name, split in splits.items()
        )
        size = self.tokenizer.vocab_size
        return SplitsReport[LabelledSplit](vocab_size=size, max_length=self.limit, splits=counts)

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        lengths = np.array(self.train.sizes)
        lengths = lengths if self.again is None else np.stack([lengths, lengths], axis=1)
        return token_budget_batches(lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        inputs = batch_of(self.train.inputs, examples, self.tokenizer, packed=self.packed)
        return Batch(inputs, self.targets([self.train.examples[i] for i in examples]))

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
        both = (self.train.inputs.ids, self.valid.inputs.ids)
        sizes = max(max(map(len, ids)) for ids in both), max(map(largest_of, both))
        check_fits(config, *[sizes] * len(config.stacks), remedy="try a lower data.max_length")
        own = {"n_labels": len(self.labels), "labels": self.labels, "problem_type": self.problem_type}
        if isinstance(config.head, ClassificationHead):
            return with_head(config, config.head.model_copy(update=own))
        layers: dict[str, Any] = {} if config.decoder is None else {"pool": "last"}
        layers |= {"pooler": True} if len(config.stacks) == 2 else {}
        return with_head(config, ClassificationHead(**own, **layers))

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of the class; for several labels the mean of theirs; for a number the squared error."""
        each = label_losses(network(*batch.inputs), batch.labels, self.problem_type, smoothing=smoothing)
        return each.sum() / self.target_scale.unit**2, batch.count

    # --- use

    def score(self, network: Transformer, data: Labelled) -> Evaluation:
        """The scores on these data, and the mistakes with the largest loss."""
        logits, targets = logits_of(network, data.inputs, self.tokenizer), self.targets(data.examples)
        each = label_losses(logits, targets, self.problem_type) / self.target_scale.unit**2
        outputs = tuple(prediction.line for prediction in predictions_of(network.config, logits))
        wrong = mistaken(logits, targets, self.problem_type).tolist()
        rows = zip(data.examples, outputs, each.tolist(), wrong, strict=True)
        examples = tuple(
            Example(" / ".join(e.texts), output, " ".join(e.labels), loss, is_wrong, e.place)
            for e, output, loss, is_wrong in rows
        )
        loss = each.mean().item()
        own = Score("loss", loss, rows=ScoredRows(mean, (each.double().numpy(),)))
        found = *label_scores(logits, targets, self.problem_type), own
        tables = label_findings(self.labels, logits, targets, self.problem_type)
        return Evaluation(found, worst_samples(examples), outputs, loss, examples, tables)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the probability of each label, or a number."""
        yield from predictions_of(model.network.config, read_logits(model, [*map(texts_of, texts)]))


# --- logits of texts --------------------------------------------------------------------------------------------------


def batch_of(inputs: Inputs, examples: Sequence[int], tokenizer: Tokenizer, *, packed: bool) -> tuple[Tokens, ...]:
    """These inputs as one batch.

    The decoder of an encoder-decoder reads each input again, after the start token and without its last token.
    """
    rows, fill = [inputs.ids[i] for i in examples], tokenizer.pad_id or 0
    tokens = Tokens.pad(rows, fill=fill, packed=packed)
    if inputs.types is not None:
        types = Tokens.pad([inputs.types[i] for i in examples]).ids
        tokens = Tokens(tokens.ids, tokens.valid, tokens.rows, types=types)
    if inputs.start is None:
        return (tokens,)
    return tokens, Tokens.pad([[inputs.start, *ids[:-1]] for ids in rows], fill=fill, packed=packed)


def logits_of(network: Transformer, inputs: Inputs, tokenizer: Tokenizer) -> Tensor:
    """n v: the logits of every input, on the CPU."""
    lengths = [*map(len, inputs.ids)]
    logits = torch.empty(len(lengths), head_of(network.config).n_labels)
    for rows, _, output in outputs_of(network, lengths, lambda rows: batch_of(inputs, rows, tokenizer, packed=True)):
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


def mistaken(logits: Tensor, targets: Tensor, problem_type: ProblemType) -> Tensor:
    """n, bool: whether the most likely answer differs from the label. True of numbers, which are never exact."""
    match problem_type:
        case "single_label_classification":
            return logits.argmax(-1) != targets
        case "multi_label_classification":
            return ((logits > 0) != targets.bool()).any(-1)
        case "regression":
            return torch.ones(len(logits), dtype=torch.bool)


def label_scores(logits: Tensor, targets: Tensor, problem_type: ProblemType) -> tuple[Score, ...]:
    """Scores these answers. The main score comes first."""
    match problem_type:
        case "single_label_classification":
            both = targets.numpy(), logits.argmax(-1).numpy()
            return scored("accuracy", accuracy, *both, "0 to 1"), scored("macro_f1", macro_f1, *both, "0 to 1")
        case "multi_label_classification":
            both = targets.bool().numpy(), (logits > 0).numpy()
            return scored("micro_f1", micro_f1, *both, "0 to 1"), scored("accuracy", accuracy, *both, "0 to 1")
        case "regression":
            return (scored("spearman", spearman, targets[:, 0].numpy(), logits[:, 0].numpy(), "-1 to 1"),)


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
