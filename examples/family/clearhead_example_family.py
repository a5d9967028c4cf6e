"""OpenAI GPT (Radford et al. 2018), a family of another package: norms after each branch, learned positions."""

from collections.abc import Sequence

from clearhead.checkpoints.families import Family, HeadMap
from clearhead.checkpoints.families.shared import output_matrix
from clearhead.checkpoints.weights.fields import Alias, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, rename, renames, split, transpose
from clearhead.config import LanguageHead, Learned, ModelConfig, StackConfig, TokenInput

FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=40_478),
    same("n_positions", "decoder.positions.max_length", default=512),
    same("n_embd", "decoder.d_model", default=768),
    # Its feed-forward layer is four times as wide as the network.
    computed("n_embd", "decoder.d_ff", read=lambda width, _: 4 * width, write=lambda width, _: width // 4, default=768),
    same("n_layer", "decoder.n_layers", default=12),
    same("n_head", "decoder.n_heads", default=12),
    named("afn", "decoder.activation", names={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu"}, default="gelu"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("resid_pdrop", "decoder.dropout", default=0.1),
    inherited("embd_pdrop", "decoder.embed_dropout", of="dropout", default=0.1),
    same("attn_pdrop", "decoder.attn_dropout", default=0.1),
    Alias("hidden_size", of="n_embd"),
    ignored("summary_*", "n_special", "predict_special_tokens", "n_ctx"),
)


def rules(_: ModelConfig) -> Sequence[Rule]:
    """Matrices are stored transposed, with queries, keys and values in one."""
    ours = "decoder.blocks.{i}"
    sides = [f"{ours}.attn.{side}" for side in "qkv"]
    matrices = {"attn.c_proj": "attn.out", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    return (
        rename("tokens_embed.weight", "decoder.embed.tokens.weight"),
        rename("positions_embed.weight", "decoder.positions.table.weight"),
        split("h.{i}.attn.c_attn.weight", [f"{side}.weight" for side in sides], transposed=True),
        split("h.{i}.attn.c_attn.bias", [f"{side}.bias" for side in sides]),
        *(transpose(f"h.{{i}}.{there}.weight", f"{ours}.{here}.weight") for there, here in matrices.items()),
        *(rename(f"h.{{i}}.{there}.bias", f"{ours}.{here}.bias") for there, here in matrices.items()),
        *renames("h.{i}", ours, {"ln_1": "attn_norm", "ln_2": "ffn_norm"}),
    )


OPENAI_GPT = Family(
    model_type="openai-gpt",
    constants={"decoder.input.kind": "tokens", "decoder.positions.kind": "learned", "decoder.norm_place": "post"},
    fields=FIELDS,
    rules=rules,
    heads=(
        HeadMap(
            "OpenAIGPTLMHeadModel",
            {"head.kind": "language"},
            lambda config: (output_matrix("lm_head.weight", config, "decoder.embed.tokens.weight"),),
            (same("tie_word_embeddings", "head.tied", default=True),),
            prefix="transformer.",
        ),
        HeadMap("OpenAIGPTModel", {"head.kind": "none"}),
    ),
    presets={
        "openai-gpt-tiny": ModelConfig(
            decoder=StackConfig(
                input=TokenInput(vocab_size=40_478),
                d_model=128,
                n_layers=4,
                n_heads=4,
                d_ff=512,
                positions=Learned(max_length=512),
                norm_place="post",
                activation="gelu_tanh",
            ),
            head=LanguageHead(tied=True),
        )
    },
)
