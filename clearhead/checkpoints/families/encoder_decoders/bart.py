"""BART and its relatives: mBART, M2M-100, Blenderbot, Marian and PEGASUS."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from clearhead.checkpoints.families.encoders.roberta import after_padding
from clearhead.checkpoints.families.family import Family, HeadMap, Rules
from clearhead.checkpoints.families.shared import (
    bare,
    classes,
    end_token_classifier,
    sizes,
    span,
    without,
)
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRule,
    FieldRules,
    Only,
    Values,
    computed,
    equal,
    extra,
    ignored,
    implied,
    only,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, Turn, derive, ignore, rename, reshape
from clearhead.config import LanguageHead, ModelConfig, Sinusoidal
from clearhead.errors import UserError, refuse

if TYPE_CHECKING:
    from torch import Tensor

STACKS = ("encoder", "decoder")


def both(name: str) -> tuple[str, ...]:
    """The path of a field in each stack."""
    return tuple(f"{stack}.{name}" for stack in STACKS)


def in_both(values: Mapping[str, object]) -> dict[str, object]:
    """The same settings in each stack, by path."""
    return {path: value for name, value in values.items() for path in both(name)}


# --- fields ------------------------------------------------------------------------------------------------------


def bart_fields(
    *,
    layers: tuple[int, int] = (12, 12),
    heads: int = 16,
    inner: int = 4096,
    scale: bool = False,
    **defaults: JsonValue,
) -> FieldRules:
    """The fields without the token tables and the positions. The arguments are a family's defaults."""
    base: dict[str, JsonValue] = {
        "d_model": 1024,
        "activation_function": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "init_std": 0.02,
    }
    return (
        *sizes(*STACKS, **{**base, **defaults}),
        *(same(f"{s}_layers", f"{s}.n_layers", default=n) for s, n in zip(STACKS, layers, strict=True)),
        *(same(f"{s}_attention_heads", f"{s}.n_heads", default=heads) for s in STACKS),
        *(same(f"{s}_ffn_dim", f"{s}.d_ff", default=inner) for s in STACKS),
        equal("num_hidden_layers", "encoder_layers", "encoder.n_layers"),
        same("scale_embedding", *both("input.scale"), default=scale),
        Alias("num_attention_heads", of="encoder_attention_heads"),
        *only(encoder_layerdrop=0.0, decoder_layerdrop=0.0),
        # In older configs: fields that the library no longer reads, and how the network was trained or distilled.
        ignored("add_bias_logits", "classif_dropout", "extra_pos_embeddings", "force_bos_token_to_be_generated"),
        ignored("replacing_rate", "student_*_layers"),
    )


def norms(*, before: bool, of_embedding: bool) -> FieldRules:
    """The places of the norms. The reference library no longer reads these fields, but CTranslate2 does."""

    def always(name: str, value: bool) -> FieldRule:
        return implied(name, lambda _: value, write=lambda _: value, what="the only value that is supported")

    return (
        always("normalize_before", before),
        always("add_final_layer_norm", before),
        always("normalize_embedding", of_embedding),
    )


def shared_vocabulary(size: int) -> FieldRules:
    """One token table for both stacks and the output."""
    return (*sizes(*STACKS, vocab_size=size), Only("tie_word_embeddings", True))


# --- sinusoidal positions ----------------------------------------------------------------------------------------

LENGTH = 1024
"""The number of positions written into a config. Our sinusoidal positions have no limit."""

ENDLESS = computed("max_position_embeddings", write=lambda *_: LENGTH, default=LENGTH)
SINUSOIDAL: FieldRules = (
    ENDLESS,
    extra("sinusoidal_layout", *both("positions.layout"), default="concatenated"),
    Only("static_position_embeddings", True),
)


