import errno
import itertools
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.api import load
from clearhead.data.splits import require_same
from clearhead.errors import UserError
from clearhead.recipe import read
from clearhead.runs import note_data_report, resume, spaced, start
from clearhead.storage import checkpoints
from clearhead.tasks.registry import validate
from clearhead.tasks.translation import Translation
from clearhead.training.events import Evaluated, Saved, Skipped
from tests.training.tiny import begin, drive, number_pairs, write_pairs, write_recipe


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch) -> None:
    """Files are real, and tests of power cuts are elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def told(recipe: Path, folder: Path, *changes: tuple[str, Any]) -> str:
    """The one line that starting says."""
    with pytest.raises(UserError) as caught:
        begin(recipe, folder, *changes)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert not folder.is_dir() or not any(folder.glob("step-*"))
    return str(caught.value)


# --- from two text files to a translation ------------------------------------------------------------------------


def larger(folder: Path, *, evaluate_every: int) -> list[tuple[str, Any]]:
    """A network that learns the pairs, which are its validation data too."""
    files = {"source": str(folder / "a.en"), "target": str(folder / "a.de"), "kind": "parallel"}
    sizes = {"d_model": 32, "d_ff": 64, "n_layers": 1, "n_heads": 2}
    changes: list[tuple[str, Any]] = [("model.stacks", sizes), ("model.stacks.dropout", 0.0), ("data.valid", files)]
    schedule = {"kind": "constant", "warmup": 10}
    return [*changes, ("training.evaluate_every", evaluate_every), ("training.schedule", schedule)]


def test_from_two_files_to_a_translator(tmp_path):
    recipe = write_recipe(tmp_path, steps=200, optimizer={"kind": "adamw", "lr": 1e-2}, max_tokens=400)
    changes = [*larger(tmp_path, evaluate_every=50), ("training.save_every", 50)]
    pairs = number_pairs(40)
    run = begin(recipe, tmp_path / "run", *changes)
    events = drive(run)
    evaluations = [event for event in events if isinstance(event, Evaluated)]
    assert [event.step for event in evaluations] == [50, 100, 150, 200]
    model = load(tmp_path / "run")
    best = next(event for event in reversed(evaluations) if event.is_best)
    assert model.translate(pairs.source) == list(best.evaluation.outputs)
    right = sum(a == b for a, b in zip(model.translate(pairs.source), pairs.target, strict=True))
    assert right >= 36
    one = load(tmp_path / "run" / f"step-{best.step:08d}")
    assert one.translate(pairs.source) == list(best.evaluation.outputs), "a checkpoint is a model too"


KANA: dict[str, str] = dict(
    zip("eins zwei drei vier fünf sechs sieben acht neun zehn".split(), "いろはにほへとちりぬ", strict=True)
)


@pytest.mark.parametrize(
    ("tokenize", "name"), [pytest.param("auto", "bleu_char", marks=pytest.mark.slow), ("13a", "bleu")]
)
def test_best_moves_where_13a_sees_one_word_a_line(tmp_path, tokenize: str, name: str):
    """Targets like Japanese, without spaces: 13a counts whole lines, and has 0 until one is exactly right."""
    pairs = number_pairs(40)
    targets = ["".join(KANA[word] for word in line.split()) + "。" for line in pairs.target]
    recipe = write_recipe(tmp_path, steps=80, optimizer={"kind": "adamw", "lr": 5e-3}, max_tokens=400, patience=2)
    (tmp_path / "a.de").write_text("\n".join(targets) + "\n", encoding="utf-8")
    changes = [*larger(tmp_path, evaluate_every=20), ("tokenizer.kind", "characters")]
    run = begin(recipe, tmp_path / "run", *changes, ("evaluation.tokenize", tokenize))
    evaluations = [event for event in drive(run) if isinstance(event, Evaluated)]
    assert [event.step for event in evaluations] == [20, 40, 60, 80], "patience did not end it"
    best = [event for event in evaluations if event.is_best][-1]
    assert best.step > 40
    assert name in [score.name for score in best.evaluation.scores]
    assert load(tmp_path / "run").translate(pairs.source, beams=1) == list(best.evaluation.outputs)
    if tokenize == "13a":
        assert evaluations[0].evaluation.value(name) == 0
        assert evaluations[1].by_loss


def book_tables(folder: Path, **data: Any) -> dict[str, Any]:
    """A recipe for a language model of a book."""
    (folder / "book.txt").write_text("\n".join(number_pairs(80).source), encoding="utf-8")
    train = {"kind": "text", "paths": ["book.txt"]}
    return {
        "task": "lm",
        "data": {"train": train, "folder": str(folder), "length": 16, **data},
        "model": {"preset": "nano", "stacks": {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}},
        "training": {"steps": 6, "precision": "fp32", "matmul_precision": "highest", "max_tokens": 128},
        "generation": {"max_new_tokens": 8, "temperature": 0.8},
    }


def test_validation_is_held_out_by_source_and_leaves_no_trace_in_training(tmp_path):
    recipe = write_recipe(tmp_path)
    for name in ("a.en", "a.de"):  # Every source twice, and an odd number held out.
        path = tmp_path / name
        path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    run = begin(recipe, tmp_path / "run", ("data.held_out", 3))
    assert isinstance(run.task, Translation)
    train_sources, valid = run.task.tokenizer.decode_batch(run.task.train.source), run.task.valid.text
    assert len(valid) == 3
    assert train_sources
    assert not set(valid.source) & set(train_sources)
    other = begin(recipe, tmp_path / "other", ("data.held_out", 3), ("training.seed", 5))
    assert isinstance(other.task, Translation)
    assert other.task.valid.text == valid, "not a matter of the seed"


# --- resume ----------------------------------------------------------------------------------------------------


def test_resume_refuses_changed_data_and_what_is_no_run(tmp_path):
    recipe = write_recipe(tmp_path)
    drive(begin(recipe, tmp_path / "run", ("training.steps", 2)))
    text = (tmp_path / "a.de").read_text(encoding="utf-8")
    (tmp_path / "a.de").write_text(text.replace("eins", "zwei", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"run: the training data changed since this run began \(.*a\.en, .*a\.de\); "):
        resume(tmp_path / "run")
    (tmp_path / "a.de").unlink()
    with pytest.raises(UserError, match=r"a\.de: expected a file, got none"):
        resume(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty", "a.en"):
        with pytest.raises(UserError, match=rf"{name}: expected a run with a checkpoint, found none"):
            resume(tmp_path / name)


@pytest.mark.parametrize(
    ("split", "name", "side", "storage"),
    [("v", "validation", "en", "memory"), ("v", "validation", "de", "disk"), ("t", "test", "de", "memory")],
)
def test_resume_refuses_changed_held_out_text(tmp_path, split: str, name: str, side: str, storage: str):
    """It decides which checkpoint is the best, and with `remove_overlap` what is learnt."""
    recipe, other = write_recipe(tmp_path, steps=2), number_pairs(6, seed=3)
    files = {key: {"kind": "parallel"} for key in ("v", "t")}
    for key, table in files.items():
        for field, lines in (("source", other.source), ("target", other.target)):
            path = tmp_path / f"{key}.{'en' if field == 'source' else 'de'}"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            table[field] = str(path)
    changes: list[tuple[str, Any]] = [("data.valid", files["v"]), ("data.test", files["t"])]
    drive(begin(recipe, tmp_path / "run", *changes, ("data.storage", storage), ("data.cache", str(tmp_path / "c"))))
    resume(tmp_path / "run")
    path = tmp_path / f"{split}.{side}"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("n", "m", 1), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    with pytest.raises(
        UserError, match=rf"run: the {name} data changed since this run began \(.*{split}\.en"
    ) as caught:
        resume(tmp_path / "run")
    assert "\n" not in str(caught.value)
    path.write_text(text, encoding="utf-8")
    resume(tmp_path / "run")


def test_resume_refuses_changed_held_out_text_of_a_language_model(tmp_path):
    (tmp_path / "valid.txt").write_text("\n".join(number_pairs(20).source), encoding="utf-8")
    tables = book_tables(tmp_path, valid={"kind": "text", "paths": ["valid.txt"]})
    drive(start(validate(tables, where="x"), tmp_path / "run")[0])
    resume(tmp_path / "run")
    (tmp_path / "valid.txt").write_text("\n".join(number_pairs(21).source), encoding="utf-8")
    with pytest.raises(UserError, match=r"run: the validation data changed since this run began \(.*valid\.txt\)"):
        resume(tmp_path / "run")


def test_a_run_of_an_older_version_knows_its_training_text_alone():
    data = validate(
        {"task": "translation", "data": {"train": {"kind": "parallel", "source": "a", "target": "b"}}}, where="x"
    ).data
    found = {"train": "1", "valid": "2"}
    require_same(data, found, "1", where=Path("run"))
    with pytest.raises(UserError, match="the training data changed"):
        require_same(data, found, "3", where=Path("run"))


@pytest.mark.parametrize(("file", "number"), [("model", math.nan), ("optimizer", math.inf), ("training", -math.inf)])
def test_a_checkpoint_with_a_number_that_is_none_is_refused_by_name(tmp_path, file: str, number: float):
    run = begin(write_recipe(tmp_path, steps=2, ema=0.9), tmp_path / "run")
    drive(run)
    place = tmp_path / "run" / "step-00000002"
    saved = checkpoints.load(place)
    tensors = {name: dict(named) for name, named in saved.tensors.items()}
    name = next(n for n, t in tensors[f"{file}.safetensors"].items() if t.is_floating_point() and t.numel() > 1)
    tensors[f"{file}.safetensors"][name].view(-1)[-1] = number
    checkpoints.discard(place)
    checkpoints.save(tmp_path / "run", 2, checkpoints.Checkpoint(tensors, saved.json, saved.raw))
    wanted = rf"step-00000002/{file}\.safetensors:{re.escape(name)}: expected finite numbers, got NaN or infinity; try"
    ways: list[Callable[[], object]] = [lambda: resume(tmp_path / "run")]
    if file == "model":
        ways += [lambda: load(tmp_path / "run"), lambda: load(place)]
    for way in ways:
        with pytest.raises(UserError, match=wanted) as caught:
            way()
        assert "\n" not in str(caught.value)
    place.rename(tmp_path / "away")
    assert resume(tmp_path / "run")[0].progress.step == 1


# --- disk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["best", "report"])
def test_a_full_disk_at_a_small_file_is_one_line_too(tmp_path, function: str, monkeypatch):
    tables = validate(read(str(write_recipe(tmp_path, steps=2))), where="x")
    run, prepared = start(tables, tmp_path / "run")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left"):
        drive(run) if function == "best" else note_data_report(tmp_path / "run", prepared)


# --- bad input ---------------------------------------------------------------------------------------------------


def test_bad_files_are_told_in_one_line(tmp_path):
    recipe, source, target = write_recipe(tmp_path), tmp_path / "a.en", tmp_path / "a.de"
    good = source.read_bytes()
    lines = good.splitlines(keepends=True)
    for content, wanted in (
        (b"", r"a\.en: expected text, got an empty file; try"),
        (b"".join(lines[:-1]), r"a\.en and .*a\.de: expected as many lines in both, got 39 and 40; try"),
        (b"".join([*lines[:6], b"caf\xe9\n", *lines[7:]]), r"a\.en:7: expected UTF-8, got the byte 0xE9; try"),
        (b"\n" * 39 + lines[0], r"^tokenizer: expected text to train on, got none|^train: expected examples, got none"),
    ):
        source.write_bytes(content)
        assert re.search(wanted, told(recipe, tmp_path / "run")), content
    source.write_bytes(good)
    target.unlink()
    assert re.search(r"a\.de: expected a file, got none; try .*a\.en", told(recipe, tmp_path / "run"))


@pytest.mark.parametrize("n", [1, 4, 9])
@pytest.mark.parametrize("held_out", [1, 1000])
def test_too_few_pairs(tmp_path, n: int, held_out: int):
    recipe = write_recipe(tmp_path)
    write_pairs(tmp_path, n)
    wanted = f"data.train: expected at least 10 pairs to hold some out, got {n}; give data.valid"
    assert told(recipe, tmp_path / "run", ("data.held_out", held_out)) == wanted
    write_pairs(tmp_path, 10)
    begin(recipe, tmp_path / "run", ("data.held_out", held_out))


def test_a_folder_that_is_not_new(tmp_path):
    recipe = write_recipe(tmp_path)
    wanted = r"expected a new folder for the run, got one with files; try another --out$"
    assert re.search(wanted, told(recipe, tmp_path))
    assert re.search(r"a\.en: expected a new folder for the run, got a file", told(recipe, tmp_path / "a.en"))
    (tmp_path / "empty").mkdir()
    begin(recipe, tmp_path / "empty")


def test_mistakes_in_the_training_table(tmp_path):
    recipe = write_recipe(tmp_path)
    for changes, wanted in (
        ([("training.steps", None)], r"^training: expected a limit, got none; set training\.steps"),
        ([("training.device", "mps")], r"^device: expected one that this machine has, got 'mps'; try"),
        ([("data.train", {"kind": "text", "paths": [str(tmp_path / "a.en")]})], r"^text: expected pairs .*try"),
        ([("model.preset", "nano")], r"^model: expected an encoder and a decoder to translate.*; try"),
        (
            [("model.decoder", {"positions": {"kind": "learned", "max_length": 6}})],
            r"^model\.decoder: expected positions for 7 tokens, got 6; try a lower data\.preparation\.max_length",
        ),
        ([("model.stacks.n_heads", 3)], r"^model:encoder: n_heads=3 must divide d_model=16"),
    ):
        if wanted.startswith("^device") and sys.platform == "darwin":
            continue
        assert re.search(wanted, told(recipe, tmp_path / "run", *changes)), changes


def test_a_batch_too_small_for_an_example_is_told(tmp_path):
    with pytest.raises(UserError, match=r"^max_tokens: expected at least \d+, .*try a higher max_tokens"):
        begin(write_recipe(tmp_path), tmp_path / "run", ("training.max_tokens", 5))


# --- which checkpoints stay --------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=80), st.integers(0, 9))
def test_spaced_is_at_most_n_and_nested_while_a_run_grows(gaps: list[int], n: int):
    """What is pruned now is not wanted later: choosing among what was kept is choosing among all."""
    every: list[int] = []
    kept: list[int] = []
    for gap in gaps:
        every.append((every[-1] if every else 0) + gap)
        kept = spaced([*kept, every[-1]], n)
        assert len(kept) <= n
        assert set(kept) >= set(spaced(every, n))
    assert n == 0 or kept[0] == every[0]


@pytest.mark.parametrize("every", [1, 7, 100, 500, 777])
@pytest.mark.parametrize("odd", [[], [1], [1, 1234, 20_017]])
def test_spaced_is_even_whatever_else_was_saved(every: int, odd: list[int]):
    """A checkpoint at step 1, at a signal or at the end does not cost the others their place."""
    steps = sorted({*range(every, 40 * every, every), *(step for step in odd if step < 40 * every)})
    found = spaced(steps, 8)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert len(found) >= 4
    assert found[-1] >= 20 * every
    assert max(gaps) <= 2 * sorted(gaps)[len(gaps) // 2]


def test_keeper_keeps_the_newest_the_spaced_and_the_best(tmp_path):
    run = begin(
        write_recipe(tmp_path, steps=30), tmp_path / "run", ("training.keep_last", 2), ("training.keep_spaced", 4)
    )
    events = drive(run)
    assert sum(isinstance(event, Saved) for event in events) == 16
    kept = sorted(checkpoints.step_of(path) for path in (tmp_path / "run").glob("step-*"))
    assert run.progress.best_step is not None
    wanted = {*spaced([1, *range(2, 31, 2)], 4), 28, 30, run.progress.best_step}
    assert kept == sorted(wanted)
    assert not any(isinstance(event, Skipped) for event in events)
