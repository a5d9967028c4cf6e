"""Activation patching, swept over a network: which states carry the difference between two texts."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from clearhead.analysis.attribution import direction, is_linear
from clearhead.analysis.metrics import LEAST, Ids, chosen
from clearhead.analysis.passes import (
    Inputs,
    Seen,
    by_stack,
    check_labels,
    inference,
    last_states,
    layouts,
    n_positions,
    repeated,
    run_from,
    traced,
)
from clearhead.brief import brief
from clearhead.config import SpanHead
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.cache import GrowingCache
from clearhead.model.heads import ClassificationHead, LanguageHead, OutputHead
from clearhead.progress import pieces
from clearhead.trace import edited

Part = Literal["resid", "attn", "ffn", "heads"]
"""Residual streams, attention outputs, and feed-forward outputs by position; heads, at all positions at once."""
PARTS: tuple[Part, ...] = get_args(Part)
VALUES: dict[Part, tuple[str, ...]] = {
    "resid": ("resid_pre",), "attn": ("attn.out", "cross.out"), "ffn": ("ffn.out",), "heads": ("attn.z", "cross.z"),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """The effects of the states of one block."""

    __repr__ = brief

    at: str
    """The address, such as `decoder.blocks.3.resid_pre`."""
    axis: Literal["t", "h"]
    """What the cells are: positions of the corrupt text, or heads."""
    each: Tensor
    """b t or b h: 0 for the corrupt answer, 1 for the clean one; NaN where no clean position is aligned."""

    @property
    def restored(self) -> Tensor:
        """t or h: the mean over the pairs."""
        return self.each.nanmean(0)


def aligned(clean: Sequence[int], corrupt: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of positions, (clean, corrupt), in ascending order.

    Texts of one length are aligned position by position. Otherwise common beginnings, common ends and what `difflib`
    finds alike between them are aligned, and so are the last tokens of the stretches that are left, because the last
    token of a word has read all of it.
    """
    if len(clean) == len(corrupt):
        return [(i, i) for i in range(len(clean))]
    shorter = min(len(clean), len(corrupt))
    start = next((i for i in range(shorter) if clean[i] != corrupt[i]), shorter)
    end = next((i for i in range(shorter - start) if clean[-1 - i] != corrupt[-1 - i]), shorter - start)
    m, n = len(clean) - end, len(corrupt) - end
    *middle, _ = SequenceMatcher(None, clean[start:m], corrupt[start:n], autojunk=False).get_matching_blocks()
    pairs: list[tuple[int, int]] = []
    a, b = 0, 0
    for i, j, size in [(0, 0, start), *((start + i, start + j, size) for i, j, size in middle), (m, n, end)]:
        n_left = min(i - a, j - b)
        pairs += [(i + k, j + k) for k in range(-n_left, size)]
        a, b = i + size, j + size
    return pairs


