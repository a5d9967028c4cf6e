"""A task: its recipe, its examples and batches, its loss and scores, and its predictions for new inputs.

docs/tasks.md shows one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import ModelConfig
from clearhead.data.corpus import Encoded
from clearhead.data.images import ImageProcessor
from clearhead.data.sources import left_out
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens, Transformer
from clearhead.model.target_scaling import UNSCALED, TargetScale
from clearhead.recipe import Recipe
from clearhead.recipe.contract import Contract
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.evaluation import Evaluation, Few
from clearhead.tasks.parts import Rows, Settles
from clearhead.tasks.reports import SplitReport, SplitsReport
from clearhead.text.tokenizers import Tokenizer

R = TypeVar("R", bound=Recipe)
Given: TypeAlias = Mapping[str, str | Path | Sequence[str | Path] | None]
"""Files by the names of their options, or columns of the table that the option `data` gives."""


@dataclass(frozen=True)
class Batch:
    """The input and the labels of one forward and backward pass."""

    __repr__ = brief

    inputs: tuple[Tokens, ...]
    """One a stack, the encoder's first."""
    labels: Tensor
    """What the outputs are compared with, by row: the next token of each valid cell, or a class, a span, a vector."""
    n_ignored: int = 0
    """Labels that the loss leaves out."""

    @property
    def count(self) -> int:
        """Labels that the loss sums over."""
        return len(self.labels) - self.n_ignored

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        return replace(self, inputs=tuple(x.to(device) for x in self.inputs), labels=self.labels.to(device))


class Task(ABC):
    """What the training loop needs of a task. Losses are sums, so accumulation and data parallelism are exact."""

    main_score: str
    """The score that chooses the best checkpoint; between equal scores the loss decides."""
    higher_is_better: bool
    few: Few | None = None
    """The validation examples that `evaluate` measures; None for all. A run of many sets it."""
    evaluation_tokens: int = 0
    """The number of tokens that `evaluate` reads, if known, from which its duration is estimated."""
    unit: str = "tokens"
    """What `Batch.count` counts, such as texts, in which the speed of a run is shown."""
    target_scale: TargetScale = UNSCALED
    """The labels of a regression; any other task has none."""

    @abstractmethod
    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """The batches of one epoch as numbers of examples: a function of (seed, epoch) alone."""

    @abstractmethod
    def collate(self, examples: Sequence[int]) -> Batch:
        """These training examples as one batch."""

    @abstractmethod
    def fit(self, config: ModelConfig) -> ModelConfig:
        """The architecture to train: this one, under the head that the task needs.

        Raises UserError where a network of this architecture cannot do the task on these data.
        """

    @abstractmethod
    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The loss summed over a batch, and the number of labels it is the sum of, which is `batch.count`."""

    @abstractmethod
    def evaluate(self, network: Transformer) -> Evaluation:
        """The scores of the network on the validation split, or on the examples that `few` names."""


@runtime_checkable
class Begins(Protocol):
    """A task that changes the first weights of a new network. Any other leaves them random."""

    def begin(self, network: Transformer) -> float | None:
        """Changes the weights of a new network to others that suit the training examples.

        Returns the `training.blend` that suits them; None for all of the trained weights.
        """
        ...


def head_loss(network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
    """The loss of the network's own head, such as a cross-entropy in nats: the sum over a batch, and its count."""
    return network(*batch.inputs, labels=batch.labels, smoothing=smoothing), batch.count


# --- a task that a recipe names -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """The files that a task learns from, as options of the command line."""

    what: str
    """What they hold, for messages."""
    table: Mapping[str, str]
    """The table of the source, with an option such as "--text" where its file goes."""
    prefix: str = ""
    """The beginning of the names of the options, such as "valid-"; none for training."""

    @property
    def options(self) -> dict[str, str]:
        """The field of each option."""
        return {option: field for field, option in self.table.items() if option.startswith("--")}

    def source(self, files: Given, *, where: str) -> dict[str, str | list[str]]:
        """The table of a source with the files that are given, or nothing if there are none.

        With `data`, a table, the other options name its columns. Raises UserError for a file that the task does not
        read.
        """
        given = {
            f"--{name}": str(paths) if isinstance(paths, str | Path) else [*map(str, paths)]
            for name, paths in files.items()
            if paths
        }
        if "--data" in given and (given.keys() | self.options.keys()) > {"--data"}:
            return self._table(given, where=where)
        if given.keys() - self.options.keys():
            raise UserError(f"{where}: {self.wrong(given)}")
        found = {field: given.get(value, value) for field, value in self.table.items()}
        return {field: value for field, value in found.items() if str(value) not in self.options} if given else {}

    @property
    def columns(self) -> list[str]:
        """The columns of a table that the task learns from: source and target, or text."""
        return [option[2:] for option in self.options if option != "--data"] or ["text"]

    def _table(self, given: Mapping[str, str | list[str]], *, where: str) -> dict[str, str | list[str]]:
        table = {"kind": "table", "path": given["--data"]}
        for option in given.keys() - {"--data"}:
            name, value = option[2:], given[option]
            names = [value] if isinstance(value, str) else value
            if name not in self.columns or len(names) > 1:
                wanted = " ".join(f"--{self.prefix}{column} NAME" for column in self.columns)
                raise UserError(
                    f"{where}: expected columns of {given['--data']}, got --{self.prefix}{name} {' '.join(names)};"
                    f" try --{self.prefix}data FILE {wanted}"
                )
            table[name] = names[0]
        return table

    def missing(self, source: object) -> str:
        """The error in the table of a source that lacks files; an empty text for a whole one or another kind."""
        if not isinstance(source, Mapping) or source.get("kind") != self.table["kind"]:
            return ""
        given = [option for option, field in self.options.items() if source.get(field)]
        return self.wrong(given) if len(given) < len(self.options) else ""

    def wrong(self, given: Collection[str]) -> str:
        """The error of a command line that gives these options."""
        got, wanted = (
            [option.replace("--", f"--{self.prefix}", 1) for option in options] for options in (given, self.options)
        )
        return f"expected {self.what}, got {' and '.join(got) or 'none'}; give {' FILE '.join(wanted)} FILE"


