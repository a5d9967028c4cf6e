"""The encoders of sounds of Baevski et al. 2020 (wav2vec 2.0), Hsu et al. 2021 (HuBERT), Wang et al. 2021 (UniSpeech)
and Chen et al. 2021 (UniSpeech-SAT), which say what is spoken at each moment.

Their quantizers, which only pre-training uses, and the adapters of languages (Pratap et al. 2023) are left out.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import ACTIVATIONS, labels
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape
from clearhead.config import Convolution, ModelConfig, WaveInput
from clearhead.errors import UserError

STEM = "encoder.input"
USUAL: dict[str, list[JsonValue]] = {
    "conv_dim": [512] * 7,
    "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
    "conv_stride": [5, 2, 2, 2, 2, 2, 2],
}
SIZES = {"conv_dim": "channels", "conv_kernel": "width", "conv_stride": "step"}


def _convolutions(_: Any, values: Values) -> list[dict[str, Any]]:
    """One table for each convolution, of the lists that have an item for each."""
    lists = [values[name] for name in SIZES]
    if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
        told = ", ".join(f"{name}={short(values[name])}" for name in SIZES)
        raise UserError(f"expected three lists of one length, got {told}")
    return [dict(zip(SIZES.values(), sizes, strict=True)) for sizes in zip(*lists, strict=True)]


def _list_of(theirs: str) -> FieldRule:
    """One of those lists. The first sets all three."""
    ours = (f"{STEM}.convolutions",) if theirs == "conv_dim" else ()

    def write(_: Any, config: Values) -> list[int]:
        return [one[SIZES[theirs]] for one in config["encoder"]["input"]["convolutions"]]

    return computed(theirs, *ours, read=_convolutions, write=write, default=USUAL[theirs], like=[])


def _turned(value: bool, _: Values) -> bool:
    return not value


def _count(n: int | None, values: Values) -> None:
    if n not in (None, len(values["conv_dim"])):
        raise UserError(f"expected {len(values['conv_dim'])}, the length of conv_dim, got {short(n)}")


def _counted(_: Any, ours: Values) -> int:
    return len(ours["encoder"]["input"]["convolutions"])


FIELDS: tuple[FieldRule, ...] = (
    same("hidden_size", "encoder.d_model", default=768),
    same("num_hidden_layers", "encoder.n_layers", default=12),
    same("num_attention_heads", "encoder.n_heads", default=12),
    same("intermediate_size", "encoder.d_ff", default=3072),
    named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu"),
    same("layer_norm_eps", "encoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("hidden_dropout", "encoder.dropout", default=0.1),
    same("attention_dropout", "encoder.attn_dropout", default=0.1),
    same("activation_dropout", "encoder.ffn_dropout", default=0.1),
    *map(_list_of, SIZES),
    computed("num_feat_extract_layers", read=_count, write=_counted, default=None, like=0, nullable=False),
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
        like=False,
    ),
    computed("do_stable_layer_norm", f"{STEM}.norm", read=_turned, write=_turned, default=False, like=False),
    # Its checkpoints have the vector of hidden moments if a moment may be hidden.
    computed(
        "mask_time_prob",
        write=lambda _, ours: 0.05 if ours["encoder"]["input"]["mask_token"] else 0.0,
        default=0.05,
        like=0.05,
        nullable=False,
    ),
    computed("mask_feature_prob", write=lambda *_: 0.0, default=0.0, like=0.0, nullable=False),
    Only("add_adapter", False),
    Only("adapter_attn_dim", None),
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


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The stem, and the blocks with their norms before or after the branches."""
    assert config.encoder is not None
    reads = config.encoder.input
    assert isinstance(reads, WaveInput)
    theirs, ours = "encoder.layers.{i}", "encoder.blocks.{i}"
    parts = {
        **{f"attention.{n}_proj": f"attn.{n}" for n in "qkv"},
        "attention.out_proj": "attn.out",
        "layer_norm": "attn_norm",
        "feed_forward.intermediate_dense": "ffn.up",
        "feed_forward.output_dense": "ffn.down",
        "final_layer_norm": "ffn_norm",
    }
    around = {"original0": "size", "original1": "direction"}
    older = {"weight_g": "size", "weight_v": "direction"}
    return (
        *(_kernel(i, one, before) for i, (before, one) in enumerate(pairwise([None, *reads.convolutions])) if one),
        rename("feature_extractor.conv_layers.{i}.conv.bias", "encoder.embed.convolutions.{i}.bias"),
        rename("feature_extractor.conv_layers.{i}.layer_norm.{p}", "encoder.embed.convolutions.{i}.norm.{p}"),
        rename("feature_projection.layer_norm.{p}", "encoder.embed.feature_norm.{p}"),
        rename("feature_projection.projection.{p}", "encoder.embed.dense.{p}"),
        rename("masked_spec_embed", "encoder.embed.mask_token"),
        *(
            rename(f"encoder.pos_conv_embed.conv.parametrizations.weight.{there}", f"encoder.embed.around.{here}")
            for there, here in around.items()
        ),
        *(rename(f"encoder.pos_conv_embed.conv.{a}", f"encoder.embed.around.{b}") for a, b in older.items()),
        rename("encoder.pos_conv_embed.conv.bias", "encoder.embed.around.bias"),
        rename("encoder.layer_norm.{p}", "encoder.final_norm.{p}" if config.encoder.has_final_norm else NORM),
        *(rename(f"{theirs}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in parts.items()),
    )


NORM = "encoder.embed.norm.{p}"


def heads(name: str, prefix: str, *, tags: bool = False) -> tuple[HeadMap, ...]:
    """The text that is spoken, the states, and for some a label for each moment."""
    hidden = "masked_spec_embed"
    spelling = HeadMap(
        f"{name}ForCTC",
        {"head.kind": "tagging"},
        lambda _: (rename("lm_head.{p}", "head.output.{p}"),),
        (
            same("vocab_size", "head.n_labels", default=32),
            same("pad_token_id", "head.blank", default=0),
            same("final_dropout", "head.dropout", default=0.1),
        ),
        prefix=f"{prefix}.",
        presence={f"{STEM}.mask_token": f"{prefix}.{hidden}"},
    )
    tagging = HeadMap(
        f"{name}ForAudioFrameClassification",
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        (*labels(), Only("use_weighted_layer_sum", False)),
        prefix=f"{prefix}.",
        presence={f"{STEM}.mask_token": f"{prefix}.{hidden}"},
    )
    bare = HeadMap(f"{name}Model", {"head.kind": "none"}, presence={f"{STEM}.mask_token": hidden})
    return (spelling, bare, *([tagging] if tags else []))


CONSTANTS = {f"{STEM}.kind": "samples", "encoder.positions.kind": "none", "init.depth_scaled": False}
FALLBACK = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

FAMILY = Family(
    model_type="wav2vec2",
    constants=CONSTANTS,
    fields=(
        *FIELDS,
        ignored("adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size"),
    ),
    rules=rules,
    heads=heads("Wav2Vec2", "wav2vec2", tags=True),
    fallback=FALLBACK,
)
HUBERT = Family(
    model_type="hubert",
    constants=CONSTANTS,
    fields=(
        *FIELDS,
        same("feat_proj_layer_norm", f"{STEM}.feature_norm", default=True),
        Only("conv_pos_batch_norm", False),
    ),
    rules=rules,
    heads=heads("Hubert", "hubert"),
    fallback=FALLBACK,
)
UNISPEECH = Family(
    model_type="unispeech",
    constants=CONSTANTS,
    fields=(*FIELDS, ignored("num_ctc_classes", "replace_prob")),
    rules=rules,
    heads=heads("UniSpeech", "unispeech"),
    fallback=FALLBACK,
)
UNISPEECH_SAT = Family(
    model_type="unispeech-sat",
    constants=CONSTANTS,
    fields=(*FIELDS, ignored("num_clusters")),
    rules=rules,
    heads=heads("UniSpeechSat", "unispeech_sat", tags=True),
    fallback=FALLBACK,
)
