import pytest
import torch

from clearhead.analysis.geometry import neighbours, token_table
from clearhead.errors import UserError
from tests.analysis.kinds import CASES
from tests.model import small

TABLE = torch.tensor([[1.0, 0.0], [2.0, 0.2], [0.0, 3.0], [-1.0, 0.0], [5.0, 5.0], [0.0, 0.0]])


def test_neighbours_are_ranked_by_angle_alone():
    found = neighbours(TABLE, 0, k=3)
    assert found.ids.tolist() == [1, 4, 2] or found.ids.tolist() == [1, 4, 5], "itself is none; 2 and 5 are equally far"
    torch.testing.assert_close(found.cosines[1], torch.tensor(0.5**0.5))
    by_vector = neighbours(TABLE, torch.tensor([7.0, 0.0]), k=2)
    assert by_vector.ids.tolist() == [0, 1]
    assert neighbours(TABLE, torch.tensor([7.0, 0.0]), k=2, exclude=(0,)).ids.tolist() == [1, 4]
    assert len(neighbours(TABLE, 2, k=99).ids) == len(TABLE) - 1


def test_either_stack():
    network, _ = CASES["encoder_decoder"]()
    assert token_table(network, "encoder").shape == (small.VOCAB, 16)


def test_refusals():
    network, _ = CASES["pictures"]()
    for call, message in (
        (lambda: token_table(network), "reads images"),
        (lambda: token_table(network, "decoder"), "stack 'decoder': expected encoder"),
        (lambda: neighbours(TABLE, 6), "below 6"),
        (lambda: neighbours(TABLE, -1), "below 6"),
        (lambda: neighbours(TABLE, torch.ones(3)), "vector of 2 numbers"),
    ):
        with pytest.raises(UserError, match=message):
            call()
