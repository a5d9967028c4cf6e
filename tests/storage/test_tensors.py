import pytest
import torch
from torch import nn

from clearhead.errors import UserError
from clearhead.storage.tensors import check_finite, model_tensors, restore


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5)
        self.head.weight = self.table.weight


def test_a_tied_tensor_is_held_once_and_restored_to_both_names():
    source, target = Tied(), Tied()
    tensors = model_tensors(source)
    assert "table.weight" in tensors
    assert "head.weight" not in tensors
    assert {"norm.running_mean", "norm.num_batches_tracked"} <= tensors.keys()
    restore(target, tensors)
    assert target.head.weight is target.table.weight
    assert all(
        torch.equal(a, b) for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("table.weight", None, "model.safetensors:table.weight: expected float32[5, 4], got no such tensor"),
        ("other", torch.zeros(2), "model.safetensors:other: expected no such tensor, got float32[2]"),
        ("table.weight", torch.zeros(4, 5), "expected float32[5, 4], got float32[4, 5]"),
        ("table.weight", torch.zeros(5, 4).half(), "expected float32[5, 4], got float16[5, 4]"),
    ],
)
def test_another_networks_tensors_are_refused_and_change_nothing(name, tensor, message):
    network = Tied()
    tensors = {n: torch.ones_like(t) for n, t in model_tensors(network).items()}
    before = {n: t.clone() for n, t in model_tensors(network).items()}
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(UserError) as caught:
        restore(network, tensors)
    assert message in str(caught.value)
    assert all(torch.equal(t, before[n]) for n, t in model_tensors(network).items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_the_first_that_is_not_finite_is_named(dtype: torch.dtype, bad: float):
    tensors = {name: torch.randn(3, 500_000).to(dtype) for name in "abc"} | {"ids": torch.arange(3)}
    check_finite(tensors, where="x")
    for name in "cb":
        tensors[name][2, -1] = bad
        with pytest.raises(UserError, match=f"^x:{name}: expected finite numbers, got NaN or infinity; try"):
            check_finite(tensors, where="x")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_large_numbers_are_finite(dtype: torch.dtype):
    large = torch.full((1100, 1000), torch.finfo(dtype).max, dtype=dtype)
    check_finite({"a": large, "transposed": large.mT, "scalar": large[0, 0], "none": large[:0]}, where="x")
    large[1, 1] = float("inf")
    large[1, 2] = -float("inf")
    with pytest.raises(UserError, match=r"^x:a\.mT: expected finite"):
        check_finite({"a.mT": large.mT}, where="x")
