"""The training benchmarks: what is raced against whom, and what we promise."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.worker import KINDS, OURS, PEERS, Assignment, Kind
from benchmarks.contestants.workload import Workload
from benchmarks.racing.machine import Machine, is_bf16_slow
from benchmarks.racing.race import Rounds, race
from benchmarks.racing.report import Report


@dataclass(frozen=True)
class Benchmark:
    """What is raced, and what we promise."""

    workload: Workload | GptWorkload
    goal: float
    """Least ratio to the fastest peer."""
    others: Mapping[Kind, float] = field(default_factory=dict)
    """Least ratios to peers that are not the fastest."""
    peers: tuple[Kind, ...] = PEERS
    n_steps: int = 6
    """Training steps of one turn."""


RANDOM: Kind = "nn.Transformer bf16, random batches"
ANNOTATED: Kind = "annotated fp32, random batches"
GPTS: tuple[Kind, ...] = ("plain bf16", "plain bf16 compiled", "transformers bf16", "x-transformers bf16")
OWN_COMPILED: Kind = "clearhead compiled"
LARGE = {"d_model": 768, "n_layers": 12, "n_heads": 12, "vocab_size": 50_304, "length": 512, "batch": 2}
BENCHMARKS = {
    "encdec-small": Benchmark(Workload(), goal=1.35, others={ANNOTATED: 6.0}, peers=(*PEERS, RANDOM, ANNOTATED)),
    "encdec-base": Benchmark(
        Workload(d_model=512, n_layers=6, n_heads=8, d_ff=2048),
        goal=1.3,
        others={RANDOM: 2.7},
        peers=(*PEERS, RANDOM),
        n_steps=3,
    ),
    "gpt-small": Benchmark(GptWorkload(), goal=1.3, peers=GPTS, n_steps=4),
    "gpt-small-fp32": Benchmark(
        GptWorkload(precision="fp32"), goal=1.9, peers=("plain fp32", "plain fp32 compiled"), n_steps=3
    ),
    "encdec-small-compiled": Benchmark(Workload(), goal=1.0, peers=(OWN_COMPILED,)),
    "gpt-small-compiled": Benchmark(GptWorkload(), goal=1.0, peers=(OWN_COMPILED,), n_steps=4),
    "gpt-124m": Benchmark(
        GptWorkload.model_validate(LARGE), goal=1.25, peers=("plain bf16", "transformers bf16"), n_steps=2
    ),
}
N_ROUNDS, N_WARM_UP = 7, 4
QUICK_CHANGES = {"max_tokens": 256, "n_pairs": 200, "n_layers": 1}
QUICK_GPT = {"d_model": 64, "n_heads": 2, "vocab_size": 200, "length": 32, "batch": 2, "n_layers": 1, "n_batches": 8}
QUICK_PRODUCT = 256
MODULES = {"transformers": "transformers", "x-transformers": "x_transformers"}
"""What a peer imports that a user of PyTorch need not have."""


def measure(name: str, *, quick: bool, threads: int | None, rounds: int | None) -> Report:
    """One benchmark, against the peers that are installed."""
    chosen, workload = BENCHMARKS[name], BENCHMARKS[name].workload
    length = Rounds(rounds or N_ROUNDS, chosen.n_steps, N_WARM_UP)
    if quick:
        changes = QUICK_CHANGES if isinstance(workload, Workload) else QUICK_GPT
        workload, length = workload.model_copy(update=changes), Rounds(rounds or 2, 1, 1, QUICK_PRODUCT)
    machine = Machine.now(threads)
    kinds = (OURS, *installed(in_quick_precision(chosen.peers)))
    lanes = race([Assignment(kind=kind, workload=workload, threads=threads) for kind in kinds], length)
    return Report.of(
        name,
        lanes,
        rounds=length,
        goal=chosen.goal,
        others=chosen.others,
        quick=quick,
        workload=workload,
        machine=machine,
    )


def in_quick_precision(peers: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """The peers, in float32 in place of bfloat16 where that is slow, each once."""
    if not is_bf16_slow():
        return peers
    plain: dict[str, Kind] = {kind.replace("bf16", "fp32"): kind for kind in KINDS if "bf16" not in kind}
    return tuple(dict.fromkeys(plain[one.replace("bf16", "fp32")] for one in peers))


def installed(peers: tuple[Kind, ...]) -> list[Kind]:
    """Those that can run here; says which cannot."""
    found: list[Kind] = []
    for kind in peers:
        library = kind.split()[0]
        if library in MODULES and find_spec(MODULES[library]) is None:
            print(f"{kind}: left out, {library} is not installed; pip install {library}", file=sys.stderr)
        else:
            found.append(kind)
    return found
