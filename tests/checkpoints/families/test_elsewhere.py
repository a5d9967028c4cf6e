"""Families whose code lies beside the checkpoints: each beside the network of the reference library that equals it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.api import load
from clearhead.errors import UserError
from clearhead.model import Tokens
from tests.later import later
from tests.parity.cases import base
from tests.parity.harness import Case, reference

transformers = later("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}


def rewritten(folder: Path, tensors: dict[str, Tensor], **config: Any) -> None:
    path = folder / "config.json"
    kept = {name: json.loads(path.read_text())[name] for name in SIZES}
    path.write_text(json.dumps({**kept, **config}))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def compared(theirs: Any, folder: Path, where: Path) -> None:
    """Equal logits of ours, and of what the reference library opens of what ours saves."""
    ids = torch.randint(1, 60, (2, 7), generator=torch.Generator().manual_seed(0))
    ours = load(folder)
    ours.save(where)
    (written,) = json.loads((where / "config.json").read_text())["architectures"]
    back = getattr(transformers, written).from_pretrained(where).eval()
    with torch.no_grad():
        expected = theirs(ids)[0]
        torch.testing.assert_close(ours.network(Tokens(ids)), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(back(ids)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scaling", [None, {"type": "dynamic", "factor": 2.0}])
def test_internlm2_is_llama_with_one_matrix_for_each_group_of_heads(tmp_path, scaling: Any):
    shape = {**SIZES, "num_key_value_heads": 2, "rope_theta": 100.0}
    theirs = reference(Case("llama", "base", "LlamaForCausalLM", shape))
    theirs.save_pretrained(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    names = {
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
        "self_attn.o_proj": "attention.wo",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    }
    found: dict[str, Tensor] = {}
    for layer in range(2):
        q, k, v = (tensors.pop(f"model.layers.{layer}.self_attn.{n}_proj.weight") for n in "qkv")
        groups = torch.cat([q.view(2, 2, 8, 32), k.view(2, 1, 8, 32), v.view(2, 1, 8, 32)], 1)
        found[f"model.layers.{layer}.attention.wqkv.weight"] = groups.reshape(-1, 32).contiguous()
    found |= renamed(tensors, names)
    config = {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": False, "rope_theta": 100.0}
    rewritten(tmp_path / "theirs", found, **config, num_key_value_heads=2, rope_scaling=scaling)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def test_minicpm_is_granite_with_other_names_of_the_multipliers(tmp_path):
    depth, base = 1.4, 16
    multipliers = {
        "embedding_multiplier": 12.0,
        "residual_multiplier": depth / 2**0.5,
        "logits_scaling": SIZES["hidden_size"] / base,
        "attention_multiplier": 8**-0.5,
    }
    shape = {**SIZES, **multipliers, "tie_word_embeddings": True}
    theirs = reference(Case("granite", "base", "GraniteForCausalLM", shape))
    theirs.save_pretrained(tmp_path / "theirs")
    config = {"scale_emb": 12, "scale_depth": depth, "dim_model_base": base}
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    named = {"model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"]}
    rewritten(tmp_path / "theirs", tensors, **config, **named)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def renamed(tensors: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for there, here in names.items():
            name = name.replace(there, here)
        found[name] = tensor
    return found


BLOCK = {
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "model.layers": "transformer.h",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
}


def test_exaone_is_llama_under_other_names(tmp_path):
    theirs = reference(Case("llama", "base", "LlamaForCausalLM", {**SIZES, "num_key_value_heads": 2}))
    theirs.save_pretrained(tmp_path / "theirs")
    gated = {"mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj"}
    names = {**BLOCK, **gated, "self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention"}
    tensors = renamed(load_file(tmp_path / "theirs" / "model.safetensors"), names)
    config = {"model_type": "exaone", "architectures": ["ExaoneForCausalLM"], "num_layers": 2, "num_key_value_heads": 2}
    own = {"activation_function": "silu", "layer_norm_epsilon": 1e-6, "embed_dropout": 0.0}
    rewritten(tmp_path / "theirs", tensors, **config, **own)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


LN = {"input_layernorm": "ln1", "post_attention_layernorm": "ln2"}
FOUR = {"num_key_value_heads": 4, "rms_norm_eps": 1e-6}
OLD = {"n_layer": 2, "n_head": 4}
GROUPS = {"new_decoder_architecture": True, "num_kv_heads": 2}
BIASED = {"attention_bias": True, "mlp_bias": False}
SEEING = ("model.mm_projector.0.weight", "model.vision_tower.vision_tower.encoder.layers.0.mlp.fc1.bias")
LEFT_OUT = {
    "mimo": ("model.mtp_layers.0.mlp.up_proj.weight",),
    **dict.fromkeys(("llava", "llava_llama", "llava_mistral", "llava_qwen", "llava_qwen2", "mobilevlm"), SEEING),
    "geochat": SEEING,
    "cambrian_qwen": ("model.mm_projector.0.bias", "model.vision_tower_aux_list.0.vision_tower.proj.weight"),
    "videollama3_qwen2": ("model.mm_projector.readout.0.bias", "model.vision_encoder.encoder.layers.0.mlp.fc1.bias"),
    "phi3_v": ("model.vision_embed_tokens.img_processor.vision_model.embeddings.class_embedding",),
    "dots_ocr": ("vision_tower.blocks.0.attn.qkv.weight",),
}
"""Tensors that are no part of the text model, or that further layers have."""


@pytest.mark.parametrize(
    ("model_type", "name", "like", "shape", "own", "names"),
    [
        ("aquila", "Aquila", "Llama", {}, {}, {}),
        ("xverse", "Xverse", "Llama", {}, {"max_tokenizer_truncation": 32}, {}),
        ("Yi", "Yi", "Llama", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, LN),
        ("internlm", "InternLM", "Llama", BIASED, {"bias": True}, {}),
        ("internlm3", "InternLM3", "Llama", BIASED, {"qkv_bias": True, **FOUR}, {}),
        ("iquestcoder", "IQuestCoder", "Llama", {}, {"head_dim": 8, **FOUR}, {}),
        ("mimo", "MiMo", "Qwen2", {"num_key_value_heads": 2}, {"num_key_value_heads": 2, "rms_norm_eps": 1e-6}, {}),
        ("RefinedWebModel", "RW", "Falcon", {}, {"multi_query": True, **OLD}, {}),
        ("RefinedWeb", "RW", "Falcon", GROUPS, {"n_head_kv": 2, **OLD}, {}),
        ("llava_llama", "LlavaLlama", "Llama", {}, {"mm_projector_type": "linear"}, {}),
        ("llava", "LlavaLlama", "Llama", {}, {"mm_hidden_size": 8}, {}),
        ("llava_mistral", "LlavaMistral", "Mistral", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, {}),
        ("llava_qwen", "LlavaQwen", "Qwen2", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, {}),
        ("llava_qwen2", "LlavaQwen2", "Qwen2", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, {}),
        ("mobilevlm", "MobileLlama", "Llama", {}, {}, {}),
        ("geochat", "GeoChatLlama", "Llama", {}, {}, {}),
        ("cambrian_qwen", "CambrianQwen", "Qwen2", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, {}),
        ("videollama3_qwen2", "Videollama3Qwen2", "Qwen2", {"num_key_value_heads": 4}, {"num_key_value_heads": 4}, {}),
        ("phi3_v", "Phi3V", "Phi3", {"pad_token_id": 0}, {"rms_norm_eps": 1e-5, "img_processor": {}}, {}),
        ("dots_ocr", "DotsOCR", "Qwen2", {"num_key_value_heads": 2}, {"num_key_value_heads": 2}, {}),
    ],
)  # fmt: skip
def test_a_family_under_another_name(
    tmp_path, model_type: str, name: str, like: str, shape: dict[str, Any], own: dict[str, Any], names: dict[str, str]
):
    given = {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, **shape}
    theirs = reference(Case(like.lower(), "base", f"{like}ForCausalLM", given))
    theirs.save_pretrained(tmp_path / "theirs")
    tensors = renamed(load_file(tmp_path / "theirs" / "model.safetensors"), names)
    for extra in LEFT_OUT.get(model_type, ()):
        tensors[extra] = torch.zeros(2, 2)
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | given))
    own = {"rope_theta": 100.0, **own}
    rewritten(tmp_path / "theirs", tensors, model_type=model_type, architectures=[f"{name}ForCausalLM"], **own)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def test_orion_is_llama_with_layer_norms(tmp_path):
    theirs = reference(
        Case(
            "stablelm", "base", "StableLmForCausalLM", {**SIZES, "num_key_value_heads": 4, "partial_rotary_factor": 1.0}
        )
    )
    theirs.save_pretrained(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    own = {"model_type": "orion", "architectures": ["OrionForCausalLM"], "num_key_value_heads": 4}
    rewritten(tmp_path / "theirs", tensors, **own)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize("grows", [True, False])
def test_qwen_is_qwen2_with_one_matrix_for_all_sides(tmp_path, grows: bool):
    theirs = reference(Case("qwen2", "base", "Qwen2ForCausalLM", {**SIZES, "num_key_value_heads": 4}))
    theirs.save_pretrained(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn"
        for part in ("weight", "bias"):
            sides = [tensors.pop(f"{at}.{n}_proj.{part}") for n in "qkv"]
            tensors[f"transformer.h.{layer}.attn.c_attn.{part}"] = torch.cat(sides)
    gated = {"mlp.up_proj": "mlp.w1", "mlp.gate_proj": "mlp.w2", "mlp.down_proj": "mlp.c_proj"}
    tensors = renamed(tensors, {**BLOCK, **gated, "self_attn.o_proj": "attn.c_proj"})
    growing = {"use_dynamic_ntk": grows, "use_logn_attn": grows}
    own = {"kv_channels": 8, "seq_length": 32, "layer_norm_epsilon": 1e-6, "intermediate_size": 80, "no_bias": True}
    rewritten(tmp_path / "theirs", tensors, model_type="qwen", architectures=["QWenLMHeadModel"], **own, **growing)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")
    ids = torch.ones(1, 33, dtype=torch.long)
    if grows:
        with pytest.raises(UserError, match="length 33: this model's positions end at 32"):
            load(tmp_path / "theirs").network(ids)


@pytest.mark.parametrize(
    ("kind", "prefix"), [("Model", "new."), ("Model", ""), ("ForSequenceClassification", "")], ids=str
)
def test_gte_as_it_was_published_stretches_its_angles(tmp_path, kind: str, prefix: str):
    """By the factor and the width of a head."""
    factor, width = 8.0, 8
    angles = {"rope_type": "linear", "rope_theta": 100.0 * factor, "factor": factor ** (2 / width)}
    theirs = reference(Case("gte", "base", f"Gte{kind}", {**SIZES, "rope_parameters": angles, "pad_token_id": 0}))
    theirs.save_pretrained(tmp_path / "theirs")
    written = load_file(tmp_path / "theirs" / "model.safetensors")
    tensors = {prefix + name.replace("gte.", "new."): tensor for name, tensor in written.items()}
    if prefix:
        tensors["classifier.weight"] = torch.zeros(1, 32)
    config = {
        "model_type": "new",
        "architectures": ["NewModel", "NewForTokenClassification"] if kind == "Model" else [f"New{kind}"],
        "rope_theta": 100.0,
        "rope_scaling": {"type": "ntk", "factor": factor},
        "type_vocab_size": 1,
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
    }
    rewritten(tmp_path / "theirs", tensors, **config)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def of_another_code(
    case: Case, folder: Path, own: dict[str, Any], names: dict[str, str], fields: dict[str, str] | None = None
) -> Any:
    """The reference, saved as another library would: with these names of tensors and of fields of its config."""
    theirs = reference(case)
    theirs.save_pretrained(folder)
    tensors = renamed(load_file(folder / "model.safetensors"), names)
    document = json.loads((folder / "config.json").read_text())
    called = {(fields or {}).get(name, name): value for name, value in document.items()}
    (folder / "config.json").write_text(json.dumps({**called, **own}))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return theirs


GPT = {"vocab_size": 60, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}


def test_moss_is_codegen(tmp_path):
    own = {"model_type": "moss", "architectures": ["MossForCausalLM"], "wbits": 32, "groupsize": 128}
    theirs = of_another_code(Case("codegen", "base", "CodeGenForCausalLM", GPT), tmp_path / "theirs", own, {})
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def test_progen2_is_gpt_j_under_other_names(tmp_path):
    names = {
        "transformer.": "model.",
        "wte": "embeddings.word_embeddings",
        "model.h.": "model.decoder.layers.",
        "ln_f": "layer_norm",
        "ln_1": "layer_norm",
        ".attn.": ".attention.",
    }
    fields = {
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "n_inner": "intermediate_size",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps",
    }
    own = {"model_type": "progen2", "architectures": ["ProGen2ForPreTraining"], "tie_word_embeddings": False}
    case = Case("gptj", "base", "GPTJForCausalLM", {**GPT, "n_inner": 40})
    theirs = of_another_code(case, tmp_path / "theirs", own, names, fields)
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


def test_pico_is_llama_that_rotates_neighbours(tmp_path):
    names = {
        "model.": "",
        "embed_tokens": "embedding_proj",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "swiglu_norm",
        "self_attn": "attention",
        "mlp.gate_proj": "swiglu.w_0",
        "mlp.up_proj": "swiglu.w_1",
        "mlp.down_proj": "swiglu.w_2",
        "lm_head": "de_embedding_proj",
    }
    fields = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "attention_n_heads",
        "num_key_value_heads": "attention_n_kv_heads",
        "intermediate_size": "activation_hidden_dim",
        "rms_norm_eps": "norm_eps",
        "max_position_embeddings": "max_seq_len",
    }
    own = {"model_type": "pico_decoder", "architectures": ["PicoDecoderHF"], "position_emb_theta": 100.0}
    angles = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
    shape = {**SIZES, **angles, "num_key_value_heads": 2}
    folder = tmp_path / "theirs"
    theirs = of_another_code(Case("llama", "base", "LlamaForCausalLM", shape), folder, own, names, fields)
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in ("rope_parameters", "head_dim")}
    (folder / "config.json").write_text(json.dumps(kept))
    tensors = load_file(folder / "model.safetensors")
    tensors["output_norm.weight"] = tensors.pop("norm.weight")
    for name in [name for name in tensors if ".q_proj" in name or ".k_proj" in name]:
        tensors[name] = tensors[name].view(-1, 2, 4, 32).transpose(1, 2).reshape(-1, 32).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    compared(theirs, folder, tmp_path / "ours")


@pytest.mark.parametrize("name", ["InternS1ForConditionalGeneration", "KimiK25ForConditionalGeneration"])
def test_a_text_model_of_pictures_as_it_is_published(tmp_path, name: str):
    seeing, kimi = "vision_tower.encoder.blocks.0.norm0.weight", name.startswith("Kimi")
    shape = base("deepseek_v3") if kimi else {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
    kind, architecture = ("deepseek_v3", "DeepseekV3") if kimi else ("qwen3", "Qwen3")
    theirs = reference(Case(kind, "base", f"{architecture}ForCausalLM", shape))
    theirs.save_pretrained(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    if kimi:
        tensors = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    else:
        tensors = renamed(tensors, {"model.": "model.language_model."})
    save_file({**tensors, seeing: torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    inner = {**text, "model_type": "kimi_k2" if kimi else "qwen3"}
    model_type = "kimi_k25" if kimi else "interns1"
    whole = {"model_type": model_type, "architectures": [name], "tie_word_embeddings": False, "text_config": inner}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    ids = torch.randint(1, 20, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path).network(Tokens(ids)), theirs(ids)[0], rtol=1e-5, atol=1e-5)


def with_distances(tensors: dict[str, Tensor], ids: Tensor, heads: int) -> Tensor:
    """Llama with slopes of distances in place of angles (Press et al. 2021), and words of unit length at the end."""

    def norm(x: Tensor, name: str) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * tensors[f"{name}.weight"]

    x, n = tensors["model.embed_tokens.weight"][ids], ids.shape[1]
    place = torch.arange(n)
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    scores = -slopes[:, None, None] * (place[:, None] - place).float()
    scores = scores.masked_fill(place[:, None] < place, float("-inf"))
    for layer in range(2):
        at = f"model.layers.{layer}"
        q, k, v = (norm(x, f"{at}.input_layernorm") @ tensors[f"{at}.self_attn.W_pack.weight"].T).chunk(3, -1)
        q, k, v = (side.unflatten(-1, (heads, -1)).transpose(1, 2) for side in (q, k, v))
        read = (q @ k.mT / q.shape[-1] ** 0.5 + scores).softmax(-1) @ v
        x = x + read.transpose(1, 2).flatten(2) @ tensors[f"{at}.self_attn.o_proj.weight"].T
        y = norm(x, f"{at}.post_attention_layernorm")
        gate, up, down = (tensors[f"{at}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        x = x + (torch.nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
    output = tensors["lm_head.weight"]
    return norm(x, "model.norm") @ (output / output.norm(dim=-1, keepdim=True)).T


@pytest.mark.parametrize("rotates", [True, False])
def test_baichuan_is_llama_with_one_matrix_for_all_sides(tmp_path, rotates: bool):
    shape = {**SIZES, "num_key_value_heads": 4, **({} if rotates else {"vocab_size": 125_696})}
    theirs = reference(Case("llama", "base", "LlamaForCausalLM", shape))
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn"
        tensors[f"{at}.W_pack.weight"] = torch.cat([tensors.pop(f"{at}.{side}_proj.weight") for side in "qkv"])
    named = {"model_type": "baichuan", "architectures": ["BaichuanForCausalLM"], "model_max_length": 32}
    rewritten(tmp_path, tensors, **named)
    if not rotates:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": None}))
    ids = torch.randint(1, 60, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(ids)[0] if rotates else with_distances(tensors, ids, 4)
        torch.testing.assert_close(load(tmp_path).network(Tokens(ids)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_olmo_as_it_was_published_packs_its_matrices(tmp_path, tied: bool):
    shape = {**SIZES, "clip_qkv": 0.7, "tie_word_embeddings": tied}
    theirs = reference(Case("olmo", "base", "OlmoForCausalLM", shape))
    theirs.save_pretrained(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    for layer in range(2):
        at, there = f"model.layers.{layer}", f"model.layers.{layer}.self_attn"
        tensors[f"{at}.att_proj.weight"] = torch.cat([tensors.pop(f"{there}.{side}_proj.weight") for side in "qkv"])
        both = [tensors.pop(f"{at}.mlp.{part}_proj.weight") for part in ("up", "gate")]
        tensors[f"{at}.ff_proj.weight"] = torch.cat(both)
    names = {
        "model.": "model.transformer.",
        "embed_tokens": "wte",
        "layers": "blocks",
        "self_attn.o_proj": "attn_out",
        "mlp.down_proj": "ff_out",
        "lm_head": "model.transformer.ff_out",
    }
    fields = {"d_model": 32, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 80, "embedding_size": 60, "rope": True}
    own = {"vocab_size": 57, "clip_qkv": 0.7, "weight_tying": tied, "max_sequence_length": 32}
    document = {"model_type": "hf_olmo", "architectures": ["OLMoForCausalLM"], **fields, **own}
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(document))
    save_file(renamed(tensors, names), tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    compared(theirs, tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize("factorised", [True, False])
def test_nandi_runs_each_layer_twice(tmp_path, factorised: bool):
    angles = {"rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0}}
    shape = {**SIZES, **angles, "num_hidden_layers": 4, "num_key_value_heads": 2}
    theirs = reference(Case("llama", "base", "LlamaForCausalLM", shape))
    weights = theirs.state_dict()
    for name in [name for name in weights if ".layers.1." in name or ".layers.3." in name]:
        weights[name].copy_(weights[name.replace("layers.1.", "layers.0.").replace("layers.3.", "layers.2.")])
    tensors = {name: tensor for name, tensor in weights.items() if not ("layers.1." in name or "layers.3." in name)}
    tensors = {name.replace("layers.2.", "layers.1."): tensor.clone() for name, tensor in tensors.items()}
    if factorised:
        narrow, widen, proj = torch.randn(60, 12), torch.randn(32, 12) / 5, torch.randn(12, 32) / 5
        weights["model.embed_tokens.weight"].copy_(narrow @ widen.T)
        weights["lm_head.weight"].copy_(narrow @ proj)
        tensors |= {"model.embed_tokens.weight": narrow, "model.embedding_proj.weight": widen}
        tensors |= {"lm_head.weight": narrow.clone(), "lm_head_proj.weight": proj}
    theirs.save_pretrained(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    own = {"factorized_embedding": factorised, "embedding_rank": 12, "tie_word_embeddings": factorised}
    named = {"model_type": "nandi", "architectures": ["NandiForCausalLM"], "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({**document, **named, **own}))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    ids = torch.randint(1, 60, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path).network(Tokens(ids)), theirs(ids)[0], rtol=1e-5, atol=1e-5)
