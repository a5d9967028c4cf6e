"""What several families share: names of fields and activations, labels, layers with a window, and heads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.family import Document, HeadMap, Rules
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRule,
    FieldRules,
    Values,
    computed,
    extra,
    implied,
    inherited,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, leave_out, paired, rename, sides, tie
from clearhead.config import LanguageHead, ModelConfig, NoHead, Rotary
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

PICTURES, SOUNDS = "what reads pictures", "what reads sounds"
LETTERS = "abcdefghijkl"
"""Fields for the parts of the longest name of a tensor that is left out."""

SENTENCE_SETTINGS = "sentence_bert_config.json"
"""The file of settings for reading texts that sentence-transformers writes, whatever the family."""
SENTENCE_FILES = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The names under which it reads such a file. Which one it has changes nothing."""

# --- fields that most families have, by their names there ----------------------------------------------------------

NAMES = {
    "input.vocab_size": ("vocab_size",),
    "input.n_types": ("type_vocab_size",),
    "positions.max_length": ("max_position_embeddings", "n_positions"),
    "d_model": ("hidden_size", "d_model", "n_embd", "dim"),
    "n_layers": ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    "n_heads": ("num_attention_heads", "attention_heads", "num_heads", "n_heads", "n_head"),
    "d_ff": ("intermediate_size", "ffn_dim", "hidden_dim"),
    "activation": ("hidden_act", "hidden_activation", "activation", "activation_function"),
    "norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_epsilon", "norm_eps"),
    "dropout": (
        *("dropout", "hidden_dropout", "hidden_dropout_prob"),
        *("resid_pdrop", "resid_dropout", "residual_dropout"),
    ),
    "embed_dropout": ("embd_pdrop", "embed_dropout", "embedding_dropout", "emb_dropout_prob"),
    "attn_dropout": ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "attn_dropout_prob"),
    "ffn_dropout": ("activation_dropout", "mlp_dropout"),
    "init.std": ("initializer_range", "init_std"),
}
"""Our settings of a stack -> their names in the configs of families, the most usual one first."""
OURS = {name: ours for ours, names in NAMES.items() for name in names}
READ_AS_USUAL = ("positions.max_length", "d_model", "n_layers", "n_heads")
"""Settings that a config may give under the usual name, too."""


def sizes(*stacks: str, **defaults: JsonValue) -> FieldRules:
    """Fields by their names there, with their defaults: settings of these stacks as NAMES says."""

    def entry(theirs: str, ours: str, default: JsonValue) -> Field:
        paths = [ours] if ours.startswith("init.") else [f"{stack}.{ours}" for stack in stacks]
        match ours:
            case "activation":
                return named(theirs, *paths, names=ACTIVATIONS, default=default)
            case "embed_dropout":
                return inherited(theirs, *paths, of="dropout", default=default)
            case _:
                return same(theirs, *paths, default=default)

    usual = {theirs: NAMES[OURS[theirs]][0] for theirs in defaults if OURS[theirs] in READ_AS_USUAL}
    return (
        *(entry(theirs, OURS[theirs], default) for theirs, default in defaults.items()),
        *(Alias(name, of=theirs) for theirs, name in usual.items() if name != theirs),
    )


def encoder_sizes(**defaults: JsonValue) -> FieldRules:
    """The fields of an encoder of the base size, under the names that Devlin et al. gave them."""
    base: dict[str, JsonValue] = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    return sizes("encoder", **{**base, **defaults})


def bias(theirs: str, *parts: str, default: bool = False, stack: str = "decoder") -> Field:
    """The field that says whether these parts of a stack have biases."""
    return inherited(theirs, *(f"{stack}.{part}_bias" for part in parts), of="bias", default=default)


def without(fields: Sequence[FieldRule], *names: str) -> FieldRules:
    """All entries except these names."""
    return tuple(entry for entry in fields if entry.theirs not in names)


