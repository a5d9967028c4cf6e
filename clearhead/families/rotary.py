"""Reads and writes rope_parameters, and reads the older rope_theta and rope_scaling."""

from math import log
from typing import Any

from clearhead.config import Rotary, WavelengthScaling, YarnScaling
from clearhead.errors import UserError
from clearhead.weights.fields import Field, Values, computed

THETA = 10_000.0
YARN = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}
WAVELENGTH = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "low_freq_factor": "low_factor",
    "high_freq_factor": "high_factor",
}
SCALINGS = {"linear": ("linear", {"factor": "factor"}), "llama3": ("wavelength", WAVELENGTH), "yarn": ("yarn", YARN)}
"""Their names of the scalings and their fields -> ours."""
WITHOUT_EFFECT = {"partial_rotary_factor": 1.0, "truncate": True}
"""Further fields -> the only supported value."""
OLDER = ("rope_theta", "partial_rotary_factor")


def modern(document: dict[str, Any]) -> dict[str, Any]:
    """Moves the older fields into rope_parameters, whose own values take precedence."""
    older = {name: document.pop(name, None) for name in OLDER}
    new = document.pop("rope_scaling", None) or document.get("rope_parameters") or {}
    return document | {"rope_parameters": {**older, **new} if isinstance(new, dict) else new}


def rotary(*, max_length: int) -> tuple[Field, ...]:
    """The angles, and the longest text that a config claims."""
    return (
        computed("rope_parameters", "decoder.positions", read=_read, write=_write, default={}),
        computed(
            "max_position_embeddings",
            "decoder.positions.trained_length",
            write=lambda length, ours: _length(ours, max_length) if length is None else length,
            default=max_length,
            like=max_length,
        ),
    )


def _read(parameters: dict[str, Any], values: Values) -> dict[str, Any]:
    said = {name: value for name, value in parameters.items() if value is not None}
    base = said.pop("rope_theta", THETA)
    scaling = _scaling(said, values)
    for name, value in said.items():
        if name not in WITHOUT_EFFECT or value != WITHOUT_EFFECT[name]:
            raise UserError(f"expected no {name}={value!r} in it, which is not supported")
    return {"kind": "rotary", "base": base, "scaling": scaling}


def _scaling(said: dict[str, Any], values: Values) -> dict[str, Any] | None:
    """The scaling of the angles. Removes its fields from `said`."""
    older = said.pop("type", "default")
    kind = said.pop("rope_type", older)
    if kind == "default":
        return None
    if kind not in SCALINGS:
        raise UserError(f"expected rope_type default, {', '.join(SCALINGS)}, got {kind!r}, which is not supported")
    ours, names = SCALINGS[kind]
    found = {here: said.pop(there) for there, here in names.items() if there in said}
    if kind != "linear":
        found.setdefault("original_length", values["max_position_embeddings"])
    if kind == "yarn":
        found.setdefault("factor", values["max_position_embeddings"] / found["original_length"])
        over, under = said.pop("mscale", None), said.pop("mscale_all_dim", None)
        if over and under:
            growth = 0.1 * log(max(found["factor"], 1.0))
            found.setdefault("attention_factor", (over * growth + 1.0) / (under * growth + 1.0))
    return {"kind": ours, **found}


def _write(positions: Values, _: Values) -> dict[str, Any]:
    rotary = Rotary.model_validate(positions)
    if rotary.fraction != 1.0:
        raise ValueError(rotary.fraction)
    if rotary.scaling is None:
        return {"rope_type": "default", "rope_theta": rotary.base}
    for theirs, (ours, names) in SCALINGS.items():
        if rotary.scaling.kind == ours:
            said = dict(rotary.scaling)
            fields = {there: said[here] for there, here in names.items() if said[here] is not None}
            return {"rope_type": theirs, "rope_theta": rotary.base, **fields}
    raise ValueError(rotary.scaling.kind)


def _length(ours: Values, otherwise: int) -> int:
    """The longest text: the length that the scaling was made for, or `otherwise`."""
    scaling = Rotary.model_validate(ours["decoder"]["positions"]).scaling
    if isinstance(scaling, YarnScaling | WavelengthScaling):
        return round(scaling.original_length * scaling.factor)
    return otherwise
