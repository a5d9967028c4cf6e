"""BERT, DistilBERT and ALBERT, and what other encoders share with BERT."""

from collections.abc import Sequence

from pydantic import JsonValue

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    bare,
    encoder_classifier,
    encoder_language,
    encoder_sizes,
    output_matrix,
    pooler_rules,
    sizes,
    span,
    tags,
)
from clearhead.checkpoints.weights.fields import Field, FieldRules, Only, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, modules, rename, renames, tie
from clearhead.config import LanguageHead, ModelConfig

# --- what RoBERTa shares -----------------------------------------------------------------------------------------

NORM_AFTER = {"encoder.input.norm": True, "encoder.norm_place": "post", "init.depth_scaled": False}
POST_NORM = {**NORM_AFTER, "encoder.positions.kind": "learned"}
TABLE = "encoder.embed.tokens.weight"
EMBEDDINGS = {
    "embeddings.word_embeddings": "embed.tokens",
    "embeddings.position_embeddings": "positions.table",
    "embeddings.token_type_embeddings": "embed.types",
    "embeddings.LayerNorm": "embed.norm",
}
QKV = {"attention.self.query": "attn.q", "attention.self.key": "attn.k", "attention.self.value": "attn.v"}
REST = {
    "attention.output.dense": "attn.out",
    "attention.output.LayerNorm": "attn_norm",
    "intermediate.dense": "ffn.up",
    "output.dense": "ffn.down",
    "output.LayerNorm": "ffn_norm",
}
BLOCK = QKV | REST
UNREAD = ignore("embeddings.position_ids", "embeddings.token_type_ids")


def encoder_fields(**defaults: JsonValue) -> FieldRules:
    """All fields except the positions."""
    return (
        *encoder_sizes(**{"type_vocab_size": 2, **defaults}),
        Only("position_embedding_type", "absolute"),
        ignored("use_bfloat16", "embedding_size"),
        # Notes by the checkpoint's authors, and settings of other programs.
        ignored("directionality", "language", "name", "pooler_fc_size", "pooler_num_*", "pooler_size_per_head"),
        ignored("pooler_type", "sentence_transformers", "sbert_ce_default_activation_function"),
    )


def bert_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    return *modules("encoder", "encoder.layer.{i}", EMBEDDINGS | BLOCK), UNREAD


def words_rules(config: ModelConfig, at: str, names: dict[str, str]) -> Sequence[Rule]:
    """The matrix over the vocabulary, its bias and other modules `at` a place. `names` are theirs -> the head's.

    The bias is stored twice. The copies differ only in untied models, where the network adds that of the matrix. The
    other copy is written for readers that expect it.
    """
    assert isinstance(config.head, LanguageHead)
    theirs, ours, copy = f"{at}.bias", "head.output.bias", f"{at}.decoder.bias"
    both = Rule((copy, theirs), (ours,), lambda t: [t[0]], lambda t: [t[0], t[0].clone()])
    biases = (rename(theirs, ours), tie(copy, ours)) if config.head.tied else (both, rename(theirs, ours))
    return output_matrix(f"{at}.decoder.weight", config, TABLE), *biases, *renames(at, "head", names)


def no_pooler(name: str) -> Rule:
    """Leaves out the checkpoint's pooler, because the head reads the states themselves."""
    return leave_out(f"{name}.{{p}}", because="this head reads the states, not the pooled one")


def classifier_dropout(theirs: str = "classifier_dropout") -> Field:
    """The dropout before a classifier, by default the network's."""
    return computed(
        theirs,
        "head.dropout",
        read=lambda share, values: values["hidden_dropout_prob"] if share is None else share,
        default=None,
    )


def bert_bare(architecture: str) -> HeadMap:
    """No head. The checkpoint's tensors decide whether there is a pooler, since no config states it."""
    return bare(architecture, pooler_rules, presence={"head.pooler": "pooler.dense.weight"})


def bert_tagging(architecture: str, prefix: str, dropout: Field | None = None) -> HeadMap:
    """The head that predicts a class for each token. `dropout` is the field of its dropout."""
    return tags(architecture, prefix, dropout or classifier_dropout(), others=(no_pooler(f"{prefix}pooler.dense"),))


# --- this one ----------------------------------------------------------------------------------------------------


def bert_heads(name: str, prefix: str = "bert.", dropout: Field | None = None) -> tuple[HeadMap, ...]:
    """The classes of one name. `dropout` is the field of that before their outputs."""
    dropout, pooler = dropout or classifier_dropout(), f"{prefix}pooler.dense"

    def words(config: ModelConfig) -> Sequence[Rule]:
        return (
            *words_rules(config, "cls.predictions", {"transform.dense": "dense", "transform.LayerNorm": "norm"}),
            leave_out("cls.seq_relationship.{p}", because="no head here tells whether two sentences follow"),
            no_pooler(pooler),
        )

    return (
        encoder_language(f"{name}ForMaskedLM", prefix, words, also=(f"{name}ForPreTraining",)),
        bert_bare(f"{name}Model"),
        encoder_classifier(f"{name}ForSequenceClassification", prefix, dropout, pooler=pooler),
        bert_tagging(f"{name}ForTokenClassification", prefix, dropout),
        span(f"{name}ForQuestionAnswering", no_pooler(pooler), prefix=prefix),
    )


