"""The decoder of OpenAI 2025: a sink in each head, every other layer with a window, experts whose gate is clamped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.angles import modern, rotary, windows
from clearhead.checkpoints.families.decoders.llama import LLAMA_CONSTANTS, llama_heads, llama_rules, llama_sizes
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.mixtures import balance, checked, choice, number, of_each, places
from clearhead.checkpoints.weights.fields import computed, inherited, same
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


def _none(*_: Any) -> None:
    """Sets nothing."""


# --- tensors ---------------------------------------------------------------------------------------------------------


def _in_turns(theirs: str, n: int, kind: str) -> Rule:
    """Theirs is e d (2 f), or e (2 f): the units of the gate and of the other map in turns."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = checked(tensors[0], n)
        return _apart(whole.mT if kind == "weight" else whole)

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        whole = torch.stack([torch.stack(own, 1).flatten(0, 1) for own in of_each(tensors, 2)])
        return [whole.mT.contiguous() if kind == "weight" else whole]

    return Rule((theirs,), places(n, ("gate", "up"), kind), load, save)


def _apart(whole: "Tensor") -> "list[Tensor]":
    """e (2 f) ... -> gate and other map of each expert."""
    return [part.contiguous() for expert in whole for part in (expert[::2], expert[1::2])]


def _down(theirs: str, n: int, kind: str) -> Rule:
    """Theirs is e f d, or e d."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = checked(tensors[0], n)
        return [*(whole.mT if kind == "weight" else whole)]

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        whole = torch.stack([*tensors])
        return [whole.mT.contiguous() if kind == "weight" else whole]

    return Rule((theirs,), places(n, ("down",), kind), load, save)


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
        whole = restored(checked(tensors[0], n), tensors[1])
        return [*whole] if len(parts) == 1 else _apart(whole)

    return Rule((f"{theirs}_blocks", f"{theirs}_scales"), places(n, parts, "weight"), load)


def _rules(config: ModelConfig) -> Sequence[Rule]:
    at, n = "layers.{i}.mlp.experts", number(config)
    return (
        *llama_rules(config),
        rename("layers.{i}.self_attn.sinks", "decoder.blocks.{i}.attn.sinks"),
        rename("layers.{i}.mlp.router.{p}", "decoder.blocks.{i}.ffn.router.{p}"),
        *(_in_turns(f"{at}.gate_up_proj{end}", n, kind) for end, kind in (("", "weight"), ("_bias", "bias"))),
        *(_down(f"{at}.down_proj{end}", n, kind) for end, kind in (("", "weight"), ("_bias", "bias"))),
        _packed(f"{at}.gate_up_proj", n, "gate", "up"),
        _packed(f"{at}.down_proj", n, "down"),
    )


GPT_OSS = Family(
    model_type="gpt_oss",
    constants=LLAMA_CONSTANTS
    | {
        "decoder.sinks": True,
        "decoder.ffn_bias": True,
        "decoder.experts.normalised": True,
        "decoder.experts.router_bias": True,
    },
    fields=(
        *llama_sizes(
            vocab_size=201_088,
            hidden_size=2880,
            intermediate_size=2880,
            layers=36,
            n_heads=64,
            kv_heads=8,
            head_dim=64,
            eps=1e-5,
            angles=rotary(max_length=131_072, theta=150_000.0),
        ),
        inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
        *windows(every=2, window=128),
        *choice(128, 4, theirs="num_local_experts", also="num_experts"),
        *balance(),
        same("swiglu_alpha", "decoder.clamp.alpha", default=1.702),
        same("swiglu_limit", "decoder.clamp.limit", default=7.0),
        # Of four-bit numbers, which are restored.
        replace(computed("quantization_config", read=_none, write=_none, default=None), extra=True),
    ),
    rules=_rules,
    heads=llama_heads("GptOss")[:4],
    modernize=_modern,
    packings=(MXFP4,),
)
