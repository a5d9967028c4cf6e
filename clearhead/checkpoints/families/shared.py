"""What several families share: names of activations, labels, layers with a window, and heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.family import Document, HeadMap, Rules
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, FieldRule, Values, computed, extra, implied, named, same
from clearhead.checkpoints.weights.mapping import Rule, rename, tie
from clearhead.config import LanguageHead, ModelConfig, NoHead
from clearhead.errors import UserError

FULL, LOCAL = "full_attention", "sliding_attention"
"""Their names for a layer that sees all keys and for one with a window."""
MOST_LAYERS = 1024
"""Upper limit on the length of lists with an item for each layer."""
MOST_LABELS = 1 << 20
"""Upper limit on the number of labels."""
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu2": "squared_relu",
    "quick_gelu": "quick_gelu",
}
"""Their names -> ours. If several map to one, the first is written."""

SENTENCE_SETTINGS = "sentence_bert_config.json"
"""The file of settings for reading texts that sentence-transformers writes, whatever the family."""
SENTENCE_FILES = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The names under which it reads such a file. Which one it has changes nothing."""


def labels(default: int = 2) -> tuple[Field, ...]:
    """id2label and num_labels -> the number of labels, and their names unless these are just numbers.

    As in the reference library, label2id has no effect, and a num_labels that contradicts id2label makes new names.
    """

    def numbered(n: int) -> list[str]:
        return [f"LABEL_{i}" for i in range(n)]

    def names(values: Values) -> list[str]:
        id2label, n = values["id2label"], values["num_labels"]
        if id2label is None:
            return numbered(default if n is None else n)
        by_id = {int(key): name for key, name in id2label.items()}
        if sorted(by_id) != [*range(len(id2label))]:
            raise UserError(f"expected a name for each number from 0 to {len(id2label) - 1}, got {short(id2label)}")
        if not all(isinstance(name, str) for name in by_id.values()):
            raise UserError(f"expected a name for each number, got {short(id2label)}")
        return [by_id[i] for i in range(len(by_id))] if n in (None, len(by_id)) else numbered(n)

    def called(values: Values) -> list[str]:
        found = names(values)
        return [] if found == numbered(len(found)) else found

    def written(head: Values) -> list[str]:
        return list(head["labels"]) or numbered(head["n_labels"])

    def id2label(_: Any, ours: Values) -> dict[str, str]:
        return {str(i): name for i, name in enumerate(written(ours["head"]))}

    def label2id(_: Any, ours: Values) -> dict[str, int]:
        return {name: i for i, name in enumerate(written(ours["head"]))}

    return (
        computed(
            "id2label", "head.n_labels", read=lambda _, said: len(names(said)), write=id2label, default=None, like={}
        ),
        computed("label2id", "head.labels", read=lambda _, said: called(said), write=label2id, default=None, like={}),
        replace(computed("num_labels", read=_count, write=lambda *_: None, default=None), extra=True),
    )


def _count(n: int | None, _: Values) -> None:
    if n is not None and (type(n) is not int or not 0 < n <= MOST_LABELS):
        raise UserError(f"expected a whole number from 1 to {MOST_LABELS}, got {short(n)}")


def problem_type() -> Field:
    """The kind of a classifier's outputs: one class, several classes or numbers."""
    return extra("problem_type", "head.problem_type", default=None)


def head_width() -> Field:
    """head_dim, which no config class here defines but their code reads. It must follow from the other fields."""
    width = implied(
        "head_dim",
        lambda theirs: theirs["hidden_size"] // (theirs["num_attention_heads"] or 1),
        write=lambda _: None,
        what="which is hidden_size / num_attention_heads",
    )
    return replace(width, extra=True)


def tagging_dropout() -> Field:
    """The dropout of a decoder's tagging head, which no config class defines but any config may set."""
    return computed(
        "classifier_dropout", "head.dropout", read=lambda share, _: 0.1 if share is None else share, default=None
    )


def four_times(theirs: str, width: str) -> Field:
    """The width of a decoder's feed-forward layer, by default four times the field `width`."""
    return computed(
        theirs,
        "decoder.d_ff",
        read=lambda said, values: 4 * values[width] if said is None else said,
        default=None,
    )


def with_defaults(fields: Sequence[FieldRule], **defaults: Any) -> tuple[FieldRule, ...]:
    """The same fields with other values for those that a config leaves out."""
    return tuple(
        replace(field, default=defaults[field.theirs])
        if isinstance(field, Field) and field.theirs in defaults
        else field
        for field in fields
    )


