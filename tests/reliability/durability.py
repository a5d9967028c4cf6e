"""Runs that are cut, killed and damaged: each goes on as if nothing had been, or refuses what was not written so."""

import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from clearhead.recipe.places import METRICS
from clearhead.runs import Keeper, resume
from clearhead.storage import checkpoints
from clearhead.storage.manifest import CorruptCheckpoint, verify
from clearhead.training.events import Event
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.run import Run
from clearhead.training.train import train
from tests import processes
from tests.reliability import Counted
from tests.training.test_signals import goes_on, interrupt
from tests.training.tiny import begin, drive, finish, go_on, losses, new_run, state, task_of, write_recipe

ROOT = Path(__file__).resolve().parents[2]


def exact_resume(folder: Path) -> Counted:
    """20 cuts each of a translator and a language model, with and without dropout, of one batch an update and three."""
    tried = broken = 0
    for kind, dropout, accumulate in itertools.product(("translation", "lm"), (0.0, 0.2), (1, 3)):
        place, task = folder / f"{kind}-{dropout}-{accumulate}", task_of(kind)  # pyrefly: ignore
        settings: dict[str, Any] = {"steps": 21, "save_every": 1, "accumulate": accumulate, "dropout": dropout}
        whole = new_run(task, place, **settings)
        wanted = finish(whole)
        for cut in range(1, 21):
            again = go_on(task, place, at=cut, **settings)
            same = finish(again) == {step: loss for step, loss in wanted.items() if step > cut}
            broken += not (same and state(again) == state(whole))
            tried += 1
    return Counted(tried, broken, f"{tried} resumed runs: losses to the bit, weights and optimizer by SHA-256")


# One process that has read everything; a copy of it trains until it is killed, and the next goes on.
TRAINER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch, torch._dynamo
from clearhead.runs import resume
from tests.reliability.durability import follow, newest
from tests.training.test_signals import goes_on, interrupt
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
    said = f"{tried} kills, {inside} inside a write: {corrupt} corrupt checkpoints, {differing} of {len(wanted)} losses"
    said += " and last states differ"
    return Counted(tried, corrupt + differing + (inside < n // 2), said)


def _checkpoint(folder: Path) -> Path:
    """The newest checkpoint of a finished run."""
    drive(begin(write_recipe(folder), folder / "run"))
    found = checkpoints.latest(folder / "run")
    assert found is not None
    return found


def signals(folder: Path) -> Counted:
    """30 real signals in the middle of losses, evaluations and writes."""
    recipe, chance, n = write_recipe(folder), random.Random(11), 30
    run = begin(recipe, folder / "whole", ("training.accumulate", 2))
    whole = (recipe, losses(drive(run)), state(run), run)
    places = {"loss": 22, "evaluate": 2, "seal": 20, "save": 5}
    spots: list[tuple[str, int, float]] = [
        (place, number, float(chance.randrange(1, places[place] + 1)))
        for place, number in zip(chance.choices([*places], k=n), (signal.SIGINT, signal.SIGTERM) * n, strict=False)
    ]
    codes, broken = interrupt(recipe, folder, spots), 0
    for i, (code, (_, number, _)) in enumerate(zip(codes, spots, strict=True)):
        broken += code != 128 + number
        goes_on(folder / str(i), whole)
    return Counted(n, broken, f"{n} signals: saved and ended with 130 and 143, and each run went on to the bit")


def bit_flips(folder: Path) -> Counted:
    """1,000 flipped bits, in every file of a checkpoint."""
    newest_one = _checkpoint(folder)
    chance, broken, n = random.Random(7), 0, 1000
    paths = [path for path in sorted(newest_one.rglob("*")) if path.is_file()]
    for i in range(n):
        path = paths[i % len(paths)]
        content = path.read_bytes()
        flipped, place = bytearray(content), chance.randrange(len(content))
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        broken += not _refused(newest_one, path)
        if i % 100 == 0:  # And the one before is taken.
            older = checkpoints.latest(folder / "run")
            broken += older is None or older == newest_one
        path.write_bytes(content)
    verify(newest_one)
    said = f"{n:,} flips in {len(paths)} files: each refused, with its file; 10 times the one before was taken"
    return Counted(n, broken, said)


def damaged_files(folder: Path) -> Counted:
    """200 files cut, removed, added, exchanged."""
    place = _checkpoint(folder)
    chance, broken, n = random.Random(8), 0, 200
    paths = [path for path in sorted(place.iterdir()) if path.is_file()]
    for i in range(n):
        path = chance.choice(paths)
        kept = folder / "kept"
        shutil.copytree(place, kept)
        match i % 4:
            case 0:
                content = path.read_bytes()
                path.write_bytes(content[: chance.randrange(len(content))])
            case 1:
                path.unlink()
            case 2:
                path = place / f"extra-{i}.json"
                path.write_text("{}", encoding="utf-8")
            case _:
                path, other = chance.sample(paths, 2)
                spare = folder / "spare"
                path.rename(spare), other.rename(path), spare.rename(other)
        broken += not _refused(place)
        shutil.rmtree(place)
        kept.rename(place)
    verify(place)
    return Counted(n, broken, f"{n} files cut, gone, added or exchanged: all seen")


def _refused(place: Path, path: Path | None = None) -> bool:
    try:
        verify(place)
    except CorruptCheckpoint as error:
        return "\n" not in str(error) and (path is None or path.name in str(error))
    return False


def finished_runs(folder: Path) -> Counted:
    """A finished run resumed five times."""
    _checkpoint(folder)
    before = {path: path.read_bytes() for path in (folder / "run").glob("step-*/*")}
    broken = 0
    for _ in range(5):
        again = resume(folder / "run")[0]
        broken += bool(losses(drive(again)))
        broken += {path: path.read_bytes() for path in (folder / "run").glob("step-*/*")} != before
    return Counted(5, broken, "resumed 5 times: 0 updates more, every file the same" if not broken else "")


def pruning(folder: Path) -> Counted:
    """300 folders of checkpoints, some of them damaged, pruned at random."""
    chance, broken, n = random.Random(14), 0, 300
    for i in range(n):
        run = folder / str(i)
        steps = sorted(chance.sample(range(1, 40), chance.randrange(1, 7)))
        for step in steps:
            checkpoints.save(run, step, checkpoints.Checkpoint(raw={"a": bytes([step])}))
        damaged = chance.sample(steps, chance.randrange(len(steps)))
        for step in damaged:
            (checkpoints.place_of(run, step) / "a").write_bytes(b"")
        checkpoints.prune(
            run, keep_last=chance.randrange(1, 4), keep=chance.sample(steps, chance.randrange(len(steps)))
        )
        broken += checkpoints.latest(run) is None
        shutil.rmtree(run)
    return Counted(n, broken, f"{n} folders, up to all but one of their checkpoints damaged: one that verifies stayed")


def same_seed(folder: Path) -> Counted:
    """Two runs of 100 updates."""
    found: list[tuple[dict[int, str], dict[str, str]]] = []
    for name in ("a", "b"):
        recipe = write_recipe(_new(folder / name), steps=100, save_every=50)
        run = begin(recipe, folder / name / "run")
        wanted = losses(drive(run))
        last = checkpoints.latest(folder / name / "run")
        assert last is not None
        files = {p.name: p.read_bytes() for p in last.iterdir() if p.suffix == ".safetensors"}
        found.append((wanted, {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}))
    broken = sum(found[0][i] != found[1][i] for i in (0, 1))
    return Counted(2, broken, "100 losses to the bit, and the files of weights and optimizer byte for byte")


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
