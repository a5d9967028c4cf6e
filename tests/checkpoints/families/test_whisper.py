"""The stem is trained as in the reference library, and other parts of the program read such a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.checkpoints.families import family_for
from clearhead.checkpoints.families.pictures_and_sounds.sounds import WHISPER
from clearhead.cli.judge.reference import compare
from clearhead.model import Tokens
from clearhead.model.summary import summarize
from tests.later import later
from tests.parity.cases import base
from tests.parity.harness import Case, both

later("transformers")

CASE = Case("whisper", "base", "WhisperForConditionalGeneration", base("whisper"))
LR = 1e-3


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Any, Model]:
    return both(CASE, tmp_path, dtype=torch.float64)


def batches(n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Sounds, b x c, and texts without padding, b t."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        sounds = torch.randn(3, 20, 6, generator=generator, dtype=torch.float64)
        yield sounds, torch.randint(3, 60, (3, 8), generator=generator)


def losses(network: torch.nn.Module, loss_of: Any, n: int) -> list[float]:
    """The mean loss before each update."""
    found: list[float] = []
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=LR)
    for sounds, texts in batches(n):
        loss = loss_of(sounds, texts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_updates_are_the_reference_s(pair: tuple[Any, Model], n: int) -> None:
    theirs, ours = pair
    network = ours.network.train()
    assert network.encoder is not None
    network.encoder.positions.requires_grad_(requires_grad=False)  # As there: the waves are not learned.

    def here(sounds: Tensor, texts: Tensor) -> Tensor:
        labels = texts[:, 1:].flatten()
        return network(Tokens(sounds), Tokens(texts[:, :-1]), labels=labels) / len(labels)

    def there(sounds: Tensor, texts: Tensor) -> Tensor:
        logits = theirs(sounds.mT.contiguous(), decoder_input_ids=texts[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())

    before = network.encoder.embed.get_parameter("conv1.weight").clone()
    found, expected = losses(network, here, n), losses(theirs.train(), there, n)
    assert found == pytest.approx(expected, rel=1e-9)
    assert not torch.equal(before, network.encoder.embed.get_parameter("conv1.weight"))
    assert found[0] != pytest.approx(found[-1], rel=1e-3), "the weights must change"


def test_the_check_command_finds_it_close(pair: tuple[Any, Model], tmp_path: Path) -> None:
    found = compare(tmp_path)
    assert found.close
    assert {"encoder.blocks.0.resid_pre", "encoder.final_norm.out"} <= {one.address for one in found.differences}


def test_the_smallest_published_model() -> None:
    """39 million parameters, as in the paper's table 1, but for the encoder's waves, which are counted there too."""
    config, _ = WHISPER.read({"model_type": "whisper"}, where="config.json")
    summary = summarize(config)
    assert summary.parameters == 37_760_640
    stem = {row.path: row for row in summary.rows if "conv" in row.path}
    assert stem["encoder.embed.conv1"].flops == 2 * 3000 * 3 * 80 * 384
    assert stem["encoder.embed.conv2"].flops == 2 * 1500 * 3 * 384 * 384
    assert (summary.source_length, summary.target_length) == (1500, 448)
    found = family_for(config)
    assert found is not None
    assert found[0] is WHISPER