def encoder_sizes(*, dropout: float) -> tuple[FieldRule, ...]:
    """The fields of an encoder of the base size, under the names that Devlin et al. gave them."""
    return (
        same("hidden_size", "encoder.d_model", default=768),
        same("num_hidden_layers", "encoder.n_layers", default=12),
        same("num_attention_heads", "encoder.n_heads", default=12),
        same("intermediate_size", "encoder.d_ff", default=3072),
        named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu"),
        same("layer_norm_eps", "encoder.norm_eps", default=1e-12),
        same("initializer_range", "init.std", default=0.02),
        same("hidden_dropout_prob", "encoder.dropout", default=dropout),
        same("attention_probs_dropout_prob", "encoder.attn_dropout", default=dropout),
    )


# --- layers with a window ------------------------------------------------------------------------------------------


def local_layers(kinds: Sequence[str], n_layers: int) -> list[int]:
    """The layers that `layer_types` gives a window."""
    if len(kinds) != min(n_layers, MOST_LAYERS) or not {*kinds} <= {FULL, LOCAL}:
        raise UserError(f"expected {FULL} or {LOCAL} for each of num_hidden_layers={n_layers}, got {short(kinds)}")
    return [i for i, kind in enumerate(kinds) if kind == LOCAL]


def window_layers(local: list[int], n_layers: int) -> list[int] | None:
    """Our `window_layers`: None if all layers or none have a window."""
    return local if 0 < len(local) < n_layers else None


def windowed(stack: Values) -> Sequence[int]:
    """The layers of our stack that have a window."""
    return stack["window_layers"] or range(stack["n_layers"] if stack["window"] else 0)


def layer_types(stack: Values) -> list[str]:
    """`layer_types` of our stack."""
    local = windowed(stack)
    return [LOCAL if i in local else FULL for i in range(stack["n_layers"])]


def by_layer_types(ours: str, read: Callable[[Any, Values], Any]) -> Field:
    """Our field `ours` of a decoder, such as window_layers, which `layer_types` decides."""
    return computed(
        "layer_types",
        f"decoder.{ours}",
        read=read,
        write=lambda _, config: layer_types(config["decoder"]),
        default=None,
    )


# --- heads -----------------------------------------------------------------------------------------------------------


def output_matrix(theirs: str, config: ModelConfig, table: str) -> Rule:
    """A language head's matrix, tied to the token table or separate."""
    assert isinstance(config.head, LanguageHead)
    return tie(theirs, table) if config.head.tied else rename(theirs, "head.output.weight")


def span(architecture: str, *others: Rule, prefix: str, fields: tuple[FieldRule, ...] = ()) -> HeadMap:
    """The head that predicts where an answer starts and ends. `others` are further rules."""
    rules = (rename("qa_outputs.{p}", "head.output.{p}"), *others)
    return HeadMap(architecture, {"head.kind": "span"}, lambda _: rules, fields, prefix=prefix)


def last_token_classifier(architecture: str, prefix: str) -> HeadMap:
    """A decoder's classifier, which reads the last token's state."""
    return HeadMap(
        architecture,
        {"head.kind": "classification", "head.pool": "last", "head.bias": False},
        lambda _: (rename("score.weight", "head.output.weight"),),
        (*labels(), problem_type()),
        prefix=prefix,
    )


def end_token_classifier(
    architecture: str, constants: Document, fields: tuple[FieldRule, ...], *, prefix: str
) -> HeadMap:
    """An encoder-decoder's classifier. The decoder reads the shifted text again; its last state stands for the text."""
    return HeadMap(
        architecture,
        {**constants, "head.kind": "classification", "head.pool": "last", "head.pooler": True},
        lambda _: (
            rename("classification_head.dense.{p}", "head.pooler.{p}"),
            rename("classification_head.out_proj.{p}", "head.output.{p}"),
        ),
        (problem_type(), same("classifier_dropout", "head.dropout", default=0.0), *fields),
        prefix=prefix,
    )


def pooler_rules(config: ModelConfig) -> Sequence[Rule]:
    """The pooler of a model without a head, if it has one."""
    assert isinstance(config.head, NoHead)
    return (rename("pooler.dense.{p}", "head.pooler.{p}"),) if config.head.pooler else ()


# --- heads of decoders whose names and biases differ from Llama's --------------------------------------------------