@dataclass(frozen=True)
class Prepared:
    """A task ready to train, and its data."""

    task: "RecipeTask[Any]"
    data: Encoded[Any]
    recipe: Recipe | None = None
    """The recipe with what it leaves to the data; None if it leaves nothing."""


@dataclass(frozen=True)
class Prediction:
    """A model's answer to one input."""

    line: str
    """For a person: one line."""
    values: JsonObject
    """For a program, such as {"label": "good", "probability": 0.98}."""


NOTHING = Prediction("", {})  # For a blank text.


class Pair(str):
    """Two texts as one line, with a tab between them; a tab in another line is a part of its one text."""

    __slots__ = ("texts",)
    texts: tuple[str, str]

    def __new__(cls, first: str, second: str) -> Self:
        line = super().__new__(cls, f"{first}\t{second}")
        line.texts = first, second
        return line


def texts_of(line: str) -> tuple[str, ...]:
    """The two texts of a pair, or the one text of a line."""
    return line.texts if isinstance(line, Pair) else (line,)


class Trained(Protocol):
    """A model as `clearhead.load` returns it."""

    network: Transformer
    generation: GenerationConfig
    contract: Contract
    recipe: Mapping[str, JsonValue] | None

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...

    @property
    def images(self) -> ImageProcessor:
        """What turns its pictures into pixels."""
        ...

    def embed(self, texts: Sequence[str]) -> Tensor:
        """The vector of each text, of length 1: b d."""
        ...

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[str]:
        """The best translation of each text."""
        ...

    def generate(self, prompt: str = "", config: GenerationConfig | None = None, *, image: Any = None) -> str:
        """The continuation of a text, in which a picture may stand."""
        ...

    def chat(
        self, messages: Sequence[Mapping[str, JsonValue]], config: GenerationConfig | None = None
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece."""
        ...


class RecipeTask(Task, Generic[R]):
    """A task that a recipe can name: besides training, how its data are read, and its models measured and used."""

    recipe: type[Recipe]
    """The tables of its recipe, with the data it reads."""
    files: Files
    """The files that it learns from, as a command line gives them."""
    measures: tuple[str, ...] = ()
    """The options of `clearhead evaluate`, besides files, that `measure` takes."""
    heads: tuple[str, ...] = ("language",)
    """The kinds of head of its models."""
    verb: str = "predict"
    """The command that runs its models on new inputs, such as classify."""
    pair: tuple[str, str] | None = None
    """The names of an input's two texts, if it may have two. A tab is between them."""
    use: str
    """How to use a model of it, as a command with {} where the model's folder goes."""
    samples: str = ""
    """What the samples of its evaluations are, if `evaluate` and the end of `train` show them."""
    tokenizer: Tokenizer
    train: Any
    valid: Any
    """Examples as `Rows`."""
    n_marks: int = 0
    """Special tokens around each example that its size leaves out."""

    @classmethod
    @abstractmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        """Raises UserError, which begins with `where`, if no network of this kind can do the task."""

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: R, tokenizer: Tokenizer | None) -> Prepared:
        """Reads the recipe's data, trains the tokenizer unless one is given, and makes the task."""

    @classmethod
    @abstractmethod
    def measure(cls, model: Trained, recipe: R | None, source: Source | None, options: Mapping[str, Any]) -> Evaluation:
        """The scores of a model on a source; if it is None, on the test (else validation) data of its recipe."""

    @abstractmethod
    def score(self, network: Transformer, data: Any) -> Evaluation:
        """The scores of the network on examples like those of `train` and `valid`."""

    @classmethod
    @abstractmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """The model's answer to each input. No input is blank."""

    def evaluate(self, network: Transformer) -> Evaluation:
        return self.score(network, self.valid if self.few is None else self.valid.take(self.few.rows))

    def sizes(self) -> Sequence[int]:
        """The tokens of each validation example that `few` numbers."""
        return [size + self.n_marks for size in self.valid.sizes]

    @classmethod
    def suits(cls, config: ModelConfig) -> bool:
        """Returns True if a network with this head does the task as it is."""
        try:
            cls.check_kind(config, where="", remedy="")
        except UserError:
            return False
        return config.head.kind in cls.heads


