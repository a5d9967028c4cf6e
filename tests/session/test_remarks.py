"""What the end of a run says: on runs made up of steps and evaluations, and on real ones."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from clearhead.recipe.training import Training
from clearhead.session.remarks import Course, Ending
from clearhead.tasks.floors import Floor
from tests.tasks.small import SIZES

FLOOR = Floor(name="TF-IDF + LR", split="test", score="accuracy", value=0.88, interval=(0.85, 0.9))
RISES = [(300, 0.6, 0.9), (600, 0.7, 0.85)]
FALLS = [(300, 0.7, 0.6), (600, 0.6, 1.4)]


def said(
    value: float = 0.7,
    *,
    evaluations: list[tuple[int, float, float]],
    floors: Any = (FLOOR,),
    train: float = 0.9,
    training: Any = (("epochs", 6),),
    is_new: bool = True,
    higher: bool = True,
    an_epoch: float = 100.0,
) -> str:
    """The remarks on a run of 600 steps in 60 seconds."""
    steps = [(i, i / 10, train) for i in range(1, 601)]
    best = (max if higher else min)(evaluations, key=lambda one: one[1])[0]
    course = Course(steps, evaluations, best)
    ending = Ending(course, Training.model_validate(dict(training)), an_epoch, is_new, "runs/a")
    return "\n".join(ending.remarks(floors, value, higher_is_better=higher))


def test_below_the_floor_is_told_with_what_would_help_by_its_evidence() -> None:
    text = said(evaluations=RISES)
    assert text.startswith("below the floor: accuracy 0.7000, TF-IDF + LR 0.8800 (0.8500 to 0.9000)\n")
    assert (
        "likeliest first:\n  train longer, for the score still improved: clearhead resume runs/a --epochs 12\n" in text
    )
    assert text.endswith("begin with a pretrained model: --model.start NAME"), "no evidence of too little data"
    text = said(evaluations=FALLS, train=0.1)
    assert "longer" not in text
    assert text.endswith("more data, for the loss is 0.10 in training and 1.40 on validation data")
    assert "--model.start" not in said(evaluations=FALLS, is_new=False)
    assert said(0.86, evaluations=RISES).startswith(
        "no better than the floor, but within its interval: accuracy 0.8600"
    )


@pytest.mark.parametrize("value", [0.8801, 0.95])
def test_nothing_is_said_of_a_good_run(value: float) -> None:
    assert not said(value, evaluations=RISES)
    assert not said(0.1, evaluations=RISES, floors=())
    loss = FLOOR.model_copy(update={"score": "loss", "value": 2.0, "interval": None})
    assert not said(1.9, evaluations=[(600, 1.9, 1.9)], floors=[loss], higher=False)
    assert said(2.1, evaluations=[(600, 2.1, 2.1)], floors=[loss], higher=False).startswith("below the floor")


def test_time_that_made_it_no_better_is_told() -> None:
    assert said(0.9, evaluations=FALLS) == "best at step 300 of 600: the 30 seconds after it made it no better"


def test_a_run_far_from_trained_says_how_long_it_would_take() -> None:
    far: dict[str, Any] = {"evaluations": [(300, 4.0, 4.0), (600, 3.2, 3.2)], "higher": False, "floors": ()}
    assert said(3.2, **far, training={"minutes": 1, "epochs": 9}) == (
        "far from trained: the loss fell by 20% in the second half of the run\n"
        "  4.0 minutes on this machine: clearhead resume runs/a --minutes 4"
    )
    assert not said(3.2, **far | {"evaluations": [(300, 3.5, 3.5), (600, 3.2, 3.2)]}), "9% are little"
    assert "far" not in said(3.2, **far | {"evaluations": [(300, 3.0, 4.0), (600, 3.2, 3.2)]}), "the score is no better"


def write(words: dict[str, str]) -> None:
    """Texts of common words and of one that gives their label."""
    draw, lines = random.Random(0), ["body,kind"]
    for _ in range(300):
        label = draw.choice([*words])
        text = [*draw.choices("the of and some old new big".split(), k=5), words[label]]
        lines.append(f"{' '.join(draw.sample(text, 6))},{label}")
    Path("table.csv").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "steps", "wins"), [({"a": "cat", "b": "dog"}, 1, False), ({"a": "x", "b": "y"}, 80, True)]
)
def test_a_run_that_a_linear_model_beats_is_told_so_and_another_is_not(
    words: dict[str, str], steps: int, wins: bool, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """TF-IDF does not see words of one letter."""
    monkeypatch.chdir(tmp_path)
    write(words)
    line = f"table.csv --text body --label kind --steps {steps} --epochs 50 --training.schedule.warmup 5 --out run"
    main(["train", *line.split(), *SIZES, *"--training.optimizer.lr 0.01 --precision fp32 --json".split()])
    out, err = capsys.readouterr()
    figures = json.loads(out)
    assert (figures["held_out"]["accuracy"] > max(one["value"] for one in figures["held_out"]["floor"])) == wins
    assert ("below the floor: accuracy" in err or "no better than the floor" in err) == (not wins)
    assert figures["remarks"] == [line for line in err.splitlines() if line in figures["remarks"]]
