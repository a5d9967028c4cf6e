"""Splits a score of a head, and the value that the head carries, into sums over earlier parts."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from clearhead.analysis.attribution import linear_head
from clearhead.analysis.passes import Inputs, check_labels
from clearhead.analysis.shares import Shares
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.distances import distance_rows
from clearhead.model.ops import KINDS, Call, Op
from clearhead.trace import Address, Edit

Cell = tuple[int, int, int]
"""A head, a query position and a key position."""


@dataclass(frozen=True)
class QKAttribution:
    """One attention score before the mask and the softmax, as a sum."""

    __repr__ = brief

    queries: tuple[str, ...]
    """What wrote to the query, by address, or by parameter name for a bias."""
    keys: tuple[str, ...]
    """The part that wrote to the key. DeBERTa's vectors of distances may be on either side."""
    pairs: Tensor
    """q k, float64: the product of each two, scaled."""
    others: dict[str, float]
    """Terms that are no pair, by address: a bias of positions, and what a soft cap takes away."""
    score: float
    """The score of the network, which is the sum of all terms up to rounding."""

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return float(self.pairs.sum()) + sum(self.others.values())

    def top(self, n: int = 10) -> list[tuple[str, str, float]]:
        """The n pairs of the largest absolute value: query part, key part, term."""
        most = self.pairs.flatten().abs().topk(min(n, self.pairs.numel())).indices.tolist()
        cells = [divmod(i, len(self.keys)) for i in most]
        return [(self.queries[q], self.keys[k], float(self.pairs[q, k])) for q, k in cells]


@dataclass(frozen=True)
class OVAttribution:
    """What one head adds to a logit by reading one key position, as a sum over what earlier parts wrote there."""

    __repr__ = brief

    shares: dict[str, float]
    """The terms by address, or by parameter name for a bias."""
    contribution: float
    """weight (v W_O) . direction, of the recorded value: the sum of the shares up to rounding."""


def qk_attribution(
    network: Transformer, inputs: Inputs, at: str, *, edit: dict[str, Edit] | None = None
) -> QKAttribution:
    """score = sum_ij q_i . k_j scale + position terms   (Elhage et al. 2021, QK circuit; Kamath et al. 2025)

    Splits the score at `at`, such as `decoder.blocks.3.attn.scores[h=2,t=6,s=3]`, into pairs of what earlier parts
    wrote to the query and to the key: embedding, positions, each head, each FFN, and every bias by itself. Norms keep
    the scale they had, in the residual stream, over queries and keys, and between blocks of a post-norm stack. A
    rotation is a part of each pair. A soft cap is not linear: its effect is one term.

    Takes one text, without padding. Raises UserError for an address that is no cell of scores.
    """
    return split_score(Shares.traced(network, inputs, edit), at)


def ov_attribution(
    network: Transformer,
    inputs: Inputs,
    at: str,
    logit: int,
    *,
    minus: int | None = None,
    edit: dict[str, Edit] | None = None,
) -> OVAttribution:
    """weight (v_i W_O) . direction for each part i of the value   (Elhage et al. 2021, OV circuit)

    Splits what the cell `at` of attention weights, such as `decoder.blocks.3.attn.weights[h=2,t=6,s=3]`, adds to
    logit[`logit`], or to logit[`logit`] - logit[`minus`], at the query position. It counts the direct way: through the
    residual stream and frozen norms, not through later heads and FFNs. Of a head that pools, the share of the query
    position in the pooled state counts.

    Takes one text, without padding. Raises UserError if the head's last step is not linear, or for an encoder below a
    decoder, which has no direct way.
    """
    return split_value(Shares.traced(network, inputs, edit), at, logit, minus=minus)


def split_score(shares: Shares, at: str) -> QKAttribution:
    """Does what `qk_attribution` does, for a pass that was made before."""
    path, cell = _cell(shares, at, "scores")
    terms = _Score(shares, cell).terms(path)
    h, t, s = cell
    return QKAttribution(terms.queries, terms.keys, terms.pairs, terms.others, float(shares.at(path, t)[h, 0, s]))