def with_defaults(fields: Sequence[FieldRule], **defaults: Any) -> FieldRules:
    """The same fields with other values for those that a config leaves out."""
    return tuple(
        replace(field, default=defaults[field.theirs])
        if isinstance(field, Field) and field.theirs in defaults
        else field
        for field in fields
    )


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
        if sorted(by_id) != [*range(len(id2label))] or not all(isinstance(name, str) for name in by_id.values()):
            raise UserError(f"expected a name for each number from 0 to {len(id2label) - 1}, got {short(id2label)}")
        return [by_id[i] for i in range(len(by_id))] if n in (None, len(by_id)) else numbered(n)

    def called(_: Any, values: Values) -> list[str]:
        found = names(values)
        return [] if found == numbered(len(found)) else found

    def written(ours: Values) -> list[str]:
        head = ours["head"]
        return head["labels"] or numbered(head["n_labels"])

    def id2label(_: Any, ours: Values) -> dict[str, str]:
        return {str(i): name for i, name in enumerate(written(ours))}

    def label2id(_: Any, ours: Values) -> dict[str, int]:
        return {name: i for i, name in enumerate(written(ours))}

    return (
        computed(
            "id2label", "head.n_labels", read=lambda _, said: len(names(said)), write=id2label, default=None, like={}
        ),
        computed("label2id", "head.labels", read=called, write=label2id, default=None, like={}),
        replace(computed("num_labels", read=_count, write=lambda *_: None, default=None), extra=True),
    )


def _count(n: int | None, _: Values) -> None:
    if n is not None and (type(n) is not int or not 0 < n <= MOST_LABELS):
        raise UserError(f"expected a whole number from 1 to {MOST_LABELS}, got {short(n)}")


def classes(default: int = 2) -> tuple[Field, ...]:
    """The labels of a classifier, and the kind of its outputs: one class, several classes or numbers."""
    return (*labels(default), extra("problem_type", "head.problem_type", default=None))


def head_width() -> Field:
    """head_dim, which no config class here defines but their code reads. It must follow from the other fields."""
    width = implied(
        "head_dim",
        lambda theirs: theirs["hidden_size"] // (theirs["num_attention_heads"] or 1),
        write=lambda _: None,
        what="which is hidden_size / num_attention_heads",
    )
    return replace(width, extra=True)


def width_of(stack: Values) -> int:
    """The width of a head of our stack."""
    return stack["d_head"] or stack["d_model"] // stack["n_heads"]


