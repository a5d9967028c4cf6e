"""Models that read pictures of any size within a text, with positions in three axes.

Qwen2-VL (Wang et al. 2024) and Qwen2.5-VL (Bai et al. 2025).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.angles import read_angles, rotary, write_angles
from clearhead.checkpoints.families.decoders.llama import WINDOW, llama_like
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.pictures_and_sounds.pictures import Sight, text_part, tower_of, written_tower
from clearhead.checkpoints.families.pictures_and_sounds.vit import square
from clearhead.checkpoints.families.shared import MOST_LAYERS, bare, sizes, width_of, window_layers
from clearhead.checkpoints.weights.fields import REQUIRED, Field, FieldRule, Values, computed, ignored, implied, same
from clearhead.checkpoints.weights.mapping import Rule, modules, rename, reshape, split
from clearhead.config import GridInput, ModelConfig

# --- the tower -----------------------------------------------------------------------------------------------------


def _window(reach: int, values: Values) -> int | None:
    """The side of the squares of patches within which layers attend; None if all layers are full."""
    merge = values["spatial_merge_size"]
    return reach // merge // square(values["patch_size"]) * merge if _windowed(values) else None


def _reach(side: int | None, ours: Values) -> int:
    return (side or 8) * ours["encoder"]["input"]["patch_size"]


def _windowed(values: Values) -> list[int]:
    return sorted({*range(min(values["depth"], MOST_LAYERS))} - {*values["fullatt_block_indexes"]})


def _full(layers: Sequence[int] | None, ours: Values) -> list[int]:
    stack = ours["encoder"]
    return [i for i in range(stack["n_layers"]) if not stack["window"] or (layers is not None and i not in layers)]


def _tower(
    model_type: str, width: tuple[str, int], modules_: Mapping[str, str], *fields: FieldRule, **constants: Any
) -> Family:
    """A tower whose width has this name and default there, with further modules, fields and settings."""
    named, default = width

    def angles(parameters: dict[str, Any], values: Values) -> dict[str, Any]:
        """Half of the pairs turn by the row and half by the column, with the same frequencies."""
        base, n = parameters.get("rope_theta", 10_000.0), values[named] // values["num_heads"] // 4
        frequencies = [base ** (-i / n) for i in range(n)] * 2
        return {"kind": "rotary", "base": base, "frequencies": frequencies, "sections": [0, n, n]}

    def written(positions: Values, _: Values) -> dict[str, Any]:
        return {"rope_type": "axial", "rope_theta": positions["base"]}

    def rules(config: ModelConfig) -> Sequence[Rule]:
        stack = config.encoder
        assert stack is not None
        assert isinstance(stack.input, GridInput)
        d, reads = stack.d_model, stack.input
        there = [d, reads.n_channels, reads.frames, reads.patch_size, reads.patch_size]
        here = [d, reads.frames * reads.shape[-1]]
        names = {"attn.proj": "attn.out", "norm1": "attn_norm", "norm2": "ffn_norm", "merger.ln_q": "final_norm"}
        return (
            reshape("patch_embed.proj.weight", "encoder.embed.patches.weight", there=there, here=here),
            split("blocks.{i}.attn.qkv.{p}", [f"encoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qkv"]),
            *modules("encoder", "blocks.{i}", {**names, **modules_}),
        )

    return Family(
        model_type=model_type,
        constants={
            "encoder.input.kind": "grid",
            "encoder.norm_eps": 1e-6,
            "init.depth_scaled": False,
            **{f"encoder.{name}": value for name, value in constants.items()},
        },
        fields=(
            *sizes("encoder", num_heads=16, initializer_range=0.02),
            same(named, "encoder.d_model", default=default),
            same("depth", "encoder.n_layers", default=32),
            same("in_channels", "encoder.input.n_channels", default=3),
            computed("patch_size", "encoder.input.patch_size", read=square, default=14, like=None),
            computed("temporal_patch_size", "encoder.input.frames", read=square, default=2, like=None),
            computed("rope_parameters", "encoder.positions", read=angles, write=written, default={}),
            computed("spatial_merge_size", write=lambda *_: 2, default=2),
            *fields,
        ),
        rules=rules,
        heads=(bare(model_type),),
    )


QWEN2_5_TOWER = _tower(
    "qwen2_5_vl_vision",
    ("hidden_size", 3584),
    {"mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down"},
    *sizes("encoder", intermediate_size=3420, hidden_act="silu"),
    computed("window_size", "encoder.window", read=_window, write=_reach, default=112),
    computed(
        "fullatt_block_indexes",
        "encoder.window_layers",
        read=lambda _, values: window_layers(_windowed(values), values["depth"]),
        write=_full,
        default=[7, 15, 23, 31],
    ),
    ignored("out_hidden_size", "tokens_per_second", "in_chans", "spatial_patch_size"),
    norm="rms",
    gated=True,
)
QWEN2_TOWER = _tower(
    "qwen2_vl_vision",
    ("embed_dim", 1280),
    {"mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down"},
    *sizes("encoder", hidden_act="quick_gelu"),
    computed(
        "mlp_ratio",
        "encoder.d_ff",
        read=lambda ratio, values: int(values["embed_dim"] * ratio),
        write=lambda units, ours: units // ours["encoder"]["d_model"],
        default=4,
        like=None,
    ),
    ignored("hidden_size", "in_chans", "spatial_patch_size"),
)

# --- the text model ------------------------------------------------------------------------------------------------


def _angles(parameters: dict[str, Any], values: Values) -> dict[str, Any]:
    said = {"mrope_section": [16, 24, 24], **parameters}
    sections = said.pop("mrope_section")
    said |= {name: "default" for name in ("type", "rope_type") if said.get(name) == "mrope"}
    return {**read_angles(said, values, theta=1e6), "sections": sections}


def _written_angles(positions: Values, _: Values) -> dict[str, Any]:
    return {**write_angles(positions), "mrope_section": positions["sections"]}


ANGLES, *LENGTHS = rotary(max_length=32_768, theta=1e6)
TEXT = llama_like(
    "qwen2_5_vl_text",
    "Qwen2_5_VL",
    *WINDOW,
    implied(
        "head_dim",
        lambda values: values["hidden_size"] // values["num_attention_heads"],
        write=lambda ours: width_of(ours["decoder"]),
        what="hidden_size / num_attention_heads",
    ),
    constants={"decoder.qkv_bias": True},
    angles=(replace(ANGLES, read=_angles, write=_written_angles), *LENGTHS),
    vocab_size=152_064,
    hidden_size=8192,
    intermediate_size=29_568,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    leave_out=("head_dim",),
)

# --- the whole -----------------------------------------------------------------------------------------------------


def _sight(tower: Family, width: tuple[str, int], out: str) -> Sight:
    """A tower, its projector and their fields; `out` is the tower's name of the text model's width."""

    def merge(vision: Mapping[str, Any]) -> int:
        return vision.get("spatial_merge_size", 2)

    def write(_: Any, config: Values) -> dict[str, Any]:
        seen = config["pictures"]
        own = {out: config["decoder"]["d_model"], "spatial_merge_size": seen["projector"]["join"]}
        return {**(written_tower(tower, seen["tower"]) or {}), **own}

    def of_vision(ours: str, read: Callable[[Mapping[str, Any]], Any]) -> Field:
        return computed(
            "vision_config", ours, read=lambda vision, _: read(vision), write=write, default=REQUIRED, like={}
        )

    return Sight(
        tower,
        (
            of_vision("pictures.tower", lambda vision: tower_of(tower, vision)),
            of_vision("pictures.projector.join", merge),
            of_vision("pictures.projector.width", lambda vision: vision.get(*width) * merge(vision) ** 2),
            same("image_token_id", "pictures.mark_id", default=151_655),
            same("video_token_id", "pictures.video_id", default=151_656),
            same("vision_start_token_id", "pictures.first_id", default=151_652),
            same("vision_end_token_id", "pictures.last_id", default=151_653),
            ignored("vision_token_id"),
        ),
        (rename("mlp.0.{p}", "up.{p}"), rename("mlp.2.{p}", "down.{p}")),
        {"pictures.projector.activation": "gelu"},
        names=("visual", "visual.merger"),
        tops=(("model.", "model.language_model."), ("", "model."), ("",)),
    )


def _whole(name: str, text: Family, sight: Sight) -> Family:
    """The class of this name, which also reads configs with the fields of the text model beside those of the whole."""
    family = text_part(text, text.model_type.removesuffix("_text"), name, sight=sight, either=True)

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        return family.modernize({"text_config": document, **document})

    return replace(family, modernize=modernize, only_if={})


QWEN2_5_VL = _whole(
    "Qwen2_5_VLForConditionalGeneration", TEXT, _sight(QWEN2_5_TOWER, ("hidden_size", 3584), "out_hidden_size")
)
QWEN2_VL = _whole(
    "Qwen2VLForConditionalGeneration",
    replace(TEXT, model_type="qwen2_vl_text"),
    _sight(QWEN2_TOWER, ("embed_dim", 1280), "hidden_size"),
)
