"""The decoder of Radford et al. 2019: pre-norm, tanh GELU, learned positions, output tied to the token table (2.3)."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    four_times,
    labels,
    last_token_classifier,
    output_matrix,
    span,
    tagging_dropout,
)
from clearhead.checkpoints.weights.fields import Alias, Only, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, split, transpose
from clearhead.config import LanguageHead, Learned, ModelConfig, StackConfig, TokenInput


def decoder(d_model: int, n_layers: int, *, n_heads: int) -> ModelConfig:
    """The network of one size."""
    return ModelConfig(
        decoder=StackConfig(
            input=TokenInput(vocab_size=50_257),
            d_model=d_model,
            n_layers=n_layers,
            n_heads=n_heads,
            d_ff=4 * d_model,
            positions=Learned(max_length=1024),
            activation="gelu_tanh",
            dropout=0.1,
            attn_dropout=0.1,
        ),
        head=LanguageHead(tied=True),
    )


PRESETS = {
    "gpt2": decoder(768, 12, n_heads=12),
    "gpt2-medium": decoder(1024, 24, n_heads=16),
}


def _scale(scaled: bool, _: Values) -> float | None:
    return None if scaled else 1.0


def _scaled(scale: float | None, _: Values) -> bool:
    if scale not in (None, 1.0):
        raise ValueError(scale)
    return scale is None


FIELDS = (
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
    computed("scale_attn_weights", "decoder.attn_scale", read=_scale, write=_scaled, default=True, like=True),
    Alias("hidden_size", of="n_embd"),
    Alias("max_position_embeddings", of="n_positions"),
    Alias("num_attention_heads", of="n_head"),
    Alias("num_hidden_layers", of="n_layer"),
    Only("scale_attn_by_inverse_layer_idx", False),
    # It sets the precision of one product and changes nothing in exact arithmetic.
    ignored("reorder_and_upcast_attn"),
    ignored("n_ctx", "n_special", "predict_special_tokens", "summary_*"),
)


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The checkpoint stores matrices input first (Conv1D), and q, k and v in one."""
    ours = "decoder.blocks.{i}"
    return (
        rename("wte.weight", "decoder.embed.tokens.weight"),
        rename("wpe.weight", "decoder.positions.table.weight"),
        rename("h.{i}.ln_1.{p}", f"{ours}.attn_norm.{{p}}"),
        split("h.{i}.attn.c_attn.weight", [f"{ours}.attn.{n}.weight" for n in "qkv"], transposed=True),
        split("h.{i}.attn.c_attn.bias", [f"{ours}.attn.{n}.bias" for n in "qkv"]),
        transpose("h.{i}.attn.c_proj.weight", f"{ours}.attn.out.weight"),
        rename("h.{i}.attn.c_proj.bias", f"{ours}.attn.out.bias"),
        rename("h.{i}.ln_2.{p}", f"{ours}.ffn_norm.{{p}}"),
        transpose("h.{i}.mlp.c_fc.weight", f"{ours}.ffn.up.weight"),
        rename("h.{i}.mlp.c_fc.bias", f"{ours}.ffn.up.bias"),
        transpose("h.{i}.mlp.c_proj.weight", f"{ours}.ffn.down.weight"),
        rename("h.{i}.mlp.c_proj.bias", f"{ours}.ffn.down.bias"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias"),
    )


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The output matrix, tied to the token table or separate."""
    return (
        output_matrix("lm_head.weight", config, "decoder.embed.tokens.weight"),
        leave_out("multiple_choice_head.summary.{p}", because="there is no head that chooses among texts"),
    )


HEADS = (
    HeadMap(
        "GPT2LMHeadModel",
        {"head.kind": "language"},
        language_rules,
        (same("tie_word_embeddings", "head.tied", default=True),),
        prefix="transformer.",
        also=("GPT2DoubleHeadsModel",),
    ),
    HeadMap("GPT2Model", {"head.kind": "none"}),
    last_token_classifier("GPT2ForSequenceClassification", "transformer."),
    HeadMap(
        "GPT2ForTokenClassification",
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        (*labels(), tagging_dropout()),
        prefix="transformer.",
    ),
    span("GPT2ForQuestionAnswering", prefix="transformer."),
)

FAMILY = Family(
    model_type="gpt2",
    constants={"decoder.input.kind": "tokens", "decoder.positions.kind": "learned"},
    fields=FIELDS,
    rules=rules,
    heads=HEADS,
)
