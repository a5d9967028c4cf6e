"""The modules after the network in a folder of the sentence-transformers library, each read from its own folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from clearhead.checkpoints.weights import safetensors
from clearhead.checkpoints.weights.documents import AGAIN, read_json, short, shown
from clearhead.checkpoints.weights.modules import CONFIG, MODULES, Listed
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model.sentences import ACTIVATIONS, Dense, Dropout, Mode, Pooling, Step, Unit, VectorLayerNorm
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
SENTENCE = "sentence_embedding"
STREAMS = ("module_input_name", "module_output_name")
"""The feature that a module reads and writes, which must be the vector."""


@dataclass(frozen=True)
class Module:
    """One entry of modules.json, its config.json and what it does."""

    listed: Listed
    config: JsonObject
    step: Step

    def weights(self) -> dict[str, Tensor]:
        """Its tensors by their names there."""
        match self.step:
            case Dense() as step:
                found = {
                    "linear.weight": step.weight,
                    "linear.bias": step.bias,
                    "residual.weight": step.residual_weight,
                }
                return {name: tensor for name, tensor in found.items() if tensor is not None}
            case VectorLayerNorm() as step:
                return {"norm.weight": step.weight, "norm.bias": step.bias}
        return {}


def read_module(folder: Path, one: Listed) -> Module:
    """The module of this entry. Raises UserError that names the file, for one that is not supported."""
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


def _pooling(config: JsonObject, place: Path) -> Step:
    where = str(place / CONFIG)
    new = config.get("pooling_mode")
    if new is None:
        switched = tuple(mode for name, mode in OLD_MODES.items() if config.get(name))
        found: list[Any] = list(switched or ("mean",))
    else:
        found = [*new] if isinstance(new, list) else [new]
    known = get_args(Mode)
    if not found or not all(mode in known for mode in found):
        raise UserError(f"{where}:pooling_mode: expected some of {', '.join(known)}, got {short(new)}; {REMEDY}")
    widths = ("embedding_dimension", "word_embedding_dimension")
    only_known(config, (*OLD_MODES, *widths, "pooling_mode", "include_prompt"), where)
    include = config.get("include_prompt", True)
    if not isinstance(include, bool):
        raise UserError(f"{where}:include_prompt: expected true or false, got {short(include)}; {REMEDY}")
    return Pooling(tuple(found), include)


def _dense(config: JsonObject, place: Path) -> Step:
    where = str(place / CONFIG)
    said = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    name = said.rpartition(".")[2] if isinstance(said, str) and said.startswith("torch.nn.") else None
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UserError(f"{where}:activation_function: expected one of torch.nn's {known}, got {short(said)}; {REMEDY}")
    only_known(config, ("activation_function", "bias", "use_residual", "in_features", "out_features", *STREAMS), where)
    _in_the_stream(config, where)
    n_in, n_out = config.get("in_features"), config.get("out_features")
    residual = bool(config.get("use_residual", False))
    shapes = {"linear.weight": [n_out, n_in]}
    shapes |= {"linear.bias": [n_out]} if config.get("bias", True) else {}
    shapes |= {"residual.weight": [n_out, n_in]} if residual and n_in != n_out else {}
    found = _tensors(place, shapes)
    return Dense(found["linear.weight"], found.get("linear.bias"), name, residual, found.get("residual.weight"))


def _norm(config: JsonObject, place: Path) -> Step:
    only_known(config, ("dimension",), str(place / CONFIG))
    found = _tensors(place, {f"norm.{name}": [config.get("dimension")] for name in ("weight", "bias")})
    return VectorLayerNorm(found["norm.weight"], found["norm.bias"])


def _unit(config: JsonObject, place: Path) -> Step:
    _in_the_stream(config, str(place / CONFIG))
    return Unit()


def _dropout(config: JsonObject, place: Path) -> Step:
    where = str(place / CONFIG)
    only_known(config, ("dropout",), where)
    share = config.get("dropout", 0.2)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(f"{where}:dropout: expected a share from 0 to 1, got {short(share)}; {REMEDY}")
    return Dropout(share)


KINDS: dict[str, Callable[[JsonObject, Path], Step]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "LayerNorm": _norm,
    "Normalize": _unit,
    "Dropout": _dropout,
}


def _in_the_stream(config: JsonObject, where: str) -> None:
    for name in STREAMS:
        if config.get(name) not in (None, SENTENCE):
            raise UserError(f"{where}:{name}: expected {SENTENCE}, got {short(config[name])}; {REMEDY}")


def only_known(config: JsonObject, known: tuple[str, ...], where: str) -> None:
    """Raises UserError for another setting."""
    for name in config.keys() - {*known}:
        raise UserError(f"{where}:{shown(name)}: expected no such setting, got {short(config[name])}; {REMEDY}")


def _tensors(place: Path, shapes: Mapping[str, list[Any]]) -> dict[str, Tensor]:
    """The weights of a module. Raises UserError unless they are exactly these, with these shapes."""
    found = safetensors.read(place)
    check_finite({shown(name): one for name, one in found.items()}, where=str(place), remedy=AGAIN)
    for name in found.keys() ^ shapes.keys():
        got = "another" if name in found else "none"
        raise UserError(f"{place}:{shown(name)}: expected {', '.join(shapes)}, got {got}; try the complete folder")
    for name, shape in shapes.items():
        if list(found[name].shape) != shape:
            got = list(found[name].shape)
            raise UserError(f"{place}:{name}: expected the shape {shape} that {CONFIG} says, got {got}; {REMEDY}")
    return found
