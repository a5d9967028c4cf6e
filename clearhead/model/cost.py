"""The cost of each component on one sequence: FLOPs, numbers kept for the backward pass, numbers cached.

All of it follows from the network's ops by their kinds (`model/ops.py`): each says the shape of what it makes and which
tensors autograd saves, which are added up, each tensor once, in float32 and as under autocast.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from clearhead.config import Continuous, ModelConfig, NoHead, VectorHead
from clearhead.model import attention
from clearhead.model.fast.activation_checkpointing import ACTIVATIONS
from clearhead.model.mixers.mixer import Mixer
from clearhead.model.norm import Norm
from clearhead.model.ops import KINDS, Sized, Sizes, Steps, op_weights
from clearhead.model.transformer import Stack, Transformer

MEMORY, STATES = "memory", "states"
"""Components that are no modules: the encoder's last states, which every block of the decoder reads, and the output of
a network without a head."""


@dataclass(frozen=True)
class Cost:
    """The cost of all instances of a component together, for one sequence."""

    flops: int = 0
    """2 for each multiply and add of a matrix product."""
    kept: int = 0
    """Numbers that the backward pass needs, in float32."""
    mixed: int = 0
    """Bytes that it needs under bfloat16 autocast, where linear layers of one part share a copy of what they read."""
    cached: int = 0
    """Keys and values that generating the next token needs."""

    def kept_bytes(self, *, mixed: bool) -> int:
        """Bytes that the backward pass needs, in float32 or as under autocast."""
        return self.mixed if mixed else 4 * self.kept

    def of(self, rows: int) -> "Cost":
        """The cost of a batch of this many sequences."""
        once = self.once if isinstance(self, PartlyShared) else Cost()
        flops, kept = rows * self.flops + once.flops, rows * self.kept + once.kept
        return Cost(flops, kept, rows * self.mixed + once.mixed, rows * self.cached)


@dataclass(frozen=True)
class PartlyShared(Cost):
    """A cost for each sequence, with another that all sequences of a batch share."""

    once: Cost = Cost()


@dataclass(frozen=True)
class Component:
    """`count` equal instances of one module or parameter."""

    component: str
    path: str
    """The path of the instances, with `*` for the number of the block."""
    first: str
    """The path of the first instance."""
    length: int
    """Positions of its stack."""
    cost: Cost = Cost()
    count: int = 1


def parts(
    network: Transformer, source: int, target: int, *, explicit: bool | None = None, selective: bool = False
) -> list[Component]:
    """Every component in order of computation, on a source and a target of these lengths.

    `explicit`: how attention is computed; default: as on a CPU. `selective`: with `selective_checkpointing`.
    """
    lengths = _lengths(network, source, target)
    single, lowered = (
        _walk(network, lengths, explicit, lowers=lowers, selective=selective) for lowers in (False, True)
    )
    found = list(_components(network, lengths))
    costs: list[list[Counter[Component]]] = []
    for shared in (False, True):
        counts = (single.flops_of(shared), single.n_bytes(shared), lowered.n_bytes(shared), single.cached(shared))
        costs.append([_by_component(one, found, network) for one in counts])

    def cost(one: Component) -> Cost:
        (flops, kept, mixed, cached), (*shared, _) = ([count[one] for count in counts] for counts in costs)
        if not any(shared):
            return Cost(flops, kept // 4, mixed, cached // 4)
        return PartlyShared(flops, kept // 4, mixed, cached // 4, Cost(shared[0], shared[1] // 4, shared[2]))

    return [replace(one, cost=cost(one)) for one in found]


def _lengths(network: Transformer, source: int, target: int) -> dict[str, int]:
    """Positions of each stack: of one picture for the tower, which a text may have once."""
    seen = network.config.pictures
    return {"encoder": source, "decoder": target, **({} if seen is None else {"pictures.tower": seen.reads.length})}


def largest_kept(network: Transformer, source: int, target: int, *, explicit: bool | None = None) -> int:
    """Numbers of the largest tensor that a block keeps for its backward pass."""
    saved = _walk(network, _lengths(network, source, target), explicit, lowers=False).saved
    return max(prod(one.shape) for one, owner in saved.items() if ".blocks." in owner)


# --- components -------------------------------------------------------------------------------------------------------

EMBEDDING = {
    "tokens": "token embedding",
    "types": "type embedding",
    "norm": "embedding norm",
    "project": "embedding projection",
    "widen": "embedding projection",
    "patches": "patch embedding",
    "conv1": "first convolution",
    "conv2": "second convolution",
    "convolutions": "convolutions over time",
    "feature_norm": "feature norm",
    "dense": "feature projection",
    "around": "convolution of the positions",
}
BLOCK = {
    "attn": "attention Q K V O",
    "mix": "mixer",
    "attn_scale": "attention layer scale",
    "cross": "cross-attention Q K V O",
    "cross_scale": "cross-attention layer scale",
    "ffn_scale": "feed-forward layer scale",
}
FEED_FORWARD = {False: "feed-forward", True: "experts"}
"""The names of both kinds, by `StackConfig.has_experts`."""


def _components(network: Transformer, lengths: dict[str, int]) -> Iterator[Component]:
    """The components without their costs."""
    length = 0
    for name, stack in network.every_stack().items():
        length = lengths[name]
        yield from _stack_components(name, stack, length, memory=lengths["encoder"])
        if network.pictures is not None and stack is network.pictures.tower:
            children = network.pictures.projector.named_children()
            at = (f"pictures.projector.{child}" for child, _ in children)
            yield from (Component("projector", path, path, length) for path in at)
    if _ends_in_states(network.config):
        yield Component("last states", [*network.stacks()][-1], STATES, length)
    for child, _ in network.head.named_children():
        yield Component(f"head {child}", f"head.{child}", f"head.{child}", length)


def _stack_components(name: str, stack: Stack, t: int, *, memory: int) -> Iterator[Component]:
    """Embedding, positions, blocks and final norm."""

    def one(component: str, path: str) -> Component:
        return Component(component, f"{name}.{path}", f"{name}.{path}", t)

    for child, _ in stack.embed.named_children():
        yield one(EMBEDDING[child], f"embed.{child}")
    for child, _ in stack.embed.named_parameters(recurse=False):
        yield one(child.replace("_", " "), f"embed.{child}")
    yield one(f"positions ({stack.config.positions.kind})", "positions")
    norms: list[str] = []
    n_blocks = len(stack.blocks) // stack.config.repeats  # that have weights of their own
    parts = Counter(child for block in [*stack.blocks][:n_blocks] for child, _ in block.named_children())
    for i, block in enumerate([*stack.blocks][:n_blocks]):
        for child, module in block.named_children():
            if isinstance(module, Norm):
                norms.append(f"{name}.blocks.{i}.{child}")
            elif child == "ffn":
                is_same, own = stack.config.has_experts, stack.config.has_experts(i)
                alike = [j for j in range(n_blocks) if stack.config.has_ffn(j) and is_same(j) == own]
                if i == alike[0]:
                    kind, path = FEED_FORWARD[stack.config.has_experts(i)], f"{name}.blocks.{i}.ffn"
                    yield Component(kind, _feed_forward(name, stack, i), path, t, count=len(alike))
            elif count := parts.pop(child, 0):
                path = f"{name}.blocks.{i}.{child}"
                yield Component(BLOCK[child], f"{name}.blocks.*.{child}", path, t, count=count)
                if child == "cross":
                    yield Component("memory", "encoder", MEMORY, memory)
    yield Component("norms", f"{name}.blocks.*.*_norm", norms[0], t, count=len(norms))
    if stack.final_norm is not None:
        yield one("final norm", "final_norm")


def _feed_forward(name: str, stack: Stack, layer: int) -> str:
    """The path of the feed-forward parts that are like that of this layer."""
    experts = stack.config.experts
    some = experts is not None and experts.layers is not None and stack.config.has_experts(layer)
    return f"{name}.blocks.*.ffn{'[experts]' if some else ''}"


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass
class _Walk:
    """The sizes of all values, and the counts by module."""

    values: dict[str, Sizes]
    flops: Counter[str] = field(default_factory=Counter[str])
    shared_flops: Counter[str] = field(default_factory=Counter[str])
    """FLOPs of products that all sequences share."""
    saved: dict[Sizes, str] = field(default_factory=dict[Sizes, str])
    """Each tensor once, with the module of the last op that needs it."""
    states: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of the mixers' states, by module."""

    def flops_of(self, shared: bool) -> Counter[str]:
        """FLOPs by module: of the work that all sequences share if `shared` is true, else of one sequence."""
        return self.shared_flops if shared else self.flops

    def n_bytes(self, shared: bool) -> Counter[str]:
        """Bytes of saved tensors by module: those that all sequences share if `shared` is true, else the others."""
        found = Counter[str]()
        for one, owner in self.saved.items():
            if one.shared == shared:
                found[owner] += one.n_bytes
        return found

    def cached(self, shared: bool) -> Counter[str]:
        """Bytes of the keys and values of a decoder's attentions, which no two sequences share, and of its states."""
        found = Counter[str]({} if shared else self.states)
        for address, value in () if shared else self.values.items():
            at, _, side = address.rpartition(".")
            if side in ("k", "v") and at.startswith("decoder.") and at.endswith((".attn", ".cross")):
                found[at] += value.n_bytes
        return found


