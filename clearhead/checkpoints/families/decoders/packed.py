"""Decoders whose code lies beside their checkpoints and packs matrices or layers: Baichuan, the first OLMo, Nandi."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.checkpoints.families.angles import rotary
from clearhead.checkpoints.families.decoders.llama import LLAMA, LLAMA_CONSTANTS, llama_heads, renamed
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import decoder_language, sizes, with_defaults, without
from clearhead.checkpoints.weights.fields import Field, Values, computed, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, modules, rename, sides, split
from clearhead.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

# --- Baichuan (Yang et al. 2023) -------------------------------------------------------------------------------------

OF_UNIT_LENGTH = 125_696
"""The size of the second version's vocabulary, whose vectors in the output matrix its code divides by their length."""


def _units(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
    return [tensor / tensor.norm(dim=-1, keepdim=True).clamp(min=1e-12) for tensor in tensors]


def _output(config: ModelConfig) -> tuple[Rule, ...]:
    has_units = dict(config.output.input)["vocab_size"] == OF_UNIT_LENGTH
    plain = rename("lm_head.weight", "head.output.weight")
    return (replace(plain, load=_units) if has_units else plain,)


def _baichuan_rules(_: ModelConfig) -> Sequence[Rule]:
    pack = split("layers.{i}.self_attn.W_pack.{p}", sides("decoder"))
    return (*renamed({}, but=("attn.q", "attn.k", "attn.v")), pack)


_ROTARY = replace(
    LLAMA,
    model_type="baichuan",
    fields=(
        *with_defaults(without(LLAMA.fields, "attention_bias", "mlp_bias"), max_position_embeddings=4096),
        ignored("model_max_length", "z_loss_weight", "_from_model_config", "gradient_checkpointing"),
    ),
    rules=_baichuan_rules,
    heads=(
        replace(
            llama_heads("Baichuan")[0], rules=_output, fields=(*only(tie_word_embeddings=False),),
            constants={"head.kind": "language", "head.bias": False, "head.tied": False}, also=("BaiChuanForCausalLM",),
        ),
    ),
    read_only=True,
)  # fmt: skip
BAICHUAN = (
    replace(
        _ROTARY,  # Of 13B, whose config names no length of positions.
        constants={**_ROTARY.constants, "decoder.positions.kind": "alibi"},
        fields=without(_ROTARY.fields, "rope_parameters", "max_position_embeddings"),
        only_if={"max_position_embeddings": None},
        modernize=lambda document: document,
    ),
    _ROTARY,
)

# --- OLMo (Groeneveld et al. 2024), as it was first published ---------------------------------------------------------


def _olmo_rules(_: ModelConfig) -> Sequence[Rule]:
    ours = "decoder.blocks.{i}"
    return (
        *modules("decoder", "blocks.{i}", {"wte": "embed.tokens", "attn_out": "attn.out", "ff_out": "ffn.down"}),
        split("blocks.{i}.att_proj.{p}", sides("decoder")),
        split("blocks.{i}.ff_proj.{p}", [f"{ours}.ffn.up.{{p}}", f"{ours}.ffn.gate.{{p}}"]),
    )


def _half(both: int | None, values: Values) -> int:
    """Each of the two matrices before the last has half of the width that the config says."""
    return (both or values["mlp_ratio"] * values["d_model"]) // 2


HF_OLMO = Family(
    model_type="hf_olmo",
    constants=LLAMA_CONSTANTS
    | {
        "decoder.norm": "layer",
        "decoder.norm_gain": "none",
        "decoder.activation": "silu",
        "decoder.positions.kind": "rotary",
    },
    fields=(
        *sizes(
            "decoder",
            d_model=768,
            n_layers=12,
            n_heads=12,
            init_std=0.02,
            residual_dropout=0.1,
            embedding_dropout=0.1,
            attention_dropout=0.1,
        ),
        computed(
            "embedding_size",
            "decoder.input.vocab_size",
            read=lambda rows, values: rows or values["vocab_size"],
            default=None,
        ),
        computed("vocab_size", default=50_257),
        computed("mlp_hidden_size", "decoder.d_ff", read=_half, default=None),
        computed("mlp_ratio", default=4),
        same("weight_tying", "head.tied", default=True),
        same("clip_qkv", "decoder.clip_qkv", default=None),
        same("max_sequence_length", "decoder.positions.trained_length", default=1024),
        computed("rope_theta", "decoder.positions.base", default=10_000.0),
        *only(activation_type="swiglu", block_type="sequential", layer_norm_type="default", rope=True, alibi=False),
        *only(include_bias=False, layer_norm_with_affine=False, multi_query_attention=False, scale_logits=False),
        *only(attention_layer_norm=False),
        ignored("flash_attention", "init_*", "precision", "rope_full_precision", "block_group_size", "alibi_bias_max"),
        ignored("attention_layer_norm_with_affine", "bias_for_layer_norm", "layer_norm_eps", "n_kv_heads"),
    ),
    rules=_olmo_rules,
    heads=(decoder_language("OLMoForCausalLM", "model.transformer.", names=("model.transformer.ff_out",)),),
    read_only=True,
)

# --- Nandi (Rta AI Labs 2026): each layer runs twice, and the token table is narrow ----------------------------------


def _factorised(*ours: str, inverse: bool = False) -> Field:
    return computed("factorized_embedding", *ours, read=lambda said, _: said is not inverse, default=True)


def _layers(n: int, values: Values) -> int:
    return n * (values["layer_sharing_repeats"] if values["layer_sharing"] else 1)


def _nandi_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's. The blocks that run again follow the one with their weights."""
    repeats, found = config.output.repeats, list[Rule]()
    for rule in (*renamed({}), *modules("decoder", "", {"embedding_proj": "embed.widen"})):
        if repeats == 1 or "{i}" not in rule.theirs[0] or not rule.ours:
            found.append(rule)
            continue
        ours = rule.ours[0]
        found += (
            rename(rule.theirs[0].replace("{i}", str(i)), ours.replace("{i}", str(i * repeats)))
            for i in range(config.output.n_layers // repeats)
        )
    return found


_WORDS = llama_heads("Nandi", tied=True)[0]
NANDI = replace(
    LLAMA,
    model_type="nandi",
    fields=(
        *without(LLAMA.fields, "num_hidden_layers", "rope_parameters", "max_position_embeddings"),
        *rotary(max_length=2048, theta=100_000.0),
        computed("num_hidden_layers", "decoder.n_layers", read=_layers, default=16),
        computed("num_hidden_layers", "decoder.n_groups", default=16),
        computed("layer_sharing_repeats", default=2),
        computed("layer_sharing", default=True),
        computed(
            "embedding_rank",
            "decoder.input.width",
            read=lambda width, values: width if values["factorized_embedding"] else None,
            default=196,
        ),
        _factorised("decoder.input.tokens_alone", "head.transform", "head.transform_alone"),
        _factorised("head.transform_bias", inverse=True),
    ),
    rules=_nandi_rules,
    heads=(replace(_WORDS, names={"lm_head_proj": "dense"}),),
    read_only=True,
)
