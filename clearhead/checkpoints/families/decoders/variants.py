"""Decoders that differ from another family's in a norm or a window: CWM, VaultGemma, Persimmon, HyperCLOVA X."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.angles import THETA, WAVELENGTH, Modernize, modern, rotary, windows
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE_FIELDS, PHI_NAMES, UNGATED, granite_like
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    FULL,
    LOCAL,
    MOST_LAYERS,
    decoder_language,
    head_width,
    qkv_by_head,
    width_of,
)
from clearhead.checkpoints.weights.fields import computed, factor, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, derive, rename, sides, turned_first
from clearhead.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor


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

# --- Swiss AI 2025: xIELU without a gate -----------------------------------------------------------------------------


def _apertus_rules(config: ModelConfig) -> Sequence[Rule]:
    there = "layers.{i}.mlp.act_fn"
    names = {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
    stack = config.output
    layers = range(stack.n_layers if stack.activation == XIELU else 0)
    curve = {"alpha_p": "rise", "alpha_n": "drop"} if layers else {}
    return (
        *renamed(names),
        *(rename(f"{there}.{name}", f"decoder.blocks.{{i}}.ffn.curve.{ours}") for name, ours in curve.items()),
        *(derive(f"{there.format(i=i)}.{name}", make) for i in layers for name, make in _FIXED.items()),
    )


def _number(value: float) -> "Tensor":
    import torch

    return torch.tensor(value)


_FIXED = {"beta": partial(_number, 0.5), "eps": partial(_number, -1e-6)}
XIELU = "xielu"
APERTUS = llama_like(
    "apertus",
    "Apertus",
    BIASES[0],
    named("hidden_act", "decoder.activation", names={**ACTIVATIONS, XIELU: XIELU}, default=XIELU),
    constants={"decoder.gated": False, "decoder.qk_norm": True},
    rules=_apertus_rules,
    n_classes=2,
    modernize=llama3(12_000_000.0, 8.0),
    leave_out=("hidden_act",),
    vocab_size=131_072,
    intermediate_size=14_336,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=65_536, theta=12_000_000.0),
)

# --- Karpathy 2025: norms without weights, angles that turn the other way ---------------------------------


def _nanochat_rules(config: ModelConfig) -> Sequence[Rule]:
    """To turn the other way is to turn with the halves of each head exchanged."""
    width = config.output.head_width
    own = renamed({"mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down"})
    turns = {*sides("decoder", "qk")}
    exchanged = partial(turned_first, width=width, turned=width // 2)
    return [exchanged(one, 0) if {*one.ours} & turns else one for one in own]


TURNED = {"decoder.qk_norm": True, "decoder.qk_norm_over": "turned_head"}
NANOCHAT = llama_like(
    "nanochat",
    "NanoChat",
    BIASES[0],
    ignored("final_logit_softcapping"),
    constants={
        "decoder.gated": False,
        **TURNED,
        "decoder.norm_gain": "none",
        "decoder.input.norm": True,
    },
    rules=_nanochat_rules,
    words=decoder_language(
        "NanoChatForCausalLM",
        "model.",
        computed("final_logit_softcapping", "head.soft_cap", default=15.0, null=True),
        tied=False,
    ),
    n_classes=2,
    vocab_size=50_304,
    hidden_size=768,
    intermediate_size=8192,
    num_hidden_layers=12,
    num_attention_heads=6,
    hidden_act="relu2",
    max_length=2048,
)

# --- Tencent 2025: norms of heads after the rotation --------------------------------------------------------


MOST = 1e12
"""No base of angles and no factor on it is larger."""


def stretched(document: dict[str, Any]) -> dict[str, Any]:
    """Angles with an `alpha` have another base, whatever the length of a text."""
    document = modern(document)
    said, width = document["rope_parameters"], document.get("head_dim")
    if isinstance(said, dict) and said.get("rope_type", said.get("type")) == "dynamic" and type(width) is int:
        base, alpha = said.get("rope_theta") or THETA, said.get("alpha") or 0.0
        if width > 2 and all(isinstance(one, int | float) and 0 < one < MOST for one in (base, alpha)):
            document["rope_parameters"] = {"rope_theta": base * alpha ** (width / (width - 2))}
    return document


hunyuan_like = partial(
    llama_like, modernize=stretched, vocab_size=290_943, rms_norm_eps=1e-5, max_length=2048, n_classes=3
)


def hunyuan_rules(_: ModelConfig) -> Sequence[Rule]:
    """Llama's, but for the norms of heads."""
    return renamed({"self_attn.query_layernorm": "attn.q_norm", "self_attn.key_layernorm": "attn.k_norm"})


HUNYUAN = hunyuan_like(
    "hunyuan_v1_dense",
    "HunYuanDenseV1",
    BIASES[0],
    ignored("eod_token_id"),
    constants=TURNED,
    rules=hunyuan_rules,
    intermediate_size=11_008,
)
