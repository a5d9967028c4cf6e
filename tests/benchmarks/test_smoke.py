"""The benchmarks run, and race like against like; no figure is judged here."""

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from benchmarks.contestant import Facts, Turn
from benchmarks.machine import Machine
from benchmarks.ours import network_config, translation
from benchmarks.peer import Peer, PeerTransformer
from benchmarks.race import Lane, Rounds
from benchmarks.report import Report
from benchmarks.worker import OURS, PEERS
from benchmarks.workload import Workload
from clearhead.model import Transformer
from tests.architecture.source import ROOT

TINY = Workload(d_model=16, n_layers=2, n_heads=2, d_ff=24, vocab_size=50, n_pairs=60, max_tokens=256)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_quick_run_ends_with_one_object() -> None:
    done = run("encdec-small", "--quick", "--json", "--threads", "1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["ratio"] > 0
    assert figures["peer"] in PEERS
    assert figures["quick"]
    assert [row["name"] for row in figures["rows"]] == [OURS, *PEERS]
    assert len({row["parameters"] for row in figures["rows"]}) == 1
    assert all(0 < row["loss"] < 10 for row in figures["rows"])
    assert figures["machine"]["torch"] == torch.__version__
    assert "| clearhead (" in done.stdout


def test_unknown_name_is_one_line() -> None:
    done = run("nothing")
    assert done.returncode == 2
    names = "encdec-small, encdec-base, gpt-small, gpt-small-fp32, gpt-124m"
    assert done.stderr.splitlines() == [f"error: nothing: expected one of {names}; try encdec-small"]


def test_both_sides_see_the_same_batches() -> None:
    task = translation(TINY)
    peer = Peer(TINY, None, bf16=False)
    peer.prepare(len(task.plan(seed=TINY.seed, epoch=0)))
    for examples, theirs in zip(task.plan(seed=TINY.seed, epoch=0), peer.ready, strict=True):
        ours = task.collate(examples)
        source, target = ours.inputs
        assert torch.equal(source.ids, theirs.source)
        assert torch.equal(target.ids, theirs.target)
        assert torch.equal(ours.labels, theirs.labels[theirs.labels != 0])
        assert ours.n_tokens == theirs.n_tokens


def test_both_sides_compute_the_same() -> None:
    """With one set of weights, the peer's logits on real tokens are ours: masks, positions, scale and norms agree."""
    torch.manual_seed(1)
    ours, peer = Transformer(network_config(TINY)).eval(), PeerTransformer(TINY).eval()
    peer.load_state_dict(as_peer(ours))
    task = translation(TINY)
    batch = task.collate(task.plan(seed=0, epoch=0)[0])
    source, target = batch.inputs
    assert source.valid is not None
    with torch.no_grad():
        expected = target.real(peer(source.ids, target.ids))
        assert torch.allclose(ours(source, target), expected, atol=1e-5)


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


def test_dropout_stands_at_the_same_places() -> None:
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
def test_ratio_is_to_the_faster_peer(faster: int, cpu_seconds: float) -> None:
    def lane(i: int, rates: list[int]) -> Lane:
        turns = [Turn(n_tokens=rate, seconds=1.0, cpu_seconds=cpu_seconds, loss=1.0, peak_gb=1.0) for rate in rates]
        return Lane((OURS, *PEERS)[i], Facts(n_parameters=1, precision="fp32"), turns)

    peers = [lane(1 + i, [100, 120, 50] if i == faster else [90, 90, 90]) for i in range(2)]
    report = Report.of(
        "encdec-small",
        [lane(0, [150, 180, 100]), *peers],
        rounds=Rounds(3, 1, 1),
        goal=1.35,
        quick=False,
        workload=TINY,
        machine=Machine.now(1),
    )
    assert report.quiet == (cpu_seconds == 1.0)
    assert report.peer == PEERS[faster]
    assert report.ratio == 1.5
    assert report.ratio_of_rounds == (1.5, 2.0)
    assert report.rows[0].relative == 1.5
