"""Decoders with selective state spaces: Mamba-2, Granite 4, Bamba and Falcon-H1."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.angles import modern, read_angles, rotary, write_angles
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE_FIELDS, GRANITE_WORDS, granite_like
from clearhead.checkpoints.families.mixtures.mixtures import number, stacked
from clearhead.checkpoints.families.shared import FULL, MOST_LAYERS, decoder_language
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRules,
    Values,
    computed,
    factor,
    ignored,
    only,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, modules, rename, renames, split, squeezed
from clearhead.config import ModelConfig, StateSpace
from clearhead.errors import UserError

# --- the mixer -----------------------------------------------------------------------------------------------------

NAMES = {
    "n_heads": ("num_heads", "mamba_n_heads", "mamba_num_heads"),
    "d_head": ("head_dim", "mamba_head_dim"),
    "d_state": ("state_size", "mamba_d_state", "ssm_state_size"),
    "n_groups": ("n_groups", "mamba_n_groups"),
    "width": ("conv_kernel", "mamba_d_conv"),
    "conv_bias": ("use_conv_bias", "mamba_conv_bias"),
}
"""Our settings of the mixer -> their names."""
OURS = {name: f"decoder.mixer.{ours}" for ours, names in NAMES.items() for name in names}
MIXER = {"decoder.mixer.kind": "state_space"}
LINEAR, BLOCK_TYPES = "linear_attention", "layers_block_type"
OLDER = {"mamba": LINEAR, "attention": FULL, "M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
"""Older names of the kinds of layers."""


def mixer(**defaults: JsonValue) -> FieldRules:
    """The mixer's fields by their names there, with their defaults."""
    return tuple(same(theirs, OURS[theirs], default=default) for theirs, default in defaults.items())


def _limits(place: int, ours: str) -> Field:
    """One of the two limits of the step."""

    def read(limits: Sequence[Any] | None, _: Values) -> float | None:
        if limits is None:
            raise UserError("expected two numbers for time_step_limit, got null; leave it out for no limits")
        limit = limits[place]
        limit = float(limit["__float__"] if isinstance(limit, dict) else limit)
        return None if limit == inf else limit

    def write(_: Any, ours: Values) -> list[Any]:
        own = ours["decoder"]["mixer"]
        return [own["least_step"], {"__float__": "Infinity"} if own["most_step"] is None else own["most_step"]]

    return computed("time_step_limit", f"decoder.mixer.{ours}", read=read, write=write, default=[0.0, inf])


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


def gated_names(theirs: str) -> dict[str, str]:
    """Llama's modules whose names are others in Bamba, Falcon-H1 and Jamba."""
    plain = {f"feed_forward.{name}_proj": f"ffn.{name}" for name in ("gate", "up", "down")}
    return {theirs: "final_norm", "pre_ff_layernorm": "ffn_norm", **plain}


# --- kinds of layers -----------------------------------------------------------------------------------------------


def kinds_of(values: Values, theirs: str, *known: str) -> list[str]:
    """The kind of each layer by its name of today. Raises UserError for another than these."""
    kinds = values[theirs] or [LINEAR] * min(values["num_hidden_layers"], MOST_LAYERS)
    found = [OLDER.get(kind, kind) for kind in kinds]
    if len(found) != values["num_hidden_layers"] or not {*found} <= {*known}:
        n = values["num_hidden_layers"]
        raise UserError(f"expected {', '.join(known)} for each of num_hidden_layers={n}, got {short(kinds)}")
    return found


def layer_numbers(theirs: str, ours: str, own: Sequence[str], known: Sequence[str]) -> Field:
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

WITHOUT_ATTENTION = {
    "decoder.n_heads": 1,
    "decoder.d_ff": 1,
    "decoder.ffn_layers": (),
    "decoder.gated": False,
    "decoder.positions.kind": "none",
}
OF_ATTENTION = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "attention_dropout"),
    *("rope_parameters", "max_position_embeddings", "pretraining_tp", "rope_interleaved"),
)
BLOCKS = {"embeddings": "embed.tokens", "norm_f": "final_norm"}

