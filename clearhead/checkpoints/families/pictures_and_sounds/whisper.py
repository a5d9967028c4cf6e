"""The encoder-decoder of Radford et al. 2022, which writes what a sound says."""

from typing import Any

from clearhead.checkpoints.families.encoder_decoders.encoder_decoder import FIELDS, STACKS, blocks
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import output_matrix, with_defaults
from clearhead.checkpoints.weights.fields import Alias, FieldRule, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape
from clearhead.config import FrameInput, LanguageHead, ModelConfig

DROPPED = ("scale_embedding", "encoder_layerdrop", "decoder_layerdrop")
"""Fields with another meaning here: the reference reads no scale, and skips layers in training alone."""


def _frames(n_positions: int, _: Values) -> int:
    """Two frames for each position."""
    return 2 * n_positions


def _positions(n_frames: int, _: Any) -> int:
    return n_frames // 2


def _named(field: FieldRule) -> str:
    return field.theirs if not isinstance(field.theirs, tuple) else ""


SIZES = with_defaults(
    [field for field in FIELDS if _named(field) not in DROPPED],
    d_model=384,
    encoder_layers=4,
    encoder_attention_heads=6,
    encoder_ffn_dim=1536,
    decoder_layers=4,
    decoder_attention_heads=6,
    decoder_ffn_dim=1536,
    dropout=0.0,
)

FIELDS_HERE: tuple[FieldRule, ...] = (
    same("vocab_size", "decoder.input.vocab_size", default=51_865),
    same("num_mel_bins", "encoder.input.n_bins", default=80),
    computed("max_source_positions", "encoder.input.n_frames", read=_frames, write=_positions, default=1500, like=1500),
    computed("max_source_positions", "encoder.positions.max_length", default=1500, like=1500),
    same("max_target_positions", "decoder.positions.max_length", default=448),
    *SIZES,
    Alias("num_key_value_heads", of="encoder_attention_heads"),
    ignored(*DROPPED),
    # Changes of the frames in training, and the head of a class that is not here.
    ignored("apply_spec_augment", "mask_time_*", "mask_feature_*", "use_weighted_layer_sum", "classifier_proj_size"),
    # Of times in the text, and the older names of the first tokens.
    ignored("median_filter_width", "forced_decoder_ids", "n_positions"),
)


def rules(config: ModelConfig) -> tuple[Rule, ...]:
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


def language_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """The output matrix, which is the token table unless the config unties them."""
    assert isinstance(config.head, LanguageHead)
    return (output_matrix("proj_out.weight", config, "decoder.embed.tokens.weight"),)


FAMILY = Family(
    model_type="whisper",
    constants={
        "encoder.input.kind": "frames",
        "decoder.input.kind": "tokens",
        "encoder.positions.kind": "learned",
        "decoder.positions.kind": "learned",
        "encoder.key_bias": False,
        "decoder.key_bias": False,
    },
    fields=FIELDS_HERE,
    rules=rules,
    heads=(
        HeadMap(
            "WhisperForConditionalGeneration",
            {"head.kind": "language"},
            language_rules,
            (same("tie_word_embeddings", "head.tied", default=True),),
            prefix="model.",
        ),
        HeadMap("WhisperModel", {"head.kind": "none"}),
    ),
    fallback={"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0},
)
