"""`Recording`: the values of one forward pass by address, with the ops that compute each from others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead import trace as edits
from clearhead.api import Model
from clearhead.api.reader import Input
from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import AGAIN, shown
from clearhead.config import Continuous, LanguageHead
from clearhead.errors import UserError
from clearhead.explorer.recording.blockwise import Blockwise
from clearhead.explorer.recording.manifest import FORMAT, Edited, RecomputeCheck, TensorFact, TraceManifest
from clearhead.explorer.recording.tokens import ReadInput, read
from clearhead.machine.precision import Arithmetic
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.meta import evaluated, masks_of, ops_of
from clearhead.model.mode import Evaluating
from clearhead.model.ops import Mask, Op
from clearhead.trace import Address, Edit

LARGEST_HALF = 65504.0


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
        if recorded.shape != result.shape:
            raise ValueError(f"{op.out}: {op.op} makes {tuple(result.shape)}, got {tuple(recorded.shape)}")
        most = float((result - recorded).abs().max())
        found[op.out] = Deviation(most, most / max(float(recorded.abs().max()), 1e-30))
    return found


MADE_AGAIN = ("heads",)
"""Names of values that a lean recording leaves out and computes on demand."""
LIKELIEST = 200
"""How many logits of each position are kept with their ids."""

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
        """Those of all rows, in order."""
        ids, values, lse = zip(*((one.ids, one.values, one.lse) for one in rows), strict=True)
        return cls(torch.cat(ids), torch.cat(values), torch.cat(lse))


@dataclass(frozen=True, eq=False)
class Recording:
    """The values of one forward pass by address, float32 and finite, without the batch axis."""

    __repr__ = brief

    manifest: TraceManifest
    tensors: Mapping[str, Tensor]
    closed: Mapping[str, Tensor]
    """bool masks of the cells that an edit set to -inf; `tensors` has 0 there."""
    output: Output | None = None
    network: Transformer | None = None
    """Computes the values that are not kept."""
    pixels: Mapping[str, Tensor] | None = None
    """The attention weights as pixels, if they were made during the pass; None if `tensors` has them at hand. There are
    none of a long text."""

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        tensors = self.tensors
        kept = tensors.nbytes if isinstance(tensors, Blockwise) else sum(value.nbytes for value in tensors.values())
        return kept + sum(value.nbytes for value in (self.pixels or {}).values())

    @property
    def is_long(self) -> bool:
        """Whether the attention weights of all heads are too many to be computed at once."""
        return self.pixels is not None and not self.pixels

    def value(self, address: str) -> Tensor:
        """The value as the network saw it. Raises UserError for an unknown address."""
        where = Address.parse(address)
        if where.path not in self.manifest.tensors:
            why = self._why_not(where.path)
            raise UserError(f"{where.path}: expected an address of this trace, got {why}; try another")
        if isinstance(self.tensors, Blockwise):
            return self.tensors[address] if where.path in self.tensors else self._shares(where, self.tensors)
        value = self.tensors[where.path] if where.path in self.tensors else self._again(where.path)
        if where.path in self.closed:
            value = value.masked_fill(self.closed[where.path], float("-inf"))
        return where.of(value, self.manifest.tensors[where.path].axes)

    def _again(self, path: str) -> Tensor:
        op = next(op for op in self.manifest.ops if op.out == path)
        assert self.network is not None
        inputs = [self.value(name) for name in op.inputs]
        return evaluated(op, inputs, self.network, self.manifest.masks.get(op.how))

    def _shares(self, where: Address, values: Blockwise) -> Tensor:
        """z_h W_O^h, of the heads and positions that the address has."""
        op = next(op for op in self.manifest.ops if op.out == where.path)
        index = dict(where.index)
        where.slices("h t d", torch.Size(self.manifest.tensors[where.path].shape))
        z = values[str(Address(op.inputs[0], tuple((axis, i) for axis, i in where.index if axis in "ht")))]
        for dimension, axis in enumerate("ht"):
            z = z.unsqueeze(dimension) if axis in index else z
        assert self.network is not None
        n_heads = self.manifest.tensors[where.path].shape[0]
        by_head = parameter(self.network, op.weights[0]).detach().unflatten(1, (n_heads, -1))
        some = by_head[:, index["h"] % n_heads, None] if "h" in index else by_head
        shares = torch.einsum("htk,dhk->htd", z, some.float().cpu())
        return Address(where.path, tuple((axis, 0 if axis in "ht" else i) for axis, i in where.index)).of(
            shares, "h t d"
        )

    def _why_not(self, path: str) -> str:
        op = next((op for op in self.manifest.ops if op.out == path), None)
        return "one that it does not have" if op is None else f"one that is not stored but made by {op.op}"

    def numbers(self) -> dict[str, Tensor]:
        """The integers that the stacks read, by the names that `ops_of` gives them."""
        found: dict[str, Tensor] = {}
        for stack, tokens in self.manifest.tokens.items():
            found[f"{stack}.ids"] = torch.tensor([token.id for token in tokens])
            found[f"{stack}.types"] = torch.tensor([token.type for token in tokens])
            found[f"{stack}.positions"] = torch.arange(self.manifest.tensors[f"{stack}.embed.sum"].shape[0])
        return found


def record(model: Model, text: Input, other: str | None = None, *, edit: Mapping[str, Edit] | None = None) -> Recording:
    """Records every value of one input's forward pass, with edits, and checks each against its op."""
    recording = observe(model, read(model, text, other), edit=edit)
    edited = tuple(_edited(address, one) for address, one in (edit or {}).items())
    about = {"edits": edited, "check": recompute(recording, model.network)}
    return replace(recording, manifest=recording.manifest.model_copy(update=about))


