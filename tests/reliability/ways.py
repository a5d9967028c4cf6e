"""Surroundings of a command, each made in the process that it runs in."""

import os
import pwd
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tests import processes
from tests.reliability.copies import mounted


def nothing() -> None:
    """As it is."""


@dataclass(frozen=True)
class Way:
    """One surrounding."""

    name: str
    prepare: Callable[[], None] = nothing
    """Makes it, in the process of the command and its folder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    codes: Sequence[int] = (0,)
    """How a command may end: 2 is one line about a mistake, 141 says that the reader has left."""
    says: bool = True
    """Whether what it says can be read."""
    starts: bool = False
    """Whether Python has to start for it."""
    columns: int = 0
    """Columns of a terminal, if there is one."""


def closed(*numbers: int) -> Callable[[], None]:
    """Without these streams."""

    def prepare() -> None:
        for number in numbers:
            os.close(number)

    return prepare


def onto(path: str, *numbers: int) -> Callable[[], None]:
    """These streams from or to a file."""

    def prepare() -> None:
        opened = os.open(path, os.O_WRONLY if 0 not in numbers else os.O_RDONLY)
        for number in numbers:
            os.dup2(opened, number)
        os.close(opened)

    return prepare


def read_until(n_bytes: int, *numbers: int) -> Callable[[], None]:
    """These streams to a reader that leaves after so many bytes."""

    def prepare() -> None:
        read, write = os.pipe()
        if n_bytes and processes.copied() == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(write)
            for number in numbers:
                os.close(number)
            os.read(read, n_bytes)
            os._exit(0)
        os.close(read)
        for number in numbers:
            os.dup2(write, number)
        os.close(write)

    return prepare


def without(*names: str) -> Callable[[], None]:
    """Without these variables."""

    def prepare() -> None:
        for name in names:
            os.environ.pop(name, None)

    return prepare


def gone() -> None:
    """In a folder that was removed."""
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()


def nobody() -> None:
    """As a user of whom the system knows neither name nor home."""

    def unknown(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        os.environ.pop(name, None)
    pwd.getpwuid = unknown


def limited(kind: int, most: int) -> Callable[[], None]:
    """With a limit."""

    def prepare() -> None:
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))

    return prepare


def read_only_home() -> None:
    """With a home in which nothing can be written."""
    home = Path("home").absolute()
    home.mkdir()
    os.environ.update({"HOME": str(home), "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""})
    mounted(str(home))


def read_only_here() -> None:
    """In a folder in which nothing can be written, but for those of other names."""
    here = Path("here").absolute()
    here.mkdir()
    mounted(str(here))
    os.chdir(here)


def full_temporary() -> None:
    """With a temporary folder of one page."""
    place = Path("temporary").absolute()
    place.mkdir()
    mounted(str(place), kind="tmpfs", options="size=4k")
    os.environ["TMPDIR"] = str(place)


READER = (0, 141)
HOMELESS = {"XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
ALL_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
WAYS = (
    Way("as wished"),
    Way("no standard input", closed(0)),
    Way("no standard output", closed(1)),
    Way("no standard error", closed(2), says=False),
    Way("no standard stream", closed(0, 1, 2), says=False),
    Way("rubbish as standard input", onto("/proc/self/exe", 0), codes=(0, 2)),
    Way("a full standard output", onto("/dev/full", 1), codes=(0, 2)),
    Way("a full standard error", onto("/dev/full", 2), says=False),
    Way("two full streams", onto("/dev/full", 1, 2), codes=(0, 2), says=False),
    Way("a reader that takes a byte", read_until(1, 1), codes=READER),
    Way("a reader that never was", read_until(0, 1), codes=READER),
    Way("readers that never were", read_until(0, 1, 2), codes=READER, says=False),
    Way("a terminal of 20 columns", columns=20, says=False),
    Way("a terminal of one column", columns=1, says=False),
    Way("20 columns", variables={"COLUMNS": "20"}),
    Way("no TERM", without("TERM", "COLUMNS")),
    Way("a folder that was removed", gone, codes=(0, 2)),
    Way("no /dev/shm", lambda: mounted("/dev/shm", kind="tmpfs", options="ro,size=4k")),
    Way("a read-only home", read_only_home),
    Way("a home that is a file", variables={"HOME": "/dev/null", **HOMELESS}),
    Way("no home", without("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")),
    Way("a user without a name", nobody, HOMELESS),
    Way("a read-only folder", read_only_here),
    Way("no temporary folder", variables={"TMPDIR": "/nowhere"}),
    Way("a full temporary folder", full_temporary, codes=(0, 2)),
    Way("few open files", limited(resource.RLIMIT_NOFILE, 48), codes=(0, 2)),
    Way("files of at most 4 kB", limited(resource.RLIMIT_FSIZE, 4096), codes=(0, 2)),
    Way("the C locale", variables={"LC_ALL": "C"}, starts=True),
    Way("ASCII alone", variables=ALL_ASCII, starts=True),
    Way("a locale that is not there", variables={"LC_ALL": "xx_YY.nothing"}, starts=True),
    Way("no docstrings", variables={"PYTHONOPTIMIZE": "2"}, starts=True),
    Way("rubbish in variables", variables={"OMP_NUM_THREADS": "many", "TZ": "rubbish", "LANG": "\udcff"}, starts=True),
    Way("no stream at the start", closed(0, 1, 2), says=False, starts=True),
)
