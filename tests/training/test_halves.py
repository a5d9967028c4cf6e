"""Matrices that are copied together learn what matrices learn that autocast copies one by one."""

import pytest
import torch
from torch import Tensor

from clearhead.training import halves
from clearhead.training.halves import Halves
from clearhead.training.run import Run
from clearhead.training.train import train
from tests.training.tiny import losses, new_run, translation


def learnt(*, copies: bool, **settings: object) -> tuple[Run, dict[int, str]]:
    run = new_run(translation(), precision="bf16", steps=6, **settings)
    run.halves = run.halves if copies else None
    return run, losses(train(run))


@pytest.mark.parametrize(
    "settings", [{}, {"accumulate": 2}, {"checkpoint_activations": True}, {"freeze": ["encoder"]}, {"ema": 0.9}]
)
def test_copies_made_together_learn_the_same(settings: dict[str, object]):
    """To the bit, also of several batches, and where a part does not learn."""
    (run, found), (other, expected) = learnt(copies=True, **settings), learnt(copies=False, **settings)
    assert run.halves is not None
    assert run.halves.n_copied > 1000
    assert found == expected
    torch.testing.assert_close(run.model.state_dict(), other.model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(run.optimizer.state_tensors(), other.optimizer.state_tensors(), rtol=0, atol=0)
    assert all(type(p) is torch.nn.Parameter for p in run.network.parameters())


def test_weights_of_a_pass_that_fails_are_there_again(monkeypatch: pytest.MonkeyPatch):
    run = new_run(translation(), precision="bf16", steps=1)
    before: dict[str, Tensor] = dict(run.network.named_parameters())

    def fails() -> None:
        with Halves(run.network).used():
            assert any(p.dtype == torch.bfloat16 for p in run.network.parameters())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert all(p is before[name] for name, p in run.network.named_parameters())
    monkeypatch.setattr(halves, "MOST", 100)
    with (large := Halves(run.network)).used():
        assert large.n_copied == 0
        assert all(p is before[name] for name, p in run.network.named_parameters())
