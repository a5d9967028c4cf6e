"""BERTs with rotary positions and names of their own: Nomic BERT (Nussbaum et al. 2024: gated, without biases), GTE
(Zhang et al. 2024: gated) and jina-embeddings-v3 (Sturua et al. 2024).
"""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.encoders import encoder_heads, roberta
from clearhead.checkpoints.families.encoders.bert import (
    bare,
    classifier_dropout,
    encoder_fields,
    no_pooler,
    norm,
    output_bias,
    tagging,
)
from clearhead.checkpoints.families.encoders.bidirectional import encoding, modern_with
from clearhead.checkpoints.families.encoders.roberta import exact_gelu
from clearhead.checkpoints.families.family import Document, Family, HeadMap, Rules
from clearhead.checkpoints.families.rotary import rotary
from clearhead.checkpoints.families.shared import head_width, output_matrix, with_defaults
from clearhead.checkpoints.weights.fields import FieldRule, Values, computed, same
from clearhead.checkpoints.weights.mapping import Rule, rename, split
from clearhead.config import LanguageHead, ModelConfig

CONSTANTS: Document = {
    "encoder.input.kind": "tokens",
    "encoder.input.norm": True,
    "encoder.norm_place": "post",
    "init.depth_scaled": False,
}
TABLE = "encoder.embed.tokens.weight"


def fields(vocab_size: int, max_length: int, **defaults: Any) -> tuple[FieldRule, ...]:
    """BERT's fields, and the angles."""
    return (*with_defaults(encoder_fields(vocab_size), **defaults), *encoding(rotary(max_length=max_length)))


def rules(block: str, norms: tuple[str, str, str], attention: tuple[str, str], inner: dict[str, str]) -> Rules:
    """The embeddings, and the blocks, whose norms follow their branches.

    `norms` are those of the embedding, of attention and of the feed-forward part. `attention` has q, k and v in one
    tensor, and the output. `inner` are the renamed feed-forward layers.
    """
    ours = "encoder.blocks.{i}"
    of_embedding, of_attention, of_inner = norms
    qkv, out = attention
    table = (
        rename("embeddings.word_embeddings.weight", TABLE),
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm(of_embedding, "encoder.embed.norm"),
        *(split(f"{block}.{qkv}.{p}", [f"{ours}.attn.{n}.{p}" for n in "qkv"]) for p in ("weight", "bias")),
        rename(f"{block}.{out}.{{p}}", f"{ours}.attn.out.{{p}}"),
        rename(f"{block}.{of_attention}.{{p}}", f"{ours}.attn_norm.{{p}}"),
        *(rename(f"{block}.mlp.{there}.{{p}}", f"{ours}.ffn.{here}.{{p}}") for there, here in inner.items()),
        rename(f"{block}.{of_inner}.{{p}}", f"{ours}.ffn_norm.{{p}}"),
    )
    return lambda _: table


def heads(name: str, prefix: str, writer: HeadMap) -> tuple[HeadMap, ...]:
    """The classes that the gated ones have."""
    return (
        writer,
        bare(f"{name}Model"),
        encoder_heads.classifier(
            f"{name}ForSequenceClassification", prefix, classifier_dropout(), pooler=f"{prefix}pooler.dense"
        ),
        tagging(f"{name}ForTokenClassification", prefix),
    )


# --- Nomic BERT --------------------------------------------------------------------------------------------------


def nomic_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    theirs = "cls.predictions"
    return (
        output_matrix(f"{theirs}.decoder.weight", config, TABLE),
        *output_bias(f"{theirs}.bias", f"{theirs}.decoder.bias", tied=config.head.tied),
        rename(f"{theirs}.transform.dense.{{p}}", "head.dense.{p}"),
        *norm(f"{theirs}.transform.layer_norm", "head.norm"),
        no_pooler("nomic_bert."),
    )


def _width(width: int | None, ours: Values) -> int:
    stack = ours["encoder"]
    return width or stack["d_model"] // stack["n_heads"]


NOMIC = Family(
    model_type="nomic_bert",
    constants={**CONSTANTS, "encoder.gated": True, "encoder.bias": False, "encoder.norm_bias": True},
    fields=(
        *fields(30_528, 2048, hidden_act="silu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        computed("head_dim", "encoder.d_head", write=_width, default=None),
    ),
    rules=rules(
        "encoder.layers.{i}",
        ("emb_ln", "norm1", "norm2"),
        ("attn.Wqkv", "attn.out_proj"),
        {"fc11": "up", "fc12": "gate", "fc2": "down"},
    ),
    heads=heads(
        "NomicBert",
        "nomic_bert.",
        encoder_heads.language("NomicBertForMaskedLM", "nomic_bert.", nomic_rules),
    ),
    modernize=modern_with(1000.0),
)

# --- GTE ---------------------------------------------------------------------------------------------------------


def gte_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    return (
        output_matrix("lm_head.decoder.weight", config, TABLE),
        rename("lm_head.decoder.bias", "head.output.bias"),
        rename("lm_head.dense.{p}", "head.dense.{p}"),
        *norm("lm_head.norm", "head.norm"),
        no_pooler("gte."),
    )


GTE_BLOCK = "encoder.layer.{i}"
GTE_INNER = [f"encoder.blocks.{{i}}.ffn.{part}.weight" for part in ("up", "gate")]
gte_blocks = rules(
    GTE_BLOCK,
    ("embeddings.LayerNorm", "attn_ln", "mlp_ln"),
    ("attention.qkv_proj", "attention.o_proj"),
    {"down_proj": "down"},
)

GTE = Family(
    model_type="gte",
    constants={**CONSTANTS, "encoder.gated": True, "encoder.ffn_bias": False, "encoder.down_bias": True},
    fields=(
        *fields(250_048, 8192, type_vocab_size=1, attention_probs_dropout_prob=0.0),
        same("hidden_dropout_prob", "encoder.ffn_dropout", default=0.1),
        head_width(),
    ),
    rules=lambda config: (*gte_blocks(config), split(f"{GTE_BLOCK}.mlp.up_gate_proj.weight", GTE_INNER)),
    heads=heads("Gte", "gte.", encoder_heads.language("GteForMaskedLM", "gte.", gte_rules, exact_gelu())),
    modernize=modern_with(160_000.0),
)

# --- jina-embeddings-v3 ------------------------------------------------------------------------------------------

JINA = Family(
    model_type="jina_embeddings_v3",
    constants=CONSTANTS,
    fields=(
        *fields(
            250_002,
            8194,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        ),
        head_width(),
    ),
    rules=rules(
        "encoder.layers.{i}",
        ("emb_ln", "norm1", "norm2"),
        ("mixer.Wqkv", "mixer.out_proj"),
        {"fc1": "up", "fc2": "down"},
    ),
    heads=roberta.heads("JinaEmbeddingsV3"),
    modernize=modern_with(20_000.0),
)