def position_tables(config: ModelConfig, prefix: str = "", *, written: bool) -> tuple[Rule, ...]:
    """Sinusoidal tables, which follow from the config. `written` stores them for the classes that expect them."""
    names = [f"{prefix}{stack}.embed_positions.weight" for stack in STACKS]
    if not written:
        return (ignore(*names),)
    return tuple(derive(name, lambda: wave_table(config.output.d_model)) for name in names)


def wave_table(d_model: int, length: int = LENGTH) -> "Tensor":
    """p d: all sines, then all cosines."""
    import torch

    i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10_000.0 ** (i / d_model)
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


def with_tables(config: ModelConfig) -> tuple[Rule, ...]:
    """The shared rules plus the position tables, and the norms of the embeddings and after the last blocks."""
    names = {
        "embed_positions": "positions.table",
        "layernorm_embedding": "embed.norm",
        "layer_norm": "final_norm",
    }
    return (
        *bart_rules(config),
        *(rename(f"{s}.{there}.{{p}}", f"{s}.{here}.{{p}}") for s in STACKS for there, here in names.items()),
        ignore(*(f"{s}.version" for s in STACKS)),
    )


def writer(
    architecture: str,
    *fields: FieldRule,
    rules: Rules = language_rules,
    is_tied: bool = True,
    has_bias: bool = True,
) -> HeadMap:
    """The class that writes text. `is_tied` is whether its output always is the token table.

    Our networks may have no bias on the logits, which the reference library treats as 0. It is a buffer there, which
    checkpoints of a class without a head lack.
    """
    bias = (extra("final_logits_bias", "head.bias", default=True),) if has_bias else ()
    return HeadMap(
        architecture,
        {"head.kind": "language", **({"head.tied": True} if is_tied else {})},
        rules,
        (*bias, *fields),
        prefix="model.",
        presence={"head.bias": "final_logits_bias"} if has_bias else {},
    )


def bart_heads(name: str, n_labels: int = 2) -> tuple[HeadMap, ...]:
    """The classes of one name; with so many labels by default."""
    return (
        writer(f"{name}ForConditionalGeneration"),
        bare(f"{name}Model"),
        end_token_classifier(f"{name}ForSequenceClassification", {}, classes(n_labels), prefix="model."),
        span(f"{name}ForQuestionAnswering", prefix="model."),
    )


LEARNED = in_both({"positions.kind": "learned"})
BART = Family(
    model_type="bart",
    # Two unused rows before position 0, left over from a conversion from another library.
    constants={
        **LEARNED,
        **in_both({"input.norm": True, "positions.offset": 2, "norm_place": "post"}),
        "share_embeddings": True,
    },
    fields=(
        *shared_vocabulary(50_265),
        *sizes(*STACKS, max_position_embeddings=1024),
        *bart_fields(),
        *norms(before=False, of_embedding=True),
        *only(static_position_embeddings=False, do_blenderbot_90_layernorm=False),
    ),
    rules=with_tables,
    heads=bart_heads("Bart", 3),
)


# --- mBART, M2M-100 and Blenderbot ---------------------------------------------------------------------------------

MBART = Family(
    model_type="mbart",
    constants={**LEARNED, **in_both({"input.norm": True, "positions.offset": 2}), "share_embeddings": True},
    fields=(
        *shared_vocabulary(50_265),
        *sizes(*STACKS, max_position_embeddings=1024),
        Only("static_position_embeddings", False),
        *bart_fields(),
        *norms(before=True, of_embedding=True),
    ),
    rules=with_tables,
    heads=bart_heads("MBart"),
)

