"""BART and its relatives: mBART, M2M-100 and Blenderbot, and what Marian shares with them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.checkpoints.families.shared import ACTIVATIONS
from clearhead.checkpoints.weights.fields import Alias, FieldRule, Only, computed, extra, ignored, implied, named, same
from clearhead.checkpoints.weights.mapping import Rule, Turn, derive, ignore, rename, reshape
from clearhead.config import LanguageHead, ModelConfig, Sinusoidal
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor
from typing import Any

from clearhead.checkpoints.families.encoders.roberta import after_padding
from clearhead.checkpoints.families.family import Document, Family, HeadMap
from clearhead.checkpoints.families.shared import end_token_classifier, labels, span, with_defaults
from clearhead.checkpoints.weights.fields import Field, Values

STACKS = ("encoder", "decoder")


def both(name: str) -> tuple[str, ...]:
    """The path of a field in each stack."""
    return tuple(f"{stack}.{name}" for stack in STACKS)


# --- fields ------------------------------------------------------------------------------------------------------


BART_FIELDS: tuple[FieldRule, ...] = (
    same("d_model", *both("d_model"), default=1024),
    same("encoder_layers", "encoder.n_layers", default=12),
    same("encoder_attention_heads", "encoder.n_heads", default=16),
    same("encoder_ffn_dim", "encoder.d_ff", default=4096),
    same("decoder_layers", "decoder.n_layers", default=12),
    same("decoder_attention_heads", "decoder.n_heads", default=16),
    same("decoder_ffn_dim", "decoder.d_ff", default=4096),
    implied(
        "num_hidden_layers",
        lambda theirs: theirs["encoder_layers"],
        write=lambda ours: ours["encoder"]["n_layers"],
        what="which is encoder_layers",
    ),
    named("activation_function", *both("activation"), names=ACTIVATIONS, default="gelu"),
    same("scale_embedding", *both("input.scale"), default=False),
    same("dropout", *both("dropout"), default=0.1),
    same("attention_dropout", *both("attn_dropout"), default=0.0),
    same("activation_dropout", *both("ffn_dropout"), default=0.0),
    same("init_std", "init.std", default=0.02),
    Alias("hidden_size", of="d_model"),
    Alias("num_attention_heads", of="encoder_attention_heads"),
    Only("encoder_layerdrop", 0.0),
    Only("decoder_layerdrop", 0.0),
    # In older configs: fields that the library no longer reads, and how the network was trained or distilled.
    ignored("add_bias_logits", "classif_dropout", "extra_pos_embeddings", "force_bos_token_to_be_generated"),
    ignored("replacing_rate", "student_*_layers"),
)
"""The fields without the token tables and the positions."""

LANGUAGE_FIELDS: tuple[FieldRule, ...] = (extra("final_logits_bias", "head.bias", default=True),)
"""The bias on the logits. Our networks may have none, which the reference library treats as 0."""
WITH_BIAS = {"head.bias": "final_logits_bias"}
"""The bias is a buffer in the reference library. Checkpoints of a class without a head lack it."""


def norms(*, before: bool, of_embedding: bool) -> tuple[FieldRule, ...]:
    """The places of the norms. The reference library no longer reads these fields, but CTranslate2 does."""
    return (
        _always("normalize_before", before),
        _always("add_final_layer_norm", before),
        _always("normalize_embedding", of_embedding),
    )


def _always(name: str, value: bool) -> FieldRule:
    """A field that supports one value and always writes it."""
    return implied(name, lambda _: value, write=lambda _: value, what="the only value that is supported")


# --- sinusoidal positions ----------------------------------------------------------------------------------------

LENGTH = 1024
"""The number of positions written into a config. Our sinusoidal positions have no limit."""

SINUSOIDAL: tuple[FieldRule, ...] = (
    computed("max_position_embeddings", write=lambda *_: LENGTH, default=LENGTH, like=LENGTH),
    extra("sinusoidal_layout", *both("positions.layout"), default="concatenated"),
    Only("static_position_embeddings", True),
)


def position_tables(config: ModelConfig, prefix: str = "", *, written: bool) -> tuple[Rule, ...]:
    """Sinusoidal tables, which follow from the config. `written` stores them for the classes that expect them."""
    names = [f"{prefix}{stack}.embed_positions.weight" for stack in STACKS]
    if not written:
        return (ignore(*names),)
    return tuple(derive(name, lambda: wave_table(config.output.d_model)) for name in names)


def wave_table(d_model: int) -> "Tensor":
    """p d: all sines, then all cosines."""
    import torch

    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = torch.arange(LENGTH, dtype=torch.float64)[:, None] / 10_000.0 ** (i / d_model)
    return torch.cat([angle.sin(), angle.cos()], 1).float()


# --- weights -----------------------------------------------------------------------------------------------------

Named = Callable[[str, str], Rule]


def streams(config: ModelConfig) -> tuple[Named, Named]:
    """Rules for the weights that read the residual stream and for those that write to it.

    The reference library puts sines before cosines. If ours alternate, as in Vaswani et al. 2017, every tensor has its
    stream components reordered, which leaves the function unchanged.
    """
    positions = config.output.positions
    if not isinstance(positions, Sinusoidal) or positions.layout == "concatenated":
        return rename, rename
    import torch

    number = torch.arange(config.output.d_model)
    order = torch.cat([number[0::2], number[1::2]])
    return (
        lambda theirs, ours: _reordered(theirs, ours, order, last=True),
        lambda theirs, ours: _reordered(theirs, ours, order, last=False),
    )


def _reordered(theirs: str, ours: str, order: "Tensor", *, last: bool) -> Rule:
    """The same tensor with its last axis (except for biases) or its first axis reordered."""

    def turn(index: "Tensor") -> Turn:
        def apply(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
            (tensor,) = tensors
            axis = tensor.ndim - 1 if last else 0
            if last and tensor.ndim == 1:
                return tensors
            if tensor.ndim == 0 or tensor.shape[axis] != len(index):
                raise UserError(f"expected {len(index)} on axis {axis}, got shape {list(tensor.shape)}")
            return [tensor.index_select(axis, index.to(tensor.device))]

        return apply

    return Rule((theirs,), (ours,), turn(order.argsort()), turn(order), columns=last)


def bart_rules(config: ModelConfig) -> Sequence[Rule]:
    """The blocks of both stacks, and the token tables."""
    reads, writes = streams(config)
    return (*bart_tables(config), *(rule for stack in STACKS for rule in blocks(stack, reads, writes)))


def bart_tables(config: ModelConfig) -> tuple[Rule, ...]:
    """One token table for both stacks, or one for each."""
    reads, _ = streams(config)
    if config.share_embeddings:
        shared = "encoder.embed.tokens.weight"
        copies = (replace(reads(f"{stack}.embed_tokens.weight", shared), copies=True) for stack in STACKS)
        return (reads("shared.weight", shared), *copies)
    return tuple(reads(f"{stack}.embed_tokens.weight", f"{stack}.embed.tokens.weight") for stack in STACKS)


def blocks(stack: str, reads: Named, writes: Named) -> tuple[Rule, ...]:
    """Attention, cross-attention in a decoder, and feed-forward, each with its norm."""
    theirs, ours = f"{stack}.layers.{{i}}", f"{stack}.blocks.{{i}}"

    def attention(there: str, here: str) -> tuple[Rule, ...]:
        return (
            *(reads(f"{theirs}.{there}.{n}_proj.{{p}}", f"{ours}.{here}.{n}.{{p}}") for n in "qkv"),
            writes(f"{theirs}.{there}.out_proj.{{p}}", f"{ours}.{here}.out.{{p}}"),
            writes(f"{theirs}.{there}_layer_norm.{{p}}", f"{ours}.{here}_norm.{{p}}"),
        )

    return (
        *attention("self_attn", "attn"),
        *attention("encoder_attn", "cross"),
        reads(f"{theirs}.fc1.{{p}}", f"{ours}.ffn.up.{{p}}"),
        writes(f"{theirs}.fc2.{{p}}", f"{ours}.ffn.down.{{p}}"),
        writes(f"{theirs}.final_layer_norm.{{p}}", f"{ours}.ffn_norm.{{p}}"),
    )


def language_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """The bias on the logits, and the output matrix unless it is tied to the token table."""
    assert isinstance(config.head, LanguageHead)
    assert config.decoder is not None
    reads, _ = streams(config)
    vocab_size = dict(config.decoder.input)["vocab_size"]
    bias = reshape("final_logits_bias", "head.output.bias", there=(1, vocab_size), here=(vocab_size,))
    if not config.head.tied:
        return (bias, reads("lm_head.weight", "head.output.weight"))
    table = f"{'encoder' if config.share_embeddings else 'decoder'}.embed.tokens.weight"
    return (bias, replace(reads("lm_head.weight", table), copies=True))


# --- BART (Lewis et al. 2019) --------------------------------------------------------------------------------------


def bart_rules_with_tables(config: ModelConfig) -> tuple[Rule, ...]:
    """The shared rules plus the position tables and the norms of the embeddings."""
    return (
        *bart_rules(config),
        *(rename(f"{s}.embed_positions.weight", f"{s}.positions.table.weight") for s in STACKS),
        *(rename(f"{s}.layernorm_embedding.{{p}}", f"{s}.embed.norm.{{p}}") for s in STACKS),
        ignore(*(f"{s}.version" for s in STACKS)),
    )


BART = Family(
    model_type="bart",
    constants={
        **dict.fromkeys(both("input.kind"), "tokens"),
        **dict.fromkeys(both("input.norm"), True),
        **dict.fromkeys(both("positions.kind"), "learned"),
        # Two unused rows before position 0, left over from a conversion from another library.
        **dict.fromkeys(both("positions.offset"), 2),
        **dict.fromkeys(both("norm_place"), "post"),
        "share_embeddings": True,
    },
    fields=(
        same("vocab_size", *both("input.vocab_size"), default=50_265),
        same("max_position_embeddings", *both("positions.max_length"), default=1024),
        *BART_FIELDS,
        *norms(before=False, of_embedding=True),
        Only("tie_word_embeddings", True),
        Only("static_position_embeddings", False),
        Only("do_blenderbot_90_layernorm", False),
    ),
    rules=bart_rules_with_tables,
    heads=(
        HeadMap(
            "BartForConditionalGeneration",
            {"head.kind": "language", "head.tied": True},
            language_rules,
            LANGUAGE_FIELDS,
            prefix="model.",
            presence=WITH_BIAS,
        ),
        HeadMap("BartModel", {"head.kind": "none"}),
        end_token_classifier("BartForSequenceClassification", {}, labels(3), prefix="model."),
        span("BartForQuestionAnswering", prefix="model."),
    ),
)


# --- mBART, M2M-100 and Blenderbot ---------------------------------------------------------------------------------

CONSTANTS: Document = {**dict.fromkeys(both("input.kind"), "tokens"), "share_embeddings": True}


def mbart_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """BART's, and a norm after the last block of each stack."""
    return (
        *bart_rules_with_tables(config),
        *(rename(f"{s}.layer_norm.{{p}}", f"{s}.final_norm.{{p}}") for s in STACKS),
    )


