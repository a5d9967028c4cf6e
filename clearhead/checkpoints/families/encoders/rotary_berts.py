"""Encoders with rotary positions: Nomic BERT, GTE, jina-embeddings-v3 and EuroBERT."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.angles import modern, modern_with, rotary
from clearhead.checkpoints.families.decoders.llama import BIASES, LLAMA_CONSTANTS, llama_rules, llama_sizes
from clearhead.checkpoints.families.encoders.bert import (
    bert_bare,
    bert_no_pooler,
    bert_tagging,
    classifier_dropout,
    encoder_fields,
    norm,
    output_bias,
)
from clearhead.checkpoints.families.encoders.roberta import exact_gelu, roberta_heads
from clearhead.checkpoints.families.family import Document, Family, HeadMap, Rules, prefixed
from clearhead.checkpoints.families.shared import (
    encoder_classifier,
    encoder_language,
    encoding,
    encoding_constants,
    encoding_rules,
    head_width,
    labels,
    output_matrix,
    problem_type,
    with_defaults,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import ANOTHER, FieldRule, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename, renames, split
from clearhead.config import LanguageHead, ModelConfig
from clearhead.errors import UserError

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
        *renames(f"{block}.mlp", f"{ours}.ffn", inner),
        rename(f"{block}.{of_inner}.{{p}}", f"{ours}.ffn_norm.{{p}}"),
    )
    return lambda _: table


def heads(name: str, prefix: str, writer: HeadMap) -> tuple[HeadMap, ...]:
    """The classes that the gated ones have."""
    return (
        writer,
        bert_bare(f"{name}Model"),
        encoder_classifier(
            f"{name}ForSequenceClassification", prefix, classifier_dropout(), pooler=f"{prefix}pooler.dense"
        ),
        bert_tagging(f"{name}ForTokenClassification", prefix),
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
        bert_no_pooler("nomic_bert."),
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
        encoder_language("NomicBertForMaskedLM", "nomic_bert.", nomic_rules),
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
        bert_no_pooler("gte."),
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
    heads=heads("Gte", "gte.", encoder_language("GteForMaskedLM", "gte.", gte_rules, exact_gelu())),
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
    heads=roberta_heads("JinaEmbeddingsV3"),
    modernize=modern_with(20_000.0),
)


# --- EuroBERT (Boizard et al. 2025): a decoder's blocks without the causal mask ------------------------------------

PREFIX = "model."
POOLS = {"bos": ("first", False), "mean": ("mean", False), "late": ("mean", True)}
"""Their name -> which states the classifier reads, and whether its first layer comes before the mean."""


def _pool(name: str, _: Values) -> str:
    return POOLS[name][0]


def _pools_last(name: str, _: Values) -> bool:
    return POOLS[name][1]


def _name(_: object, ours: Values) -> str:
    head = ours["head"]
    return {pools: name for name, pools in POOLS.items()}[head["pool"], head["pools_last"]]


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The output matrix, which has a bias if the feed-forward layers have."""
    output = output_matrix("lm_head.weight", config, "encoder.embed.tokens.weight")
    return (output, rename("lm_head.bias", "head.output.bias"))


HEADS = (
    HeadMap(
        "EuroBertForMaskedLM",
        {"head.kind": "language"},
        language_rules,
        (same("tie_word_embeddings", "head.tied", default=False), same("mlp_bias", "head.bias", default=False)),
        prefix=PREFIX,
    ),
    HeadMap("EuroBertModel", {"head.kind": "none"}),
    HeadMap(
        "EuroBertForSequenceClassification",
        {"head.kind": "classification", "head.pooler": True, "head.pooler_activation": "gelu"},
        lambda _: (rename("dense.{p}", "head.pooler.{p}"), rename("classifier.{p}", "head.output.{p}")),
        (
            *labels(),
            problem_type(),
            computed("classifier_pooling", "head.pool", read=_pool, write=_name, default="late", like="late"),
            computed("classifier_pooling", "head.pools_last", read=_pools_last, write=_name, default="late"),
        ),
        prefix=PREFIX,
    ),
    HeadMap(
        "EuroBertForTokenClassification",
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        labels(),
        prefix=PREFIX,
    ),
)

EUROBERT = Family(
    model_type="eurobert",
    constants=encoding_constants(LLAMA_CONSTANTS),
    fields=(
        *with_defaults(
            encoding(
                (
                    *llama_sizes(
                        vocab_size=128_256,
                        hidden_size=768,
                        intermediate_size=3072,
                        kv_heads=None,
                        eps=1e-5,
                        max_length=8192,
                    ),
                    *BIASES,
                )
            ),
            num_hidden_layers=12,
            num_attention_heads=12,
        ),
        ignored("classifier_pooling"),
    ),
    rules=encoding_rules(llama_rules),
    heads=HEADS,
    modernize=modern,
)

# --- GTE as it was published (Zhang et al. 2024) ---------------------------------------------------------------------


def _ntk_angles(document: dict[str, Any]) -> dict[str, Any]:
    """Their rope_scaling of the kind ntk: another base, and all angles divided by factor^(2 / width)."""
    scaling, theta = document.pop("rope_scaling", None), document.pop("rope_theta", 10_000.0)
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if isinstance(scaling, dict):
        if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
            raise UserError(f"rope_scaling: expected the type ntk without mixed_b, got {short(scaling)}; {ANOTHER}")
        factor, n_heads = scaling.get("factor", 1.0), document.get("num_attention_heads", 12)
        sizes = (theta, factor, document.get("hidden_size", 768), n_heads)
        if not all(type(one) in (int, float) and 0 < one < 1e9 for one in sizes) or sizes[2] < n_heads:
            raise UserError(f"rope_scaling: expected numbers above 0, got {short(scaling)}; {ANOTHER}")
        width = sizes[2] // n_heads
        parameters = {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / width)}
    return document | {"rope_parameters": parameters}


def _published(head: HeadMap) -> HeadMap:
    """The class under its published name. A checkpoint without a head may have those of another class in it."""
    name = head.architecture.replace("Gte", "New")
    if head.prefix:
        return replace(head, architecture=name, prefix="new.")
    unread = leave_out("classifier.{p}", "lm_head.{a}.{p}", because="the config names the class without a head")
    rules = head.rules

    def both(config: ModelConfig) -> Sequence[Rule]:
        return (*rules(config), unread, *(prefixed(rule, "new.") for rule in (*GTE.rules(config), *rules(config))))

    return replace(head, architecture=name, rules=both, also_first=True)


NEW_FIELDS: tuple[FieldRule, ...] = (
    Only("position_embedding_type", "rope"),
    Only("layer_norm_type", "layer_norm"),
    Only("logn_attention_scale", False),
    Only("logn_attention_clip1", False),
    ignored("pack_qkv", "unpad_inputs", "use_memory_efficient_attention"),
    same("vocab_size", "encoder.input.vocab_size", default=30_528),
)
NEW = replace(
    GTE,
    model_type="new",
    fields=(
        *NEW_FIELDS,
        *(one for one in GTE.fields if getattr(one, "theirs", "") not in ("position_embedding_type", "vocab_size")),
    ),
    heads=tuple(map(_published, GTE.heads)),
    modernize=_ntk_angles,
    read_only=True,
)
