"""What every test shares: one thread, one seed, no network, and the real data beside the checkout."""

import gc
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# Set before torch, tokenizers or the hub are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CLEARHEAD_PROBES", "")  # No test depends on what this machine found before.

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.shell import Folders, Shell

# Compiled modules are kept, also where the environment says otherwise: else each of the many processes that tests start
# would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing that is imported or collected is garbage, so that looking for some takes half of the time of collecting.
gc.disable()

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = "CLEARHEAD_SHARED_DATA"
LONGEST = ("test_ui.py", "test_pages.py", "test_checks.py", "test_processors.py", "test_ranks.py", "test_signals.py")
"""Files with a test of many seconds, the longest first: a process that begins one last would end alone."""
LOOPBACK = ("127.", "::1", "localhost")

# The same examples on every run, judged by what they compute and never by how long it took.
settings.register_profile("clearhead", deadline=None, derandomize=True, database=None, max_examples=20)
settings.register_profile("thorough", settings.get_profile("clearhead"), max_examples=500)
settings.load_profile("clearhead")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process begins with long tests; all others as they stand. What drives a browser gets a second try."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))
    n = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    rest = [item for item in items if item.path.name not in LONGEST]
    dealt = list[pytest.Item]()
    for k in range(n):  # Of what is left, process k is given the first 1 / (n - k).
        own = [item for name in LONGEST[k::n] for item in items if item.path.name == name]
        fill = max(0, (len(items) - len(dealt)) // (n - k) - len(own))
        dealt += [*own, *rest[:fill]]
        rest = rest[fill:]
    items[:] = [*dealt, *rest]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Garbage is looked for among what the tests make, not among all that they are made of."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same random numbers and one thread for every test; torch is not imported for its sake."""
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(0)
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> None:
    """A connection to anywhere but this machine fails at once."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: tuple[object, ...] | str | bytes, /) -> None:
        is_remote = isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK)
        if is_remote:
            raise AssertionError(f"a test may not reach the network: {address}")
        connect(self, address)

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: $CLEARHEAD_SHARED_DATA, else ../shared/data; skips where there is none."""
    folder = Path(os.environ.get(SHARED_DATA) or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: set {SHARED_DATA} to its folder")
    return folder


@pytest.fixture
def shell(capsys) -> "Shell":
    """Runs commands in this process."""
    from tests.shell import Shell

    return Shell(capsys)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> "Folders":
    """Folders with models, by name."""
    from tests.shell import Folders

    return Folders(tmp_path_factory.mktemp("models"))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch) -> Path:
    """The working directory: an empty folder, on a disk that nobody waits for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return tmp_path
