"""Where and with what something was measured."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import torch

import clearhead
from clearhead.config import Config
from clearhead.machine.precision import timed

TUNING = ("MALLOC_", "LD_PRELOAD", "OMP_", "MKL_", "KMP_", "GOMP_", "ONEDNN_", "DNNL_", "TORCH_")
"""How environment variables begin that change speed."""
SLOWER = 1.3
"""Times that products in bfloat16 take longer than in float32, from which on nobody races in it."""


def is_bf16_slow() -> bool:
    """Returns True if products in bfloat16 take longer than in float32 here; says how much.

    A processor without instructions for bfloat16 takes minutes for a turn in it.
    """
    seconds: list[float] = []
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(512, 512, dtype=dtype)
        seconds.append(min(timed(lambda a=a: a @ a, a.device) for _ in range(5)))
    if slow := (times := seconds[1] / seconds[0]) >= SLOWER:
        print(f"bf16: left out, its products take {times:.1f} times as long as those in fp32 here", file=sys.stderr)
    return slow


class Machine(Config):
    """What a figure depends on besides the code; nothing that names the machine."""

    date: str
    processor: str
    capability: str
    cores: int
    """Those this process may use."""
    threads: int
    memory_gb: float | None
    system: str
    python: str
    torch: str
    clearhead: str
    """Version and, in a checkout, commit; a + marks changes that are not committed."""
    environment: dict[str, str]
    load: float | None
    """Processes that wanted a core in the minute before the race: near 0 on a quiet machine."""

    @classmethod
    def now(cls, threads: int | None) -> Self:
        """This machine, at this moment."""
        is_linux = sys.platform == "linux"
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            processor=_first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
            capability=torch.backends.cpu.get_cpu_capability(),
            cores=len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1,
            threads=threads or torch.get_num_threads(),
            memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1) if is_linux else None,
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            torch=torch.__version__,
            clearhead=" ".join(filter(None, (clearhead.__version__, _commit()))),
            environment={name: value for name, value in sorted(os.environ.items()) if name.startswith(TUNING)},
            load=round(os.getloadavg()[0], 2) if is_linux else None,
        )

    def __str__(self) -> str:
        environment = "".join(f"; {name}={value}" for name, value in self.environment.items())
        return (
            f"{self.processor} ({self.capability}), {self.threads} thread{'s' * (self.threads != 1)} on"
            f" {self.cores} cores, {self.memory_gb} GB of memory, load average {self.load};"
            f" {self.system}, Python {self.python}, torch {self.torch}, clearhead {self.clearhead}{environment}."
        )


def _first(path: str, field: str) -> str:
    """The first `field : value` of a file of the system's, or nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _commit() -> str:
    """The commit of this checkout, or nothing where there is none."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain") else "")
    except OSError:
        return ""
