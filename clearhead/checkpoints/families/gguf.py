"""The architectures of GGUF as data: the metadata as a family's config, and its tensors under the family's names.

A GGUF file names an architecture, gives its sizes below that name, and stores each matrix under a name of its own. Each
entry of ARCHITECTURES translates both to a family of the reference library, and back. Imports no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clearhead.checkpoints.families import gguf_angles as angles
from clearhead.checkpoints.families.gguf_angles import Content, Fields, Said
from clearhead.checkpoints.weights.documents import AGAIN, short, shown
from clearhead.checkpoints.weights.gguf import GgufFile
from clearhead.checkpoints.weights.mapping import Rule, ignore, paired, rename, transpose
from clearhead.errors import UserError

NAME = "general.architecture"
TABLE, OUTPUT = "token_embd", "output"
SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
}
"""Names below the architecture's -> fields of a config."""
RMS = SIZES | {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
OPTIONAL = ("attention.head_count_kv", "attention.key_length", "attention.sliding_window")
IDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}
IGNORED = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "attention.value_length")
ONLY = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "expert_count": 0,
    "expert_used_count": 0,
    "pooling_type": 0,
}
"""Values that ask for a mechanism unless they are these."""
NOT_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that are part of the config of other libraries."""
ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GATED = {f"ffn_{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
SANDWICH = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True)
class Architecture:
    """One architecture of the format."""

    name: str
    model_types: tuple[str, ...]
    """The families that it can hold. A file is read as the first."""
    tensors: Mapping[str, str]
    """Names of tensors without .weight and .bias -> the family's."""
    keys: Mapping[str, str] = field(default_factory=lambda: RMS)
    constants: Fields = field(default_factory=dict)
    """Fields of the family's config that every file of the architecture implies."""
    read: Callable[[Said, Fields, Content], Fields] = angles.read
    """Further fields, from values that it removes."""
    write: Callable[[Fields], tuple[Said, dict[str, list[float]]]] = angles.write
    """The inverse: values, and small tensors."""
    neighbours: bool = False
    """Whether neighbouring rows of queries and keys are rotated together."""
    plus_one: bool = False
    """Whether the weights of norms are stored with 1 added."""
    turned: tuple[str, ...] = ()
    """Matrices that the family's checkpoints store transposed."""

    def rules(self, document: Fields) -> list[Rule]:
        """The table of tensors: theirs are the format's names, ours the family's."""
        return [*(rule for pair in self.tensors.items() for rule in self._rules(*pair, document)), ignore(*NOT_TENSORS)]

    def _rules(self, there: str, here: str, document: Fields) -> Sequence[Rule]:
        leaf = there.rpartition(".")[2]
        if leaf in self.turned:
            return transpose(f"{there}.weight", f"{here}.weight"), rename(f"{there}.bias", f"{here}.bias")
        rule = rename(f"{there}.{{p}}", f"{here}.{{p}}")
        if self.neighbours and leaf in ("attn_q", "attn_k"):
            return (paired(rule, 0, width=document["head_dim"], rotated=document["head_dim"]),)
        if self.plus_one and leaf.endswith("norm"):
            return (replace(rule, load=lambda t: [t[0] - 1], save=lambda t: [t[0] + 1]),)
        return (rule,)


def _decoder(*blocks: Mapping[str, str]) -> dict[str, str]:
    """The names of a decoder's tensors from those of one layer's."""
    layer = {f"blk.{{i}}.{there}": f"model.layers.{{i}}.{here}" for block in blocks for there, here in block.items()}
    return {TABLE: "model.embed_tokens", "output_norm": "model.norm", OUTPUT: "lm_head", **layer}


_ATTENTION = {there: f"self_attn.{here}" for there, here in ATTENTION.items()}
_LLAMA = _decoder(NORMS, _ATTENTION, GATED)
_SANDWICHED = _decoder(SANDWICH, _ATTENTION, GATED)

