"""Activation patching, swept over a network: which states carry the difference between two texts."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, get_args

import torch
from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.metrics import LEAST, Ids, LogitDifference
from clearhead.analysis.passes import (
    Inputs,
    Seen,
    by_stack,
    check_labels,
    layouts,
    traced,
)
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.heads import OutputHead
from clearhead.trace import Edit

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


class Unclear(UserError):
    """The two texts answer so nearly alike that shares of their difference mean little."""


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
        columns: Mapping[str, Tensor] = {},
        values: tuple[Seen, Seen] | None = None,
        budget: int = 1024,
        least: float = LEAST,
    ) -> None:
        """`position` is that of the answer in the clean texts; a head that pools has none. `columns` has the
        cells of a stack, n b|1 t, bool: the positions of each corrupt text that are patched together. By default each
        position is a cell. `values` are those of both runs, if they were made already. A forward pass has at most about
        `budget` positions.

        Raises UserError for padding, for several pairs of which the texts differ in length, without a head, or if the
        differences of no pair are further apart than `least`, and than rounding is.
        """
        self._network, self._budget = network, budget
        self._clean, self._corrupt = by_stack(network, clean), by_stack(network, corrupt)
        if not isinstance(network.head, OutputHead):
            raise UserError("patching: expected a head, got a network that ends in its states")
        check_labels(network.head.output.out_features, answer, minus, name="answer")
        self._last = list(network.stacks())[-1]
        self._sites = [
            f"{name}.blocks.{i}.{value}"
            for name, stack in reversed(network.stacks().items())
            for i in reversed(range(len(stack.blocks)))
            for value in itertools.chain(*VALUES.values())
            if stack.cross or not value.startswith("cross")
        ]
        self.alignment = {name: self._aligned(name) for name in network.stacks()}
        """The aligned positions of each stack, (clean, corrupt)."""
        self.position = self._position(position)
        """The positions of the answer, (clean, corrupt). The last one of a text goes with the last of the other."""
        self._columns = columns
        both = (traced(network, tokens, without=("heads",))[0] for tokens in (self._clean, self._corrupt))
        self._values = values or tuple[Seen, ...](both)
        metric, logits = LogitDifference(answer, minus, self.position[1]), self._values[0]["head.logits"]
        self._runs = Ablations(network, list(self._corrupt.values()), position=self.position[1], metric=metric)
        found = metric.of(logits if logits.ndim == 2 else logits[:, self.position[0]]), self._runs.expected
        self.clean, self.corrupt = (one.double().cpu() for one in found)
        """b, float64: the difference of logits in each run."""
        rounding = 2 * torch.finfo(network.dtype).eps
        least_each = (rounding * torch.maximum(self.clean.abs(), self.corrupt.abs())).clamp(min=least)
        self.is_clear = (self.clean - self.corrupt).abs() > least_each
        """b, bool: False for a pair whose differences are so near that shares mean little: its cells are NaN."""
        if not self.is_clear.any():
            raise Unclear(
                f"patching: expected texts that answer differently here, got {float(self.clean[0]):.4g} and"
                f" {float(self.corrupt[0]):.4g}, at most {float(least_each[0]):.2g} apart, and shares of that mean"
                " little; choose another text, position or answers"
            )

    def sites(self, part: Part) -> list[str]:
        """The addresses of the rows of a part, the last block first, because its passes are the shortest."""
        return [at for at in self._sites if at.split(".", 3)[3] in VALUES[part]]

    def rows(self, *parts: Part) -> Iterator[Row]:
        """Yields the rows of these parts, or of all, as they are computed."""
        for part in parts or PARTS:
            yield from map(self.row, self.sites(part))

    def row(self, at: str) -> Row:
        """The effects of the states at one address, such as `decoder.blocks.3.attn.z`."""
        if at not in self._sites:
            values = ", ".join(itertools.chain(*VALUES.values()))
            raise UserError(f"{at}: expected the address of {values} of a block, such as decoder.blocks.0.resid_pre")
        stack, (clean, own) = at.split(".", maxsplit=1)[0], (values[at] for values in self._values)
        ours, theirs = (list(side) for side in zip(*self.alignment[stack], strict=True))
        given, is_heads = own.clone(), own.ndim > 3
        given[..., theirs, :] = clean[..., ours, :]
        differs, (b, t) = (given != own).any(-1), (len(own), own.shape[-2])
        cells = self._columns.get(stack, torch.eye(t, dtype=torch.bool)[:, None])
        cells = torch.ones(own.shape[1], 1, t, dtype=torch.bool) if is_heads else cells
        cells, edits = cells.to(own.device), list[dict[str, Edit]]()
        for i, cell in enumerate(cells):
            new, changed = (given[:, i], differs[:, i]) if is_heads else (given, cell & differs)
            new = new if is_heads else torch.where(cell[..., None], given, own)
            index = f"h={i}," if is_heads else ""
            edits.append({f"{at}[{index}t={j}]": new[:, j] for j in changed.any(0).nonzero()[:, 0].tolist()})
        which, effects = [i for i, edit in enumerate(edits) if edit], torch.zeros(len(cells), b, dtype=torch.float64)
        for i, found in self._runs.edited([edits[i] for i in which], budget=self._budget):
            effects[which[i]] = found.double().cpu() - self.corrupt
        is_known = cells[..., theirs].any(-1).cpu() & self.is_clear
        effects = (effects / (self.clean - self.corrupt)).masked_fill(~is_known, float("nan"))
        return Row(at, "h" if is_heads else "t", effects.T.float())

    def _aligned(self, name: str) -> list[tuple[int, int]]:
        both = self._clean[name], self._corrupt[name]
        length = self._network.stacks()[name].config.fixed_length
        if length is not None:
            return [(i, i) for i in range(length)]
        (n, own), (m, other) = (tokens.grid for tokens in both)
        if n != m or (n > 1 and own != other) or any(one.valid is not None and not one.valid.all() for one in both):
            raise UserError(f"{name}: expected pairs of one length without padding, got others; pass one pair")
        return aligned(*(one.ids[0].tolist() for one in both))

    def _position(self, position: int) -> tuple[int, int]:
        length, other = (layouts(self._network, of)[self._last].grid[1] for of in (self._clean, self._corrupt))
        if not -length <= position < length:
            raise UserError(f"position {position}: expected a position of the clean text, whose length is {length}")
        partners = dict(self.alignment[self._last]) | {length - 1: other - 1}
        if position % length not in partners:
            raise UserError(f"position {position}: expected one that is aligned with the corrupt text; try another")
        return position % length, partners[position % length]
