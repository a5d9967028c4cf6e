"""Splits of what is read in passing are those of what is in memory."""

from pathlib import Path

import pytest

from clearhead.data.sources import Pairs
from clearhead.data.splits import fingerprint, pair_splits, text_splits
from clearhead.errors import UserError
from clearhead.tasks.language_model import LanguageData
from clearhead.tasks.translation import PairData
from tests.files import put

TEXT = "one two\n\nthree four five\nsix\n\nseven\n" * 4


def language(folder: Path, **fields: object) -> list[list[str]]:
    """The documents of training and of validation, twice: they are read anew."""
    put(folder / "a.txt", TEXT)
    put(folder / "b.txt", "eight\n")
    train = {"kind": "text", "paths": ["a.txt", "b.txt"], "documents": fields.pop("documents", "file")}
    data = LanguageData.model_validate({"folder": folder, "train": train, **fields})
    found = [[["".join(document) for document in text] for text in text_splits(data, data.held_out)] for _ in range(2)]
    splits = text_splits(data, data.held_out)
    assert found[0] == found[1] == [["".join(document) for document in text] for text in splits]
    assert [len(documents) for documents in found[0]] == [text.n_documents for text in splits]
    return found[0]


@pytest.mark.parametrize("held_out", [0.1, 0.37, 0.99])
def test_validation_is_the_end_of_a_text(tmp_path, held_out: float):
    whole = f"{TEXT}\neight\n"
    cut = int(len(whole) * (1 - held_out))
    assert language(tmp_path, held_out=held_out) == [[whole[:cut]], [whole[cut:]]]


def test_validation_is_the_last_documents(tmp_path):
    lines = [line for line in [*TEXT.split("\n"), "eight"] if line]
    assert language(tmp_path, documents="line", held_out=0.25) == [lines[: int(0.75 * 17)], lines[int(0.75 * 17) :]]
    assert language(tmp_path, documents="line", held_out=1e-9) == [lines[:-1], ["eight"]], "one at least"


def test_validation_of_its_own(tmp_path):
    valid = {"kind": "text", "paths": ["b.txt"]}
    assert language(tmp_path, valid=valid)[1] == ["eight\n"]


def test_no_source_is_in_two_splits(tmp_path):
    sources = [f"s{i % 17}" for i in range(40)]
    put(tmp_path / "a", sources)
    put(tmp_path / "b", (f"t{i}" for i in range(40)))
    files = {"kind": "parallel", "source": "a", "target": "b"}
    data = PairData.model_validate({"folder": tmp_path, "train": files, "held_out": 3, "test": files})
    splits = {name: Pairs.of(rows) for name, rows in pair_splits(data, data.held_out).items()}
    assert len(splits["valid"]) == 3
    assert not set(splits["train"].source) & set(splits["valid"].source)
    assert set(splits["train"].source) | set(splits["valid"].source) == set(sources)
    assert len(splits["test"]) == 40
    for name in "ab":
        put(tmp_path / name, "x\n" * 9)
    with pytest.raises(UserError, match=r"data\.train: expected at least 10 pairs to hold some out, got 9; give"):
        pair_splits(data, data.held_out)


def test_fingerprint_is_of_the_text_and_not_of_how_it_was_read():
    one = fingerprint([["ab", "c"], ["d"]], [["e"]])
    assert one == fingerprint([["a", "bc"], ["d"]], [["e"]])
    others = [fingerprint([["abcd"]], [["e"]]), fingerprint([["ab"], ["cd"]], [["e"]]), fingerprint([["abc"], ["d"]])]
    assert len({one, *others}) == 4
