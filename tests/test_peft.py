"""Adapters against the library PEFT: logits, updates, and folders both ways."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import clearhead
from clearhead.api import Model

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
SMALL: dict[str, tuple[str, dict[str, Any], Any, list[str]]] = {
    "encoder": (
        "BertForSequenceClassification",
        {**ENCODER, "vocab_size": 40, "num_labels": 3},
        "SEQ_CLS",
        ["query", "value", "intermediate.dense"],
    ),
    "decoder": (
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 16},
        "CAUSAL_LM",
        ["c_attn", "c_proj"],
    ),
    "encoder-decoder": (
        "BartForConditionalGeneration",
        {
            "d_model": 16,
            "vocab_size": 40,
            "max_position_embeddings": 16,
            **{f"{stack}_{size}": 2 for stack in ("encoder", "decoder") for size in ("layers", "attention_heads")},
            **{f"{stack}_ffn_dim": 24 for stack in ("encoder", "decoder")},
        },
        "SEQ_2_SEQ_LM",
        ["q_proj", "v_proj", "fc1"],
    ),
}
IDS = torch.arange(2, 14).view(2, 6)


def theirs(name: str, folder: Path, **settings: Any) -> Any:
    """A model of PEFT in float64, saved below `folder` with its base."""
    kind, config, task, targets = SMALL[name]
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    base = cls(cls.config_class(**config)).double().eval()
    base.save_pretrained(folder / "base")
    turned = {"fan_in_fan_out": True} if name == "decoder" else {}
    lora = peft.LoraConfig(task_type=task, r=3, lora_alpha=6, target_modules=targets, **turned, **settings)
    model = peft.get_peft_model(base, lora, autocast_adapter_dtype=False).double().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                parameter += 0.1 * torch.randn_like(parameter)
    model.peft_config["default"].base_model_name_or_path = str(folder / "base")
    model.save_pretrained(folder / "adapter")
    return model


def both_losses(name: str, model: Any, ours: Model) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """The mean of the logits' squares, of theirs and of ours."""
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": IDS} if name == "encoder-decoder" else {})
    own = [IDS] * len(inputs)
    return lambda: model(**inputs).logits.square().mean(), lambda: ours.network(*own).square().mean()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, "") for name in SMALL),
        ("encoder", "use_rslora"),
        ("decoder", "use_dora"),
        ("encoder-decoder", "use_dora"),
    ],
)
def test_logits_folders_and_updates_are_those_of_peft(name: str, settings: str, tmp_path: Path) -> None:
    model = theirs(name, tmp_path, **dict.fromkeys(filter(None, [settings]), True))
    ours = clearhead.load(tmp_path / "adapter")
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": IDS} if name == "encoder-decoder" else {})
    expected = model(**inputs).logits
    own = [IDS] * len(inputs)
    torch.testing.assert_close(ours.network(*own), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.merge().network(*own), expected, rtol=1e-9, atol=1e-9)
    # The folder comes back bit by bit.
    ours.save(tmp_path / "again", adapter=True)
    before, after = (load_file(tmp_path / part / "adapter_model.safetensors") for part in ("adapter", "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    # And their library opens ours.
    base = getattr(transformers, SMALL[name][0]).from_pretrained(tmp_path / "base", dtype=torch.float64)
    back = peft.PeftModel.from_pretrained(base, tmp_path / "again", autocast_adapter_dtype=False).double().eval()
    torch.testing.assert_close(back(**inputs).logits, expected, rtol=1e-9, atol=1e-9)
    # The same updates.
    losses = both_losses(name, model, ours)
    trained = [[p for p in one.parameters() if p.requires_grad] for one in (model, ours.network)]
    assert sum(map(torch.numel, trained[0])) == sum(map(torch.numel, trained[1]))
    found = []
    for loss, parameters in zip(losses, trained, strict=True):
        optimizer = torch.optim.AdamW(parameters, lr=1e-2)
        values = []
        for _ in range(20):
            optimizer.zero_grad()
            (value := loss()).backward()
            optimizer.step()
            values.append(value.item())
        found.append(values)
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    assert found[0][-1] < 0.99 * found[0][0]
    assert json.loads((tmp_path / "again/adapter_config.json").read_text())["lora_alpha"] == 6
