"""Decoders that differ from another family's in a norm or a window: CWM, VaultGemma, Persimmon, HyperCLOVA X."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.angles import WAVELENGTH, Modernize, modern, rotary, windows
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE_FIELDS, PHI_NAMES, UNGATED, granite_like
from clearhead.checkpoints.families.shared import (
    FULL,
    LOCAL,
    MOST_LAYERS,
    decoder_language,
    head_width,
    qkv_by_head,
    width_of,
)
from clearhead.checkpoints.weights.fields import computed, factor, same
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig


def by_default(**angles: Any) -> Modernize:
    """`modern` for a family whose angles are these if a config says none."""

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        said = document.get("rope_parameters")
        return modern({**document, "rope_parameters": angles if said is None else said})

    return modernize


def llama3(theta: float, factor: float) -> Modernize:
    """The same, with long wavelengths divided by `factor`."""
    parts = dict(zip(WAVELENGTH, (factor, 8192, 1.0, 4.0), strict=True))
    return by_default(rope_type="llama3", rope_theta=theta, **parts)


# --- Meta 2025: every fourth layer, the first among them, has no window ----------------------------------------------


def _kinds(document: dict[str, Any]) -> dict[str, Any]:
    n = document.get("num_hidden_layers", 64)
    if document.get("layer_types") is None and type(n) is int:
        document["layer_types"] = [LOCAL if i % 4 else FULL for i in range(min(n, MOST_LAYERS))]
    return llama3(1_000_000.0, 16.0)(document)


CWM = llama_like(
    "cwm",
    "Cwm",
    *windows(every=4, window=8192),
    BIASES[1],
    n_classes=2,
    modernize=_kinds,
    vocab_size=128_256,
    hidden_size=6144,
    intermediate_size=21_504,
    num_hidden_layers=64,
    num_attention_heads=48,
    num_key_value_heads=8,
    head_dim=128,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, theta=1_000_000.0),
)

# --- Adept 2023 -------------------------------------------------------------------------------------------------------


def _persimmon_rules(config: ModelConfig) -> Sequence[Rule]:
    names = {"mlp.dense_h_to_4h": "ffn.up", "mlp.dense_4h_to_h": "ffn.down", **PHI_NAMES}
    but = ("ffn.gate", "attn.q", "attn.k", "attn.v")
    kept = {there: here for there, here in names.items() if not there.startswith("mlp.fc")}
    return (*renamed(kept, but=but), qkv_by_head("layers.{i}.self_attn.query_key_value", config))


PERSIMMON = llama_like(
    "persimmon",
    "Persimmon",
    same("qk_layernorm", "decoder.qk_norm", default=True),
    head_width(),
    constants=UNGATED | {"decoder.bias": True, "decoder.embed_dropout": 0.0},
    rules=_persimmon_rules,
    n_classes=4,
    leave_out=("head_dim", "num_key_value_heads"),
    vocab_size=262_144,
    intermediate_size=16_384,
    num_hidden_layers=36,
    num_attention_heads=64,
    hidden_act="relu2",
    hidden_dropout=0.0,
    layer_norm_eps=1e-5,
    angles=rotary(max_length=16_384, fraction=0.5),
)

# --- NAVER 2025: Granite with norms after the branches, too -----------------------------------------------------------

HYPERCLOVAX = granite_like(
    "hyperclovax",
    "HyperCLOVAX",
    *BIASES,
    *GRANITE_FIELDS[:2],
    *GRANITE_FIELDS[3:],
    computed(
        "attention_multiplier",
        "decoder.attn_scale",
        write=lambda scale, ours: scale or width_of(ours["decoder"]) ** -0.5,
        default=None,
        like=1.0,
    ),
    computed(
        "use_post_norm",
        "decoder.norm_place",
        read=lambda after, _: "sandwich" if after else "pre",
        write=lambda place, _: {"sandwich": True, "pre": False}[place],
        default=True,
    ),
    rules=lambda _: renamed({"post_norm1": "attn_out_norm", "post_norm2": "ffn_out_norm"}),
    words=decoder_language("HyperCLOVAXForCausalLM", "model.", factor("logits_scaling", "head.scale"), tied=False),
)
