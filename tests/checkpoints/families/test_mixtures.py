"""Experts in other people's folders: in four bits, in one tensor, and of a number that does not fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.api import load
from clearhead.checkpoints.families.mixtures.gpt_oss import restored
from clearhead.errors import UserError
from tests.later import later
from tests.parity.cases import of
from tests.parity.harness import both, reference

later("transformers")


def changed(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("n", "told"),
    [(3, r"moe.gate.weight: expected shape \[3, 24\], got \[4, 24\]"), (5, r"expected shape \[5, 24\], got \[4, 24\]")],
)
def test_a_number_of_experts_that_does_not_fit_is_one_line(n: int, told: str, tmp_path: Path) -> None:
    reference(of("mixtral")[0]).save_pretrained(tmp_path)
    changed(tmp_path, num_local_experts=n)
    with pytest.raises(UserError, match=told) as found:
        load(tmp_path)
    assert "\n" not in str(found.value)


def test_a_choice_of_more_experts_than_there_are_is_one_line(tmp_path: Path) -> None:
    reference(of("mixtral")[0]).save_pretrained(tmp_path)
    changed(tmp_path, num_experts_per_tok=5)
    with pytest.raises(UserError, match="must be at most") as found:
        load(tmp_path)
    assert "\n" not in str(found.value)


def test_a_correction_is_as_exact_as_it_is_stored(tmp_path: Path) -> None:
    case = of("glm4_moe")[0]
    stored = reference(case)
    stored.save_pretrained(tmp_path)
    name, wanted = next((name, one) for name, one in stored.named_buffers() if name.endswith("correction_bias"))
    layer = name.split(".")[2]
    found = load(tmp_path, dtype="bfloat16").network
    assert found.get_parameter(f"decoder.blocks.{layer}.ffn.router.weight").dtype == torch.bfloat16
    assert torch.equal(found.get_parameter(f"decoder.blocks.{layer}.ffn.router.correction"), wanted)


def packed(shape: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Random four-bit numbers, e r g 16, and scales, e r g."""
    blocks = torch.randint(0, 256, (*shape, 16), generator=generator).to(torch.uint8)
    return {"blocks": blocks, "scales": torch.randint(118, 126, shape, generator=generator).to(torch.uint8)}


def test_four_bit_numbers_are_restored_as_the_reference_does() -> None:
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    found = packed((2, 6, 3), torch.Generator().manual_seed(0))
    expected = mxfp4.convert_moe_packed_tensors(found["blocks"], found["scales"])
    assert torch.equal(restored(found["blocks"], found["scales"]), expected.mT)
    with pytest.raises(UserError, match="expected bytes and a scale for each group"):
        restored(found["blocks"], found["scales"][:, :, :1])


def test_a_folder_of_four_bit_numbers_opens(tmp_path: Path) -> None:
    case, generator = of("gpt_oss")[0], torch.Generator().manual_seed(0)
    case = replace(case, config={**case.config, "hidden_size": 32, "intermediate_size": 32})
    theirs, _ = both(case, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for i, layer in enumerate(theirs.model.layers):
        for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):
            found, at = packed((4, rows, 1), generator), f"model.layers.{i}.mlp.experts.{name}"
            with torch.no_grad():
                getattr(layer.mlp.experts, name).copy_(restored(found["blocks"], found["scales"]).mT)
            del tensors[at]
            tensors |= {f"{at}_{kind}": tensor for kind, tensor in found.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    changed(tmp_path, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    ours, ids = load(tmp_path, dtype=torch.float32), torch.tensor([[5, 9, 11, 3]])
    with torch.no_grad():
        torch.testing.assert_close(ours.network(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)
    ours.save(tmp_path / "ours")
    assert "quantization_config" not in json.loads((tmp_path / "ours" / "config.json").read_text())
