"""Saving during a run: in one file or in one file per process, at once or in the background.

The file of a process holds its share of the tensors, each whole. Any number of processes can read them, and so can
everything that reads `model.safetensors.index.json`.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from torch import Tensor

from clearhead.errors import NumericError
from clearhead.json_text import JsonObject
from clearhead.storage import checkpoints
from clearhead.storage.checkpoints import Checkpoint, make_room
from clearhead.storage.disk import size_of, temporary_name
from clearhead.storage.manifest import Entry
from clearhead.training.events import Saved
from clearhead.training.ranks import Ranks
from clearhead.training.run_folder import lock_folder
from clearhead.training.sharding import whole

_log = logging.getLogger("clearhead")


class Saver(AbstractContextManager["Saver"]):
    """Writes the checkpoints of one run, one at a time. With `shared`, every process writes its share."""

    def __init__(self, run_folder: Path | None, ranks: Ranks, step: int, *, shared: bool, in_background: bool) -> None:
        self.run_folder, self.ranks, self.shared, self.in_background = run_folder, ranks, shared, in_background
        self.step = step
        self._temporary = Path()
        self._writing: Future[dict[str, Entry]] | None = None

    @property
    def is_done(self) -> bool:
        """True if this process has written its share of a checkpoint that is still to be sealed."""
        return self._writing is not None and self._writing.done()

    def save(self, step: int, files: Checkpoint, *, best: int | None = None) -> Iterator[Saved]:
        """Begin a checkpoint once the previous one is sealed; yields an event for each that is on the disk.

        On a full disk older checkpoints make room, but the newest one and that of the step `best` stay. Raises
        UserError in all processes if one of them cannot write, as `checkpoints.write_folder` does.
        """
        assert self.run_folder is not None
        yield from self.finish()
        place, n_bytes = checkpoints.place_of(self.run_folder, step), files.n_bytes
        self.step, self._temporary = step, place.parent / self.ranks.first(temporary_name(place))
        self.ranks.together(lambda: self._open(place, n_bytes, best))
        mine = share(files, self.ranks) if self.shared else files if self.ranks.is_first else Checkpoint()
        if self.in_background and not self.shared:  # A share is a copy already.
            mine = copied(mine)
        pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing = pool.submit(checkpoints.fill_folder, self._temporary, place, mine)
        pool.shutdown(wait=False)
        if not self.in_background:
            yield from self.finish()

    def finish(self, *, now: bool = True) -> Iterator[Saved]:
        """Wait for every share of a checkpoint that is being written, and seal it. Does nothing unless `now`."""
        if not now or self._writing is None or self.run_folder is None:
            return
        writing, self._writing = self._writing, None
        place = checkpoints.place_of(self.run_folder, self.step)
        try:
            shares = self.ranks.everyone(self.ranks.together(writing.result))
            entries = {name: entry for one in shares for name, entry in one.items()}
            self.ranks.together(lambda: self._seal(place, entries))
        except BaseException:
            checkpoints.discard(self._temporary)
            raise
        yield Saved(self.step, place)

    def _open(self, place: Path, n_bytes: int, best: int | None) -> None:
        if self.ranks.is_first:
            for path in make_room(place.parent, n_bytes, keep=[] if best is None else [best]):
                _log.warning("%s: removed, to make room for %s", path, place.name)
            try:
                checkpoints.open_folder(self._temporary, place, n_bytes)
            except BaseException:
                checkpoints.discard(self._temporary)
                raise

    def _seal(self, place: Path, entries: Mapping[str, Entry]) -> None:
        if self.ranks.is_first:
            checkpoints.close_folder(self._temporary, place, entries, step=self.step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writing is None:
            return
        if self.ranks.size == 1 or kind is NumericError:
            list(self.finish())  # This checkpoint is good even if an error ended the run.
        else:
            self._writing.exception()
            checkpoints.discard(self._temporary)


def copied(files: Checkpoint) -> Checkpoint:
    """A copy of the files' tensors on the CPU, which training does not change."""
    tensors = {
        file: {name: tensor.detach().to("cpu", copy=True) for name, tensor in named.items()}
        for file, named in files.tensors.items()
    }
    return Checkpoint(tensors, files.json, files.raw)


def share(files: Checkpoint, ranks: Ranks) -> Checkpoint:
    """This process's files of a checkpoint: tensors dealt out by size, and in the first process the small files."""
    tensors: dict[str, dict[str, Tensor]] = {}
    indexes: dict[str, JsonObject] = {}
    for file, named in files.tensors.items():
        n_files = min(ranks.size, len(named))
        names = [
            f"{file.removesuffix('.safetensors')}-{i + 1:05d}-of-{n_files:05d}.safetensors" for i in range(n_files)
        ]
        owners = dealt({name: size_of(tensor) for name, tensor in named.items()}, n_files)
        mine: dict[str, Tensor] = {}
        for name, tensor in named.items():
            full = whole(tensor.detach())
            if owners[name] == ranks.rank:
                mine[name] = full.to("cpu", copy=True)
        if ranks.rank < n_files:
            tensors[names[ranks.rank]] = mine
        total = sum(map(size_of, named.values()))
        indexes[file + checkpoints.INDEX] = {
            "metadata": {"total_size": total},
            "weight_map": {name: names[owner] for name, owner in owners.items()},
        }
    return Checkpoint(tensors, {**files.json, **indexes}, files.raw) if ranks.is_first else Checkpoint(tensors)


def dealt(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """The number of the process that takes each tensor: the largest first, each to the least loaded of n processes."""
    loads = [0] * n
    owners: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        owner = min(range(n), key=lambda i: (loads[i], i))
        owners[name], loads[owner] = owner, loads[owner] + max(1, sizes[name])
    return owners


def newest_checkpoint(folder: Path, ranks: Ranks) -> Path | None:
    """The newest checkpoint that verifies. Removes what killed writers left, and sets bad checkpoints aside.

    The first process looks for all processes. Raises UserError if another run writes to the folder.
    """

    def look() -> Path | None:
        with lock_folder(folder) as is_locked:
            if is_locked:  # Without the lock, an unfinished checkpoint may belong to a living writer.
                checkpoints.clean(folder)
            return checkpoints.latest(folder, set_aside=True)

    return ranks.first(ranks.together(lambda: look() if ranks.is_first and folder.is_dir() else None))
