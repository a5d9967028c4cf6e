"""Sentence encoders: how they read texts and make vectors, in the files of the sentence-transformers library."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, PositiveInt, ValidationError, ValidationInfo, field_validator
from torch import Tensor

from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.families.shared import SENTENCE_FILES, SENTENCE_SETTINGS
from clearhead.checkpoints.weights import modules, safetensors
from clearhead.checkpoints.weights.documents import AGAIN, MODEL, read_json, short, shown
from clearhead.checkpoints.weights.modules import CONFIG, MODULES, SETTINGS, Listed
from clearhead.config import Config
from clearhead.errors import UserError, expectation
from clearhead.json_text import JsonObject
from clearhead.model import Layout
from clearhead.model.sentences import (
    ACTIVATIONS,
    Dense,
    Dropout,
    First,
    Mode,
    Pooling,
    Step,
    Unit,
    VectorLayerNorm,
    vectors,
)
from clearhead.storage.checkpoints import Checkpoint
from clearhead.storage.tensors import check_finite

REMEDY = "try model.network"
OLD_MODES: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The older switches, in the order in which their results are joined."""


@dataclass(frozen=True)
class Module:
    """One entry of modules.json, its config.json and its function."""

    listed: Listed
    config: JsonObject
    step: Step

    def weights(self) -> dict[str, Tensor]:
        """Its tensors by their names there."""
        match self.step:
            case Dense(weight, bias, residual_weight=residual):
                tensors = {"linear.weight": weight, "linear.bias": bias, "residual.weight": residual}
            case VectorLayerNorm(weight, bias):
                tensors = {"norm.weight": weight, "norm.bias": bias}
            case _:
                tensors = dict[str, Tensor | None]()
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def read_module(folder: Path, one: Listed) -> Module:
    """The module of this entry. Raises UserError that names the file, if it is not supported."""
    where = f"{folder / MODULES}:{shown(one.name)}"
    if one.kind not in KINDS:
        raise UserError(f"{where}: expected {', '.join(KINDS)}, got {shown(one.type)}; {REMEDY}")
    if not one.path and one.kind != "Normalize":
        raise UserError(f"{where}: expected a folder of its own, got none; {REMEDY}")
    place = folder / one.path
    path = place / CONFIG
    # Without its own folder it would read the network's config.json.
    config = read_json(path) if one.path and path.is_file() else {}
    return Module(one, config, KINDS[one.kind](config, place))


def check_widths(modules: Sequence[Module], width: int, folder: Path) -> None:
    """Raises UserError unless each module takes vectors of the previous module's width; the first takes `width`."""
    wide = width
    for module in modules:
        match module.step:
            case Pooling(modes):
                wide = len(modes) * width
                continue
            case Dense(weight) | VectorLayerNorm(weight):
                needs = weight.shape[-1]
                if needs != wide:
                    where = f"{folder / module.listed.path / CONFIG}"
                    raise UserError(f"{where}: expected vectors of width {wide}, got {needs}; {REMEDY}")
                wide = weight.shape[0]


T = TypeVar("T", bound=Config)