# Their checkpoints write normalize_before = false, although the norms are before.
BLENDERBOT = Family(
    model_type="blenderbot",
    constants={**LEARNED, "share_embeddings": True},
    fields=(
        *shared_vocabulary(8008),
        *sizes(*STACKS, max_position_embeddings=128),
        Only("static_position_embeddings", False),
        *bart_fields(d_model=2560, layers=(2, 24), heads=32, inner=10_240),
        ignored("normalize_before", "add_final_layer_norm", "normalize_embedding", "layernorm_variant"),
        ignored("do_blenderbot_90_layernorm", "unk_token_id", "extra_layer_norm"),
    ),
    rules=with_tables,
    heads=(writer("BlenderbotForConditionalGeneration"), bare("BlenderbotModel")),
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
    return (computed("d_model", *paths, read=_base, write=d_model, default=default),)


M2M_100 = Family(
    model_type="m2m_100",
    constants={
        **in_both({"positions.kind": "sinusoidal", "positions.layout": "concatenated"}),
        "share_embeddings": True,
    },
    fields=(
        *mbart_waves(*STACKS, default=1024),
        computed(
            "pad_token_id",
            *both("positions.offset"),
            read=after_padding,
            write=lambda offset, _: offset - 1,
            default=1,
        ),
        ENDLESS,
        *shared_vocabulary(128_112),
        *without(
            bart_fields(activation_function="relu", scale=True, attention_dropout=0.1),
            "encoder_layerdrop",
            "decoder_layerdrop",
        ),
        # In training, the reference library skips a share of the layers. Here all of them are trained.
        ignored("encoder_layerdrop", "decoder_layerdrop"),
    ),
    rules=lambda config: (ignore(*(f"{s}.embed_positions.weights" for s in STACKS)), *with_tables(config)),
    heads=(writer("M2M100ForConditionalGeneration", has_bias=False), bare("M2M100Model")),
    uncounted_padding=True,
)


# --- Marian (the encoder-decoder of Vaswani et al. 2017, as in Marian NMT), and PEGASUS (norms first) -----------------


def _decoder_vocabulary(size: int | None, values: Values) -> int:
    shared = size is None or values["share_encoder_decoder_embeddings"]
    return values["vocab_size"] if shared else size


def _tied(tied: bool, values: Values) -> bool:
    if values["share_encoder_decoder_embeddings"] and not tied:
        raise refuse("", "true, as share_encoder_decoder_embeddings is", "false", "try both false")
    return tied


MARIAN = Family(
    model_type="marian",
    constants=in_both({"positions.kind": "sinusoidal", "norm_place": "post"}),
    fields=(
        *sizes("encoder", vocab_size=58_101),
        computed("decoder_vocab_size", "decoder.input.vocab_size", read=_decoder_vocabulary, default=None),
        same("share_encoder_decoder_embeddings", "share_embeddings", default=True),
        *SINUSOIDAL,
        *bart_fields(),
        *norms(before=False, of_embedding=False),
    ),
    rules=bart_rules,
    heads=(
        writer(
            "MarianMTModel",
            computed("tie_word_embeddings", "head.tied", read=_tied, default=True, null=True),
            rules=lambda config: (*language_rules(config), *position_tables(config, "model.", written=False)),
            is_tied=False,
        ),
        bare("MarianModel", lambda config: position_tables(config, written=True)),
    ),
    fallback={"pad_token_id": 0, "decoder_start_token_id": 0},
)


def pegasus_rules(config: ModelConfig) -> Sequence[Rule]:
    """The shared rules plus a norm after the last block of each stack."""
    _, writes = streams(config)
    return (*bart_rules(config), *(writes(f"{s}.layer_norm.{{p}}", f"{s}.final_norm.{{p}}") for s in STACKS))


PEGASUS = Family(
    model_type="pegasus",
    constants={**in_both({"positions.kind": "sinusoidal"}), "share_embeddings": True},
    fields=(
        *shared_vocabulary(50_265),
        *SINUSOIDAL,
        *bart_fields(),
        *norms(before=True, of_embedding=False),
    ),
    rules=pegasus_rules,
    heads=(
        writer(
            "PegasusForConditionalGeneration",
            rules=lambda config: (*language_rules(config), *position_tables(config, "model.", written=True)),
        ),
        bare("PegasusModel", lambda config: position_tables(config, written=True)),
    ),
)
