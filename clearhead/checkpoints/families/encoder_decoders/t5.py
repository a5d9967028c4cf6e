"""The encoder-decoder of Raffel et al. 2019 (ReLU, output tied), its version 1.1 (gated, output its own), mT5, which is
version 1.1 with another vocabulary (Xue et al. 2020), and UMT5 (Chung et al. 2023), with biases for each layer.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    bare,
    classes,
    end_token_classifier,
    sizes,
    span,
    tags,
    with_defaults,
)
from clearhead.checkpoints.weights.fields import Alias, FieldRules, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, modules, rename, tie
from clearhead.config import LanguageHead, ModelConfig, StackConfig
from clearhead.errors import UserError

ENCODER, BOTH = ("encoder",), ("encoder", "decoder")
CROSS = "EncDecAttention"


# --- fields ------------------------------------------------------------------------------------------------------


def _activation(name: str | None, values: Values) -> str:
    """dense_act_fn if given, otherwise the last part of feed_forward_proj."""
    kind = values["feed_forward_proj"]
    said = name or ("gelu_new" if kind == "gated-gelu" else kind.split("-")[-1])
    if said not in ACTIVATIONS:
        raise UserError(f"expected {' or '.join(ACTIVATIONS)}, got {said!r}")
    return ACTIVATIONS[said]


def _gated(said: bool | None, values: Values) -> bool:
    """is_gated_act if given, otherwise whether feed_forward_proj starts with gated-."""
    gate, _, rest = values["feed_forward_proj"].rpartition("-")
    if gate not in ("", "gated"):
        raise UserError(f"expected an activation or gated-activation in feed_forward_proj, got {gate}-{rest}")
    return gate == "gated" if said is None else said


def _name(activation: str) -> str:
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


def _projection(_: Any, ours: Values) -> str:
    stack = ours["encoder"]
    if not stack["gated"]:
        return _name(stack["activation"])
    return "gated-gelu" if stack["activation"] == "gelu_tanh" else f"gated-{_name(stack['activation'])}"


def fields_of(stacks: Sequence[str]) -> FieldRules:
    """The entries of a model with these stacks."""

    def each(*names: str) -> tuple[str, ...]:
        return tuple(f"{stack}.{name}" for name in names for stack in stacks)

    return (
        *sizes(*stacks, vocab_size=32_128, d_model=512, num_heads=8, layer_norm_epsilon=1e-6),
        *sizes("encoder", num_layers=6),
        same("d_kv", *each("d_head"), default=64),
        same("d_ff", *each("d_ff"), default=2048),
        same("relative_attention_num_buckets", *each("positions.n_buckets"), default=32),
        same("relative_attention_max_distance", *each("positions.max_distance"), default=128),
        same("dropout_rate", *each("dropout", "attn_dropout", "ffn_dropout"), default=0.1),
        computed("feed_forward_proj", write=_projection, default="relu"),
        computed(
            "dense_act_fn",
            *each("activation"),
            read=_activation,
            write=lambda activation, _: _name(activation),
            default=None,
            like="",
            null=False,
        ),
        computed("is_gated_act", *each("gated"), read=_gated, default=None, like=False, null=False),
        Alias("head_dim", of="d_kv"),
        # Initialisation, fields of other heads, and lengths, which relative positions do not limit.
        ignored("initializer_factor", "scale_decoder_outputs", "n_positions"),
        *(() if "decoder" in stacks else (ignored("num_decoder_layers"),)),
    )


TWO_STACKS: FieldRules = (
    computed(
        "num_decoder_layers",
        "decoder.n_layers",
        read=lambda n, values: values["num_layers"] if n is None else n,
        default=None,
    ),
    *fields_of(BOTH),
)


def _scales(values: Values) -> bool:
    """Returns True if states are multiplied by d_model^-0.5 before the output matrix, as in the original.

    Configs of 1.1 are not tied or, if saved by later versions, set scale_decoder_outputs to false.
    """
    said = values["scale_decoder_outputs"]
    return values["tie_word_embeddings"] is not False if said is None else said


def _scaled(scale: float | None, ours: Values) -> bool:
    if scale not in (None, ours["decoder"]["d_model"] ** -0.5):
        raise ValueError(scale)
    return scale is not None


LANGUAGE_FIELDS: FieldRules = (
    computed(
        "tie_word_embeddings",
        "head.tied",
        # Later versions write true for every model. Models that do not scale have their own output matrix.
        read=lambda tied, values: tied is not False and _scales(values),
        default=None,
        like=True,
        null=False,
    ),
    computed(
        "scale_decoder_outputs",
        "head.scale",
        read=lambda _, values: max(values["d_model"], 1) ** -0.5 if _scales(values) else None,
        write=_scaled,
        default=None,
        like=True,
        null=False,
    ),
)


def _constants(stacks: Sequence[str], *, each_layer: bool = False) -> dict[str, Any]:
    """The settings common to all models with these stacks."""
    stack = {"positions.kind": "relative", "attn_scale": 1.0, "norm": "rms", "bias": False}
    stack |= {"positions.each_layer": each_layer}
    shared = {"share_embeddings": len(stacks) == 2}
    return {f"{s}.{name}": value for s in stacks for name, value in stack.items()} | shared


# --- weights -----------------------------------------------------------------------------------------------------


def rules(config: ModelConfig) -> Sequence[Rule]:
    """One token table for both stacks. The first block holds the distance biases that all blocks share."""
    stacks = [stack for stack in BOTH if dict(config)[stack] is not None]
    head = config.head
    copies = [tie(f"{stack}.embed_tokens.weight", "encoder.embed.tokens.weight") for stack in stacks]
    table = [] if isinstance(head, LanguageHead) else [rename("shared.weight", "encoder.embed.tokens.weight")]
    return (*table, *copies, *(rule for stack in stacks for rule in blocks(stack, config.output)))


def blocks(stack: str, own: StackConfig) -> tuple[Rule, ...]:
    """Each block numbers its layers: attention, cross-attention in a decoder, feed-forward."""
    theirs, table = f"{stack}.block.{{i}}.layer", "SelfAttention.relative_attention_bias.weight"
    each_layer = rename(f"{theirs}.0.{table}", f"{stack}.blocks.{{i}}.attn.distance.table.weight")
    shared = rename(f"{stack}.block.0.layer.0.{table}", f"{stack}.positions.table.weight")

    def attention(there: str, ours: str) -> dict[str, str]:
        return {**{f"{there}.{n}": f"{ours}.{n}" for n in "qkv"}, f"{there}.o": f"{ours}.out"}

    ffn = 2 if stack == "decoder" else 1
    dense = f"{ffn}.DenseReluDense"
    names = {
        f"{stack}.final_layer_norm": "final_norm",
        **attention("0.SelfAttention", "attn"),
        "0.layer_norm": "attn_norm",
        **({**attention(f"1.{CROSS}", "cross"), "1.layer_norm": "cross_norm"} if stack == "decoder" else {}),
        **({f"{dense}.wi_0": "ffn.gate", f"{dense}.wi_1": "ffn.up"} if own.gated else {f"{dense}.wi": "ffn.up"}),
        f"{dense}.wo": "ffn.down",
        f"{ffn}.layer_norm": "ffn_norm",
    }
    return (
        leave_out(
            f"{theirs}.1.{CROSS}.relative_attention_bias.weight",
            because="attention to the source has no positions; older versions of the library kept an unused table",
        ),
        each_layer if own.distances is not None else shared,
        *modules(stack, theirs, names),
    )


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The token table and the output matrix, tied or separate."""
    assert isinstance(config.head, LanguageHead)
    table, output = "encoder.embed.tokens.weight", "head.output.weight"
    if config.head.tied:
        return (rename("shared.weight", table), tie("lm_head.weight", table))
    return (
        Rule(("lm_head.weight", "shared.weight"), (output, table)),
        # A checkpoint may store equal matrices once. Then each gets its own copy.
        Rule(("shared.weight",), (table, output), load=lambda tensors: [tensors[0], tensors[0].clone()]),
    )


