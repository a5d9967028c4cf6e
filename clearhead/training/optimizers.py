"""Optimizers: which parameters get which rule, their learning rates, and their state by parameter name."""

import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.recipe import training as recipe
from clearhead.storage.tensors import check_tensors
from clearhead.training.rows import Whole
from clearhead.training.sharding import is_part, part, scale, whole
from clearhead.training.update_rules import RoundedAdamW, Rounding

ParameterRole = Literal["hidden", "matrix", "plain"]

_MAX_BATCH = 1 << 22
"""Numbers that are orthogonalised at once. A larger matrix keeps the hardware busy alone."""


def roles(network: nn.Module) -> dict[str, ParameterRole]:
    """The role of each trainable parameter, by name. A tied parameter appears once, under its first name.

    hidden: the weight of a linear map inside a block, which Muon may take. matrix: any other weight of two or
    more axes, such as an untied head; both are decayed. plain: biases, norms, and everything below a module
    named `embed` or of type `nn.Embedding`, so a head tied to an embedding too; never decayed.
    """
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    linear = {id(m.weight) for m in network.modules() if isinstance(m, nn.Linear)}
    found: dict[str, ParameterRole] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        path = name.split(".")
        if parameter.ndim < 2 or id(parameter) in tables or "embed" in path:
            found[name] = "plain"
        else:
            inside = id(parameter) in linear and path[0] != "head"
            found[name] = "hidden" if inside else "matrix"
    return found


class Muon(torch.optim.Optimizer):
    """m <- μm + (1-μ)g;  W <- (1 - lr λ) W - lr 0.2 sqrt(max(W's axes)) orthogonal(μm + (1-μ)g)

    Jordan 2024 with Nesterov momentum, scaled to the root mean square of an AdamW update (Liu et al. 2025,
    2.2): the same numbers as `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` up to bfloat16. Written here
    because that one takes matrices one by one and always in bfloat16. Batched by shape, a step of 24 matrices
    of width 64 takes a third of its time on a CPU with bfloat16 instructions, the same at width 256; on a CPU
    without them float32 takes a fifteenth.
    """

    def __init__(
        self, groups: list[dict[str, Any]], *, lr: float, momentum: float, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        """Updates every parameter that has a gradient."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            for p in weights:
                if not self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            for rows in _batches(weights):
                self._step([weights[i] for i in rows], group)

    def _step(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Updates matrices of one shape together, in float32 whatever their own type."""
        kept = [self.state[w]["momentum_buffer"] for w in weights]
        gradients, momenta = [_full(w.grad) for w in weights if w.grad is not None], [_full(m) for m in kept]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])
        wide = torch.stack([_wide(whole(update)).to(self.dtype or fast_dtype(update.device)) for update in updates])
        exact = [_full(w) for w in weights]
        if group["weight_decay"]:
            torch._foreach_mul_(exact, 1 - group["lr"] * group["weight_decay"])
        rate = -0.2 * group["lr"] * math.sqrt(wide.shape[-1])
        directions = orthogonalize(wide).to(exact[0].dtype).mul_(rate).unbind()
        turned = [d if w.shape == d.shape else d.mT for w, d in zip(weights, directions, strict=True)]
        torch._foreach_add_(exact, [part(d, like=w) for w, d in zip(weights, turned, strict=True)])
        if exact[0] is not weights[0]:
            rounding = Rounding(exact[0].device)
            for half, full in zip([*weights, *kept], [*exact, *momenta], strict=True):
                rounding.store(half, full)


def orthogonalize(matrices: Tensor) -> Tensor:
    """U S' V^T for U S V^T, with S' near 1: a quintic Newton-Schulz iteration (Jordan 2024).

    x <- a x + (b A + c A A) x, A = x x^T, with a, b, c = 3.4445, -4.7750, 2.0315, whose slope at 0 is so
    steep that five steps bring all but tiny singular values into about [0.7, 1.2]. Shape [n, rows, columns]
    with rows <= columns.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / matrices.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 if the hardware has instructions for it, otherwise float32: emulation is 20 times slower."""
    match device.type:
        case "cuda":
            able = torch.cuda.is_bf16_supported(including_emulation=False)
        case "cpu":
            capabilities = torch.cpu.get_capabilities()
            able = any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
        case _:
            able = False
    return torch.bfloat16 if able else torch.float32


