"""The overview of one answer: how much of it each head, attention weight, stream and feed-forward carries."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.ablation import Ablations, places
from clearhead.analysis.metrics import Cosine, Vectors, mean_states
from clearhead.analysis.passes import Inputs, Seen, layouts, one_text, part_of, traced
from clearhead.model import Transformer
from clearhead.progress import cached
from clearhead.trace import Address, Edit, zero

HEADS = 24
"""The most heads whose attention weights are measured."""
CURVES = 256
"""The most attention weights that are measured."""
LANES = 24
"""The most lanes of a text."""
REGIONS = 3
"""The lanes of a picture, in each direction."""
FEW = 5
"""The most tokens that are set to 0 one by one; only the positions after them are computed then."""
STRETCHES = 8
"""The lanes of a sound."""
LEAST_WEIGHT = 0.02
"""The smallest attention weight that is measured."""
PASS = 2048
"""About how many positions go through a pass."""


@dataclass(frozen=True)
class Moved:
    """What one edit moves."""

    at: str
    """The address of a part, `decoder.blocks.3.attn.z[h=4]`, or of a weight, `….weights[h=4,t=4,s=3]`; of several
    tokens their addresses with spaces between. A weight of a lane is the sum of its tokens', named by the first.
    """
    moved: float
    """M of this value := 0, of a weight with the others of its row unchanged; NaN: not measured."""
    p: float
    """The probability of the likeliest answer without it; of a vector its cosine."""
    risen: int
    """The answer that gains most without it; -1 for a vector, and where it was not measured."""
    risen_p: float
    """The probability of that answer without it."""
    weight: float | None = None


class Overview:
    """M(edit) = 1/2 sum_w |p(w) - p(w | edit)|: the share of one answer, 0 to 1, that moves with an edit of its pass.

    A network that makes vectors has what the cosine with `toward` moves instead, and a span the mean of its start's
    and its end's M. Each attribute is measured when it is first read; what `budget` does not reach is NaN.
    """

    def __init__(
        self,
        network: Transformer,
        inputs: Inputs,
        *,
        position: int | None = None,
        among: Sequence[int] = (),
        words: Mapping[str, list[list[int]]] | None = None,
        edit: Mapping[str, Edit] | None = None,
        seen: Seen | None = None,
        vectors: Vectors = mean_states,
        toward: Tensor | None = None,
        budget: float = float("inf"),
    ) -> None:
        """`position` is that of the answer in the last stack. By default it is the one, `among` those given or all that
        answer, whose best head moves the answer most. A decoder alone answers at its last position. `words` are the
        tokens of each word by stack; by default each token is one.

        Everything refers to the network with the edits `edit`; `seen` are its values, if they were made already.
        `toward` is the vector, d, of another text; by default the text's own. Heads take about `budget`
        multiplications, each other attribute half as many, and half a pass of the text at least.
        Raises UserError for several texts or a wrong position.
        """
        tokens = one_text(network, inputs)
        self._network, self._tokens, self._edit = network, [*tokens.values()], dict(edit or {})
        self._budget, self._among, self._words = budget, among, dict(words or {})
        self._lengths = {name: layout.grid[1] for name, layout in layouts(network, tokens).items()}
        self._last, length = list(self._lengths.items())[-1]
        self._depths = {name: len(stack.blocks) for name, stack in network.stacks().items()}
        self._size = network.n_parameters / sum(self._depths.values())
        self._is_by_position = network.config.answers_by_position
        if position is None and (network.encoder is None or not self._is_by_position):
            position = -1
        self._asked = None if position is None else position % length
        self._seen = traced(network, tokens, self._edit, without=("heads",))[0] if seen is None else seen
        metric = None if toward is None else Cosine(toward[None], vectors)
        ablate = partial(Ablations, network, self._tokens, edit=self._edit, vectors=vectors, seen=self._seen)
        self._ablate = partial(ablate, metric=metric)
        self._whole = self._ablate(position=position)

    @property
    def is_vector(self) -> bool:
        """True if the network makes vectors, which have no probabilities."""
        return self._whole.metric is not None

    @cached
    def position(self) -> int:
        """The position of the answer; the last one if the network answers once."""
        if self._asked is not None:
            return self._asked
        moved = self._every_head[0].nan_to_num(-1.0).amax(0)
        among = [one % len(moved) for one in self._among] or [*range(len(moved))]
        return among[int(moved[among].argmax())]

    @cached
    def answer(self) -> Tensor:
        """v: the probabilities at the position; of a span those of its start. Of a vector, 1: its cosine."""
        return self._ablations.expected[:1] if self.is_vector else self._ablations.expected[0].exp()

    @cached
    def _ablations(self) -> Ablations:
        if self._asked is not None:
            return self._whole
        return self._ablate(position=self.position)

    # --- what is measured ---

    @cached
    def heads(self) -> list[Moved]:
        """Every head."""
        return self._each(dict.fromkeys(self._sites), self._every_head, 0 if self._asked is not None else self.position)

    @property
    def decided(self) -> int:
        """The number of the head that moves the answer most; -1 without attention."""
        moved = torch.tensor([one.moved for one in self.heads]).nan_to_num(-1.0)
        return int(moved.argmax()) if len(moved) else -1

    @cached
    def parts(self) -> list[Moved]:
        """What moves with the first states of each token or region of the first stack := 0."""
        first, n = next(iter(self._lengths.items()))
        lanes, at = self._groups.get(first) or [[t] for t in range(n)], f"{first}.blocks.0.resid_pre"
        return self.off([" ".join(f"{at}[t={t}]" for t in lane) for lane in lanes])

    def off(self, sites: Sequence[str]) -> list[Moved]:
        """What moves with each site := 0. A site may be several addresses with spaces between, all set at once."""
        return self._each(dict.fromkeys(sites), self._measure([_zero_at(site.split()) for site in sites]))

    def _each(
        self, sites: Mapping[str, float | None], measured: tuple[Tensor, ...], row: int | None = None
    ) -> list[Moved]:
        """What was measured of a row; by default the mean of all."""
        columns = [(one.double().mean(1) if row is None else one[:, row]).tolist() for one in measured]
        return [
            Moved(at, moved, p, int(risen), risen_p, weight)
            for (at, weight), moved, p, risen, risen_p in zip(sites.items(), *columns, strict=True)
        ]

    @cached
    def _sites(self) -> list[str]:
        return [site for place in places(self._network) if not place.is_ffn for site in place.sites]

    @cached
    def _every_head(self) -> tuple[Tensor, ...]:
        """Those first that move the answer most where it is made, which takes one position of a decoder."""

        def rank() -> list[float]:
            if self._whole.end is None:
                return []
            here = [{f"{site[:-1]},t={self._asked}]": zero} for site in self._sites]
            return self._measure(here, self._whole, budget=float("inf"))[0][:, 0].tolist()

        return self._measure([{site: zero} for site in self._sites], self._whole, rank=rank, budget=self._budget)

    @cached
    def curves(self) -> list[Moved]:
        """The attention weights of the strongest heads that are at least LEAST_WEIGHT, the strongest first.

        A head with an edited output has none.
        """
        heads, cells, weights, strengths = self._read
        kept = strengths.topk(min(CURVES, len(strengths))).indices.sort().values
        found, sets = dict[str, float](), list[dict[str, Edit]]()
        for (i, t, s), weight in zip(cells[kept].tolist(), weights[kept].tolist(), strict=True):
            path, h, z, v, read = heads[i]
            lane = next((lane for lane in self._groups.get(read, ()) if lane[0] == s), [s])
            found[f"{path}.weights[h={h},t={t},s={s}]"] = weight
            several = self._seen[f"{path}.weights[h={h},t={t}]"][0][lane] if lane[1:] else v.new_tensor([weight])
            sets.append({f"{path}.z[h={h},t={t}]": z[t] - several @ v[lane]})
        every = self._each(found, self._measure(sets, rank=strengths[kept].tolist))
        return sorted((one for one in every if one.moved >= 0), key=lambda one: -one.moved)

    @cached
    def _read(self) -> tuple[list[tuple[str, int, Tensor, Tensor, str]], Tensor, Tensor, Tensor]:
        """The strongest heads with z, v and the stack that each reads, n 3: of each weight the head, who reads and is
        read, the weight, and its strength.

        The strength is what the head moves, by the share that the weight's value has in the head's output.
        """
        heads = list[tuple[str, int, Tensor, Tensor, str]]()
        cells, found, strengths = [torch.empty(0, 3, dtype=torch.long)], [torch.empty(0)], [torch.empty(0)]
        known = (one for one in self.heads if one.moved >= 0)
        for one in sorted(sorted(known, key=lambda one: -one.moved)[:HEADS], key=lambda one: one.at):
            where = Address.parse(one.at)
            if {where.path, one.at} & self._edit.keys():
                continue
            path, h = where.path.removesuffix(".z"), dict(where.index)["h"]
            weights, v = (self._seen[f"{path}.{name}"][0] for name in (f"weights[h={h}]", "v"))
            own = path.partition(".")[0]
            read = "encoder" if path.endswith("cross") else own
            v = v[h * len(v) // self._network.stacks()[own].config.n_heads]
            z, weights = weights @ v, weights.clone()
            for lane in self._groups.get(read, ()):
                weights[:, lane] = F.pad(weights[:, lane].sum(1, keepdim=True), (0, len(lane) - 1))
                if own == read and len(lane) > 1:
                    weights[lane, slice(None) if own in self._regions else lane[0]] = 0
            counted = (weights >= LEAST_WEIGHT).nonzero()
            counted = counted[counted[:, 0] <= self.position] if path.startswith("decoder") else counted
            t, s = counted.T
            norm, far = v.float().norm(dim=-1), 1 + (self._made - t).abs()
            strengths.append((one.moved * weights[t, s] * norm[s] / norm.mean() / far.sqrt()).cpu())
            cells.append(F.pad(counted.cpu(), (1, 0), value=len(heads)))
            found.append(weights[t, s].float().cpu())
            heads.append((path, h, z, v, read))
        return heads, torch.cat(cells), torch.cat(found), torch.cat(strengths)

    @cached
    def lanes_of(self) -> dict[str, list[list[int]]]:
        """The tokens of each lane by stack, which are changed together: regions of a picture, stretches of a sound.

        In a text each word has its own, in a long one those that the strongest heads read most, or without which an
        encoder says something else; the first lane has the others.
        """
        found = dict(self._regions)
        for name, length in self._lengths.items():
            if name not in found:
                lanes = self._groups.get(name) or [[t] for t in range(length)]
                strength = torch.stack([self._strength[name][lane].amax() for lane in lanes])
                own = sorted(strength.topk(min(len(lanes), LANES - (len(lanes) > LANES))).indices.tolist())
                rest = sorted({*range(length)} - {t for i in own for t in lanes[i]})
                found[name] = [rest] * bool(rest) + [lanes[i] for i in own]
        return found

    @cached
    def _groups(self) -> dict[str, list[list[int]]]:
        """What is changed together: the regions, or the words if they are known."""
        return self._words | self._regions

    @cached
    def _regions(self) -> dict[str, list[list[int]]]:
        """The lanes of a picture or of a sound. The silence at the end of a sound is one lane."""
        name, length = next(iter(self._lengths.items()))
        reads, cells = self._network.config.first.input, torch.arange(length)
        if isinstance(reads, c.TokenInput):
            return {}
        if isinstance(reads, c.PatchInput):
            rows = cells[-reads.n_patches :].view(reads.side, -1).tensor_split(REGIONS)
            lanes = [cut for row in rows for cut in row.tensor_split(REGIONS, 1)]
            lanes = [*cells[: -reads.n_patches].split(1), *lanes]
        else:
            sound = self._tokens[0].ids[0].cpu()
            heard = (sound != sound[-1]).any(1).nonzero().flatten().tolist()
            end = 1 + max(heard, default=0) * length // len(sound)
            lanes = [*cells[:end].tensor_split(STRETCHES), cells[end:]]
        return {name: [lane.flatten().tolist() for lane in lanes if lane.numel()]}

    @cached
    def _strength(self) -> dict[str, Tensor]:
        """How much the strongest heads read of each token; infinite for the one whose last state makes the answer."""
        found = {name: torch.zeros(length) for name, length in self._lengths.items()}
        heads, cells, _, strengths = self._read
        for i, (*_, read) in enumerate(heads):
            own = cells[:, 0] == i
            found[read].index_add_(0, cells[own, 2], strengths[own])
        if self._last == "encoder" and not self._regions:
            groups = self._groups.get("encoder") or range(self._lengths["encoder"])
            for lane, one in zip(groups, self.parts, strict=True):
                found["encoder"][lane] += torch.tensor(one.moved).nan_to_num(-1.0)
        if self._is_by_position or self._pool in ("first", "last"):
            found[self._last][self._made] = float("inf")
        return found

    @property
    def _pool(self) -> str:
        """The vectors that the head reads; empty for a head without this field."""
        return getattr(self._network.config.head, "pool", "")

    @property
    def _made(self) -> int:
        """The position whose last state makes the answer."""
        return 0 if self._pool == "first" else self.position

    @cached
    def lanes(self) -> dict[str, Tensor]:
        """l n by stack: M of the stream of each lane before the first block and after each := 0."""
        return self._by_lane("resid_pre")

    @cached
    def ffn(self) -> dict[str, Tensor]:
        """l n by stack: M of the output of each block's feed-forward in each lane := 0."""
        return self._by_lane("ffn.out")

    def _by_lane(self, value: str) -> dict[str, Tensor]:
        found, cells = dict[str, Tensor](), list[tuple[str, int, int]]()
        sets, strengths = list[dict[str, Edit]](), list[float]()
        for name in self._lengths:
            n, lanes = self._depths[name], self.lanes_of[name]
            several = [f"{name}.blocks.{i}.{value}" for i in range(n)]
            several += [f"{name}.blocks.{n - 1}.resid_post"] * (value == "resid_pre")
            found[name] = torch.zeros(len(several), len(lanes))
            for i, path in enumerate(several):
                is_there = value == "resid_pre" or self._network.stacks()[name].config.has_ffn(i)
                for j, lane in enumerate(lanes if is_there else ()):
                    cells.append((name, i, j))
                    sets.append(_zero_at([f"{path}[t={t}]" for t in lane]))
                    # The ends first, then the middle, the quarters, …: what is measured shows the whole roughly.
                    level = len(several) if i in (0, len(several) - 1) else i & -i
                    strengths.append(float(self._strength[name][lane].amax()) * level**3)
        measured = self._measure(sets, rank=strengths.copy)[0].mean(1)
        for (name, i, j), moved in zip(cells, measured.tolist(), strict=True):
            found[name][i, j] = moved
        return found

    # --- how ---

    def _measure(
        self,
        sets: Sequence[Mapping[str, Edit]],
        ablations: Ablations | None = None,
        *,
        rank: Callable[[], Sequence[float]] = list,
        budget: float | None = None,
    ) -> tuple[Tensor, ...]:
        """n r each: M, the probability of the likeliest answer; and the one that gains most, with its own.

        NaN and -1 stand beyond the budget; `rank` says what comes first, by default what costs least.
        """
        ablations = ablations or self._ablations
        expected, left = ablations.expected, self._budget if budget is None else budget
        costs = [self._cost([*map(Address.parse, some)], ablations.end) for some in sets]
        least = sum(n * self._depths[name] for name, n in self._lengths.items())
        left = max(left / self._size, least / 2)
        chosen = [*range(len(sets))]
        if sum(costs) > left:
            strengths = rank() or [1.0] * len(sets)
            order, chosen = sorted(chosen, key=lambda i: -strengths[i] / max(1, costs[i]) ** 0.5), list[int]()
            for i in order:
                if costs[i] <= left or not chosen:
                    chosen.append(i)
                    left -= costs[i]
        moved, p, risen_p = (torch.full((len(sets), len(expected)), float("nan")) for _ in range(3))
        risen = torch.full(moved.shape, -1)
        free, chosen = [i for i in chosen if not costs[i]], [i for i in chosen if costs[i]]
        made = ((chosen[i], logs) for i, logs in ablations.edited([sets[i] for i in chosen], budget=PASS))
        for i, logs in itertools.chain(((i, expected) for i in free), made):
            if self.is_vector:
                moved[i], p[i] = (expected - logs).abs().cpu(), logs.cpu()
            else:
                gains = logs.exp() - expected.exp()
                moved[i] = gains.abs().sum(-1).cpu() / 2
                p[i] = logs.gather(-1, expected.argmax(-1)[:, None])[:, 0].exp().cpu()
                best = gains.argmax(-1)
                risen[i], risen_p[i] = best.cpu(), logs.gather(-1, best[:, None])[:, 0].exp().cpu()
        return moved, p, risen, risen_p

    def _cost(self, sites: Sequence[Address], end: int | None) -> int:
        """How many positions go through blocks in the pass of an edit; 0 if the answer reads nothing of it."""
        own, first = part_of(self._network, sites[0].path)
        names, lengths, depth = [*self._lengths], self._lengths, self._depths[own]
        if end is not None and own == "decoder":
            at = [dict(site.index).get("t") for site in sites]
            n = end - min(t or 0 for t in at)
            if first == depth - 1 and not sites[0].path.endswith("resid_pre"):
                return int(None in at or end - 1 in at)
            # The last block makes keys and values, and one state.
            return n * (depth - 1 - first) + n // 4 + 1
        later = sum(lengths[name] * self._depths[name] for name in names[names.index(own) + 1 :])
        return lengths[own] * (depth - first) + later


def _zero_at(sites: Sequence[str]) -> dict[str, Edit]:
    """The edit that sets the rows at these addresses of one value to 0."""
    each = [Address.parse(site) for site in sites]
    tokens = [t for one in each for _, t in one.index]
    return {each[0].path: partial(_empty, tokens)} if tokens[FEW:] else dict.fromkeys(sites, zero)


def _empty(tokens: Sequence[int], value: Tensor) -> Tensor:
    """Sets the rows of some tokens to 0, b t d."""
    value = value.clone()
    value[:, tokens] = 0
    return value
