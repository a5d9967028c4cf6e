"""Records of norms, feature scaling, the feed-forward, residuals and words."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.norm import RMSNorm
from clearhead.trace import Trace
from clearhead_lab.examples.parts import (
    Compute,
    Statement,
    deviation,
    f64,
    fed,
    feed_forward,
    normed,
    residual,
)
from clearhead_lab.examples.records import Inputs


def over_batch(column: list[float], *, eps: float = 1e-12, weight: float = 1.0, bias: float = 0.0) -> Tensor:
    """One feature of a batch under PyTorch's BatchNorm, as in training."""
    norm = nn.BatchNorm1d(1, eps=eps).double()
    norm.weight.data.fill_(weight)
    norm.bias.data.fill_(bias)
    return norm(f64(column)[:, None]).flatten()


def statistics(column: list[float]) -> list[Tensor]:
    """Mean, variance and population deviation."""
    seen = normed([column])
    return [seen["mean"], deviation(seen) ** 2, deviation(seen)]


def given_statistics(i: Inputs) -> Tensor:
    """Rows normalised with the record's means and deviations in place of their own."""
    mean, std = (f64(i[name])[None, :, None] for name in ("mean", "std"))
    return normed(i["rows"], edit={"mean": mean, "rstd": 1 / (std + i["err"])})["out"]


def seeded_ffn(i: Inputs) -> Trace:
    """The second document's feed-forward of seeded matrices, on its input."""
    torch.manual_seed(i.get("seed", 42))
    up, down = torch.randn(16, 4) * 0.5, torch.randn(4, 16) * 0.5
    return fed([[1, -0.5, 0.8, 0.2]], up.mT, down.mT)


def _s0_46(i: Inputs) -> Statement:
    features = torch.cat([f64(i["f"]), torch.ones(5, 1, dtype=torch.float64)], 1)
    z = f64(i["z"])
    errors = (features @ torch.linalg.lstsq(features, z).solution - z).square().sum(0).tolist()
    return Statement(max(errors) < 1e-9, "squared errors " + ", ".join(f"{error:.2f}" for error in errors))


def _s0_52(i: Inputs) -> Statement:
    x = f64([[i["x"], -1.0]]).requires_grad_()
    slope = torch.autograd.grad(residual(x, lambda _: x.tanh())[0, 0], x)[0][0, 0].item()
    formula = 1 + 1 - math.tanh(i["x"]) ** 2
    return Statement(abs(slope - formula) < 1e-12, f"{slope:.6f} by autograd, {formula:.6f} by the formula")


def _s1_07b(i: Inputs) -> Any:
    post = seeded_ffn(i)["post"]
    return [(post > 0).sum(), (post == 0).sum(), 100 * (post == 0).double().mean()]


def _s3_20(i: Inputs) -> Any:
    seen = normed([i["x"]])
    return [deviation(seen), seen["out"][0, 0, i["x"].index(8)]]


def _s3_21(i: Inputs) -> Any:
    """The smallest j with all |x| / 10^j below 1."""
    return next(j for j in range(10) if max(map(abs, i["x"])) < 10**j)


def _s3_22(_: Inputs) -> Any:
    """Length of any vector x / |x|, which is RMSNorm(x) / sqrt(d)."""
    x = torch.randn(1, 1, 7, dtype=torch.float64)
    return (RMSNorm(7, eps=1e-12).double()(x) / math.sqrt(7)).norm()


def _s3_25(i: Inputs) -> Statement:
    row, column = normed([i["row"]])["out"].flatten()[0].item(), over_batch(i["z1"])[0].item()
    return Statement(abs(row - column) < 0.005, f"the 7 becomes {row:.3f} in its row, {column:.3f} in its column")


def _s3_26(_: Inputs) -> Any:
    """BatchNorm of one example, whose mean is itself (PyTorch's layer refuses it in training)."""
    return max(normed([[value]], eps=1e-5)["out"].abs().item() for value in (7.0, -3.0))


def _s3_27(_: Inputs) -> Statement:
    norm = nn.BatchNorm2d(3)
    norm(torch.randn(4, 3, 5, 5))
    assert norm.running_mean is not None
    n = norm.running_mean.numel()
    return Statement(n == 3 * 5 * 5, f"{n} means for 3 channels of 5 x 5 pixels")


