"""Adapters against the library PEFT: logits, updates, and folders both ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import clearhead
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.model.adapter import adapt, adapters
from tests.later import later

peft = later("peft")
transformers = later("transformers")

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": 40}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40}
BART = {
    **{f"{stack}_{size}": 2 for stack in ("encoder", "decoder") for size in ("layers", "attention_heads")},
    **{f"{stack}_ffn_dim": 24 for stack in ("encoder", "decoder")},
    "d_model": 16,
    "vocab_size": 40,
    "max_position_embeddings": 16,
}
TASKS = {
    "BertForSequenceClassification": "SEQ_CLS", "GPT2LMHeadModel": "CAUSAL_LM",
    "BartForConditionalGeneration": "SEQ_2_SEQ_LM",
}  # fmt: skip
LAYOUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "BertForSequenceClassification": ({**TINY, "num_labels": 3}, ["query", "value", "intermediate.dense"]),
    "BartForConditionalGeneration": (BART, ["q_proj", "v_proj", "fc1"]),
    # Matrices of theirs that hold several of ours, or have their rows in another order.
    "Phi3ForCausalLM": ({**TINY, "num_key_value_heads": 2, "pad_token_id": 0}, "all-linear"),
    "GPTJForCausalLM": ({**GPT2, "rotary_dim": 4}, "all-linear"),
    "GPTNeoXForCausalLM": ({**TINY, "rotary_pct": 0.5}, ["query_key_value", "dense_h_to_4h"]),
    "FalconForCausalLM": ({**TINY, "new_decoder_architecture": True, "num_kv_heads": 2}, "all-linear"),
    "GlmForCausalLM": ({**TINY, "num_key_value_heads": 2, "head_dim": 4, "pad_token_id": 0}, "all-linear"),
    "CohereForCausalLM": ({**TINY, "num_key_value_heads": 2}, ["q_proj", "k_proj"]),
    "CodeGenForCausalLM": ({**GPT2, "n_head": 4, "rotary_dim": 4}, ["qkv_proj"]),
    "BloomForCausalLM": ({"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40}, "all-linear"),
    "AlbertForMaskedLM": ({**TINY, "embedding_size": 8}, "all-linear"),
    # Token tables and heads, tied and not.
    "LlamaForCausalLM": ({**TINY, "num_key_value_heads": 2, "tie_word_embeddings": True}, ["embed_tokens", "q_proj"]),
    "Qwen2ForCausalLM": ({**TINY, "num_key_value_heads": 2, "tie_word_embeddings": True}, ["lm_head", "k_proj"]),
    "MistralForCausalLM": ({**TINY, "num_key_value_heads": 2}, ["lm_head", "embed_tokens", "v_proj"]),
    "GPT2LMHeadModel": (GPT2, ["wte", "c_attn"]),
}
IDS = torch.arange(2, 14).view(2, 6)


def theirs(name: str, folder: Path, targets: Any = None, **settings: Any) -> Any:
    """A model of PEFT in float64, saved below `folder` with its base."""
    config, own = LAYOUTS[name]
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    base = cls(cls.config_class(**config)).double().eval()
    base.save_pretrained(folder / "base")
    turned = {"fan_in_fan_out": True} if name == "GPT2LMHeadModel" else {}
    asked = {"task_type": TASKS.get(name), "target_modules": targets or own, **turned, **settings}
    lora = peft.LoraConfig(r=3, lora_alpha=6, **asked)
    model = peft.get_peft_model(base, lora, autocast_adapter_dtype=False).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    model.peft_config["default"].base_model_name_or_path = str(folder / "base")
    model.save_pretrained(folder / "adapter")
    return model


def back(name: str, folder: Path, adapter: str) -> Any:
    """What their library makes of a folder of ours."""
    base = getattr(transformers, name).from_pretrained(folder / "base", dtype=torch.float64)
    return peft.PeftModel.from_pretrained(base, folder / adapter, autocast_adapter_dtype=False).double().eval()


def inputs(name: str) -> dict[str, Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS} if name.startswith("Bart") else {})


def assert_same_files(folder: Path, *names: str) -> None:
    before, after = (load_file(folder / name / "adapter_model.safetensors") for name in names)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_adapters_on_some_parts_of_one_matrix_of_theirs(kind: Any, tmp_path: Path) -> None:
    """Each part has a matrix A of its own here, and none has an adapter on q."""
    theirs("GPT2LMHeadModel", tmp_path, ["c_attn", "c_proj"])
    ours = clearhead.load(tmp_path / "base")
    torch.manual_seed(1)
    adapt(ours.network, AdapterConfig(kind=kind, rank=2, targets=("k", "v", "decoder.blocks.1.ffn.up")))
    for _, adapter in adapters(ours.network):
        torch.nn.init.normal_(adapter.up)
    ours.base = str(tmp_path / "base")
    ours.save(tmp_path / "ours", adapter=True)
    said = json.loads((tmp_path / "ours/adapter_config.json").read_text())
    assert said["target_modules"] == ["attn.c_attn", "transformer.h.1.mlp.c_fc"]
    assert set(said["rank_pattern"].values()) <= {2, 6}
    expected = ours.network(IDS)
    torch.testing.assert_close(back("GPT2LMHeadModel", tmp_path, "ours")(IDS).logits, expected, rtol=1e-9, atol=1e-9)
    again = clearhead.load(tmp_path / "ours")
    assert torch.equal(again.network(IDS), expected)
    again.save(tmp_path / "again", adapter=True)
    assert_same_files(tmp_path, "ours", "again")


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    theirs("BertForSequenceClassification", tmp_path)
    theirs("GPT2LMHeadModel", tmp_path / "other")
    with pytest.raises(UserError, match=r"query: expected a matrix of .*base, got none; give the model that it was"):
        clearhead.load(tmp_path / "adapter", base=tmp_path / "other/base")
    wide = transformers.BertConfig(**{**TINY, "hidden_size": 32})
    transformers.BertModel(wide).save_pretrained(tmp_path / "wide")
    with pytest.raises(UserError, match=r"query: expected shapes \[r, 32\] and \[32, r\], got \[3, 16\] and \[16, 3\]"):
        clearhead.load(tmp_path / "adapter", base=tmp_path / "wide")
    with pytest.raises(UserError, match=r"expected the model that it is of; .*gone.*: expected a folder with a model"):
        clearhead.load(tmp_path / "adapter", base=tmp_path / "gone")
    with pytest.raises(UserError, match="base: expected it with the folder of an adapter"):
        clearhead.load(tmp_path / "base", base=tmp_path / "base")
    with pytest.raises(UserError, match="expected a model with adapters on matrices, got one without"):
        clearhead.load(tmp_path / "base").save(tmp_path / "x", adapter=True)
    path = tmp_path / "adapter/adapter_config.json"
    said = json.loads(path.read_text())
    for field, value in {"peft_type": "IA3", "init_lora_weights": "pissa", "lora_bias": True}.items():
        path.write_text(json.dumps({**said, field: value}))
        with pytest.raises(UserError, match=f"adapter_config.json:{field}: expected"):
            clearhead.load(tmp_path / "adapter")


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dora": {"use_dora": True},
    "patterns": {
        "use_rslora": True,
        "rank_pattern": {"q_proj": 5, "query_key_value": 2, "qkv_proj": 6},
        "alpha_pattern": {r".*\.0\..*": 3},
    },
    "whole": {"modules_to_save": ["lm_head"]},
    "biases": {"bias": "all"},
    "own biases": {"bias": "lora_only"},
}
QUICK = {
    "plain": (
        "BertForSequenceClassification",
        "BartForConditionalGeneration",
        "Phi3ForCausalLM",
        "GPTJForCausalLM",
        "FalconForCausalLM",
        "AlbertForMaskedLM",
        "LlamaForCausalLM",
    ),
    "dora": ("MistralForCausalLM",),
    "patterns": ("GPTNeoXForCausalLM",),
    "whole": ("GlmForCausalLM",),
    "biases": ("GPT2LMHeadModel",),
    "own biases": ("GPT2LMHeadModel",),
}
CLOSE = 1e-6
"""Rotations are computed in float32 there."""


def ways() -> list[Any]:
    """Every layout in every way; the quick ones of each kind in every run."""
    return [
        pytest.param(name, way, marks=[] if name in QUICK[way] else [pytest.mark.slow])
        for name in LAYOUTS
        for way in WAYS
        if not (way == "whole" and ("lm_head" in LAYOUTS[name][1] or name.startswith(("Albert", "Bert"))))
    ]


@pytest.mark.filterwarnings("ignore")
def test_other_numbers_below_an_adapter_are_refused(tmp_path: Path) -> None:
    config, _ = LAYOUTS["LlamaForCausalLM"]
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, peft.LoraConfig(r=3, target_modules=["embed_tokens"]))
    model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    with torch.no_grad():
        base.get_input_embeddings().base_layer.weight += 1
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match=r"embed_tokens\.weight: expected the numbers of .*base, got others; merge"):
        clearhead.load(tmp_path / "adapter")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), ways())
def test_adapters_of_every_layout_are_read_and_written(
    name: str, way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = theirs(name, tmp_path, **WAYS[way])(**inputs(name)).logits
    ours, own = clearhead.load(tmp_path / "adapter"), inputs(name).values()
    ours.save(tmp_path / "again", adapter=True)
    for network in (ours.network, ours.merge().network, clearhead.load(tmp_path / "again").network):
        torch.testing.assert_close(network(*own), expected, rtol=CLOSE, atol=CLOSE)
    theirs_again = back(name, tmp_path, "again")(**inputs(name)).logits
    torch.testing.assert_close(theirs_again, expected, rtol=CLOSE, atol=CLOSE)
    written = json.loads((tmp_path / "again/adapter_config.json").read_text())
    assert written["bias"] == WAYS[way].get("bias", "none")
    assert "another model" not in caplog.text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "targets", "settings"),
    [
        ("BertForSequenceClassification", None, {}),
        ("BertForSequenceClassification", None, {"use_rslora": True}),
        ("GPT2LMHeadModel", ["c_attn", "c_proj"], {}),
        pytest.param("GPT2LMHeadModel", ["c_attn", "c_proj"], {"use_dora": True}, marks=pytest.mark.slow),
        ("BartForConditionalGeneration", None, {"use_dora": True}),
    ],
)
def test_folders_come_back_bit_by_bit_and_updates_are_those_of_peft(
    name: str, targets: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = theirs(name, tmp_path, targets, **settings)
    ours, own = clearhead.load(tmp_path / "adapter"), inputs(name)
    ours.save(tmp_path / "again", adapter=True)
    assert_same_files(tmp_path, "adapter", "again")
    losses: list[list[float]] = []
    for module, run in ((model, lambda: model(**own).logits), (ours.network, lambda: ours.network(*own.values()))):
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        losses.append([])
        for _ in range(8):
            optimizer.zero_grad()
            value = run().square().mean()
            value.backward()
            optimizer.step()
            losses[-1].append(value.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    assert losses[0][-1] < 0.99 * losses[0][0]
