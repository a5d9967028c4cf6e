"""Power cuts while a checkpoint is written."""

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.storage import checkpoints
from tests.reliability import Counted


def cuts(folder: Path) -> Counted:
    """200 states of a disk after a power cut while a checkpoint was written.

    What was not synced may be there, in part or not at all, in any order: contents of files, names in folders, the
    last renaming.
    """
    chance, broken, n, outcomes = random.Random(4), 0, 200, [0, 0]
    for i in range(n):
        run = folder / str(i)
        checkpoints.save(run, 1, _files(1))
        seen = _Disk(chance, stop=chance.randrange(1, 28))
        with seen, suppress(_Cut):
            checkpoints.save(run, 2, _files(2))
        seen.lose()
        found = checkpoints.latest(run)
        step = 0 if found is None else checkpoints.step_of(found)
        whole = found is not None and _is_of(found, step)
        broken += not whole or (seen.returned and step != 2)
        outcomes[step - 1] += whole
        if whole and step == 1:
            checkpoints.clean(run)
            if checkpoints.place_of(run, 2).exists():
                shutil.rmtree(checkpoints.place_of(run, 2))
            broken += not _is_of(checkpoints.save(run, 2, _files(2)), 2)
        shutil.rmtree(run)
    said = f"of {n} simulated disks, {outcomes[0]} continued from the old checkpoint and {outcomes[1]} from the new one"
    return Counted(n, broken, said)


def _files(step: int) -> checkpoints.Checkpoint:
    tensors = {"model.safetensors": {"w": torch.full((40, 30), float(step))}}
    return checkpoints.Checkpoint(tensors=tensors, json={"train.json": {"step": step}}, raw={"t": b"%d" % step * 5000})


def _is_of(place: Path, step: int) -> bool:
    files = checkpoints.load(place)
    return bool((files.tensors["model.safetensors"]["w"] == step).all()) and files.json["train.json"]["step"] == step


class _Cut(BaseException):
    """The power goes."""


class _Disk:
    """Watches what is synced, cuts the power at an operation, and then loses what was not synced."""

    def __init__(self, chance: random.Random, *, stop: int) -> None:
        self.chance, self.stop, self.n, self.returned = chance, stop, 0, False
        self.written: dict[Path, bool] = {}  # Whether the content is on the disk.
        self.renamed: list[tuple[Path, Path]] = []  # Of which the folder was not synced since.
        self.folders: dict[Path, bool] = {}  # Whether a new folder's names are.

    def __enter__(self) -> "_Disk":
        self.patch = pytest.MonkeyPatch()
        real = {"fsync": os.fsync, "rename": os.rename, "save": checkpoints.save_file, "write": checkpoints.write}

        def fsync(descriptor: int) -> None:
            self.tick()
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_dir():
                self.folders[path] = True
                self.renamed = [pair for pair in self.renamed if pair[1].parent != path]
            else:
                self.written[path] = True
            real["fsync"](descriptor)

        def rename(a: Path, b: Path) -> None:
            self.tick()
            real["rename"](a, b)
            self.renamed.append((Path(a), Path(b)))
            for kept in (self.written, self.folders):
                for path in [path for path in kept if path.is_relative_to(a)]:
                    kept[Path(b) / path.relative_to(a)] = kept.pop(path)

        def writer(name: str) -> Any:
            def write(*arguments: Any, **options: Any) -> None:
                self.tick()
                path = next(Path(one) for one in arguments if isinstance(one, str | Path))
                real[name](*arguments, **options)
                self.written[path.resolve()] = self.folders[path.resolve().parent] = False

            return write

        self.patch.setattr(os, "fsync", fsync)
        self.patch.setattr(os, "rename", rename)
        self.patch.setattr(checkpoints, "save_file", writer("save"))
        self.patch.setattr(checkpoints, "write", writer("write"))
        self.patch.setattr(checkpoints, "discard", lambda _: None)
        return self

    def __exit__(self, kind: object, *_: object) -> bool:
        self.patch.undo()
        self.returned = kind is None and self.n < self.stop
        return False

    def tick(self) -> None:
        self.n += 1
        if self.n >= self.stop:
            raise _Cut

    def lose(self) -> None:
        """What a disk may have after the cut."""
        for path, synced in self.written.items():
            if synced and not self.folders[path.parent] and self.chance.random() < 0.3:
                path.unlink()  # Its content is there, and no folder names it.
            if synced or not path.exists():
                continue
            content = path.read_bytes()
            match self.chance.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(content[: self.chance.randrange(len(content) + 1)])
                case 2:
                    path.write_bytes(bytes(len(content)))
                case _:
                    pass
        for before, after in reversed(self.renamed):
            if self.chance.random() < 0.5:
                after.rename(before)
