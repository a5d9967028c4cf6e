"""Whatever happens while one is written, the old or the new checkpoint loads afterwards, nothing else."""

import errno
import logging
import os
import resource
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.storage import checkpoints, manifest
from clearhead.storage.checkpoints import Checkpoint, clean, latest, load, prune, save, step_of
from tests import processes


class Kill(BaseException):
    """The process ends here: nothing it would do later happens."""


def files(step: int) -> Checkpoint:
    fill = torch.Generator().manual_seed(step)
    return Checkpoint(
        tensors={
            "model.safetensors": {"w": torch.randn(40, 30, generator=fill), "n": torch.tensor(step)},
            "optimizer.safetensors": {"adamw.w.exp_avg": torch.randn(40, 30, generator=fill)},
        },
        json={"train.json": {"step": step}},
        raw={"tokenizer.json": b"\x00\xff %d" % step},
    )


def is_of(folder: Path, step: int) -> bool:
    found, wanted = load(folder), files(step)
    return (
        step_of(folder) == step
        and found.json == wanted.json
        and found.raw == wanted.raw
        and all(torch.equal(t, found.tensors[name][n]) for name, ts in wanted.tensors.items() for n, t in ts.items())
    )


# --- round trip


def test_everything_comes_back(tmp_path):
    base = torch.randn(6, 8)
    tensors = {
        "bf16": torch.randn(3).bfloat16(),
        "int": torch.arange(4),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "nan": torch.tensor([float("nan"), float("inf")]),
        "transposed": base.T,
        "base": base,
        "same": base,
        "part": base[2:4],
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }
    document: JsonObject = {"a": [1, 2.5, None, True, {"b": "ü"}]}
    folder = save(
        tmp_path / "new" / "run", 7, Checkpoint({"model.safetensors": tensors}, {"c.json": document}, {"r": b"\0"})
    )
    assert folder == tmp_path / "new" / "run" / "step-00000007"
    found = load(folder)
    assert found.json == {"c.json": document}
    assert found.raw == {"r": b"\0"}
    assert found.tensors["model.safetensors"].keys() == tensors.keys()
    for name, tensor in found.tensors["model.safetensors"].items():
        assert tensor.dtype == tensors[name].dtype
        torch.testing.assert_close(tensor, tensors[name].detach(), rtol=0, atol=0, equal_nan=True)
    assert base[0, 0] == tensors["base"][0, 0]


def test_equal_contents_are_equal_bytes(tmp_path):
    a, b = save(tmp_path / "a", 1, files(1)), save(tmp_path / "b", 1, files(1))
    assert {p.name: p.read_bytes() for p in a.iterdir()} == {p.name: p.read_bytes() for p in b.iterdir()}


def test_nothing_is_overwritten(tmp_path):
    folder = save(tmp_path, 1, files(1))
    with pytest.raises(UserError, match="expected nothing there"):
        save(tmp_path, 1, files(2))
    assert is_of(folder, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_all_is_on_the_disk_before_the_folder_has_its_name(tmp_path, monkeypatch):
    synced, rename = set(), os.rename
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))

    def renamed(old, new):
        there = [path for path in Path(old).rglob("*") if path.is_file()]
        assert "MANIFEST.json" in {path.name for path in there}
        assert {path.name for path in (*there, Path(old)) if path.stat().st_ino not in synced} == set()
        rename(old, new)

    monkeypatch.setattr(os, "rename", renamed)
    assert save(tmp_path, 1, files(1)).parent.stat().st_ino in synced


@pytest.mark.parametrize("name", ["../x", "a//b", "a/.b", "/a", "MANIFEST.json", ".x", ""])
def test_a_file_name_that_is_no_plain_name_is_our_bug(tmp_path, name):
    with pytest.raises(ValueError, match="plain"):
        save(tmp_path, 1, Checkpoint(raw={name: b""}))


# --- failures at every step of a write


