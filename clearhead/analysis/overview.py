"""The overview of one answer: how much of it each head, attention weight, stream and feed-forward carries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isnan

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.ablation import Ablations, places
from clearhead.analysis.metrics import Vectors, mean_states
from clearhead.analysis.passes import Inputs, Seen, layouts, one_text, part_of, traced
from clearhead.model import Transformer
from clearhead.model.mode import Evaluating
from clearhead.trace import Address, Edit, recording, zero

HEADS = 24
"""The most heads whose attention weights are measured."""
CURVES = 512
"""The most attention weights that are measured."""
LANES = 24
"""The most lanes of a stack."""
LEAST_WEIGHT = 0.02
"""The smallest attention weight that is measured."""
DIRECTIONS = 4
"""Gradients are taken along so many directions of the answer; its likeliest word alone misses the best heads."""
PASSES = 2
"""The number of passes of the whole text that each attribute may take at least."""
PASS = 2048
"""About how many positions go through a pass."""


@dataclass(frozen=True)
class Moved:
    """What one edit moves."""

    at: str
    """The address of a head, `decoder.blocks.3.attn.z[h=4]`, or of a weight, `….weights[h=4,t=4,s=3]`."""
    moved: float
    """M of this value := 0, of a weight with the others of its row unchanged; NaN: not measured."""
    p: float
    """The probability of the likeliest answer without it; NaN for a vector."""
    weight: float | None = None


class Overview:
    """M(edit) = 1/2 sum_w |p(w) - p(w | edit)|: the share of one answer, 0 to 1, that moves with an edit of its pass.

    A network that makes vectors has (1 - cosine) / 2 instead, and a span the mean of its start's and its end's M. Each
    attribute is measured when it is first read. Gradients only decide what is measured first; what `budget` does not
    reach is NaN.
    """

    def __init__(
        self,
        network: Transformer,
        inputs: Inputs,
        *,
        position: int | None = None,
        among: Sequence[int] = (),
        edit: Mapping[str, Edit] | None = None,
        seen: Seen | None = None,
        vectors: Vectors = mean_states,
        budget: float = float("inf"),
    ) -> None:
        """`position` is that of the answer in the last stack. By default it is the one, `among` those given or all that
        answer, whose best head moves the answer most. A decoder alone answers at its last position.

        Everything refers to the network with the edits `edit`; `seen` are its values, if they were made already. Heads
        take about `budget` multiplications, each other attribute half as many, and two passes of the text at least.
        Raises UserError for several texts or a wrong position.
        """
        tokens = one_text(network, inputs)
        self._network, self._tokens, self._edit = network, [*tokens.values()], dict(edit or {})
        self._vectors, self._budget, self._among = vectors, budget, among
        self._lengths = {name: layout.grid[1] for name, layout in layouts(network, tokens).items()}
        length = list(self._lengths.values())[-1]
        self._is_by_position = isinstance(network.config.head, c.LanguageHead | c.TaggingHead)
        if position is None and (network.encoder is None or not self._is_by_position):
            position = -1
        self._whole = Ablations(network, self._tokens, position=position, edit=self._edit, vectors=vectors)
        self._asked = None if position is None else position % length
        self._kept: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
        self._seen = traced(network, tokens, self._edit, without=("heads",))[0] if seen is None else seen

    @property
    def is_vector(self) -> bool:
        """True if the network makes vectors, which have no probabilities."""
        return self._whole.metric is not None

    @cached_property
    def position(self) -> int:
        """The position of the answer; the last one if the network answers once."""
        if self._asked is not None:
            return self._asked
        moved = self._every_head[0].nan_to_num(-1.0).amax(0)
        among = [one % len(moved) for one in self._among] or [*range(len(moved))]
        return among[int(moved[among].argmax())]

    @cached_property
    def answer(self) -> Tensor:
        """v: the probabilities at the position; of a span those of its start. A vector has none."""
        return torch.empty(0) if self.is_vector else self._ablations.expected[0].exp()

    @cached_property
    def _ablations(self) -> Ablations:
        if self._asked is not None:
            return self._whole
        return Ablations(self._network, self._tokens, position=self.position, edit=self._edit, vectors=self._vectors)

    # --- what is measured ---

    @cached_property
    def heads(self) -> list[Moved]:
        """Every head."""
        moved, p = (values[:, 0 if self._asked is not None else self.position].tolist() for values in self._every_head)
        return [Moved(*one) for one in zip(self._sites, moved, p, strict=True)]

    @property
    def decided(self) -> int:
        """The number of the head that moves the answer most."""
        return max(range(len(self.heads)), key=lambda i: _known(self.heads[i].moved))

    @cached_property
    def _sites(self) -> list[str]:
        return [site for place in places(self._network) if not place.is_ffn for site in place.sites]

    @cached_property
    def _every_head(self) -> tuple[Tensor, Tensor]:
        return self._measure([{site: zero} for site in self._sites], self._whole)

    @cached_property
    def curves(self) -> tuple[list[Moved], int]:
        """The attention weights of the strongest heads, the strongest first, and how many are at least LEAST_WEIGHT.

        A head with an edited output has none.
        """
        heads = list[tuple[str, int, Tensor, Tensor, Tensor]]()
        cells, strengths = [torch.empty(0, 3, dtype=torch.long)], [torch.empty(0)]
        for one in sorted(self.heads, key=lambda one: -_known(one.moved))[:HEADS]:
            where = Address.parse(one.at)
            if isnan(one.moved) or {where.path, one.at} & self._edit.keys():
                continue
            path, h = where.path.removesuffix(".z"), dict(where.index)["h"]
            weights, z, v = (self._seen[at][0] for at in (f"{path}.weights[h={h}]", one.at, f"{path}.v"))
            v = v[h * len(v) // self._network.stacks()[path.split(".")[0]].config.n_heads]
            counted = (weights >= LEAST_WEIGHT).nonzero()
            counted = counted[counted[:, 0] <= self.position] if path.startswith("decoder") else counted
            slopes = self._slopes(self._ablations)[where.path][1][:, h]
            strengths.append(((slopes @ v.mT) * weights).float().norm(dim=0)[tuple(counted.T)].cpu())
            cells.append(F.pad(counted.cpu(), (1, 0), value=len(heads)))
            heads.append((path, h, weights, z, v))
        every, sets, found = torch.cat(cells), list[dict[str, Edit]](), list[tuple[str, float]]()
        strength, n = torch.cat(strengths), len(every) if len(every) <= CURVES else CURVES // 2
        # Half of them are strong, half are strong for their cost, because fewer positions follow.
        later = strength / (1 + (self.position - every[:, 1]).abs())
        for i, t, s in every[torch.cat([one.topk(n).indices for one in (strength, later)]).unique()].tolist():
            path, h, weights, z, v = heads[i]
            found.append((f"{path}.weights[h={h},t={t},s={s}]", float(weights[t, s])))
            sets.append({f"{path}.z[h={h},t={t}]": z[t] - weights[t, s] * v[s]})
        each = zip(found, *(values.mean(1).tolist() for values in self._measure(sets)), strict=True)
        curves = [Moved(at, moved, p, weight) for (at, weight), moved, p in each if not isnan(moved)]
        return sorted(curves, key=lambda one: -one.moved), len(every)

    @cached_property
    def tokens(self) -> dict[str, list[int]]:
        """The tokens that have a lane of their own, by stack: those on which gradients say that most depends."""
        found: dict[str, list[int]] = {}
        for name, length in self._lengths.items():
            found[name] = [*range(length)]
            if length > LANES:
                pairs = [self._slopes(self._ablations)[at] for at in self._streams(name)]
                strength = torch.stack([(slope * (x - x.mean(1))).sum(-1).norm(dim=0) for x, slope in pairs]).amax(0)
                if self._is_by_position and name == [*self._lengths][-1]:
                    strength[self.position] = float("inf")
                found[name] = sorted(strength.topk(LANES - 1).indices.tolist())
        return found

    @property
    def grouped(self) -> dict[str, list[int]]:
        """The other tokens, which are changed together and share a lane, the last one."""
        return {name: sorted({*range(n)} - {*self.tokens[name]}) for name, n in self._lengths.items()}

    @cached_property
    def lanes(self) -> dict[str, Tensor]:
        """l n by stack: M of the stream of each lane before the first block and after each := the mean of the text."""
        return self._by_lane(self._streams)

    @cached_property
    def ffn(self) -> dict[str, Tensor]:
        """l n by stack: M of the output of each block's feed-forward in each lane := 0."""
        return self._by_lane(self._fed)

    def _streams(self, name: str) -> list[str]:
        n = len(self._network.stacks()[name].blocks)
        return [*(f"{name}.blocks.{i}.resid_pre" for i in range(n)), f"{name}.blocks.{n - 1}.resid_post"]

    def _fed(self, name: str) -> list[str]:
        return [f"{name}.blocks.{i}.ffn.out" for i in range(len(self._network.stacks()[name].blocks))]

    def _by_lane(self, paths: Callable[[str], list[str]]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        cells, sets = list[tuple[str, int, int]](), list[dict[str, Edit]]()
        for name in self._lengths:
            several, lanes = paths(name), [[t] for t in self.tokens[name]] + [self.grouped[name]]
            found[name] = torch.zeros(len(several), len(lanes) - (not lanes[-1]))
            for i, path in enumerate(several):
                new = zero if path.endswith("ffn.out") else self._seen[path][0].mean(0)
                for j, lane in enumerate(lanes):
                    if reaching := self._reaching(name, lane, is_last=i == len(several) - 1):
                        cells.append((name, i, j))
                        one: dict[str, Edit] = {f"{path}[t={t}]": new for t in reaching}
                        sets.append(one if len(one) == 1 else {path: partial(_put, reaching, new)})
        for (name, i, j), moved in zip(cells, self._measure(sets)[0].mean(1).tolist(), strict=True):
            found[name][i, j] = moved
        return found

    def _reaching(self, name: str, lane: Sequence[int], *, is_last: bool) -> list[int]:
        """The tokens of a lane that reach the answer."""
        if name != [*self._lengths][-1] or not self._is_by_position:
            return [*lane]
        return [t for t in lane if t == self.position or (not is_last and (name == "encoder" or t < self.position))]

    # --- how ---

    def _measure(self, sets: Sequence[Mapping[str, Edit]], ablations: Ablations | None = None) -> tuple[Tensor, Tensor]:
        """n r each: M, and the probability of the likeliest answer, with each set of edits; NaN beyond the budget."""
        budget, ablations = self._budget if ablations else self._budget / 2, ablations or self._ablations
        expected, chosen = ablations.expected, self._within(sets, ablations, budget)
        moved, p = (torch.full((len(sets), len(expected)), float("nan")) for _ in range(2))
        for i, logs in ablations.edited([sets[i] for i in chosen], budget=PASS):
            if self.is_vector:
                moved[chosen[i]] = (1 - logs).clamp(min=0).cpu() / 2
            else:
                moved[chosen[i]] = (logs.exp() - expected.exp()).abs().sum(-1).cpu() / 2
                p[chosen[i]] = logs.gather(-1, expected.argmax(-1)[:, None])[:, 0].exp().cpu()
        return moved, p

    def _within(self, sets: Sequence[Mapping[str, Edit]], ablations: Ablations, budget: float) -> list[int]:
        """The numbers of the sets that the budget reaches, those first that gradients call strongest."""
        costs = [self._cost(Address.parse(next(iter(some)))) for some in sets]
        budget = max(budget, PASSES * self._cost(Address(f"{next(iter(self._lengths))}.blocks.0.resid_pre")))
        if sum(costs) <= budget:
            return [*range(len(sets))]
        slopes, strengths, left, found = self._slopes(ablations), list[float](), budget, list[int]()
        for some in sets:
            at, new = next(iter(some.items()))
            where = Address.parse(at)
            value, slope = (where.of(one, "b h t k" if one.ndim == 4 else "b t d") for one in slopes[where.path])
            # Tokens that share a lane come last.
            change = new - value if isinstance(new, Tensor) else value if new is zero else torch.zeros(1)
            strengths.append(float((change * slope).flatten(1).sum(1).norm()))
        # Half of it goes to the strongest, the rest to what is strong for its cost.
        for kept, scale in ((budget / 2, [1] * len(sets)), (0, costs)):
            for i in sorted({*range(len(sets))} - {*found}, key=lambda i: -strengths[i] / scale[i]):
                if costs[i] <= left - kept or not found:
                    found.append(i)
                    left -= costs[i]
        return found

    def _cost(self, at: Address) -> int:
        """About how many multiplications the pass of an edit takes."""
        (own, first), total = part_of(self._network, at.path), 0
        names = [*self._lengths]
        for name in names[names.index(own) :]:
            n = self.position + 1 - dict(at.index).get("t", 0) if name == "decoder" and self._asked is not None else 0
            total += (n or self._lengths[name]) * sum(self._sizes[name][first if name == own else 0 :])
        return total

    @cached_property
    def _sizes(self) -> dict[str, list[int]]:
        """The number of weights of each block."""
        stacks = self._network.stacks().items()
        return {
            name: [sum(one.numel() for one in block.parameters()) for block in stack.blocks] for name, stack in stacks
        }

    def _slopes(self, ablations: Ablations) -> dict[str, tuple[Tensor, Tensor]]:
        """The value at each address that is changed, and gradients there along DIRECTIONS of the answer."""
        network, key = self._network, id(ablations)
        if key not in self._kept:
            paths = [f"{place.path}.z" for place in places(network) if not place.is_ffn]
            paths += [at for name in self._lengths for at in (*self._streams(name), *self._fed(name))]
            edit: dict[str, Edit] = {self._streams(name)[0]: _leaf for name in self._lengths} | self._edit
            with Evaluating(network), torch.enable_grad():
                with recording(network, [*paths, "…"], edit=edit, explicit=bool(self._edit)) as seen:
                    result = network(*self._tokens)
                at = [seen[path] for path in paths]
                each = [
                    torch.autograd.grad(one, at, retain_graph=True, allow_unused=True, materialize_grads=True)
                    for one in ablations.directions(result, DIRECTIONS)
                ]
            slopes = map(torch.cat, zip(*each, strict=True))
            self._kept[key] = {path: (x.detach(), slope) for path, x, slope in zip(paths, at, slopes, strict=True)}
        return self._kept[key]


def _known(moved: float) -> float:
    return -1.0 if isnan(moved) else moved


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


def _put(tokens: Sequence[int], new: Edit, value: Tensor) -> Tensor:
    """Replaces the rows of some tokens, b t d."""
    value = value.clone()
    value[:, tokens] = new if isinstance(new, Tensor) else 0.0
    return value
