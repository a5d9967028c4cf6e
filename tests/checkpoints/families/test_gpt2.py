"""What the comparison with the reference library cannot see: older checkpoints and what is left out of them."""

from typing import Any

import pytest
import torch

from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.weights import mapping
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from tests.checkpoints.families.hub import CONFIGS


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="config.json").read(document, where="config.json")[0]


@pytest.mark.parametrize(
    "document", [CONFIGS["distil_gpt2"], CONFIGS["gpt2_medium"]], ids=["distilgpt2", "gpt2-medium"]
)
def test_configs_of_the_hub_read_as_the_reference_reads_them(document: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Config.from_dict(document).to_dict()
    assert read(document) == read(theirs | {"architectures": document["architectures"]})


def test_masks_are_ignored_and_the_second_head_is_left_out() -> None:
    document = CONFIGS["distil_gpt2"] | {"architectures": ["GPT2DoubleHeadsModel"]}
    family = family_of(document, where="")
    config, head = family.read(document, where="")
    table = family.table(config, head)
    ours = {name: p.detach() for name, p in Transformer(config).named_parameters()}
    theirs = mapping.save(table, ours)
    masks = {f"transformer.h.{i}.attn.{n}": torch.ones(1) for i in range(2) for n in ("bias", "masked_bias")}
    second = {f"multiple_choice_head.summary.{name}": torch.ones(1) for name in ("weight", "bias")}
    found = mapping.load(table, theirs | masks | second, where="folder")
    assert found.left_out.keys() == second.keys()
    assert found.tensors.keys() == ours.keys()


def test_products_are_written_transposed() -> None:
    document = CONFIGS["distil_gpt2"] | {"n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 5}
    family = family_of(document, where="")
    config, head = family.read(document, where="")
    ours = {name: p.detach() for name, p in Transformer(config).named_parameters()}
    theirs, block = mapping.save(family.table(config, head), ours), "decoder.blocks.0"
    written = {"attn.c_proj": "attn.out", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    for name, own in written.items():
        assert torch.equal(theirs[f"transformer.h.0.{name}.weight"], ours[f"{block}.{own}.weight"].mT), name
    sides = torch.cat([ours[f"{block}.attn.{side}.weight"].mT for side in "qkv"], 1)
    assert torch.equal(theirs["transformer.h.0.attn.c_attn.weight"], sides)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: expected False"),
        ({"activation_function": "mish"}, "activation_function: expected relu or .*, got 'mish'"),
        ({"add_cross_attention": True}, "add_cross_attention: expected False"),
        ({"n_head": 5}, "n_head=5 must divide n_embd="),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(CONFIGS["distil_gpt2"] | changes)
