"""Decoders with the gated delta rule in most layers: Qwen3-Next and Qwen 3.5 (Qwen Team 2025, 2026)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.decoders.hybrids import mixed_layers
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.mixtures import (
    PROJECTIONS,
    SPARSE,
    balance,
    choice,
    expert_width,
    mixture_rules,
)
from clearhead.checkpoints.families.shared import bare, decoder_language, with_defaults
from clearhead.checkpoints.weights.fields import Only, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, fused, leave_out, rename, renames, squeezed
from clearhead.config import GatedDelta, ModelConfig

MIX, OURS = "layers.{i}.linear_attn", "decoder.blocks.{i}.mix"
Projections = Callable[[GatedDelta], Sequence[Rule]]


def _by_side(mixer: GatedDelta) -> Sequence[Rule]:
    """Qwen 3.5: queries, keys and values in one matrix, the others by themselves."""
    return (
        fused(f"{MIX}.in_proj_qkv.{{p}}", [f"{OURS}.{side}.{{p}}" for side in "qkv"], rows=_rows(mixer)),
        *renames(MIX, OURS, {"in_proj_z": "gate", "in_proj_b": "rate"}),
        rename(f"{MIX}.in_proj_a.weight", f"{OURS}.decay.weight"),
    )


def _by_head(mixer: GatedDelta) -> Sequence[Rule]:
    """Qwen3-Next: the rows of each head of keys together."""
    groups = mixer.key_heads
    sides, numbers = (
        [f"{OURS}.{name}.weight" for name in names] for names in (("q", "k", "v", "gate"), ("rate", "decay"))
    )
    k, _, v = (n // groups for n in _rows(mixer))
    return (
        fused(f"{MIX}.in_proj_qkvz.weight", sides, rows=[k, k, v, v], groups=groups),
        fused(f"{MIX}.in_proj_ba.weight", numbers, rows=[mixer.n_heads // groups] * 2, groups=groups),
    )


def _rows(mixer: GatedDelta) -> list[int]:
    keys = mixer.key_heads * mixer.d_key
    return [keys, keys, mixer.n_heads * mixer.d_value]


def _rules(config: ModelConfig, *, projections: Projections) -> Sequence[Rule]:
    """Llama's names with a gate among the rows of each head of queries."""
    stack, mixer = config.output, config.output.mixer
    assert isinstance(mixer, GatedDelta)
    gated = [f"decoder.blocks.{{i}}.attn.{name}.{{p}}" for name in ("q", "gate")]
    convolutions = [f"{OURS}.{side}_conv.weight" for side in "qkv"]
    return (
        *renamed({"self_attn.q_norm": "attn.q_norm"}, but=("attn.q",)),
        fused("layers.{i}.self_attn.q_proj.{p}", gated, rows=[stack.head_width] * 2, groups=stack.n_heads),
        *projections(mixer),
        squeezed(fused(f"{MIX}.conv1d.weight", convolutions, rows=_rows(mixer))),
        rename(f"{MIX}.dt_bias", f"{OURS}.decay.bias"),
        rename(f"{MIX}.A_log", f"{OURS}.log_speed"),
        *renames(MIX, OURS, {"norm": "norm", "out_proj": "out"}),
    )


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """Positions of three axes are alike in a text."""
    document = modern(document)
    angles = document["rope_parameters"]
    if isinstance(angles, dict):
        document["rope_parameters"] = {name: said for name, said in angles.items() if not name.startswith("mrope_")}
    return document


def _words(architecture: str) -> Any:
    """The class that writes words, beside which lie layers that predict further tokens."""
    words = decoder_language(architecture, "model.", tied=False)
    deep = (".".join(["mtp", *(f"{{{letter}}}" for letter in "abcdefgh"[:n])]) for n in range(1, 9))
    further = leave_out(*deep, because="a layer that predicts further tokens")
    return replace(words, rules=lambda config: (*words.rules(config), further))


def _like(model_type: str, name: str, *fields: Any, rules: Any, constants: Any = None, **defaults: Any) -> Family:
    sizes = {"n_heads": ("linear_num_value_heads", 32), "d_key": ("linear_key_head_dim", 128)}
    sizes |= {"d_value": ("linear_value_head_dim", 128), "width": ("linear_conv_kernel_dim", 4)}
    return llama_like(
        model_type,
        name,
        mixed_layers("linear_attention", every="full_attention_interval"),
        computed("full_attention_interval", write=lambda *_: 4, default=4),
        *(same(theirs, f"decoder.mixer.{ours}", default=default) for ours, (theirs, default) in sizes.items()),
        computed(
            "linear_num_key_heads",
            "decoder.mixer.n_key_heads",
            write=lambda n, ours: n or ours["decoder"]["mixer"]["n_heads"],
            default=16,
        ),
        BIASES[0],
        Only("hidden_act", "silu"),
        *fields,
        constants={
            "decoder.mixer.kind": "gated_delta",
            "decoder.attn_gate": True,
            "decoder.qk_norm": True,
            "decoder.norm_gain": "one_plus_weight",
            "decoder.activation": "silu",
            **(constants or {}),
        },
        rules=rules,
        words=_words(f"{name}ForCausalLM"),
        modernize=_plain,
        leave_out=("hidden_act", *(() if "intermediate_size" in defaults else ("intermediate_size",))),
        head_dim=256,
        num_attention_heads=16,
        angles=rotary(max_length=32_768, fraction=0.25),
        **defaults,
    )


def _mixture(projections: Projections) -> Any:
    return mixture_rules(PROJECTIONS, shared="shared_expert", rest=partial(_rules, projections=projections))


SHARED = same("shared_expert_intermediate_size", "decoder.experts.shared", default=512)
QWEN3_NEXT = _like(
    "qwen3_next",
    "Qwen3Next",
    *choice(512, 10),
    *with_defaults(SPARSE, norm_topk_prob=True),
    expert_width(512),
    SHARED,
    constants={"decoder.experts.shared_gate": True},
    rules=_mixture(_by_head),
    vocab_size=151_936,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=48,
    num_key_value_heads=2,
)

# Fields that the reference does not read.
UNREAD = ignored("attn_output_gate", "output_gate_type", "mamba_ssm_dtype", "mtp_*", "unsloth_*", "vision_*_token_id")


def _text(family: Family, name: str) -> Family:
    return replace(family, heads=(family.heads[0], bare(f"{name}TextModel")))


QWEN3_5 = _text(
    _like(
        "qwen3_5_text",
        "Qwen3_5",
        UNREAD,
        rules=partial(_rules, projections=_by_side),
        vocab_size=248_320,
        hidden_size=4096,
        intermediate_size=12_288,
        num_hidden_layers=32,
        num_key_value_heads=4,
    ),
    "Qwen3_5",
)
QWEN3_5_MOE = _text(
    _like(
        "qwen3_5_moe_text",
        "Qwen3_5Moe",
        *choice(256, 8),
        *balance(),
        same("moe_intermediate_size", "decoder.d_ff", default=512),
        SHARED,
        UNREAD,
        ignored("intermediate_size"),
        constants={"decoder.experts.shared_gate": True, "decoder.experts.normalised": True},
        rules=_mixture(_by_side),
        vocab_size=248_320,
        hidden_size=2048,
        num_hidden_layers=40,
        num_key_value_heads=2,
    ),
    "Qwen3_5Moe",
)
