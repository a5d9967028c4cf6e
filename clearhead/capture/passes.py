"""Forward passes over a data set that record a few addresses: windows of texts, batches of similar lengths.

A site is an address with one vector for each position of a text, or for each text.

What a window holds depends on the texts and the settings alone, so that a capture that goes on after a kill makes the
same batches, and the same bytes, as one that was never interrupted.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from clearhead.analysis.passes import inference
from clearhead.api.base import ModelBase
from clearhead.brief import brief
from clearhead.capture.texts import AT_ONCE, Digest, Encoded, Encoder, Text, shares
from clearhead.config import Continuous
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.progress import cached, counted
from clearhead.trace import Address, Trace, nearest, recording, trace

FIXED = frozenset("dhkfve")
"""The axes whose size is the same for every text."""


def smallest(model: ModelBase) -> list[Tokens]:
    """The smallest possible input of each stack."""
    inputs: list[Tokens] = []
    for stack in model.config.stacks.values():
        reads = stack.input
        one = torch.zeros(1, *reads.shape) if isinstance(reads, Continuous) else torch.zeros(1, 1, dtype=torch.long)
        inputs.append(model.here(Tokens(one)))
    return inputs


def every_address(model: ModelBase, *, large: bool = False) -> Trace:
    """A trace of the smallest possible input: every address of the model, with its axes; `large` as in `trace`."""
    with inference(model.network), trace(model.network, large=large) as seen:
        model.network(*smallest(model))
    return seen


@dataclass(frozen=True)
class Site:
    """An address with one vector for each position, or for each text."""

    address: Address
    axes: str
    shape: tuple[int, ...]
    """The shape of one vector."""
    stack: str
    """The stack whose positions it has."""

    @property
    def path(self) -> str:
        """The address without its indices."""
        return self.address.path

    @cached
    def index(self) -> dict[str, int]:
        """The indices by axis."""
        return dict(self.address.index)

    @property
    def letter(self) -> str | None:
        """The axis of its positions: t, or else s; None if each text has one vector."""
        return next((axis for axis in "ts" if axis in self.axes.split()), None)

    @property
    def position(self) -> int | None:
        """The position that its indices choose, counted from a text's end if it is negative."""
        return None if self.letter is None else self.index.get(self.letter)

    @property
    def key(self) -> int | None:
        """The key position that its indices choose, for a value of pairs of positions."""
        return self.index.get("s") if self.letter == "t" else None

    @property
    def group(self) -> str:
        """The group, whose sites have the same rows: `decoder`, `decoder[t=-1]`, or `text` if a text has one vector."""
        if self.letter is None:
            return "text"
        chosen = [f"{axis}={i}" for axis, i in (("t", self.position), ("s", self.key)) if i is not None]
        return f"{self.stack}[{','.join(chosen)}]" if chosen else self.stack

    def cells(self, value: Tensor) -> Tensor:
        """The value as b t …, or b … for one vector for each text. An index of positions is left to the caller."""
        for axis in reversed(self.axes.split()):
            if axis in self.index and axis != self.letter:
                value = value.select(self.axes.split().index(axis), self.index[axis])
        if self.letter is None:
            return value
        left = [axis for axis in self.axes.split() if axis == self.letter or axis not in self.index]
        return value.movedim(left.index(self.letter), 1)


def sites_of(model: ModelBase, wanted: Sequence[str], *, every: Trace | None = None) -> list[Site]:
    """The sites at these addresses; * stands for any part of a path between dots.

    Raises UserError for an address that the model does not have, and for one whose vectors differ in size.
    """
    if isinstance(wanted, str) or not wanted:
        raise UserError(f"at: expected addresses such as decoder.blocks.*.resid_post, got {wanted or 'none'}")
    seen = every_address(model) if every is None else every
    found: dict[str, Site] = {}
    for text in wanted:
        for address in _matching(text, seen):
            found[str(address)] = _site(model, address, seen)
    return list(found.values())


