"""The decoder of Black et al. 2022: both branches read the same state, and a part of each head is rotated."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width
from clearhead.checkpoints.weights.fields import Field, computed, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig

SIDES = "qkv"


def parallel(kind: str, *, default: bool) -> Field:
    """use_parallel_residual: the branches side by side, with as many norms as `kind` says, or one after the other."""

    def write(said: str | None, _: Any) -> bool:
        if said not in (kind, None):
            raise ValueError(said)
        return said is not None

    return computed(
        "use_parallel_residual",
        "decoder.parallel",
        read=lambda said, _: kind if said else None,
        write=write,
        default=default,
        like=default,
    )


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    older = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
    return modern({older.get(name, name): value for name, value in document.items()})


FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_432),
    same("hidden_size", "decoder.d_model", default=6144),
    same("num_hidden_layers", "decoder.n_layers", default=44),
    same("num_attention_heads", "decoder.n_heads", default=64),
    same("intermediate_size", "decoder.d_ff", default=24_576),
    named("hidden_act", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("layer_norm_eps", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("hidden_dropout", "decoder.dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
    parallel("two_norms", default=True),
    *rotary(max_length=2048, fraction=0.25),
    head_width(),
)


def rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds each head's queries, keys and values in turn."""
    ours, stack = "decoder.blocks.{i}", config.output
    return (
        rename("embed_in.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        fused(
            "layers.{i}.attention.query_key_value.{p}",
            [f"{ours}.attn.{side}.{{p}}" for side in SIDES],
            rows=[stack.head_width] * 3,
            groups=stack.n_heads,
        ),
        rename("layers.{i}.attention.dense.{p}", f"{ours}.attn.out.{{p}}"),
        rename("layers.{i}.mlp.dense_h_to_4h.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("layers.{i}.mlp.dense_4h_to_h.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("final_layer_norm.{p}", "decoder.final_norm.{p}"),
        ignore("layers.{i}.attention.bias", "layers.{i}.attention.masked_bias"),
        ignore("layers.{i}.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
    )


FAMILY = Family(
    model_type="gpt_neox",
    constants={"decoder.input.kind": "tokens"},
    fields=FIELDS,
    rules=rules,
    heads=(
        language("GPTNeoXForCausalLM", "gpt_neox.", tied=False, older=("embed_out",)),
        *others("GPTNeoX", "gpt_neox.", dropout=same("classifier_dropout", "head.dropout", default=0.1)),
    ),
    modernize=_modern,
)
