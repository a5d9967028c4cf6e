"""y = x (W + s B A)^T + b: low-rank adapters on the linear maps of a network, whose own weights are frozen."""

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config.adapter import AdapterConfig, Bits
from clearhead.errors import UserError
from clearhead.model.fast.dropout import dropout
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.linear import LinearMap, effective_weight, is_plain
from clearhead.model.transformer import Transformer

WORDS = {"attention": ("attn.*", "cross.*"), "feedforward": ("ffn.*",), "all": ("*",)}
"""The patterns that a word stands for."""


class Adapter(LinearMap):
    """y = x (W + s B A)^T + b, with W of any kind, A of rank r and B zero at first   (Hu et al. 2021, LoRA, 4.1)

    With a magnitude m, each row of the sum is scaled to the length m, which is learned
    (Liu et al. 2024, DoRA, equation 5). The length of a row counts as a constant in the backward pass (their 4.3).
    """

    def __init__(
        self,
        linear: nn.Linear | LinearMap,
        *,
        rank: int,
        alpha: float,
        dropout: float = 0.0,
        rslora: bool = False,
        dora: bool = False,
    ) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.rank, self.alpha, self.rslora, self.dropout = rank, alpha, rslora, dropout
        self.base: nn.Linear | LinearMap = without_bias(linear)
        weight = effective_weight(linear)
        self.down = nn.Parameter(weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(weight.new_zeros(linear.out_features, rank))
        self.magnitude = nn.Parameter(weight.detach().norm(dim=1)) if dora else None
        if not self.down.is_meta:
            nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def scale(self) -> float:
        """The factor s of the change."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def change(self) -> Tensor:
        """f d: s B A."""
        return self.scale * (self.up @ self.down)

    def effective_weight(self) -> Tensor:
        weight = effective_weight(self.base) + self.change()
        return weight if self.magnitude is None else (self.magnitude / weight.norm(dim=1))[:, None] * weight

    def forward(self, x: Tensor) -> Tensor:
        read = dropout(x, self.dropout, self.training)
        if self.magnitude is None:
            return self.base(x) + F.linear(F.linear(read, self.down), self.scale * self.up, self.bias)
        factor = self.magnitude / (effective_weight(self.base) + self.change()).detach().norm(dim=1)
        changed = F.linear(F.linear(read, self.down), self.scale * self.up)
        y = factor * (self.base(read) + changed)
        if read is not x:  # Dropout is of the change alone.
            y = y + self.base(x) - self.base(read)
        return y if self.bias is None else y + self.bias


def without_bias(linear: nn.Linear | LinearMap) -> nn.Linear | LinearMap:
    """The map without its bias. A plain map is copied and shares the parameter; any other loses its bias."""
    if linear.bias is None:
        return linear
    if isinstance(linear, LinearMap):
        linear.bias = None
        return linear
    made = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    made.weight = linear.weight
    return made


def linears(network: Transformer) -> dict[str, nn.Linear]:
    """The plain linear maps inside blocks, by address."""
    found = {name: module for name, module in network.named_modules() if ".blocks." in name}
    return {name: module for name, module in found.items() if isinstance(module, nn.Linear) and is_plain(module)}


def chosen(network: Transformer, targets: tuple[str, ...]) -> dict[str, nn.Linear]:
    """The linear maps that the targets name. Raises UserError for a target that names none."""
    there = linears(network)
    found: set[str] = set()
    for target in targets:
        patterns = WORDS.get(target, (target,))
        fits = {name for name in there for p in patterns if fnmatchcase(name, p) or fnmatchcase(name, f"*.{p}")}
        if not fits:
            known = sorted({name.split(".blocks.")[1].split(".", 1)[1] for name in there})
            raise UserError(
                f"adapter.targets: expected {', '.join(WORDS)}, or a pattern of addresses such as {', '.join(known)},"
                f" got {target!r}; try all"
            )
        found |= fits
    return {name: linear for name, linear in there.items() if name in found}


def adapt(network: Transformer, config: AdapterConfig) -> Transformer:
    """Puts adapters on the targets, in place, and freezes all else but the head of the task; returns the network.

    A language head stays frozen. Raises UserError for a target that the network does not have.
    """
    for stack in network.config.stacks.values():
        if stack.repeats > 1:
            raise UserError(
                f"adapter: expected blocks with weights of their own, got n_groups={stack.n_groups} for"
                f" {stack.n_layers} blocks; train the whole network"
            )
    targets = chosen(network, config.targets)
    if config.bits is not None:
        round_blocks(network, config.bits)
    for name in targets:
        base = network.get_submodule(name)
        assert isinstance(base, nn.Linear | LinearMap)
        made = Adapter(
            base,
            rank=config.rank,
            alpha=config.alpha,
            dropout=config.dropout,
            rslora=config.rslora,
            dora=config.kind == "dora",
        )
        network.set_submodule(name, made.train(base.training))
    return freeze(network)


def round_blocks(network: Transformer, bits: Bits) -> None:
    """Rounds the plain linear maps inside blocks, in place."""
    for name, linear in linears(network).items():
        network.set_submodule(name, GroupedLinear(linear, bits).train(linear.training))


def freeze(network: Transformer) -> Transformer:
    """Leaves only adapters and the head of a task to be trained."""
    network.requires_grad_(False)
    if not network.config.predicts_tokens:
        network.head.requires_grad_(True)
    for _, adapter in adapters(network):
        for parameter in (adapter.down, adapter.up, adapter.magnitude):
            if parameter is not None:
                parameter.requires_grad_(True)
    return network


def adapters(network: nn.Module) -> Iterator[tuple[str, Adapter]]:
    """The adapters of a network, by address."""
    return ((name, module) for name, module in network.named_modules() if isinstance(module, Adapter))