BERT = Family(
    model_type="bert",
    constants=POST_NORM,
    fields=encoder_fields(vocab_size=30_522, max_position_embeddings=512),
    rules=bert_rules,
    heads=bert_heads("Bert"),
)


# --- DistilBERT (Sanh et al. 2019) ---------------------------------------------------------------------------------


def distilbert_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    block = {
        "attention.q_lin": "attn.q",
        "attention.k_lin": "attn.k",
        "attention.v_lin": "attn.v",
        "attention.out_lin": "attn.out",
        "sa_layer_norm": "attn_norm",
        "ffn.lin1": "ffn.up",
        "ffn.lin2": "ffn.down",
        "output_layer_norm": "ffn_norm",
    }
    return *modules("encoder", "transformer.layer.{i}", EMBEDDINGS | block), UNREAD


def distilbert_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    return (
        output_matrix("vocab_projector.weight", config, TABLE),
        rename("vocab_projector.bias", "head.output.bias"),
        *renames("", "head", {"vocab_transform": "dense", "vocab_layer_norm": "norm"}),
    )


DISTILBERT = Family(
    model_type="distilbert",
    constants=POST_NORM | {"encoder.norm_eps": 1e-12},
    fields=(
        *sizes(
            "encoder",
            vocab_size=30_522,
            max_position_embeddings=512,
            dim=768,
            n_layers=6,
            n_heads=12,
            hidden_dim=3072,
            activation="gelu",
            initializer_range=0.02,
            # In the reference library it does not act on what attention adds to the residual stream.
            dropout=0.1,
            attention_dropout=0.1,
        ),
        # The first decides how the position table is drawn. A checkpoint has the table itself.
        ignored("sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout", "output_past", "tie_weights_"),
    ),
    rules=distilbert_rules,
    heads=(
        encoder_language("DistilBertForMaskedLM", "distilbert.", distilbert_language_rules),
        bare("DistilBertModel"),
        encoder_classifier(
            "DistilBertForSequenceClassification",
            "distilbert.",
            same("seq_classif_dropout", "head.dropout", default=0.2),
            pooler="pre_classifier",
            activation="relu",
        ),
        # Its dropout is that of the network.
        tags("DistilBertForTokenClassification", "distilbert.", same("dropout", "head.dropout", default=0.1)),
        span(
            "DistilBertForQuestionAnswering",
            prefix="distilbert.",
            fields=(same("qa_dropout", "head.dropout", default=0.1),),
        ),
    ),
)


# --- ALBERT (Lan et al. 2019) --------------------------------------------------------------------------------------


def albert_rules(config: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the dense layer to the width of the network, and the first block of each group."""
    stack = config.output
    block = {
        "attention.query": "attn.q",
        "attention.key": "attn.k",
        "attention.value": "attn.v",
        "attention.dense": "attn.out",
        "attention.LayerNorm": "attn_norm",
        "ffn": "ffn.up",
        "ffn_output": "ffn.down",
        "full_layer_layer_norm": "ffn_norm",
    }
    found = [*modules("encoder", "", {"encoder.embedding_hidden_mapping_in": "embed.project", **EMBEDDINGS})]
    for group in range(stack.n_layers // stack.repeats):
        theirs = f"encoder.albert_layer_groups.{group}.albert_layers.0"
        found += renames(theirs, f"encoder.blocks.{group * stack.repeats}", block)
    return found


def albert_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, whose dense layer leads back to the width of the tables."""
    return (
        *words_rules(config, "predictions", {"dense": "dense", "LayerNorm": "norm"}),
        leave_out("sop_classifier.classifier.{p}", because="no head here tells which of two sentences is first"),
        no_pooler("albert.pooler"),
    )


DROPOUT = same("classifier_dropout_prob", "head.dropout", default=0.1)
ALBERT = Family(
    model_type="albert",
    constants=POST_NORM,
    fields=(
        *encoder_fields(
            vocab_size=30_000,
            max_position_embeddings=512,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16_384,
            hidden_act="gelu_new",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        same("embedding_size", "encoder.input.width", default=128),
        same("num_hidden_groups", "encoder.n_groups", default=1),
        ignored("classifier_dropout_prob", "net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"),
        # Several different blocks that repeat together.
        Only("inner_group_num", 1),
    ),
    rules=albert_rules,
    heads=(
        encoder_language("AlbertForMaskedLM", "albert.", albert_language_rules, also=("AlbertForPreTraining",)),
        bare("AlbertModel", names={"pooler": "pooler"}, presence={"head.pooler": "pooler.weight"}),
        encoder_classifier("AlbertForSequenceClassification", "albert.", DROPOUT, pooler="albert.pooler"),
        tags("AlbertForTokenClassification", "albert.", DROPOUT, others=(no_pooler("albert.pooler"),)),
        span("AlbertForQuestionAnswering", no_pooler("albert.pooler"), prefix="albert."),
    ),
)
