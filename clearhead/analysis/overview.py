"""The overview of one answer: how much of it each head, attention weight, stream and feed-forward carries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.ablation import Place, places
from clearhead.analysis.changes import Change, Changes
from clearhead.analysis.metrics import Vectors, mean_states
from clearhead.analysis.passes import Inputs, one_text
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Transformer
from clearhead.model.attention import Attention
from clearhead.model.heads import scores
from clearhead.model.linear import refuse_rounded
from clearhead.trace import Address, Edit

HEADS = 24
"""The most heads whose attention weights are measured one by one."""
LANES = 24
"""The most lanes of a stack."""
CURVES = 512
"""The most attention weights that are measured."""
DIRECTIONS = 4
"""Directions along which gradients of a vector are taken."""
PASS = 2048
"""About how many positions go through a pass."""
LEAST_WEIGHT = 0.02
"""The smallest attention weight that is measured."""


@dataclass(frozen=True)
class HeadEffects:
    """The answer without each head."""

    __repr__ = brief

    at: tuple[str, ...]
    """The address of each head: `decoder.blocks.3.attn.z[h=4]`."""
    moved: Tensor
    """M of its output := 0 at all positions; NaN: not measured."""
    p: Tensor
    """The probability of the likeliest answer without it."""


@dataclass(frozen=True)
class Curve:
    """One attention weight."""

    at: str
    """Its address: `decoder.blocks.3.attn.weights[h=4,t=4,s=3]`."""
    weight: float
    moved: float
    """M of this weight := 0, the others of its row unchanged."""
    p: float


class Overview:
    """M(edit) = 1/2 sum_w |p(w) - p(w | edit)|: the share of one answer that moves, 0 to 1, with one edit of its pass.

    A network that makes vectors has (1 - cosine) / 2 instead, one with independent labels the largest |p - p(edit)|,
    and a regression |y - y(edit)| / (|y| + |y(edit)|). Each attribute is measured when it is first read. Gradients
    only decide what is measured first; what `budget` does not reach is NaN.
    """

    def __init__(
        self,
        network: Transformer,
        inputs: Inputs,
        *,
        position: int | None = None,
        among: Sequence[int] = (),
        edit: Mapping[str, Edit] | None = None,
        vectors: Vectors = mean_states,
        budget: float = float("inf"),
    ) -> None:
        """`position` is that of the answer in the last stack. By default it is the one, `among` those given or all that
        answer, whose best head moves the answer most. A decoder alone answers at its last position.

        Everything refers to the network with the edits `edit`. `budget` is the number of multiplications that each
        attribute may take. Raises UserError for several texts, and for a position that the text does not have.
        """
        refuse_rounded(network, "overview")
        self._network, self._vectors, self._budget = network, vectors, budget
        self._head = network.config.head
        self._edited = {*(edit or {})}
        self._edits_head = any(at.startswith("head.") for at in edit or {})
        self._passes = Changes(network, one_text(network, inputs), edit or {}, budget=PASS)
        self._last = list(network.stacks())[-1]
        self._length = self._passes.layouts[self._last].grid[1]
        self._positions = self._answering(position, among)
        self._gradients: dict[tuple[int, ...], dict[str, Tensor]] = {}
        self._own = self._passes.read(partial(self._read, (*range(len(self._positions)),)))[0].detach()

    def _answering(self, position: int | None, among: Sequence[int]) -> list[int]:
        for one in [*among, *([] if position is None else [position])]:
            if not -self._length <= one < self._length:
                raise UserError(f"position {one}: expected one of the last stack, whose length is {self._length}")
        if not self._is_by_position:
            return [self._length - 1]
        if position is not None:
            return [position % self._length]
        first = self._length - 1 if self._network.encoder is None else 0
        return [one % self._length for one in among] or [*range(first, self._length)]

    # --- the answer ---

    @property
    def kind(self) -> Literal["word", "class", "vector"]:
        """What the network answers with. A vector has no probabilities."""
        if isinstance(self._head, c.NoHead | c.VectorHead):
            return "vector"
        return "word" if isinstance(self._head, c.LanguageHead) else "class"

    @property
    def position(self) -> int:
        """The position of the answer; the last one if the network answers once."""
        return self._positions[self._chosen]

    @property
    def answer(self) -> Tensor:
        """v: the probabilities at the position; of a vector its numbers."""
        return self._own[self._chosen]

    @cached_property
    def _chosen(self) -> int:
        """The number of the position among those that answer."""
        return int(self._every_head[0].nan_to_num(-1.0).amax(0).argmax()) if len(self._positions) > 1 else 0

    @property
    def _is_by_position(self) -> bool:
        return isinstance(self._head, c.LanguageHead | c.TaggingHead)

    @property
    def _is_each(self) -> bool:
        """True if each label is true or not by itself."""
        return isinstance(self._head, c.ClassificationHead) and (
            self._head.problem_type == "multi_label_classification" or self._head.n_labels == 1
        )

    def _read(self, which: tuple[int, ...], x: Tensor, layout: Layout, cells: range) -> Tensor:
        """n p v: the probabilities, or the vector, at these of the positions that answer."""
        head = self._network.head
        if self._is_by_position:
            there = [self._positions[i] - cells.start for i in which]
            if self._edits_head:
                return head(x, layout)[:, there].float().softmax(-1)
            return head(x[:, there].flatten(0, 1)[None], layout)[0].unflatten(0, (len(x), -1)).float().softmax(-1)
        if cells.start:
            own = self._passes.states[:, : cells.start].detach()
            x = torch.cat([own.expand(len(x), -1, -1), x], 1)
            layout = Layout((len(x), cells.stop), self._passes.layouts[self._last].positions)
        result = head(x, layout)
        match self._head:
            case c.NoHead() | c.VectorHead():
                found = self._vectors(result, layout).float()
            case c.SpanHead():  # The start, then the end.
                found = result.float().softmax(1).mT.flatten(1) / 2
            case c.ClassificationHead():
                found = scores(self._head, result.float())
            case _:
                raise AssertionError("a head by position")
        return found[:, None]

    def _moved(self, rows: Tensor, own: Tensor) -> Tensor:
        """... p v -> ... p: M, against the answers of the text itself."""
        if self.kind == "vector":
            return (1 - torch.cosine_similarity(rows, own, dim=-1)).clamp(min=0) / 2
        if self._is_each:
            return (rows - own).abs().amax(-1)
        total = torch.tensor(2.0)
        if isinstance(self._head, c.ClassificationHead) and self._head.problem_type == "regression":
            total = (rows.abs().sum(-1) + own.abs().sum(-1)).clamp(min=1e-30)
        return (rows - own).abs().sum(-1) / total

    # --- what is measured ---

    @cached_property
    def heads(self) -> HeadEffects:
        """Every head."""
        moved, p = (values[:, self._chosen] for values in self._every_head)
        return HeadEffects(tuple(site for place in self._places for site in place.sites), moved, p)

    @property
    def decided(self) -> tuple[int, float] | None:
        """The head that moves the answer most, by its number among `heads`, and its M."""
        moved = self.heads.moved.nan_to_num(-1.0)
        return (int(moved.argmax()), float(moved.max())) if len(moved) else None

    @cached_property
    def _places(self) -> list[Place]:
        return [place for place in places(self._network) if not place.is_ffn]

    @cached_property
    def _every_head(self) -> tuple[Tensor, Tensor]:
        """n p each: M and p at each position that answers."""
        every = (*range(len(self._positions)),)
        changes = [
            Change(place.stack, place.block, place.path.split(".")[-1], 0.0, None, self._columns(place.path, h))
            for place in self._places
            for h in range(place.n)
        ]

        def estimate() -> Tensor:
            slopes, parts = self._slopes(every), self._passes.parts
            products = [(slopes[place.path] * parts[place.path].detach(), place.n) for place in self._places]
            return torch.cat([_length(one.unflatten(-1, (n, -1)).sum((1, 2, 4))) for one, n in products])

        return self._measure(changes, estimate, every)

    @cached_property
    def curves(self) -> list[Curve]:
        """The attention weights of the strongest heads, the strongest first. Heads with an edited output have none."""
        return self._measured_curves[0]

    @property
    def n_weights(self) -> int:
        """How many weights of these heads are at least LEAST_WEIGHT."""
        return self._measured_curves[1]

    @cached_property
    def _measured_curves(self) -> tuple[list[Curve], int]:
        order = self.heads.moved.nan_to_num(-1.0).argsort(descending=True, stable=True)[:HEADS].tolist()
        which = [Address.parse(self.heads.at[i]) for i in order if not self.heads.moved[i].isnan()]
        which = [where for where in which if not {where.path, str(where)} & self._edited]
        paths = sorted({where.path.removesuffix(".z") for where in which})
        parts, slopes = self._passes.parts, self._slopes((self._chosen,))
        estimates, found = list[Tensor](), list[tuple[str, int, int, int, float, Tensor]]()
        for path in paths:
            weights, values = self._passes.weights(path)
            for h in (dict(where.index)["h"] for where in which if where.path == f"{path}.z"):
                own = values[h * len(values) // len(weights)]
                columns = self._columns(path, h)
                cells = (weights[h] >= LEAST_WEIGHT).nonzero()
                cells = cells[cells[:, 0] <= self.position] if path.startswith("decoder") else cells
                t, s = cells.unbind(1)
                change = weights[h, t, s, None] * own[s]
                estimates.append(_length((slopes[path][:, 0, t, columns] * change).sum(-1)))
                z = parts[path].detach()[0, t, columns] - change
                there = zip(t.tolist(), s.tolist(), weights[h, t, s].tolist(), z, strict=True)
                found += [(path, h, *one) for one in there]
        estimate = torch.cat(estimates) if estimates else torch.empty(0)
        kept = estimate.topk(min(CURVES, len(found))).indices.tolist()
        strongest = [found[i] for i in kept]
        changes = [
            Change(path.split(".")[0], int(path.split(".")[2]), path.split(".")[3], z, (t,), self._columns(path, h))
            for path, h, t, _, _, z in strongest
        ]
        moved, p = self._measure(changes, lambda: estimate[kept], (self._chosen,))
        curves = [
            Curve(f"{path}.weights[h={h},t={t},s={s}]", weight, float(moved[i]), float(p[i]))
            for i, (path, h, t, s, weight, _) in enumerate(strongest)
            if not moved[i].isnan()
        ]
        return sorted(curves, key=lambda curve: -curve.moved), len(found)

    @cached_property
    def tokens(self) -> dict[str, list[int]]:
        """The tokens that have a lane of their own, by stack: those on which gradients say that most depends."""
        found: dict[str, list[int]] = {}
        for name, layout in self._passes.layouts.items():
            found[name] = [*range(layout.grid[1])]
            if len(found[name]) > LANES:
                strength = self._by_token(name, "").amax(0)
                if name == self._last and self._is_by_position:
                    strength[self.position] = float("inf")
                found[name] = sorted(strength.topk(LANES - 1).indices.tolist())
        return found

    @property
    def grouped(self) -> dict[str, list[int]]:
        """The other tokens, which are changed together and have one lane, the last."""
        return {
            name: [t for t in range(layout.grid[1]) if t not in self.tokens[name]]
            for name, layout in self._passes.layouts.items()
        }

    @cached_property
    def lanes(self) -> dict[str, Tensor]:
        """l n by stack: M of the stream of each lane before the first block and after each := the mean of the text."""
        return self._lanes("")

    @cached_property
    def ffn(self) -> dict[str, Tensor]:
        """l n by stack: M of the output of each block's feed-forward in each lane := 0."""
        return self._lanes("ffn")

    def _lanes(self, part: str) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        changes: list[Change] = []
        places: list[tuple[str, int, int]] = []

        def estimate() -> Tensor:
            """The tokens that share a lane come last."""
            by_token = {name: self._by_token(name, part) for name in found}
            each = [(name, i, self.tokens[name][j:][:1]) for name, i, j in places]
            return torch.stack([by_token[name][i, t].sum() for name, i, t in each])

        for name, streams in self._passes.streams.items():
            lanes = [(t,) for t in self.tokens[name]] + [tuple(self.grouped[name])] * bool(self.grouped[name])
            n = len(streams) - (part == "ffn")
            found[name] = torch.full((n, len(lanes)), float("nan"))
            for i in range(n):
                value = 0.0 if part else streams[i][0].detach().mean(0)
                is_last = name == self._last and self._is_by_position and i == len(streams) - (2 if part else 1)
                for j, lane in enumerate(lanes):
                    if reaching := self._reaching(name, lane, is_last=is_last):
                        changes.append(Change(name, i, part, value, reaching))
                        places.append((name, i, j))
                    else:
                        found[name][i, j] = 0.0
        moved, _ = self._measure(changes, estimate, (self._chosen,))
        for (name, i, j), one in zip(places, moved[:, 0].tolist(), strict=True):
            found[name][i, j] = one
        return found

    def _reaching(self, name: str, lane: tuple[int, ...], *, is_last: bool) -> tuple[int, ...]:
        """The tokens of a lane that can reach the answer."""
        if is_last:
            return tuple(t for t in lane if t == self.position)
        return tuple(t for t in lane if t <= self.position) if name == "decoder" else lane

    # --- how ---

    def _columns(self, path: str, h: int) -> slice:
        attention = self._network.get_submodule(path)
        assert isinstance(attention, Attention)
        return slice(h * attention.d_value, (h + 1) * attention.d_value)

    def _measure(
        self, changes: Sequence[Change], estimate: Callable[[], Tensor], which: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """n p each: M and the probability of the likeliest answer after each change; NaN beyond the budget."""
        own, end = self._own[[*which]], max(self._positions[i] for i in which)
        best = own.argmax(-1)[:, None]
        numbers = {id(changes[i]): i for i in self._within(changes, estimate, end)}
        moved, p = (torch.full((len(changes), len(which)), float("nan")) for _ in range(2))
        chosen = [changes[i] for i in sorted(numbers.values())]
        for some, rows in self._passes.rows(chosen, partial(self._read, which), end):
            i = [numbers[id(change)] for change in some]
            moved[i] = self._moved(rows, own).cpu()
            if self.kind != "vector":
                p[i] = rows.gather(-1, best.expand(len(rows), -1, -1))[..., 0].cpu()
        return moved, p

    def _within(self, changes: Sequence[Change], estimate: Callable[[], Tensor], end: int) -> list[int]:
        """The numbers of the changes that the budget reaches, those first that gradients call strongest."""
        costs = [self._passes.cost(change, end) for change in changes]
        if sum(costs) <= self._budget:
            return [*range(len(changes))]
        found, left = list[int](), self._budget
        for i in estimate().argsort(descending=True, stable=True).tolist():
            if costs[i] <= left or not found:
                found.append(i)
                left -= costs[i]
        return found

    def _by_token(self, name: str, part: str) -> Tensor:
        """l t: the estimates of the changes of each token in a stack."""
        rows: list[Tensor] = []
        slopes = self._slopes((self._chosen,))
        for i, stream in enumerate(self._passes.streams[name]):
            at = f"{name}.blocks.{i}.{part}"
            if not part:
                rows.append(_length((slopes[at] * (stream.detach() - stream.detach().mean(1))).sum((1, -1))))
            elif at in slopes:
                rows.append(_length((slopes[at] * self._passes.parts[at].detach()).sum((1, -1))))
        return torch.stack(rows)

    def _slopes(self, which: tuple[int, ...]) -> dict[str, Tensor]:
        """k 1 t d, of parts and, with an empty name, of streams: the gradients of log p of the likeliest answers.

        Of a vector those of its components along k directions.
        """
        if which not in self._gradients:
            streams = self._passes.streams.items()
            at = {f"{name}.blocks.{i}.": x for name, several in streams for i, x in enumerate(several)}
            at |= self._passes.parts
            own = self._passes.read(partial(self._read, which))[0]
            if self.kind == "vector":
                draw = torch.Generator().manual_seed(0)
                targets = (own @ torch.randn(own.shape[-1], DIRECTIONS, generator=draw).to(own))[0].unbind()
            else:
                targets = (own.amax(-1).clamp(min=1e-30).log().sum(),)
            found = [
                torch.autograd.grad(one, [*at.values()], retain_graph=True, allow_unused=True, materialize_grads=True)
                for one in targets
            ]
            self._gradients[which] = {
                name: torch.stack(some) for name, some in zip(at, zip(*found, strict=True), strict=True)
            }
        return self._gradients[which]


def _length(values: Tensor) -> Tensor:
    """k ... -> ..., on the CPU: the length over the directions."""
    return values.float().norm(dim=0).cpu()