def observe(
    model: Model,
    reading: ReadInput,
    *,
    edit: Mapping[str, Edit] | None = None,
    likeliest: int = 0,
    lean: bool = False,
) -> Recording:
    """Records an input that was read already, without the check and without a list of the edits.

    `lean` leaves out each head's share of the output, the largest values, and computes them on demand. Raises UserError
    if an edit makes a number that is not finite. -inf is allowed: it closes a cell.
    """
    config = model.config
    with Evaluating(model.network), torch.no_grad(), model.tracing(edit, without=MADE_AGAIN if lean else ()) as seen:
        model.network(*reading.inputs)
    by_hand = frozenset(Address.parse(address).path for address in edit or {})
    by_hand |= {one.writes for one in model.network.attached if f"{one.reads}.{one.name}" in by_hand}
    values = {a: seen[a][0].float().cpu() for a in seen if a in by_hand or not a.endswith(".masked")}
    axes = {address: seen.axes[address].removeprefix("b ") for address in values}
    if isinstance(reads := config.first.input, Continuous):
        at = f"encoder.embed.{reads.values}"
        values[at], axes[at] = reading.inputs[0].ids[0].float().cpu(), reads.axes
    tensors, closed = _finite(values)
    facts = {
        a: TensorFact(shape=tuple(value.shape), axes=axes[a], by_hand=a in by_hand, closed=a in closed)
        for a, value in tensors.items()
    }
    is_language = isinstance(config.head, LanguageHead)
    output = Output.of(tensors["head.logits"], likeliest or LIKELIEST) if is_language else None
    return Recording(_described(model, reading, facts), tensors, closed, output, model.network)


def observe_by_block(
    model: Model, reading: ReadInput, *, edit: Mapping[str, Edit], likeliest: int, arithmetic: Arithmetic
) -> Recording:
    """Records texts as `observe` does, but keeps only the inputs of blocks, and computes values when they are read.

    `tensors` then have -inf where an edit closed a cell. Raises UserError for numbers that are not finite.
    """
    network, stacks = model.network, model.config.stacks.items()
    lengths = {name: len(reading.tokens[name]) for name in model.config.stacks}
    cells = sum(stack.n_layers * stack.n_heads * lengths[name] * max(lengths.values()) for name, stack in stacks)
    pixels: dict[str, Tensor] = {}
    tops: list[Output] = []

    def look(path: str, value: Tensor) -> None:
        if path.endswith(".weights") and cells <= MOST_PIXELS:
            pixels[f"{path}.u8"], pixels[f"{path}.max"] = to_pixels(value.float().clamp(min=0).cpu())
        if path == "head.logits" and isinstance(model.config.head, LanguageHead):
            tops.append(Output.of(value.float().cpu(), likeliest))

    tensors = Blockwise(network, reading.inputs, edit=edit, without=MADE_AGAIN, arithmetic=arithmetic, look=look)
    output = Output.joined(tops) if tops else None
    return Recording(_described(model, reading, tensors.facts), tensors, {}, output, network, pixels)


