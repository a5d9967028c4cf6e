import json
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.cli.plan.costs import CHARACTERS, SENTENCE, is_recipe, subject_of
from clearhead.errors import UserError
from tests.training.tiny import write_recipe


def test_json_holds_every_layout_and_the_line_that_starts_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "gpt2", "--gpus", "16", "--tokens", "1000000000", "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    best = found["alternatives"][found["chosen"]]
    assert best["fits"]
    assert best["memory"]["total"] <= sum(n for part, n in best["memory"].items() if part != "total")
    assert best["hours"] == pytest.approx(1e9 / best["tokens_per_second"] / 3600)
    assert found["command"].startswith("torchrun --nnodes 2 --nproc-per-node 8 ")
    assert "ddp x 16" in said.err


def test_tables_name_the_layout_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "translation", "--gpu", "cpu"])
    out = capsys.readouterr().out
    assert "Simplest that fits: one GPU." in out
    assert out.rstrip().endswith("clearhead train translation --training.max_tokens 4096")


def test_where_nothing_fits_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "gpt2", "--memory", "0.5"])
    out = capsys.readouterr().out
    assert "Nothing fits: the least is" in out
    assert "train" not in out.splitlines()[-1]


def test_a_recipe_says_its_lengths_and_batch(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, accumulate=3)
    subject = subject_of(str(path))
    assert (subject.source, subject.target, subject.batch) == (SENTENCE, SENTENCE, 180)
    assert subject_of(str(path), 5).target == 5
    lm = subject_of("lm")
    assert (lm.source, lm.target) == (0, 256)
    assert lm.config.output.input.vocab_size == CHARACTERS  # pyrefly: ignore
    assert is_recipe("lm")
    assert not is_recipe("gpt2")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt2", ["--length", "2000"], "--length: expected at most 1024, the positions of the decoder, got 2000"),
        ("gpt2", ["--mfu", "2"], "--mfu: expected a share above 0 and up to 1, got 2.0; try 0.4"),
        ("gpt2", ["--tokens", "0"], "--tokens: expected 1 or more, got 0"),
        ("gpt2", ["--gpus", "9"], "--gpus: expected whole nodes of 8, got 9"),
        ("nothing.toml", [], "nothing.toml: expected a recipe file or name, found none"),
        ("gtp2", [], "gtp2"),
    ],
)
def test_mistakes_are_one_line(name: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["plan", name, *options])
    assert end.value.code == UserError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
