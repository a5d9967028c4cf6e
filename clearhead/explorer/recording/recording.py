"""`Recording`: the values of one forward pass by address, with the ops that compute each from others."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.api import Model
from clearhead.brief import brief
from clearhead.config import ModelConfig, StackName
from clearhead.errors import UserError
from clearhead.explorer.recording.blockwise import Blockwise
from clearhead.explorer.recording.facts import RecomputeCheck, TensorFact, Token
from clearhead.explorer.recording.tokens import ReadInput
from clearhead.machine.precision import Arithmetic
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.meta import evaluated, masks_of, ops_of
from clearhead.model.ops import Mask, Op
from clearhead.progress import cached
from clearhead.trace import Address, Edit, Trace

LARGEST_HALF = 65504.0
SHARES = (".attn.weights", ".cross.weights")
"""The ends of the addresses of attention weights. A state's, `.mix.weights`, are no shares."""


def to_pixels(values: Tensor) -> tuple[Tensor, Tensor]:
    """round(255 x / max of its row), and the maxima: at most max / 510 off, and half a last digit of float32.

    Rows are along the last axis. Raises ValueError for a number that is negative or not finite.
    """
    if not bool((values >= 0).all() & values.isfinite().all()):
        raise ValueError("expected numbers that are finite and not negative")
    largest = values.float().amax(-1)
    share = values.double() / largest.double().clamp(min=torch.finfo(torch.float32).tiny)[..., None]
    return (share * 255).round().clamp(max=255).to(torch.uint8), largest


def to_half(values: Tensor) -> Tensor:
    """float16, at most |x| / 2048 + 2^-25 off; NaN stays NaN. Raises UserError for a number beyond its range."""
    most = float(values.nan_to_num().abs().max()) if values.numel() else 0.0
    if most > LARGEST_HALF:
        raise UserError(f"float16: expected numbers up to {LARGEST_HALF:g}, got {most:g}; try float32")
    return values.half()


@dataclass(frozen=True)
class Deviation:
    """The difference between a recorded value and the result of its op."""

    most: float
    """The largest absolute difference."""
    relative: float
    """The same as a share of the largest number of the tensor."""


@torch.no_grad()
def differences(
    ops: Iterable[Op],
    values: Mapping[str, Tensor],
    *,
    by_hand: frozenset[str],
    numbers: Mapping[str, Tensor],
    masks: Mapping[str, Mask],
    network: nn.Module,
) -> dict[str, Deviation]:
    """The differences by address. A value that an edit made counts as an input, and has none."""
    made: dict[str, Tensor] = dict(numbers)
    found: dict[str, Deviation] = {}
    ops = list(ops)
    last = {name: i for i, op in enumerate(ops) for name in op.inputs}
    for i, op in enumerate(ops):
        if op.out in values and op.out in by_hand:
            continue
        inputs = [values[name] if name in values else made[name] for name in op.inputs]
        result = evaluated(op, inputs, network, masks.get(op.how))
        for name in op.inputs:
            if last[name] == i:
                made.pop(name, None)
        if op.out not in values:
            made[op.out] = result
            continue
        recorded = values[op.out]
        most = float((result - recorded).abs().max())
        found[op.out] = Deviation(most, most / max(float(recorded.abs().max()), 1e-30))
    return found


MADE_AGAIN = ("heads",)
"""Names of values, the largest, that follow from others and are made when they are read."""

MOST_PIXELS = 48 << 20
"""The most attention weights of a pass that are kept as pixels. Those of longer texts are computed by head."""


@dataclass(frozen=True)
class Output:
    """The likeliest tokens of a language head. Their softmax over the whole vocabulary is exp(values - lse)."""

    __repr__ = brief

    ids: Tensor
    """t k, int32: the likeliest first."""
    values: Tensor
    """t k: their logits."""
    lse: Tensor
    """t: log sum exp of all logits."""

    @classmethod
    def of(cls, logits: Tensor, k: int) -> "Output":
        """t v, float32 -> the k likeliest."""
        values, ids = logits.topk(min(k, logits.shape[-1]), -1)
        return cls(ids.int(), values, logits.logsumexp(-1))

    @classmethod
    def joined(cls, rows: "Sequence[Output]") -> "Output":
        """Joins the outputs of all rows, in order."""
        ids, values, lse = zip(*((one.ids, one.values, one.lse) for one in rows), strict=True)
        return cls(torch.cat(ids), torch.cat(values), torch.cat(lse))