def _s4_27(i: Inputs) -> Any:
    return residual(normed(i["Y"])["out"], feed_forward(f64(i["W"]), bias=f64(i["b"])), "post")


def minmax(x: float, low: float, high: float) -> float:
    """x on the scale from `low` = 0 to `high` = 1."""
    return (x - low) / (high - low)


COMPUTED: dict[str, Compute] = {
    "s0-43a": lambda i: statistics(i["x"])[:2],
    "s0-43b": lambda i: over_batch(i["x"], eps=i["eps"]),
    "s0-43c": lambda i: over_batch([7, 2, 5, 4], eps=1e-5, weight=i["gamma"], bias=i["beta"]),
    "s0-44a": lambda i: statistics(i["z1"]),
    "s0-44b": lambda i: statistics(i["z2"]),
    "s0-44c": lambda i: statistics(i["z3"]),
    "s0-45-1": lambda i: over_batch(i["z"]),
    "s0-45-2": lambda i: over_batch(i["z"]),
    "s0-45-3": lambda i: over_batch(i["z"]),
    "s0-46": _s0_46,
    "s0-47a": lambda i: statistics(i["x"])[:2],
    "s0-47b": lambda i: normed([i["x"]], eps=i["eps"])["out"],
    "s0-47c": lambda i: normed([i["x"]], eps=1e-5)["out"],
    "s0-52": _s0_52,
    "s1-07a": lambda i: seeded_ffn(i)["pre"][0, 0, :8],
    "s1-07b": _s1_07b,
    "s1-07c": lambda i: seeded_ffn(i)["out"],
    # What the listing prints: torch's own deviation, which divides by N - 1.
    "s1-09a": lambda i: [normed([i["x"]])["mean"], f64(i["x"]).std()],
    "s1-09b": lambda i: normed([i["x"]], eps=i["eps"])["out"],
    "s1-09c": lambda i: [(out := normed([i["x"]], eps=i["eps"])["out"]).mean(), out.std()],
    "s1-09d": lambda i: normed([i["x"]], eps=1e-6, weight=i["gamma"], bias=i["beta"])["out"],
    "s3-18": lambda i: minmax(i["x"], i["low"], i["high"]),
    "s3-19": lambda i: minmax(50, min(i["x"]), max(i["x"])),
    "s3-20": _s3_20,
    "s3-21": _s3_21,
    "s3-22": _s3_22,
    "s3-23": lambda i: (i["x"] - i["median"]) / i["iqr"],
    "s3-24": lambda i: [*statistics(i["z1"]), over_batch(i["z1"])[0]],
    "s3-25": _s3_25,
    "s3-26": _s3_26,
    "s3-27": _s3_27,
    "s4-18": lambda i: residual(f64(i["X"]), lambda _: f64(i["M"])),
    "s4-19a": lambda i: normed(i["rows"])["mean"],
    "s4-19b": lambda i: deviation(normed(i["rows"])),
    "s4-20a": given_statistics,
    "s4-20b": lambda i: normed(i["rows"])["out"],
    "s4-21": lambda i: fed(i["X"], f64(i["W"]))["pre"],
    "s4-22a": lambda i: fed(i["XW"], torch.eye(6, dtype=torch.float64), bias=f64(i["b"]))["pre"],
    "s4-22b": lambda i: fed(i["N"], f64(i["W"]), bias=f64(i["b"]))["pre"],
    "s4-23a": lambda i: fed(i["L"], torch.eye(6, dtype=torch.float64))["post"],
    "s4-23b": lambda i: (fed(i["N"], f64(i["W"]), bias=f64(i["b"]))["post"] == 0).sum(),
    "s4-24": lambda i: residual(f64(i["N"]), lambda _: f64(i["F"])),
    "s4-25a": lambda i: normed(i["rows"])["mean"],
    "s4-25b": lambda i: deviation(normed(i["rows"])),
    "s4-26a": given_statistics,
    "s4-26b": lambda i: normed(i["rows"])["out"],
    "s4-27": _s4_27,
}