def family(model_type: str, name: str, writer: HeadMap, *, each_layer: bool = False, **defaults: Any) -> Family:
    """A family with these stacks. `writer` is its class that writes text, `defaults` those of its config fields."""
    dropout = same("classifier_dropout", "head.dropout", default=0.0)
    end = end_token_classifier(f"{name}ForSequenceClassification", {}, classes(), prefix="transformer.")
    heads = (
        (writer, BOTH),
        (bare(f"{name}Model"), BOTH),
        (bare(f"{name}EncoderModel"), ENCODER),
        (end, BOTH),
        (tags(f"{name}ForTokenClassification", "transformer.", dropout), ENCODER),
        (span(f"{name}ForQuestionAnswering", prefix=""), BOTH),
    )
    fields = {BOTH: with_defaults(TWO_STACKS, **defaults), ENCODER: with_defaults(fields_of(ENCODER), **defaults)}
    whole = tuple(
        replace(
            head,
            constants={**_constants(stacks, each_layer=each_layer), **head.constants},
            fields=(*head.fields, *fields[stacks]),
        )
        for head, stacks in heads
    )
    return Family(model_type, {}, (), rules, whole)


T5 = family(
    "t5",
    "T5",
    HeadMap(
        "T5ForConditionalGeneration",
        {"head.kind": "language"},
        language_rules,
        LANGUAGE_FIELDS,
        also=("T5WithLMHeadModel",),
    ),
)

newer = partial(family, vocab_size=250_112, d_ff=1024, num_layers=8, num_heads=6, feed_forward_proj="gated-gelu")

# The output matrix is its own. Files of newer versions of the library say that it is tied, whatever they hold.
MT5_WRITER = HeadMap("MT5ForConditionalGeneration", {"head.kind": "language", "head.tied": False}, language_rules)
MT5 = newer("mt5", "MT5", MT5_WRITER)

# Its reference library scales the states in any case. A file may hold another output matrix than the token table.
UMT5_SCALE = computed(
    "d_model",
    "head.scale",
    read=lambda width, _: width**-0.5,
    write=lambda _, ours: ours["encoder"]["d_model"],
    default=512,
)
UMT5_WRITER = replace(MT5_WRITER, architecture="UMT5ForConditionalGeneration", fields=(UMT5_SCALE,))
UMT5 = newer("umt5", "UMT5", UMT5_WRITER, each_layer=True)