@dataclass(frozen=True, eq=False)
class Recording:
    """The values of one forward pass by address, float32, without the batch axis; -inf in cells that an edit closed."""

    __repr__ = brief

    config: ModelConfig
    tokens: Mapping[StackName, tuple[Token, ...]]
    facts: Mapping[str, TensorFact]
    """By address, those of the values that are computed on demand among them."""
    tensors: Blockwise
    network: Transformer
    """Computes the values that are not kept."""
    output: Output | None
    pixels: Mapping[str, Tensor]
    """The attention weights as `ADDRESS.u8` and `ADDRESS.max`; none of a long text."""

    @cached
    def ops(self) -> Mapping[str, Op]:
        """The ops by the addresses of their results, in their order."""
        return {op.out: op for op in ops_of(self.config)}

    @cached
    def masks(self) -> Mapping[str, Mask]:
        """The masks by name."""
        return masks_of(self.config)

    @property
    def by_hand(self) -> frozenset[str]:
        """The addresses of values that an edit made."""
        return frozenset(address for address, fact in self.facts.items() if fact.by_hand)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return self.tensors.nbytes + sum(value.nbytes for value in self.pixels.values())

    @property
    def is_long(self) -> bool:
        """True if the attention weights of all heads are too many to be computed at once."""
        return not self.pixels

    def value(self, address: str) -> Tensor:
        """The value as the network saw it. Raises UserError for an unknown address."""
        where = Address.parse(address)
        if where.path not in self.facts:
            op = self.ops.get(where.path)
            got = f"one that is not stored but made by {op.op}" if op else "one that it does not have"
            raise UserError(f"{where.path}: expected an address of this trace, got {got}; try another")
        return self.tensors[address] if where.path in self.tensors else self._shares(where)

    def _shares(self, where: Address) -> Tensor:
        """z_h W_O^h, of the heads and positions that the address has."""
        op, values = self.ops[where.path], self.tensors
        index = dict(where.index)
        where.slices("h t d", torch.Size(self.facts[where.path].shape))
        z = values[str(Address(op.inputs[0], tuple((axis, i) for axis, i in where.index if axis in "ht")))]
        for dimension, axis in enumerate("ht"):
            z = z.unsqueeze(dimension) if axis in index else z
        n_heads = self.facts[where.path].shape[0]
        by_head = parameter(self.network, op.weights[0]).detach().unflatten(1, (n_heads, -1))
        some = by_head[:, index["h"] % n_heads, None] if "h" in index else by_head
        shares = torch.einsum("htk,dhk->htd", z, some.float().cpu())
        return Address(where.path, tuple((axis, 0 if axis in "ht" else i) for axis, i in where.index)).of(
            shares, "h t d"
        )

    def numbers(self) -> dict[str, Tensor]:
        """The integers that the stacks read, by the names that `ops_of` gives them."""
        found: dict[str, Tensor] = {}
        for stack, tokens in self.tokens.items():
            found[f"{stack}.ids"] = torch.tensor([token.id for token in tokens])
            found[f"{stack}.types"] = torch.tensor([token.type for token in tokens])
            found[f"{stack}.positions"] = self.tensors.positions(stack)
        return found


def observe(
    model: Model,
    reading: ReadInput,
    *,
    edit: Mapping[str, Edit],
    likeliest: int,
    arithmetic: Arithmetic,
    every: Trace,
    before: tuple[Recording, Collection[str]] | None,
) -> Recording:
    """Records an input that was read already, and its `likeliest` answers. Values are computed when they are read.

    `every` is what `every_address` returns. `before` has a recording of the same input, and the paths whose edits
    differ: only what follows from them is computed. Raises UserError if an edit makes a number that is not finite. -inf
    is allowed: it closes a cell.
    """
    network, stacks = model.network, model.config.stacks.items()
    lengths = {name: len(reading.tokens[name]) for name in model.config.stacks}
    cells = sum(stack.n_layers * stack.n_heads * lengths[name] * max(lengths.values()) for name, stack in stacks)
    shares: dict[str, list[Tensor]] = {}
    tops: list[Output] = []

    def look(path: str, value: Tensor) -> None:
        if path == "head.logits" and model.config.predicts_tokens:
            tops.append(Output.of(value.float().cpu(), likeliest))
        elif path != "head.logits":
            shares.setdefault(path, []).append(value.float().clamp(min=0).cpu())

    tensors = Blockwise(
        network,
        reading.inputs,
        every=every,
        edit=edit,
        without=MADE_AGAIN,
        arithmetic=arithmetic,
        looks=SHARES if cells <= MOST_PIXELS else (),
        look=look,
        before=before and (before[0].tensors, before[1]),
    )
    pixels = dict(before[0].pixels) if before else {}
    for address, rows in shares.items():
        pixels[f"{address}.u8"], pixels[f"{address}.max"] = to_pixels(torch.cat(rows, 1))
    output, facts = Output.joined(tops) if tops else None, dict(tensors.facts)
    for op in ops_of(model.config):
        if op.op == "project" and op.out not in facts:
            width = len(parameter(network, op.weights[0]))
            facts[op.out] = TensorFact(shape=(*facts[op.inputs[0]].shape[:2], width), axes="h t d")
    return Recording(model.config, reading.tokens, facts, tensors, network, output, pixels)


def refuse_long(recording: Recording, what: str) -> None:
    """Raises UserError, which names `what`, for a text whose attention weights are too many."""
    if recording.is_long:
        longest = max(map(len, recording.tokens.values()))
        raise UserError(
            f"{what}: expected attention of at most {MOST_PIXELS:,} cells, got {longest} tokens; cut the text"
        )


def recompute(recording: Recording) -> RecomputeCheck:
    """The largest differences between recorded values and those that their ops make of recorded inputs.

    Raises UserError for a long text, whose ops would need all attention weights.
    """
    refuse_long(recording, "check")
    found, by_hand = recomputed(recording).values(), recording.by_hand
    weights = [value for a, value in recording.tensors.items() if a.endswith(SHARES) and a not in by_hand]
    return RecomputeCheck(
        recompute_max_abs=max(one.most for one in found),
        recompute_max_relative=max(one.relative for one in found),
        rows_sum_max_error=max((float((value.sum(-1) - 1).abs().max()) for value in weights), default=0.0),
    )


def recomputed(recording: Recording) -> dict[str, Deviation]:
    """The difference at each address."""
    return differences(
        recording.ops.values(),
        recording.tensors,
        by_hand=recording.by_hand,
        numbers=recording.numbers(),
        masks=recording.masks,
        network=recording.network,
    )
