"""The decoders of OLMo et al. 2024 and 2025: a norm after each branch, queries and keys normalised over all heads."""

from collections.abc import Sequence

from clearhead.checkpoints.families import layered
from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import FULL, LOCAL
from clearhead.checkpoints.weights.fields import FieldRule
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

SHARED = CONSTANTS | {"decoder.norm_place": "branch", "decoder.qk_norm": True, "decoder.qk_norm_over": "heads"}
THETAS = {FULL: 500_000.0, LOCAL: 500_000.0}


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's names, except for the norms."""
    norms = {"post_attention_layernorm": "attn_out_norm", "post_feedforward_layernorm": "ffn_out_norm"}
    kept = [rule for rule in llama_rules(config) if not rule.theirs[0].endswith("layernorm.{p}")]
    return (
        *kept,
        *(rename(f"layers.{{i}}.{a}.{{p}}", f"decoder.blocks.{{i}}.{b}.{{p}}") for a, b in norms.items()),
    )


def _sizes(angles: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    return sizes(vocab_size=50_304, intermediate_size=11_008, kv_heads=None, eps=1e-5, angles=angles)


def _heads(name: str) -> tuple[HeadMap, ...]:
    return heads(name)[:3]


OLMO2 = Family(
    model_type="olmo2",
    constants=SHARED,
    fields=(*_sizes(rotary(max_length=2048)), BIASES[0]),
    rules=rules,
    heads=_heads("Olmo2"),
    modernize=modern,
)
OLMO3 = Family(
    model_type="olmo3",
    constants=SHARED,
    fields=(
        *_sizes((*layered.angles(4, THETAS), *rotary(max_length=2048)[1:])),
        BIASES[0],
        *layered.windows(every=4),
    ),
    rules=rules,
    heads=_heads("Olmo3"),
    modernize=layered.modernizer(THETAS, **{FULL: "rope_theta"}),
)
