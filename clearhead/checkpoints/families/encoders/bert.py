"""BERT, DistilBERT and ALBERT, and what other encoders share with BERT."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    encoder_classifier,
    encoder_language,
    encoder_sizes,
    encoder_tagging,
    output_matrix,
    pooler_rules,
    span,
    with_defaults,
)
from clearhead.checkpoints.weights.fields import Alias, Field, FieldRule, Only, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, renames, tie
from clearhead.config import LanguageHead, ModelConfig

# --- what RoBERTa shares -----------------------------------------------------------------------------------------

POST_NORM = {
    "encoder.input.kind": "tokens",
    "encoder.input.norm": True,
    "encoder.positions.kind": "learned",
    "encoder.norm_place": "post",
    "init.depth_scaled": False,
}


def encoder_fields(vocab_size: int) -> tuple[FieldRule, ...]:
    """All fields except the positions."""
    return (
        same("vocab_size", "encoder.input.vocab_size", default=vocab_size),
        same("type_vocab_size", "encoder.input.n_types", default=2),
        *encoder_sizes(dropout=0.1),
        Only("position_embedding_type", "absolute"),
        ignored("use_bfloat16", "embedding_size"),
        # Notes by the checkpoint's authors, and settings of other programs.
        ignored("directionality", "language", "name", "pooler_fc_size", "pooler_num_*", "pooler_size_per_head"),
        ignored("pooler_type", "sentence_transformers", "sbert_ce_default_activation_function"),
    )


def norm(theirs: str, ours: str) -> tuple[Rule, ...]:
    """A norm. Older checkpoints call its weight and bias gamma and beta."""
    names = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
    return tuple(rename(f"{theirs}.{old}", f"{ours}.{new}") for old, new in names.items())


def bert_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    theirs, ours = "encoder.layer.{i}", "encoder.blocks.{i}"
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        *renames(
            theirs,
            ours,
            {
                "attention.self.query": "attn.q",
                "attention.self.key": "attn.k",
                "attention.self.value": "attn.v",
                "attention.output.dense": "attn.out",
            },
        ),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.attn_norm"),
        rename(f"{theirs}.intermediate.dense.{{p}}", f"{ours}.ffn.up.{{p}}"),
        rename(f"{theirs}.output.dense.{{p}}", f"{ours}.ffn.down.{{p}}"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}.ffn_norm"),
        ignore("embeddings.position_ids", "embeddings.token_type_ids"),
    )


def output_bias(theirs: str, decoder: str, *, tied: bool) -> tuple[Rule, ...]:
    """The bias over the vocabulary, which is stored twice. The two copies differ only in untied models."""
    ours = "head.output.bias"
    if tied:
        return rename(theirs, ours), tie(decoder, ours)
    # The network adds the decoder's own bias. The other copy is written for readers that expect it.
    both = Rule((decoder, theirs), (ours,), lambda t: [t[0]], lambda t: [t[0], t[0].clone()])
    return both, rename(theirs, ours)


def bert_no_pooler(prefix: str) -> Rule:
    """Leaves out the checkpoint's pooler, because the head reads the states themselves."""
    return leave_out(f"{prefix}pooler.dense.{{p}}", because="this head reads the states, not the pooled one")


def classifier_dropout(theirs: str = "classifier_dropout") -> Field:
    """The dropout before a classifier, which defaults to that of the network."""
    return computed(
        theirs,
        "head.dropout",
        read=lambda share, values: values["hidden_dropout_prob"] if share is None else share,
        default=None,
    )


def bert_bare(architecture: str) -> HeadMap:
    """No head. The checkpoint's tensors decide whether there is a pooler, since no config states it."""
    return HeadMap(architecture, {"head.kind": "none"}, pooler_rules, presence={"head.pooler": "pooler.dense.weight"})


def bert_tagging(architecture: str, prefix: str, dropout: Field | None = None) -> HeadMap:
    """The head that predicts a class for each token. `dropout` is the field of its dropout."""
    return encoder_tagging(architecture, prefix, dropout or classifier_dropout(), bert_no_pooler(prefix))