def _matching(text: str, seen: Trace) -> list[Address]:
    """The addresses that a text names."""
    path, bracket, index = text.partition("[")
    if "*" not in path:
        where = Address.parse(text)
        if where.path not in seen:
            raise UserError(
                f"{where.path}: expected an address of this model{nearest(where.path, seen) or ', got none'}"
            )
        return [where]
    pattern = re.compile(re.escape(path).replace(r"\*", r"[^.]*"))
    found = [Address.parse(one + bracket + index) for one in seen if pattern.fullmatch(one)]
    if not found:
        raise UserError(f"{text}: expected an address of this model, got none{nearest(path.replace('*', '0'), seen)}")
    return found


def _site(model: ModelBase, address: Address, seen: Trace) -> Site:
    axes, shape = seen.axes[address.path], seen[address.path].shape
    index, names = dict(address.index), axes.split()
    letter = next((axis for axis in "ts" if axis in names), None)
    moving = {letter, "s"}  # The smallest input is too short to tell whether a position is there.
    Address(address.path, tuple(one for one in address.index if one[0] not in moving)).slices(axes, shape)
    if unknown := index.keys() - set(names):
        raise UserError(f"{address}: axis {min(unknown)!r} is not one of {axes!r}")
    if "b" in index or names[0] != "b":
        raise UserError(f"{address}: expected a value of each text, got axes {axes}; leave out an index of b")
    rest = [(axis, n) for axis, n in zip(names, shape, strict=True) if axis not in {"b", letter, *index}]
    if not {axis for axis, _ in rest} <= FIXED:
        raise UserError(
            f"{address}: expected vectors of one size for all texts, got axes {axes}; choose one key with [s=0]"
        )
    if letter == "t" and index.get("s", 0) < 0:
        raise UserError(f"{address}: expected a key counted from the beginning, got s={index['s']}; try [s=0]")
    stacks = list(model.config.stacks)
    stack = address.path.split(".")[0]
    of_keys = letter == "s" and ".cross." in address.path
    own = "encoder" if of_keys else stack if stack in stacks else stacks[-1]
    return Site(address, axes, tuple(n for _, n in rest), own)


def needs_explicit(model: ModelBase, sites: Sequence[Site]) -> bool:
    """Returns True if only the explicit forms of ops have these values. Fused kernels hide values with both t and s."""
    paths = {site.path for site in sites}
    if any({"t", "s"} <= set(site.axes.split()) for site in sites):
        return True
    with inference(model.network), recording(model.network, paths) as seen:
        model.network(*smallest(model))
    return len(seen) < len(paths)


Positions: TypeAlias = Literal["all", "first", "last", "mean", "max"]
BATCH_TOKENS = 4096
"""Tokens of one batch, padding included."""
MOST_TEXTS, MOST_TOKENS = 1 << 16, 1 << 22
"""Most texts and tokens of one window, so that windows fit into memory if few of their positions are kept."""


