"""The image encoder of Simeoni et al. 2025, whose positions turn queries and keys by row and column."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, Values, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, derive, rename, reshape
from clearhead.config import ModelConfig, PatchInput
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

SIDES = ("q", "k", "v", "out")
"""Our names of the four matrices of attention."""


def _value_bias(bias: Any, values: Values) -> None:
    if bias != values["query_bias"]:
        raise UserError(
            f"expected query_bias={short(values['query_bias'])}, as queries and values share it, got {bias}"
        )


def _own(field: str, of: str) -> Callable[[Any, Values], bool]:
    """Writes our switch `field`, by default that of `of`, and otherwise `bias`."""

    def write(_: Any, ours: Values) -> bool:
        encoder = ours["encoder"]
        return next(encoder[name] for name in (field, of, "bias") if encoder[name] is not None)

    return write


def _bias(theirs: str, ours: str, *, of: str = "bias", default: bool = True) -> Field:
    return computed(theirs, f"encoder.{ours}", write=_own(ours, of), default=default, like=default)


FIELDS = (
    *picture_fields(patch_size=16),
    same("hidden_size", "encoder.d_model", default=384),
    same("intermediate_size", "encoder.d_ff", default=1536),
    same("num_hidden_layers", "encoder.n_layers", default=12),
    same("num_attention_heads", "encoder.n_heads", default=6),
    named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu"),
    same("attention_dropout", "encoder.attn_dropout", default=0.0),
    same("initializer_range", "init.std", default=0.02),
    same("layer_norm_eps", "encoder.norm_eps", default=1e-5),
    same("rope_theta", "encoder.positions.base", default=100.0),
    _bias("query_bias", "qkv_bias"),
    _bias("key_bias", "key_bias", of="qkv_bias", default=False),
    computed("value_bias", read=_value_bias, write=_own("qkv_bias", "bias"), default=True, like=True),
    _bias("proj_bias", "out_bias"),
    _bias("mlp_bias", "ffn_bias"),
    same("layerscale_value", "encoder.layer_scale", default=1.0),
    same("use_gated_mlp", "encoder.gated", default=False),
    same("num_register_tokens", "encoder.input.n_registers", default=0),
    head_width(),
    # Random changes of positions and whole branches that training drops, and what only a backbone does.
    ignored("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "drop_path_rate"),
    ignored("apply_layernorm", "reshape_hidden_states", "return_class_token", "out_features", "out_indices"),
    ignored("_out_features", "_out_indices", "stage_names"),
)


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The library's names: on disk the layers stand at the top, in memory below `model`."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, PatchInput)
    d, n = stack.d_model, stack.input.n_registers
    ours = "encoder.blocks.{i}"
    layer = (
        *((f"attention.{name}_proj.{{p}}", f"attn.{here}.{{p}}") for name, here in zip("qkvo", SIDES, strict=True)),
        *((f"mlp.{name}_proj.{{p}}", f"ffn.{name}.{{p}}") for name in ("gate", "up", "down")),
        ("norm1.{p}", "attn_norm.{p}"),
        ("norm2.{p}", "ffn_norm.{p}"),
        ("layer_scale1.lambda1", "attn_scale.weight"),
        ("layer_scale2.lambda1", "ffn_scale.weight"),
    )
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, 1, d], here=[d]),
        registers(n, d),
        *patch_rules(config, "embeddings.patch_embeddings"),
        *(rename(f"{top}layer.{{i}}.{theirs}", f"{ours}.{here}") for top in ("", "model.") for theirs, here in layer),
        rename("norm.{p}", "encoder.final_norm.{p}"),
    )


def registers(n: int, d: int) -> Rule:
    """The registers. Without any, the library still writes their tensor."""
    if not n:
        return derive("embeddings.register_tokens", partial(no_registers, d))
    return reshape("embeddings.register_tokens", "encoder.embed.registers", there=[1, n, d], here=[n, d])


def no_registers(d: int) -> "Tensor":
    """1 0 d: no registers."""
    import torch

    return torch.zeros(1, 0, d)


FAMILY = Family(
    model_type="dinov3_vit",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.mask_token": True,
        "encoder.positions.kind": "rotary_grid",
        "init.depth_scaled": False,
    },
    fields=FIELDS,
    rules=rules,
    heads=(HeadMap("DINOv3ViTModel", {"head.kind": "none"}),),
)