class Optimizers:
    """The optimizers of one network, which step together, with their state by parameter name.

    Learning rates are not state: call `set_lr(factor)` before each step.
    """

    def __init__(self, parts: Mapping[str, torch.optim.Optimizer], names: Mapping[nn.Parameter, str]) -> None:
        self._parts = dict(parts)
        self._names = dict(names)
        self._whole = Whole()
        self._peaks = [(group, float(group["lr"])) for o in self._parts.values() for group in o.param_groups]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that is trained, for clipping."""
        return list(self._names)

    def set_lr(self, factor: float) -> None:
        """Sets every learning rate to its peak times `factor`."""
        for group, peak in self._peaks:
            group["lr"] = peak * factor

    def step(self, *, factor: float = 1.0) -> None:
        """Updates the parameters from their gradients times `factor`."""
        with self._whole.of(self._names):
            for optimizer in self._parts.values():
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                if optimizer.defaults.get("fused") and all(_divides(p) for p in parameters):
                    # Its kernel divides by this number what it reads anyway.
                    optimizer.grad_scale = None if factor == 1.0 else torch.tensor(1 / factor)  # pyrefly: ignore[missing-attribute]
                else:
                    scale(parameters, factor)
                take_step(optimizer)

    def zero_grad(self) -> None:
        """Frees the gradients."""
        for optimizer in self._parts.values():
            optimizer.zero_grad(set_to_none=True)

    def allocate(self) -> None:
        """Allocates the missing state at once, so that it is contiguous in memory.

        The first step would allocate it in the gaps between temporary tensors.
        """
        for s in self._slots():
            if s.key not in s.state:
                s.state[s.key] = s.fresh()

    def state_tensors(self) -> dict[str, Tensor]:
        """Live tensors of state by name, such as `adamw.decoder.blocks.0.attn.q.weight.exp_avg`.

        A parameter without a step yet has the zeros it would start from, so the names are always
        the same.
        """
        return {s.name: s.state[s.key] if s.key in s.state else s.fresh() for s in self._slots()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor], *, where: str = "optimizer") -> None:
        """Restores the exact state from `state_tensors()`. Errors name its file as `where`.

        Raises UserError, before any change, for a missing, an unknown or a misshapen tensor.
        """
        slots = list(self._slots())
        check_tensors(tensors, {s.name: s.like for s in slots}, where=where)
        for s in slots:
            # A copy, because the optimizers update in place and must not change the caller's tensors.
            s.state[s.key] = tensors[s.name].detach().to(device=s.device, copy=True)

    def _slots(self) -> Iterator["_Slot"]:
        for kind, optimizer in self._parts.items():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    where = f"{kind}.{self._names[p]}"
                    dtype = torch.bfloat16 if kind == "adamw16" else p.dtype
                    like = torch.empty_like(p, dtype=dtype, device="meta", requires_grad=False)
                    for key in ("momentum_buffer",) if kind == "muon" else ("exp_avg", "exp_avg_sq"):
                        yield _Slot(f"{where}.{key}", optimizer.state[p], key, like, p.device)
                    if kind != "muon":
                        # The fused AdamW counts its steps on the device, the others on the CPU.
                        device = p.device if group.get("fused", True) else torch.device("cpu")
                        count = torch.empty((), dtype=torch.float32, device="meta")
                        yield _Slot(f"{where}.step", optimizer.state[p], "step", count, device)


@dataclass(frozen=True)
class _Slot:
    """One tensor of an optimizer's state: the table that holds it, and its shape on the meta device."""

    name: str
    state: dict[str, Tensor]
    key: str
    like: Tensor
    device: torch.device

    def fresh(self) -> Tensor:
        if is_part(self.like):
            return torch.zeros_like(self.like, device=self.device)
        # The same, strides too. To leave the meta device, zeros_like imports a library for symbols, a second's work.
        return self.like.new_empty_strided(self.like.shape, self.like.stride(), device=self.device).zero_()