@dataclass(frozen=True)
class Plan:
    """What to record of each text."""

    model: ModelBase
    sites: tuple[Site, ...]
    positions: Positions = "all"
    sample: float = 1.0
    """The share of the rows that are kept."""
    seed: int = 0
    length: int | None = None
    """Tokens of each text at most."""

    @classmethod
    def of(cls, model: ModelBase, at: Sequence[str], **settings: object) -> "Plan":
        """The plan for these addresses. Raises UserError for a model of images or sounds, or a wrong address."""
        if model.reader.reads_images or model.reader.reads_sounds:
            raise UserError("capture: expected a model that reads texts, got one of images or sounds; try model.trace")
        return cls(model, tuple(sites_of(model, at)), **settings)  # pyrefly: ignore[bad-argument-type]

    @cached
    def encoder(self) -> Encoder:
        """Turns texts into ids, only for the encoder if all sites are in it, else for every stack."""
        names = tuple(self.model.config.stacks)
        alone = all(site.path.startswith("encoder.") for site in self.sites)
        return Encoder(self.model, names[:1] if alone else names, self.length)

    @cached
    def explicit(self) -> bool:
        """True if ops take their explicit form."""
        return needs_explicit(self.model, self.sites)

    @cached
    def groups(self) -> dict[str, Site]:
        """One site of each group."""
        return {site.group: site for site in reversed(self.sites)}

    def kept(self, one: Encoded) -> dict[str, np.ndarray]:
        """The positions of a text that are kept, by group; -1 where a row stands for the whole text."""
        return {group: self._kept(one, site) for group, site in self.groups.items()}

    def reduces(self, site: Site) -> bool:
        """Returns True if a row of this site is the mean or the maximum over a text."""
        return site.letter is not None and site.position is None and self.positions in ("mean", "max")

    def _kept(self, one: Encoded, site: Site) -> np.ndarray:
        n, at = self._length(one, site.stack), site.position
        if site.key is not None and site.key >= self._length(one, self._key_stack(site)):
            return np.empty(0, np.int64)
        if site.letter is None or self.reduces(site):
            found = np.array([-1])
        elif at is not None:
            found = np.array([at % n] if -n <= at < n else [], np.int64)
        else:
            found = {"all": np.arange(n), "first": np.array([0]), "last": np.array([n - 1])}[self.positions]
        return found if self.sample >= 1.0 else found[shares(self.seed, one.row, found) < self.sample]

    def _length(self, one: Encoded, stack: str) -> int:
        return len(one.ids[self.encoder.stacks.index(stack)])

    @staticmethod
    def _key_stack(site: Site) -> str:
        return "encoder" if ".cross." in site.path else site.stack


@dataclass(eq=False)
class Window:
    """Consecutive texts whose rows belong together, such as in one shard."""

    __repr__ = brief

    begin: int
    """The number of its first text."""
    end: int
    """The number of the first text after it."""
    digest: str
    """The digest of all texts up to its end."""
    texts: list[Encoded] = field(default_factory=list[Encoded])
    kept: list[dict[str, np.ndarray]] = field(default_factory=list[dict[str, np.ndarray]])
    n_cut: int = 0

    def rows(self, group: str) -> dict[str, np.ndarray]:
        """The text and the position of each row of a group, in order."""
        counts = [len(one[group]) for one in self.kept]
        return {
            "text": np.repeat(np.array([one.row for one in self.texts], np.int64), counts),
            "position": np.concatenate([np.empty(0, np.int64), *(one[group] for one in self.kept)]).astype(np.int32),
        }


def windows(
    plan: Plan, texts: Iterable[Text], n_numbers: int, *, skip: int = 0, expected: str | None = None
) -> Iterator[Window]:
    """Yields the windows of a data set, each of at most `n_numbers` in its rows and at least one text.

    `skip` texts belong to windows that are done. Raises UserError unless their digest is the expected one.
    """
    sizes = {group: sum(int(np.prod(s.shape)) for s in plan.sites if s.group == group) for group in plan.groups}
    digest, every, row = Digest(), iter(texts), 0
    for text in itertools.islice(every, skip):
        digest.add(text)
        row += 1
    if row < skip or (expected is not None and str(digest) != expected):
        raise UserError("--data: expected the texts that the capture began with, got others; try another --out")
    window, size, n_tokens = Window(row, row, str(digest)), 0, 0
    while some := [*itertools.islice(every, AT_ONCE)]:
        encoded = {one.row: one for one in plan.encoder.encoded(some, row)}
        for text in some:
            one = encoded.get(row)
            kept: dict[str, np.ndarray] = {} if one is None else plan.kept(one)
            own = sum(len(kept[group]) * sizes[group] for group in kept)
            length = 0 if one is None else one.length
            full = size + own > n_numbers or n_tokens + length > MOST_TOKENS
            if row > window.begin and (full or row - window.begin >= MOST_TEXTS):
                yield window
                window, size, n_tokens = Window(row, row, ""), 0, 0
            digest.add(text)
            row += 1
            window.end, window.digest = row, str(digest)
            if one is not None and own:
                window.texts.append(one)
                window.kept.append(kept)
                window.n_cut += one.is_cut
                size, n_tokens = size + own, n_tokens + length
    if window.end > window.begin:
        yield window


