"""GPT-2 and its relatives: GPT-Neo, GPT-BigCode, GPT-J, CodeGen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nextafter
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import (
    MOST_LAYERS,
    decoder_heads,
    decoder_language,
    four_times,
    neighbours,
    qkv_by_head,
    sizes,
    window_layers,
    windowed,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import (
    Rule,
    fused,
    ignore,
    leave_out,
    modules,
    rename,
    sides,
    split,
    transpose,
)
from clearhead.config import ModelConfig, Rotary
from clearhead.errors import UserError

NAMES = {"wte": "embed.tokens", "wpe": "positions.table", "ln_f": "final_norm", "ln_1": "attn_norm"}


def _modules(names: Mapping[str, str], *unread: str) -> tuple[Rule, ...]:
    """The modules that all of them have, and others. `unread` are buffers of attention."""
    return *modules("decoder", "h.{i}", {**NAMES, **names}), ignore(*(f"h.{{i}}.attn.{name}" for name in unread))


def _sizes(dropout: float, **defaults: JsonValue) -> tuple[Any, ...]:
    """GPT-2's fields, with one default for all shares of dropout."""
    shares = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    usual = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02}
    return (*sizes("decoder", **usual, **shares, **defaults), four_times("n_inner", "n_embd"))


# --- GPT-2 (Radford et al. 2019) -----------------------------------------------------------------------------------


def _scaled(scale: float | None, _: Values) -> bool:
    if scale not in (None, 1.0):
        raise ValueError(scale)
    return scale is None


GPT2_FIELDS = (
    *_sizes(0.1, vocab_size=50_257, n_positions=1024, n_embd=768, n_layer=12, n_head=12),
    computed(
        "scale_attn_weights",
        "decoder.attn_scale",
        read=lambda scaled, _: None if scaled else 1.0,
        write=_scaled,
        default=True,
    ),
    Only("scale_attn_by_inverse_layer_idx", False),
    # The first sets the precision of one product and changes nothing in exact arithmetic.
    ignored("reorder_and_upcast_attn", "n_ctx", "n_special", "predict_special_tokens", "summary_*"),
)