def heads(name: str, fields: tuple[FieldRule, ...] = LANGUAGE_FIELDS) -> tuple[HeadMap, ...]:
    """The classes that each of them has."""
    writer = f"{name}ForConditionalGeneration"
    return (
        HeadMap(
            writer,
            {"head.kind": "language", "head.tied": True},
            language_rules,
            fields,
            prefix="model.",
            presence=WITH_BIAS if fields else {},
        ),
        HeadMap(f"{name}Model", {"head.kind": "none"}),
    )


def mbart_tables(vocab_size: int) -> tuple[FieldRule, ...]:
    """The token table."""
    return (same("vocab_size", *both("input.vocab_size"), default=vocab_size), Only("tie_word_embeddings", True))


def learned(max_length: int) -> tuple[FieldRule, ...]:
    """Learned positions."""
    return (
        same("max_position_embeddings", *both("positions.max_length"), default=max_length),
        Only("static_position_embeddings", False),
    )


MBART = Family(
    model_type="mbart",
    constants={
        **CONSTANTS,
        **dict.fromkeys(both("input.norm"), True),
        **dict.fromkeys(both("positions.kind"), "learned"),
        **dict.fromkeys(both("positions.offset"), 2),
    },
    fields=(*mbart_tables(50_265), *learned(1024), *BART_FIELDS, *norms(before=True, of_embedding=True)),
    rules=mbart_rules,
    heads=(
        *heads("MBart"),
        end_token_classifier("MBartForSequenceClassification", {}, labels(), prefix="model."),
        span("MBartForQuestionAnswering", prefix="model."),
    ),
)

