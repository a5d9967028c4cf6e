"""What is written comes back, from memory as from files, and a file that is not as it was written is none."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.sequences import Sequences, Shelf, largest_of, lengths_of, open_sequences
from clearhead.errors import UserError

SEQUENCES = st.lists(st.lists(st.integers(0, 70_000), max_size=5), max_size=8)


def on_disk(folder: Path, sequences: list[list[int]], vocab_size: int) -> Sequences:
    shelf = Shelf(folder)
    shelf.writer("x", vocab_size).add(sequences)
    found = open_sequences(folder, "x", shelf.on_disk()["x"])
    assert found is not None
    return found


@given(sequences=SEQUENCES)
def test_what_is_written_comes_back(tmp_path_factory, sequences: list[list[int]]):
    shelf = Shelf()
    shelf.writer("x", 70_001).add(sequences)
    stored = on_disk(tmp_path_factory.mktemp("x"), sequences, 70_001)
    for found in (Sequences.of(sequences), shelf.in_memory()["x"], stored):
        assert found == sequences
        assert largest_of(found) == largest_of(sequences) == max((max(s) for s in sequences if s), default=-1)
        assert lengths_of(found).tolist() == lengths_of(sequences).tolist() == [len(s) for s in sequences]


def test_a_sequence_may_go_on(tmp_path):
    shelf = Shelf()
    writer = shelf.writer("x", 9)
    writer.add([[1], [2, 3]])
    writer.add([[4], [5]], continued=True)
    writer.add([[6]], continued=True)
    found = shelf.in_memory()["x"]
    assert found == [[1], [2, 3, 4], [5, 6]]
    assert found.read(1, 1, 3).tolist() == [3, 4]
    assert found[-1] == [5, 6]


@pytest.mark.parametrize("parts", [[[9, 1], [2]], [[2], [9, 1]], [[1], [], [9], []]])
def test_the_largest_id_is_that_of_all_parts(tmp_path, parts: list[list[int]]):
    shelf = Shelf()
    writer = shelf.writer("x", 10)
    for part in parts:
        writer.add([part])
    assert writer.described().largest == largest_of(shelf.in_memory()["x"]) == 9


@pytest.mark.parametrize(("vocab_size", "n_bytes"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_ids_take_the_bytes_they_need(tmp_path, vocab_size: int, n_bytes: int):
    found = on_disk(tmp_path, [[vocab_size - 1]], vocab_size)
    assert found[0] == [vocab_size - 1]
    assert (tmp_path / "x.ids").stat().st_size == n_bytes


def test_lengths_of_other_ids_are_none(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.writer("x", 9).add([[1, 2], [3]])
    described = shelf.on_disk()["x"]
    np.array([1, 1], "<i8").tofile(tmp_path / "x.lengths")
    assert open_sequences(tmp_path, "x", described) is None


def test_a_file_cut_while_it_is_read_is_one_line(tmp_path):
    found = on_disk(tmp_path, [list(range(100))], 100)
    os.truncate(tmp_path / "x.ids", 20)
    assert found.read(0, 0, 10).tolist() == list(range(10))
    with pytest.raises(UserError, match=r"x\.ids: expected 100 token ids, got fewer"):
        found.read(0, 5, 15)
