"""What the comparison with the reference library cannot see: configs of the hub, and which layers have a window."""

from typing import Any

import pytest

from clearhead.checkpoints.families import family_for, family_of
from clearhead.config import ModelConfig, Rotary, YarnScaling
from clearhead.errors import UserError
from tests.checkpoints.families.hub import CONFIGS

WINDOW = {"use_sliding_window": True, "sliding_window": 8, "num_hidden_layers": 3}
LOCAL, FULL = "sliding_attention", "full_attention"


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="config.json").read(document, where="config.json")[0]


@pytest.mark.parametrize("document", [CONFIGS["qwen2_5"], CONFIGS["qwen3"]], ids=["qwen2.5", "qwen3"])
def test_configs_of_the_hub_read_as_the_reference_reads_them(document: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    kind = transformers.AutoConfig.for_model(document["model_type"])
    assert read(document) == read(kind.from_dict(document).to_dict() | {"architectures": document["architectures"]})
    found = family_for(read(document))
    assert found is not None
    assert found[0].model_type == document["model_type"]
    assert read(found[2]) == read(document)
    stack = read(document).decoder
    assert stack is not None
    assert stack.window is None


def test_yarn_of_the_long_text_recipe() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    stack = read(CONFIGS["qwen2_5"] | {"rope_scaling": yarn}).decoder
    assert stack is not None
    assert stack.positions == Rotary(
        base=1e6, scaling=YarnScaling(factor=4.0, original_length=32768), trained_length=32768
    )


@pytest.mark.parametrize(
    ("changes", "layers", "types", "first"),
    [
        ({"max_window_layers": 1}, (1, 2), [FULL, LOCAL, LOCAL], 1),
        ({"max_window_layers": 0}, None, [LOCAL, LOCAL, LOCAL], 0),
        ({"layer_types": [LOCAL, FULL, LOCAL]}, (0, 2), [LOCAL, FULL, LOCAL], 0),
        ({"layer_types": [LOCAL, LOCAL, LOCAL]}, None, [LOCAL, LOCAL, LOCAL], 0),
    ],
)
def test_layers_with_a_window(
    changes: dict[str, Any], layers: tuple[int, ...] | None, types: list[str], first: int
) -> None:
    config = read(CONFIGS["qwen3"] | WINDOW | changes)
    assert config.decoder is not None
    assert (config.decoder.window, config.decoder.window_layers) == (8, layers)
    found = family_for(config)
    assert found is not None
    assert (found[2]["layer_types"], found[2]["max_window_layers"]) == (types, first)
    assert (found[2]["use_sliding_window"], found[2]["sliding_window"]) == (True, 8)


@pytest.mark.parametrize("changes", [{"max_window_layers": 3}, {"layer_types": [FULL] * 3}, {"sliding_window": None}])
def test_no_layer_with_a_window(changes: dict[str, Any]) -> None:
    config = read(CONFIGS["qwen2_5"] | WINDOW | {"max_window_layers": 0} | changes)
    assert config.decoder is not None
    assert (config.decoder.window, config.decoder.window_layers) == (None, None)
    found = family_for(config)
    assert found is not None
    assert (found[2]["use_sliding_window"], found[2]["layer_types"]) == (False, [FULL] * 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": [LOCAL, FULL]}, "layer_types|sliding_window"),
        ({"layer_types": ["chunked_attention"] * 3}, "expected full_attention or sliding_attention"),
        ({"layer_types": [LOCAL] * 3, "use_sliding_window": False}, "expected a sliding_window for its"),
        ({"use_mrope": True}, "use_mrope: expected False"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(CONFIGS["qwen2_5"] | WINDOW | changes)
    assert "\n" not in str(caught.value)
