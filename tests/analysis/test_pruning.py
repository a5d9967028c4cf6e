"""Networks without their weakest heads."""

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.ablation import without
from clearhead.analysis.pruning import without_heads
from clearhead.api import load
from clearhead.cli import main
from clearhead.config.positions import Together
from clearhead.errors import UserError
from clearhead.model import Transformer
from tests.explorer.traced import CONFIGS
from tests.model import small
from tests.training.tiny import begin, drive, write_recipe


@pytest.mark.parametrize("name", ["encoder_decoder_post", "decoder_pre_learned"])
def test_the_network_computes_what_the_old_one_does_without_these_heads(name: str):
    torch.manual_seed(0)
    network = Transformer(CONFIGS[name]).eval()
    ids = [torch.arange(2, 2 + n).view(1, n) for n in (6, 5)][: len(network.stacks())]
    found = without_heads(network, ids, 1)
    expected = without(network, ids, found.removed)
    torch.testing.assert_close(found.network(*ids), expected, atol=1e-5, rtol=1e-5)
    per_attention: dict[str, list[str]] = {}
    for site in found.effects:
        per_attention.setdefault(site.partition("[")[0], []).append(site)
    weakest = [min(some, key=lambda site: found.effects[site]) for some in per_attention.values()]
    assert sorted(found.removed) == sorted(weakest)
    sizes = [sum(p.numel() for p in one.parameters()) for one in (found.network, network)]
    assert sizes[0] < sizes[1]
    old = {p.data_ptr() for p in network.parameters()}
    assert old.isdisjoint(p.data_ptr() for p in found.network.parameters())
    tokens = {stack.n_heads for stack in found.network.config.stacks.values()}
    assert tokens == {stack.n_heads - 1 for stack in network.config.stacks.values()}


@pytest.mark.parametrize(
    ("changes", "n", "message"),
    [
        ({}, 4, "--heads: expected 1 to 3 of the decoder's heads, got 4; keep at least one"),
        ({"n_kv_heads": 2}, 1, "prune: expected heads with keys of their own, got 2 keys for 4"),
        (
            {"positions": c.ALiBi()},
            1,
            "prune: expected positions that all heads share, got alibi",
        ),
        (
            {"positions": Together(added=c.Sinusoidal(), scored=c.ALiBi())},
            1,
            "prune: expected positions that all heads share, got together",
        ),
    ],
)
def test_what_cannot_be_pruned_is_refused(changes: dict, n: int, message: str):
    with pytest.raises(UserError) as error:
        without_heads(small.decoder(n_heads=4, **changes), [torch.tensor([[1, 2, 3]])], n)
    assert str(error.value).startswith(message)


def test_the_command_writes_a_smaller_model(tmp_path, capsys):
    drive(begin(write_recipe(tmp_path, steps=2), tmp_path / "run"))
    main(["prune", str(tmp_path / "run"), "--heads", "1", "--out", str(tmp_path / "small")])
    said = capsys.readouterr()
    assert "small: " in said.out
    assert "removed 3 of 6 heads, with effects of at most" in said.err
    model = load(tmp_path / "small")
    assert {stack.n_heads for stack in model.config.stacks.values()} == {1}
    assert model.translate(["one two"])
