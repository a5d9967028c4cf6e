"""`clearhead patch`."""

from tests.shell import Folders, Said, Shell


def patched(shell: Shell, folders: Folders, *flags: str, **changed: str) -> Said:
    texts = {"clean": "one two three", "corrupt": "one four three", "answer": "five", "minus": "three"} | changed
    return shell.done(
        "patch", folders["gpt2"], *(part for name, value in texts.items() for part in (f"--{name}", value)), *flags
    )


def test_a_row_for_each_block(shell: Shell, folders: Folders) -> None:
    said = patched(shell, folders, answer=" five")
    title, names, *rows = said.lines
    assert title == "decoder resid_pre"
    assert names.split() == ["block", "one", "four", "three"]
    assert [row.split()[0] for row in rows] == ["1", "0"]
    assert rows[1].split()[1:] == ["0.00", "1.00", "0.00"], "the only token that differs restores all"
    assert "decoder: 3 positions, aligned one by one" in said.err


def test_other_lengths_as_json(shell: Shell, folders: Folders) -> None:
    found = patched(shell, folders, "--json", of="all", corrupt="one four one three").json
    assert found["alignment"] == {"decoder": [[0, 0], [1, 2], [2, 3]]}
    assert found["restored"]["decoder.blocks.0.resid_pre"][1] is None
    assert len(found["restored"]["decoder.blocks.1.attn.z"]) == 2
    assert set(found["tokens"]) == {"clean", "corrupt"}
