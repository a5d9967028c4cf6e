"""Grids of tokens: padding, packing and the positions they imply."""

import pytest
import torch

from clearhead.errors import UserError
from clearhead.model import Layout, Tokens


def test_pad_right_left_and_packed() -> None:
    right, left = Tokens.pad([[1, 2], [3]], fill=9), Tokens.pad([[1, 2], [3]], fill=9, left=True)
    assert right.ids.tolist() == [[1, 2], [3, 9]]
    assert left.ids.tolist() == [[1, 2], [9, 3]]
    assert right.valid is not None
    assert right.valid.tolist() == [[True, True], [True, False]]
    packed = Tokens.pad([[1, 2], [3]], packed=True)
    assert packed.rows is not None
    assert packed.rows.tolist() == [0, 1, 2]
    assert packed.padded().rows is None


def test_a_full_grid_needs_no_mask() -> None:
    assert Tokens.pad([[1, 2], [3, 4]], packed=True).valid is None


@pytest.mark.parametrize("sequences", [[], [[1], []]])
def test_empty_sequences_are_refused(sequences: list[list[int]]) -> None:
    with pytest.raises(UserError, match="at least one token"):
        Tokens.pad(sequences)


def test_positions_count_real_cells() -> None:
    assert Layout.of(Tokens.pad([[1, 2, 3], [4]], left=True)).positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    given = torch.tensor([[5, 6]])
    assert Layout.of(Tokens(torch.tensor([[1, 2]]), positions=given)).positions is given


def test_pack_and_unpack_are_inverse_on_real_cells() -> None:
    tokens = Tokens.pad([[1, 2, 3], [4], [5, 6]], packed=True)
    layout = Layout.of(tokens)
    grid = torch.randn(3, 3, 4)
    stored = layout.pack(grid)
    assert stored.shape == (6, 4)
    assert torch.equal(stored, tokens.real(grid))
    back = layout.unpack(stored)
    assert tokens.valid is not None
    assert torch.equal(back[tokens.valid], stored)
    assert back[~tokens.valid].abs().max() == 0


def test_to_moves_every_tensor() -> None:
    tokens = Tokens.pad([[1, 2, 3], [4]], packed=True).to("meta")
    moved = (tokens.ids, tokens.valid, tokens.rows)
    assert all(value is not None and value.device.type == "meta" for value in moved)
