"""The decoder of Almazrouei et al. 2023: both branches side by side, keys and values shared among heads."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import ACTIVATIONS, four_times
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig
from clearhead.errors import UserError


def _kv_heads(said: int | None, values: Values) -> int:
    heads = values["num_attention_heads"]
    if values["new_decoder_architecture"]:
        return heads if said is None else said
    if values["multi_query"]:
        return 1
    if said not in (None, heads):
        raise UserError(f"expected num_attention_heads={heads} without multi_query, got {short(said)}")
    return heads


def _parallel(said: int | None, values: Values) -> str | None:
    """The norms of branches that are side by side; None for one branch after the other."""
    new, side_by_side = values["new_decoder_architecture"], values["parallel_attn"]
    if said not in ((None, 1, 2) if new else (None, 1)) or (new and not side_by_side):
        raise UserError("expected 1, or 2 with new_decoder_architecture and parallel_attn, got another combination")
    if new:
        return "one_norm" if said == 1 else "two_norms"
    return "one_norm" if side_by_side else None


def _written(ours: Values) -> dict[str, Any]:
    """The five fields of an architecture."""
    stack = ours["decoder"]
    kv, parallel = stack["n_kv_heads"] or stack["n_heads"], stack["parallel"]
    new = parallel == "two_norms" or kv not in (1, stack["n_heads"])
    return {
        "new_decoder_architecture": new,
        "multi_query": kv == 1 and not new,
        "parallel_attn": parallel is not None,
        "num_kv_heads": kv if new else stack["n_heads"],
        "num_ln_in_parallel_attn": (2 if parallel == "two_norms" else 1) if new else None,
    }


def _flag(name: str, default: bool) -> Field:
    return computed(name, write=lambda _, ours: _written(ours)[name], default=default, like=default)


FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=65_024),
    same("hidden_size", "decoder.d_model", default=4544),
    same("num_hidden_layers", "decoder.n_layers", default=32),
    same("num_attention_heads", "decoder.n_heads", default=71),
    _flag("new_decoder_architecture", default=False),
    _flag("multi_query", default=True),
    _flag("parallel_attn", default=True),
    computed(
        "num_kv_heads",
        "decoder.n_kv_heads",
        read=_kv_heads,
        write=lambda _, ours: _written(ours)["num_kv_heads"],
        default=None,
    ),
    computed(
        "num_ln_in_parallel_attn",
        "decoder.parallel",
        read=_parallel,
        write=lambda _, ours: _written(ours)["num_ln_in_parallel_attn"],
        default=None,
    ),
    four_times("ffn_hidden_size", "hidden_size"),
    named("activation", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("hidden_dropout", "decoder.dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    inherited("bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=False),
    # There the slopes times positions are rounded to 8 bits, so that far tokens share a distance.
    Only("alibi", False),
    *rotary(max_length=2048),
    ignored("head_dim", "rotary"),
)


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    width = document.pop("n_embed", None)
    return modern(document if width is None else document | {"hidden_size": width})


def rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds, for each key head, its queries, its keys and its values in turn."""
    ours, stack = "decoder.blocks.{i}", config.output
    k, group = stack.head_width, stack.n_heads // stack.kv_heads
    first, second = ("ln_attn", "ln_mlp") if stack.parallel == "two_norms" else ("input_layernorm", None)
    second = "post_attention_layernorm" if stack.parallel is None else second
    return (
        rename("word_embeddings.weight", "decoder.embed.tokens.weight"),
        rename(f"h.{{i}}.{first}.{{p}}", f"{ours}.attn_norm.{{p}}"),
        *([rename(f"h.{{i}}.{second}.{{p}}", f"{ours}.ffn_norm.{{p}}")] if second else []),
        fused(
            "h.{i}.self_attention.query_key_value.{p}",
            [f"{ours}.attn.{side}.{{p}}" for side in "qkv"],
            rows=[group * k, k, k],
            groups=stack.kv_heads,
        ),
        rename("h.{i}.self_attention.dense.{p}", f"{ours}.attn.out.{{p}}"),
        rename("h.{i}.mlp.dense_h_to_4h.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("h.{i}.mlp.dense_4h_to_h.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "h.{i}.self_attention.rotary_emb.inv_freq"),
    )


FAMILY = Family(
    model_type="falcon",
    constants={"decoder.input.kind": "tokens", "decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    fields=FIELDS,
    rules=rules,
    heads=(language("FalconForCausalLM", "transformer."), *others("Falcon", "transformer.")),
    modernize=_modern,
)
