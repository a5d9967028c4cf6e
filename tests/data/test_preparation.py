"""The report counts what was done, and what was done is the policy."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import preparation
from clearhead.data.preparation import DataReport, OverlapReport, Repeats, Row, prepare
from clearhead.data.sequences import Sequences, Shelf
from clearhead.data.sources import Pairs
from clearhead.errors import UserError
from clearhead.recipe.data import Preparation
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer

# One token a word: lengths are plain to see.
TRAIN = Pairs(
    source=["a b", "a b", "a b", "", "c", "a a a a", "d", "e f"],
    target=["x", "x", "y", "x", " ", "x", "x y x y x", "x y"],
)
TEST = Pairs(source=["a b", "e f", "q", "b b b b b", ""], target=["x", "y", "x", "y y", "x"])
SPLITS: dict[str, Iterable[Row]] = {"train": TRAIN, "test": TEST}
TOKENIZER = Tokenizer.train([*TRAIN.source, *TRAIN.target], Words())


def counts(report: DataReport, name: str) -> dict[str, int]:
    split = next(s for s in report.splits if s.name == name)
    return {k: v for k, v in split.model_dump().items() if k not in ("name", "sides") and v}


def prepared(
    splits: Mapping[str, Iterable[Row]], preparation: Preparation
) -> tuple[dict[str, list[tuple[str, ...]]], dict[str, Sequences], DataReport]:
    """The examples that are left, as text and as ids, and the report."""
    shelf = Shelf()
    found = prepare(splits, TOKENIZER, preparation=preparation, shelf=shelf)
    ids = shelf.in_memory()
    texts = {name: tuple(TOKENIZER.decode(sequence) for sequence in sequences) for name, sequences in ids.items()}
    n_sides = {name: sum(part.startswith(f"{name}.") for part in ids) for name in splits}
    rows = {
        name: list(zip(*(texts[f"{name}.{side}"] for side in range(n)), strict=True)) for name, n in n_sides.items()
    }
    for name, kept in found.rows.items():
        for side in range(n_sides[name]):
            assert ids[f"{name}.{side}"] == TOKENIZER.encode_batch([row[side] for row in kept]), "ids are the text's"
    assert found.rows.keys() == splits.keys() - {"train"}
    return rows, ids, found.report


def test_by_default_only_empty_and_long_examples_go():
    rows, _, report = prepared(SPLITS, Preparation(max_length=3))
    assert rows["train"] == [("a b", "x"), ("a b", "x"), ("a b", "y"), ("e f", "x y")]
    assert counts(report, "train") == dict(n_read=8, n_empty=2, n_duplicates=1, n_dropped=2, n_kept=4)
    # A test is never shortened by what is too long: that is cut, as text and as ids.
    found = prepare(SPLITS, TOKENIZER, preparation=Preparation(max_length=3), shelf=Shelf())
    assert found.rows["test"] == [("a b", "x"), ("e f", "y"), ("q", "x"), ("b b b", "y y")]
    assert counts(report, "test") == dict(n_read=5, n_empty=1, n_cut=1, n_kept=4)


@pytest.mark.parametrize("n_at_once", [1, 3, 1024])
def test_everything_on(n_at_once: int, monkeypatch):
    monkeypatch.setattr(preparation, "ROWS", n_at_once)
    policy = Preparation(max_length=3, too_long="cut", remove_duplicates=True, remove_overlap=True)
    rows, _, report = prepared(SPLITS, policy)
    assert rows["train"] == [("a a a", "x"), ("d", "x y x")]
    assert counts(report, "train") == dict(
        n_read=8, n_empty=2, n_duplicates=1, n_duplicates_removed=1, n_overlap_removed=3, n_cut=2, n_kept=2
    )


@given(parts=st.lists(st.lists(st.integers(0, 60), max_size=9), max_size=20))
def test_repeats_are_those_that_came_before(parts: list[list[int]]):
    repeats, seen = Repeats(), set[int]()
    for part in parts:
        for number, first in zip(part, repeats.first(np.array(part, dtype=np.uint64)).tolist(), strict=True):
            assert first == (number not in seen)
            seen.add(number)
    assert sum(map(len, repeats.runs)) == len(seen)
    assert all(len(a) > 2 * len(b) for a, b in pairwise(repeats.runs))


def test_overlap_lengths_and_unknown_tokens():
    _, _, report = prepared(SPLITS, Preparation())
    assert report.overlaps == (OverlapReport(split="test", other="train", n_shared=2, share=0.5, example="a b"),)
    source, target = report.splits[1].sides
    assert (source.n_tokens, source.max_length, source.mean_length) == (10, 5, 2.5)
    assert (source.n_unknown, source.unknown_rate, target.n_unknown) == (1, 0.1, 0)
    assert report.vocab_size == TOKENIZER.vocab_size


def test_lines_say_it():
    lines = prepared(SPLITS, Preparation(max_length=3))[2].lines()
    text = "\n".join(lines)
    assert "train: 4 of 8 examples (2 empty, left out; 2 over 3 tokens, left out; 1 duplicates, kept)" in lines
    assert "  source: 8 tokens, 2.0 an example, at most 2; 0.00% unknown" in lines
    assert "test: 2 sources (50.0%) are also in train, such as 'a b'" in lines
    assert f"vocabulary: {TOKENIZER.vocab_size} tokens" in text
    assert all("\n" not in line for line in lines)


def test_nothing_left_is_one_line():
    with pytest.raises(UserError, match=r"train: expected examples, got none: all 1 left out; try"):
        prepared({"train": Pairs(["a a"], ["x"])}, Preparation(max_length=1))