def batches(texts: Sequence[Encoded], *, tokens: int = BATCH_TOKENS) -> list[list[int]]:
    """The numbers of the texts of each batch: similar lengths, and about `tokens` with the padding at most."""
    order = sorted(range(len(texts)), key=lambda i: (-texts[i].length, i))
    found: list[list[int]] = []
    width = 0
    for i in order:
        if not found or (len(found[-1]) + 1) * width > tokens:
            found.append([])
            width = texts[i].length
        found[-1].append(i)
    return found


def run(plan: Plan, tokens: Sequence[Tokens]) -> dict[str, Tensor]:
    """The values at the sites' paths in one forward pass, which ends after the last of them."""
    network = plan.model.network
    paths = {site.path for site in plan.sites}
    with torch.inference_mode(), recording(network, paths, explicit=plan.explicit) as seen:
        if len(tokens) == len(network.stacks()):
            network(*tokens)
        else:
            network.encode(tokens[0])
    return {path: seen[path] for path in paths}


def recorded(plan: Plan, window: Window, dtype: torch.dtype) -> dict[str, Tensor]:
    """The rows of a window by address, in the order of `Window.rows`, and the token of each row as `GROUP.token`."""
    starts = {group: np.cumsum([0, *(len(one[group]) for one in window.kept)]) for group in plan.groups}
    found = {
        str(site.address): torch.empty(int(starts[site.group][-1]), *site.shape, dtype=dtype) for site in plan.sites
    }
    tokens = {group: torch.full((int(starts[group][-1]),), -1, dtype=torch.int32) for group in plan.groups}
    with Evaluating(plan.model.network):
        for batch in counted(batches(window.texts), f"texts {window.begin:,} to {window.end:,}"):
            inputs = plan.encoder.batch([window.texts[i] for i in batch])
            values = run(plan, inputs)
            stacks = dict(zip(plan.encoder.stacks, inputs, strict=True))
            chosen = {group: _chosen(window, batch, group, starts[group]) for group in plan.groups}
            for group, site in plan.groups.items():
                batch_rows, at, into = chosen[group]
                if site.letter is not None and not plan.reduces(site):
                    tokens[group][into] = stacks[site.stack].ids[batch_rows, at].int().cpu()
            for site in plan.sites:
                batch_rows, at, into = chosen[site.group]
                if len(into):
                    cells = site.cells(values[site.path])
                    rows = _rows(plan, site, cells, stacks[site.stack].valid_cells, batch_rows, at)
                    found[str(site.address)][into] = rows.to("cpu", dtype)
    return found | {f"{group}.token": value for group, value in tokens.items()}


def _chosen(window: Window, batch: Sequence[int], group: str, starts: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """n, n, n: for each row that is kept of a batch, its text there, its position, and its place in the window."""
    counts = [len(window.kept[i][group]) for i in batch]
    at = np.concatenate([window.kept[i][group] for i in batch])
    into = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in batch])
    return (
        torch.arange(len(batch)).repeat_interleave(torch.tensor(counts)),
        torch.from_numpy(at),
        torch.from_numpy(into),
    )


def _rows(plan: Plan, site: Site, cells: Tensor, valid: Tensor, batch_rows: Tensor, at: Tensor) -> Tensor:
    """n …: the rows of a site among its cells, b t … or b …."""
    batch_rows, at = batch_rows.to(cells.device), at.to(cells.device)
    if site.letter is None:
        return cells[batch_rows]
    if not plan.reduces(site):
        return cells.flatten(0, 1).index_select(0, batch_rows * cells.shape[1] + at)
    real = valid.view(*valid.shape, *[1] * (cells.ndim - 2))
    if plan.positions == "max":
        return cells.masked_fill(~real, float("-inf")).amax(1)[batch_rows]
    n = valid.sum(1).view(-1, *[1] * (cells.ndim - 2))
    return (cells.masked_fill(~real, 0.0).sum(1) / n)[batch_rows]
