"""The folder of a run while one command or one program writes to it, and what is recorded there."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT

from clearhead.errors import Interrupted, pasted
from clearhead.runs import Keeper, Prepared, keep_floors, note_data_report
from clearhead.training.events import Event, Started
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.ranks import Ranks
from clearhead.training.run import Run
from clearhead.training.run_folder import is_free, is_run, lock_folder, require_new, undo
from clearhead.training.train import train


def record(run: Run, prepared: Prepared, folder: Path) -> Iterator[Event]:
    """Trains a run, and yields each event once the folder records it."""
    consumers = (MetricsLog(folder), Keeper(run)) if run.ranks.is_first else ()
    for event in train(run):
        for consume in consumers:
            consume(event)
        if isinstance(event, Started) and run.ranks.is_first:
            note_data_report(folder, prepared)
            keep_floors(folder, prepared)
        yield event


@contextmanager
def written_by(ranks: Ranks, folder: Path, *, is_ours: bool = False) -> Iterator[None]:
    """Holds a run's folder. A run that cannot begin leaves the folder empty; Ctrl-C leaves what `resume` needs.

    `is_ours` says that this command has made the folder.
    """
    ranks.together(lambda: None if is_run(folder) else require_new(folder))  # Before a lock is written.
    with lock_folder(folder, ranks):
        is_new = is_free(folder)
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not is_free(folder):
                raise Interrupted(f"stopped; go on with: clearhead resume {pasted(folder)}", SIGINT) from None
            if is_new and ranks.is_first and not isinstance(error, Interrupted):
                undo(folder, is_ours=is_ours)
            raise


def next_folder(parent: Path, name: str) -> Path:
    """Creates a folder parent/name-N with the first free N, so that no other command takes it."""
    parent.mkdir(parents=True, exist_ok=True)
    for i in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{name}-{i}").mkdir()
            return folder
    raise AssertionError("a number is free")
