"""A recipe: everything a training run is made from, in one TOML file. Imports no torch."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, PositiveInt, TypeAdapter, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.recipe_data import BPE, Characters, Preparation, Source, TokenizerConfig
from clearhead.recipe_generation import GenerationConfig
from clearhead.recipe_training import Training

Overrides = dict[str, JsonValue]


class ModelChoice(Config):
    """A preset and what differs from it."""

    preset: str = "transformer-tiny"
    stacks: Overrides = Field(default_factory=dict)
    """Fields of every stack, such as `dropout = 0.1`."""
    encoder: Overrides = Field(default_factory=dict)
    decoder: Overrides = Field(default_factory=dict)
    head: Overrides = Field(default_factory=dict)
    init: Overrides = Field(default_factory=dict)


class TranslationData(Config):
    """Sentence pairs; relative paths start at `folder`."""

    folder: Path = Path()
    train: Source
    valid: Source | None = None
    """None: `held_out` pairs of the training data, chosen by their source's hash."""
    test: Source | None = None
    held_out: PositiveInt = 1000
    preparation: Preparation = Preparation()


class LanguageData(Config):
    """Running text; relative paths start at `folder`."""

    folder: Path = Path()
    train: Source
    valid: Source | None = None
    """None: the last `held_out` share of the training text."""
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    length: PositiveInt = 256
    """Tokens of context a window holds."""


class TranslationRecipe(Config):
    """How to train a translator."""

    task: Literal["translation"]
    data: TranslationData
    tokenizer: TokenizerConfig = BPE()
    model: ModelChoice = ModelChoice()
    training: Training = Training()
    generation: GenerationConfig = GenerationConfig()


class LanguageRecipe(Config):
    """How to train a language model."""

    task: Literal["lm"]
    data: LanguageData
    tokenizer: TokenizerConfig = Characters()
    model: ModelChoice = ModelChoice(preset="nano")
    training: Training = Training()
    generation: GenerationConfig = GenerationConfig(max_new_tokens=256, temperature=0.8)


Recipe = Annotated[TranslationRecipe | LanguageRecipe, Field(discriminator="task")]
_adapter: TypeAdapter[TranslationRecipe | LanguageRecipe] = TypeAdapter(Recipe)


def recipe_folders() -> list[Path]:
    """Where named recipes are: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    return [folder for folder in (package / "recipes", package.parent / "recipes") if folder.is_dir()]


def read(name: str) -> dict[str, Any]:
    """The tables of a recipe file, by its path or, for the recipes that come along, by its name."""
    path = Path(name)
    known = {file.stem: file for folder in recipe_folders() for file in sorted(folder.glob("*.toml"))}
    if path.suffix != ".toml" and name in known:
        path = known[name]
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"try one of {', '.join(sorted(known))}"
        raise UserError(f"{name}: expected a recipe file or name, found none; {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: expected a recipe file, got {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: expected TOML, got {error}") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """base with over's values, table by table; a table of another `kind` replaces the old one whole."""
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        same = isinstance(old, Mapping) and isinstance(value, Mapping)
        if same and value.get("kind", old.get("kind")) == old.get("kind"):
            result[name] = merge(old, value)
        else:
            result[name] = value
    return result


def nested(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`("training.steps", "100")` -> `{"training": {"steps": 100}}`; values are JSON where they can be, else text."""
    result: dict[str, Any] = {}
    for dotted, text in pairs:
        *tables, last = dotted.split(".")
        table = result
        for name in tables:
            table = table.setdefault(name, {})
        try:
            table[last] = json.loads(text)
        except json.JSONDecodeError:
            table[last] = text
    return result


def validate(tables: Mapping[str, Any], *, where: str) -> TranslationRecipe | LanguageRecipe:
    """A recipe from its tables; `where` names the file in the errors."""
    try:
        return _adapter.validate_python(dict(tables))
    except ValidationError as error:
        raise UserError(explain(error, where)) from None


def explain(error: ValidationError, where: str) -> str:
    """The first thing wrong, in one line: file:field: what was expected, what was given."""
    first = error.errors()[0]
    tags = {"translation", "lm"}
    path = [str(part) for part in first["loc"] if part not in tags]
    if first["type"] == "extra_forbidden":
        siblings = _fields_beside(first["loc"])
        close = get_close_matches(path[-1], siblings, n=1)
        hint = f"did you mean {close[0]}?" if close else f"try one of {', '.join(siblings)}"
        return f"{where}:{'.'.join(path)}: no such field; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    given = "" if isinstance(first["input"], Mapping) else f", got {first['input']!r}"
    return f"{where}:{'.'.join(path)}: {message}{given}"


def _fields_beside(location: tuple[int | str, ...]) -> list[str]:
    """Names of the fields where an unknown one was given, from the recipe's JSON schema."""
    schema = _adapter.json_schema()
    definitions = schema["$defs"]

    def options(node: dict[str, Any]) -> list[dict[str, Any]]:
        if "$ref" in node:
            return options(definitions[node["$ref"].rsplit("/", 1)[1]])
        below = [o for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ()) for o in options(part)]
        return below or [node]

    nodes = options(schema)
    for part in location[:-1]:
        tagged = [
            n for n in nodes for name in ("task", "kind") if n.get("properties", {}).get(name, {}).get("const") == part
        ]
        inner = [o for n in nodes if (p := n.get("properties", {}).get(str(part))) for o in options(p)]
        nodes = tagged or inner or nodes
    return sorted({name for node in nodes for name in node.get("properties", {})})


__all__ = [
    "LanguageData",
    "LanguageRecipe",
    "ModelChoice",
    "Recipe",
    "TranslationData",
    "TranslationRecipe",
    "explain",
    "merge",
    "nested",
    "read",
    "validate",
]
