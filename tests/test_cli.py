import errno
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch

from clearhead.cli.commands import application
from clearhead.errors import UserError
from clearhead.storage import checkpoints
from clearhead.tasks.translation import Translation
from tests import processes
from tests.conftest import ROOT
from tests.shell import Folders, Said, Shell
from tests.training.tiny import write_recipe

Give = Callable[[bytes], None]
COMMANDS = (
    *("demo", "train", "resume", "watch", "recipes", "curve", "translate", "generate", "explore", "serve"),
    *("evaluate", "compare", "wrong-labels", "summary", "check", "export", "push", "plan", "profile"),
)


@pytest.fixture(autouse=True)
def _here(empty_folder: Path) -> Iterator[None]:
    """In an empty folder, and with the signal handlers as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def run_python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return processes.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)


# --- help and usage ----------------------------------------------------------------------------------------------


def test_help_needs_no_torch():
    code = "import sys; from clearhead.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    ("variables", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, None)]
)
def test_waiting_threads_soon_sleep(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], spins: str | None):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = "import os, sys; sys.argv[1:] = ['help', 'plan']; from clearhead.cli import main; main()"
    done = run_python(f"{code}; print(os.environ.get('GOMP_SPINCOUNT'))")
    assert done.stdout.splitlines()[-1] == str(spins)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(shell: Shell, command: str):
    said = shell(command, "--help")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 110
    function = application(command)[command].default_command
    parameters = inspect.signature(function).parameters  # pyrefly: ignore[bad-argument-type]
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    for name, one in parameters.items():  # What several commands share is described in clearhead/cli/options.py.
        if any(getattr(more, "help", None) for more in getattr(one.annotation, "__metadata__", ())):
            documented.append(name)
    assert sorted(documented) == sorted(parameters)
    assert re.search(r"--\S+( [A-Z]+)?(\.\.\.)?  +\S", said.out)


def test_version(shell: Shell):
    from clearhead.version import __version__

    assert shell("--version") == (0, f"{__version__}\n", "")


def test_debug_shows_where(shell: Shell):
    said = shell("summary", "--debug", "gpt3")
    assert said.code == 2
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("error: preset: expected")
    assert "Traceback" not in shell("translate", ".", "--", "--debug").err, "after -- it is a text"


def test_a_bug_of_ours_is_not_hidden(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("clearhead.model.summary.summarize", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        shell("summary", "gpt2")


# --- train -------------------------------------------------------------------------------------------------------


def test_train_translate_evaluate(shell: Shell, tmp_path: Path):
    recipe = write_recipe(tmp_path)
    said = shell.done("train", recipe, "--training.clip=0.5", "--steps", 4, "--seed", 3, "--json")
    figures = said.json
    assert figures["steps"] == 4
    assert {"bleu", "chrf", "exact_match", "perplexity", "seconds", "best_step"} <= figures.keys()
    assert max(map(len, said.err.splitlines())) <= 110
    assert 'use it: clearhead translate runs/tiny-1 "A sentence."' in said.err
    saved: Any = checkpoints.load(Path("runs/tiny-1/step-00000004")).json["recipe.json"]
    assert (saved["training"]["clip"], saved["training"]["seed"]) == (0.5, 3)
    shell.done("translate", "runs/tiny-1", "one two")
    shell.done("evaluate", "runs/tiny-1", "--json")
    assert "model: runs/tiny-2" in shell.done("train", recipe, "--steps", 1).err
    assert "expected a new folder" in shell.refused("train", recipe, "--out", "runs/tiny-1")
    assert shell.done("resume", "runs/tiny-1", "--json").json == figures, "nothing left to do, and the same to tell"
    longer = shell.done("resume", "runs/tiny-1", "--steps", 6, "--training.clip", 1.0, "--json")
    assert longer.json["steps"] == 6
    assert "training.steps: 4 -> 6\ntraining.clip: 0.5 -> 1.0\n" in longer.err
    assert "--data: expected a field of training" in shell.refused("resume", "runs/tiny-1", "--data.held_out", 3)
    assert "did you mean --steps?" in shell.refused("resume", "runs/tiny-1", "--stepz", 3)


def during(monkeypatch: pytest.MonkeyPatch, step: int, action: Any) -> None:
    """Do something with the loss in the middle of an update."""
    loss, calls = Translation.loss, [0]

    def changed(self: Translation, network: Any, batch: Any, *, smoothing: float = 0.0) -> tuple[torch.Tensor, int]:
        total, count = loss(self, network, batch, smoothing=smoothing)
        calls[0] += torch.is_grad_enabled()
        return (action(total) if calls[0] == step and torch.is_grad_enabled() else total), count

    monkeypatch.setattr(Translation, "loss", changed)


def test_a_signal_in_the_middle_of_a_step_ends_after_it(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """tests/training/test_signals.py shows that nothing is lost."""

    def stop(total: torch.Tensor) -> torch.Tensor:
        signal.raise_signal(signal.SIGINT)
        return total

    with monkeypatch.context() as patch:
        during(patch, 3, stop)
        said = shell("train", write_recipe(tmp_path), "--out", "run", "--json")
    assert (said.code, said.out) == (130, "")
    assert said.err.splitlines()[-1] == "stopped after step 3; go on with: clearhead resume run"


def test_ctrl_c_before_the_training(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearhead.cli.train.session.start", interrupted)
    said = shell("train", write_recipe(tmp_path), "--out", "run")
    assert (said.code, said.out, said.err) == (130, "", "run: reading data\nstopped by Ctrl-C\n")


def test_a_full_disk_loses_nothing(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = write_recipe(tmp_path, steps=6, save_every=2, evaluate_every=6)

    def full(folder: Path) -> Any:
        left = 10**12 if not any(folder.glob("step-00000004")) else 10
        return shutil._ntuple_diskusage(left, 0, left)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", full)
        said = shell("train", recipe, "--out", "run")
    assert said.code == 2
    assert re.match(r"run: expected .* free for a checkpoint, got 10 bytes; try freeing space", said.error)
    shell.done("translate", "run", "one")  # What was saved is there.
    shell.done("resume", "run")


def misread(error: Exception) -> Any:
    """As a reader does that takes any failure for that of its file."""
    try:
        raise error
    except OSError:
        raise UserError("file: expected a whole file, got another; try downloading it again") from None


@pytest.mark.parametrize(
    ("step", "change", "code", "says"),
    [
        (3, lambda total: total * float("nan"), 4, "step 3: the gradient's norm is nan; no weight was touched"),
        (3, lambda _: (_ for _ in ()).throw(MemoryError()), 3, "out of memory; try a lower --training.max_tokens"),
        (3, lambda _: torch.empty(1 << 60), 3, "out of memory; try a lower --training.max_tokens"),
        (3, lambda _: misread(OSError(errno.ENOMEM, "Cannot allocate memory")), 3, "out of memory; try a lower"),
    ],
)
def test_memory_and_numbers_have_codes_of_their_own(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, change: Any, code: int, says: str
):
    during(monkeypatch, step, change)
    said = shell("train", write_recipe(tmp_path), "--out", "run")
    assert said.code == code
    assert said.error.startswith(says)
    shell.done("translate", "run", "one")


# --- where the output goes ---------------------------------------------------------------------------------------


WRITES = """
import sys
from clearhead.cli import main
from clearhead.cli.commands import COMMANDS

