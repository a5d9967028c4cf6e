"""The decoders of Yang et al. 2024 (biases on queries, keys and values) and 2025 (their heads normalised instead)."""

from collections.abc import Callable
from typing import Any

from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, rules, sizes
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern
from clearhead.checkpoints.families.shared import (
    FULL,
    LOCAL,
    MOST_LAYERS,
    by_layer_types,
    local_layers,
    window_layers,
    windowed,
)
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed
from clearhead.errors import UserError

IsLocal = Callable[[int, int], bool]
"""Whether a layer has a window, by its number and `max_window_layers`, if layer_types does not say."""


def _local(values: Values, is_local: IsLocal) -> list[int]:
    """The layers with a window, named by layer_types or otherwise by their numbers."""
    if not values["use_sliding_window"] or values["sliding_window"] is None:
        if LOCAL in (values["layer_types"] or ()):
            raise UserError(f"expected a sliding_window for its {LOCAL}, got none; try {FULL}")
        return []
    n_layers, kinds = values["num_hidden_layers"], values["layer_types"]
    if kinds is None:
        return [i for i in range(min(n_layers, MOST_LAYERS)) if is_local(i, values["max_window_layers"])]
    return local_layers(kinds, n_layers)


def _first(_: Any, ours: Values) -> int:
    """The first layer with a window. Older versions of the library read nothing else."""
    return min(windowed(ours["decoder"]), default=ours["decoder"]["n_layers"])


def windows(is_local: IsLocal) -> tuple[FieldRule, ...]:
    """The layers with a window, and its reach."""

    def layers(_: Any, values: Values) -> list[int] | None:
        return window_layers(_local(values, is_local), values["num_hidden_layers"])

    def reach(said: int | None, values: Values) -> int | None:
        return said if _local(values, is_local) else None

    return (
        computed("max_window_layers", write=_first, default=28, like=28),
        by_layer_types("window_layers", layers),
        computed("sliding_window", "decoder.window", read=reach, default=4096),
        computed(
            "use_sliding_window",
            write=lambda _, ours: ours["decoder"]["window"] is not None,
            default=False,
            like=False,
        ),
        Only("use_mrope", False),
    )


WINDOW = windows(lambda i, first: i >= first)

QWEN2 = Family(
    model_type="qwen2",
    constants=CONSTANTS | {"decoder.qkv_bias": True},
    fields=(
        *sizes(vocab_size=151_936, intermediate_size=22_016, kv_heads=32, max_length=32_768),
        *WINDOW,
    ),
    rules=rules,
    heads=heads("Qwen2"),
    modernize=modern,
)

QWEN3 = Family(
    model_type="qwen3",
    constants=CONSTANTS | {"decoder.qk_norm": True},
    fields=(
        *sizes(vocab_size=151_936, intermediate_size=22_016, kv_heads=32, head_dim=128, max_length=32_768),
        BIASES[0],
        *WINDOW,
    ),
    rules=rules,
    heads=heads("Qwen3"),
    modernize=modern,
)