def _by_component(counts: Counter[str], found: list[Component], network: Transformer) -> Counter[Component]:
    """Counts of the modules of some blocks, as counts of components with all their instances."""
    at = {one.first if one.first in (MEMORY, STATES) else one.path: one for one in found}
    total, times = Counter[Component](), {name: _represented(stack) for name, stack in network.every_stack().items()}
    for owner, n in counts.items():
        stack, _, rest = owner.partition(".blocks.")
        layer, _, part = rest.partition(".")
        is_norm = part.endswith("_norm") and "." not in part
        path = f"{stack}.blocks.*.{'*_norm' if is_norm else part}" if layer else owner
        if layer and part.partition(".")[0] == "ffn":
            path = _feed_forward(stack, network.every_stack()[stack], int(layer))
        while path not in at and "." in path:
            path = path.rpartition(".")[0]
        if path in at or (path := next((one for one in at if one.startswith(f"{owner}.")), "")):
            total[at[path]] += n * (times[stack][int(layer)] if layer else 1)
    return total


def _represented(stack: Stack) -> Counter[int]:
    """Counts the layers that the first layer of each kind after layer 0 stands for. Layer 0 stands for itself alone."""
    found, config = Counter({0: 1}), stack.config
    parts = config.has_experts, config.has_mixer, config.mixes, config.has_ffn
    kinds = [[has(i) for has in parts] for i in range(config.n_layers)]
    for i in range(1, config.n_layers):
        found[next(j for j in range(1, i + 1) if kinds[j] == kinds[i])] += 1
    return found