def write():
    print("x" * 9)

COMMANDS["Use"]["write"] = "__main__:write"
sys.argv[1:] = ['write']
main()
"""


def into(output: TextIO) -> Said:
    """A command that writes to this file, in a process of its own."""
    command = [sys.executable, "-c", WRITES]
    done = processes.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    return Said(done.returncode, "", done.stderr)


def test_a_reader_that_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        assert into(closed) == (141, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output():
    with Path("/dev/full").open("w") as full:
        said = into(full)
    assert said.code == 2
    assert said.err == f"error: output: {os.strerror(errno.ENOSPC)}; check the path, its permissions and space\n"


def in_shell(line: str, folder: Path, **environment: str) -> Said:
    """A line of a shell, in which `clearhead` is the command line of this checkout."""
    around = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    script = f'clearhead() {{ "{sys.executable}" -m clearhead "$@"; }}; {line}'
    done = processes.run(["bash", "-c", script], cwd=folder, env=around, capture_output=True, timeout=120)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("streams", "code", "n_lines"),
    [
        (">&-", 0, 0),
        ("2>&-", 0, 0),
        ("<&-", 0, 0),
        (">&- 2>&- <&-", 0, 0),
        ("2>/dev/full", 0, 0),
        (">/dev/full", 2, 1),
        (">/dev/full 2>/dev/full", 2, 0),
        ("| true; exit ${PIPESTATUS[0]}", 141, 0),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, streams: str, code: int, n_lines: int):
    said = in_shell(f"clearhead --help {streams}", tmp_path)
    assert (said.code, len(said.err.splitlines())) == (code, n_lines), said
    assert "Traceback" not in said.err
    said = in_shell(f"clearhead bogus {streams}", tmp_path)
    assert (said.code, said.out) == (2, ""), "its one line does not go to standard output, whatever is closed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_command_that_cannot_tell_still_does_its_work(tmp_path: Path):
    said = in_shell("clearhead summary gpt2 --json 2>/dev/full", tmp_path)  # Its table is for standard error.
    assert (said.code, json.loads(said.out)["parameters"]) == (0, 124_439_808)


def test_a_file_does_not_take_the_place_of_a_closed_stream(tmp_path: Path, folders: Folders):
    writer = folders["writer"]
    before = {path: path.read_bytes() for path in writer.iterdir()}
    assert in_shell(f"clearhead generate {writer} one --max-new-tokens 2 >&- 2>&- <&-", tmp_path) == (0, "", "")
    assert {path: path.read_bytes() for path in writer.iterdir()} == before


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "ascii"}, pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0"}, marks=pytest.mark.slow)],
)
def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, folders: Folders, variables: dict[str, str]):
    said = in_shell(f"clearhead generate {folders['writer']} 'one Ω' --max-new-tokens 2", tmp_path, **variables)
    assert said.code in (0, 2)
    assert "Traceback" not in said.err
    if "PYTHONIOENCODING" in variables:
        assert said.out.startswith("one \\u03a9")
    assert in_shell("clearhead --help", tmp_path, **variables).code == 0


@pytest.mark.parametrize(
    "line",
    "generate {}; generate x one --stop {}; translate x one {}; train {}; capture x --data {}; explore x {}".split(
        "; "
    ),
)
def test_a_text_that_is_not_utf8_is_refused_before_anything_else(shell: Shell, line: str):
    word = "caf\udce9"  # What Python makes of a byte that is not UTF-8.
    said = shell(*(part.format(word) for part in line.split()))
    assert said == (2, "", "error: caf?: expected text in utf-8, got the byte 0xE9; rename the file\n")


@pytest.mark.parametrize("name", ["-x", "~", "a b", "it's"])
def test_what_a_run_says_can_be_pasted(shell: Shell, tmp_path: Path, name: str):
    recipe = write_recipe(tmp_path, steps=1)
    said = shell("train", recipe, f"--out={name}")
    line = re.search("^use it: clearhead (.*)$", said.err, re.MULTILINE)
    assert line is not None
    shell.done(*shlex.split(line[1]))


def test_in_a_folder_that_was_removed(tmp_path: Path):
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    assert in_shell(f"{gone} clearhead --help", tmp_path)[::2] == (0, "")
    said = in_shell(f"{gone} clearhead summary gpt2", tmp_path)
    assert said.code == 2
    assert said.error == "current folder: expected one that is there, got none; change to another folder"


# --- how wide a terminal is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["0", "1", "abc", "20", "999999999"])
def test_any_width_has_its_help(tmp_path: Path, columns: str):
    said = in_shell("clearhead train --help", tmp_path, COLUMNS=columns)
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) in (20, 80, 1000)


# --- Ctrl-C ------------------------------------------------------------------------------------------------------


STOPS = """
import os, signal, sys, threading
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == wanted:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass  # As some that are imported do.