MAMBA2 = llama_like(
    "mamba2",
    "Mamba2",
    *mixer(num_heads=128, head_dim=64, state_size=128, n_groups=8, conv_kernel=4, use_conv_bias=True),
    *LIMITS,
    _expand("expand"),
    INITIAL,
    *only(use_bias=False, hidden_act="silu"),
    ignored("residual_in_fp32", "chunk_size", "num_attention_heads"),
    constants=MIXER | WITHOUT_ATTENTION,
    rules=lambda config: (
        *modules("decoder", "layers.{i}", {**BLOCKS, "norm": "attn_norm"}),
        *mixer_rules(config, "layers.{i}.mixer"),
    ),
    words=decoder_language("Mamba2ForCausalLM", "backbone.", tied=False),
    n_classes=2,
    leave_out=OF_ATTENTION,
    vocab_size=32_768,
    num_hidden_layers=64,
    modernize=dict,
    layer_norm_epsilon=1e-5,
    initializer_range=0.1,
)


# --- experts -------------------------------------------------------------------------------------------------------


def experts(theirs: str, default: int, names: Mapping[str, tuple[str, Any]], **others: Any) -> tuple[Field, ...]:
    """The number of experts, which may be 0, and further fields: by the names there, ours and their defaults.

    Where the layers are of kinds, experts are those of the kind moe. `others` are settings that all models have.
    """

    def read(n: int, values: Values) -> dict[str, Any] | None:
        kinds = values.get(BLOCK_TYPES)
        layers = None if kinds is None else [i for i, kind in enumerate(kinds) if kind == "moe"]
        own = {ours: values[there] for there, (ours, _) in names.items()}
        return {"n": n, "layers": layers, **own, **others} if n and layers != [] else None

    def writer(ours: str, default: Any) -> Callable[[Any, Values], Any]:
        return lambda _, said: (said["decoder"]["experts"] or {ours: default})[ours]

    n = computed(theirs, "decoder.experts", read=read, write=lambda own, _: own["n"] if own else 0, default=default)
    return n, *(computed(there, write=writer(*own), default=own[1]) for there, own in names.items())


# --- Granite 4 (IBM 2025) ------------------------------------------------------------------------------------------

ROPE, SHARED = "rope", "shared_intermediate_size"


def _granite_positions(said: dict[str, Any], values: Values) -> dict[str, Any]:
    turned = read_angles(said, values) | {"trained_length": values["max_position_embeddings"]}
    return turned if values["position_embedding_type"] == ROPE else {"kind": "none"}


def _granite_angles(positions: Values, _: Values) -> dict[str, Any]:
    return write_angles(positions) if positions["kind"] == "rotary" else {}


def _granite_kind(_: Any, ours: Values) -> str | None:
    return ROPE if ours["decoder"]["positions"]["kind"] == "rotary" else None


def _granite_length(_: Any, ours: Values) -> int:
    return ours["decoder"]["positions"].get("trained_length") or 2048


def _head_width(width: Any, values: Values) -> Any:
    inner = values["mamba_expand"] * values["hidden_size"]
    return inner // values["mamba_n_heads"] if width == "auto" else width


EXPERTS = {"input": ("gate", "up"), "output": ("down",)}


def _granite_rules(config: ModelConfig) -> Sequence[Rule]:
    at, n = "layers.{i}.block_sparse_moe", number(config)
    shared = "decoder.blocks.{i}.ffn" + (".shared" if n else "")
    return (
        *renamed({"block_sparse_moe.router.layer": "ffn.router"}, but=("ffn.",)),
        *(stacked(f"{at}.{name}_linear.weight", n, *maps) for name, maps in EXPERTS.items() if n),
        split("layers.{i}.shared_mlp.input_linear.weight", [f"{shared}.{name}.weight" for name in ("gate", "up")]),
        rename("layers.{i}.shared_mlp.output_linear.weight", f"{shared}.down.weight"),
        *mixer_rules(config, "layers.{i}.mamba"),
    )


