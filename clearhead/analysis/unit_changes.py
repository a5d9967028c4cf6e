"""Which heads and neurons changed more than others, by their weights alone, whatever they do on any text."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.analysis.difference import Place, check_same, places
from clearhead.model import Transformer
from clearhead.model.assign import merged
from clearhead.model.attention import Attention
from clearhead.model.fast.tensor_parallel import divisions_of
from clearhead.model.linear import LinearMap, effective_weight

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