def refuse_long(recording: Recording, what: str) -> None:
    """Raises UserError, which names `what`, for a text whose attention weights are too many."""
    if recording.is_long:
        longest = max(map(len, recording.manifest.tokens.values()))
        raise UserError(
            f"{what}: expected attention of at most {MOST_PIXELS:,} cells, got {longest} tokens; cut the text"
        )


def pixels_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Attention weights, by address, as `ADDRESS.u8` and `ADDRESS.max`; other values are left out."""
    found: dict[str, Tensor] = {}
    for address, value in tensors.items():
        if address.endswith(".weights"):
            found[f"{address}.u8"], found[f"{address}.max"] = to_pixels(value.clamp(min=0))
    return found


def _described(model: Model, reading: ReadInput, stored: Mapping[str, TensorFact]) -> TraceManifest:
    """The manifest, with facts of the values that are computed on demand too."""
    facts, config = dict(stored), model.config
    ops = ops_of(config)
    for op in ops:
        if op.op == "project" and op.out not in facts:
            width = len(parameter(model.network, op.weights[0]))
            facts[op.out] = TensorFact(shape=(*facts[op.inputs[0]].shape[:2], width), axes="h t d")
    return TraceManifest(
        format=FORMAT, family=model.family, config=config, tokens=reading.tokens, masks=masks_of(config),
        tensors=facts, ops=ops,
    )  # fmt: skip


def _finite(values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors with 0 in place of -inf, and masks of those cells."""
    tensors, closed = dict(values), dict[str, Tensor]()
    for address, value in values.items():
        # A finite sum proves that all of them are finite.
        if bool(value.sum().isfinite()) or bool(value.isfinite().all()):
            continue
        closed[address] = value.isneginf()
        tensors[address] = value.masked_fill(closed[address], 0.0)
        if not bool(tensors[address].isfinite().all()):
            raise UserError(f"{address}: expected finite numbers, got NaN or infinity; try another edit")
    return tensors, closed


def recompute(recording: Recording, network: Transformer) -> RecomputeCheck:
    """The largest differences between recorded values and those that their ops make of recorded inputs.

    Raises UserError for a long text, whose ops would need all attention weights.
    """
    refuse_long(recording, "check")
    found, by_hand = recomputed(recording, network).values(), recording.manifest.by_hand
    weights = [value for a, value in recording.tensors.items() if a.endswith(".weights") and a not in by_hand]
    return RecomputeCheck(
        recompute_max_abs=max(one.most for one in found),
        recompute_max_relative=max(one.relative for one in found),
        rows_sum_max_error=max((float((value.sum(-1) - 1).abs().max()) for value in weights), default=0.0),
    )


def recomputed(recording: Recording, network: Transformer) -> dict[str, Deviation]:
    """The difference at each address. Raises UserError unless `network` is the one that was recorded."""
    manifest = recording.manifest
    if network.config != manifest.config:
        raise UserError("trace: expected the network that it was recorded from, got another; try its own model")
    try:
        closed = recording.closed
        values = {a: recording.value(a) for a in recording.tensors} if closed else recording.tensors
        numbers, by_hand, masks = recording.numbers(), manifest.by_hand, manifest.masks
        return differences(manifest.ops, values, by_hand=by_hand, numbers=numbers, masks=masks, network=network)
    except (RuntimeError, IndexError, ValueError, KeyError) as error:
        raise UserError(f"trace: expected values that fit their ops, got {shown(str(error))}; {AGAIN}") from error


def _edited(address: str, edit: Edit) -> Edited:
    if isinstance(edit, int | float):
        if edit == float("-inf"):
            return Edited(at=address, do="close")
        return Edited(at=address, do="set", value=float(edit))
    if isinstance(edit, Tensor):
        return Edited(at=address, do="tensor")
    return Edited(at=address, do="zero" if edit is edits.zero else "mean" if edit is edits.mean else "function")
