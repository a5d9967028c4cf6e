from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from clearhead.machine.precision import Arithmetic, accurate

SHAPES = [torch.Size((48, 32)), torch.Size((32, 48))]


def test_quicker_products_are_tried_only_where_they_are_accurate(monkeypatch):
    why = list[str]()
    wrong = SimpleNamespace(now="highest")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: wrong.now)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda kind: setattr(wrong, "now", kind))
    assert accurate(SHAPES, torch.device("cpu"), why) == ["highest", "medium"]
    assert not why
    plain = Tensor.__matmul__
    rounded = lambda a, b: plain(a.bfloat16(), b.bfloat16()).float() if wrong.now == "medium" else plain(a, b)  # noqa: E731
    monkeypatch.setattr(Tensor, "__matmul__", lambda a, b: rounded(a, b) if a.dtype == torch.float32 else plain(a, b))
    assert accurate(SHAPES, torch.device("cpu"), why) == ["highest"]
    assert "is not float32 here" in why[0]


def test_products_are_as_before_afterwards():
    def fail() -> None:
        with Arithmetic("fp32", "medium").products():
            assert torch.get_float32_matmul_precision() == "medium"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_float32_matmul_precision() == "highest"
