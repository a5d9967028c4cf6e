"""The texts of a data set: read from files, drawn at random, and turned into ids, cut to a longest length."""

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clearhead.api.base import ModelBase
from clearhead.data.guessing import InputColumns, read_inputs
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.progress import cached
from clearhead.recipe.data import TextFiles
from clearhead.recipe.places import place

Text: TypeAlias = str | tuple[str, ...]
"""A text, or two: a source and its target, or two texts that are read together."""
LONGEST = 2048
"""Tokens of a text of a model without a longest length of its own."""
AT_ONCE = 512
"""Texts that are encoded together."""


@dataclass(frozen=True)
class Texts:
    """The texts of files, read anew at each iteration: lines, or columns of tables."""

    files: tuple[str, ...]
    text: str | None = None
    """Column of the texts."""
    text_pair: str | None = None
    """Column of the second texts."""
    trained: dict[str, Any] = field(default_factory=dict)
    """The `data` of the model's recipe, whose columns are looked for first."""

    def __iter__(self) -> Iterator[Text]:
        columns = InputColumns(self.text, self.text_pair, ("text",), trained=self.trained)
        for file in TextFiles(paths=tuple(place(name) for name in self.files)).under(Path()).paths:
            yield from read_inputs(file, columns)


def is_blank(text: Text) -> bool:
    """Returns True if the text, or the first of two texts, is blank."""
    return not (text if isinstance(text, str) else text[0]).strip()


def texts_in(*files: str | Path, text: str | None = None, text_pair: str | None = None) -> Texts:
    """Texts from lines, CSV, TSV, JSON lines or Parquet, compressed or not. * in a name stands for any characters."""
    return Texts(tuple(map(str, files)), text, text_pair)


@dataclass(frozen=True)
class Encoded:
    """The ids of one text, for each stack that runs."""

    row: int
    """The number of the text in the data set, from 0."""
    ids: tuple[list[int], ...]
    types: list[int] | None = None
    is_cut: bool = False

    @property
    def length(self) -> int:
        """Tokens of all stacks."""
        return sum(map(len, self.ids))


@dataclass(frozen=True)
class Encoder:
    """Turns texts into ids as `Model.trace` does, cut to a longest length."""

    model: ModelBase
    stacks: tuple[str, ...]
    """The stacks that run. If only the encoder runs, no target is needed."""
    length: int | None = None

    @cached
    def limits(self) -> list[int]:
        """The longest length of each stack that runs."""
        stacks = self.model.config.stacks.items()
        own = [stack.max_length or LONGEST for name, stack in stacks if name in self.stacks]
        return own if self.length is None else [min(self.length, one) for one in own]

    def encoded(self, texts: Sequence[Text], first: int) -> list[Encoded]:
        """The ids of the texts that are not blank. Raises UserError, which names the row, for a wrong kind of text."""
        known = [(first + i, text) for i, text in enumerate(texts) if not is_blank(text)]
        if len(self.stacks) == 1 and all(isinstance(text, str) for _, text in known):
            return self._alone([(row, str(text)) for row, text in known])
        return [self._several(row, text) for row, text in known]

    def known(self, texts: Iterable[Text]) -> list[tuple[Encoded, Text]]:
        """Every text of a data set that is not blank, in order, with its ids."""
        pairs, n, every = list[tuple[Encoded, Text]](), 0, iter(texts)
        while some := [*itertools.islice(every, AT_ONCE)]:
            pairs += [(one, some[one.row - n]) for one in self.encoded(some, n)]
            n += len(some)
        return pairs

    def _alone(self, known: Sequence[tuple[int, str]]) -> list[Encoded]:
        reads, pad = self.model.reader, self.model.generation.pad_id
        cut = reads.cut_ids([text for _, text in known], limit=self.limits[0], prompt=reads.prefix)
        every = [
            (row, reads.until_padding(ids, pad), is_cut) for (row, _), (ids, is_cut) in zip(known, cut, strict=True)
        ]
        return [Encoded(row, (ids,), is_cut=is_cut) for row, ids, is_cut in every if ids]

    def _several(self, row: int, text: Text) -> Encoded:
        parts = text.split("\t", 1) if isinstance(text, str) and len(self.stacks) == 2 else text
        first, second = (parts, None) if isinstance(parts, str) else (*parts, None)[:2]
        try:
            inputs = self.model.reader.inputs(str(first), second, self.model.generation)[: len(self.stacks)]
        except UserError as error:
            raise UserError(f"row {row}: {error}; try --text and --text-pair") from None
        ids = [tokens.ids[0].tolist() for tokens in inputs]
        cut = tuple(one[:limit] for one, limit in zip(ids, self.limits, strict=True))
        types = inputs[0].types
        kinds = None if types is None else types[0].tolist()[: self.limits[0]]
        return Encoded(row, cut, kinds, is_cut=list(cut) != ids)

    def batch(self, some: Sequence[Encoded]) -> list[Tokens]:
        """The padded input of each stack that runs, on the network's device."""
        fill = self.model.reader.fill(self.model.generation.pad_id)
        found = [Tokens.pad([one.ids[i] for one in some], fill=fill) for i in range(len(self.stacks))]
        if some[0].types is not None:
            types = Tokens.pad([one.types or [0] for one in some]).ids
            found[0] = Tokens(found[0].ids, found[0].valid, types=types)
        return [self.model.here(tokens) for tokens in found]


# --- chance that does not depend on batches --------------------------------------------------------------------------


def shares(seed: int, rows: np.ndarray | int, positions: np.ndarray | int) -> np.ndarray:
    """A number in [0, 1) for each position of a text: a function of (seed, row, position) alone."""
    with np.errstate(over="ignore"):
        start = _mixed(_mixed(np.uint64(seed % 2**64)) ^ np.asarray(rows).astype(np.uint64))
        return (_mixed(start ^ np.asarray(positions).astype(np.uint64)) >> np.uint64(11)) / 2.0**53


def _mixed(x: Any) -> Any:
    """The finalizer of SplitMix64 (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def drawn(texts: Iterable[Text], n: int, *, seed: int = 0) -> list[tuple[int, Text]]:
    """At most n texts with their rows, drawn at random without blank ones, in the order of the data."""
    known = ((row, text) for row, text in enumerate(texts) if not is_blank(text))

    def ranked() -> Iterator[tuple[float, int, Text]]:
        while some := [*itertools.islice(known, AT_ONCE)]:
            ranks = shares(seed, np.array([row for row, _ in some]), -1).tolist()
            yield from ((rank, row, text) for rank, (row, text) in zip(ranks, some, strict=True))

    return sorted((row, text) for _, row, text in heapq.nsmallest(n, ranked(), key=lambda one: one[:2]))


class Digest:
    """SHA-256 of the texts so far, so that a resumed capture knows whether the data are the same."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, text: Text) -> None:
        """Adds the next text."""
        for part in (text,) if isinstance(text, str) else text:
            content = part.encode()
            self._sha.update(len(content).to_bytes(8, "little") + content)
        self._sha.update(b"\n")

    def __str__(self) -> str:
        return self._sha.hexdigest()