def split_value(shares: Shares, at: str, logit: int, *, minus: int | None = None) -> OVAttribution:
    """Does what `ov_attribution` does, for a pass that was made before."""
    path, (h, t, s) = _cell(shares, at, "weights")
    network = shares.network
    head, stack = linear_head(network), list(network.stacks())[-1]
    if not path.startswith(stack):
        raise UserError(f"{at}: expected a head of the {stack}, whose states the logits read, got one of another stack")
    check_labels(head.output.out_features, logit, minus)
    part, end = path.removesuffix(".weights"), shares.ops["head.logits"].inputs[0]
    parts = shares.parts(shares.ops[f"{part}.z"].inputs[1], s)
    values = shares.at(f"{part}.v", s)
    rows = torch.cat([parts.values[h], values[h * len(values) // len(parts.values)]])
    maps = shares.weight(f"{part}.out.weight").unflatten(1, (-1, rows.shape[1]))[:, h]
    added = rows @ maps.mT * float(shares.at(path, t)[h, 0, s])
    overwritten = not shares.by_hand.isdisjoint({f"{part}.z", f"{part}.heads", f"{part}.out"})
    arrived = None if overwritten else shares.onward(f"{part}.out", added, t, end)
    direction = shares.row("head.output.weight", logit)
    direction = direction if minus is None else direction - shares.row("head.output.weight", minus)
    *found, contribution = [0.0] * len(rows) if arrived is None else (arrived @ direction).tolist()
    return OVAttribution(dict(zip(parts.names, found, strict=True)), contribution)


def _cell(shares: Shares, at: str, name: str) -> tuple[str, Cell]:
    """The path and the cell of an address. Raises UserError unless it is a cell of the scores or weights of a head."""
    where = Address.parse(at)
    index = dict(where.index)
    example = f"such as decoder.blocks.0.attn.{name}[h=0,t=1,s=0]"
    if where.path not in shares.ops or not where.path.endswith(f".{name}") or set(index) != {"h", "t", "s"}:
        raise UserError(f"{at}: expected a cell of attention {name} of this model, {example}")
    value = shares.value(where.path)
    where.slices("h t s", value.shape)
    h, t, s = (index[axis] % n for axis, n in zip("hts", value.shape, strict=True))
    return where.path, (h, t, s)


@dataclass(frozen=True)
class _Terms:
    queries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    pairs: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    others: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def total(self) -> Tensor:
        return self.pairs.sum() + sum(self.others.values())

    def plus(self, other: "_Terms") -> "_Terms":
        """Both sums, with one row for each query part and one column for each key part."""
        queries, keys = (
            tuple(dict.fromkeys(a + b)) for a, b in ((self.queries, other.queries), (self.keys, other.keys))
        )
        pairs = self.pairs.new_zeros(len(queries), len(keys))
        for one in (self, other):
            rows, columns = [queries.index(q) for q in one.queries], [keys.index(k) for k in one.keys]
            if rows and columns:
                pairs[torch.tensor(rows)[:, None], torch.tensor(columns)] += one.pairs
        return _Terms(queries, keys, pairs, self.others | other.others)


@dataclass(frozen=True)
class _Score:
    """The ops from queries and keys to one score, read as a sum."""

    shares: Shares
    cell: Cell

    def terms(self, at: str) -> _Terms:
        """The terms of the number at this path."""
        op, (h, t, s) = self.shares.ops[at], self.cell
        if at in self.shares.by_hand:
            return _Terms(others={at: float(self.shares.at(at, t)[h, 0, s])})
        match op.op:
            case "matmul_nt":
                return self._product((op.inputs[0], t), (op.inputs[1], s))
            case "add":
                return self.terms(op.inputs[0]).plus(self.terms(op.inputs[1]))
            case "scale":
                one = self.terms(op.inputs[0])
                return replace(one, pairs=one.pairs * op.by["factor"])
            case "soft_cap":
                one = self.terms(op.inputs[0])
                capped = KINDS[op.op].evaluate(Call(op, [one.total], []))
                return replace(one, others=one.others | {at: float(capped - one.total)})
            case "by_distance":
                return self._by_distance(op)
            case _:
                both = self.shares.evaluated(op, torch.cat([self._number(op, t), self._number(op, s)]))
                return _Terms(others={at: float(both[h, 0, 1])})

    def _product(self, query: tuple[str, int], key: tuple[str, int]) -> _Terms:
        (q, k), h = (self.shares.parts(*one) for one in (query, key)), self.cell[0]
        return _Terms(q.names, k.names, q.values[h] @ k.values[h].mT)

    def _by_distance(self, op: Op) -> _Terms:
        """The terms of a score of DeBERTa: the query times the vector of the distance, or that vector times the key."""
        _, t, s = self.cell
        away = self._number(op, t) - self._number(op, s)
        row = int(distance_rows(away, int(op.by["buckets"]) or None, int(op.by["distance"])))
        content, vectors = self.shares.ops[op.inputs[0]].inputs
        if op.how == "query":
            return self._product((content, t), (vectors, row))
        return self._product((vectors, row), (content, s))

    def _number(self, op: Op, position: int) -> Tensor:
        return self.shares.number(op.inputs[-1], position)
