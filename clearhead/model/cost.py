"""What each component costs on one sequence: FLOPs, numbers kept for the backward pass, numbers cached.

All of it follows from the network's ops by their kinds (`model/ops.py`): they are evaluated once on tensors without
memory, in float32 and as autocast would, and what autograd would save is added up, each tensor once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from clearhead.config import NoHead, PatchInput
from clearhead.model import attention
from clearhead.model.norm import LayerNorm, RMSNorm
from clearhead.model.ops import KINDS, Call, Steps
from clearhead.model.transformer import Stack, Transformer

MEMORY, STATES = "memory", "states"
"""Components that are no modules: the encoder's last states, which every block of the decoder reads; the states that a
network without a head says."""


@dataclass(frozen=True)
class Cost:
    """Of one instance of a component, for one sequence."""

    flops: int = 0
    """2 for each multiply and add of a matrix product."""
    kept: int = 0
    """Numbers that the backward pass needs, in float32."""
    mixed: int = 0
    """Bytes that it needs under bfloat16 autocast, where every linear layer keeps its own copy of what it reads."""
    cached: int = 0
    """Keys and values that generating the next token needs."""


@dataclass(frozen=True)
class Component:
    """`count` equal instances of one module or parameter."""

    component: str
    path: str
    """Where the instances are, `*` for the number of the block."""
    first: str
    """Where the first one is."""
    length: int
    """Positions of its stack."""
    cost: Cost = Cost()
    count: int = 1


def parts(network: Transformer, source: int, target: int, *, explicit: bool | None = None) -> list[Component]:
    """Every component in order of computation, on a source and a target of these lengths.

    `explicit`: how attention is computed; default: as on a CPU.
    """
    lengths = {"encoder": source, "decoder": target}
    found = list(_components(network, lengths))
    firsts = [one.first for one in found]
    by_step = {
        name: length <= attention.EXPLICIT_UP_TO if explicit is None else explicit for name, length in lengths.items()
    }
    steps = Steps(training=True, explicit=by_step)
    network.steps(steps, layers=(0,))
    single, mixed = (_walk(network, steps, lengths, lowers=lowers) for lowers in (False, True))
    flops, kept, n_bytes = single.flops_of(firsts), single.bytes_of(firsts), mixed.bytes_of(firsts)
    return [
        replace(one, cost=Cost(flops[at], kept[at] // 4, n_bytes[at], single.cached(at)))
        for one in found
        if (at := one.first)
    ]


# --- components -------------------------------------------------------------------------------------------------------

EMBEDDING = {
    "tokens": "token embedding",
    "types": "type embedding",
    "norm": "embedding norm",
    "patches": "patch embedding",
}
BLOCK = {"attn": "attention Q K V O", "cross": "cross-attention Q K V O", "ffn": "feed-forward"}


def _components(network: Transformer, lengths: dict[str, int]) -> Iterator[Component]:
    """Without their costs."""
    length = 0
    for name, stack in network.stacks().items():
        length = lengths[name]
        yield from _stack_components(name, stack, length, memory=lengths["encoder"])
    if isinstance(network.config.head, NoHead):
        yield Component("last states", [*network.stacks()][-1], STATES, length)
    for child, _ in network.head.named_children():
        yield Component(f"head {child}", f"head.{child}", f"head.{child}", length)


def _stack_components(name: str, stack: Stack, t: int, *, memory: int) -> Iterator[Component]:
    """Embedding, positions, blocks and final norm."""

    def one(component: str, path: str) -> Component:
        return Component(component, f"{name}.{path}", f"{name}.{path}", t)

    for child, _ in stack.embed.named_children():
        yield one(EMBEDDING[child], f"embed.{child}")
    if any(child == "class_token" for child, _ in stack.embed.named_parameters(recurse=False)):
        yield one("class token", "embed.class_token")
    yield one(f"positions ({stack.config.positions.kind})", "positions")
    norms: dict[str, list[str]] = {"norms": [], "norms of branches": []}
    for i, block in enumerate(stack.blocks):
        for child, module in block.named_children():
            if isinstance(module, LayerNorm | RMSNorm):
                kind = "norms of branches" if child.endswith("_out_norm") else "norms"
                norms[kind].append(f"{name}.blocks.{i}.{child}")
            elif i == 0:
                path = f"{name}.blocks.0.{child}"
                yield Component(BLOCK[child], f"{name}.blocks.*.{child}", path, t, count=len(stack.blocks))
                if child == "cross":
                    yield Component("memory", "encoder", MEMORY, memory)
    for kind, paths in norms.items():
        if paths:
            last = "*_norm" if kind == "norms" else "*_out_norm"
            yield Component(kind, f"{name}.blocks.*.{last}", paths[0], t, count=len(paths))
    if stack.final_norm is not None:
        yield one("final norm", "final_norm")


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """The ops of a network, evaluated on tensors without memory."""

    values: dict[str, Tensor]
    flops: Counter[str] = field(default_factory=Counter[str])
    """By the module to which the ops belong."""
    saved: dict[int, tuple[str, Tensor]] = field(default_factory=dict[int, tuple[str, Tensor]])
    """Each tensor once, with the module of the last op that needs it."""

    def save(self, owner: str, tensor: Tensor) -> None:
        if tensor.is_floating_point():
            self.saved[id(tensor)] = owner, tensor

    def flops_of(self, firsts: Sequence[str]) -> Counter[str]:
        """By component."""
        found = Counter[str]()
        for owner, flops in self.flops.items():
            found[_component_of(owner, firsts)] += flops
        return found

    def bytes_of(self, firsts: Sequence[str]) -> Counter[str]:
        """Of what is saved, by component."""
        found = Counter[str]()
        for owner, tensor in self.saved.values():
            found[_component_of(owner, firsts)] += tensor.nbytes
        return found

    def cached(self, at: str) -> int:
        """Keys and values, of an attention of a decoder."""
        sides = (self.values.get(f"{at}.{side}") for side in "kv" if at.startswith("decoder."))
        return sum(side.numel() for side in sides if side is not None)


def _component_of(owner: str, firsts: Sequence[str]) -> str:
    """The component that holds a module, or the first that it holds; empty for none."""
    above = owner
    while above and above not in firsts:
        above = above.rpartition(".")[0]
    return above or next((first for first in firsts if first.startswith(f"{owner}.")), "")


@torch.no_grad()
def _walk(network: Transformer, steps: Steps, lengths: Mapping[str, int], *, lowers: bool) -> _Walk:
    """Evaluate the ops; `lowers`: matrix products read and make bfloat16, as under autocast."""
    walk = _Walk(_inputs(network, lengths))
    for owner, op in zip(steps.owners, steps.ops, strict=True):
        kind = KINDS[op.op]
        call = Call(
            op,
            [walk.values[name] for name in op.inputs],
            [network.get_parameter(name).to("meta") for name in op.weights],
        )
        if lowers and kind.flops is not None:
            call.x, call.w = [x.to(torch.bfloat16) for x in call.x], [w.to(torch.bfloat16) for w in call.w]
        walk.values[op.out] = call.result = kind.evaluate(call)
        walk.flops[owner] += kind.flops(call) if kind.flops else 0
        for tensor in kind.saves(call):
            walk.save(owner, tensor)
    _save_results(network, walk, steps)
    return walk


def _inputs(network: Transformer, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """The whole numbers and the pixels that the stacks read."""
    values: dict[str, Tensor] = {}
    for name, stack in network.stacks().items():
        numbers = torch.empty(lengths[name], dtype=torch.long, device="meta")
        values |= {f"{name}.{what}": numbers for what in ("ids", "types", "positions")}
        reads = stack.config.input
        if isinstance(reads, PatchInput):
            shape = reads.n_channels, reads.image_size, reads.image_size
            values[f"{name}.embed.pixels"] = torch.empty(shape, device="meta")
    return values


def _save_results(network: Transformer, walk: _Walk, steps: Steps) -> None:
    """What is kept although no op of the component needs it: the memory, and what the loss reads, in float32."""
    memory = id(walk.values[steps.states[0]])
    if memory in walk.saved and len(steps.states) > 1:
        walk.saved[memory] = MEMORY, walk.saved[memory][1]
    if isinstance(network.config.head, NoHead):
        walk.save(STATES, torch.empty_like(walk.values[steps.states[-1]], dtype=torch.float32))
    else:
        walk.save("head.output", torch.empty_like(walk.values["head.logits"], dtype=torch.float32))
