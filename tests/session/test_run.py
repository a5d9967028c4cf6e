"""Training from Python: the same run as the command line's, in two lines."""

import doctest
import inspect
import pydoc
import signal
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import clearhead
from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.training import train as training
from clearhead.training.events import Ended, Started, Stepped
from clearhead.training.metrics_log import read_metrics
from tests.shell import Shell

pytestmark = pytest.mark.usefixtures("empty_folder")
QUICK: dict[str, Any] = {"steps": 3, "device": "cpu", "precision": "fp32", "view": False}
LABELLED = [(f"{'good' if i % 2 else 'bad'} {i % 7} {i % 5}", "yes" if i % 2 else "no") for i in range(80)]
FRAME = pd.DataFrame(LABELLED, columns=["body", "topic"])


def log(run: Path) -> list[object]:
    """What the log of a run says besides times and folders."""
    return [
        {name: value for name, value in event.items() if name not in ("seconds", "folder", "levers")}
        for event in read_metrics(run)
    ]


def test_two_lines_from_a_frame_to_a_judged_model_as_the_command_line_has_it(shell: Shell) -> None:
    exact = {"training.matmul_precision": "highest"}  # What is faster is measured, and may change.
    run = clearhead.train(FRAME, text="body", label="topic", **exact, **QUICK)
    scores = run.scores

    file = run.folder / "data" / "train.jsonl"
    words = "--text body --label topic --steps 3 --device cpu --precision fp32 --training.matmul_precision highest"
    shell.done("train", file, *words.split(), "--out", "run")
    said = shell.done("evaluate", "run", "--json").json
    assert {name: said[name] for name in scores} == scores, "to the bit"
    assert log(run.folder) == log(Path("run"))
    for name in ("recipe.json", "data_report.json", "floor.json", "best.json"):
        assert (run.folder / name).read_bytes() == Path("run", name).read_bytes(), name
    newest = max(path.name for path in Path("run").glob("step-*"))
    ours, theirs = ({path.name: path for path in (run / newest).iterdir()} for run in (run.folder, Path("run")))
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"train.json", "MANIFEST.json"}:  # The time of training is in there.
        assert ours[name].read_bytes() == theirs[name].read_bytes(), name
    assert run.floors[-1].name == "TF-IDF + LR"


# The data of each task as a program holds them, and the options.
TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pairs of texts": ([(*row, "ab"[i % 2]) for i, row in enumerate(LABELLED)], {"text_pair": "text_pair"}),
    "regression": ([{"text": text, "n": i / 7} for i, (text, _) in enumerate(LABELLED)], {"label": "n"}),
    "splits": ({"train": LABELLED, "validation": LABELLED[:20]}, {"test": LABELLED[:10]}),
    "translation": (FRAME, {"task": "translation", "source": "body", "target": "topic"}),
    "text_to_text": ([(text, text[::-1]) for text, _ in LABELLED], {"task": "text_to_text"}),
    "lm": ([text for text, _ in LABELLED], {"task": "lm"}),
    "masked_lm": (iter([text for text, _ in LABELLED]), {"task": "masked_lm"}),
    "tagging": ([{"w": text.split(), "t": [label] * 3} for text, label in LABELLED], {"task": "tagging"}),
    "question_answering": (
        [dict(zip(("question", "context", "answer"), (a, f"{b} {a}", b), strict=True)) for a, b in LABELLED],
        {"task": "question_answering"},
    ),
    "chat": (
        [[{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in LABELLED],
        {"task": "chat"},
    ),
    "embedding": (FRAME, {"task": "embedding", "source": "body", "target": "topic"}),
    "a file": ("lines.txt", {"task": "lm", "data.length": 32}),
    "a recipe": ("translation", {"source": "pairs.en", "target": "pairs.de"}),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_task(name: str) -> None:
    data, options = TASKS[name]
    for file, side in (("lines.txt", 0), ("pairs.en", 0), ("pairs.de", 1)):
        Path(file).write_text("".join(row[side] + "\n" for row in LABELLED), encoding="utf-8")
    run = clearhead.train(data, **options, **QUICK)
    assert run.recipe.task == options.get("task", data if isinstance(data, str) else "classification")
    assert run.scores
    assert run.folder.name.endswith("-1")
    if isinstance(data, list) and name != "tagging":  # Other names of columns are given again.
        assert run.evaluate(data[:20]).loss > 0


def test_fields_of_the_recipe() -> None:
    more: dict[str, Any] = {"training.clip": 0.5, "model": {"stacks": {"d_model": 32}}, "data.max_length": 16}
    run = clearhead.train(FRAME, text="body", label="topic", seed=3, out="here", **more, **QUICK)
    training = run.recipe.training
    assert (run.folder, training.clip, training.seed, training.steps) == (Path("here"), 0.5, 3, 3)
    assert run.model.config.first.d_model == 32


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sede": 3}, "sede: no such option; did you mean seed?"),
        ({"text": "bdy", "label": "topic"}, "expected a column 'bdy', got none; try body"),
        ({"training.clipp": 3}, "training.clipp: no such field; did you mean clip?"),
        ({"task": "translatoin"}, "did you mean translation?"),
        ({"label": "body"}, 'give text="NAME"'),
    ],
)
def test_errors_name_the_keyword_and_leave_nothing(options: dict[str, Any], error: str) -> None:
    with pytest.raises(UserError) as caught:
        clearhead.train(FRAME, **options, view=False)
    assert str(caught.value).endswith(error) or error in str(caught.value)
    assert "--" not in str(caught.value)
    assert [*Path().glob("runs/*")] == []