GRANITE_MOE_HYBRID = granite_like(
    "granitemoehybrid",
    "GraniteMoeHybrid",
    BIASES[0],
    *GRANITE_FIELDS,
    *mixer(mamba_n_heads=128, mamba_d_state=256, mamba_n_groups=1, mamba_d_conv=4, mamba_conv_bias=True),
    computed("mamba_d_head", "decoder.mixer.d_head", read=_head_width, default="auto", like=None),
    *LIMITS,
    _expand("mamba_expand"),
    layer_numbers("layer_types", "mixer.layers", (LINEAR,), (LINEAR, FULL)),
    Alias(BLOCK_TYPES, of="layer_types"),
    computed("rope_parameters", "decoder.positions", read=_granite_positions, write=_granite_angles, default={}),
    computed("position_embedding_type", write=_granite_kind, default=None),
    computed("max_position_embeddings", write=_granite_length, default=2048),
    *experts(
        "num_local_experts",
        8,
        {"num_experts_per_tok": ("n_chosen", 2), "intermediate_size": ("d_ff", 11_008), SHARED: ("shared", 1024)},
        normalised=True,
    ),
    same(SHARED, "decoder.d_ff", default=1024),
    *only(hidden_act="silu", mamba_proj_bias=False),
    ignored("mamba_chunk_size", "router_aux_loss_coef", "output_router_logits", "normalization_function"),
    constants={**MIXER, "decoder.activation": "silu"},
    rules=_granite_rules,
    words=decoder_language("GraniteMoeHybridForCausalLM", "model.", GRANITE_WORDS, tied=False),
    leave_out=("hidden_act", "intermediate_size", "rope_parameters", "max_position_embeddings"),
)


# --- Bamba (IBM, Princeton and UIUC 2024) --------------------------------------------------------------------------


def _attending(layers: Sequence[int] | None, values: Values) -> list[int] | None:
    n = range(min(values["num_hidden_layers"], MOST_LAYERS))
    return [i for i in n if i not in layers] if layers and {*layers} & {*n} else None


def _attend(own: Sequence[int] | None, ours: Values) -> list[int] | None:
    return None if own is None else [i for i in range(ours["decoder"]["n_layers"]) if i not in own]


def _half(document: dict[str, Any]) -> dict[str, Any]:
    """Half of each head rotates, unless rope_parameters itself says another share."""
    return modern({name: said for name, said in document.items() if name != "partial_rotary_factor"})


WITHIN = (
    *mixer(mamba_n_heads=128, mamba_d_state=256, mamba_n_groups=1, mamba_d_conv=4, mamba_conv_bias=True),
    *LIMITS,
    *BIASES,
    *only(hidden_act="silu", mamba_proj_bias=False),
    ignored("mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"),
)
beside = partial(
    llama_like,
    vocab_size=128_000,
    intermediate_size=14_336,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    n_classes=2,
)
BAMBA = beside(
    "bamba",
    "Bamba",
    *WITHIN,
    computed("mamba_d_head", "decoder.mixer.d_head", read=_head_width, default="auto", like=None),
    _expand("mamba_expand"),
    computed("attn_layer_indices", "decoder.mixer.layers", read=_attending, write=_attend, default=None),
    ignored("layers_block_type"),  # What attn_layer_indices says.
    constants={**MIXER, "decoder.activation": "silu"},
    rules=lambda config: (*renamed(gated_names("final_layernorm")), *mixer_rules(config, "layers.{i}.mamba")),
    leave_out=("hidden_act",),
    modernize=_half,
    angles=rotary(max_length=262_144, fraction=0.5),
)

