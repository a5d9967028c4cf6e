"""`python -m benchmarks run tokenizers`: a byte-level BPE from text, and its ids, against the well-known libraries."""

import itertools
import random
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from pydantic import computed_field

from benchmarks.contestants.tokenizer import KINDS, Assignment, Kind, Timed, Turn
from benchmarks.racing.lines import Line
from benchmarks.racing.machine import Machine
from benchmarks.racing.processes import Process, in_turn, started
from benchmarks.racing.report import BUSY
from clearhead.config import Config
from clearhead.data.files import read_lines
from clearhead.errors import UserError

OURS: Kind = "clearhead"
VOCAB_SIZE, QUICK_VOCAB = 8192, 400
MEGABYTES, QUICK_MEGABYTES = 10.0, 0.1
N_ROUNDS = 5
PLACES = ("multi30k/train.*", "tinyshakespeare/*.txt", "wikitext2_eval/*.raw")
"""The running text of a folder of corpora; in any other folder it is `*.txt`."""


class Rate(Config):
    """MB of text a second: the median, and the slowest and the fastest round."""

    median: float
    slowest: float
    fastest: float
    cores: float
    """CPU seconds a second."""


class Row(Config):
    """One contestant."""

    name: Kind
    train: Rate | None
    encode: Rate
    bytes_per_token: float
    """More is a vocabulary that says more; about the same for all."""
    peak_gb: float


class Ratio(Config):
    """Ours to the fastest peer."""

    ratio: float
    ratio_of_rounds: tuple[float, float]
    peer: Kind

    def __str__(self) -> str:
        low, high = self.ratio_of_rounds
        return f"**{self.ratio:.2f}** to the fastest peer ({self.peer}), rounds {low:.2f} to {high:.2f}"


class Report(Config):
    """The tokenizers on one machine."""

    benchmark: str = "tokenizers"
    ratio: float
    """Ours to the fastest peer, training and then encoding the same text once."""
    whole: Ratio
    train: Ratio
    encode: Ratio
    quick: bool
    quiet: bool
    """Nobody waited for a core."""
    rows: tuple[Row, ...]
    rounds: int
    vocab_size: int
    corpus: str
    machine: Machine

    @classmethod
    def of(
        cls,
        turns: dict[Kind, list[Turn]],
        *,
        n_bytes: int,
        vocab_size: int,
        corpus: str,
        quick: bool,
        machine: Machine,
    ) -> "Report":
        """Medians over the rounds."""
        train = {kind: [t.train for t in found if t.train] for kind, found in turns.items()}
        encode = {kind: [t.encode for t in found] for kind, found in turns.items()}
        both = {
            kind: [
                Timed(seconds=a.seconds + b.seconds, cpu_seconds=a.cpu_seconds + b.cpu_seconds)
                for a, b in zip(found, encode[kind], strict=True)
            ]
            for kind, found in train.items()
            if found
        }
        whole = _ratio(both)
        done = [one for found in (*train.values(), *encode.values()) for one in found]
        return cls(
            ratio=whole.ratio,
            whole=whole,
            train=_ratio({kind: found for kind, found in train.items() if found}),
            encode=_ratio(encode),
            quick=quick,
            quiet=all(one.cpu_seconds >= BUSY * one.seconds for one in done),
            rows=tuple(
                Row(
                    name=kind,
                    train=_rate(train[kind], n_bytes) if train[kind] else None,
                    encode=_rate(encode[kind], n_bytes),
                    bytes_per_token=round(n_bytes / found[-1].n_tokens, 2),
                    peak_gb=round(max(t.peak_gb for t in found), 2),
                )
                for kind, found in turns.items()
            ),
            rounds=len(encode[OURS]),
            vocab_size=vocab_size,
            corpus=corpus,
            machine=machine,
        )

    @computed_field
    @property
    def lines(self) -> list[Line]:
        """The rows of the page."""
        both = {"train a tokenizer": self.train, "encode text": self.encode}
        return [
            Line(what=what, peer=one.peer, ratio=one.ratio, low=one.ratio_of_rounds[0], high=one.ratio_of_rounds[1])
            for what, one in both.items()
        ]

    def markdown(self) -> str:
        """The table, with what it depends on."""
        m = self.machine
        titles = "| | train, MB/s | slowest to fastest | cores | encode, MB/s | slowest to fastest | cores |"
        return "\n".join(
            [
                f"**{self.benchmark}**, {m.date}: ratio {self.whole}, training and then encoding"
                + (". **Quick**: too short to mean anything" if self.quick else "")
                + ("" if self.quiet else ". **Not quiet**: somebody waited for a core; measure again")
                + ".",
                "",
                f"Training alone: ratio {self.train}. Encoding alone: ratio {self.encode}.",
                "",
                f"{titles} bytes a token | peak GB |",
                f"|---{'|---:' * 8}|",
                *(
                    f"| {r.name} | {_cells(r.train)} | {_cells(r.encode)} | {r.bytes_per_token:.2f} | {r.peak_gb:.2f} |"
                    for r in self.rows
                ),
                "",
                f"BPE of vocabulary {self.vocab_size:,} from {self.corpus}; {self.rounds} rounds. {m}",
            ]
        )