class HeadLoss(Task, ABC):
    """A task that trains by the loss of the network's head."""

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return head_loss(network, batch, smoothing=smoothing)


# --- a task of examples in memory ---------------------------------------------------------------------------------

E = TypeVar("E")
D = TypeVar("D", bound=Rows)


class ExampleTask(RecipeTask[R], Generic[R, E, D]):
    """A task whose examples E are read and encoded in memory, as D.

    It states how to read, split, encode, collate, score and predict. This class does the rest.
    """

    train: D
    valid: D
    only_for_training: Sequence[str] = ()
    """The fields of `data`, each None by default, that are not read for measuring."""
    is_of_recipe: bool = True
    """Whether what is measured are data of the recipe."""
    documents: Mapping[str, JsonObject] = MappingProxyType({})
    """JSON files of a model, besides the tokenizer's, that say how it reads its input."""

    @classmethod
    @abstractmethod
    def read(cls, source: Source, data: Any) -> list[E]:
        """The examples of a source, in order. `data` is the recipe's table of that name, or its defaults."""

    @classmethod
    @abstractmethod
    def split(cls, splits: dict[str, list[E]], data: Any) -> dict[str, list[E]]:
        """The examples of each split. A split without a source is held out of training.

        Raises UserError for examples that cannot be learnt.
        """

    @classmethod
    @abstractmethod
    def from_recipe(cls, recipe: R, splits: Mapping[str, Sequence[E]], tokenizer: Tokenizer | None) -> Self:
        """The task of a recipe, without data. Trains a tokenizer unless one is given."""

    @classmethod
    @abstractmethod
    def from_model(cls, model: Trained, recipe: R | None) -> Self:
        """The task that a model was trained for, which reads texts as in training, without data."""

    @abstractmethod
    def known(self, examples: list[E]) -> list[E]:
        """The examples as the network learns them. Raises UserError for a label that it does not have."""

    @abstractmethod
    def encode(self, examples: Sequence[E]) -> D:
        """The examples as the network reads them."""

    @abstractmethod
    def describe(self, name: str, examples: Sequence[E], data: D, train: Sequence[E]) -> SplitReport:
        """The report on a split before training. `train` are the training examples, none for the training split."""

    @classmethod
    @abstractmethod
    def content(cls, example: E) -> Sequence[str]:
        """The texts of an example, which its fingerprint is made of."""

    @classmethod
    def prepare(cls, recipe: R, tokenizer: Tokenizer | None) -> Prepared:
        splits = cls._splits(recipe.data)
        task = cls.from_recipe(recipe, splits, tokenizer)
        splits = {name: task.known(examples) for name, examples in splits.items()}
        encoded = {name: task.encode(examples) for name, examples in splits.items()}
        task.train, task.valid = encoded["train"], encoded["valid"]
        hashes = {name: fingerprint(*([cls.content(one)] for one in rows)) for name, rows in splits.items()}
        reports = (
            task.describe(name, rows, encoded[name], () if name == "train" else splits["train"])
            for name, rows in splits.items()
        )
        settled, lines = task.settle(recipe) if isinstance(task, Settles) else (recipe, ())
        about = f"vocabulary: {task.tokenizer.vocab_size:,} tokens", *lines
        report, documents = SplitsReport(about=about, splits=tuple(reports)), task.documents
        found = Encoded(
            task.tokenizer,
            task.train,
            task.valid,
            report,
            hashes,
            documents=documents,
            test=encoded.get("test"),
            bad_rows=left_out(recipe.data, lambda source: cls.read(source, recipe.data)),
        )
        return Prepared(task, found, settled)

    @classmethod
    def measure(cls, model: Trained, recipe: R | None, source: Source | None, options: Mapping[str, Any]) -> Evaluation:
        task, data = cls.from_model(model, recipe), recipe.data if recipe else defaults(cls.recipe, model)
        data, task.is_of_recipe = data.model_copy(update=dict.fromkeys(cls.only_for_training)), source is None
        if source is not None:
            examples = cls.read(source, data)
        else:
            splits = cls._splits(data)
            examples = splits.get("test", splits["valid"])
        return task.score(model.network, task.encode(task.known(examples)))

    @classmethod
    def _splits(cls, data: Any) -> dict[str, list[E]]:
        return cls.split({name: cls.read(source, data) for name, source in data.sources.items()}, data)


def defaults(recipe: type[Recipe], model: Trained) -> Any:
    """The `data` of a recipe for a model without one: each field as in the model's head, else with its default."""
    data: Any = recipe.model_fields["data"].annotation
    head = dict(model.network.config.head)
    return data.model_construct(**{name: head[name] for name in data.model_fields if head.get(name) is not None})