def four_times(theirs: str, width: str) -> Field:
    """The width of a decoder's feed-forward layer, by default four times the field `width`."""
    return computed(
        theirs,
        "decoder.d_ff",
        read=lambda said, values: 4 * values[width] if said is None else said,
        default=None,
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


def by_layer_types(ours: str, read: Callable[[Any, Values], Any], *, stack: str = "decoder", **more: Any) -> Field:
    """Our field `ours` of a stack, such as window_layers, which `layer_types` decides."""

    def write(_: Any, config: Values) -> list[str]:
        local = windowed(config[stack])
        return [LOCAL if i in local else FULL for i in range(config[stack]["n_layers"])]

    return computed("layer_types", f"{stack}.{ours}", read=read, write=write, **{"default": None, **more})


# --- tensors -------------------------------------------------------------------------------------------------------


def qkv_by_head(theirs: str, config: ModelConfig) -> Rule:
    """One matrix holds, for each key head, its queries, its keys and its values in turn."""
    stack = config.output
    width = stack.head_width
    rows = [stack.n_heads // stack.kv_heads * width, width, width]
    return fused(f"{theirs}.{{p}}", sides("decoder"), rows=rows, groups=stack.kv_heads)


def neighbours(rules: Sequence[Rule], config: ModelConfig) -> list[Rule]:
    """The same rules for heads that rotate neighbours."""
    stack = config.output
    assert isinstance(stack.positions, Rotary)
    width, turned = stack.head_width, {*sides("decoder", "qk"), *sides("encoder", "qk")}
    rotated = stack.positions.rotated(width)
    places = [[i for i, name in enumerate(rule.ours) if name in turned] for rule in rules]
    return [
        paired(rule, *own, width=width, rotated=rotated) if own else rule
        for rule, own in zip(rules, places, strict=True)
    ]


def output_matrix(theirs: str, config: ModelConfig, table: str) -> Rule:
    """A language head's matrix, tied to the token table or separate."""
    assert isinstance(config.head, LanguageHead)
    return tie(theirs, table) if config.head.tied else rename(theirs, "head.output.weight")


def beside_it(*names: str, reads: str = PICTURES) -> Rule:
    """Leaves out the tensors of these modules, under today's names and the older ones, as those of what `reads`."""
    deep = ["".join(f".{{{letter}}}" for letter in LETTERS[:n]) for n in range(len(LETTERS))]
    tensors = (f"{top}{name}{rest}" for top in ("", "model.") for name in names for rest in deep)
    return leave_out(*tensors, because=reads)


def pooler_rules(config: ModelConfig) -> Sequence[Rule]:
    """The pooler of a model without a head, if it has one."""
    assert isinstance(config.head, NoHead)
    return (rename("pooler.dense.{p}", "head.pooler.{p}"),) if config.head.pooler else ()


# --- heads ---------------------------------------------------------------------------------------------------------


def bare(architecture: str, rules: Rules = lambda _: (), **more: Any) -> HeadMap:
    """The class without a head."""
    return HeadMap(architecture, {"head.kind": "none"}, rules, **more)


def span(architecture: str, *others: Rule, prefix: str, fields: FieldRules = ()) -> HeadMap:
    """The head that predicts where an answer starts and ends. `others` are further rules."""
    return HeadMap(
        architecture, {"head.kind": "span"}, lambda _: others, fields, prefix=prefix, names={"qa_outputs": "output"}
    )


def tags(
    architecture: str, prefix: str, *fields: FieldRule, output: str = "classifier", others: Sequence[Rule] = ()
) -> HeadMap:
    """A class of each token. `fields` are those besides the labels, such as the head's dropout, `others` more rules."""
    return HeadMap(
        architecture,
        {"head.kind": "tagging"},
        lambda _: others,
        (*labels(), *fields),
        prefix=prefix,
        names={output: "output"},
    )


def end_token_classifier(architecture: str, constants: Document, fields: FieldRules, *, prefix: str) -> HeadMap:
    """An encoder-decoder's classifier. The decoder reads the shifted text again; its last state stands for the text."""
    return HeadMap(
        architecture,
        {**constants, "head.kind": "classification", "head.pool": "last", "head.pooler": True},
        fields=(same("classifier_dropout", "head.dropout", default=0.0), *fields),
        prefix=prefix,
        names={"classification_head.dense": "pooler", "classification_head.out_proj": "output"},
    )


TAGGING_DROPOUT = computed(
    "classifier_dropout", "head.dropout", read=lambda share, _: 0.1 if share is None else share, default=None
)
"""The dropout of a decoder's tagging head, which no config class defines but any config may set."""


def decoder_language(
    architecture: str,
    prefix: str,
    *fields: FieldRule,
    tied: bool = True,
    bias: bool = False,
    names: tuple[str, ...] = ("lm_head",),
    also: tuple[str, ...] = (),
) -> HeadMap:
    """The class that writes words. `names` are those of the output matrix, and `fields` the head's own."""

    def rules(config: ModelConfig) -> Sequence[Rule]:
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


def decoder_heads(
    name: str,
    prefix: str,
    kinds: str = "bare class tags span",
    *,
    words: HeadMap | None = None,
    dropout: FieldRule = TAGGING_DROPOUT,
    **of_words: Any,
) -> tuple[HeadMap, ...]:
    """The class that writes words, and those of the other kinds that a family has.

    `words` or `of_words` describe the first, and `dropout` is the field of the tagger's.
    """
    heads = {
        "bare": bare(f"{name}Model"),
        "class": HeadMap(
            f"{name}ForSequenceClassification",
            {"head.kind": "classification", "head.pool": "last", "head.bias": False},
            fields=classes(),
            prefix=prefix,
            names={"score": "output"},
        ),
        "tags": tags(f"{name}ForTokenClassification", prefix, dropout),
        "span": span(f"{name}ForQuestionAnswering", prefix=prefix),
    }
    first = words or decoder_language(f"{name}ForCausalLM", prefix, **of_words)
    return (first, *(heads[kind] for kind in kinds.split()))


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
    constants: dict[str, object] = {"head.kind": "classification", "head.pooler": True}
    return HeadMap(
        architecture,
        constants if activation is None else constants | {"head.pooler_activation": activation},
        lambda _: others,
        (*classes(), *fields),
        prefix=prefix,
        names={pooler: "pooler", output: "output"},
    )