wanted = sys.argv.pop(1)
if wanted == "exit":
    import atexit
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
else:
    sys.meta_path.insert(0, Finder())
from clearhead.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("module", ["cyclopts", "clearhead.cli.plan.plan", "torch", "torch.nn"])
def test_ctrl_c_in_an_import_ends_it_in_one_line(module: str):
    done = run_python(STOPS, module, "summary", "gpt2")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by Ctrl-C\n")


SWALLOWS = """
import os, signal, sys
from clearhead.cli import main
from clearhead.cli.commands import COMMANDS

class Rows:  # As a library in C that calls Python, and makes another error of whatever that raises.
    def __len__(self):
        os.kill(os.getpid(), signal.SIGINT)

def swallow():
    try:
        len(Rows())
    except BaseException:
        raise ValueError("could not determine the shape") from None

COMMANDS["Use"]["swallow"] = "__main__:swallow"
sys.argv[1:] = ["swallow"]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_that_a_library_makes_another_error_of():
    done = run_python(SWALLOWS)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by Ctrl-C\n")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_at_the_end_says_nothing():
    done = run_python(STOPS, "exit", "--version")
    assert (done.returncode, done.stderr) == (130, "")


def test_little_is_imported_before_ctrl_c_is_taken_care_of():
    code = "import sys; before = {*sys.modules}; import clearhead.cli; print(*({*sys.modules} - before))"
    assert set(run_python(code).stdout.split()) == {
        *("clearhead", "clearhead.cli", "clearhead.cli.interrupts", "clearhead.version")
    }
