import pytest

from clearhead.errors import UserError
from clearhead.training.planning.layouts import KNOWN, LATENCY, LINK_SHARE, hardware

H100 = KNOWN["h100"]


def test_ring_moves_all_but_a_rank_s_share() -> None:
    n_bytes = 1e9
    assert H100.all_gather(n_bytes, 1) == 0
    assert H100.all_gather(n_bytes, 2) == pytest.approx(n_bytes / 2 / (LINK_SHARE * H100.link) + LATENCY)
    assert H100.all_reduce(n_bytes, 8) == 2 * H100.all_gather(n_bytes, 8)
    slow = H100.all_gather(n_bytes, 8, messages=10) - H100.all_gather(n_bytes, 8)
    assert slow == pytest.approx(9 * 3 * LATENCY)


def test_between_nodes_each_member_of_the_group_brings_its_card() -> None:
    assert H100.group_bandwidth(8) == LINK_SHARE * H100.link
    assert H100.group_bandwidth(16) == LINK_SHARE * 8 * H100.network
    assert H100.group_bandwidth(2, stride=8) == LINK_SHARE * H100.network
    assert H100.group_bandwidth(4, stride=2) == LINK_SHARE * H100.link


def test_figures_given_replace_those_known() -> None:
    found = hardware("a100", {"flops": 100, "memory": 40, "per_node": 4, "network": None})
    assert (found.flops, found.memory, found.per_node) == (100e12, 40_000_000_000, 4)
    assert found.network == KNOWN["a100"].network


@pytest.mark.parametrize(
    ("name", "figures", "message"),
    [
        ("b300", {}, "--gpu: expected one of a100, h100, h200, cpu, got b300; or give --flops and --memory with one"),
        ("h100", {"flops": 0}, "--flops: expected more than 0, got 0; leave it out for that of h100"),
        ("h100", {"per_node": -8}, "--gpus-per-node: expected more than 0, got -8; leave it out for that of h100"),
    ],
)
def test_impossible_machines_are_refused(name: str, figures: dict[str, float], message: str) -> None:
    with pytest.raises(UserError) as error:
        hardware(name, figures)
    assert str(error.value) == message
