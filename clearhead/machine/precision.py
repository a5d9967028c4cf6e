"""The arithmetic of a machine: how it multiplies float32 matrices, how exactly, and how fast."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock

import torch

from clearhead.randomness import key
from clearhead.recipe.training import MatmulPrecision

ROUNDING = 1e-6
"""A product counts as float32's up to this relative error, or up to twice the default's if that is larger."""
_precisions: list[list[str]] = []
"""The precision before all open blocks of `Arithmetic.products`, and theirs."""
_lock = Lock()
ROWS = 128
COLUMNS = 512


@dataclass(frozen=True)
class Arithmetic:
    """The number formats of a training step."""

    precision: str
    """fp32, or bf16: products in bfloat16 by autocast, weights and sums in float32."""
    matmul: MatmulPrecision = "highest"
    """PyTorch's float32_matmul_precision."""

    def __str__(self) -> str:
        return self.precision if self.precision == "bf16" or self.matmul == "highest" else f"fp32 ({self.matmul})"

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """For a forward pass."""
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    @contextmanager
    def products(self) -> Iterator[None]:
        """Set the precision of float32 products in the whole process.

        Of blocks that several threads are in, the last that was entered counts, and the last that is left restores
        what was before the first.
        """
        own: list[str] = [self.matmul]
        with _lock:
            if not _precisions:
                _precisions.append([torch.get_float32_matmul_precision()])
            _precisions.append(own)
            torch.set_float32_matmul_precision(self.matmul)
        try:
            yield
        finally:
            with _lock:
                _precisions[:] = [one for one in _precisions if one is not own]
                torch.set_float32_matmul_precision(_precisions[-1][0])
                if len(_precisions) == 1:
                    _precisions.clear()


def accurate(shapes: Iterable[torch.Size], device: torch.device, why: list[str]) -> list[MatmulPrecision]:
    """`highest`, and `medium` if products with matrices of these shapes then have float32's accuracy too.

    On CPUs without matrix units, `medium` lets oneDNN choose a faster float32 kernel. On other CPUs it is bfloat16,
    whose error is a thousand times larger. Appends a reason to `why` if `medium` is not accurate.
    """
    errors: dict[MatmulPrecision, float] = {"highest": 0.0, "medium": 0.0}
    for out, width in sorted(set(shapes), key=lambda shape: -shape.numel())[:4]:
        draw = torch.Generator().manual_seed(key("probe", out, width))
        a = torch.randn(ROWS, width, generator=draw).to(device)
        b = torch.randn(width, min(out, COLUMNS), generator=draw).to(device)
        exact = a.double() @ b.double() if device.type != "mps" else (a.cpu().double() @ b.cpu().double()).to(device)
        for kind, worst in errors.items():
            with Arithmetic("fp32", kind).products():
                error = float((a @ b - exact).norm() / exact.norm())
            errors[kind] = max(worst, error)
    if errors["medium"] <= max(2 * errors["highest"], ROUNDING):
        return ["highest", "medium"]
    why.append(f"fp32 (medium) is not float32 here: error {errors['medium']:.1e} against {errors['highest']:.1e}")
    return ["highest"]


def timed(run: Callable[[], object], device: torch.device) -> float:
    """The seconds that `run` takes on the device."""
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Wait until the device has finished its queued work, so that a clock measures only what follows."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