ARCHITECTURES = (
    Architecture("llama", ("llama", "mistral"), _LLAMA, read=angles.read_with_biases, neighbours=True),
    Architecture("qwen2", ("qwen2",), _LLAMA, constants={"use_sliding_window": False}),
    Architecture(
        "qwen3", ("qwen3",), _decoder(NORMS, _ATTENTION, HEAD_NORMS, GATED), constants={"use_sliding_window": False}
    ),
    Architecture(
        "arcee",
        ("arcee",),
        _decoder(NORMS, _ATTENTION, {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}),
        read=angles.read_with_biases,
        neighbours=True,
    ),
    Architecture("smollm3", ("smollm3",), _LLAMA, read=angles.read_with_biases, neighbours=True),
    Architecture(
        "granite",
        ("granite",),
        _LLAMA,
        keys=RMS
        | {
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
        read=angles.read_with_biases,
        neighbours=True,
    ),
    Architecture("gemma", ("gemma",), _LLAMA, constants={"hidden_act": "gelu_pytorch_tanh"}, plus_one=True),
    Architecture(
        "gemma2",
        ("gemma2",),
        _SANDWICHED,
        keys=RMS
        | {
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        read=angles.read_scaled(wide_blocks=46),
        plus_one=True,
    ),
    Architecture(
        "gemma3",
        ("gemma3_text",),
        _decoder(SANDWICH, _ATTENTION, HEAD_NORMS, GATED),
        keys=RMS | {"attention.sliding_window": "sliding_window"},
        read=angles.read_layered(wide_blocks=62),
        write=angles.write_layered,
        plus_one=True,
    ),
    Architecture(
        "phi3",
        ("phi3",),
        _decoder(
            NORMS,
            {"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj"},
            {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
        ),
        read=angles.read_long,
        write=angles.write_long,
    ),
    Architecture(
        "starcoder2",
        ("starcoder2",),
        _decoder(NORMS, _ATTENTION, {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}),
        keys=SIZES | {"attention.layer_norm_epsilon": "norm_epsilon"},
        constants={"sliding_window": None, "use_bias": True, "hidden_act": "gelu_pytorch_tanh"},
    ),
    Architecture(
        "gpt2",
        ("gpt2",),
        {
            TABLE: "transformer.wte",
            "position_embd": "transformer.wpe",
            "blk.{i}.attn_norm": "transformer.h.{i}.ln_1",
            "blk.{i}.attn_qkv": "transformer.h.{i}.attn.c_attn",
            "blk.{i}.attn_output": "transformer.h.{i}.attn.c_proj",
            "blk.{i}.ffn_norm": "transformer.h.{i}.ln_2",
            "blk.{i}.ffn_up": "transformer.h.{i}.mlp.c_fc",
            "blk.{i}.ffn_down": "transformer.h.{i}.mlp.c_proj",
            "output_norm": "transformer.ln_f",
            OUTPUT: "lm_head",
        },
        keys={
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        constants={"activation_function": "gelu_new"},
        read=angles.read_none,
        write=angles.write_none,
        turned=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
    ),
)
"""Every architecture of the format that is read and written."""


def content_of(file: GgufFile) -> Content:
    """The header of a file."""
    shapes = {name: stored.shape for name, stored in file.tensors.items()}
    return Content(str(file.path), file.metadata, shapes, file.vector)


def described(content: Content) -> tuple[dict[str, Any], list[Rule]]:
    """The family's config of a file, and the rules that give its tensors the family's names.

    Raises UserError for an architecture, a size or another value that is not known.
    """
    one = _named(content)
    said = {
        key.removeprefix(f"{one.name}."): value
        for key, value in content.metadata.items()
        if key.startswith(f"{one.name}.")
    }
    document: dict[str, Any] = {"model_type": one.model_types[0], **one.constants}
    for key, name in one.keys.items():
        if key in said:
            document[name] = _same_in_all_layers(said.pop(key), f"{content.where}:{one.name}.{key}")
        elif key not in OPTIONAL:
            raise UserError(f"{content.where}:{one.name}.{key}: expected this value, got none; {AGAIN}")
    if f"{TABLE}.weight" not in content.shapes:
        raise UserError(f"{content.where}:{TABLE}.weight: expected a tensor, got none; try the whole model")
    document["vocab_size"] = content.shapes[f"{TABLE}.weight"][0]
    document["tie_word_embeddings"] = f"{OUTPUT}.weight" not in content.shapes
    document |= {name: content.metadata[f"tokenizer.ggml.{key}"] for key, name in IDS.items() if _has(content, key)}
    if _has(content, "eot_token_id") and "eos_token_id" in document:
        ends = dict.fromkeys([document["eos_token_id"], content.metadata["tokenizer.ggml.eot_token_id"]])
        document["eos_token_id"] = [*ends] if len(ends) > 1 else document["eos_token_id"]
    document |= one.read(said, document, content)
    for key in sorted(said.keys() - set(IGNORED)):
        if key not in ONLY or said[key] != ONLY[key]:
            expected = f"expected {ONLY[key]!r}, the only value that is supported" if key in ONLY else "expected none"
            raise UserError(
                f"{content.where}:{one.name}.{shown(key)}: {expected}, got {short(said[key])}; try another model"
            )
    return document, one.rules(document)


@dataclass(frozen=True)
class Written:
    """The description of a model in the format."""

    metadata: dict[str, Any]
    rules: Sequence[Rule]
    vectors: Mapping[str, list[float]]
    """Small tensors that are part of the config elsewhere."""

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return self.metadata[NAME]


def written(document: Fields) -> Written:
    """The metadata of a family's config. Raises UserError if the format has no such family.

    They may leave out fields that the format does not have: read them back to compare.
    """
    one = next((one for one in ARCHITECTURES if document["model_type"] in one.model_types), None)
    if one is None:
        raise UserError(f"expected one of {', '.join(known())}, got {document['model_type']}")
    values = {key: document[name] for key, name in one.keys.items() if document.get(name) is not None}
    more, vectors = one.write(document)
    named = {f"{one.name}.{key}": value for key, value in (values | more).items()}
    return Written({NAME: one.name, **named}, one.rules(document), vectors)


def known() -> list[str]:
    """The families that the format can hold."""
    return [model_type for one in ARCHITECTURES for model_type in one.model_types]


def _named(content: Content) -> Architecture:
    name = content.metadata.get(NAME)
    for one in ARCHITECTURES:
        if one.name == name:
            if (kind := content.metadata.get("general.type", "model")) != "model":
                raise UserError(
                    f"{content.where}:general.type: expected model, got {short(kind)}; try the model itself"
                )
            return one
    names = ", ".join(one.name for one in ARCHITECTURES)
    raise UserError(f"{content.where}:{NAME}: expected one of {names}, got {short(name)}; try the model in safetensors")


def _has(content: Content, key: str) -> bool:
    return f"tokenizer.ggml.{key}" in content.metadata


def _same_in_all_layers(value: Any, where: str) -> Any:
    """The value. Some files repeat it for every layer."""
    if not isinstance(value, list):
        return value
    if len(set(map(str, value))) != 1:
        raise UserError(f"{where}: expected the same number for every layer, got {short(value)}; try another model")
    return value[0]
