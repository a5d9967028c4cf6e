"""A mistake on the line of any benchmark is one line."""

import sys

import pytest

from benchmarks.entry import run_command
from clearhead.errors import UserError
from tests import processes
from tests.architecture.source import ROOT


def test_every_benchmark_begins_alike():
    programs = [p for p in (ROOT / "benchmarks").glob("*.py") if '__name__ == "__main__"' in p.read_text("utf-8")]
    assert len(programs) > 25
    for program in programs:
        text = program.read_text("utf-8")
        begin = text[text.index('if __name__ == "__main__":') :]
        assert "run_command(" in (text if begin.endswith("    main()\n") else begin), program.name


def test_a_mistake_is_one_line(capsys):
    def wrong(what: str) -> None:
        raise UserError(f"{what}: expected another")

    with pytest.raises(SystemExit) as end:
        run_command(wrong, "folder")
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: folder: expected another\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("benchmarks run nothing", "nothing: expected one of encdec-small, "),
        ("benchmarks.course_pages nothing", "nothing: expected one of attention, "),
        ("benchmarks.decoding --only nothing", "--only: expected one of lm-1, lm-8, "),
        ("benchmarks.model_types --only nothing", "--only: expected part of one of distilgpt2, "),
    ],
)
def test_on_the_line(line: str, told: str):
    words = [sys.executable, "-m", *line.split()]
    done = processes.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {told}")
