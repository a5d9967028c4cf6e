"""`Examples`: the texts of a data set that excite a head, a neuron or a direction most, found a batch at a time."""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from clearhead.api.base import ModelBase
from clearhead.brief import brief
from clearhead.capture.passes import Plan, Site, batches, every_address, run, sites_of
from clearhead.capture.reading import Captured
from clearhead.capture.texts import Encoded, Text
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.progress import cached
from clearhead.text.schemes import SPACE
from clearhead.trace import Address

WINDOW = 256
"""Texts that are sorted by length together."""
BATCH_TOKENS = 2048
Score: TypeAlias = tuple[Tensor, Tensor | None]
"""b t: how strong each position is; b t: the key that it points at, for attention weights."""


@dataclass(frozen=True)
class Example:
    """One text, and the strength of the part at each of its tokens."""

    __repr__ = brief

    row: int
    """The number of the text in the data set, from 0."""
    text: Text | None
    """The text; None for a capture, which stores tokens only."""
    value: float
    """The largest of `values`."""
    position: int
    """Where it is."""
    key: int | None
    """For attention weights, the position of the key that has it; for cross-attention it counts in `source`."""
    tokens: tuple[str, ...]
    values: tuple[float, ...]
    source: tuple[str, ...] | None = None
    """For cross-attention, the tokens that it reads."""

    def marked(self) -> str:
        """The text with its strongest token in brackets, and the token that it reads if any: `the [cat] sat <- the`."""
        some = spelled(self.tokens)
        here = some[self.position]
        some[self.position] = f"{' ' * here.startswith(' ')}[{here.strip()}]"
        read = "" if self.key is None else f" <- {spelled(self.source or self.tokens)[self.key].strip()}"
        return "".join(some).strip() + read


def spelled(tokens: Sequence[str]) -> list[str]:
    """The tokens as they stand in a text, with the space before them."""
    spaced = any(SPACE in token for token in tokens)
    return [
        token.replace(SPACE, " ") if spaced or i == 0 else token[2:] if token.startswith("##") else f" {token}"
        for i, token in enumerate(tokens)
    ]


