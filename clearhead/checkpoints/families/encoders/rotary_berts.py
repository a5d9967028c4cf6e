"""Encoders with rotary positions: Nomic BERT, GTE, jina-embeddings-v3 and EuroBERT."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.as_encoder import as_encoder, encoding
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like
from clearhead.checkpoints.families.encoders.bert import (
    NORM_AFTER,
    TABLE,
    bert_bare,
    bert_tagging,
    classifier_dropout,
    encoder_fields,
    no_pooler,
    words_rules,
)
from clearhead.checkpoints.families.encoders.roberta import exact_gelu, roberta_heads
from clearhead.checkpoints.families.family import Family, HeadMap, prefixed
from clearhead.checkpoints.families.shared import (
    bare,
    encoder_classifier,
    encoder_language,
    head_width,
    output_matrix,
    pooler_rules,
    sizes,
    tags,
    width_of,
    without,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import ANOTHER, FieldRule, FieldRules, Values, computed, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, modules, rename, renames, sides, split
from clearhead.config import ModelConfig
from clearhead.errors import refuse

EMBEDDINGS = {
    "embeddings.word_embeddings": "embed.tokens",
    "embeddings.token_type_embeddings": "embed.types",
}
LAYERS = {"emb_ln": "embed.norm", "norm1": "attn_norm", "norm2": "ffn_norm"}


def fields(max_length: int, theta: float, **defaults: JsonValue) -> FieldRules:
    """BERT's fields, and the angles."""
    return (*encoder_fields(**defaults), *encoding(rotary(max_length=max_length, theta=theta)))


def rules(block: str, qkv: str, names: dict[str, str]) -> Sequence[Rule]:
    """The embeddings, and the blocks, whose norms follow their branches. `qkv` holds queries, keys and values."""
    return (
        *modules("encoder", block, EMBEDDINGS | names),
        split(f"{block}.{qkv}.{{p}}", sides("encoder")),
    )


def heads(name: str, prefix: str, writer: HeadMap) -> tuple[HeadMap, ...]:
    """The classes that the gated ones have."""
    pooler = f"{prefix}pooler.dense"
    return (
        writer,
        bert_bare(f"{name}Model"),
        encoder_classifier(f"{name}ForSequenceClassification", prefix, classifier_dropout(), pooler=pooler),
        bert_tagging(f"{name}ForTokenClassification", prefix),
    )


# --- Nomic BERT --------------------------------------------------------------------------------------------------


