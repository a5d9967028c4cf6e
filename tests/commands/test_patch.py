"""`clearhead patch`."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

from tests.shell import Folders, Said, Shell


def patched(shell: Shell, folders: Folders, *flags: str, **changed: str) -> Said:
    texts = {"clean": "one two three", "corrupt": "one four three", "answer": "five", "minus": "three"} | changed
    return shell.done(
        "patch", folders["gpt2"], *(part for name, value in texts.items() for part in (f"--{name}", value)), *flags
    )


def test_a_row_for_each_block(shell: Shell, folders: Folders):
    said = patched(shell, folders, answer=" five")
    title, names, *rows = said.lines
    assert title == "decoder resid_pre"
    assert names.split() == ["block", "one", "four", "three"]
    assert [row.split()[0] for row in rows] == ["1", "0"]
    assert rows[1].split()[1:] == ["0.00", "1.00", "0.00"], "the only token that differs restores all"
    assert said.err.splitlines()[0].startswith("clean -0.7"), "the difference of the logits"


def test_other_lengths_as_json(shell: Shell, folders: Folders):
    found = {one["site"] for one in patched(shell, folders, "--json", of="all", corrupt="one four one three").json}
    cells = {site for site in found if site.startswith("decoder.blocks.0.resid_pre")}
    assert cells == {f"decoder.blocks.0.resid_pre[t={i}]" for i in (0, 2, 3)}, "the second has no partner"
    assert "decoder.blocks.1.attn.z[h=1]" in found


def test_a_set_with_a_report_whose_python_gives_its_numbers(shell: Shell, folders: Folders):
    Path("set.toml").write_text(
        'clean = "one {A} two {A}"\ncorrupt = "one {A} two {B}"\nanswer = " {A}"\nminus = " {B}"\n'
        '[slots]\nA = ["two", "three", "four", "five", "six"]\nB = "A"\n',
        encoding="utf-8",
    )
    line = ("patch", folders["gpt2"], "--pairs", "set.toml", "--of", "heads", "--prompts", 9, "--report", "found.html")
    said = shell.done(*line)
    assert said.lines[0] == "decoder attn.z"
    assert "95% interval" in said.out
    assert "left out: " in said.err or "9 pairs" in said.err
    page = Path("found.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('<script type="application/json">')[2].partition("</script>")[0])
    assert data["seed"] == 0
    assert len(data["sha256"]) == 64
    assert [len(data[name]) for name in ("prompts", "effects")] == [9, 2 + 4]
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(data["python"], "report", "exec"), {})
    for row, one in zip(printed.getvalue().splitlines(), data["effects"], strict=True):
        assert row == f"{one['site']} {one['mean']} {one['interval'][0]} {one['interval'][1]}"
    again = shell.done("patch", folders["gpt2"], "--pairs", "found.html", "--of", "heads")
    assert again.out == said.out


def test_a_model_of_vectors_is_refused_in_one_line(shell: Shell, folders: Folders):
    """It has no logits of two answers, whose difference a state could restore."""
    texts = ["--clean", "one two three", "--corrupt", "one six three"]
    said = shell.refused("patch", folders["encoder_states"], *texts, "--of", "heads")
    assert said == "expected a model that answers with logits, got one of vectors; try clearhead circuits"
