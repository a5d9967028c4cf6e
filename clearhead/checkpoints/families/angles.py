"""Rotary angles: rope_parameters, the older rope_theta and rope_scaling, and layers of two kinds with their own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import log, sqrt
from typing import Any

from clearhead.checkpoints.families.shared import FULL, LOCAL, MOST_LAYERS, by_layer_types, local_layers, window_layers
from clearhead.checkpoints.weights.fields import ANOTHER, Field, Values, computed
from clearhead.config import DynamicScaling, Rotary, WavelengthScaling, YarnScaling
from clearhead.errors import UserError, refuse

THETA = 10_000.0
YARN = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
    "truncate": "truncate",
}
WAVELENGTH = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "low_freq_factor": "low_factor",
    "high_freq_factor": "high_factor",
}
LONG = {
    "short_factor": "divisors",
    "long_factor": "longer",
    "original_max_position_embeddings": "original_length",
    "attention_factor": "attention_factor",
}
SCALINGS = {
    "linear": ("linear", {"factor": "factor"}),
    "llama3": ("wavelength", WAVELENGTH),
    "yarn": ("yarn", YARN),
    "dynamic": ("dynamic", {"factor": "factor"}),
}
WITH_LONG = {"longrope": ("long", LONG)}
"""Their names of the scalings and their fields -> ours."""
Scalings = Mapping[str, tuple[str, Mapping[str, str]]]
WITHOUT_EFFECT = {"truncate": True}
"""Further fields -> the value that has no effect, the only one that is supported except in yarn."""
OLDER = ("rope_theta", "partial_rotary_factor")
ORIGINAL = "original_max_position_embeddings"
WITH_ORIGINAL = ("llama3", "yarn", "longrope")
"""The scalings for which this field beside rope_parameters counts before the one in it."""


def modern(document: dict[str, Any]) -> dict[str, Any]:
    """Moves the older fields into rope_parameters, whose own values take precedence."""
    older = {name: document.pop(name, None) for name in OLDER}
    new = document.pop("rope_scaling", None) or document.get("rope_parameters") or {}
    return document | {"rope_parameters": {**older, **new} if isinstance(new, dict) else new}


def rotary(
    *, max_length: int, theta: float = THETA, fraction: float | None = None, scalings: Scalings = SCALINGS
) -> tuple[Field, ...]:
    """The angles, and the longest text that a config claims.

    `fraction` is the default share of a head that is rotated; None where the library rotates whole heads.
    """
    known = {"fraction": fraction, "scalings": scalings}
    return (
        computed(
            "rope_parameters",
            "decoder.positions",
            read=partial(read_angles, theta=theta, **known),
            write=lambda positions, _: write_angles(positions, **known),
            default={},
        ),
        computed(
            "max_position_embeddings",
            "decoder.positions.trained_length",
            write=lambda length, ours: _length(ours, max_length) if length is None else length,
            default=max_length,
        ),
        replace(computed(ORIGINAL, write=lambda *_: None, default=None, like=max_length), extra=True),
    )


def read_angles(
    parameters: dict[str, Any],
    values: Values,
    *,
    theta: float = THETA,
    fraction: float | None = None,
    scalings: Scalings = SCALINGS,
) -> dict[str, Any]:
    """Their angles -> ours."""
    said = {name: value for name, value in parameters.items() if value is not None}
    base = said.pop("rope_theta", theta)
    part = said.pop("partial_rotary_factor", 1.0 if fraction is None else fraction)
    if fraction is None and part != 1.0:
        raise UserError(f"expected no partial_rotary_factor={part!r} in it, which is not supported")
    scaling = _scaling(said, values, scalings)
    for name, value in said.items():
        if name not in WITHOUT_EFFECT or value != WITHOUT_EFFECT[name]:
            raise UserError(f"expected no {name}={value!r} in it, which is not supported")
    return {"kind": "rotary", "base": base, "fraction": part, "scaling": scaling}


def _scaling(said: dict[str, Any], values: Values, scalings: Scalings) -> dict[str, Any] | None:
    """The scaling of the angles. Removes its fields from `said`."""
    older = said.pop("type", "default")
    kind = said.pop("rope_type", older)
    if kind == "default":
        return None
    if kind not in scalings:
        raise UserError(f"expected rope_type default, {', '.join(scalings)}, got {kind!r}, which is not supported")
    ours, names = scalings[kind]
    found = {here: said.pop(there) for there, here in names.items() if there in said}
    if kind == "dynamic":  # counts from the longest text that the config claims
        said.pop("original_max_position_embeddings", None)
    if kind in WITH_ORIGINAL and values.get(ORIGINAL) is not None:
        found["original_length"] = values[ORIGINAL]
    if kind != "linear":
        found.setdefault("original_length", values["max_position_embeddings"])
    if kind == "yarn":
        found.setdefault("factor", values["max_position_embeddings"] / found["original_length"])
        over, under = said.pop("mscale", None), said.pop("mscale_all_dim", None)
        if over and under:
            growth = 0.1 * log(max(found["factor"], 1.0))
            found.setdefault("attention_factor", (over * growth + 1.0) / (under * growth + 1.0))
    if kind == "longrope":
        length = found["original_length"]
        factor = said.pop("factor", values["max_position_embeddings"] / length)
        found.setdefault("attention_factor", sqrt(1 + log(factor) / log(length)) if factor > 1 else 1.0)
    return {"kind": ours, **found}


def write_angles(positions: Values, *, fraction: float | None = None, scalings: Scalings = SCALINGS) -> dict[str, Any]:
    """Our angles -> theirs. Raises ValueError if theirs cannot express them."""
    rotary = Rotary.model_validate(positions)
    if fraction is None and rotary.fraction != 1.0:
        raise ValueError(rotary.fraction)
    angles = {"rope_theta": rotary.base, **({} if fraction is None else {"partial_rotary_factor": rotary.fraction})}
    if rotary.scaling is None:
        return {"rope_type": "default", **angles}
    for theirs, (ours, names) in scalings.items():
        if rotary.scaling.kind == ours:
            said = rotary.scaling.model_dump(mode="json")
            fields = {there: said[here] for there, here in names.items() if said[here] is not None}
            needed = {there: value for there, value in fields.items() if WITHOUT_EFFECT.get(there) != value}
            return {"rope_type": theirs, **angles, **needed}
    raise ValueError(rotary.scaling.kind)


def _length(ours: Values, otherwise: int) -> int:
    """The longest text: the length that the scaling was made for, or `otherwise`."""
    scaling = Rotary.model_validate(ours["decoder"]["positions"]).scaling
    if isinstance(scaling, DynamicScaling):
        return scaling.original_length
    if isinstance(scaling, YarnScaling | WavelengthScaling):
        return round(scaling.original_length * scaling.factor)
    return otherwise


# --- layers with a window and without ------------------------------------------------------------------------------

Thetas = Mapping[str, float]
Modernize = Callable[[dict[str, Any]], dict[str, Any]]


def _kinds(values: Values, every: int) -> list[str]:
    """layer_types, by default a full layer after each `every` - 1 with a window."""
    n_layers, kinds = values["num_hidden_layers"], values["layer_types"]
    if kinds is not None:
        return kinds
    every = values["sliding_window_pattern"] or every
    return [LOCAL if (i + 1) % every else FULL for i in range(min(n_layers, MOST_LAYERS))]


def windowed_layers(values: Values, every: int) -> list[int]:
    """The layers with a window."""
    found = local_layers(_kinds(values, every), values["num_hidden_layers"])
    if found and values["sliding_window"] is None:
        raise refuse("", f"a sliding_window for its {LOCAL}", "none", f"try {FULL}")
    return found


def windows(every: int, window: int = 4096) -> tuple[Field, ...]:
    """The layers with a window, and its reach."""

    def layers(_: Any, values: Values) -> list[int] | None:
        return window_layers(windowed_layers(values, every), values["num_hidden_layers"])

    def reach(said: int | None, values: Values) -> int | None:
        return said if windowed_layers(values, every) else None

    return (
        by_layer_types("window_layers", layers),
        computed(
            "sliding_window",
            "decoder.window",
            read=reach,
            write=lambda said, _: window if said is None else said,
            default=window,
            null=True,
        ),
        # Older versions of the library wrote this number in place of layer_types.
        computed("sliding_window_pattern", write=lambda *_: every, default=None),
    )


def layered_angles(every: int, thetas: Thetas) -> tuple[Field, ...]:
    """The angles of the layers of each kind, from the table that each has in rope_parameters."""

    def one(parameters: Values, values: Values, kind: str) -> dict[str, Any]:
        # What stands beside the tables of several kinds counts for none of them.
        return read_angles(parameters.get(kind) or {}, {**values, ORIGINAL: None}, theta=thetas[kind])

    def positions(parameters: Values, values: Values) -> dict[str, Any]:
        return one(parameters, values, FULL if FULL in _kinds(values, every) else LOCAL)

    def window_positions(parameters: Values, values: Values) -> dict[str, Any] | None:
        both = [one(parameters, values, kind) for kind in (FULL, LOCAL)]
        some = 0 < len(windowed_layers(values, every)) < values["num_hidden_layers"]
        return both[1] if some and both[0] != both[1] else None

    def write(_: Any, ours: Values) -> dict[str, Any]:
        stack = ours["decoder"]
        by_kind = {FULL: stack["positions"], LOCAL: stack["window_positions"] or stack["positions"]}
        return {kind: write_angles(positions) for kind, positions in by_kind.items()}

    return (
        computed("rope_parameters", "decoder.positions", read=positions, write=write, default={}),
        computed("rope_parameters", "decoder.window_positions", read=window_positions, write=write, default={}),
    )


def layered_modernizer(thetas: Thetas, **older: str) -> Modernize:
    """`modern` for layers of two kinds. `older` are the older fields of the bases by kind.

    rope_scaling is that of the full layers.
    """

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        said = document.pop("rope_parameters", None)
        # Only where the config has no rope_parameters, the default's rope_type comes before a `type` in rope_scaling.
        first = {"rope_type": "default"} if said is None else {}
        if not isinstance(said or {}, dict):
            raise refuse("rope_parameters", "a table", repr(said), ANOTHER)
        tables = {**(said or {}), **{kind: dict((said or {}).get(kind) or {}) for kind in thetas}}
        tables[FULL] = first | tables[FULL] | (document.pop("rope_scaling", None) or {})
        for kind, name in older.items():
            if (theta := document.pop(name, None)) is not None:
                tables[kind].setdefault("rope_theta", theta)
        return document | {"rope_parameters": tables}

    return modernize
