"""Decoders with the selective scan of Mamba-1, Jamba with attention and experts too; and RWKV, whose means age."""

from collections.abc import Callable, Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.llama import llama_like, renamed
from clearhead.checkpoints.families.decoders.state_spaces import (
    BLOCKS,
    OF_ATTENTION,
    WITHOUT_ATTENTION,
    gated_names,
)
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.mixtures import PROJECTIONS, mixture_rules, number
from clearhead.checkpoints.families.shared import MOST_LAYERS, decoder_heads, decoder_language, four_times, sizes
from clearhead.checkpoints.weights.fields import Alias, FieldRule, FieldRules, Values, computed, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, fused, modules, rename, renames, reshape, split, squeezed
from clearhead.config import ModelConfig, SelectiveScan

# --- the mixer -----------------------------------------------------------------------------------------------------

SCAN = {"decoder.mixer.kind": "selective_scan", "decoder.activation": "silu"}


def scan_fields(expand: str, rank: str, bias: str, **names: str) -> FieldRules:
    """The mixer's fields: the width of its channels over that of the states, the rank, and others by our names."""
    defaults = {"d_state": 16, "width": 4, "conv_bias": True}

    def factor(_: Any, ours: Values) -> int:
        times, rest = divmod(ours["decoder"]["mixer"]["d_inner"], ours["decoder"]["d_model"])
        if rest:
            raise ValueError(times)
        return times

    return (
        computed(
            expand,
            "decoder.mixer.d_inner",
            read=lambda times, values: times * values["hidden_size"],
            write=factor,
            default=2,
        ),
        computed(
            rank,
            "decoder.mixer.rank",
            read=lambda said, values: -(-values["hidden_size"] // 16) if said == "auto" else said,
            default="auto",
            like=None,
            null=False,
        ),
        *(same(theirs, f"decoder.mixer.{ours}", default=defaults[ours]) for ours, theirs in names.items()),
        *only(hidden_act="silu", **{bias: False}),  # With it, the reference lets padding reach the text.
        ignored(
            "num_attention_heads", "use_mambapy", "use_associative_scan", "use_falcon_mambapy", "use_mamba_kernels"
        ),
    )


def scan_rules(config: ModelConfig, theirs: str) -> Sequence[Rule]:
    """The mixer's tensors, whose module there is `theirs`."""
    own, ours = config.output.mixer, "decoder.blocks.{i}.mix"
    assert isinstance(own, SelectiveScan)
    each = [f"{ours}.{name}.weight" for name in ("low", "b", "c")]
    names = {"out_proj": "out", "dt_layernorm": "low_norm", "b_layernorm": "b_norm", "c_layernorm": "c_norm"}
    return (
        split(f"{theirs}.in_proj.{{p}}", [f"{ours}.{name}.{{p}}" for name in ("x", "gate")]),
        squeezed(rename(f"{theirs}.conv1d.weight", f"{ours}.x_conv.weight")),
        rename(f"{theirs}.conv1d.bias", f"{ours}.x_conv.bias"),
        fused(f"{theirs}.x_proj.weight", each, rows=[own.rank, own.d_state, own.d_state]),
        rename(f"{theirs}.dt_proj.weight", f"{ours}.step.weight"),
        rename(f"{theirs}.dt_proj.bias", f"{ours}.step_bias"),
        rename(f"{theirs}.A_log", f"{ours}.log_rate"),
        rename(f"{theirs}.D", f"{ours}.skip"),
        *renames(theirs, ours, names),
    )


# --- Mamba (Gu and Dao 2023) and Falcon-Mamba (Zuo et al. 2024) ----------------------------------------------------


def _mamba(model_type: str, name: str, *fields: FieldRule, **constants: Any) -> Any:
    names = {"d_state": "state_size", "width": "conv_kernel", "conv_bias": "use_conv_bias"}
    return llama_like(
        model_type,
        name,
        *scan_fields("expand", "time_step_rank", "use_bias", **names),
        *fields,
        ignored("time_step_*", "rescale_prenorm_residual", "residual_in_fp32", "intermediate_size"),
        constants=SCAN | WITHOUT_ATTENTION | constants,
        rules=lambda config: (
            *modules("decoder", "layers.{i}", {**BLOCKS, "norm": "attn_norm"}),
            *scan_rules(config, "layers.{i}.mixer"),
        ),
        words=decoder_language(f"{name}ForCausalLM", "backbone."),
        n_classes=2,
        leave_out=OF_ATTENTION,
        modernize=dict,
        vocab_size=50_280,
        hidden_size=768,
        layer_norm_epsilon=1e-5,
        initializer_range=0.1,
    )


MAMBA = _mamba("mamba", "Mamba")
FALCON_MAMBA = _mamba(
    "falcon_mamba",
    "FalconMamba",
    same("mixer_rms_eps", "decoder.mixer.norms_eps", default=1e-6),
    **{"decoder.mixer.norms": "none"},
)

# --- Jamba (Lieber et al. 2024) ------------------------------------------------------------------------------------


def _numbers(values: Values, period: str, offset: str, *, but: bool = False) -> list[int]:
    """The layers whose number leaves this rest, or with `but` the others."""
    n = min(values["num_hidden_layers"], MOST_LAYERS)
    return [i for i in range(n) if (i % values[period] == values[offset]) != but]


def _regular(layers: Sequence[int], n: int) -> tuple[int, int]:
    """The period and the offset of these layers. Raises ValueError if they have none."""
    if not layers:
        return n + 1, n
    period = layers[1] - layers[0] if len(layers) > 1 else max(layers[0] + 1, n - layers[0])
    if [*layers] != [*range(layers[0], n, period)] or layers[0] >= period:
        raise ValueError(layers)
    return period, layers[0]


def _of_regular(layers: Callable[[Values], Sequence[int]], which: int) -> Callable[[Any, Values], int]:
    """Writes the period or the offset of those of our layers."""
    return lambda _, ours: _regular(layers(ours["decoder"]), ours["decoder"]["n_layers"])[which]


def _attending(stack: Values) -> Sequence[int]:
    own = stack["mixer"]["layers"]
    return () if own is None else [i for i in range(stack["n_layers"]) if i not in own]


def _with_experts(stack: Values) -> Sequence[int]:
    own = stack["experts"] and stack["experts"]["layers"]
    return range(stack["n_layers"]) if stack["experts"] and own is None else own or ()


def _mixing(_: Any, values: Values) -> list[int] | None:
    found = _numbers(values, "attn_layer_period", "attn_layer_offset", but=True)
    return None if len(found) == values["num_hidden_layers"] else found


def _experts(n: int, values: Values) -> dict[str, Any] | None:
    layers = _numbers(values, "expert_layer_period", "expert_layer_offset")
    if n == 1 or not layers:
        return None
    balance = values["router_aux_loss_coef"] if values["output_router_logits"] else 0.0
    every = None if len(layers) == values["num_hidden_layers"] else layers
    return {"n": n, "n_chosen": values["num_experts_per_tok"], "layers": every, "balance": balance}


def _of_experts(name: str, otherwise: Any) -> Callable[[Any, Values], Any]:
    return lambda _, ours: ours["decoder"]["experts"][name] if ours["decoder"]["experts"] else otherwise


def _jamba_rules(config: ModelConfig) -> Sequence[Rule]:
    at = "layers.{i}.feed_forward"
    plain = (*renamed(gated_names("final_layernorm")), *scan_rules(config, "layers.{i}.mamba"))
    if not number(config):
        return plain
    router = rename(f"{at}.router.{{p}}", "decoder.blocks.{i}.ffn.router.{p}")
    return (router, *mixture_rules(PROJECTIONS, at=at, rest=lambda _: plain)(config))


JAMBA = llama_like(
    "jamba",
    "Jamba",
    *scan_fields(
        "mamba_expand",
        "mamba_dt_rank",
        "mamba_proj_bias",
        d_state="mamba_d_state",
        width="mamba_d_conv",
        conv_bias="mamba_conv_bias",
    ),
    same("rms_norm_eps", "decoder.mixer.norms_eps", default=1e-6),
    computed("attn_layer_period", "decoder.mixer.layers", read=_mixing, write=_of_regular(_attending, 0), default=8),
    computed("attn_layer_offset", write=_of_regular(_attending, 1), default=4),
    computed("expert_layer_period", write=_of_regular(_with_experts, 0), default=2),
    computed("expert_layer_offset", write=_of_regular(_with_experts, 1), default=1),
    computed("num_experts", "decoder.experts", read=_experts, write=_of_experts("n", 1), default=16),
    Alias("num_local_experts", "num_experts"),
    computed("num_experts_per_tok", write=_of_experts("n_chosen", 2), default=2),
    computed("router_aux_loss_coef", write=_of_experts("balance", 0.001), default=0.001),
    computed("output_router_logits", write=lambda *given: _of_experts("balance", 0.0)(*given) > 0, default=False),
    ignored(
        "max_position_embeddings",
        "rope_parameters",
        "layers_block_type",
        "layers_num_experts",
        "num_logits_to_keep",
        "calc_logits_for_entire_prompt",
        "sliding_window",
    ),
    constants=SCAN | {"decoder.mixer.norms": "weight", "decoder.positions.kind": "none"},
    rules=_jamba_rules,
    n_classes=3,
    leave_out=("hidden_act", "rope_parameters", "max_position_embeddings"),
    vocab_size=65_536,
    intermediate_size=14_336,
    num_key_value_heads=8,
)

# --- RWKV-4 (Peng et al. 2023) -------------------------------------------------------------------------------------


def _rwkv_rules(config: ModelConfig) -> Sequence[Rule]:
    mixes, d = {"mix": ("key", "value", "gate"), "ffn": ("up", "gate")}, config.output.d_model
    theirs = {"key": "key", "value": "value", "gate": "receptance", "up": "key", "out": "output", "down": "value"}
    blocks, found = "blocks.{i}", list[Rule]()
    for ours, there, more in (("mix", "attention", "out"), ("ffn", "feed_forward", "down")):
        at, own = f"{blocks}.{there}", f"decoder.{blocks}.{ours}"
        found += renames(at, own, {theirs[name]: name for name in (*mixes[ours], more)})
        found += [
            reshape(f"{at}.time_mix_{theirs[name]}", f"{own}.{name}_shift.mix", there=(1, 1, d), here=(d,))
            for name in mixes[ours]
        ]
    names = {"embeddings": "embed.tokens", "blocks.0.pre_ln": "embed.norm", "ln_out": "final_norm"}
    return (
        *modules("decoder", blocks, {**names, "ln1": "attn_norm", "ln2": "ffn_norm"}),
        *found,
        rename(f"{blocks}.attention.time_decay", f"decoder.{blocks}.mix.log_rate"),
        rename(f"{blocks}.attention.time_first", f"decoder.{blocks}.mix.bonus"),
    )


RWKV = Family(
    model_type="rwkv",
    constants={
        "decoder.mixer.kind": "time_mixing",
        "decoder.input.norm": True,
        "decoder.positions.kind": "none",
        "decoder.n_heads": 1,
        "decoder.activation": "squared_relu",
        "decoder.ffn_bias": False,
    },
    fields=(
        *sizes("decoder", vocab_size=50_277, hidden_size=4096, num_hidden_layers=32),
        four_times("intermediate_size", "hidden_size"),
        computed("attention_hidden_size", "decoder.mixer.d_inner", default=None),
        *only(layer_norm_epsilon=1e-5),  # That of the last norm.
        computed(
            "rescale_every",
            "decoder.eps_grows_every",
            read=lambda n, _: n if n > 0 else None,
            write=lambda n, _: n or 0,
            default=6,
        ),
        ignored("context_length", "max_position_embeddings", "num_attention_heads"),
    ),
    rules=_rwkv_rules,
    heads=decoder_heads("Rwkv", "rwkv.", "bare", tied=False, names=("head",)),
)