# Their checkpoints write normalize_before = false, although the norms are before.
BLENDERBOT = Family(
    model_type="blenderbot",
    constants={**CONSTANTS, **dict.fromkeys(both("positions.kind"), "learned")},
    fields=(
        *mbart_tables(8008),
        *learned(128),
        *with_defaults(
            BART_FIELDS,
            d_model=2560,
            encoder_layers=2,
            decoder_layers=24,
            encoder_attention_heads=32,
            decoder_attention_heads=32,
            encoder_ffn_dim=10_240,
            decoder_ffn_dim=10_240,
        ),
        ignored("normalize_before", "add_final_layer_norm", "normalize_embedding", "layernorm_variant"),
        ignored("do_blenderbot_90_layernorm", "unk_token_id", "extra_layer_norm"),
    ),
    rules=mbart_rules,
    heads=heads("Blenderbot"),
)


# --- waves that begin after the padding --------------------------------------------------------------------------


def _base(d_model: int, _: Values | None = None) -> float:
    """The base at which our waves have their frequencies, 10000^(-i / (d/2 - 1))."""
    return 10_000.0 ** (d_model // 2 / (d_model // 2 - 1))


def mbart_waves(*stacks: str, default: int) -> tuple[Field]:
    """The base of the stacks' waves, which follows from d_model."""

    def d_model(base: float, ours: Values) -> int:
        width: int = ours[stacks[0]]["d_model"]
        if base != _base(width):
            raise ValueError(base)
        return width

    paths = [f"{stack}.positions.base" for stack in stacks]
    return (computed("d_model", *paths, read=_base, write=d_model, default=default, like=default),)


def _padding(offset: int, _: Any) -> int:
    return offset - 1


M2M_100 = Family(
    model_type="m2m_100",
    constants={
        **CONSTANTS,
        **dict.fromkeys(both("positions.kind"), "sinusoidal"),
        **dict.fromkeys(both("positions.layout"), "concatenated"),
    },
    fields=(
        *mbart_waves(*STACKS, default=1024),
        computed("pad_token_id", *both("positions.offset"), read=after_padding, write=_padding, default=1),
        # The waves have no end.
        computed("max_position_embeddings", write=lambda *_: LENGTH, default=LENGTH, like=LENGTH),
        *mbart_tables(128_112),
        *with_defaults(
            [field for field in BART_FIELDS if not (isinstance(field, Only) and field.theirs.endswith("layerdrop"))],
            activation_function="relu",
            scale_embedding=True,
            attention_dropout=0.1,
        ),
        # In training, the reference library skips a share of the layers. Here all of them are trained.
        ignored("encoder_layerdrop", "decoder_layerdrop"),
    ),
    rules=lambda config: (*mbart_rules(config), ignore(*(f"{s}.embed_positions.weights" for s in STACKS))),
    heads=heads("M2M100", ()),
    uncounted_padding=True,
)