# --- this one ----------------------------------------------------------------------------------------------------


def bert_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    theirs = "cls.predictions"
    return (
        output_matrix(f"{theirs}.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias(f"{theirs}.bias", f"{theirs}.decoder.bias", tied=config.head.tied),
        rename(f"{theirs}.transform.dense.{{p}}", "head.dense.{p}"),
        *norm(f"{theirs}.transform.LayerNorm", "head.norm"),
        leave_out("cls.seq_relationship.{p}", because="no head here tells whether two sentences follow"),
        bert_no_pooler("bert."),
    )


BERT_HEADS = (
    encoder_language("BertForMaskedLM", "bert.", bert_language_rules, also=("BertForPreTraining",)),
    bert_bare("BertModel"),
    encoder_classifier("BertForSequenceClassification", "bert.", classifier_dropout(), pooler="bert.pooler.dense"),
    bert_tagging("BertForTokenClassification", "bert."),
    span("BertForQuestionAnswering", bert_no_pooler("bert."), prefix="bert."),
)

BERT = Family(
    model_type="bert",
    constants=POST_NORM,
    fields=(
        *encoder_fields(30_522),
        same("max_position_embeddings", "encoder.positions.max_length", default=512),
    ),
    rules=bert_rules,
    heads=BERT_HEADS,
)


# --- DistilBERT (Sanh et al. 2019) ---------------------------------------------------------------------------------

DISTILBERT_PREFIX = "distilbert."

DISTILBERT_FIELDS = (
    same("vocab_size", "encoder.input.vocab_size", default=30_522),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    same("dim", "encoder.d_model", default=768),
    same("n_layers", "encoder.n_layers", default=6),
    same("n_heads", "encoder.n_heads", default=12),
    same("hidden_dim", "encoder.d_ff", default=3072),
    named("activation", "encoder.activation", names=ACTIVATIONS, default="gelu"),
    same("initializer_range", "init.std", default=0.02),
    # In the reference library it does not act on what attention adds to the residual stream.
    same("dropout", "encoder.dropout", default=0.1),
    same("attention_dropout", "encoder.attn_dropout", default=0.1),
    Alias("hidden_size", of="dim"),
    Alias("num_attention_heads", of="n_heads"),
    Alias("num_hidden_layers", of="n_layers"),
    # It decides how the position table is drawn. A checkpoint has the table itself.
    ignored("sinusoidal_pos_embds"),
    ignored("qa_dropout", "seq_classif_dropout", "output_past", "tie_weights_"),
)


def distilbert_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    theirs, ours = "transformer.layer.{i}", "encoder.blocks.{i}"
    parts = {
        **{f"attention.{n}_lin": f"attn.{n}" for n in "qkv"},
        "attention.out_lin": "attn.out",
        "sa_layer_norm": "attn_norm",
        "ffn.lin1": "ffn.up",
        "ffn.lin2": "ffn.down",
        "output_layer_norm": "ffn_norm",
    }
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.LayerNorm.{p}", "encoder.embed.norm.{p}"),
        *renames(theirs, ours, parts),
        ignore("embeddings.position_ids"),
    )


def distilbert_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("vocab_projector.weight", config, "encoder.embed.tokens.weight"),
        rename("vocab_projector.bias", "head.output.bias"),
        rename("vocab_transform.{p}", "head.dense.{p}"),
        rename("vocab_layer_norm.{p}", "head.norm.{p}"),
    )


