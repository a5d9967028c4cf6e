"""Blocks of one stack that differ: a first without its norm, windows and rotary bases by layer."""

import pytest
import torch

from clearhead import config as c
from clearhead.model.norm import LayerNorm
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids


def test_without_first_norm_attention_reads_its_input() -> None:
    network = small.decoder(first_norm=False)
    assert not any(name.startswith("decoder.blocks.0.attn_norm") for name, _ in network.named_parameters())
    with trace(network) as t:
        network(ids(2, 5))
    addresses = set(t)
    assert not any(address.startswith("decoder.blocks.0.attn_norm") for address in addresses)
    assert {"decoder.blocks.1.attn_norm.out", "decoder.blocks.0.ffn_norm.out"} <= addresses
    query = network.get_submodule("decoder.blocks.0.attn.q")
    expected = query(t["decoder.blocks.0.resid_pre"]).unflatten(-1, (4, 4)).transpose(1, 2)
    assert_close(t["decoder.blocks.0.attn.q"], expected)


def test_windowed_layers_turn_by_their_own_angles() -> None:
    changes = {"positions": c.Rotary(base=50.0), "window": 3, "window_layers": (1,)}
    same, other = small.encoder(**changes), small.encoder(**changes, window_positions=c.Rotary(base=7.0))
    plain = small.encoder(positions=c.Rotary(base=7.0))
    assert [name for name, _ in same.named_parameters()] == [name for name, _ in other.named_parameters()]
    at, tokens = "encoder.blocks.{}.attn.q", ids(1, 6)
    with trace(same) as a:
        same(tokens)
    with trace(other) as b:
        other(tokens)
    assert torch.equal(a[at.format(0)], b[at.format(0)])
    # The same states into the second layer, so that only its angles differ.
    with trace(plain, edit={"encoder.blocks.1.resid_pre": b["encoder.blocks.1.resid_pre"]}) as reference:
        plain(tokens)
    assert torch.equal(b[at.format(1)], reference[at.format(1)])
    assert not torch.allclose(a[at.format(1)], b[at.format(1)])


# --- parallel ------------------------------------------------------------------------------------------------------


ONE, TWO = {"parallel": "one_norm"}, {"parallel": "two_norms"}

test_parallel_properties = properties_of(
    ONE | {"positions": c.Rotary(), "n_kv_heads": 2}, TWO | {"norm": "rms", "gated": True}, ONE | {"first_norm": False}
)


@pytest.mark.parametrize("changes", [ONE, TWO], ids=["one", "two"])
def test_both_branches_read_the_block_s_input(changes: dict[str, str]) -> None:
    network, at = small.decoder(**changes, n_layers=3), "decoder.blocks.1"
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 5))
    pre = seen[f"{at}.resid_pre"]
    norms = [network.get_submodule(f"{at}.{'attn' if changes == ONE else name}_norm") for name in ("attn", "ffn")]
    assert all(isinstance(norm, LayerNorm) for norm in norms)
    assert_close(seen[f"{at}.attn_norm.out"], norms[0](pre))
    assert_close(seen[f"{at}.ffn.out"], network.get_submodule(f"{at}.ffn")(norms[1](pre)))
    assert_close(seen[f"{at}.resid_post"], pre + seen[f"{at}.attn.out"] + seen[f"{at}.ffn.out"])
