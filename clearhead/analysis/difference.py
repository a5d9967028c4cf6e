"""The difference of two networks of one architecture: their tensors, and what heads and neurons write.

The parts of both read the same inputs. What changes in what a part writes to the residual stream is split in two:
`own`, which the part's own weights change on the first network's streams, and `moved`, which follows from the changed
streams that reach it. A change in one head has `own` there alone, and `moved` in what comes after it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.analysis.ablation import Place, places
from clearhead.analysis.comparison import LOGITS
from clearhead.analysis.passes import Inputs, by_stack, inference, last_states, layouts
from clearhead.brief import brief
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.assign import merged
from clearhead.model.attention import Attention
from clearhead.model.fast.tensor_parallel import divisions_of
from clearhead.model.linear import LinearMap, effective_weight, refuse_rounded
from clearhead.trace import Edit, recording

N_SINGULAR = 8
"""Singular values that are kept."""
ROWS = 1 << 14
"""Rows of a matrix that are multiplied at a time."""
UNIMPORTANT = frozenset({"dropout", "embed_dropout", "attn_dropout", "ffn_dropout", "init", "labels"})
"""Fields of a config in which two networks of one architecture may differ."""


@dataclass(frozen=True)
class TensorChange:
    """How far one tensor of the second network is from that of the first."""

    name: str
    shape: tuple[int, ...]
    norm: float
    """‖B - A‖, Frobenius."""
    relative: float
    """‖B - A‖ / ‖A‖; over ‖B‖ if A is 0."""
    singular: tuple[float, ...] = ()
    """The largest singular values of B - A; none for a vector."""
    rank: int | None = None
    """The singular values above the rounding of B's stored numbers."""
    effective_rank: float | None = None
    """exp(entropy of the singular values as shares of their sum)   (Roy and Vetterli 2007)."""

    @property
    def first_share(self) -> float:
        """The share of ‖B - A‖² that the largest singular value has: near 1 for an update of nearly rank 1."""
        return self.singular[0] ** 2 / self.norm**2 if self.singular and self.norm else 0.0


@dataclass(frozen=True)
class Written:
    """Norms of what parts write and of its changes, b m, as shares of the stream: the mean over each text."""

    __repr__ = brief

    before: Tensor
    """‖A‖: what the first network's part writes."""
    total: Tensor
    """‖B - A‖: each part reads its own network's streams."""
    own: Tensor
    """‖B' - A‖: B' is the second network's part on the first network's streams."""
    moved: Tensor
    """‖B - B'‖."""


def check_same(first: Transformer, second: Transformer) -> None:
    """Raises UserError, which names the first difference, unless both have one architecture and unrounded weights."""
    for network in (first, second):
        refuse_rounded(network, "difference")
    for where, one, other in _fields(first.config, second.config):
        raise UserError(f"{where}: expected the same in both models, got {one} and {other}; try two of one run")
    shapes = [{name: list(p.shape) for name, p in network.named_parameters()} for network in (first, second)]
    for name in sorted({*shapes[0], *shapes[1]}):
        one, other = (known.get(name, "none") for known in shapes)
        if one != other:
            raise UserError(f"{name}: expected one shape in both models, got {one} and {other}; try two of one run")


def tensor_changes(first: Transformer, second: Transformer) -> list[TensorChange]:
    """Every weight that differs, the largest relative change first. Adapters count as part of the weights.

    Raises UserError for networks of two architectures.
    """
    first, second = merged(first), merged(second)
    check_same(first, second)
    theirs = dict(second.named_parameters())
    with torch.no_grad():
        found = [_tensor_change(name, one, theirs[name]) for name, one in first.named_parameters()]
    return sorted((one for one in found if one.norm), key=lambda one: -one.relative)