class Examples:
    """The texts that activate one part most. Iterate over `reading()`, and ask for `best` at any time.

    `at` is an address with one number for each position (`….ffn.post[f=7]`, which is the strength), a vector (its norm,
    or with `direction` its dot product with that), or a head's weights (`….attn.weights[h=2]`: the largest weight that
    a position gives to any token but the special ones and, within a text, the first: on these attention without a
    target rests).
    """

    def __init__(
        self,
        model: ModelBase,
        texts: Iterable[Text] | Captured,
        at: str,
        *,
        top: int = 20,
        direction: Tensor | None = None,
        length: int | None = None,
    ) -> None:
        """Raises UserError for an address that has no strength, or a direction of another width."""
        self._model, self._texts, self._top, self._direction = model, texts, top, direction
        self._site = _site(model, at)
        self._plan = Plan(model, (self._site,), length=length)
        width = self._site.shape
        if direction is not None and width != tuple(direction.shape):
            raise UserError(f"direction: expected the shape of {at}, {[*width]}, got {[*direction.shape]}")
        self._kept: list[tuple[float, int, Example]] = []
        self._seen: dict[Text, float] = {}
        self.n_read = 0
        """Texts so far."""

    @property
    def best(self) -> list[Example]:
        """The strongest texts so far, each once, strongest first."""
        return [example for _, _, example in sorted(self._kept, key=lambda one: one[:2], reverse=True)]

    @property
    def measures(self) -> str:
        """A description of the strength."""
        if self.points:
            return "largest weight on a token other than the special ones and, in its own text, the first"
        if self._direction is not None:
            return "dot product with the direction"
        return "norm" if self.width else "value"

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of the value at a position; () for one number."""
        return self._site.shape

    def all(self) -> list[Example]:
        """The strongest texts of the whole data set."""
        for _ in self.reading():
            pass
        return self.best

    def reading(self) -> Iterator[int]:
        """Reads the data set; yields the number of texts so far after each batch."""
        if isinstance(self._texts, Captured):
            yield from self._captured(self._texts)
            return
        every = iter(self._texts)
        while some := [*itertools.islice(every, WINDOW)]:
            begin = self.n_read
            encoded = self._plan.encoder.encoded(some, begin)
            groups, done = batches(encoded, tokens=BATCH_TOKENS), begin + len(some) - len(encoded)
            for batch in groups:
                self._batch([encoded[i] for i in batch], [some[encoded[i].row - begin] for i in batch])
                done += len(batch)
                self.n_read = done
                yield done
            self.n_read = begin + len(some)

    @property
    def points(self) -> bool:
        """True if the strength of a position is its weight on another position."""
        return "s" in self._site.axes.split() and self._site.letter == "t" and "s" not in self._site.index

    @property
    def _crosses(self) -> bool:
        return ".cross." in self._site.path

    def _batch(self, some: Sequence[Encoded], texts: Sequence[Text]) -> None:
        tokens = self._plan.encoder.batch(some)
        stacks = dict(zip(self._plan.encoder.stacks, tokens, strict=True))
        with Evaluating(self._model.network):
            value = run(self._plan, tokens)[self._site.path].float()
        scores, keys = self._pointed(value, stacks) if self.points else (self._strength(self._site.cells(value)), None)
        own = stacks[self._site.stack]
        scores = scores.masked_fill(~own.valid_cells, float("-inf")).cpu()
        at_stack = self._plan.encoder.stacks.index(self._site.stack)
        for i, (one, text) in enumerate(zip(some, texts, strict=True)):
            ids = one.ids[at_stack]
            read = one.ids[0] if self.points and self._crosses else None
            self._offer(one.row, text, scores[i, : len(ids)], ids, None if keys is None else keys[i], read)

    def _offer(
        self,
        row: int,
        text: Text | None,
        values: Tensor,
        ids: list[int],
        keys: Tensor | None = None,
        read: list[int] | None = None,
    ) -> None:
        """Keeps a text of these strengths and tokens if it is among the strongest."""
        value, at = float(values.max()), int(values.argmax())
        if not self._is_weak(value, row):
            key = None if keys is None else int(keys[at])
            named = self._model.tokenizer.tokens
            source = None if read is None else tuple(named(read))
            self._keep(Example(row, text, value, at, key, tuple(named(ids)), tuple(values.tolist()), source))

    def _strength(self, cells: Tensor) -> Tensor:
        """b t or n: the strength of each position among b t … or n …."""
        n = cells.ndim - len(self._site.shape)
        if self._direction is not None:
            return (cells * self._direction.to(cells)).flatten(n).sum(-1)
        return cells.flatten(n).norm(dim=-1) if self._site.shape else cells

    def _pointed(self, value: Tensor, stacks: dict[str, Tokens]) -> Score:
        """The largest weight of each position on a key that is no resting place."""
        weights = value[:, self._site.index["h"]]
        read = stacks["encoder" if self._crosses else self._site.stack]
        rests = torch.isin(read.ids, self._special.to(read.ids.device))
        rests[:, 0] |= not self._crosses
        found = weights.masked_fill(rests[:, None], 0.0).max(-1)
        return found.values, found.indices

    @cached
    def _special(self) -> Tensor:
        words = self._model.tokenizer
        ids = (words.library.token_to_id(token) for token in words.special_tokens.values())
        return torch.tensor([i for i in ids if i is not None], dtype=torch.long)

    def _is_weak(self, value: float, row: int) -> bool:
        return len(self._kept) >= self._top and (value, -row) <= self._kept[0][:2]

    def _keep(self, example: Example) -> None:
        """Keeps an example unless its text is there already."""
        name = example.text if example.text is not None else "".join(example.tokens)
        if name in self._seen:
            return
        self._seen[name] = example.value
        heapq.heappush(self._kept, (example.value, -example.row, example))
        if len(self._kept) > self._top:
            _, _, last = heapq.heappop(self._kept)
            self._seen.pop(last.text if last.text is not None else "".join(last.tokens))

    def _captured(self, folder: Captured) -> Iterator[int]:
        """Reads the vectors of a capture, shard by shard."""
        settings, address = folder.about["settings"], _captured_as(folder, self._site)
        if settings["positions"] != "all" or settings["sample"] < 1.0:
            raise UserError(
                f"{folder.folder}: expected a capture of all positions of all texts; capture without --sample"
            )
        index = {axis: i for axis, i in self._site.index.items() if axis not in dict(Address.parse(address).index)}
        axes = [name for name in folder.about["addresses"][address]["axes"].split() if name not in "bts"]
        rows = folder.rows(address)
        begin = 0
        for part in folder.parts(address):
            for axis in reversed(axes):
                if axis in index:
                    part = part.select(1 + axes.index(axis), index[axis])
            scores, end = self._strength(part.float()), begin + len(part)
            texts, counts = rows.text[begin:end].unique_consecutive(return_counts=True)
            ids = rows.token[begin:end].split(counts.tolist())
            for row, values, own in zip(texts.tolist(), scores.split(counts.tolist()), ids, strict=True):
                self._offer(row, None, values, own.tolist())
            begin = end
            self.n_read = int(texts[-1]) + 1 if len(texts) else self.n_read
            yield self.n_read


def _captured_as(folder: Captured, site: Site) -> str:
    """The address in a capture that holds the values of a site."""
    for address in folder:
        there = Address.parse(address)
        if there.path == site.path and set(there.index) <= set(site.address.index):
            return address
    known = ", ".join(folder)
    raise UserError(
        f"{site.address}: expected an address of {folder.folder}, which has {known[:200]}; capture it first"
    )


def _site(model: ModelBase, at: str) -> Site:
    """The site of an address, which may be the weights of one head."""
    where = Address.parse(at.replace("*", "_"))  # A pattern is refused below.
    if where.path.endswith(".weights") and set(dict(where.index)) == {"h"}:
        seen = every_address(model)
        if where.path in seen:
            seen[at]  # Raises UserError for a head that is not there.
            return Site(where, seen.axes[where.path], (), where.path.split(".")[0])
    found = sites_of(model, [at])
    if len(found) != 1 or found[0].letter is None or found[0].position is not None:
        raise UserError(f"{at}: expected one address with a value at each position; try ….ffn.post[f=7]")
    return found[0]
