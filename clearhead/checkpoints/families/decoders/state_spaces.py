"""Decoders with selective state spaces: Mamba-2, Granite 4 and Nemotron-H, which also has layers of other parts."""

from collections.abc import Sequence
from math import inf
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.decoders.llama import llama_like
from clearhead.checkpoints.families.shared import FULL, MOST_LAYERS, decoder_language
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, FieldRule, Values, computed, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, fused, modules, rename, renames, squeezed
from clearhead.config import ModelConfig, StateSpace
from clearhead.errors import UserError

# --- the mixer -----------------------------------------------------------------------------------------------------

NAMES = {
    "n_heads": ("num_heads", "mamba_n_heads", "mamba_num_heads"),
    "d_head": ("head_dim", "mamba_d_head", "mamba_head_dim"),
    "d_state": ("state_size", "mamba_d_state", "ssm_state_size"),
    "n_groups": ("n_groups", "mamba_n_groups"),
    "width": ("conv_kernel", "mamba_d_conv"),
    "conv_bias": ("use_conv_bias", "mamba_conv_bias"),
}
"""Our settings of the mixer -> their names."""
OURS = {name: f"decoder.mixer.{ours}" for ours, names in NAMES.items() for name in names}
MIXER = {"decoder.mixer.kind": "state_space"}
LINEAR = "linear_attention"
OLDER = {"mamba": LINEAR, "attention": FULL, "M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
"""Older names of the kinds of layers."""


def mixer(**defaults: JsonValue) -> tuple[FieldRule, ...]:
    """The mixer's fields by their names there, with their defaults."""
    return tuple(same(theirs, OURS[theirs], default=default) for theirs, default in defaults.items())


def _limits(place: int, ours: str) -> Field:
    """One of the two limits of the step."""

    def read(limits: Sequence[Any] | None, _: Values) -> float | None:
        limit = (limits or (0.0, inf))[place]
        limit = float(limit["__float__"] if isinstance(limit, dict) else limit)
        return None if limit == inf else limit

    def write(_: Any, ours: Values) -> list[Any]:
        own = ours["decoder"]["mixer"]
        return [own["least_step"], {"__float__": "Infinity"} if own["most_step"] is None else own["most_step"]]

    return computed("time_step_limit", f"decoder.mixer.{ours}", read=read, write=write, default=None)


LIMITS = (_limits(0, "least_step"), _limits(1, "most_step"))
INITIAL = ignored("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "rescale_prenorm_residual")


def _expand(theirs: str) -> Field:
    """The width of all heads over that of the states, which the heads say too."""

    def write(_: Any, ours: Values) -> int:
        own, d = ours["decoder"]["mixer"], ours["decoder"]["d_model"]
        factor, rest = divmod(own["n_heads"] * own["d_head"], d)
        if rest:
            raise ValueError(d)
        return factor

    return computed(theirs, write=write, default=2)


def mixer_rules(config: ModelConfig, theirs: str) -> Sequence[Rule]:
    """The mixer's tensors, whose module there is `theirs`."""
    own, ours = config.output.mixer, "decoder.blocks.{i}.mix"
    assert isinstance(own, StateSpace)
    inner, shared = own.n_heads * own.d_head, own.n_groups * own.d_state
    names, rows = ["x", "b", "c"], [inner, shared, shared]
    each = [f"{ours}.{name}.weight" for name in ("gate", *names, "step")]
    return (
        fused(f"{theirs}.in_proj.weight", each, rows=[inner, *rows, own.n_heads]),
        squeezed(fused(f"{theirs}.conv1d.weight", [f"{ours}.{name}_conv.weight" for name in names], rows=rows)),
        fused(f"{theirs}.conv1d.bias", [f"{ours}.{name}_conv.bias" for name in names], rows=rows),
        rename(f"{theirs}.dt_bias", f"{ours}.step_bias"),
        rename(f"{theirs}.A_log", f"{ours}.log_rate"),
        rename(f"{theirs}.D", f"{ours}.skip"),
        *renames(theirs, ours, {"norm": "norm", "out_proj": "out"}),
    )


# --- kinds of layers -----------------------------------------------------------------------------------------------


def kinds_of(values: Values, theirs: str, *known: str) -> list[str]:
    """The kind of each layer by its name of today. Raises UserError for another than these."""
    kinds = values[theirs] or [LINEAR] * min(values["num_hidden_layers"], MOST_LAYERS)
    found = [OLDER.get(kind, kind) for kind in kinds]
    if len(found) != values["num_hidden_layers"] or not {*found} <= {*known}:
        n = values["num_hidden_layers"]
        raise UserError(f"expected {', '.join(known)} for each of num_hidden_layers={n}, got {short(kinds)}")
    return found


def _layers(theirs: str, ours: str, own: Sequence[str], known: Sequence[str]) -> Field:
    """The layers whose kind is among `own`, as our setting `ours`."""

    def read(_: Any, values: Values) -> list[int] | None:
        kinds = kinds_of(values, theirs, *known)
        found = [i for i, kind in enumerate(kinds) if kind in own]
        return None if len(found) == len(kinds) else found

    def write(_: Any, ours: Values) -> list[str]:
        stack = ours["decoder"]

        def has(layers: Sequence[int] | None, i: int) -> bool:
            return layers is None or i in layers

        def kind(i: int) -> str:
            if has(stack["mixing_layers"], i):
                return LINEAR if has(stack["mixer"]["layers"], i) else FULL
            return "moe" if stack["experts"] is not None and has(stack["experts"]["layers"], i) else "mlp"

        return [kind(i) for i in range(stack["n_layers"])]

    return computed(theirs, f"decoder.{ours}", read=read, write=write, default=None)


# --- Mamba-2 (Dao and Gu 2024) -------------------------------------------------------------------------------------

BLOCKS = {"embeddings": "embed.tokens", "norm_f": "final_norm"}

MAMBA2 = llama_like(
    "mamba2",
    "Mamba2",
    *mixer(num_heads=128, head_dim=64, state_size=128, n_groups=8, conv_kernel=4, use_conv_bias=True),
    *LIMITS,
    _expand("expand"),
    INITIAL,
    *only(use_bias=False, hidden_act="silu"),
    ignored("residual_in_fp32", "chunk_size"),
    constants={
        **MIXER,
        "decoder.n_heads": 1,
        "decoder.d_ff": 1,
        "decoder.ffn_layers": (),
        "decoder.gated": False,
        "decoder.positions.kind": "none",
    },
    rules=lambda config: (
        *modules("decoder", "layers.{i}", {**BLOCKS, "norm": "attn_norm"}),
        *mixer_rules(config, "layers.{i}.mixer"),
    ),
    words=decoder_language("Mamba2ForCausalLM", "backbone.", tied=False),
    n_classes=2,
    leave_out=(
        *("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "attention_dropout"),
        *("rope_parameters", "max_position_embeddings", "pretraining_tp", "rope_interleaved"),
    ),
    vocab_size=32_768,
    num_hidden_layers=64,
    modernize=dict,
    layer_norm_epsilon=1e-5,
    initializer_range=0.1,
)
