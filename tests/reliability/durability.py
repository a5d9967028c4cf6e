"""Runs that are killed: each goes on as if nothing had been."""

import json
import os
import sys
from pathlib import Path

from clearhead.recipe.places import METRICS
from clearhead.runs import Keeper, resume
from clearhead.training.events import Event
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.run import Run
from clearhead.training.train import train
from tests import processes
from tests.reliability import Counted
from tests.training.tiny import begin, drive, losses, state, write_recipe

ROOT = Path(__file__).resolve().parents[2]


# One process that has read everything; a copy of it trains until it is killed, and the next goes on.
TRAINER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch, torch._dynamo
from clearhead.runs import resume
from tests.reliability.durability import follow, newest
from tests.training.tiny import begin
torch.set_num_threads(1)
recipe, folder, n = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
chance, inside = random.Random(0), 0
for trial in range(n):
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        follow(resume(folder)[0] if newest(folder) else begin(recipe, folder))
        os._exit(0)
    before, limit = newest(folder), time.monotonic() + 60
    while newest(folder) == before and time.monotonic() < limit and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.02))
    while trial % 4 and not any(folder.glob(".tmp-*")) and time.monotonic() < limit:
        pass
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        break
    inside += any(folder.glob(".tmp-*"))
print(json.dumps([trial + 1, inside]))
"""


def follow(run: Run) -> dict[int, str]:
    """The losses of a run that is kept and logged as `clearhead train` does."""
    assert run.folder is not None
    keeper, log, found = Keeper(run), MetricsLog(run.folder), list[Event]()
    for event in train(run):
        keeper(event)
        log(event)
        found.append(event)
    return losses(found)


def newest(folder: Path) -> str:
    """The name of the newest checkpoint; empty if there is none."""
    return max((path.name for path in folder.glob("step-*")), default="")


def kills(folder: Path) -> Counted:
    """50 kills of a training process, three of four aimed at a write."""
    return _killed(folder, 50, {})


def kills_on_two_disks(folder: Path) -> Counted:
    """8 kills inside a write, with the system's temporary folder on another file system."""
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == folder.stat().st_dev:
        return Counted(1, 1, "no second file system was found")
    return _killed(folder, 8, {"TMPDIR": str(elsewhere)})


def _killed(folder: Path, n: int, environment: dict[str, str]) -> Counted:
    recipe = write_recipe(folder, steps=400, save_every=1, evaluate_every=400)
    whole = begin(recipe, folder / "whole")
    wanted = losses(drive(whole))
    run = folder / "run"
    command = [sys.executable, "-c", TRAINER, str(recipe), str(run), str(n)]
    inherited = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    done = processes.run(command, cwd=ROOT, env=inherited, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr)
    tried, inside = json.loads(done.stdout)
    corrupt = len(list(run.glob(".bad-*")))
    again = resume(run)[0]
    follow(again)
    lines = map(json.loads, (run / METRICS).read_text(encoding="utf-8").splitlines())
    logged = {line["step"]: float(line["loss"]).hex() for line in lines if line["kind"] == "stepped"}
    differing = sum(logged.get(step) != loss for step, loss in wanted.items()) + (state(again) != state(whole))
    said = f"after {tried} kills, {inside} of them during a write, {corrupt} checkpoints were corrupt. Of the"
    said += f" {len(wanted)} losses and the last state, {differing} differed from those of an uninterrupted run"
    return Counted(tried, corrupt + differing + (inside < n // 2), said)
