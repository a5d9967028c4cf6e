"""The decoder of OpenAI 2025: a sink in each head, every other layer with a window, experts whose gate is clamped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.angles import modern, rotary, windows
from clearhead.checkpoints.families.decoders.llama import llama_like, renamed
from clearhead.checkpoints.families.mixtures.mixtures import (
    LOCAL_EXPERTS,
    apart,
    balance,
    checked,
    choice,
    number,
    places,
    stacked,
)
from clearhead.checkpoints.families.shared import bias
from clearhead.checkpoints.weights.fields import computed, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

MXFP4 = "mxfp4"
ANGLES = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The angles of a config that names none."""
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The eight sizes of a four-bit number, whose highest bit is its sign (Open Compute Project 2023, 5.3.3)."""


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    said = document.get("rope_scaling") or document.get("rope_parameters")
    return modern(document if said else {**document, "rope_scaling": ANGLES})


# --- tensors ---------------------------------------------------------------------------------------------------------


def restored(blocks: "Tensor", scales: "Tensor") -> "Tensor":
    """e r g 16 and e r g, whole numbers of 8 bits -> e r (32 g): two four-bit numbers a byte, the lower first

    Each group of 32 has one power of 2 as its scale, 127 of which means 1 (Open Compute Project 2023, 5 and 6). Raises
    UserError if the two do not fit.
    """
    import torch

    if blocks.shape[:-1] != scales.shape or {blocks.dtype, scales.dtype} != {torch.uint8}:
        raise UserError(f"expected bytes and a scale for each group, got {list(blocks.shape)} and {list(scales.shape)}")
    levels = torch.tensor([*LEVELS, *(-level for level in LEVELS)], dtype=torch.bfloat16)
    numbers = torch.stack((levels[(blocks & 15).int()], levels[(blocks >> 4).int()]), -1).flatten(-2)
    return torch.ldexp(numbers, scales.int()[..., None] - 127).to(torch.bfloat16).flatten(-2)


def _packed(theirs: str, n: int, *parts: str) -> Rule:
    """Four-bit numbers, which are restored."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        return apart(restored(checked(tensors[0], n), tensors[1]), len(parts), in_turns=len(parts) > 1)

    return Rule((f"{theirs}_blocks", f"{theirs}_scales"), places(n, parts, "weight"), load)


def _rules(config: ModelConfig) -> Sequence[Rule]:
    """Matrices are stored transposed, and the units of the gate and of the other map in turns."""
    at, n, both = "layers.{i}.mlp.experts", number(config), ("gate", "up")
    return (
        *renamed({"mlp.router": "ffn.router"}),
        rename("layers.{i}.self_attn.sinks", "decoder.blocks.{i}.attn.sinks"),
        stacked(f"{at}.gate_up_proj", n, *both, turned=True, in_turns=True),
        stacked(f"{at}.gate_up_proj_bias", n, *both, kind="bias", in_turns=True),
        stacked(f"{at}.down_proj", n, "down", turned=True),
        stacked(f"{at}.down_proj_bias", n, "down", kind="bias"),
        _packed(f"{at}.gate_up_proj", n, *both),
        _packed(f"{at}.down_proj", n, "down"),
    )


_LIKE = llama_like(
    "gpt_oss",
    "GptOss",
    bias("attention_bias", "qkv", "out", default=True),
    *windows(every=2, window=128),
    *choice(128, 4, **LOCAL_EXPERTS),
    *balance(),
    same("swiglu_alpha", "decoder.clamp.alpha", default=1.702),
    same("swiglu_limit", "decoder.clamp.limit", default=7.0),
    # Of four-bit numbers, which are restored.
    replace(computed("quantization_config", read=lambda *_: None, write=lambda *_: None, default=None), extra=True),
    constants={
        "decoder.sinks": True,
        "decoder.ffn_bias": True,
        "decoder.experts.normalised": True,
        "decoder.experts.router_bias": True,
    },
    rules=_rules,
    n_classes=4,
    modernize=_modern,
    vocab_size=201_088,
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=36,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, theta=150_000.0),
)
GPT_OSS = replace(_LIKE, packings=(MXFP4,))
