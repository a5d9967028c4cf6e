"""A recipe: everything a training run is made from, in one TOML file. Imports no torch.

`Recipe` is what the recipes of all tasks have in common; `clearhead.tasks.registry` validates that of a task.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import Field, ValidationError, model_validator

from clearhead.config import Config, ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError, expectation
from clearhead.json_text import JsonObject, NotJson, parse
from clearhead.recipe.data import Data
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.names import Names, Schema, options, schema_of, tag
from clearhead.recipe.tokenizers import BPE, TokenizerConfig
from clearhead.recipe.training import Training

Overrides = JsonObject
DROPOUTS = ("dropout", "embed_dropout", "attn_dropout", "ffn_dropout")
FINE_TUNING = {
    "training": {
        "optimizer": {"kind": "adamw", "lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8},
        "schedule": {"kind": "wsd", "warmup": 20, "decay_fraction": 0.5},
    }
}
"""The defaults of a run from a checkpoint. Its learning rate is small, to keep what the model has learnt."""
ADAPTING = {"training": {"optimizer": {"kind": "adamw", "lr": 1e-3}}}
"""Larger ones for adapters, which begin at zero."""


class ModelChoice(Config):
    """A preset with changes, or the checkpoint to start from."""

    start: str | None = None
    """A folder or a name on the hub: the run begins with its weights, in float32, its architecture and its tokenizer.

    Of the fields below only dropouts may then be given. Use AdamW with a learning rate of 1e-5 (large models) to 5e-4
    (small ones), about a tenth of what trains a new network. Muon suits only weights that it has always trained.
    """
    preset: str = "transformer-tiny"
    stacks: Overrides = Field(default_factory=dict)
    """Fields of every stack, such as `dropout = 0.1`."""
    encoder: Overrides = Field(default_factory=dict)
    decoder: Overrides = Field(default_factory=dict)
    head: Overrides = Field(default_factory=dict)
    init: Overrides = Field(default_factory=dict)
    pictures: Overrides = Field(default_factory=dict)
    """Fields of what reads pictures within a text, such as `tower.n_layers = 4`."""

    @model_validator(mode="after")
    def _architecture_of_start(self) -> Self:
        if self.start is None:
            return self
        others = {"preset": self.preset} if self.preset != ModelChoice.model_fields["preset"].default else {}
        for table in ("stacks", "encoder", "decoder", "head", "init", "pictures"):
            may = DROPOUTS if table in ("stacks", "encoder", "decoder") else ()
            others |= {f"{table}.{name}": value for name, value in dict(self)[table].items() if name not in may}
        for name, value in others.items():
            raise ValueError(f"{name}={value!r} cannot be set beside start, which keeps its architecture; leave it out")
        return self


class Recipe(Config):
    """What every recipe has; a task's own adds its name, the fields of its data, and other defaults."""

    task: str
    data: Data
    tokenizer: TokenizerConfig = BPE()
    model: ModelChoice = ModelChoice()
    adapter: AdapterConfig | None = None
    """Trains small matrices beside those of `model.start`, which stay as they are; None trains all weights."""
    training: Training = Training()
    generation: GenerationConfig = GenerationConfig()

    @model_validator(mode="before")
    @classmethod
    def _preset_of_task(cls, tables: object) -> object:
        """The preset of the task stays where other fields of `model` are given."""
        model = tables.get("model") if isinstance(tables, Mapping) else None
        if not isinstance(tables, Mapping) or not isinstance(model, Mapping) or model.get("start") is not None:
            return tables
        return {**tables, "model": {"preset": cls.model_fields["model"].default.preset, **model}}

    @model_validator(mode="after")
    def _adapter_of_start(self) -> Self:
        if self.adapter is not None and self.model.start is None:
            raise ValueError(
                "adapter: expected a checkpoint to adapt, got a new network; set model.start, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _tokenizer_of_start(self) -> Self:
        if self.model.start is not None and self.tokenizer != type(self).model_fields["tokenizer"].default:
            raise ValueError("tokenizer cannot be set beside model.start, which has its own; leave it out")
        return self


@runtime_checkable
class LeavesLength(Protocol):
    """A recipe that may leave its size and its length to the data, which its task then settles."""

    @property
    def leaves_length(self) -> bool:
        """Whether the number of passes over the data follows from them."""
        ...


def leaves_length(recipe: Recipe) -> bool:
    """Returns True if the number of passes over the data follows from them."""
    return isinstance(recipe, LeavesLength) and recipe.leaves_length


_OTHERS = {config.__name__: config for config in (AdapterConfig, ModelConfig, GenerationConfig)}
"""The configurations besides recipes whose errors are explained, by name."""


def recipe_folders() -> list[Path]:
    """The folders of named recipes: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    return [folder for folder in (package / "recipes", package.parent / "recipes") if folder.is_dir()]


def installed() -> dict[str, Path]:
    """The files of the recipes that are installed with clearhead, by name."""
    return {file.stem: file for folder in recipe_folders() for file in sorted(folder.glob("*.toml"))}


def read(name: str) -> dict[str, Any]:
    """The tables of a recipe file, given by its path or by the name of a recipe that is installed with clearhead."""
    path, known = Path(name), installed()
    if path.suffix != ".toml" and name in known:
        path = known[name]
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"try one of {', '.join(sorted(known))}"
        raise UserError(f"{name}: expected a recipe or data, got no such file; {hint}") from None
    except OSError as error:
        raise UserError(f"{path}: expected a recipe file, got {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: expected TOML, got {error}; correct the recipe") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table. A table of another `kind` replaces the old table whole."""
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        same = isinstance(old, Mapping) and isinstance(value, Mapping)
        if same and value.get("kind", old.get("kind")) == old.get("kind"):
            result[name] = merge(old, value)
        else:
            result[name] = value
    return result


def changed(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """merge(base, over) for a recipe's tables.

    A new `model.start` replaces base's model and tokenizer, and the optimizer and schedule that suited them. A recipe
    that starts from a checkpoint takes the small steps of `FINE_TUNING`, unless it gives its own or has an adapter.
    """
    if _start(over) is not None and _start(base) is None:
        base = {name: table for name, table in base.items() if name not in ("model", "tokenizer")}
        if isinstance(training := base.get("training"), Mapping):
            steps = FINE_TUNING["training"].keys()
            base["training"] = {name: value for name, value in training.items() if name not in steps}
    result = merge(base, over)
    if _start(result) is None:
        return result
    return merge(merge(FINE_TUNING, ADAPTING) if result.get("adapter") else FINE_TUNING, result)


def _start(tables: Mapping[str, Any]) -> object:
    model = tables.get("model")
    return model.get("start") if isinstance(model, Mapping) else None


def nested(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`("training.steps", "100")` -> `{"training": {"steps": 100}}`. A value that is not JSON is text.

    A table and single fields of it are merged, the later ones over the earlier ones.
    """
    result: dict[str, Any] = {}
    for dotted, text in pairs:
        try:
            value: Any = parse(text, f"--{dotted}")
        except NotJson:
            value = text
        *tables, last = dotted.split(".")
        table: Any = result
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise _two_kinds(dotted, name)
        old = table.get(last)
        if not isinstance(old, dict):
            table[last] = value
        elif isinstance(value, dict):
            table[last] = merge(old, value)
        else:
            raise _two_kinds(dotted, last)
    return result


def _two_kinds(dotted: str, name: str) -> UserError:
    return UserError(f"--{dotted}: expected {name} to be a table, got a value for it too; give one of them")


def explain(error: ValidationError, where: str, *, schema: Schema | None = None, names: Names | None = None) -> str:
    """The first mistake in one line: file:field: what was expected, what was given.

    `schema` is that of what was validated; None for a ModelConfig or GenerationConfig. `names` are fields elsewhere
    that may be meant by one that does not exist.
    """
    first = error.errors()[0]
    place = _place(first["loc"], schema or schema_of(_OTHERS[error.title]))
    field = ".".join(place.path)
    context = first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            siblings = sorted({name for node in place.table for name in node.get("properties", {})})
            word = place.path[-1]
            elsewhere = None if names is None else names.ending(word)
            is_better = elsewhere and (elsewhere.endswith(f".{word}") or not get_close_matches(word, siblings, n=1))
            remedy = f"did you mean {elsewhere}?" if is_better else nearest(word, siblings)
            return f"{where}:{field}: no such field; {remedy}"
        case "missing":
            return f"{where}:{field}: expected a value, got none; set it"
        case "union_tag_invalid" | "union_tag_not_found":
            name = str(context["discriminator"]).strip("'")
            tags = sorted({kind for node in place.value if (kind := tag(node, name)) is not None})
            given = str(context.get("tag", "none"))
            remedy = nearest(given, tags) if "tag" in context else f"set it to one of {', '.join(tags)}"
            return f"{where}:{'.'.join([*place.path, name])}: expected one of {', '.join(tags)}, got {given}; {remedy}"
    message = expectation(first)
    given = "" if isinstance(first["input"], Mapping) or ", got " in message else f", got {repr(first['input'])[:100]}"
    return f"{where}:{field}: {message}{given}" if field else f"{where}: {message}{given}"


def nearest(word: str, known: Sequence[str]) -> str:
    """The remedy for a wrong word: the word that was probably meant, or all words."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"try one of {', '.join(known)}"


@dataclass(frozen=True)
class _Place:
    """The place of an error: the path of field names to it, and the schemas around it and at it."""

    path: list[str]
    table: list[dict[str, Any]]
    value: list[dict[str, Any]]


def _place(location: tuple[int | str, ...], schema: dict[str, Any]) -> _Place:
    """The place without the alternatives of unions, which pydantic names and a recipe does not."""
    path: list[str] = []
    table = nodes = options(schema, schema)
    for part in location:
        if chosen := [n for n in nodes if len(nodes) > 1 and part == tag(n)]:
            nodes = chosen
        elif isinstance(part, int) or any({"properties", "additionalProperties"} & n.keys() for n in nodes):
            path.append(str(part))
            table = nodes
            inner = [n.get("properties", {}).get(part) or n.get("items") for n in nodes]
            nodes = [o for node in inner if node for o in options(node, schema)]
    return _Place(path, table, nodes)
