"""`python -m benchmarks all`: every speed on one page for each kind of processor, in about an hour."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.racing.lines import Line
from benchmarks.racing.machine import Machine
from clearhead.config import Config
from clearhead.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
QUIET = 0.05
"""Share of the processor's time that others may take."""


@dataclass(frozen=True)
class Job:
    """A command that prints a table, and with --json its lines on the last line."""

    words: str
    minutes: int
    options: frozenset[str] = frozenset({"--json", "--quick"})
    """Those of --json, --quick and --data that it takes."""


JOBS = {
    "encdec-small": Job("benchmarks run encdec-small", 7),
    "gpt-small": Job("benchmarks run gpt-small", 6),
    "gpt-124m": Job("benchmarks run gpt-124m --rounds 3", 8),
    "encdec-base": Job("benchmarks run encdec-base --rounds 2", 9),
    "fine-tuning": Job("benchmarks.fine_tuning", 8, frozenset({"--json", "--data"})),
    "decoding": Job("benchmarks.decoding", 10),
    "tokenizers": Job("benchmarks run tokenizers", 4, frozenset({"--json", "--quick", "--data"})),
    "serving": Job("benchmarks.serving", 5, frozenset({"--quick"})),
    "loading": Job("benchmarks.loading", 4, frozenset({"--quick"})),
    "explorer": Job("benchmarks.explorer", 4, frozenset()),
}
CAPS: dict[str, dict[str, str]] = {
    "": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    },
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "avx512_bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
}
"""What keeps PyTorch, oneDNN, MKL and CTranslate2 from the newer instructions of a processor that has them.

The last two cap oneDNN alone, whose products are all that differs."""


class Done(Config):
    """What a job printed, on which machine, and who else was there."""

    name: str
    command: str
    text: str
    lines: tuple[Line, ...]
    minutes: float
    others: float
    """Share of the processor's time that other processes had."""
    stolen: float
    """Share that the machine below a virtual one gave to others."""
    keeps: bool
    """True if the command ended well: 1 says that a promised figure was missed."""
    machine: Machine

    @property
    def is_quiet(self) -> bool:
        """True if others took next to nothing."""
        return self.others + self.stolen <= QUIET


class Load:
    """The machine's time since this was made, by who had it."""

    def __init__(self) -> None:
        self.began, self.own = self._ticks(), self._children()

    def shares(self) -> tuple[float, float]:
        """What others had, and what was stolen."""
        now = [b - a for a, b in zip(self.began, self._ticks(), strict=True)]
        whole, idle, stolen = sum(now) or 1, now[3] + now[4], now[7]
        own = (self._children() - self.own) * os.sysconf("SC_CLK_TCK")
        return max(0.0, (whole - idle - stolen - own) / whole), stolen / whole

    @staticmethod
    def _ticks() -> list[int]:
        """user, nice, system, idle, iowait, irq, softirq and steal; zeros that say nothing but on Linux."""
        try:
            first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        except OSError:
            return [int(time.monotonic() * 100) * (i == 3) for i in range(8)]
        return [int(one) for one in first.split()[1:9]]

    @staticmethod
    def _children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


def measure(name: str, cap: str, *, data: Path, quick: bool) -> Done:
    """Runs the job's command. What it prints on the way goes to standard error.

    Raises UserError if it prints no figure.
    """
    job = JOBS[name]
    given = {"--json": ["--json"], "--quick": ["--quick"] * quick, "--data": ["--data", str(data)]}
    words = [*job.words.split(), *(word for option in sorted(job.options) for word in given[option])]
    load, began = Load(), time.monotonic()
    command, capped = [sys.executable, "-m", *words], os.environ | CAPS[cap]
    done = subprocess.run(command, cwd=ROOT, env=capped, stdout=subprocess.PIPE, text=True, check=False)
    others, stolen = load.shares()
    printed = done.stdout.rstrip().splitlines()
    if not printed:
        raise UserError(
            f"{name}: expected figures, got none: {' '.join(words)} ended with {done.returncode}; see above"
        )
    lines = json.loads(printed.pop())["lines"] if "--json" in job.options else []
    return Done(
        name=name,
        command="python -m " + " ".join(words),
        text="\n".join(printed).strip(),
        lines=tuple(map(Line.model_validate, lines)),
        minutes=round((time.monotonic() - began) / 60, 1),
        others=round(others, 3),
        stolen=round(stolen, 3),
        keeps=done.returncode == 0,
        machine=Machine.now(None),
    )


def write_all(out: Path, cap: str, only: tuple[str, ...], *, data: Path, quick: bool) -> Path:
    """Measures what `out` does not hold yet, and writes the page of all that it holds.

    Raises UserError for a job or a cap that does not exist.
    """
    for one, of in ((cap, CAPS), *((name, JOBS) for name in only)):
        if one not in of:
            raise UserError(f"{one}: expected one of {', '.join(filter(None, of))}; try {next(filter(None, of))}")
    folder = out / (cap or "whole")
    folder.mkdir(parents=True, exist_ok=True)
    kept_of = {name: folder / f"{name}.json" for name in JOBS}
    for name in only or JOBS:
        if not (kept := kept_of[name]).is_file():
            print(f"{name}: about {JOBS[name].minutes} minutes", file=sys.stderr)
            kept.write_text(
                measure(name, cap, data=data.absolute(), quick=quick).model_dump_json(indent=1) + "\n", encoding="utf-8"
            )
    found = [Done.model_validate_json(kept.read_text(encoding="utf-8")) for kept in kept_of.values() if kept.is_file()]
    page = folder / "page.md"
    page.write_text("\n".join(page_of(found, cap)) + "\n", encoding="utf-8")
    return page


def page_of(found: list[Done], cap: str) -> Iterator[str]:
    """The table of all ratios, then what each command printed."""
    machine = found[0].machine
    yield f"# Speed on {machine.processor}{f', capped to {cap}' * bool(cap)}"
    yield ""
    yield f"`python -m benchmarks all{f' --cap {cap}' * bool(cap)}` writes this page. {machine}"
    yield ""
    yield "| task | ratio | rounds | to | share of the ceiling | quiet |"
    yield "|---|---:|---:|---|---:|---|"
    for done in found:
        quiet = "yes" if done.is_quiet else f"no: others {done.others:.0%}, stolen {done.stolen:.0%}"
        for line in done.lines:
            share = "" if line.share is None else f"{line.share:.2f} of {line.ceiling}"
            rounds = f"{line.low:.2f} to {line.high:.2f}"
            yield f"| {line.what} | **{line.ratio:.2f}** | {rounds} | {line.peer} | {share} | {quiet} |"
    for done in found:
        yield f"\n## {done.name}\n\n`{done.command}`, {done.minutes} minutes"
        yield "" if done.keeps else "\nA promised figure is missed.\n"
        yield done.text