class Failpoint:
    """Raises `strike` at the n-th operation by which `save` changes the disk, before or after it."""

    def __init__(self, monkeypatch, n, strike, *, after):
        self.seen, self.n, self.strike, self.after = 0, n, strike, after
        for owner, name in (
            (os, "fsync"),
            (os, "rename"),
            (checkpoints, "save_file"),
            (checkpoints, "write"),
            (Path, "mkdir"),
        ):
            monkeypatch.setattr(owner, name, self.wrap(getattr(owner, name)))

    @property
    def reached(self):
        return self.seen > self.n

    def wrap(self, operation):
        def run(*args, **kwargs):
            self.seen += 1
            if self.seen - 1 != self.n:
                return operation(*args, **kwargs)
            if self.after:
                operation(*args, **kwargs)
            raise self.strike

        return run


def strike_everywhere(tmp_path, strike, check, *, after, before_each=None):
    """`check(run_folder)` after `strike` hit the saving of step 2 at its first, second, ... operation."""
    for n in range(100):
        run = tmp_path / str(n)
        save(run, 1, files(1))
        caught: BaseException | None = None
        with pytest.MonkeyPatch.context() as patch:
            failpoint = Failpoint(patch, n, strike, after=after)
            if before_each:
                before_each(patch)
            try:
                save(run, 2, files(2))
            except (UserError, Kill) as error:
                caught = error
        if not failpoint.reached:
            assert n >= 14  # a folder, 4 files, the manifest; each synced; the folders; the rename
            return
        check(run, caught)
    raise AssertionError("the failpoints never ended")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_failing_disk_is_one_line_and_leaves_the_old_checkpoint(tmp_path, code, after):
    def check(run, error):
        assert isinstance(error, UserError)
        assert os.strerror(code) in str(error)
        assert "; try " in str(error)
        assert not list(run.glob(".tmp*"))
        found = latest(run)
        assert found is not None
        assert is_of(found, 1) or is_of(found, 2)
        if step_of(found) == 1:
            assert is_of(save(run, 2, files(2)), 2)  # and once the disk is well, all is well

    strike_everywhere(tmp_path, OSError(code, os.strerror(code)), check, after=after)


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_anywhere_leaves_the_old_or_the_new_checkpoint(tmp_path, after, caplog):
    outcomes = set()

    def check(run, error):
        found = latest(run)
        assert found is not None
        assert is_of(found, step_of(found))
        outcomes.add(step_of(found))
        clean(run)
        assert not list(run.glob(".*"))
        if step_of(found) == 1:
            assert is_of(save(run, 2, files(2)), 2)

    # A dead process does not clean up.
    strike_everywhere(
        tmp_path,
        Kill(),
        check,
        after=after,
        before_each=lambda p: p.setattr(checkpoints, "discard", lambda f: None),
    )
    assert outcomes == {1, 2}
    assert not caplog.records  # nothing half-written ever bore a checkpoint's name


def test_an_interrupt_cleans_up(tmp_path):
    def check(run, error):
        assert not list(run.glob(".tmp*"))

    strike_everywhere(tmp_path, Kill(), check, after=False)


def test_the_systems_own_refusal_inside_safetensors_is_one_line(tmp_path):
    save(tmp_path, 1, files(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(UserError, match="got File too large; try raising the file-size limit"):
            save(tmp_path, 2, files(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_too_little_space_is_seen_before_a_byte_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    size = 2 * 40 * 30 * 4
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, int(1.1 * size)))
    with pytest.raises(UserError, match="free for a checkpoint"):
        save(tmp_path, 1, files(1))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, int(1.3 * size)))
    assert is_of(save(tmp_path, 1, files(1)), 1)


def test_a_run_folder_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="expected to write it"):
        save(tmp_path / "run", 1, files(1))


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from test_checkpoints import files, is_of
from clearhead.storage.checkpoints import clean, latest, prune, save, step_of
os.fsync = lambda descriptor: None  # a killed process loses nothing it has written
run, choose, inside = Path(sys.argv[2]), random.Random(3), 0
save(run, 1, files(1))
for trial in range(15):
    child = os.fork()
    if child == 0:
        for step in range(step_of(latest(run)) + 1, 10**6):
            save(run, step, files(step))
            prune(run, keep_last=2)
    time.sleep(choose.uniform(0.01, 0.08))
    give_up = time.monotonic() + 5
    while trial % 3 and not any(run.glob(".tmp-*")) and time.monotonic() < give_up:
        pass  # two in three aim at a write
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    inside += any(run.glob(".tmp-*"))
    found = latest(run)
    assert found is not None and is_of(found, step_of(found)), found
    assert not list(run.glob(".bad*"))
    clean(run)
    assert not list(run.glob(".tmp-*"))
