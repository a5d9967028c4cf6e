"""Grids of tokens: padding, packing and the positions they imply."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens
from clearhead.model.layout import round_up


def test_pad_right_left_and_packed():
    right, left = Tokens.pad([[1, 2], [3]], fill=9), Tokens.pad([[1, 2], [3]], fill=9, left=True)
    assert right.ids.tolist() == [[1, 2], [3, 9]]
    assert left.ids.tolist() == [[1, 2], [9, 3]]
    assert right.valid is not None
    assert right.valid.tolist() == [[True, True], [True, False]]
    packed = Tokens.pad([[1, 2], [3]], packed=True)
    assert packed.rows is not None
    assert packed.rows.tolist() == [0, 1, 2]
    assert packed.padded().rows is None


@pytest.mark.parametrize("left", [False, True])
def test_ids_of_any_kind_of_sequence_are_padded_alike(left: bool):
    expected = Tokens.pad([[1, 2, 3], [4]], fill=9, left=left)
    kinds: list[Any] = [(1, 2, 3), torch.tensor([1, 2, 3], dtype=torch.int32), np.array([1, 2, 3])]
    for sequences in ([one, [4]] for one in kinds):
        got = Tokens.pad(sequences, fill=9, left=left)
        assert torch.equal(got.ids, expected.ids)
        assert got.ids.dtype == torch.int64
        assert got.valid is not None
        assert expected.valid is not None
        assert torch.equal(got.valid, expected.valid)


@pytest.mark.parametrize("wrong", [[True, False], [1, 2.0], [2**70], ["a"], [[2]]])
def test_the_sequence_that_is_wrong_is_named(wrong: list[int]):
    with pytest.raises(UserError, match=re.escape(f"expected ids, whole numbers, got {brief(wrong)}")):
        Tokens.pad([[1, 2], wrong])


def test_a_full_grid_needs_no_mask():
    assert Tokens.pad([[1, 2], [3, 4]], packed=True).valid is None


@pytest.mark.parametrize("sequences", [[], [[1], []]])
def test_empty_sequences_are_refused(sequences: list[list[int]]):
    with pytest.raises(UserError, match="at least one token"):
        Tokens.pad(sequences)


def test_positions_count_real_cells():
    assert Layout.of(Tokens.pad([[1, 2, 3], [4]], left=True)).positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    given = torch.tensor([[5, 6]])
    assert Layout.of(Tokens(torch.tensor([[1, 2]]), positions=given)).positions is given


@pytest.mark.parametrize("lengths", [(3, 1, 2), (3, 3, 3), (16,), (8, 5), (5, 12)])
def test_pack_and_unpack_are_inverse_on_real_cells(lengths: tuple[int, ...]):
    """Also where the grid is full; what is stored has a round number of rows."""
    tokens = Tokens.pad([[1] * length for length in lengths], packed=True)
    layout, grid = Layout.of(tokens), torch.randn(len(lengths), max(lengths), 4, requires_grad=True)
    stored = layout.pack(grid)
    assert len(stored) == (16 if sum(lengths) <= 16 else 32)
    assert torch.equal(layout.trim(stored), tokens.real(grid))
    back = layout.unpack(stored)
    valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    assert torch.equal(back[valid], grid[valid])
    assert not back[~valid].any()
    (gradient,) = torch.autograd.grad((2 * back).sum() + stored[sum(lengths) :].sum(), grid)
    assert torch.equal(gradient, 2.0 * valid[..., None].expand_as(grid))


@given(st.integers(1, 100_000))
def test_few_numbers_of_rows_exist(n: int):
    """Each kind of product is a kernel of its own, so a batch is rounded up: by 16 at most, or by a sixteenth."""
    rounded = round_up(n)
    assert n <= rounded < n + max(16, n / 16 + 1)
    assert round_up(rounded) == rounded
    assert rounded % 16 == 0
    assert len(f"{rounded:b}".rstrip("0")) <= 5


def test_to_moves_every_tensor():
    tokens = Tokens.pad([[1, 2, 3], [4]], packed=True).to("meta")
    moved = (tokens.ids, tokens.valid, tokens.rows)
    assert all(value is not None and value.device.type == "meta" for value in moved)
