"""Networks that read sounds: wav2vec 2.0, HuBERT, UniSpeech, UniSpeech-SAT and Whisper."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.encoder_decoders.bart import STACKS, bart_fields, blocks
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import ACTIVATIONS, bare, output_matrix, sizes, tags, without
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    Alias,
    FieldRule,
    FieldRules,
    Only,
    Values,
    computed,
    ignored,
    named,
    only,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, modules, rename, reshape
from clearhead.config import Convolution, FrameInput, ModelConfig, WaveInput
from clearhead.errors import UserError

# --- wav2vec 2.0 and its relatives ---------------------------------------------------------------------------------

STEM = "encoder.input"
USUAL: dict[str, list[JsonValue]] = {
    "conv_dim": [512] * 7,
    "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
    "conv_stride": [5, 2, 2, 2, 2, 2, 2],
}
WAV2VEC2_SIZES = {"conv_dim": "channels", "conv_kernel": "width", "conv_stride": "step"}


def _convolutions(_: Any, values: Values) -> list[dict[str, Any]]:
    """One table for each convolution, of the lists that have an item for each."""
    lists = [values[name] for name in WAV2VEC2_SIZES]
    if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
        told = ", ".join(f"{name}={short(values[name])}" for name in WAV2VEC2_SIZES)
        raise UserError(f"expected three lists of one length, got {told}")
    return [dict(zip(WAV2VEC2_SIZES.values(), sizes, strict=True)) for sizes in zip(*lists, strict=True)]


def _list_of(theirs: str) -> FieldRule:
    """One of those lists. The first sets all three."""
    ours = (f"{STEM}.convolutions",) if theirs == "conv_dim" else ()

    def write(_: Any, config: Values) -> list[int]:
        return [one[WAV2VEC2_SIZES[theirs]] for one in config["encoder"]["input"]["convolutions"]]

    return computed(theirs, *ours, read=_convolutions, write=write, default=USUAL[theirs], like=[])


def _count(n: int | None, values: Values) -> None:
    if n not in (None, len(values["conv_dim"])):
        raise UserError(f"expected {len(values['conv_dim'])}, the length of conv_dim, got {short(n)}")


FIELDS: FieldRules = (
    *sizes(
        "encoder",
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        initializer_range=0.02,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.1,
    ),
    *map(_list_of, WAV2VEC2_SIZES),
    computed(
        "num_feat_extract_layers",
        read=_count,
        write=lambda _, ours: len(ours["encoder"]["input"]["convolutions"]),
        default=None,
        like=0,
        null=False,
    ),
    same("conv_bias", f"{STEM}.conv_bias", default=False),
    named("feat_extract_norm", f"{STEM}.conv_norm", names={"group": "first", "layer": "all"}, default="group"),
    named("feat_extract_activation", f"{STEM}.activation", names=ACTIVATIONS, default="gelu"),
    same("num_conv_pos_embeddings", f"{STEM}.position_width", default=128),
    same("num_conv_pos_embedding_groups", f"{STEM}.position_groups", default=16),
    computed(
        "do_stable_layer_norm",
        "encoder.norm_place",
        read=lambda stable, _: "pre" if stable else "post",
        write=lambda place, _: place == "pre",
        default=False,
    ),
    computed(
        "do_stable_layer_norm",
        f"{STEM}.norm",
        read=lambda stable, _: not stable,
        write=lambda norm, _: not norm,
        default=False,
    ),
    # Its checkpoints have the vector of hidden moments if a moment may be hidden.
    computed(
        "mask_time_prob",
        write=lambda _, ours: 0.05 if ours["encoder"]["input"]["mask_token"] else 0.0,
        default=0.05,
    ),
    computed("mask_feature_prob", write=lambda *_: 0.0, default=0.0),
    *only(add_adapter=False, adapter_attn_dim=None),
    # Of training alone, and of heads that are not here.
    ignored("layerdrop", "feat_proj_dropout", "final_dropout", "apply_spec_augment", "mask_*", "vocab_size"),
    ignored("use_weighted_layer_sum", "classifier_proj_size", "tdnn_*", "xvector_output_dim", "ctc_*"),
    ignored("num_codevector*", "codevector_dim", "proj_codevector_dim", "contrastive_logits_temperature"),
    ignored("diversity_loss_weight", "num_negatives", "feat_quantizer_dropout"),
)


def _kernel(i: int, one: Convolution, before: Convolution | None) -> Rule:
    """The kernel of a convolution as a matrix."""
    channels = before.channels if before else 1
    return reshape(
        f"feature_extractor.conv_layers.{i}.conv.weight",
        f"encoder.embed.convolutions.{i}.weight",
        there=[one.channels, channels, one.width],
        here=[one.channels, channels * one.width],
    )


def wav2vec2_rules(config: ModelConfig) -> Sequence[Rule]:
    """The stem, and the blocks with their norms before or after the branches."""
    assert config.encoder is not None
    reads = config.encoder.input
    assert isinstance(reads, WaveInput)
    convolved = "encoder.pos_conv_embed.conv"
    names = {
        "feature_projection.layer_norm": "embed.feature_norm",
        "feature_projection.projection": "embed.dense",
        "encoder.layer_norm": "final_norm" if config.encoder.has_final_norm else "embed.norm",
        "attention.q_proj": "attn.q",
        "attention.k_proj": "attn.k",
        "attention.v_proj": "attn.v",
        "attention.out_proj": "attn.out",
        "layer_norm": "attn_norm",
        "feed_forward.intermediate_dense": "ffn.up",
        "feed_forward.output_dense": "ffn.down",
        "final_layer_norm": "ffn_norm",
    }
    around = {
        f"{convolved}.parametrizations.weight.original0": "size",
        f"{convolved}.parametrizations.weight.original1": "direction",
        f"{convolved}.weight_g": "size",
        f"{convolved}.weight_v": "direction",
        f"{convolved}.bias": "bias",
    }
    return (
        *(_kernel(i, one, before) for i, (before, one) in enumerate(pairwise([None, *reads.convolutions])) if one),
        rename("feature_extractor.conv_layers.{i}.conv.bias", "encoder.embed.convolutions.{i}.bias"),
        rename("feature_extractor.conv_layers.{i}.layer_norm.{p}", "encoder.embed.convolutions.{i}.norm.{p}"),
        rename("masked_spec_embed", "encoder.embed.mask_token"),
        *(rename(there, f"encoder.embed.around.{here}") for there, here in around.items()),
        *modules("encoder", "encoder.layers.{i}", names),
    )


def heads(name: str, prefix: str, *, tagged: bool) -> tuple[HeadMap, ...]:
    """The text that is spoken, the states, and for some a label for each moment."""
    hidden = "masked_spec_embed"
    presence = {f"{STEM}.mask_token": f"{prefix}.{hidden}"}
    spelling = HeadMap(
        f"{name}ForCTC",
        {"head.kind": "tagging"},
        fields=(
            same("vocab_size", "head.n_labels", default=32),
            same("pad_token_id", "head.blank", default=0),
            same("final_dropout", "head.dropout", default=0.1),
        ),
        prefix=f"{prefix}.",
        presence=presence,
        names={"lm_head": "output"},
    )
    unweighted = Only("use_weighted_layer_sum", False)
    tagging = replace(tags(f"{name}ForAudioFrameClassification", f"{prefix}.", unweighted), presence=presence)
    states = bare(f"{name}Model", presence={f"{STEM}.mask_token": hidden})
    return (spelling, states, tagging) if tagged else (spelling, states)


def family(model_type: str, name: str, *fields: FieldRule, tagged: bool = False) -> Family:
    """A family with wav2vec 2.0's network."""
    return Family(
        model_type,
        {f"{STEM}.kind": "samples", "encoder.positions.kind": "none", "init.depth_scaled": False},
        (*FIELDS, *fields),
        wav2vec2_rules,
        heads(name, model_type.replace("-", "_"), tagged=tagged),
        fallback={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    )


WAV2VEC2 = family(
    "wav2vec2",
    "Wav2Vec2",
    ignored("adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size"),
    tagged=True,
)
HUBERT = family(
    "hubert",
    "Hubert",
    same("feat_proj_layer_norm", f"{STEM}.feature_norm", default=True),
    Only("conv_pos_batch_norm", False),
)
UNISPEECH = family("unispeech", "UniSpeech", ignored("num_ctc_classes", "replace_prob"))
UNISPEECH_SAT = family("unispeech-sat", "UniSpeechSat", ignored("num_clusters"), tagged=True)


# --- Whisper (Radford et al. 2022) ---------------------------------------------------------------------------------

DROPPED = ("scale_embedding", "encoder_layerdrop", "decoder_layerdrop")
"""Fields with another meaning here: the reference reads no scale, and skips layers in training alone."""


WHISPER_FIELDS: FieldRules = (
    *sizes("decoder", vocab_size=51_865),
    same("num_mel_bins", "encoder.input.n_bins", default=80),
    # Two frames for each position.
    computed(
        "max_source_positions",
        "encoder.input.n_frames",
        read=lambda n_positions, _: 2 * n_positions,
        write=lambda n_frames, _: n_frames // 2,
        default=1500,
    ),
    same("max_source_positions", "encoder.positions.max_length", default=1500),
    same("max_target_positions", "decoder.positions.max_length", default=448),
    *without(bart_fields(d_model=384, layers=(4, 4), heads=6, inner=1536, dropout=0.0), *DROPPED),
    Alias("num_key_value_heads", of="encoder_attention_heads"),
    ignored(*DROPPED),
    # Changes of the frames in training, and the head of a class that is not here.
    ignored("apply_spec_augment", "mask_time_*", "mask_feature_*", "use_weighted_layer_sum", "classifier_proj_size"),
    # Of times in the text, and the older names of the first tokens.
    ignored("median_filter_width", "forced_decoder_ids", "n_positions"),
)


def whisper_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """The blocks of both stacks, the position tables, and the kernels of the convolutions as matrices."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, FrameInput)
    d = stack.d_model
    widths = {"conv1": stack.input.n_bins, "conv2": d}
    return (
        *(
            reshape(f"encoder.{conv}.weight", f"encoder.embed.{conv}.weight", there=[d, n, 3], here=[d, 3 * n])
            for conv, n in widths.items()
        ),
        *(rename(f"encoder.{conv}.bias", f"encoder.embed.{conv}.bias") for conv in widths),
        rename("decoder.embed_tokens.weight", "decoder.embed.tokens.weight"),
        *(rename(f"{s}.embed_positions.weight", f"{s}.positions.table.weight") for s in STACKS),
        *(rename(f"{s}.layer_norm.{{p}}", f"{s}.final_norm.{{p}}") for s in STACKS),
        *(rule for s in STACKS for rule in blocks(s, rename, rename)),
    )


WHISPER = Family(
    model_type="whisper",
    constants={
        "encoder.input.kind": "frames",
        "encoder.positions.kind": "learned",
        "decoder.positions.kind": "learned",
        "encoder.key_bias": False,
        "decoder.key_bias": False,
    },
    fields=WHISPER_FIELDS,
    rules=whisper_rules,
    heads=(
        HeadMap(
            "WhisperForConditionalGeneration",
            {"head.kind": "language"},
            lambda config: (output_matrix("proj_out.weight", config, "decoder.embed.tokens.weight"),),
            (same("tie_word_embeddings", "head.tied", default=True),),
            prefix="model.",
        ),
        bare("WhisperModel"),
    ),
    fallback={"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0},
)
