"""Sequence classification: labels for a text, or for two texts together, by an encoder, a decoder or both."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor

from clearhead.config import ClassificationHead, ModelConfig, TokenInput
from clearhead.config.heads import ProblemType
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import Encoded
from clearhead.data.sequences import largest_of
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.model.target_scaling import UNSCALED, TargetScale
from clearhead.progress import counted
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.recipe.tokenizers import TokenizerConfig, WordPiece
from clearhead.tasks.classification.data import (
    NO_LIMIT,
    Inputs,
    Labelled,
    LabelledText,
    Labelling,
    LabelReport,
    check_known,
    labelled_split,
    labelled_splits,
    names_of,
    until_padding,
)
from clearhead.tasks.classification.scores import accuracy, judged, macro_f1, micro_f1, spearman
from clearhead.tasks.evaluation import Evaluation, Example, Sample, part_of, worst
from clearhead.tasks.scores import Score, ScoredRows, mean, scored
from clearhead.tasks.task import (
    Batch,
    Files,
    Prediction,
    Prepared,
    RecipeTask,
    Trained,
    check_length,
    check_vocabulary,
    texts_of,
    with_head,
)
from clearhead.text.special_tokens import start_again
from clearhead.text.tokenizers import Tokenizer

BATCH_TOKENS = 8192
"""Tokens of one batch outside of training."""


def losses(logits: Tensor, targets: Tensor, problem_type: ProblemType, *, smoothing: float = 0.0) -> Tensor:
    """The loss of each row, n: in nats, or squared."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    match problem_type:
        case "single_label_classification":
            return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
        case "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none").mean(-1)
        case "regression":
            return F.mse_loss(logits, targets.to(logits.dtype), reduction="none").mean(-1)


def batch_of(
    inputs: Inputs, examples: Sequence[int], tokenizer: Tokenizer, *, packed: bool, start: int | None = None
) -> tuple[Tokens, ...]:
    """These inputs as one batch.

    The decoder of an encoder-decoder reads each input again, after the token `start` and without its last token.
    """
    rows, fill = [inputs.ids[i] for i in examples], tokenizer.pad_id or 0
    tokens = Tokens.pad(rows, fill=fill, packed=packed)
    if inputs.types is not None:
        tokens = replace(tokens, types=Tokens.pad([inputs.types[i] for i in examples]).ids)
    if start is None:
        return (tokens,)
    return tokens, Tokens.pad([[start, *ids[:-1]] for ids in rows], fill=fill, packed=packed)


def logits_of(network: Transformer, inputs: Inputs, tokenizer: Tokenizer, *, start: int | None = None) -> Tensor:
    """n v: the logits of every input, on the CPU; `start` as for `batch_of`."""
    lengths = [*map(len, inputs.ids)]
    found = torch.empty(len(lengths), head_of(network.config).n_labels)
    budget, device = max([BATCH_TOKENS, *lengths]), next(network.parameters()).device
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            stacks = batch_of(inputs, examples, tokenizer, packed=True, start=start)
            found[examples] = network(*(tokens.to(device) for tokens in stacks)).float().cpu()
    return found


def rereads(model: Trained) -> bool:
    """Whether a decoder reads each text again after an encoder."""
    return len(model.network.config.stacks) == 2


def reader_of(model: Trained) -> Tokenizer:
    """The tokenizer of a model. Where a decoder reads texts again, it puts an end token after each."""
    return model.tokenizer.ending() if rereads(model) else model.tokenizer


def start_of(model: Trained, inputs: Inputs) -> int | None:
    """The token with which the decoder of an encoder-decoder begins to read the inputs again; None without one."""
    return start_again(model.tokenizer, model.generation, inputs.ids) if rereads(model) else None


def most_tokens(model: Trained, otherwise: int) -> int:
    """The longest text that is read at once: as in training, and no more than every stack has positions for."""
    limits = [model.contract.max_length, *(stack.max_length for stack in model.network.config.stacks.values())]
    return min((limit for limit in limits if limit is not None), default=otherwise)


def read(model: Trained, texts: Sequence[tuple[str, ...]]) -> Inputs:
    """What a classifier reads of single texts or of pairs, as in training."""
    return Inputs.of(texts, reader_of(model), most_tokens(model, NO_LIMIT))


def read_logits(model: Trained, texts: Sequence[tuple[str, ...]]) -> Tensor:
    """n v: the logits of single texts and of pairs.

    Raises UserError for tokens that the network does not have.
    """
    config, reader = model.network.config, reader_of(model)
    found = torch.empty(len(texts), head_of(config).n_labels)
    for size in {len(row) for row in texts}:
        alike = [i for i, row in enumerate(texts) if len(row) == size]
        inputs = read(model, [texts[i] for i in alike])
        ids = [until_padding(row, config, model.generation.pad_id) for row in inputs.ids]
        check_vocabulary(next(iter(config.stacks)), config.first, largest_of(ids))
        found[alike] = logits_of(model.network, replace(inputs, ids=ids), reader, start=start_of(model, inputs))
    return found


