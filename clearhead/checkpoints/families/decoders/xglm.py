"""The decoder of Lin et al. 2021: BART's names, norms before each branch, and sines that begin at row 2."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.encoder_decoders.encoder_decoder import LENGTH
from clearhead.checkpoints.families.encoder_decoders.mbart import waves
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS
from clearhead.checkpoints.weights.fields import Alias, Values, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError

FIRST = 2
"""The row of the first position."""


def _padding(row: int | None, _: Values) -> None:
    if row is not None and row >= FIRST:
        raise UserError(f"expected less than {FIRST}, because it names a row of the positions, got {row}")


FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=256_008),
    same("d_model", "decoder.d_model", default=1024),
    *waves("decoder", default=1024),
    same("num_layers", "decoder.n_layers", default=24),
    same("attention_heads", "decoder.n_heads", default=16),
    same("ffn_dim", "decoder.d_ff", default=4096),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("scale_embedding", "decoder.input.scale", default=True),
    same("dropout", "decoder.dropout", default=0.1),
    same("attention_dropout", "decoder.attn_dropout", default=0.1),
    same("activation_dropout", "decoder.ffn_dropout", default=0.0),
    same("init_std", "init.std", default=0.02),
    computed("pad_token_id", read=_padding, write=lambda *_: 1, default=1),
    # The waves have no end.
    computed("max_position_embeddings", write=lambda *_: LENGTH, default=2048, like=LENGTH),
    Alias("hidden_size", of="d_model"),
    Alias("num_attention_heads", of="attention_heads"),
    Alias("num_hidden_layers", of="num_layers"),
    # In training, the reference library skips a share of the layers. Here all of them are trained.
    ignored("layerdrop"),
)
CONSTANTS: dict[str, Any] = {
    "decoder.input.kind": "tokens",
    "decoder.positions.kind": "sinusoidal",
    "decoder.positions.layout": "concatenated",
    "decoder.positions.offset": FIRST,
    "decoder.norm_eps": 1e-5,
}


def rules(_: ModelConfig) -> Sequence[Rule]:
    """BART's names."""
    theirs, ours = "layers.{i}", "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    rest = {"self_attn_layer_norm": "attn_norm", "fc1": "ffn.up", "fc2": "ffn.down", "final_layer_norm": "ffn_norm"}
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        *(rename(f"{theirs}.self_attn.{a}.{{p}}", f"{ours}.attn.{b}.{{p}}") for a, b in attention.items()),
        *(rename(f"{theirs}.{a}.{{p}}", f"{ours}.{b}.{{p}}") for a, b in rest.items()),
        rename("layer_norm.{p}", "decoder.final_norm.{p}"),
        ignore("embed_positions.weights"),
    )


FAMILY = Family(
    model_type="xglm",
    constants=CONSTANTS,
    fields=FIELDS,
    rules=rules,
    heads=(language("XGLMForCausalLM", "model."), *others("XGLM", "model.", "bare")),
)
