import pytest
import torch

from clearhead.analysis.geometry import neighbours, plane, token_table
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


@pytest.mark.parametrize("n", [4, 50])
def test_a_planar_set_is_found_again(n: int):
    generator = torch.Generator().manual_seed(n)
    flat = torch.randn(n, 2, generator=generator) * torch.tensor([3.0, 1.0])
    basis = torch.linalg.qr(torch.randn(9, 2, generator=generator)).Q.mT
    vectors = flat @ basis + torch.randn(9, generator=generator)
    found = plane(vectors)
    apart, expected = ((x[:, None] - x).norm(dim=-1) for x in (found.points, flat))
    small.assert_close(apart, expected)
    torch.testing.assert_close(found.points @ found.axes + found.centre, vectors, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.shares.sum(), torch.tensor(1.0))
    assert found.shares[0] >= found.shares[1]
    torch.testing.assert_close(found.project(vectors), found.points, atol=1e-5, rtol=1e-5)


def test_shares_are_those_of_the_covariance_and_signs_are_fixed():
    vectors = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
    found, mirrored = plane(vectors), plane(vectors.flip(0))
    eigenvalues = torch.linalg.eigvalsh(vectors.T.cov()).flip(0)
    torch.testing.assert_close(found.shares, (eigenvalues / eigenvalues.sum())[:2])
    torch.testing.assert_close(found.points, mirrored.points.flip(0), atol=1e-5, rtol=1e-5)
    assert all(axis[axis.abs().argmax()] > 0 for axis in found.axes)


@pytest.mark.parametrize("vectors", [torch.ones(1, 4), torch.ones(5, 4), torch.arange(12.0).view(12, 1)])
def test_less_than_a_plane(vectors: torch.Tensor):
    found = plane(vectors)
    assert found.points.shape == (len(vectors), 2)
    assert found.points[:, 1].tolist() == [0] * len(vectors)
    assert torch.isfinite(found.shares).all()
    assert found.shares[1] == 0


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
        (lambda: plane(torch.ones(3)), "n d"),
    ):
        with pytest.raises(UserError, match=message):
            call()