def nomic_words(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    names = {"transform.dense": "dense", "transform.layer_norm": "norm"}
    return *words_rules(config, "cls.predictions", names), no_pooler("nomic_bert.pooler.dense")


NOMIC = Family(
    model_type="nomic_bert",
    constants={**NORM_AFTER, "encoder.gated": True, "encoder.bias": False, "encoder.norm_bias": True},
    fields=(
        *fields(
            2048,
            1000.0,
            vocab_size=30_528,
            hidden_act="silu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        computed(
            "head_dim",
            "encoder.d_head",
            write=lambda _, ours: width_of(ours["encoder"]),
            default=None,
        ),
    ),
    rules=lambda _: rules(
        "encoder.layers.{i}",
        "attn.Wqkv",
        {
            **LAYERS,
            "attn.out_proj": "attn.out",
            "mlp.fc11": "ffn.up",
            "mlp.fc12": "ffn.gate",
            "mlp.fc2": "ffn.down",
        },
    ),
    heads=heads("NomicBert", "nomic_bert.", encoder_language("NomicBertForMaskedLM", "nomic_bert.", nomic_words)),
    modernize=modern,
)

# --- GTE ---------------------------------------------------------------------------------------------------------


def gte_heads(name: str, prefix: str) -> tuple[HeadMap, ...]:
    """The classes of one name."""

    def words(config: ModelConfig) -> Sequence[Rule]:
        return (
            output_matrix("lm_head.decoder.weight", config, TABLE),
            rename("lm_head.decoder.bias", "head.output.bias"),
            *renames("lm_head", "head", {"dense": "dense", "norm": "norm"}),
            no_pooler(f"{prefix}pooler.dense"),
        )

    return heads(name, prefix, encoder_language(f"{name}ForMaskedLM", prefix, words, exact_gelu()))


def gte_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks."""
    block, inner = "encoder.layer.{i}", [f"encoder.blocks.{{i}}.ffn.{part}.weight" for part in ("up", "gate")]
    names = {
        "embeddings.LayerNorm": "embed.norm",
        "attn_ln": "attn_norm",
        "mlp_ln": "ffn_norm",
        "attention.o_proj": "attn.out",
        "mlp.down_proj": "ffn.down",
    }
    return *rules(block, "attention.qkv_proj", names), split(f"{block}.mlp.up_gate_proj.weight", inner)


GTE = Family(
    model_type="gte",
    constants={**NORM_AFTER, "encoder.gated": True, "encoder.ffn_bias": False, "encoder.down_bias": True},
    fields=(
        *fields(8192, 160_000.0, vocab_size=250_048, type_vocab_size=1, attention_probs_dropout_prob=0.0),
        same("hidden_dropout_prob", "encoder.ffn_dropout", default=0.1),
        head_width(),
    ),
    rules=gte_rules,
    heads=gte_heads("Gte", "gte."),
    modernize=modern,
)

# --- jina-embeddings-v3 ------------------------------------------------------------------------------------------

JINA = Family(
    model_type="jina_embeddings_v3",
    constants=NORM_AFTER,
    fields=(
        *fields(
            8194,
            20_000.0,
            vocab_size=250_002,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        ),
        head_width(),
    ),
    rules=lambda _: rules(
        "encoder.layers.{i}",
        "mixer.Wqkv",
        {**LAYERS, "mixer.out_proj": "attn.out", "mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down"},
    ),
    heads=roberta_heads("JinaEmbeddingsV3"),
    modernize=modern,
)


# --- EuroBERT (Boizard et al. 2025): a decoder's blocks without the causal mask ------------------------------------

POOLS = {"bos": ("first", False), "mean": ("mean", False), "late": ("mean", True)}
"""Their name -> which states the classifier reads, and whether its first layer comes before the mean."""


def _pooling(ours: str, part: int) -> FieldRule:
    def write(_: object, config: Values) -> str:
        head = config["head"]
        return {pools: name for name, pools in POOLS.items()}[head["pool"], head["pools_last"]]

    return computed("classifier_pooling", ours, read=lambda name, _: POOLS[name][part], write=write, default="late")


def eurobert_words(config: ModelConfig) -> Sequence[Rule]:
    """The output matrix, which has a bias if the feed-forward layers have."""
    return output_matrix("lm_head.weight", config, TABLE), rename("lm_head.bias", "head.output.bias")


EUROBERT = as_encoder(
    llama_like(
        "eurobert",
        "EuroBert",
        *BIASES,
        ignored("classifier_pooling"),
        vocab_size=128_256,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        rms_norm_eps=1e-5,
        max_length=8192,
    ),
    heads=(
        HeadMap(
            "EuroBertForMaskedLM",
            {"head.kind": "language"},
            eurobert_words,
            (same("tie_word_embeddings", "head.tied", default=False), same("mlp_bias", "head.bias", default=False)),
            prefix="model.",
        ),
        bare("EuroBertModel"),
        encoder_classifier(
            "EuroBertForSequenceClassification",
            "model.",
            _pooling("head.pool", 0),
            _pooling("head.pools_last", 1),
            pooler="dense",
            activation="gelu",
        ),
        tags("EuroBertForTokenClassification", "model."),
    ),
)

# --- GTE as it was published (Zhang et al. 2024) ---------------------------------------------------------------------


def _ntk_angles(document: dict[str, Any]) -> dict[str, Any]:
    """Their rope_scaling of the kind ntk: another base, and all angles divided by factor^(2 / width)."""
    scaling, theta = document.pop("rope_scaling", None), document.pop("rope_theta", 10_000.0)
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if isinstance(scaling, dict):
        if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
            raise refuse("rope_scaling", "the type ntk without mixed_b", short(scaling), ANOTHER)
        factor, n_heads = scaling.get("factor", 1.0), document.get("num_attention_heads", 12)
        numbers = (theta, factor, document.get("hidden_size", 768), n_heads)
        if not all(type(one) in (int, float) and 0 < one < 1e9 for one in numbers) or numbers[2] < n_heads:
            raise refuse("rope_scaling", "numbers above 0", short(scaling), ANOTHER)
        width = numbers[2] // n_heads
        parameters = {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / width)}
    return document | {"rope_parameters": parameters}


def _published_bare(config: ModelConfig) -> Sequence[Rule]:
    """A checkpoint without a head may have the prefix and the heads of another class in it."""
    own = (*pooler_rules(config), *gte_rules(config))
    unread = leave_out("classifier.{p}", "lm_head.{a}.{p}", because="the config names the class without a head")
    return *pooler_rules(config), unread, *(prefixed(rule, "new.") for rule in own)


_WORDS, _BARE, *_OTHERS = gte_heads("New", "new.")
NEW = replace(
    GTE,
    model_type="new",
    fields=(
        *only(position_embedding_type="rope", layer_norm_type="layer_norm"),
        *only(logn_attention_scale=False, logn_attention_clip1=False),
        ignored("pack_qkv", "unpad_inputs", "use_memory_efficient_attention"),
        *sizes("encoder", vocab_size=30_528),
        *without(GTE.fields, "position_embedding_type", "vocab_size"),
    ),
    heads=(_WORDS, replace(_BARE, rules=_published_bare, also_first=True), *_OTHERS),
    modernize=_ntk_angles,
    read_only=True,
)
