"""The first screen, the help of a group, and what `doctor` says of the machine."""

import pytest

from clearhead.cli.commands import COMMANDS
from clearhead.cli.screen import first_screen
from tests.shell import Shell


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_the_first_screen_names_every_command_in_twelve_lines(shell: Shell, words: tuple[str, ...]):
    lines = shell.done(*words).out.splitlines()
    assert len(lines) <= 12
    assert {name for names in COMMANDS.values() for name in names} <= {*" ".join(lines).split()}
    assert max(map(len, lines)) <= 100


def test_it_says_what_is_here_and_what_to_do_next(tmp_path):
    (tmp_path / "own data.csv").write_text("text,label\n", encoding="utf-8")
    assert "clearhead train 'own data.csv' --dry-run" in "\n".join(first_screen(COMMANDS, tmp_path))
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "recipe.json").write_text("{}", encoding="utf-8")
    assert "2 runs: clearhead evaluate runs/b, clearhead explore runs/b" in "\n".join(first_screen(COMMANDS, tmp_path))


def test_a_group_has_its_commands_alone(shell: Shell):
    said = shell.done("help", "judge").out
    assert "wrong-labels" in said
    assert "translate" not in said
    assert "translate" in shell.done("help").out
    assert " lab " in shell.done("help", "learn").out
    assert shell.refused("help", "juge").startswith("help: expected train, use, look, judge, share, plan, learn")


def test_doctor_names_what_the_machine_has(shell: Shell):
    rows = dict(line.split(maxsplit=1) for line in shell.done("doctor").out.splitlines())
    assert rows.keys() >= {
        "clearhead",
        "processor",
        "float32",
        "bfloat16",
        "int8",
        "memory",
        "GPU",
        "browser",
        "cache",
        "extras",
    }
    assert "GB of" in rows["memory"]
