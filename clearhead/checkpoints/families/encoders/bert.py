"""The encoder of Devlin et al. 2018, and what RoBERTa shares with it: tensors, and heads on the first state."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders import encoder_heads
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import encoder_sizes, output_matrix, pooler_rules, span
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, tie
from clearhead.config import Init, LanguageHead, Learned, ModelConfig, StackConfig, TokenInput

PRESETS = {
    "bert-base": ModelConfig(
        encoder=StackConfig(
            input=TokenInput(vocab_size=30_522, n_types=2, norm=True),
            d_model=768,
            n_layers=12,
            n_heads=12,
            d_ff=3072,
            positions=Learned(max_length=512),
            norm_place="post",
            norm_eps=1e-12,
            activation="gelu",
            dropout=0.1,
            attn_dropout=0.1,
        ),
        head=LanguageHead(tied=True, bias=True, transform=True),
        init=Init(depth_scaled=False),
    )
}

# --- what RoBERTa shares -----------------------------------------------------------------------------------------

CONSTANTS = {
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


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    theirs, ours = "encoder.layer.{i}", "encoder.blocks.{i}"
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        rename(f"{theirs}.attention.self.query.{{p}}", f"{ours}.attn.q.{{p}}"),
        rename(f"{theirs}.attention.self.key.{{p}}", f"{ours}.attn.k.{{p}}"),
        rename(f"{theirs}.attention.self.value.{{p}}", f"{ours}.attn.v.{{p}}"),
        rename(f"{theirs}.attention.output.dense.{{p}}", f"{ours}.attn.out.{{p}}"),
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


def no_pooler(prefix: str) -> Rule:
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


def bare(architecture: str) -> HeadMap:
    """No head. The checkpoint's tensors decide whether there is a pooler, since no config states it."""
    return HeadMap(architecture, {"head.kind": "none"}, pooler_rules, presence={"head.pooler": "pooler.dense.weight"})


def tagging(architecture: str, prefix: str, dropout: Field | None = None) -> HeadMap:
    """The head that predicts a class for each token. `dropout` is the field of its dropout."""
    return encoder_heads.tagging(architecture, prefix, dropout or classifier_dropout(), no_pooler(prefix))


# --- this one ----------------------------------------------------------------------------------------------------


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    theirs = "cls.predictions"
    return (
        output_matrix(f"{theirs}.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias(f"{theirs}.bias", f"{theirs}.decoder.bias", tied=config.head.tied),
        rename(f"{theirs}.transform.dense.{{p}}", "head.dense.{p}"),
        *norm(f"{theirs}.transform.LayerNorm", "head.norm"),
        leave_out("cls.seq_relationship.{p}", because="no head here tells whether two sentences follow"),
        no_pooler("bert."),
    )


HEADS = (
    encoder_heads.language("BertForMaskedLM", "bert.", language_rules, also=("BertForPreTraining",)),
    bare("BertModel"),
    encoder_heads.classifier(
        "BertForSequenceClassification", "bert.", classifier_dropout(), pooler="bert.pooler.dense"
    ),
    tagging("BertForTokenClassification", "bert."),
    span("BertForQuestionAnswering", no_pooler("bert."), prefix="bert."),
)

FAMILY = Family(
    model_type="bert",
    constants=CONSTANTS,
    fields=(
        *encoder_fields(30_522),
        same("max_position_embeddings", "encoder.positions.max_length", default=512),
    ),
    rules=rules,
    heads=HEADS,
)
