"""`--explain` of every command that writes text."""

import pytest

from clearhead.cli.program import run
from clearhead.model.feedforward import FeedForward
from tests.small_models import model_of

WRITES = {
    "generate": ("llama-tiny", "one two"),
    "translate": ("transformer-tiny", "one two"),
    "summarize": ("transformer-tiny", "one two"),
    "predict": ("transformer-tiny", "one two"),
}


@pytest.mark.parametrize("command", WRITES)
def test_how_the_steps_were_computed_is_told(command: str, tmp_path, capsys, monkeypatch):
    preset, text = WRITES[command]
    folder = str(model_of(preset).save(tmp_path / "model"))
    assert run([command, folder, text]) == 0
    plain = capsys.readouterr()
    assert "steps" not in plain.err
    assert run([command, folder, text, "--explain"]) == 0
    told = capsys.readouterr()
    assert told.out == plain.out
    assert " steps: " in told.err.splitlines()[-1]
    own = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: own(self, x) + 0)
    assert run([command, "--explain", folder, text]) == 0
    assert "kept from fast paths by " in capsys.readouterr().err.splitlines()[-1]


def test_a_command_that_writes_no_text(capsys):
    assert run(["recipes", "--explain"]) == 0
    assert capsys.readouterr().err == "note: no text was written\n"
    assert run(["generate", "--", "--explain"]) == 2  # the name of a model
    assert "no text" not in capsys.readouterr().err
