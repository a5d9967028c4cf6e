"""The decoders of Wang and Komatsuzaki 2021 and Nijkamp et al. 2022: both branches read one norm, neighbours rotate."""

from collections.abc import Sequence
from math import nextafter
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS, four_times
from clearhead.checkpoints.weights.fields import Alias, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.checkpoints.weights.rows import fused, paired
from clearhead.config import ModelConfig, Rotary
from clearhead.errors import UserError

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


FIELDS = (
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
CONSTANTS: dict[str, Any] = {
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


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The first of the two."""
    ours = "decoder.blocks.{i}.attn"
    return (
        *_rest(),
        *(
            _turned(rename(f"h.{{i}}.attn.{side}_proj.{{p}}", f"{ours}.{side}.{{p}}"), config, *turned)
            for side, turned in (("q", (0,)), ("k", (0,)), ("v", ()))
        ),
    )


def fused_rules(config: ModelConfig) -> Sequence[Rule]:
    """The second: each group of heads has its queries, then values, then keys."""
    part = config.output.d_model // CORES
    ours = [f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qvk"]
    return (*_rest(), _turned(fused("h.{i}.attn.qkv_proj.{p}", ours, rows=[part] * 3, groups=CORES), config, 0, 2))


def _rest() -> Sequence[Rule]:
    ours = "decoder.blocks.{i}"
    return (
        rename("wte.weight", "decoder.embed.tokens.weight"),
        rename("h.{i}.ln_1.{p}", f"{ours}.attn_norm.{{p}}"),
        rename("h.{i}.attn.out_proj.{p}", f"{ours}.attn.out.{{p}}"),
        rename("h.{i}.mlp.fc_in.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("h.{i}.mlp.fc_out.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias", "h.{i}.attn.causal_mask", "h.{i}.attn.embed_positions"),
    )


def _whole_groups(heads: int, _: Values) -> int:
    if heads % CORES:
        raise UserError(f"expected a multiple of {CORES}, the number of parts of its fused matrix, got {heads}")
    return heads


FAMILY = Family(
    model_type="gptj",
    constants=CONSTANTS,
    fields=FIELDS,
    rules=rules,
    heads=(
        language("GPTJForCausalLM", "transformer.", tied=False, bias=True),
        *others("GPTJ", "transformer.", "bare class span"),
    ),
)
CODEGEN = Family(
    model_type="codegen",
    constants=CONSTANTS,
    fields=(*FIELDS, computed("n_head", "decoder.n_heads", read=_whole_groups, default=16, like=16)),
    rules=fused_rules,
    heads=(
        language("CodeGenForCausalLM", "transformer.", tied=False, bias=True),
        *others("CodeGen", "transformer.", "bare"),
    ),
)