def decoder_language(
    architecture: str,
    prefix: str,
    *fields: FieldRule,
    tied: bool = True,
    bias: bool = False,
    older: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> HeadMap:
    """Words. `older` are further names of the output matrix, and `fields` the head's own."""

    def rules(config: ModelConfig) -> Sequence[Rule]:
        names = ("lm_head", *older)
        matrices = [output_matrix(f"{name}.weight", config, "decoder.embed.tokens.weight") for name in names]
        return (*matrices, rename("lm_head.bias", "head.output.bias")) if bias else matrices

    return HeadMap(
        architecture,
        {"head.kind": "language", "head.bias": bias},
        rules,
        (same("tie_word_embeddings", "head.tied", default=tied), *fields),
        prefix=prefix,
        also=also,
    )


def tags(architecture: str, prefix: str, dropout: FieldRule | None = None) -> HeadMap:
    """Tags, with a bias."""
    return HeadMap(
        architecture,
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        (*labels(), dropout or tagging_dropout()),
        prefix=prefix,
    )


def decoder_heads(
    name: str, prefix: str, kinds: str = "bare class tags span", dropout: FieldRule | None = None
) -> list[HeadMap]:
    """The heads besides the language head, of the kinds that a family has."""
    made = {
        "bare": HeadMap(f"{name}Model", {"head.kind": "none"}),
        "class": last_token_classifier(f"{name}ForSequenceClassification", prefix),
        "tags": tags(f"{name}ForTokenClassification", prefix, dropout),
        "span": span(f"{name}ForQuestionAnswering", prefix=prefix),
    }
    return [made[kind] for kind in kinds.split()]


# --- heads of encoders of text -------------------------------------------------------------------------------------


def encoder_language(
    architecture: str, prefix: str, rules: Rules, *fields: FieldRule, also: tuple[str, ...] = ()
) -> HeadMap:
    """Masked words: a dense layer with a norm, then the matrix over the vocabulary with a bias."""
    return HeadMap(
        architecture,
        {"head.kind": "language", "head.bias": True, "head.transform": True},
        rules,
        (same("tie_word_embeddings", "head.tied", default=True), *fields),
        prefix=prefix,
        also=also,
    )


def encoder_classifier(
    architecture: str,
    prefix: str,
    *fields: FieldRule,
    pooler: str,
    output: str = "classifier",
    activation: str | None = None,
    others: tuple[Rule, ...] = (),
) -> HeadMap:
    """A class of the text. `pooler` and `output` are the names of its dense layer and its matrix.

    `fields` are those besides the labels, `others` further rules.
    """
    rules = (rename(f"{pooler}.{{p}}", "head.pooler.{p}"), rename(f"{output}.{{p}}", "head.output.{p}"), *others)
    constants: dict[str, object] = {"head.kind": "classification", "head.pooler": True}
    return HeadMap(
        architecture,
        constants if activation is None else constants | {"head.pooler_activation": activation},
        lambda _: rules,
        (*labels(), problem_type(), *fields),
        prefix=prefix,
    )


def encoder_tagging(architecture: str, prefix: str, dropout: FieldRule, *others: Rule) -> HeadMap:
    """A class of each token. `dropout` is the field of the head's dropout, `others` are further rules."""
    rules = (rename("classifier.{p}", "head.output.{p}"), *others)
    return HeadMap(architecture, {"head.kind": "tagging"}, lambda _: rules, (*labels(), dropout), prefix=prefix)


# --- a decoder's tables turned into those of an encoder with the same blocks ---------------------------------------


def _moved(path: str) -> str:
    return f"encoder.{path.removeprefix('decoder.')}" if path.startswith("decoder.") else path


def encoding(fields: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    """The same fields, which set those of the encoder."""

    def writer(write: Callable[[Any, Values], Any]) -> Callable[[Any, Values], Any]:
        return lambda value, ours: write(value, {**ours, "decoder": ours["encoder"]})

    return tuple(
        replace(field, ours=tuple(map(_moved, field.ours)), write=writer(field.write))
        if isinstance(field, Field)
        else field
        for field in fields
    )


def encoding_rules(rules: Rules) -> Callable[[ModelConfig], Sequence[Rule]]:
    """The same weight table, which fills the encoder."""
    return lambda config: [replace(rule, ours=tuple(map(_moved, rule.ours))) for rule in rules(config)]


def encoding_constants(constants: Document) -> Document:
    """The same settings, those of the encoder."""
    return {_moved(path): value for path, value in constants.items()}
