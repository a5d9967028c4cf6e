"""GPT-2 and its relatives: GPT-Neo, GPT-BigCode, GPT-J, CodeGen."""

from collections.abc import Sequence
from dataclasses import replace
from math import nextafter
from typing import Any

from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    MOST_LAYERS,
    decoder_heads,
    decoder_language,
    four_times,
    window_layers,
    windowed,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Only, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import (
    Rule,
    fused,
    ignore,
    leave_out,
    paired,
    rename,
    renames,
    split,
    transpose,
)
from clearhead.config import ModelConfig, Rotary
from clearhead.errors import UserError

# --- GPT-2 (Radford et al. 2019) -----------------------------------------------------------------------------------


def _gpt2_scale(scaled: bool, _: Values) -> float | None:
    return None if scaled else 1.0


def _scaled(scale: float | None, _: Values) -> bool:
    if scale not in (None, 1.0):
        raise ValueError(scale)
    return scale is None


GPT2_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_257),
    same("n_positions", "decoder.positions.max_length", default=1024),
    same("n_embd", "decoder.d_model", default=768),
    same("n_layer", "decoder.n_layers", default=12),
    same("n_head", "decoder.n_heads", default=12),
    four_times("n_inner", "n_embd"),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_new"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("resid_pdrop", "decoder.dropout", default=0.1),
    inherited("embd_pdrop", "decoder.embed_dropout", of="dropout", default=0.1),
    same("attn_pdrop", "decoder.attn_dropout", default=0.1),
    computed("scale_attn_weights", "decoder.attn_scale", read=_gpt2_scale, write=_scaled, default=True, like=True),
    Alias("hidden_size", of="n_embd"),
    Alias("max_position_embeddings", of="n_positions"),
    Alias("num_attention_heads", of="n_head"),
    Alias("num_hidden_layers", of="n_layer"),
    Only("scale_attn_by_inverse_layer_idx", False),
    # It sets the precision of one product and changes nothing in exact arithmetic.
    ignored("reorder_and_upcast_attn"),
    ignored("n_ctx", "n_special", "predict_special_tokens", "summary_*"),
)


def gpt2_rules(_: ModelConfig) -> Sequence[Rule]:
    """The checkpoint stores matrices input first (Conv1D), and q, k and v in one."""
    ours = "decoder.blocks.{i}"
    matrices = {"attn.c_proj": "attn.out", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    return (
        *_gpt_tables(),
        rename("h.{i}.ln_2.{p}", f"{ours}.ffn_norm.{{p}}"),
        split("h.{i}.attn.c_attn.weight", [f"{ours}.attn.{n}.weight" for n in "qkv"], transposed=True),
        split("h.{i}.attn.c_attn.bias", [f"{ours}.attn.{n}.bias" for n in "qkv"]),
        *(transpose(f"h.{{i}}.{there}.weight", f"{ours}.{here}.weight") for there, here in matrices.items()),
        *(rename(f"h.{{i}}.{there}.bias", f"{ours}.{here}.bias") for there, here in matrices.items()),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias"),
    )


def _gpt_tables() -> Sequence[Rule]:
    """The tables and the norms, but for the second norm of a block."""
    return (
        rename("wte.weight", "decoder.embed.tokens.weight"),
        rename("wpe.weight", "decoder.positions.table.weight"),
        rename("h.{i}.ln_1.{p}", "decoder.blocks.{i}.attn_norm.{p}"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
    )


_GPT2_WORDS = decoder_language("GPT2LMHeadModel", "transformer.", also=("GPT2DoubleHeadsModel",))
NO_CHOICE = leave_out("multiple_choice_head.summary.{p}", because="there is no head that chooses among texts")

GPT2 = Family(
    model_type="gpt2",
    constants={"decoder.input.kind": "tokens", "decoder.positions.kind": "learned"},
    fields=GPT2_FIELDS,
    rules=gpt2_rules,
    heads=(
        replace(_GPT2_WORDS, rules=lambda config: (*_GPT2_WORDS.rules(config), NO_CHOICE)),
        *decoder_heads("GPT2", "transformer."),
    ),
)


# --- GPT-Neo (Black et al. 2021) and BigCode (Li et al. 2023) ------------------------------------------------------

KINDS = ("global", "local")


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


NEO_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_257),
    same("max_position_embeddings", "decoder.positions.max_length", default=2048),
    same("hidden_size", "decoder.d_model", default=2048),
    same("num_layers", "decoder.n_layers", default=24),
    same("num_heads", "decoder.n_heads", default=16),
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
        like=256,
    ),
    four_times("intermediate_size", "hidden_size"),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_new"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("resid_dropout", "decoder.dropout", default=0.0),
    inherited("embed_dropout", "decoder.embed_dropout", of="dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    Alias("num_attention_heads", of="num_heads"),
    Alias("num_hidden_layers", of="num_layers"),
    ignored("summary_*"),
)


