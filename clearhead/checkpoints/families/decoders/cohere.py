"""The decoders of Cohere 2024 and 2025: both branches read one norm, neighbours rotate, logits are scaled."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families import layered
from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import by_layer_types
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, ignored
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.checkpoints.weights.rows import paired
from clearhead.config import ModelConfig

SHARED = CONSTANTS | {"decoder.norm": "layer", "decoder.parallel": "one_norm"}


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's, with neighbours rotated."""
    width = config.output.head_width
    turned = {f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qk"}
    return [
        paired(rule, 0, width=width, rotated=width) if turned & {*rule.ours} else rule for rule in llama_rules(config)
    ]


def _sizes(angles: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    return sizes(
        vocab_size=256_000,
        hidden_size=8192,
        intermediate_size=22_528,
        layers=40,
        n_heads=64,
        kv_heads=None,
        eps=1e-5,
        eps_field="layer_norm_eps",
        angles=angles,
    )


def _words(architecture: str) -> Any:
    scale = computed(
        "logit_scale",
        "head.scale",
        read=lambda factor, _: None if factor == 1.0 else factor,
        write=lambda factor, _: 1.0 if factor is None else factor,
        default=0.0625,
        like=1.0,
    )
    return language(architecture, "model.", scale)


FAMILY = Family(
    model_type="cohere",
    constants=SHARED,
    fields=(
        *_sizes(rotary(max_length=8192, theta=500_000.0)),
        BIASES[0],
        # With it, every head has a norm of its own.
        Only("use_qk_norm", False),
        ignored("logit_scale"),
    ),
    rules=rules,
    heads=(_words("CohereForCausalLM"), *others("Cohere", "model.", "bare")),
    modernize=modern,
)


def _rotated(_: Any, values: Values) -> list[int] | None:
    """Only layers with a window have positions; without any, all would be without."""
    local = layered.local(values, 4)
    return None if len(local) == values["num_hidden_layers"] else local


COHERE2 = Family(
    model_type="cohere2",
    constants=SHARED,
    fields=(
        *_sizes(rotary(max_length=8192)),
        BIASES[0],
        *layered.windows(every=4),
        by_layer_types("rotary_layers", _rotated),
        ignored("logit_scale"),
    ),
    rules=rules,
    heads=(_words("Cohere2ForCausalLM"), *others("Cohere2", "model.", "bare")),
    modernize=modern,
)
