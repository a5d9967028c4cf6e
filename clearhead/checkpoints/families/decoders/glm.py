"""The decoders of GLM Team 2024 (a part of each head rotates, neighbours together) and 2025 (with sandwich norms)."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.llama import CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.decoders.phi import gate_and_up
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.weights.fields import FieldRule, inherited
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.checkpoints.weights.rows import paired
from clearhead.config import ModelConfig, Rotary


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's, with neighbours rotated and the gate above the up matrix."""
    stack = config.output
    assert isinstance(stack.positions, Rotary)
    turned = {f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qk"}
    width, rotated = stack.head_width, stack.positions.rotated(stack.head_width)
    kept = [rule for rule in llama_rules(config) if not rule.theirs[0].endswith(("gate_proj.{p}", "up_proj.{p}"))]
    return [
        gate_and_up(config),
        *(paired(rule, 0, width=width, rotated=rotated) if turned & {*rule.ours} else rule for rule in kept),
    ]


def sandwich_rules(config: ModelConfig) -> Sequence[Rule]:
    """The same with norms after the branches."""
    norms = {"post_self_attn_layernorm": "attn_out_norm", "post_mlp_layernorm": "ffn_out_norm"}
    more = (rename(f"layers.{{i}}.{a}.{{p}}", f"decoder.blocks.{{i}}.{b}.{{p}}") for a, b in norms.items())
    return (*rules(config), *more)


FIELDS: tuple[FieldRule, ...] = (
    *sizes(
        vocab_size=151_552,
        intermediate_size=13_696,
        layers=40,
        kv_heads=2,
        head_dim=128,
        eps=0.00000015625,
        angles=rotary(max_length=131_072, fraction=0.5),
    ),
    inherited("attention_bias", "decoder.qkv_bias", of="bias", default=True),
)


def _family(model_type: str, name: str, table: Any, **constants: Any) -> Family:
    return Family(
        model_type=model_type,
        constants=CONSTANTS | constants,
        fields=FIELDS,
        rules=table,
        heads=heads(name)[:4],
        modernize=modern,
    )


FAMILY = _family("glm", "Glm", rules)
GLM4 = _family("glm4", "Glm4", sandwich_rules, **{"decoder.norm_place": "sandwich"})