def gpt2_rules(_: ModelConfig) -> Sequence[Rule]:
    """The checkpoint stores matrices input first (Conv1D), and q, k and v in one."""
    ours = "decoder.blocks.{i}"
    matrices = {"attn.c_proj": "attn.out", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    return (
        *_modules({"ln_2": "ffn_norm"}, "bias", "masked_bias"),
        split("h.{i}.attn.c_attn.weight", [f"{ours}.attn.{n}.weight" for n in "qkv"], transposed=True),
        split("h.{i}.attn.c_attn.bias", [f"{ours}.attn.{n}.bias" for n in "qkv"]),
        *(transpose(f"h.{{i}}.{there}.weight", f"{ours}.{here}.weight") for there, here in matrices.items()),
        *(rename(f"h.{{i}}.{there}.bias", f"{ours}.{here}.bias") for there, here in matrices.items()),
    )


_GPT2_WORDS = decoder_language("GPT2LMHeadModel", "transformer.", also=("GPT2DoubleHeadsModel",))
NO_CHOICE = leave_out("multiple_choice_head.summary.{p}", because="there is no head that chooses among texts")

GPT2 = Family(
    model_type="gpt2",
    constants={"decoder.positions.kind": "learned"},
    fields=GPT2_FIELDS,
    rules=gpt2_rules,
    heads=decoder_heads(
        "GPT2",
        "transformer.",
        words=replace(_GPT2_WORDS, rules=lambda config: (*_GPT2_WORDS.rules(config), NO_CHOICE)),
    ),
)


# --- GPT-Neo (Black et al. 2021) and BigCode (Li et al. 2023) ------------------------------------------------------

KINDS = ("global", "local")
FEED_FORWARD = {"ln_2": "ffn_norm", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}


def _kinds(values: Values) -> list[str]:
    """The kind of each layer: attention_types lists patterns with the number of their repetitions."""
    found: list[str] = []
    for pattern, n in values["attention_types"] or [[[*KINDS], 12]]:
        if type(n) is not int or not 0 < n <= MOST_LAYERS:
            raise UserError(f"expected numbers of repetitions up to {MOST_LAYERS}, got {short(n)}")
        found += [*pattern] * n
    if len(found) != values["num_layers"] or not {*found} <= {*KINDS}:
        raise UserError(f"expected global or local for each of num_layers={values['num_layers']}, got {short(found)}")
    return found


def _local(values: Values) -> list[int]:
    return [i for i, kind in enumerate(_kinds(values)) if kind == "local"]


def _written(ours: Values) -> list[str]:
    stack = ours["decoder"]
    local = windowed(stack)
    return [KINDS[i in local] for i in range(stack["n_layers"])]


def _agree(said: Any, values: Values) -> None:
    """Raises UserError unless the list is absent or follows from attention_types."""
    if said != [] and said != _kinds(values):
        raise UserError(f"expected {short(_kinds(values))}, which follows from attention_types, got {short(said)}")


GPT_NEO = Family(
    model_type="gpt_neo",
    constants={"decoder.positions.kind": "learned", "decoder.attn_scale": 1.0, "decoder.qkv_bias": False},
    fields=(
        *sizes(
            "decoder",
            vocab_size=50_257,
            max_position_embeddings=2048,
            hidden_size=2048,
            num_layers=24,
            num_heads=16,
            activation_function="gelu_new",
            layer_norm_epsilon=1e-5,
            initializer_range=0.02,
            resid_dropout=0.0,
            embed_dropout=0.0,
            attention_dropout=0.0,
        ),
        computed(
            "attention_types",
            "decoder.window_layers",
            read=lambda _, values: window_layers(_local(values), values["num_layers"]),
            write=lambda _, ours: [[_written(ours), 1]],
            default=None,
        ),
        computed("attention_layers", read=_agree, write=lambda _, ours: _written(ours), default=[]),
        computed(
            "window_size",
            "decoder.window",
            read=lambda reach, values: reach if _local(values) else None,
            write=lambda reach, _: 256 if reach is None else reach,
            default=256,
        ),
        four_times("intermediate_size", "hidden_size"),
        ignored("summary_*"),
    ),
    # Matrices are output first, unlike GPT-2's.
    rules=lambda _: _modules(
        {
            **FEED_FORWARD,
            "attn.attention.q_proj": "attn.q",
            "attn.attention.k_proj": "attn.k",
            "attn.attention.v_proj": "attn.v",
            "attn.attention.out_proj": "attn.out",
        },
        "attention.bias",
        "attention.masked_bias",
    ),
    heads=decoder_heads("GPTNeo", "transformer.", dropout=same("classifier_dropout", "head.dropout", default=0.1)),
)


def _shared(kv_heads: int | None, ours: Values) -> bool:
    if kv_heads not in (None, 1, ours["decoder"]["n_heads"]):
        raise ValueError(kv_heads)
    return kv_heads == 1


BIGCODE = Family(
    model_type="gpt_bigcode",
    constants={"decoder.positions.kind": "learned"},
    fields=(
        *GPT2_FIELDS,
        *sizes("decoder", activation_function="gelu_pytorch_tanh"),
        computed(
            "multi_query",
            "decoder.n_kv_heads",
            read=lambda shared, values: 1 if shared else values["n_head"],
            write=_shared,
            default=True,
        ),
        # Numbers that follow from others, and the precision of one product.
        ignored("num_key_value_heads", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
    ),
    # One head of keys and values below all queries, or each head's three together.
    rules=lambda config: (
        *_modules({**FEED_FORWARD, "attn.c_proj": "attn.out"}, "bias", "masked_bias"),
        qkv_by_head("h.{i}.attn.c_attn", config),
        ignore("bias"),
    ),
    heads=decoder_heads("GPTBigCode", "transformer.", "bare class tags"),
)


# --- GPT-J and CodeGen ---------------------------------------------------------------------------------------------

CORES = 4
"""Groups of heads in the fused matrix of the second."""


def _fraction(rotated: int, values: Values) -> float:
    """The share of a head that is rotated, such that the whole part of share * width is `rotated`."""
    width = values["n_embd"] // values["n_head"]
    if not 0 < rotated <= width:
        raise UserError(f"expected 1 to {width}, the width of a head, got {rotated}")
    share = rotated / width
    return share if int(width * share) == rotated else nextafter(share, 1.0)


def _rotated(fraction: float, ours: Values) -> int:
    stack = ours["decoder"]
    if stack["positions"]["base"] != 10_000.0 or stack["positions"]["scaling"] is not None:
        raise ValueError(stack["positions"])
    return Rotary(fraction=fraction).rotated(stack["d_model"] // stack["n_heads"])


GPTJ_FIELDS = (
    *_sizes(0.0, vocab_size=50_400, n_embd=4096, n_layer=28, n_head=16),
    computed(
        "n_positions",
        "decoder.positions.trained_length",
        write=lambda length, _: 2048 if length is None else length,
        default=2048,
    ),
    computed("rotary_dim", "decoder.positions.fraction", read=_fraction, write=_rotated, default=64),
    Alias("max_position_embeddings", of="n_positions"),
    ignored("n_ctx", "summary_*", "scale_attn_weights"),
)
GPTJ_CONSTANTS: dict[str, Any] = {
    "decoder.positions.kind": "rotary",
    "decoder.parallel": "one_norm",
    "decoder.qkv_bias": False,
    "decoder.out_bias": False,
}
GPTJ_NAMES = {"attn.out_proj": "attn.out", "mlp.fc_in": "ffn.up", "mlp.fc_out": "ffn.down"}
GPTJ_UNREAD = ("bias", "masked_bias", "causal_mask", "embed_positions")


def gptj_rules(config: ModelConfig) -> Sequence[Rule]:
    """The first of the two."""
    attention = {"attn.q_proj": "attn.q", "attn.k_proj": "attn.k", "attn.v_proj": "attn.v"}
    return neighbours(_modules(GPTJ_NAMES | attention, *GPTJ_UNREAD), config)


def codegen_rules(config: ModelConfig) -> Sequence[Rule]:
    """The second: each group of heads has its queries, then values, then keys."""
    part = config.output.d_model // CORES
    qvk = fused("h.{i}.attn.qkv_proj.{p}", sides("decoder", "qvk"), rows=[part] * 3, groups=CORES)
    return neighbours((*_modules(GPTJ_NAMES, *GPTJ_UNREAD), qvk), config)


def _whole_groups(heads: int, _: Values) -> int:
    if heads % CORES:
        raise UserError(f"expected a multiple of {CORES}, the number of parts of its fused matrix, got {heads}")
    return heads


GPTJ = Family(
    model_type="gptj",
    constants=GPTJ_CONSTANTS,
    fields=GPTJ_FIELDS,
    rules=gptj_rules,
    heads=decoder_heads("GPTJ", "transformer.", "bare class span", tied=False, bias=True),
)
CODEGEN = Family(
    model_type="codegen",
    constants=GPTJ_CONSTANTS,
    fields=(*GPTJ_FIELDS, computed("n_head", "decoder.n_heads", read=_whole_groups, default=16)),
    rules=codegen_rules,
    heads=decoder_heads("CodeGen", "transformer.", "bare", tied=False, bias=True),
)