def gpt_neo_rules(_: ModelConfig) -> Sequence[Rule]:
    """Matrices output first, unlike GPT-2's."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    return (
        *_gpt_neo_rest(),
        *renames("h.{i}.attn.attention", f"{ours}.attn", attention),
        ignore("h.{i}.attn.attention.bias", "h.{i}.attn.attention.masked_bias"),
    )


def bigcode_rules(config: ModelConfig) -> Sequence[Rule]:
    """One head of keys and values below all queries, or each head's three together."""
    ours, stack = [f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qkv"], config.output
    k, group = stack.head_width, stack.n_heads // stack.kv_heads
    return (
        *_gpt_neo_rest(),
        fused("h.{i}.attn.c_attn.{p}", ours, rows=[group * k, k, k], groups=stack.kv_heads),
        rename("h.{i}.attn.c_proj.{p}", "decoder.blocks.{i}.attn.out.{p}"),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias", "bias"),
    )


def _gpt_neo_rest() -> Sequence[Rule]:
    names = {"ln_2": "ffn_norm", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    return (*_gpt_tables(), *renames("h.{i}", "decoder.blocks.{i}", names))


GPT_NEO = Family(
    model_type="gpt_neo",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.positions.kind": "learned",
        "decoder.attn_scale": 1.0,
        "decoder.qkv_bias": False,
    },
    fields=NEO_FIELDS,
    rules=gpt_neo_rules,
    heads=(
        decoder_language("GPTNeoForCausalLM", "transformer."),
        *decoder_heads("GPTNeo", "transformer.", dropout=same("classifier_dropout", "head.dropout", default=0.1)),
    ),
)


def _kv_heads(shared: bool, values: Values) -> int:
    return 1 if shared else values["n_head"]


def _shared(kv_heads: int | None, ours: Values) -> bool:
    if kv_heads not in (None, 1, ours["decoder"]["n_heads"]):
        raise ValueError(kv_heads)
    return kv_heads == 1


BIGCODE_FIELDS: tuple[Any, ...] = (
    *GPT2_FIELDS,
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_pytorch_tanh"),
    computed("multi_query", "decoder.n_kv_heads", read=_kv_heads, write=_shared, default=True, like=True),
    # Numbers that follow from others, and the precision of one product.
    ignored("num_key_value_heads", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
)
BIGCODE = Family(
    model_type="gpt_bigcode",
    constants={"decoder.input.kind": "tokens", "decoder.positions.kind": "learned"},
    fields=BIGCODE_FIELDS,
    rules=bigcode_rules,
    heads=(
        decoder_language("GPTBigCodeForCausalLM", "transformer."),
        *decoder_heads("GPTBigCode", "transformer.", "bare class tags"),
    ),
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
    same("vocab_size", "decoder.input.vocab_size", default=50_400),
    computed(
        "n_positions",
        "decoder.positions.trained_length",
        write=lambda length, _: 2048 if length is None else length,
        default=2048,
        like=2048,
    ),
    same("n_embd", "decoder.d_model", default=4096),
    same("n_layer", "decoder.n_layers", default=28),
    same("n_head", "decoder.n_heads", default=16),
    computed("rotary_dim", "decoder.positions.fraction", read=_fraction, write=_rotated, default=64, like=64),
    four_times("n_inner", "n_embd"),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_new"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("resid_pdrop", "decoder.dropout", default=0.0),
    inherited("embd_pdrop", "decoder.embed_dropout", of="dropout", default=0.0),
    same("attn_pdrop", "decoder.attn_dropout", default=0.0),
    Alias("hidden_size", of="n_embd"),
    Alias("max_position_embeddings", of="n_positions"),
    Alias("num_attention_heads", of="n_head"),
    Alias("num_hidden_layers", of="n_layer"),
    ignored("n_ctx", "summary_*", "scale_attn_weights"),
)
GPTJ_CONSTANTS: dict[str, Any] = {
    "decoder.input.kind": "tokens",
    "decoder.positions.kind": "rotary",
    "decoder.parallel": "one_norm",
    "decoder.qkv_bias": False,
    "decoder.out_bias": False,
}


def _turned(rule: Rule, config: ModelConfig, *sides: int) -> Rule:
    stack = config.output
    assert isinstance(stack.positions, Rotary)
    return paired(rule, *sides, width=stack.head_width, rotated=stack.positions.rotated(stack.head_width))


def gptj_rules(config: ModelConfig) -> Sequence[Rule]:
    """The first of the two."""
    ours = "decoder.blocks.{i}.attn"
    return (
        *_gptj_rest(),
        *(
            _turned(rename(f"h.{{i}}.attn.{side}_proj.{{p}}", f"{ours}.{side}.{{p}}"), config, *turned)
            for side, turned in (("q", (0,)), ("k", (0,)), ("v", ()))
        ),
    )


def fused_rules(config: ModelConfig) -> Sequence[Rule]:
    """The second: each group of heads has its queries, then values, then keys."""
    part = config.output.d_model // CORES
    ours = [f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qvk"]
    return (*_gptj_rest(), _turned(fused("h.{i}.attn.qkv_proj.{p}", ours, rows=[part] * 3, groups=CORES), config, 0, 2))


def _gptj_rest() -> Sequence[Rule]:
    names = {"attn.out_proj": "attn.out", "mlp.fc_in": "ffn.up", "mlp.fc_out": "ffn.down"}
    return (
        *(rule for rule in _gpt_tables() if rule.theirs != ("wpe.weight",)),
        *renames("h.{i}", "decoder.blocks.{i}", names),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias", "h.{i}.attn.causal_mask", "h.{i}.attn.embed_positions"),
    )


def _whole_groups(heads: int, _: Values) -> int:
    if heads % CORES:
        raise UserError(f"expected a multiple of {CORES}, the number of parts of its fused matrix, got {heads}")
    return heads


GPTJ = Family(
    model_type="gptj",
    constants=GPTJ_CONSTANTS,
    fields=GPTJ_FIELDS,
    rules=gptj_rules,
    heads=(
        decoder_language("GPTJForCausalLM", "transformer.", tied=False, bias=True),
        *decoder_heads("GPTJ", "transformer.", "bare class span"),
    ),
)
CODEGEN = Family(
    model_type="codegen",
    constants=GPTJ_CONSTANTS,
    fields=(*GPTJ_FIELDS, computed("n_head", "decoder.n_heads", read=_whole_groups, default=16, like=16)),
    rules=fused_rules,
    heads=(
        decoder_language("CodeGenForCausalLM", "transformer.", tied=False, bias=True),
        *decoder_heads("CodeGen", "transformer.", "bare"),
    ),
)