# --- Falcon-H1 (Technology Innovation Institute 2025) --------------------------------------------------------------


def _inner(values: Values) -> int:
    return values["mamba_d_ssm"] or values["mamba_expand"] * values["hidden_size"]


def _own_width(width: Any, values: Values) -> Any:
    fits = _inner(values) // values["mamba_n_heads"]
    if width not in ("auto", fits):
        raise UserError(f"expected {fits}, the width of all heads by mamba_n_heads, for mamba_d_head, got {width}")
    return fits


def _factors(several: Sequence[float] | None, values: Values) -> list[float] | None:
    """The factors on the mixer's maps, and that on what they all read."""
    found = [values["ssm_in_multiplier"] * one for one in several or [1.0] * 5]
    return None if {*found} == {1.0} else found


def _keys(key: float, values: Values) -> float:
    """The factor on scores: those on keys, and on what queries and keys are made of."""
    return key * values["attention_in_multiplier"] ** 2


def _attn_factor(out: float, values: Values) -> float:
    before = values["attention_in_multiplier"]
    if before != 1.0 and values["attention_bias"]:
        raise UserError(f"expected 1.0 or attention_bias=False for attention_in_multiplier, got {before}")
    return out * before


def _ffn_factor(place: int, ours: str) -> Field:
    def write(_: Any, config: Values) -> list[float]:
        own = config["decoder"]["multipliers"]
        return [own["gate"], own["ffn"]]

    return computed(
        "mlp_multipliers",
        f"decoder.multipliers.{ours}",
        read=lambda said, _: (said or (1.0, 1.0))[place],
        write=write,
        default=None,
    )


NORMS = {(False, False): None, (False, True): None, (True, False): "gated", (True, True): "before_gate"}

FALCON_H1 = beside(
    "falcon_h1",
    "FalconH1",
    *WITHIN,
    computed("mamba_d_head", "decoder.mixer.d_head", read=_own_width, default="auto", like=None),
    computed(
        "mamba_d_ssm",
        write=lambda _, ours: ours["decoder"]["mixer"]["n_heads"] * ours["decoder"]["mixer"]["d_head"],
        default=1024,
        null=True,
    ),
    computed("mamba_expand", write=lambda *_: 2, default=2),
    computed(
        "mamba_rms_norm",
        "decoder.mixer.norm",
        read=lambda norms, values: NORMS[norms, values["mamba_norm_before_gate"]],
        write=lambda norm, _: norm is not None,
        default=False,
    ),
    computed("mamba_norm_before_gate", write=lambda _, ours: ours["decoder"]["mixer"]["norm"] != "gated", default=True),
    factor("embedding_multiplier", "decoder.input.factor"),
    ignored("lm_head_multiplier"),
    computed("key_multiplier", "decoder.multipliers.keys", read=_keys, default=1.0),
    computed("attention_in_multiplier", write=lambda *_: 1.0, default=1.0),
    computed("attention_out_multiplier", "decoder.multipliers.attn", read=_attn_factor, default=1.0),
    computed(
        "ssm_multipliers", "decoder.mixer.factors", read=_factors, write=lambda own, _: own or [1.0] * 5, default=None
    ),
    computed("ssm_in_multiplier", write=lambda *_: 1.0, default=1.0),
    same("ssm_out_multiplier", "decoder.multipliers.mix", default=1.0),
    _ffn_factor(0, "gate"),
    _ffn_factor(1, "ffn"),
    *only(projectors_bias=False),
    constants={**MIXER, "decoder.activation": "silu", "decoder.mixer.beside": True},
    rules=lambda config: (*renamed(gated_names("final_layernorm")), *mixer_rules(config, "layers.{i}.mamba")),
    words=decoder_language("FalconH1ForCausalLM", "model.", factor("lm_head_multiplier", "head.scale"), tied=False),
    leave_out=("hidden_act",),
    max_length=8192,
)