def build(network: nn.Module, config: recipe.Optimizer) -> Optimizers:
    """The optimizers that `config` asks for, over the trainable parameters of `network` (see `roles`).

    Of bfloat16 weights, parameters of two or more axes go to our AdamW, which keeps its state in bfloat16.
    """
    names = {p: name for name, p in network.named_parameters() if p.requires_grad}
    if not names:
        raise UserError("optimizer: expected a parameter to train, got a network whose every parameter is frozen")
    role, muon = roles(network), config if isinstance(config, recipe.Muon) else None
    rounded = any(p.dtype == torch.bfloat16 for p in names)
    groups: dict[str, dict[float, list[nn.Parameter]]] = {"muon": {}, "adamw": {}, "adamw16": {}}
    for p, name in names.items():
        kind = "muon" if muon and role[name] == "hidden" else "adamw16" if rounded and p.ndim >= 2 else "adamw"
        decay = 0.0 if role[name] == "plain" else config.weight_decay
        groups[kind].setdefault(decay, []).append(p)
    settings: dict[str, Any] = {"lr": muon.adamw_lr if muon else config.lr}
    settings |= {"betas": config.betas, "eps": config.eps}
    spare_compiler()
    parts: dict[str, torch.optim.Optimizer] = {}
    for kind, by_decay in groups.items():
        given: list[dict[str, Any]] = [{"params": some, "weight_decay": decay} for decay, some in by_decay.items()]
        if not given:
            continue
        if muon and kind == "muon":
            dtype = {"auto": None, "bfloat16": torch.bfloat16, "float32": torch.float32}[muon.precision]
            parts[kind] = Muon(given, lr=muon.lr, momentum=muon.momentum, dtype=dtype)
        elif kind == "adamw":
            able = all(p.device.type in {"cpu", "cuda"} and p.is_floating_point() for p in names)
            parts[kind] = torch.optim.AdamW(given, fused=config.fused and able, **settings)
        else:
            parts[kind] = RoundedAdamW(given, **settings)
    return Optimizers(parts, names)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.step()` without the wrappers around it, which import PyTorch's compiler."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def spare_compiler() -> None:
    """Lets optimizers be made without PyTorch's compiler, whose import takes seconds.

    Some of their methods import it to ask it not to compile them (`torch._compile._disable_dynamo`). Where nothing has
    imported it, nothing is compiled.
    """
    for method in vars(torch.optim.Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and "torch._dynamo" not in sys.modules and "__dynamo_disable" not in vars(plain):
            plain.__dynamo_disable = plain


def _divides(parameter: nn.Parameter) -> bool:
    """Returns True if PyTorch's fused AdamW divides gradients of this parameter by a number without loss."""
    return parameter.device.type == "cpu" and parameter.dtype == torch.float32 and not is_part(parameter)


def _full(tensor: Tensor) -> Tensor:
    """The tensor, or a float32 copy of a bfloat16 one."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _batches(weights: list[nn.Parameter]) -> list[list[int]]:
    """Groups of indices of matrices that are updated together: of one shape up to transposition, of limited size."""
    groups: dict[tuple[int, int, torch.dtype, torch.device], list[int]] = {}
    for i, w in enumerate(weights):
        groups.setdefault((min(w.shape), max(w.shape), w.dtype, w.device), []).append(i)
    batches: list[list[int]] = []
    for (short, long, _, _), indices in groups.items():
        n = max(1, _MAX_BATCH // (short * long))
        batches += [indices[i : i + n] for i in range(0, len(indices), n)]
    return batches


def _wide(matrix: Tensor) -> Tensor:
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