class Worker(Process):
    """A contestant's process."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment.kind, "benchmarks.contestants.tokenizer", assignment.model_dump_json())
        self.kind = assignment.kind

    def turn(self) -> Turn:
        return Turn.model_validate_json(self.ask("turn"))


def measure(*, data: Path, megabytes: float | None, quick: bool, threads: int | None, rounds: int | None) -> Report:
    """Each contestant that is installed in a process of its own, in turn."""
    wanted = megabytes if megabytes is not None else QUICK_MEGABYTES if quick else MEGABYTES
    if not wanted > 0:
        raise UserError(f"megabytes: expected more than 0, got {wanted}; try {MEGABYTES:g}")
    vocab_size = QUICK_VOCAB if quick else VOCAB_SIZE
    machine = Machine.now(threads)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        said = write_corpus(corpus, texts_in(data), int(wanted * 1e6))
        assignments = [
            Assignment(kind=kind, corpus=corpus, vocab_size=vocab_size, threads=machine.threads) for kind in installed()
        ]
        with started(Worker, assignments) as running:
            turns: dict[Kind, list[Turn]] = {worker.kind: [] for worker in running}
            for i in range(-1, rounds or (1 if quick else N_ROUNDS)):  # the first is warm-up
                for worker in in_turn(running, max(i, 0)):
                    turn = worker.turn()
                    turns[worker.kind] += [turn] if i >= 0 else []
        n_bytes = corpus.stat().st_size
    return Report.of(turns, n_bytes=n_bytes, vocab_size=vocab_size, corpus=said, quick=quick, machine=machine)


def installed() -> list[Kind]:
    """Those that can run here; says which cannot."""
    for kind in KINDS:
        if kind != OURS and find_spec(kind) is None:
            print(f"{kind}: left out, it is not installed; pip install {kind}", file=sys.stderr)
    return [kind for kind in KINDS if kind == OURS or find_spec(kind) is not None]


def texts_in(data: Path) -> list[Path]:
    """The file, or the text files of a folder."""
    if data.is_file():
        return [data]
    found = [path for place in PLACES for path in sorted(data.glob(place))] or sorted(data.glob("*.txt"))
    if not found:
        raise UserError(
            f"data: expected a text file, or a folder with {', '.join(PLACES)} or *.txt, got {data}; try --data FILE"
        )
    return found


def write_corpus(corpus: Path, texts: Sequence[Path], n_bytes: int) -> str:
    """Lines of all the texts in random order, without empty ones, up to `n_bytes`, again from the start if need be.

    Returns what it is made of.
    """
    lines = [line for path in texts for line in read_lines(path) if line.strip()]
    random.Random(0).shuffle(lines)
    whole = sum(len(line.encode()) + 1 for line in lines)
    written = 0
    with corpus.open("w", encoding="utf-8", newline="\n") as file:
        for line in itertools.cycle(lines):
            file.write(line + "\n")
            written += len(line.encode()) + 1
            if written >= n_bytes:
                break
    times = f", repeated {n_bytes / whole:.1f} times" if n_bytes > whole else ""
    return f"{written / 1e6:.1f} MB of {', '.join(path.name for path in texts)}{times}, a text each line"


def _ratio(done: dict[Kind, list[Timed]]) -> Ratio:
    """Of medians; all have the same text, so seconds say it."""
    seconds = {kind: [one.seconds for one in found] for kind, found in done.items()}
    peers = [kind for kind in seconds if kind != OURS]
    if not peers:
        raise UserError("tokenizers: expected a peer, got none that is installed; pip install sentencepiece")
    peer = min(peers, key=lambda kind: median(seconds[kind]))
    each = [theirs / ours for ours, theirs in zip(seconds[OURS], seconds[peer], strict=True)]
    ratio = round(median(seconds[peer]) / median(seconds[OURS]), 3)
    return Ratio(ratio=ratio, ratio_of_rounds=(round(min(each), 3), round(max(each), 3)), peer=peer)


def _rate(done: list[Timed], n_bytes: int) -> Rate:
    rates = [n_bytes / 1e6 / one.seconds for one in done]
    cores = median(one.cpu_seconds / one.seconds for one in done)
    return Rate(
        median=round(median(rates), 3),
        slowest=round(min(rates), 3),
        fastest=round(max(rates), 3),
        cores=round(cores, 2),
    )


def _cells(rate: Rate | None) -> str:
    if rate is None:
        return " |  | "
    return f"{rate.median:.2f} | {rate.slowest:.2f} to {rate.fastest:.2f} | {rate.cores:.1f}"
