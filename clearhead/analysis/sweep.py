"""Activation patching, swept over a network: which states carry the difference between two texts."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from clearhead.analysis.metrics import LEAST
from clearhead.analysis.passes import (
    Inputs,
    check_labels,
    inference,
    last_states,
    layouts,
    n_positions,
    one_text,
    repeated,
    run_from,
    traced,
)
from clearhead.brief import brief
from clearhead.config import ClassificationHead, SpanHead
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.heads import OutputHead
from clearhead.progress import pieces
from clearhead.trace import edited

Part = Literal["resid", "attn", "ffn", "heads"]
"""Residual streams, attention outputs, and feed-forward outputs by position; heads, at all positions at once."""
PARTS: tuple[Part, ...] = get_args(Part)
VALUES: dict[Part, tuple[str, ...]] = {
    "resid": ("resid_pre",), "attn": ("attn.out", "cross.out"), "ffn": ("ffn.out",), "heads": ("attn.z", "cross.z"),
}  # fmt: skip
Values = Callable[[str], Tensor]
"""Looks a recorded value of one text up by its path, without a batch axis."""


@dataclass(frozen=True)
class Row:
    """The effects of the states of one block."""

    __repr__ = brief

    at: str
    """The address, such as `decoder.blocks.3.resid_pre`."""
    axis: Literal["t", "h"]
    """What the cells are: positions of the corrupt text, or heads."""
    restored: Tensor
    """t or h: 0 for the corrupt answer, 1 for the clean one; NaN at a position that no clean one is aligned with."""


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

    A state of the clean run replaces that of the corrupt run at the aligned position, one at a time. Several go through
    one forward pass, which starts at their block. A state that is equal in both runs needs no pass.
    """

    def __init__(
        self,
        network: Transformer,
        clean: Inputs,
        corrupt: Inputs,
        answer: int,
        *,
        minus: int | None = None,
        position: int = -1,
        values: tuple[Values, Values] | None = None,
        budget: int = 1024,
        least: float = LEAST,
    ) -> None:
        """`position` is that of the answer in the clean text; a head that pools has none. `values` are those of both
        runs, if they were made already. A forward pass has at most about `budget` positions.

        Raises UserError for several texts or padding, without a head, or if the differences of both texts are at
        most `least` apart, or as much as rounding is.
        """
        self._network, self._answers, self._budget = network, (answer, minus), budget
        self._clean, self._corrupt = one_text(network, clean), one_text(network, corrupt)
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
        self._values = values or (self._traced(self._clean), self._traced(self._corrupt))
        self.clean, self.corrupt = (self._recorded(of, i) for of, i in zip(self._values, self.position, strict=True))
        """The difference of logits in each run."""
        rounding = 2 * torch.finfo(next(network.parameters()).dtype).eps * max(abs(self.clean), abs(self.corrupt))
        if abs(self.clean - self.corrupt) <= (least := max(least, rounding)):
            raise UserError(
                f"patching: expected texts that answer differently here, got {self.clean:.4g} and {self.corrupt:.4g}, "
                f"at most {least:.2g} apart, and shares of that mean little; choose another text, position or answers"
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
        given, own = self._given(at, place.stack), self._values[1](at)
        n, known = len(own), given.isfinite().all(-1, keepdim=True)
        masks = torch.eye(n, dtype=torch.bool, device=own.device).view(n, n, *[1] * (own.ndim - 1)) & known
        effects = torch.full((n,), float("nan"), dtype=torch.float64)
        effects[masks.flatten(1).any(1)] = 0.0
        changes = (masks & (given != own).any(-1, keepdim=True)).flatten(1).any(1).nonzero()[:, 0]
        with inference(self._network):
            for some in pieces(changes.split(max(1, self._budget // self._length)) if len(changes) else ()):
                patched = self._patched(at, place, given, masks[some])
                effects[some] = (patched - self.corrupt) / (self.clean - self.corrupt)
        return Row(at, "h" if own.ndim > 2 else "t", effects.float())

    @cached_property
    def _length(self) -> int:
        return n_positions(layouts(self._network, self._corrupt))

    def _patched(self, at: str, place: "_Place", given: Tensor, masks: Tensor) -> Tensor:
        """n, float64: the difference of logits with the given states where each mask is open."""
        network, n = self._network, len(masks)
        many = {name: repeated(tokens, n) for name, tokens in self._corrupt.items()}
        x = self._values[1](f"{place.stack}.blocks.{place.block}.resid_pre").expand(n, -1, -1)
        x = x.to(next(network.parameters()))
        memory = None
        if place.stack == "decoder" and "encoder" in many:
            memory = self._values[1](last_states(network, "encoder")).expand(n, -1, -1).to(x)

        def put(value: Tensor) -> Tensor:
            return torch.where(masks.to(value.device), given.to(value), value)

        with edited(network, {at: put}):
            return self._difference(self._logits(*run_from(network, many, place.stack, place.block, x, memory)))

    def _logits(self, x: Tensor, layout: Layout) -> Tensor:
        """n t d -> n v: the logits that the answer is read from."""
        head, config = self._network.head, self._network.config.head
        if isinstance(config, ClassificationHead):
            return head(x, layout)
        i = self.position[1]
        return head(x, layout)[:, i] if isinstance(config, SpanHead) else head(x[:, i][None], layout)[0]

    def _difference(self, logits: Tensor) -> Tensor:
        """... v -> ..., float64"""
        answer, minus = self._answers
        chosen = logits[..., answer].double()
        return (chosen if minus is None else chosen - logits[..., minus].double()).cpu()

    def _recorded(self, values: Values, position: int) -> float:
        logits = values("head.logits")
        return float(self._difference(logits if logits.ndim == 1 else logits[position]))

    def _given(self, at: str, stack: str) -> Tensor:
        """The clean states on the grid of the corrupt text; NaN at positions without a partner."""
        clean, corrupt = (values(at) for values in self._values)
        given = torch.full_like(corrupt, float("nan"))
        ours, theirs = (list(side) for side in zip(*self.alignment[stack], strict=True))
        given[..., theirs, :] = clean[..., ours, :]
        return given

    def _aligned(self, name: str) -> list[tuple[int, int]]:
        clean, corrupt = self._clean[name].ids, self._corrupt[name].ids
        length = self._network.stacks()[name].config.fixed_length
        if length is not None:
            return [(i, i) for i in range(length)]
        return aligned(clean[0].tolist(), corrupt[0].tolist())

    def _position(self, position: int) -> tuple[int, int]:
        length, other = (layouts(self._network, of)[self._last].grid[1] for of in (self._clean, self._corrupt))
        if not -length <= position < length:
            raise UserError(f"position {position}: expected a position of the clean text, whose length is {length}")
        partners = dict(self.alignment[self._last]) | {length - 1: other - 1}
        if position % length not in partners:
            raise UserError(f"position {position}: expected one that is aligned with the corrupt text; try another")
        return position % length, partners[position % length]

    def _traced(self, tokens: Mapping[str, Tokens]) -> Values:
        seen, _ = traced(self._network, tokens, without=("heads",))
        return lambda at: seen[at][0]


@dataclass(frozen=True)
class _Place:
    stack: str
    block: int
    value: str
