"""The decoders of Yang et al. 2024 (biases on queries, keys and values) and 2025 (their heads normalised instead)."""

from typing import Any

from clearhead.errors import UserError
from clearhead.families.family import Family
from clearhead.families.llama import BIASES, CONSTANTS, heads, rules, sizes
from clearhead.families.rotary import modern
from clearhead.families.shared import FULL, LOCAL, MOST_LAYERS, layer_types, local_layers, window_layers, windowed
from clearhead.weights.fields import FieldRule, Only, Values, computed


def _local(values: Values) -> list[int]:
    """The layers with a window, named by layer_types or otherwise starting at max_window_layers."""
    if not values["use_sliding_window"] or values["sliding_window"] is None:
        if LOCAL in (values["layer_types"] or ()):
            raise UserError(f"expected a sliding_window for its {LOCAL}, got none; try {FULL}")
        return []
    n_layers, kinds = values["num_hidden_layers"], values["layer_types"]
    if kinds is None:
        return list(range(values["max_window_layers"], min(n_layers, MOST_LAYERS)))
    return local_layers(kinds, n_layers)


def _window(_: Any, values: Values) -> int | None:
    return values["sliding_window"] if _local(values) else None


def _layers(_: Any, values: Values) -> list[int] | None:
    return window_layers(_local(values), values["num_hidden_layers"])


def _first(_: Any, ours: Values) -> int:
    """The first layer with a window. Older versions of the library read nothing else."""
    return min(windowed(ours["decoder"]), default=ours["decoder"]["n_layers"])


WINDOW: tuple[FieldRule, ...] = (
    computed("max_window_layers", write=_first, default=28, like=28),
    computed(
        "layer_types",
        "decoder.window_layers",
        read=_layers,
        write=lambda _, ours: layer_types(ours["decoder"]),
        default=None,
    ),
    computed("sliding_window", "decoder.window", read=_window, default=4096),
    computed(
        "use_sliding_window",
        write=lambda _, ours: ours["decoder"]["window"] is not None,
        default=False,
        like=False,
    ),
    Only("use_mrope", False),
)

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