class PartChanges:
    """What heads and neurons of two networks write on the same inputs."""

    def __init__(self, first: Transformer, second: Transformer) -> None:
        """Raises UserError for networks of two architectures."""
        self._first, self._second = merged(first), merged(second)
        check_same(self._first, self._second)
        self._places = places(self._first)
        self._streams = {place.stream for place in self._places}
        if self._first.config.is_encoder_decoder:  # Whose cross-attention reads the encoder's last states.
            self._streams.add(last_states(self._first, "encoder"))
        self.sites = [site for place in self._places for site in place.sites]
        """The address of each part: `….attn.z[h=2]`, `….ffn.post[f=7]`; blocks with experts have none there."""

    def read(self, inputs: Inputs) -> "Read":
        """Three passes: the first network, the second, and the second with the first one's streams."""
        tokens = by_stack(self._first, inputs)
        values = {place.value for place in self._places}
        ours = _recorded(self._first, tokens, values | self._streams | {LOGITS})
        theirs = _recorded(self._second, tokens, values | {LOGITS})
        grafted = _recorded(self._second, tokens, values, {at: ours[at] for at in self._streams})
        masks = {name: layout.valid_cells for name, layout in layouts(self._first, tokens).items()}
        each = [self._written(place, (ours, theirs, grafted), masks[place.stack]) for place in self._places]
        written = (torch.cat(column, -1) for column in zip(*each, strict=True))
        return Read(Written(*written), (ours.get(LOGITS), theirs.get(LOGITS)))

    def _written(self, place: Place, runs: Sequence[Mapping[str, Tensor]], valid: Tensor) -> tuple[Tensor, ...]:
        """b m, four times: the fields of `Written`."""
        ours, theirs, grafted = (run[place.value].float() for run in runs)
        a, b = (_matrix(network, place) for network in (self._first, self._second))
        norms = _unit_norms if place.is_ffn else self._head_norms
        stream = runs[0][place.stream].float().norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
        weight = (valid / stream / valid.sum(1, keepdim=True).clamp_min(1))[..., None]
        nothing, first = (torch.zeros_like(ours), a), (ours, a)
        pairs = (nothing, first), (first, (theirs, b)), (first, (grafted, b)), ((grafted, b), (theirs, b))
        return tuple((norms(*old, *new) * weight).sum(1) for old, new in pairs)

    def _head_norms(self, z: Tensor, a: Tensor, y: Tensor, b: Tensor) -> Tensor:
        """b t h: ‖B_h y_h - A_h z_h‖ of z, b h t k, and matrices d (h k)."""
        heads = [torch.einsum("bhtk,dhk->bhtd", x, m.unflatten(1, (x.shape[1], -1))) for x, m in ((z, a), (y, b))]
        return (heads[1] - heads[0]).norm(dim=-1).mT


@dataclass(frozen=True)
class Read:
    """What `PartChanges.read` finds on one batch."""

    __repr__ = brief

    written: Written
    logits: tuple[Tensor | None, Tensor | None]
    """Of both networks; None without a head."""


def _tensor_change(name: str, one: Tensor, other: Tensor) -> TensorChange:
    ours, gap = one.double(), other.double() - one.double()
    norm, size = float(gap.norm()), float(ours.norm()) or float(other.double().norm())
    plain = TensorChange(name, tuple(one.shape), norm, norm / size if size else 0.0)
    if gap.ndim < 2 or not norm:
        return plain
    rows = gap.flatten(0, -2)
    rows = rows if rows.shape[0] >= rows.shape[1] else rows.T
    # The Gram matrix in float64 has singular values down to 1e-8 of the largest, beyond what float32 weights hold.
    gram = sum(part.T @ part for part in rows.split(ROWS))
    assert isinstance(gram, Tensor)
    values = torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt().flip(0)
    rounding = torch.finfo(other.dtype).eps / 2 * float(other.double().norm())
    shares = values / values.sum()
    rank = int((values > max(rounding, 1e-7 * float(values[0]))).sum())
    effective = float(torch.special.entr(shares).sum().exp())
    return TensorChange(name, plain.shape, norm, plain.relative, tuple(values[:N_SINGULAR].tolist()), rank, effective)