DISTILBERT_HEADS = (
    encoder_language("DistilBertForMaskedLM", DISTILBERT_PREFIX, distilbert_language_rules),
    HeadMap("DistilBertModel", {"head.kind": "none"}),
    encoder_classifier(
        "DistilBertForSequenceClassification",
        DISTILBERT_PREFIX,
        same("seq_classif_dropout", "head.dropout", default=0.2),
        pooler="pre_classifier",
        activation="relu",
    ),
    # Its dropout is that of the network.
    encoder_tagging(
        "DistilBertForTokenClassification", DISTILBERT_PREFIX, same("dropout", "head.dropout", default=0.1)
    ),
    span(
        "DistilBertForQuestionAnswering",
        prefix=DISTILBERT_PREFIX,
        fields=(same("qa_dropout", "head.dropout", default=0.1),),
    ),
)

DISTILBERT = Family(
    model_type="distilbert",
    constants=POST_NORM | {"encoder.norm_eps": 1e-12},
    fields=DISTILBERT_FIELDS,
    rules=distilbert_rules,
    heads=DISTILBERT_HEADS,
)


# --- ALBERT (Lan et al. 2019) --------------------------------------------------------------------------------------

ALBERT_PREFIX = "albert."
PARTS = {
    **{f"attention.{name}": f"attn.{name[0]}" for name in ("query", "key", "value")},
    "attention.dense": "attn.out",
    "ffn": "ffn.up",
    "ffn_output": "ffn.down",
}
NORMS = {"attention.LayerNorm": "attn_norm", "full_layer_layer_norm": "ffn_norm"}

ALBERT_FIELDS = (
    *with_defaults(
        encoder_fields(30_000),
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16_384,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    same("embedding_size", "encoder.input.width", default=128),
    same("num_hidden_groups", "encoder.n_groups", default=1),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    ignored("classifier_dropout_prob", "net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"),
    # Several different blocks that repeat together.
    Only("inner_group_num", 1),
)


def albert_rules(config: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the dense layer to the width of the network, and the first block of each group."""
    stack = config.output
    found: list[Rule] = [
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        rename("encoder.embedding_hidden_mapping_in.{p}", "encoder.embed.project.{p}"),
    ]
    for group in range(stack.n_layers // stack.repeats):
        theirs = f"encoder.albert_layer_groups.{group}.albert_layers.0"
        ours = f"encoder.blocks.{group * stack.repeats}"
        found += [rename(f"{theirs}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in PARTS.items()]
        for there, here in NORMS.items():
            found += norm(f"{theirs}.{there}", f"{ours}.{here}")
    return found


def albert_no_pooler(prefix: str) -> Rule:
    """Leaves out the checkpoint's pooler."""
    return leave_out(f"{prefix}pooler.{{p}}", because="this head reads the states, not the pooled one")


def albert_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, whose dense layer leads back to the width of the tables."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("predictions.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias("predictions.bias", "predictions.decoder.bias", tied=config.head.tied),
        rename("predictions.dense.{p}", "head.dense.{p}"),
        *norm("predictions.LayerNorm", "head.norm"),
        leave_out("sop_classifier.classifier.{p}", because="no head here tells which of two sentences is first"),
        albert_no_pooler(ALBERT_PREFIX),
    )


DROPOUT = same("classifier_dropout_prob", "head.dropout", default=0.1)
ALBERT_HEADS = (
    encoder_language("AlbertForMaskedLM", ALBERT_PREFIX, albert_language_rules, also=("AlbertForPreTraining",)),
    HeadMap(
        "AlbertModel",
        {"head.kind": "none"},
        lambda _: (rename("pooler.{p}", "head.pooler.{p}"),),
        presence={"head.pooler": "pooler.weight"},
    ),
    encoder_classifier("AlbertForSequenceClassification", ALBERT_PREFIX, DROPOUT, pooler="albert.pooler"),
    encoder_tagging("AlbertForTokenClassification", ALBERT_PREFIX, DROPOUT, albert_no_pooler(ALBERT_PREFIX)),
    span("AlbertForQuestionAnswering", albert_no_pooler(ALBERT_PREFIX), prefix=ALBERT_PREFIX),
)

ALBERT = Family(model_type="albert", constants=POST_NORM, fields=ALBERT_FIELDS, rules=albert_rules, heads=ALBERT_HEADS)