def _validated(kind: type[T], document: JsonObject, where: Path | str) -> T:
    """The settings of a file. Raises UserError, which names the first field that is unknown or not supported."""
    try:
        return kind.model_validate(document, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        is_unknown = first["type"] == "extra_forbidden"
        expected = "expected no such setting" if is_unknown else expectation(first)
        raise UserError(
            f"{where}:{shown(str(first['loc'][0]))}: {expected}, got {short(first['input'])}; {REMEDY}"
        ) from None


Nothing: TypeAlias = Annotated[dict[str, Any] | None, Field(max_length=0)]


class PoolingSettings(Config):
    """config.json of a Pooling."""

    pooling_mode: Mode | Annotated[list[Mode], Field(min_length=1)] | None = None
    pooling_mode_cls_token: Any = False
    pooling_mode_max_tokens: Any = False
    pooling_mode_mean_tokens: Any = False
    pooling_mode_mean_sqrt_len_tokens: Any = False
    pooling_mode_weightedmean_tokens: Any = False
    pooling_mode_lasttoken: Any = False
    include_prompt: bool = True
    embedding_dimension: Any = None
    word_embedding_dimension: Any = None


class StreamSettings(Config):
    """The feature that a module reads and writes, which must be the vector."""

    module_input_name: Literal["sentence_embedding"] | None = None
    module_output_name: Literal["sentence_embedding"] | None = None


class DenseSettings(StreamSettings):
    """config.json of a Dense."""

    in_features: Any = None
    out_features: Any = None
    bias: Any = True
    use_residual: Any = False
    activation_function: str = "Tanh"

    @field_validator("activation_function")
    @classmethod
    def _known(cls, name: str) -> str:
        if not name.startswith("torch.nn.") or name.rpartition(".")[2] not in ACTIVATIONS:
            raise ValueError(f"expected one of torch.nn's {', '.join(ACTIVATIONS)}")
        return name.rpartition(".")[2]


class DropoutSettings(Config):
    """config.json of a Dropout."""

    dropout: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2


def _pooling(config: JsonObject, place: Path) -> Step:
    settings = _validated(PoolingSettings, config, place / CONFIG)
    match settings.pooling_mode:
        case None:
            modes = [mode for name, mode in OLD_MODES.items() if getattr(settings, name)] or ["mean"]
        case str() as mode:
            modes = [mode]
        case modes:
            pass
    return Pooling(tuple(modes), settings.include_prompt)


def _dense(config: JsonObject, place: Path) -> Step:
    settings = _validated(DenseSettings, config, place / CONFIG)
    n_in, n_out, residual = settings.in_features, settings.out_features, bool(settings.use_residual)
    shapes = {"linear.weight": [n_out, n_in]}
    shapes |= {"linear.bias": [n_out]} if settings.bias else {}
    shapes |= {"residual.weight": [n_out, n_in]} if residual and n_in != n_out else {}
    weight, *others = map(_tensors(place, shapes).get, ("linear.weight", "linear.bias", "residual.weight"))
    assert weight is not None
    return Dense(weight, others[0], settings.activation_function, residual, others[1])


def _norm(config: JsonObject, place: Path) -> Step:
    tensors = _tensors(place, {f"norm.{name}": [config.get("dimension")] for name in ("weight", "bias")})
    return VectorLayerNorm(tensors["norm.weight"], tensors["norm.bias"])


def _unit(config: JsonObject, place: Path) -> Step:
    _validated(StreamSettings, config, place / CONFIG)
    return Unit()


def _dropout(config: JsonObject, place: Path) -> Step:
    return Dropout(_validated(DropoutSettings, config, place / CONFIG).dropout)


KINDS: dict[str, Callable[[JsonObject, Path], Step]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "LayerNorm": _norm,
    "Normalize": _unit,
    "Dropout": _dropout,
}


def _tensors(place: Path, shapes: Mapping[str, list[Any]]) -> dict[str, Tensor]:
    """The weights of a module. Raises UserError unless they are exactly these, with these shapes."""
    tensors = safetensors.read(place)
    check_finite({shown(name): one for name, one in tensors.items()}, where=str(place), remedy=AGAIN)
    for name in tensors.keys() ^ shapes.keys():
        got = "another" if name in tensors else "none"
        raise UserError(f"{place}:{shown(name)}: expected {', '.join(shapes)}, got {got}; try the complete folder")
    for name, shape in shapes.items():
        if list(tensors[name].shape) != shape:
            got = list(tensors[name].shape)
            raise UserError(f"{place}:{name}: expected the shape {shape} that {CONFIG} says, got {got}; {REMEDY}")
    return tensors


_log = logging.getLogger("clearhead")

POOLING = Path("1_Pooling") / CONFIG
PROMPTS = {"query": "", "document": ""}
"""The prompts of a model without a file of prompts."""
TOKENIZER = "tokenizer_config.json"


@dataclass(frozen=True)
class Sentences:
    """Prepares texts for a network, and makes a vector of its states."""

    modules: tuple[Module, ...] = ()
    """The steps after the network. Empty without modules.json, and then the mean is used."""
    network: Listed | None = None
    """The network's entry in modules.json, if there is one."""
    prompts: Mapping[str, str] = field(default_factory=lambda: dict(PROMPTS))
    default_prompt: str | None = None
    max_length: int | None = None
    """Most tokens of a text, including special ones; None for as many as the network reads."""
    cuts_left: bool = False
    """True if the beginning of a text that is too long is cut off, instead of its end."""
    lowercase: bool = False
    width: int | None = None
    """The numbers of a vector that are kept, the first ones; None for all."""
    documents: Mapping[str, JsonObject] = field(default_factory=dict)
    """The settings of both files as they were read, which are written back."""

    def prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        """The prompt before a text: given, named, or the default. Raises UserError if it is both given and named."""
        if prompt is not None and prompt_name is not None:
            raise UserError("prompt: expected a prompt or its prompt_name, got both; leave one out")
        name = self.default_prompt if prompt_name is None else prompt_name
        if prompt is not None or name is None:
            return prompt or ""
        if name not in self.prompts:
            raise UserError(f"prompt_name: expected one of {', '.join(self.prompts)}, got {short(name)}; try prompt=")
        return self.prompts[name]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that make a vector of the states."""
        own = tuple(module.step for module in self.modules) or (Pooling(),)
        return own if self.width is None else (*own, First(self.width))

    def vectors(self, result: Tensor, layout: Layout) -> Tensor:
        """b t d, the states of a network without logits, or b d, its vectors -> b d."""
        return result if result.ndim == 2 else vectors(self.steps, result, layout.valid)

    @property
    def pooling(self) -> Mode:
        """The pooling of an encoder without other modules.

        Raises UserError if it has other steps, a prompt, or changes texts: such an encoder cannot be trained here.
        """
        pools = [step for step in self.steps if not isinstance(step, Unit)]
        changes = {"do_lower_case": self.lowercase, "truncation_side": self.cuts_left}
        changes["truncate_dim"] = self.width is not None
        if self.default_prompt is not None:
            changes["default_prompt_name"] = True
        others = [name for name, is_set in changes.items() if is_set]
        others += [type(step).__name__ for step in pools[1:] if not isinstance(step, First)]
        if others or not isinstance(pools[0], Pooling) or len(pools[0].modes) > 1:
            got = ", ".join(others) or "several poolings"
            raise UserError(f"model: expected a sentence encoder that only pools, got {got}; try another model.start")
        return pools[0].modes[0]

    def own_files(self) -> Checkpoint:
        """These settings as the file of a run; none if there was no modules.json."""
        if self.network is None:
            return Checkpoint()
        return Checkpoint(json={OWN: {"pooling": self.pooling, "max_length": self.max_length}})

    def files(self) -> Checkpoint:
        """These settings as that library's files; none if there was no modules.json."""
        if self.network is None:
            return Checkpoint()
        listed = [replace(self.network, path=""), *(module.listed for module in self.modules)]
        entries = json.dumps([one.to_document(i) for i, one in enumerate(listed)], indent=2)
        own = [module for module in self.modules if module.listed.path]
        return Checkpoint(
            {f"{one.listed.path}/{MODEL}": tensors for one in own if (tensors := one.weights())},
            {**self.documents, **{f"{one.listed.path}/{CONFIG}": one.config for one in own}},
            {MODULES: entries.encode()},
        )


OWN = "sentences.json"
"""The settings of a run that trains a sentence encoder."""
SENTENCE_CLASSES = f"{modules.LIBRARY}models."


class OwnSettings(Config):
    """The settings with which a run makes one vector of a text."""

    pooling: Mode
    max_length: PositiveInt | None


def of_run(folder: Path, *, width: int) -> Sentences:
    """The sentence encoder of a run's checkpoint. Without its settings, the mean is used."""
    path = folder / OWN
    if not path.is_file():
        return Sentences()
    own = _validated(OwnSettings, read_json(path), path)
    pooling: JsonObject = {"word_embedding_dimension": width}
    pooling |= {name: mode == own.pooling for name, mode in OLD_MODES.items()}
    return Sentences(
        (
            Module(Listed("1", "1_Pooling", f"{SENTENCE_CLASSES}Pooling"), pooling, Pooling((own.pooling,))),
            Module(Listed("2", "2_Normalize", f"{SENTENCE_CLASSES}Normalize"), {}, Unit()),
        ),
        Listed("0", "", SENTENCE_CLASSES + modules.NETWORK),
        max_length=own.max_length,
        documents={SENTENCE_SETTINGS: {"max_seq_length": own.max_length, "do_lower_case": False}},
    )


def read(folder: Path, document: Mapping[str, Any], *, width: int) -> Sentences:
    """Reads the files of `folder`. `document` is the network's config.json, and `width` that of its states.

    Raises UserError that names the file, for a module or a setting that is not supported.
    """
    listed = modules.listed(folder)
    settings = modules.settings(folder)
    if not listed or settings.get("model_type") == modules.CROSS_ENCODER:
        if not listed and (folder / POOLING).is_file():
            _log.warning("%s: not read, as there is no %s: embed takes the mean", folder / POOLING, MODULES)
        return Sentences()
    network = folder / listed[0].path
    path = modules.texts_file(network, SENTENCE_FILES)
    texts = {} if path is None else read_json(path)
    reading = _validated(TextSettings, texts, str(path))
    tokenizer = read_json(network / TOKENIZER) if (network / TOKENIZER).is_file() else {}
    steps = tuple(read_module(folder, one) for one in listed[1:])
    if not steps or not isinstance(steps[0].step, Pooling):
        got = shown(", ".join(one.kind for one in listed[1:])) or "none"
        raise UserError(f"{folder / MODULES}: expected a Pooling after the {modules.NETWORK}, got {got}; {REMEDY}")
    check_widths(steps, width, folder)
    whole = _validated(WholeSettings, settings, f"{folder}/{SETTINGS}")
    if unread := settings.keys() - {*OF_WHOLE}:
        names = shown(", ".join(sorted(unread)))
        _log.warning("%s/%s: not read, as %s does not either: %s", folder, SETTINGS, REFERENCE, names)
    kept = {SETTINGS: settings} if settings else {}
    return Sentences(
        steps,
        listed[0],
        PROMPTS | {name: text or "" for name, text in whole.prompts.items()},
        whole.default_prompt_name,
        max_length=reading.max_seq_length or _shortest(tokenizer, document),
        cuts_left=tokenizer.get("truncation_side") == "left",
        lowercase=reading.do_lower_case,
        width=whole.truncate_dim,
        documents=kept | ({path.name: texts} if path else {}),
    )


def _shortest(tokenizer: JsonObject, document: Mapping[str, Any]) -> int | None:
    """The number of tokens to read if the settings do not limit it."""
    family = family_of(document, where=CONFIG)
    fields = family.map_of(family.head_of(document, where=CONFIG))
    values = {**document, **fields.values(family.modernize(dict(document)), where=CONFIG)}
    longest = [values.get("max_position_embeddings"), None if "n_embd" not in values else values.get("n_positions")]
    lengths = [tokenizer.get("model_max_length", tokenizer.get("max_len")), *longest]
    return min((int(n) for n in lengths if isinstance(n, int | float) and n > 0), default=None)


STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
"""The modality_config of texts whose states are pooled."""


class TextSettings(Config):
    """How texts are read. A setting of one supported value must have it; `unpad_inputs` and `backend` do nothing."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False
    transformer_task: Literal["feature-extraction"] = "feature-extraction"
    module_output_name: Literal["token_embeddings"] = "token_embeddings"
    modality_config: dict[str, Any] = Field(default_factory=lambda: {"text": STATES})
    processing_kwargs: Nothing = None
    query_expansion: None = None
    query_length: None = None
    document_length: None = None
    model_args: Nothing = None
    model_kwargs: Nothing = None
    config_args: Nothing = None
    config_kwargs: Nothing = None
    tokenizer_args: Nothing = None
    processor_kwargs: Nothing = None
    unpad_inputs: Any = None
    backend: Any = None

    @field_validator("modality_config")
    @classmethod
    def _pools_states(cls, modalities: dict[str, Any]) -> dict[str, Any]:
        if modalities.get("text") != STATES:
            raise ValueError(f"expected {STATES!r} of text")
        return modalities


class WholeSettings(Config, extra="ignore"):
    """The settings of the whole model that change a vector."""

    prompts: dict[str, str | None] = Field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: PositiveInt | None = None

    @field_validator("default_prompt_name")
    @classmethod
    def _is_known(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = PROMPTS | info.data.get("prompts", {})
        if name is not None and name not in known:
            raise ValueError(f"expected one of {', '.join(map(shown, known))}")
        return name


REFERENCE = "sentence-transformers 6.2.0"
"""The library whose source tells which settings it reads."""
OF_WHOLE = (
    "prompts",
    "default_prompt_name",
    "truncate_dim",
    "similarity_fn_name",
    "model_type",
    "requirements",
    "__version__",
)
"""The settings of the whole that it reads. Only the first three change a vector."""
