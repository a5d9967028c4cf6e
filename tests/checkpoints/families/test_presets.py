"""Named architectures: their published sizes, and what a wrong name says."""

import sys

import pytest
import torch

from clearhead.checkpoints.families import family_named, preset, presets
from clearhead.config import ClassificationHead, ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from tests import processes
from tests.analysis.test_scores import inputs, shrunk


def parameters(config: ModelConfig) -> int:
    """Parameters, each tied one counted once."""
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config).parameters())


def paper_count(d: int, n: int, d_ff: int, vocab_size: int) -> int:
    """Vaswani et al. 2017 with one shared table, biases in every linear layer and norm."""
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    return vocab_size * d + n * (encoder + decoder)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("transformer-base", paper_count(512, 6, 2048, 37_000)),
        ("transformer-big", paper_count(1024, 6, 4096, 37_000)),
        ("transformer-tiny", paper_count(128, 4, 256, 10_000)),
        ("bert-base", 109_514_298),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("llama-tiny", 15_191_712),
        ("vit-tiny", 5_717_416),
    ],
)
def test_parameters(name: str, expected: int):
    assert parameters(preset(name)) == expected


def test_base_is_the_size_the_paper_rounds_to():
    assert 62e6 < parameters(preset("transformer-base")) < 66e6  # "65 x 10^6", table 3
    assert 205e6 < parameters(preset("transformer-big")) < 220e6  # "213 x 10^6"


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_runs_when_made_small(name: str):
    config = shrunk(name)
    network = Transformer(config).eval()
    labels = (config.head.n_labels,) if isinstance(config.head, ClassificationHead) else (6, 11)
    assert network(*inputs(network)).shape == (1, *labels)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match=r"got 'gtp2'; try gpt2$"):
        preset("gtp2")
    with pytest.raises(UserError, match="try one of bert-base, captioner, classifier, demo, gpt2"):
        preset("qqqqqq")


def test_presets_are_fresh_and_survive_json():
    presets().clear()
    for name, config in presets().items():
        assert ModelConfig.model_validate_json(config.model_dump_json()) == config, name


def test_a_family_is_imported_only_when_a_config_names_it():
    code = (
        "import sys; from clearhead.checkpoints.families import family_named, presets; presets();"
        "family_named({'model_type': 'gpt2'});"
        "print([name for name in sys.modules if '.families.decoders.' in name or '.families.encoders.' in name])"
    )
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['clearhead.checkpoints.families.decoders.gpt']\n"


@pytest.mark.parametrize("odd", [None, 3, [], {}, "nothing"])
def test_a_model_type_that_is_none_has_no_family(odd: object):
    assert family_named({"model_type": odd}) is None