print(inside, step_of(latest(run)))
"""


def test_real_kills_never_leave_a_corrupt_checkpoint(tmp_path):
    done = processes.run(
        [sys.executable, "-c", KILLER, str(Path(__file__).parent), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    inside, step = map(int, done.stdout.split())
    assert inside >= 1
    assert step > 3


# --- finding, pruning, averaging


def test_latest_is_the_newest_that_verifies_and_sets_the_bad_aside(tmp_path, caplog):
    assert latest(tmp_path / "none") is None
    assert latest(tmp_path) is None
    for step in (1, 2, 30, 100_000_000):
        save(tmp_path, step, files(step))
    (tmp_path / "step-100000000" / "model.safetensors").unlink()
    with (tmp_path / "step-00000030" / "train.json").open("ab") as file:
        file.write(b" ")
    with caplog.at_level(logging.WARNING, logger="clearhead"):
        assert latest(tmp_path) == tmp_path / "step-00000002"
    assert len(caplog.messages) == 2
    assert not list(tmp_path.glob(".bad-step-*")), "a reader changes nothing"
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="clearhead"):
        found = latest(tmp_path, set_aside=True)
    assert found == tmp_path / "step-00000002"
    assert len(caplog.messages) == 2
    assert "step-100000000/model.safetensors: expected to read it, got No such file" in caplog.messages[0]
    assert "step-00000030/train.json: expected 16 bytes, got 17" in caplog.messages[1]
    assert len(list(tmp_path.glob(".bad-step-*"))) == 2
    caplog.clear()
    assert latest(tmp_path) == found
    assert not caplog.messages


def test_latest_refuses_a_newer_format_and_leaves_it(tmp_path, monkeypatch):
    save(tmp_path, 1, files(1))
    monkeypatch.setattr(manifest, "FORMAT", 2)
    newer = save(tmp_path, 2, files(2))
    monkeypatch.setattr(manifest, "FORMAT", 1)
    with pytest.raises(UserError, match="try a newer version"):
        latest(tmp_path)
    assert newer.is_dir()


def test_latest_goes_on_when_the_bad_cannot_be_set_aside(tmp_path, monkeypatch, caplog):
    save(tmp_path, 1, files(1))
    (save(tmp_path, 2, files(2)) / "train.json").unlink()

    def deny(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", deny)
    assert latest(tmp_path, set_aside=True) == tmp_path / "step-00000001"
    assert "not set aside: Read-only file system" in caplog.text


def steps(run):
    return sorted(step_of(p) for p in run.glob("step-*"))


def test_prune_keeps_the_last_and_the_named(tmp_path):
    for step in range(1, 11):
        save(tmp_path, step, files(step))
    removed = prune(tmp_path, keep_last=2, keep={3, 4, 8})
    assert steps(tmp_path) == [3, 4, 8, 9, 10]
    assert sorted(step_of(p) for p in removed) == [1, 2, 5, 6, 7]
    assert not list(tmp_path.glob(".*"))
    assert prune(tmp_path, keep_last=2, keep={3, 4, 8}) == []


def test_prune_always_leaves_one_that_verifies(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step, files(step))
    for step in (3, 4, 5):
        (tmp_path / f"step-0000000{step}" / "train.json").unlink()
    prune(tmp_path, keep_last=1, keep={4})
    assert steps(tmp_path) == [2, 4, 5]
    (tmp_path / "step-00000002" / "train.json").unlink()
    assert prune(tmp_path, keep_last=1) == []
    with pytest.raises(ValueError, match="keep_last=0"):
        prune(tmp_path, keep_last=0)


def test_another_folder_has_no_step(tmp_path):
    with pytest.raises(UserError, match="named step-00000100"):
        step_of(tmp_path / "best")