class PatchingSweep:
    """restored = (d_patched - d_corrupt) / (d_clean - d_corrupt), d = logit[answer] - logit[minus]   (Wang et al. 2022)

    A state of the clean run replaces that of the corrupt run at the aligned positions, one cell at a time, in every
    pair of texts of the batch. Several cells go through one forward pass, which starts at their block, and in a decoder
    at the first token that differs. A state that is equal in both runs needs no pass.
    """

    def __init__(
        self,
        network: Transformer,
        clean: Inputs,
        corrupt: Inputs,
        answer: Ids,
        *,
        minus: Ids | None = None,
        position: int = -1,
        columns: Sequence[Sequence[Sequence[int]]] | None = None,
        values: tuple[Seen, Seen] | None = None,
        budget: int = 1024,
        least: float = LEAST,
    ) -> None:
        """`position` is that of the answer in the clean texts; a head that pools has none. `columns` lists the cells
        of a row by position: the positions of each corrupt text that are patched together. By default each position
        is a cell. `values` are those of both runs, if they were made already. A forward pass has at most about
        `budget` positions.

        Raises UserError for padding, for several pairs of which the texts differ in length, without a head, or if the
        differences of no pair are further apart than `least`, and than rounding is.
        """
        self._network, self._answers, self._budget = network, (answer, minus), budget
        self._clean, self._corrupt = (_unpadded(by_stack(network, one)) for one in (clean, corrupt))
        if not isinstance(network.head, OutputHead):
            raise UserError("patching: expected a head, got a network that ends in its states")
        check_labels(network.head.output.out_features, answer, minus, name="answer")
        self._last = list(network.stacks())[-1]
        self._places = {
            f"{name}.blocks.{i}.{value}": _Place(name, i, value)
            for name, stack in reversed(network.stacks().items())
            for i in reversed(range(len(stack.blocks)))
            for value in itertools.chain(*VALUES.values())
            if stack.cross or not value.startswith("cross")
        }
        self.alignment = {name: self._aligned(name) for name in network.stacks()}
        """The aligned positions of each stack, (clean, corrupt)."""
        self.position = self._position(position)
        """The positions of the answer, (clean, corrupt). The last one of a text goes with the last of the other."""
        self._columns = columns
        self._values = values or (self._traced(self._clean), self._traced(self._corrupt))
        both = zip(self._values, self.position, strict=True)
        self.clean, self.corrupt = (self._recorded(of["head.logits"], i) for of, i in both)
        """b, float64: the difference of logits in each run."""
        rounding = 2 * torch.finfo(next(network.parameters()).dtype).eps
        least_each = (rounding * torch.maximum(self.clean.abs(), self.corrupt.abs())).clamp(min=least)
        self.is_clear = (self.clean - self.corrupt).abs() > least_each
        """b, bool: False for a pair whose differences are so near that shares mean little: its cells are NaN."""
        if not self.is_clear.any():
            raise UserError(
                f"patching: expected texts that answer differently here, got {float(self.clean[0]):.4g} and"
                f" {float(self.corrupt[0]):.4g}, at most {float(least_each[0]):.2g} apart, and shares of that mean"
                " little; choose another text, position or answers"
            )

    def sites(self, part: Part) -> list[str]:
        """The addresses of the rows of a part, the last block first, because its passes are the shortest."""
        return [at for at, place in self._places.items() if place.value in VALUES[part]]

    def rows(self, *parts: Part) -> Iterator[Row]:
        """The rows of these parts, or of all, each as soon as it is known."""
        for part in parts or PARTS:
            yield from map(self.row, self.sites(part))

    def row(self, at: str) -> Row:
        """The effects of the states at one address, such as `decoder.blocks.3.attn.z`."""
        place = self._places.get(at)
        if place is None:
            values = ", ".join(itertools.chain(*VALUES.values()))
            raise UserError(f"{at}: expected the address of {values} of a block, such as decoder.blocks.0.resid_pre")
        clean, own = (values[at] for values in self._values)
        ours, theirs = (list(side) for side in zip(*self.alignment[place.stack], strict=True))
        given = own.clone()
        given[..., theirs, :] = clean[..., ours, :]
        differs, b = (given != own).any(-1), len(own)
        if place.is_head:
            masks = torch.eye(own.shape[1], dtype=torch.bool, device=own.device)[:, None, :, None, None]
            changed, is_known = differs.any(-1).T, torch.ones(len(masks), b, dtype=torch.bool)
        else:
            cells = self._cells(own.shape[1]).to(own.device)
            changed, is_known = (cells & differs).any(-1), cells[..., theirs].any(-1).cpu().expand(-1, b)
            masks = cells[..., None]
        effects = torch.zeros(len(masks), b, dtype=torch.float64)
        which = changed.any(1).nonzero()[:, 0]
        with inference(self._network):
            for some in pieces(which.split(max(1, self._budget // self._length)) if len(which) else ()):
                effects[some.cpu()] = self._patched(at, place, given, masks[some]) - self.corrupt
        effects = (effects / (self.clean - self.corrupt)).masked_fill(~(is_known & self.is_clear), float("nan"))
        return Row(at, "h" if place.is_head else "t", effects.T.float())

    def _cells(self, length: int) -> Tensor:
        """n b|1 t, bool: the positions of each cell."""
        if self._columns is None:
            return torch.eye(length, dtype=torch.bool)[:, None]
        cells = torch.zeros(len(self._columns), len(self._columns[0]), length, dtype=torch.bool)
        for i, rows in enumerate(self._columns):
            for j, positions in enumerate(rows):
                cells[i, j, list(positions)] = True
        return cells

    @cached_property
    def _length(self) -> int:
        return max(1, n_positions(layouts(self._network, self._corrupt)) - self._first * len(self.corrupt))

    @cached_property
    def _first(self) -> int:
        """The first position of a decoder at which a pair differs: what comes before it is the same in every pass."""
        (name, stack), *others = self._network.stacks().items()
        clean, corrupt = self._clean[name].ids, self._corrupt[name].ids
        if others or not stack.causal or clean.shape != corrupt.shape:
            return 0
        differs = (clean != corrupt).any(0).nonzero()
        return min([*self.position, *differs[:1].flatten().tolist()])

    @cached_property
    def _past(self) -> GrowingCache:
        """The keys and values of what comes before the first difference."""
        stack, cache = self._network.last_stack, GrowingCache.empty(len(self._network.last_stack.blocks))
        if self._first:
            with inference(self._network):
                stack(Tokens(self._corrupt[self._last].ids[:, : self._first]), None, cache)
        return cache

    def _patched(self, at: str, place: "_Place", given: Tensor, masks: Tensor) -> Tensor:
        """n b, float64: the difference of logits with the given states where each mask is open."""
        network, n, first = self._network, len(masks), self._first
        many = {name: repeated(tokens, n) for name, tokens in self._corrupt.items()}
        x = self._values[1][f"{place.stack}.blocks.{place.block}.resid_pre"].repeat(n, 1, 1)[:, first:]
        x, given = (one.to(next(network.parameters())) for one in (x, given[..., first:, :]))
        masks = masks if masks.shape[-2] == 1 else masks[..., first:, :]
        memory = None
        if place.stack == "decoder" and "encoder" in many:
            memory = self._values[1][last_states(network, "encoder")].repeat(n, 1, 1).to(x)

        def put(value: Tensor) -> Tensor:
            return torch.where(masks.to(value.device), given.to(value), value.unflatten(0, (n, -1))).flatten(0, 1)

        past = None
        if first:
            many = {self._last: Tokens(many[self._last].ids[:, first:])}
            past = deepcopy(self._past)
            for block in past.blocks[place.block :]:
                block.attn.select(torch.arange(len(x)) % (len(x) // n))
        with edited(network, {at: put}):
            states, layout = run_from(network, many, place.stack, place.block, x, memory, past)
        return self._read(states, layout).view(n, -1)

    def _read(self, x: Tensor, layout: Layout) -> Tensor:
        """n t d -> n, float64: the difference of logits that the last states give."""
        head, i = self._network.head, self.position[1] - self._first
        if isinstance(head, ClassificationHead):
            return self._difference(head(x, layout))
        if isinstance(head, LanguageHead) and is_linear(head):  # Two rows of its matrix are enough.
            ways, bias = direction(head, *self._answers)
            each = x[:, i].double().unflatten(0, (-1, len(self.corrupt)))
            return ((each * ways.double()).sum(-1) + bias).flatten().cpu()
        if isinstance(self._network.config.head, SpanHead):
            return self._difference(head(x, layout)[:, i])
        return self._difference(head(x[:, i][None], layout)[0])

    def _difference(self, logits: Tensor) -> Tensor:
        """n v -> n, float64"""
        answer, minus = self._answers
        right = chosen(logits, answer).double()
        return (right if minus is None else right - chosen(logits, minus).double()).cpu()

    def _recorded(self, logits: Tensor, position: int) -> Tensor:
        return self._difference(logits if logits.ndim == 2 else logits[:, position])

    def _aligned(self, name: str) -> list[tuple[int, int]]:
        clean, corrupt = self._clean[name].ids, self._corrupt[name].ids
        length = self._network.stacks()[name].config.fixed_length
        if length is not None:
            return [(i, i) for i in range(length)]
        if len(clean) != len(corrupt) or (len(clean) > 1 and clean.shape != corrupt.shape):
            got = f"{list(clean.shape)} and {list(corrupt.shape)}"
            raise UserError(f"{name}: expected pairs of one length in a batch, got {got}; pass one pair")
        return aligned(clean[0].tolist(), corrupt[0].tolist())

    def _position(self, position: int) -> tuple[int, int]:
        length, other = (layouts(self._network, of)[self._last].grid[1] for of in (self._clean, self._corrupt))
        if not -length <= position < length:
            raise UserError(f"position {position}: expected a position of the clean text, whose length is {length}")
        partners = dict(self.alignment[self._last]) | {length - 1: other - 1}
        if position % length not in partners:
            raise UserError(f"position {position}: expected one that is aligned with the corrupt text; try another")
        return position % length, partners[position % length]

    def _traced(self, tokens: Mapping[str, Tokens]) -> Seen:
        return traced(self._network, tokens, without=("heads",))[0]


def _unpadded(tokens: dict[str, Tokens]) -> dict[str, Tokens]:
    for name, one in tokens.items():
        if one.valid is not None and not one.valid.all():
            raise UserError(f"{name}: expected texts without padding, got shorter ones; pass those apart")
    return tokens


@dataclass(frozen=True)
class _Place:
    stack: str
    block: int
    value: str

    @property
    def is_head(self) -> bool:
        return self.value.endswith(".z")
