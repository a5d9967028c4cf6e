"""The benchmarks run, and race like against like; no figure is judged here."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import __main__ as command
from benchmarks.contestants.annotated import Annotated
from benchmarks.contestants.contestant import Facts, Turn
from benchmarks.contestants.gpt import GptWorkload, PlainGpt
from benchmarks.contestants.ours import network_config, translation
from benchmarks.contestants.peer import Peer, PeerTransformer
from benchmarks.contestants.worker import OURS, PEERS, Assignment, Kind, contestant
from benchmarks.racing import training
from benchmarks.racing.flops import flops_per_token
from benchmarks.racing.machine import Machine
from benchmarks.racing.race import Lane, Rounds
from benchmarks.racing.report import Report
from benchmarks.racing.training import ANNOTATED, RANDOM, Benchmark
from clearhead.model import Transformer
from clearhead.training.profile import FUSED
from tests.benchmarks.agreement import TINY, check_logits


@pytest.mark.slow
def test_quick_run_ends_with_one_object(monkeypatch, capsys):
    chosen = Benchmark(TINY, goal=1.35, others={ANNOTATED: 6.0}, peers=(ANNOTATED,))
    monkeypatch.setitem(training.BENCHMARKS, "encdec-small", chosen)
    command.run("encdec-small", quick=True, json=True, threads=1, rounds=1)
    printed = capsys.readouterr().out
    check(json.loads(printed.splitlines()[-1]), [OURS, ANNOTATED])
    assert "| clearhead (" in printed
    assert f"to {ANNOTATED}, rounds" in printed


def check(figures: dict[str, Any], names: list[str]) -> None:
    assert figures["ratio"] > 0
    assert figures["peer"] in names
    assert figures["quick"]
    assert [row["name"] for row in figures["rows"]] == names
    assert len({row["parameters"] for row in figures["rows"]}) == 1
    assert all(0 < row["loss"] < 10 for row in figures["rows"])
    assert all(row["mfu"] >= 0 and row["ceiling"] > 0 for row in figures["rows"])
    assert figures["machine"]["torch"] == torch.__version__


@pytest.mark.parametrize("kind", [*PEERS, RANDOM, ANNOTATED])
def test_peers_learn(kind: Kind):
    peer = contestant(Assignment(kind=kind, workload=TINY, threads=None))
    peer.prepare(1)
    batch = peer.ready  # pyrefly: ignore[missing-attribute]
    losses = [peer.steps(1) for _ in range(8)]
    assert peer.ready is batch  # pyrefly: ignore[missing-attribute]
    assert losses[-1][1] < losses[0][1] < 1.2 * math.log(TINY.vocab_size)
    assert losses[0][0] == batch[0].n_tokens > 0


def test_both_sides_see_the_same_batches():
    task = translation(TINY)
    peer = Peer(TINY, None, bf16=False)
    peer.prepare(len(task.plan(seed=TINY.seed, epoch=0)))
    for examples, theirs in zip(task.plan(seed=TINY.seed, epoch=0), peer.ready, strict=True):
        ours = task.collate(examples)
        source, target = ours.inputs
        assert torch.equal(source.ids, theirs.source)
        assert torch.equal(target.ids, theirs.target)
        assert torch.equal(ours.labels, theirs.labels[theirs.labels != 0])
        assert ours.count == theirs.n_tokens


def test_both_sides_compute_the_same():
    """Masks, positions, scale and norms agree."""
    check_logits(PeerTransformer, as_peer)


def as_peer(network: Transformer) -> dict[str, Tensor]:
    """Our weights under the names of `torch.nn.Transformer`."""
    w = network.state_dict()
    result = {"embedding.weight": w["encoder.embed.tokens.weight"]}

    def copy(theirs: str, ours: str, parts: Sequence[str] = ("weight", "bias")) -> None:
        result.update({f"{theirs}.{part}": w[f"{ours}.{part}"] for part in parts})

    def attention(theirs: str, ours: str) -> None:
        for part in ("weight", "bias"):
            result[f"{theirs}.in_proj_{part}"] = torch.cat([w[f"{ours}.{name}.{part}"] for name in "qkv"])
        copy(f"{theirs}.out_proj", f"{ours}.out")

    for stack in ("encoder", "decoder"):
        norms = ["attn_norm", "ffn_norm"] if stack == "encoder" else ["attn_norm", "cross_norm", "ffn_norm"]
        for i in range(TINY.n_layers):
            theirs, ours = f"transformer.{stack}.layers.{i}", f"{stack}.blocks.{i}"
            attention(f"{theirs}.self_attn", f"{ours}.attn")
            if stack == "decoder":
                attention(f"{theirs}.multihead_attn", f"{ours}.cross")
            copy(f"{theirs}.linear1", f"{ours}.ffn.up")
            copy(f"{theirs}.linear2", f"{ours}.ffn.down")
            for number, norm in enumerate(norms, 1):
                copy(f"{theirs}.norm{number}", f"{ours}.{norm}")
        copy(f"transformer.{stack}.norm", f"{stack}.final_norm")
    return result


def test_dropout_stands_at_the_same_places():
    """Every dropout of the peer has one of ours: attention weights, activations, branches, embeddings."""
    peer = PeerTransformer(TINY)
    rates = {module.p for module in peer.modules() if isinstance(module, nn.Dropout)}
    rates |= {m.dropout for m in peer.modules() if isinstance(m, nn.MultiheadAttention)}
    config = network_config(TINY)
    for stack in (config.encoder, config.decoder):
        assert stack is not None
        rates |= {stack.dropout, stack.attn_dropout, stack.ffn_dropout}
    assert rates == {TINY.dropout}


@pytest.mark.parametrize(("faster", "cpu_seconds"), [(0, 1.0), (1, 0.5)])
def test_ratio_is_to_the_fastest_peer(faster: int, cpu_seconds: float):
    def lane(i: int, rates: list[int]) -> Lane:
        turns = [Turn(n_tokens=rate, seconds=1.0, cpu_seconds=cpu_seconds, loss=1.0, peak_gb=1.0) for rate in rates]
        return Lane((OURS, *PEERS)[i], Facts(n_parameters=1, precision="fp32"), turns, 1e9 * (1 + i))

    peers = [lane(1 + i, [100, 120, 50] if i == faster else [90, 90, 90]) for i in range(2)]
    report = Report.of(
        "encdec-small",
        [lane(0, [150, 180, 100]), *peers],
        rounds=Rounds(3, 1, 1),
        goal=1.35,
        others={PEERS[1 - faster]: 2.0},
        quick=False,
        workload=TINY,
        machine=Machine.now(1),
    )
    assert report.quiet == (cpu_seconds == 1.0)
    assert report.peer == PEERS[faster]
    assert report.ratio == 1.5
    assert report.ratio_of_rounds == (1.5, 2.0)
    assert report.rows[0].relative == 1.5
    [other] = report.others
    assert (other.peer, other.goal, other.ratio) == (PEERS[1 - faster], 2.0, round(150 / 90, 3))
    assert other.ratio_of_rounds == (round(100 / 90, 3), 2.0)
    for i, row in enumerate(report.rows):
        assert row.mfu == round(flops_per_token(TINY) * row.target_tokens_per_second / (1e9 * (1 + i)), 3)


def test_flops_are_those_of_the_operators():
    """Three forward passes of a peer's network, where nothing is padded."""
    w = GptWorkload(d_model=32, n_layers=2, n_heads=2, vocab_size=60, length=12, batch=2)
    ids = torch.ones(w.batch, w.length, dtype=torch.long)
    with FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        PlainGpt(w)(ids, ids)
    assert flops_per_token(w) == 3 * counter.get_total_flops() / ids.numel() > 0
    equal = TINY.model_copy(update={"shortest": 8, "longest": 8})
    ids = torch.ones(4, 9, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        Annotated(equal)(ids, ids)
    assert flops_per_token(equal) == 3 * counter.get_total_flops() / ids.numel() > 0


@pytest.mark.parametrize(("times", "races"), [(9.0, "fp32"), (1.1, "bf16"), (0.5, "bf16")])
def test_a_peer_races_in_float32_where_bfloat16_is_slow(times: float, races: str, monkeypatch, capsys):
    took = iter([*[1.0] * 5, *[times] * 5])
    monkeypatch.setattr("benchmarks.racing.machine.timed", lambda *_: next(took))
    peers: tuple[Kind, ...] = (*PEERS, RANDOM, ANNOTATED)
    kept = (*PEERS[: 1 if races == "fp32" else 2], RANDOM.replace("bf16", races), ANNOTATED)
    assert training.in_quick_precision(peers) == kept
    assert ("left out" in capsys.readouterr().err) == (races == "fp32")
