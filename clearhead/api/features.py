"""Folders of features: ours, and those of SAELens and circuit-tracer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from torch import Tensor

from clearhead.analysis.features import Features, Site
from clearhead.api import foreign_features
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, is_there, read_json
from clearhead.checkpoints.weights.safetensors import with_metadata
from clearhead.config.base import Config
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.record import ops_of
from clearhead.storage import checkpoints
from clearhead.trace import nearest

ABOUT, WEIGHTS = "features.json", "features.safetensors"
FORMAT = "clearhead-features/1"
TENSORS = ("w_enc", "b_enc", "w_dec", "b_dec", "threshold", "w_skip")


class About(Config):
    """features.json: where the features belong, and how they came about."""

    format: str
    reads: str
    writes: str
    name: str = "features"
    k: int | None = None
    trained: dict[str, JsonValue] = Field(default_factory=dict)
    """The settings of the training."""
    report: dict[str, JsonValue] = Field(default_factory=dict)
    """What was measured at its end."""


def save_features(
    features: Features,
    folder: str | Path,
    *,
    trained: Mapping[str, JsonValue] | None = None,
    report: Mapping[str, JsonValue] | None = None,
) -> Path:
    """Writes a new folder with features.safetensors and features.json. Raises UserError if it exists."""
    tensors: dict[str, Tensor] = {
        name: value.detach().contiguous() for name in TENSORS if (value := getattr(features, name)) is not None
    }
    about: dict[str, JsonValue] = {"format": FORMAT, "reads": features.reads, "writes": features.writes}
    about |= {"name": features.name, "k": features.k, "trained": dict(trained or {}), "report": dict(report or {})}
    return checkpoints.write_folder(
        Path(folder), checkpoints.Checkpoint(tensors={WEIGHTS: tensors}, json={ABOUT: about})
    )


def load_features(
    path: str | Path, network: Transformer, *, layer: int | None = None, stack: str | None = None
) -> Features:
    """The features in a folder for this network: our own, SAELens's or circuit-tracer's (see `foreign_features`).

    A circuit-tracer folder holds a transcoder for each layer: `layer` says which. `stack` is that of the network that
    files from elsewhere belong to (default: its last). Raises UserError for files that are damaged, that hold
    something that is not supported, or that do not fit the network.
    """
    folder = Path(path)
    if is_there(folder / ABOUT):
        features = _own(folder)
    else:
        features = foreign_features.read(folder, network, layer=layer, stack=stack or list(network.stacks())[-1])
    name = features.reads.split(".")[0]
    if name not in network.stacks():
        raise UserError(f"{folder}: expected features of {' or '.join(network.stacks())}, got {features.reads}")
    more = "" if layer is None else f", layer={layer}"
    return replace(features, source=f"{str(path)!r}, model.network{more}")


def features_named(name: str, network: Transformer) -> Features:
    """The features of FOLDER, or of one layer of it: FOLDER:LAYER. Raises UserError as `load_features` does."""
    folder, colon, layer = name.rpartition(":")
    has_layer = bool(colon) and layer.isdigit()
    return load_features(folder if has_layer else name, network, layer=int(layer) if has_layer else None)


def attach(network: Transformer, *several: Features) -> None:
    """Gives features addresses in every trace of this network, in place of those that it had.

    Raises UserError for features of a value that the network does not have, and for two of the same address;
    `dataclasses.replace(features, name=…)` gives another.
    """
    known = {op.out for op in ops_of(network.config)}
    for at in (at for one in several for at in (one.reads, one.writes)):
        if at not in known:
            raise UserError(f"{at}: expected features of a value of this network, got others{nearest(at, known)}")
    addresses = [one.address for one in several]
    twice = next((at for at in addresses if addresses.count(at) > 1), None)
    if twice is not None:
        raise UserError(f"{twice}: expected one set of features at an address, got two; give one another name")
    network.attached = list(several)


def _own(folder: Path) -> Features:
    try:
        about = TypeAdapter(About).validate_python(read_json(folder / ABOUT, limit=CONFIG_LIMIT))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{folder / ABOUT}:{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if about.format != FORMAT:
        raise UserError(f"{folder / ABOUT}:format: expected {FORMAT}, got {about.format!r}; try a newer clearhead")
    tensors, _ = with_metadata(folder / WEIGHTS)
    missing = {"w_enc", "b_enc", "w_dec", "b_dec"} - tensors.keys()
    if missing or tensors.keys() - set(TENSORS):
        raise UserError(f"{folder / WEIGHTS}: expected the tensors {', '.join(TENSORS)}, got {', '.join(tensors)}")
    w_enc, b_enc, w_dec, b_dec = (tensors[name] for name in TENSORS[:4])
    threshold, skip = tensors.get("threshold"), tensors.get("w_skip")
    site = Site(about.reads, about.writes)
    return checked(Features(site, w_enc, b_enc, w_dec, b_dec, threshold, about.k, skip, about.name), folder)


def checked(features: Features, folder: Path) -> Features:
    """The features. Raises UserError for numbers that are not finite."""
    for name in TENSORS:
        value = getattr(features, name)
        if value is not None and not torch.isfinite(value).all():
            raise UserError(f"{folder}:{name}: expected finite numbers, got NaN or infinity; try downloading it again")
    return features
