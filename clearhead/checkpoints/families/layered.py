"""Decoders with layers of two kinds, with a window and without, and angles of their own for each."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from clearhead.checkpoints.families import rotary
from clearhead.checkpoints.families.shared import FULL, LOCAL, MOST_LAYERS, by_layer_types, local_layers, window_layers
from clearhead.checkpoints.weights.fields import Field, Values, computed
from clearhead.errors import UserError

Thetas = Mapping[str, float]


def _kinds(values: Values, every: int) -> list[str]:
    """layer_types, by default a full layer after each `every` - 1 with a window."""
    n_layers, kinds = values["num_hidden_layers"], values["layer_types"]
    if kinds is not None:
        return kinds
    every = values["sliding_window_pattern"] or every
    return [LOCAL if (i + 1) % every else FULL for i in range(min(n_layers, MOST_LAYERS))]


def local(values: Values, every: int) -> list[int]:
    """The layers with a window."""
    found = local_layers(_kinds(values, every), values["num_hidden_layers"])
    if found and values["sliding_window"] is None:
        raise UserError(f"expected a sliding_window for its {LOCAL}, got none; try {FULL}")
    return found


def windows(every: int, window: int = 4096) -> tuple[Field, ...]:
    """The layers with a window, and its reach."""

    def layers(_: Any, values: Values) -> list[int] | None:
        return window_layers(local(values, every), values["num_hidden_layers"])

    def reach(said: int | None, values: Values) -> int | None:
        return said if local(values, every) else None

    return (
        by_layer_types("window_layers", layers),
        computed(
            "sliding_window",
            "decoder.window",
            read=reach,
            write=lambda said, _: window if said is None else said,
            default=window,
        ),
        # Older versions of the library wrote this number in place of layer_types.
        computed("sliding_window_pattern", write=lambda *_: every, default=None),
    )


def angles(every: int, thetas: Thetas) -> tuple[Field, ...]:
    """The angles of the layers of each kind, from the table that each has in rope_parameters."""

    def one(parameters: Values, values: Values, kind: str) -> dict[str, Any]:
        # What stands beside the tables of several kinds counts for none of them.
        return rotary.read(parameters.get(kind) or {}, {**values, rotary.ORIGINAL: None}, theta=thetas[kind])

    def positions(parameters: Values, values: Values) -> dict[str, Any]:
        return one(parameters, values, FULL if FULL in _kinds(values, every) else LOCAL)

    def window_positions(parameters: Values, values: Values) -> dict[str, Any] | None:
        both = [one(parameters, values, kind) for kind in (FULL, LOCAL)]
        some = 0 < len(local(values, every)) < values["num_hidden_layers"]
        return both[1] if some and both[0] != both[1] else None

    def write(_: Any, ours: Values) -> dict[str, Any]:
        stack = ours["decoder"]
        by_kind = {FULL: stack["positions"], LOCAL: stack["window_positions"] or stack["positions"]}
        return {kind: rotary.write(positions) for kind, positions in by_kind.items()}

    return (
        computed("rope_parameters", "decoder.positions", read=positions, write=write, default={}),
        computed("rope_parameters", "decoder.window_positions", read=window_positions, write=write, default={}),
    )


def modern(document: dict[str, Any], thetas: Thetas, *, older: Mapping[str, str]) -> dict[str, Any]:
    """Moves the older fields, `older` by kind, and rope_scaling of the full layers into rope_parameters."""
    said = document.pop("rope_parameters", None)
    # Only where the config has no rope_parameters, the default's rope_type comes before a `type` in rope_scaling.
    first = {"rope_type": "default"} if said is None else {}
    said = said or {}
    if not isinstance(said, dict):
        raise UserError(f"rope_parameters: expected a table, got {said!r}; try the config.json it was saved with")
    said = {kind: dict(said.get(kind) or {}) for kind in thetas} | {k: v for k, v in said.items() if k not in thetas}
    scaling, found = document.pop("rope_scaling", None), {name: document.pop(name, None) for name in older.values()}
    said[FULL] = first | said[FULL] | (scaling or {})
    for kind, name in older.items():
        if found[name] is not None:
            said[kind].setdefault("rope_theta", found[name])
    return document | {"rope_parameters": said}


def modernizer(thetas: Thetas, **older: str) -> Any:
    """`modern` for one family."""
    return partial(modern, thetas=thetas, older=older)