def test_a_run_that_cannot_begin_leaves_nothing() -> None:
    with pytest.raises(UserError, match="label"):
        clearhead.train([("a", "x"), ("b", None)] * 20, text="text", label="label", view=False)
    assert [*Path().glob("runs/*")] == []


def test_events_in_a_loop_and_what_is_left_goes_on() -> None:
    whole = clearhead.train(LABELLED, **QUICK)
    run = clearhead.start(LABELLED, steps=3, device="cpu", precision="fp32")
    for event in run.events():
        if isinstance(event, Stepped) and event.step == 2:
            break
    kinds = [type(event) for event in run.events()]
    assert (kinds[0], kinds[-1]) == (Started, Ended)
    assert log(run.folder)[-1] == log(whole.folder)[-1]
    assert run.scores == whole.scores, "to the bit"
    before = run.scores
    assert run.resume(steps=6, epochs=99, view=False).ended.step == 6  # pyrefly: ignore[missing-attribute]
    assert run.scores != before
    with pytest.raises(UserError, match="expected a field of training"):
        run.events(**{"data.max_length": 3})


def test_an_interrupt_returns_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = clearhead.train(LABELLED, **QUICK)
    update, calls = training.update, iter(range(9))

    def interrupted(*values: Any) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return update(*values)

    with monkeypatch.context() as patch:
        patch.setattr(training, "update", interrupted)
        run = clearhead.train(LABELLED, **QUICK)
    assert run.ended is not None
    assert (run.ended.signal, run.ended.step) == (signal.SIGINT, 2)
    assert run.model.predict(["good"])
    assert run.resume(view=False).scores == whole.scores, "to the bit"


def test_other_data_and_two_runs() -> None:
    first = clearhead.train(FRAME, text="body", label="topic", **QUICK)
    second = clearhead.train(FRAME, text="body", label="topic", **(QUICK | {"steps": 12}))
    some = [first.evaluate(data).value("loss") for data in (FRAME[:9], LABELLED[:9], FRAME[:9].to_dict("records"))]
    FRAME[:9].to_csv("some.csv", index=False)
    assert some == [first.evaluate("some.csv").value("loss")] * 3
    assert len(first.evaluate(LABELLED[:9]).examples) == 9
    found = clearhead.compare(first, second)
    assert found.scores["loss"]["first"] == first.scores["loss"]
    assert found.scores["accuracy"].keys() >= {"interval", "p"}
    again = clearhead.compare(str(first.folder), second.model)
    assert (again.scores, again.second) == (found.scores, "second")
    assert "difference" in str(found)
    with pytest.raises(UserError, match="the same test data"):
        clearhead.compare(first, clearhead.train(LABELLED[::-1], **QUICK))


def test_a_run_of_the_command_line_opens() -> None:
    run = clearhead.train(LABELLED, **QUICK)
    again = clearhead.Run(run.folder)
    assert (again.scores, repr(again)) == (run.scores, repr(run))
    with pytest.raises(UserError, match="expected a run with a checkpoint"):
        clearhead.Run("nowhere")


def test_it_teaches_itself() -> None:
    names = inspect.signature(clearhead.train).parameters
    assert {*Training.model_fields} & {*names} >= {"minutes", "steps", "epochs", "patience", "seed", "precision"}
    for name in ("train", "start", "compare", "Run"):
        assert name in dir(clearhead)
        assert ">>> " in (getattr(clearhead, name).__doc__ or ""), name
    assert "minutes: Time to train" in pydoc.render_doc(clearhead.train)
    for parameter in set(names) - {"data", "fields"}:
        assert f"        {parameter}: " in (clearhead.train.__doc__ or ""), parameter


EXAMPLES = (
    ("minutes=2)", "steps=2)"),
    ("minutes=10", "steps=6, epochs=9"),
    ("steps=300", "steps=4"),
    ('de")', 'de", steps=2)'),
)


def test_examples_of_docstrings_run() -> None:
    for name in ("train.en", "train.de"):
        Path(name).write_text("".join(text + "\n" for text, _ in LABELLED), encoding="utf-8")
    rows = [(text, "good" if label == "yes" else "bad") for text, label in LABELLED]
    run = clearhead.train(rows, out="runs/reviews-1", **QUICK)
    pairs = [{"en": text, "de": text} for text, _ in LABELLED]
    n = 0
    for item in (
        clearhead.Run,
        run.evaluate,
        run.events,
        run.resume,
        clearhead.train,
        clearhead.start,
        clearhead.compare,
    ):
        space: dict[str, Any] = {"clearhead": clearhead, "frame": FRAME, "pairs": pairs, "run": run}
        for example in doctest.DocTestParser().get_examples(item.__doc__ or ""):
            exec(reduce(lambda text, change: text.replace(*change), EXAMPLES, example.source), space)
            n += 1
    assert n >= 10