def head_of(config: ModelConfig) -> ClassificationHead:
    """The classification head. Raises UserError for any other."""
    if not isinstance(config.head, ClassificationHead):
        raise UserError(f"model: expected a classification head, got {config.head.kind}; try clearhead train first")
    return config.head


def names_in(head: ClassificationHead) -> tuple[str, ...]:
    """The names of a head's labels."""
    return told_apart(head.labels) or tuple(f"LABEL_{i}" for i in range(head.n_labels))


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes; of several with one name, each gets its number, so that none hides another."""
    return tuple(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names))


def said(config: ModelConfig, logits: Tensor) -> list[Prediction]:
    """What the network says of each row: its labels with their probabilities, with tabs between them, or a number."""
    head = head_of(config)
    names = names_in(head)
    rows: list[list[float]] = scores(head, logits).tolist()
    if head.problem_type == "regression":
        return [_numbers(row) for row in rows]
    several = head.problem_type == "multi_label_classification"
    return [labelled(dict(zip(names, row, strict=True)), several=several) for row in rows]


def _numbers(row: Sequence[float]) -> Prediction:
    return Prediction(tabbed(*(f"{number:.4g}" for number in row)), {"values": [*row]})


def labelled(row: Mapping[str, float], *, several: bool) -> Prediction:
    """Labels with their scores as a prediction: the likeliest label, or all that are more likely than not."""
    ordered = sorted(row, key=lambda name: -row[name])
    best = [name for name in ordered if row[name] > 0.5] if several else ordered[:1]
    said: JsonObject = {"labels": [*best]} if several else {"label": best[0]}
    shares: JsonObject = {name: row[name] for name in ordered}
    cells = (cell for name in best for cell in (name, f"{row[name]:.4f}"))
    return Prediction(tabbed(*cells), {**said, "probabilities": shares})


N_MISTAKES = 5
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


class Classification(RecipeTask[ClassificationRecipe]):
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
        train: Labelled,
        valid: Labelled,
        *,
        labels: Sequence[str],
        problem_type: ProblemType,
        max_tokens: int,
        packed: bool = True,
        start: int | None = None,
        numbers: TargetScale = UNSCALED,
    ) -> None:
        """`start`: the token with which the decoder of an encoder-decoder begins to read a text again.

        `numbers` of a regression: the loss is the squared error in their unit.
        """
        self.tokenizer, self.train, self.valid = tokenizer, train, valid
        self.labels, self.problem_type = tuple(labels), problem_type
        self.max_tokens, self.packed, self.start = max_tokens, packed, start
        self.numbers = numbers
        self.main_score = MAIN_SCORES[problem_type]

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        lengths = np.array([*map(len, self.train.inputs.ids)])
        lengths = lengths if self.start is None else np.stack([lengths, lengths], axis=1)
        return token_budget_batches(lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        inputs = batch_of(self.train.inputs, examples, self.tokenizer, packed=self.packed, start=self.start)
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
        longest, largest = max(max(map(len, ids)) for ids in both), max(map(largest_of, both))
        for name, stack in config.stacks.items():
            check_length(name, stack, longest, remedy="try a lower data.max_length")
            check_vocabulary(name, stack, largest)
        own = {"n_labels": len(self.labels), "labels": self.labels, "problem_type": self.problem_type}
        if isinstance(config.head, ClassificationHead):
            head = config.head.model_copy(update=own)
        else:
            layers: dict[str, Any] = {} if config.decoder is None else {"pool": "last"}
            layers |= {"pooler": True} if len(config.stacks) == 2 else {}
            head = ClassificationHead(**own, **layers)
        return with_head(config, head)

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of the class; for several labels the mean of theirs; for a number the squared error."""
        each = losses(network(*batch.inputs), batch.labels, self.problem_type, smoothing=smoothing)
        return each.sum() / self.numbers.unit**2, batch.count

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.measure(network, part_of(self.valid, self.few))

    def judged_sizes(self) -> Sequence[int]:
        return [*map(len, self.valid.inputs.ids)]

    def measure(self, network: Transformer, data: Labelled) -> Evaluation:
        """The scores on these data, and the mistakes with the largest loss."""
        logits = logits_of(network, data.inputs, self.tokenizer, start=self.start)
        targets = self.targets(data.examples)
        each = losses(logits, targets, self.problem_type) / self.numbers.unit**2
        outputs = tuple(one.line for one in said(network.config, logits))
        examples = tuple(
            Example(" / ".join(e.texts), output, " ".join(e.labels), loss, self.is_wrong(row, target), e.place)
            for e, output, loss, row, target in zip(data.examples, outputs, each.tolist(), logits, targets, strict=True)
        )
        mistakes = worst(examples, N_MISTAKES)
        samples = tuple(Sample(f"{one.place}: {one.source}", one.output, one.reference) for one in mistakes)
        loss = each.mean().item()
        found = (*self.scores(logits, targets), Score("loss", loss, rows=ScoredRows(mean, (each.double().numpy(),))))
        tables = judged(self.labels, logits, targets, self.problem_type)
        return Evaluation(found, samples, outputs, loss, examples, tables)

    def is_wrong(self, logits: Tensor, target: Tensor) -> bool:
        """Whether the most likely answer differs from the label. Always true of numbers, which are never exact."""
        match self.problem_type:
            case "single_label_classification":
                return bool(logits.argmax() != target)
            case "multi_label_classification":
                return bool(((logits > 0) != target.bool()).any())
            case "regression":
                return True

    def scores(self, logits: Tensor, targets: Tensor) -> tuple[Score, ...]:
        """Scores these answers. The main score comes first."""
        match self.problem_type:
            case "single_label_classification":
                both = targets.numpy(), logits.argmax(-1).numpy()
                return scored("accuracy", accuracy, *both, "0 to 1"), scored("macro_f1", macro_f1, *both, "0 to 1")
            case "multi_label_classification":
                both = targets.bool().numpy(), (logits > 0).numpy()
                return scored("micro_f1", micro_f1, *both, "0 to 1"), scored("accuracy", accuracy, *both, "0 to 1")
            case "regression":
                return (scored("spearman", spearman, targets[:, 0].numpy(), logits[:, 0].numpy(), "-1 to 1"),)

    @classmethod
    def prepared(cls, recipe: ClassificationRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data, labelling = recipe.data, recipe.data.labelling
        splits = labelled_splits(data, labelling, data.held_out)
        train = splits["train"]
        tokenizer = tokenizer or Tokenizer.train((text for e in train for text in e.texts), recipe.tokenizer)
        end = " {end}" if recipe.rereads else ""
        if data.text_pair is not None and not tokenizer.library.num_special_tokens_to_add(is_pair=True):
            tokenizer = tokenizer.templated(f"$A{end}", f"$A {{end}} $B:1{end and end + ':1'}")
        elif recipe.rereads:
            tokenizer = tokenizer.ending()
        encoded = {name: Labelled.of(split, tokenizer, data.max_length) for name, split in splits.items()}
        is_number = labelling.problem_type == "regression"
        names = () if is_number else names_of(train)
        numbers = TargetScale.of([float(e.labels[0]) for e in encoded["train"].examples]) if is_number else UNSCALED
        report = LabelReport(
            vocab_size=tokenizer.vocab_size,
            max_length=data.max_length,
            splits=tuple(
                labelled_split(
                    name, split, encoded[name].inputs.lengths, names=names, limit=data.max_length, train=train
                )
                for name, split in splits.items()
            ),
        )
        task = cls(
            tokenizer,
            encoded["train"],
            encoded["valid"],
            labels=(str(data.label),) if is_number else names,
            problem_type=labelling.problem_type,
            max_tokens=recipe.training.max_tokens,
            packed=recipe.training.packed,
            start=start_again(tokenizer, recipe.generation, encoded["train"].inputs.ids) if recipe.rereads else None,
            numbers=numbers,
        )
        sha = {name: fingerprint(*([(*e.texts, *e.labels)] for e in split)) for name, split in splits.items()}
        return Prepared(task, Encoded(tokenizer, encoded["train"], encoded["valid"], report, sha))

    @classmethod
    def measured(
        cls, model: Trained, recipe: ClassificationRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        head = head_of(model.network.config)
        problem = head.problem_type or "single_label_classification"
        data = None if recipe is None else recipe.data
        labelling = replace(data.labelling if data else Labelling(), problem_type=problem)
        if source is not None:
            examples = labelling.read(source)
        else:
            assert data is not None
            splits = labelled_splits(data, labelling, data.held_out)
            examples = splits.get("test", splits["valid"])
        names = names_in(head)
        if problem != "regression":
            check_known(examples, names, remedy="correct it, or train with texts of it")
        tokenizer = reader_of(model)
        found = Labelled.of(examples, tokenizer, most_tokens(model, NO_LIMIT))
        start = start_of(model, found.inputs)
        task = cls(tokenizer, found, found, labels=names, problem_type=problem, max_tokens=BATCH_TOKENS, start=start)
        return task.evaluate(model.network)

    @classmethod
    def predicted(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the probability of each label, or a number."""
        yield from said(model.network.config, read_logits(model, [*map(texts_of, texts)]))