def _unit_norms(z: Tensor, a: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """b t f: ‖y_f b_f - z_f a_f‖ of activations, b t f, and columns of matrices, d f; exact 0 for equal ones."""
    step, turn = y - z, b - a
    squares, mixed, turns = (b * b).sum(0), (b * turn).sum(0), (turn * turn).sum(0)
    return (step * step * squares + 2 * step * z * mixed + z * z * turns).clamp_min(0.0).sqrt()


def _matrix(network: Transformer, place: Place) -> Tensor:
    module: Any = network.get_submodule(place.projection)
    return effective_weight(module).detach().float()


def _recorded(
    network: Transformer, tokens: Mapping[str, Tokens], paths: Collection[str], edit: Mapping[str, Edit] | None = None
) -> Mapping[str, Tensor]:
    with inference(network), recording(network, paths, edit=edit) as seen:
        network(*tokens.values())
    return {path: seen[path] for path in paths if path in seen}


def _fields(first: ModelConfig, second: ModelConfig) -> list[tuple[str, Any, Any]]:
    """The fields in which two configs differ: their names and both values."""

    def walk(one: Any, other: Any, where: str) -> list[tuple[str, Any, Any]]:
        if isinstance(one, dict) and isinstance(other, dict):
            names = [name for name in one | other if name not in UNIMPORTANT]
            return [found for name in names for found in walk(one.get(name), other.get(name), f"{where}.{name}")]
        return [] if one == other else [(where.removeprefix("."), one, other)]

    return walk(first.model_dump(), second.model_dump(), "")


NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
ROUNDING, TINY = torch.finfo(torch.float32).eps, torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class UnitChange:
    """How far the own weights of a head or neuron are from those of the first network."""

    site: str
    """The address of its value: `….attn.z[h=2]`, `….ffn.post[f=7]`."""
    score: float
    """By how many deviations its change in `tensor` exceeds the median of the units there."""
    relative: float
    """‖B - A‖ / ‖A‖ of its rows or columns in `tensor`; over ‖B‖ if A is 0."""
    tensor: str
    """The weight in which it stands out most."""


def unit_changes(first: Transformer, second: Transformer) -> list[UnitChange]:
    """(‖B_u - A_u‖ - median) / deviation for each head and neuron u, in the weight where that is largest.

    A_u are a unit's rows of the weights that it reads with, with the bias, or its columns of the one that it writes
    with; a key or value head shared by several heads counts for each. The median over the units of a weight is the
    level of noise. The deviation is 1.4826 times the median absolute deviation, but at least what random changes of
    that size have, median / sqrt(2 numbers), and no less than the rounding of the weights. The largest score comes
    first; blocks with experts have only heads. Raises UserError for networks of two architectures.
    """
    first, second = merged(first), merged(second)
    check_same(first, second)
    best: dict[str, UnitChange] = {}
    with torch.no_grad():
        for place in places(first):
            for name, one, other in _weights(place, first, second):
                for change in _scored(place, name, one, other):
                    if change.site not in best or change.score > best[change.site].score:
                        best[change.site] = change
    return sorted(best.values(), key=lambda one: -one.score)


def _weights(place: Place, first: Transformer, second: Transformer) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The name of each weight of a part that divides by heads or units, and it in both networks, unit by unit."""
    parts = [network.get_submodule(place.path) for network in (first, second)]
    width = parts[0].d_head if isinstance(parts[0], Attention) else 1
    for part in divisions_of(parts[0]):
        maps = [getattr(each, part.name) for each in parts]
        if part.along in ("outputs", "inputs") and maps[0] is not None:
            one, other = (_by_unit(linear, width, part.along == "outputs") for linear in maps)
            yield f"{place.path}.{part.name}.weight", one, other


def _by_unit(linear: nn.Linear | LinearMap, width: int, by_rows: bool) -> Tensor:
    """u n: the rows of a matrix with their biases, or its columns, so many for each unit."""
    matrix = effective_weight(linear).float()
    if not by_rows:
        matrix = matrix.T
    elif linear.bias is not None:
        matrix = torch.cat([matrix, linear.bias.float()[:, None]], 1)
    return matrix.reshape(-1, width * matrix.shape[1])


def _scored(place: Place, name: str, one: Tensor, other: Tensor) -> Iterator[UnitChange]:
    """The changes of the units of one weight, u n in both networks."""
    size, changed = one.norm(dim=1), (other - one).norm(dim=1)
    usual = changed.median()
    spread, chance = NORMAL * (changed - usual).abs().median(), usual / (2 * one.shape[1]) ** 0.5
    scores = (changed - usual) / torch.stack([spread, chance, ROUNDING * size.median()]).max().clamp_min(TINY)
    relative = changed / torch.where(size > 0, size, changed).clamp_min(TINY)
    shared = place.n // len(changed)
    for i, site in enumerate(place.sites):
        yield UnitChange(site, float(scores[i // shared]), float(relative[i // shared]), name)