def _walk(
    network: Transformer, lengths: Mapping[str, int], explicit: bool | None, *, lowers: bool, selective: bool = False
) -> _Walk:
    """Counts op by op. With `lowers`, matrix products read and make bfloat16, as under autocast."""
    by_step = {name: n <= attention.EXPLICIT_UP_TO if explicit is None else explicit for name, n in lengths.items()}
    steps, again = Steps(training=True, explicit=by_step, pictures=True, selective=selective), set[Sizes]()
    network.steps(steps, layers={layer for stack in network.every_stack().values() for layer in _represented(stack)})
    walk, copies = _Walk(_inputs(network, lengths)), dict[tuple[str, str], Sizes]()
    shapes = {name: tuple(weight.shape) for name, weight in op_weights(network).items()}
    for owner, op in zip(steps.owners, steps.ops, strict=True):
        kind = KINDS[op.op]
        call = Sized(op, [walk.values[name] for name in op.inputs], [shapes[name] for name in op.weights])
        if lowers and kind.flops is not None:
            copied = (copies.setdefault((owner, name), replace(walk.values[name], width=2)) for name in op.inputs)
            call.x = [x if x.width == 2 else copy for x, copy in zip(call.x, copied, strict=True)]
        is_shared, call.out = all(x.shared for x in call.x), kind.sizes(call)
        if is_shared and not call.out.shared:
            call.out = replace(call.out, shared=True)
        walk.values[op.out] = call.out
        walk.flops_of(is_shared)[owner] += kind.flops(call) if kind.flops else 0
        if selective and op.op == "activation" and op.how in ACTIVATIONS:
            again.add(call.out)
        for one in (one for one in kind.saves(call) if one not in again):
            walk.saved[one if one.shared or not is_shared else replace(one, shared=True)] = owner
    for path in {path for path in steps.owners if path.endswith((".mix", ".ffn"))}:
        mixer = network.get_submodule(path)
        if isinstance(mixer, Mixer):
            walk.states[path] = 4 * mixer.n_kept
    _save_results(network, walk, steps)
    return walk


def _inputs(network: Transformer, lengths: Mapping[str, int]) -> dict[str, Sizes]:
    """The sizes of the whole numbers, pixels and frames that the stacks read."""
    values: dict[str, Sizes] = {}
    for name, stack in network.every_stack().items():
        numbers = Sizes((lengths[name],), width=0)
        values |= {f"{name}.{what}": numbers for what in ("ids", "types", "positions")}
        reads = stack.config.input
        if isinstance(reads, Continuous):
            values[f"{name}.embed.{reads.values}"] = Sizes(reads.shape_of(lengths[name]))
    return values


def _save_results(network: Transformer, walk: _Walk, steps: Steps) -> None:
    """Values that are kept although no op of the component needs them: the memory, and the loss's input in float32."""
    memory = walk.values[steps.states[0]]
    if memory in walk.saved and len(steps.states) > 1:
        walk.saved[memory] = MEMORY
    result = "head.vector" if isinstance(network.config.head, VectorHead) else "head.logits"
    if _ends_in_states(network.config):
        walk.saved[Sizes(walk.values.get(result, walk.values[steps.states[-1]]).shape)] = STATES
    else:
        walk.saved[Sizes(walk.values[result].shape)] = "head.output"


def _ends_in_states(config: ModelConfig) -> bool:
    """True if no matrix makes the output."""
    return isinstance(config.head, NoHead) or (isinstance(config.head, VectorHead) and config.head.width is None)
