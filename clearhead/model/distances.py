"""Scores by distance that each attention makes with weights of its own: disentangled attention (DeBERTa), and a bias
for each layer (UMT5).
"""

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.attention_bias import BiasSteps, NotAdded, NotScored, NotTurned, Relation, bucket
from clearhead.model.fast.dropout import dropout
from clearhead.model.fast.tensor_parallel import Division
from clearhead.model.mode import Part
from clearhead.model.norm import build_norm
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps
from clearhead.trace import tap

Maps = tuple[tuple[nn.Module, str], tuple[nn.Module, str]]
"""The maps of queries and of keys, each with its path."""


class DisentangledEncoding(NotAdded, NotTurned, NotScored):
    """One learned vector for each distance, which every layer projects by itself   (He et al. 2020, 3.1)"""

    learns_bias = True

    def __init__(self, config: c.Disentangled, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Embedding(2 * config.span, stack.d_model)
        self.norm = build_norm(stack, axes="b r d") if config.norm else None

    def relation(self, query: Tensor, key: Tensor) -> Relation:
        states = self.table.weight
        rows = distance_rows(query[:, :, None] - key[:, None, :], self.config.n_buckets, self.config.max_distance)
        return Relation(rows, states if self.norm is None else self.norm(states[None])[0])

    def relation_steps(self, to: Steps, path: str) -> str:
        with to.inside(path):
            states = to.do(f"{path}.rows", "rows", weights=(f"{path}.table.weight",))
        return states if self.norm is None else self.norm.steps(to, f"{path}.norm", states)


def distance_rows(distance: Tensor, n_buckets: int | None, max_distance: int) -> Tensor:
    """query - key -> a row: exact if near, then logarithmic, if there are buckets; rows end at the largest distance."""
    if n_buckets is not None:
        exact = n_buckets // 2
        growth = torch.log(torch.tensor((max_distance - 1) / exact, dtype=torch.float32, device=distance.device))
        away = distance.abs().clamp(min=max(exact - 1, 1)).float()
        far = torch.ceil(torch.log(away / exact) / growth * (exact - 1)).long() + exact
        distance = torch.where(distance.abs() <= exact, distance, far * distance.sign())
    span = n_buckets or max_distance
    return (distance + span).clamp(0, 2 * span - 1)


class DistanceScores(Part):
    """c2p = q_t . Kr[t - s] scale and p2c = k_s . Qr[t - s] scale, Kr = R W_K and Qr = R W_Q   (He et al. 2020, 3.1)

    R has a vector for each distance. With `shared`, W_K and W_Q are those of the attention itself.
    """

    divisions = (Division("q", "heads", "outputs"), Division("k", "heads", "outputs"))

    def __init__(self, config: c.StackConfig, positions: c.Disentangled) -> None:
        super().__init__()
        self.config, self.scale, self.d_head = positions, config.score_scale, config.head_width
        self.n_heads, self.n_kv_heads, self.dropout = config.n_heads, config.kv_heads, config.dropout
        self.q = self.k = None
        if positions.position_to_content and not positions.shared:
            self.q = nn.Linear(config.d_model, config.n_heads * self.d_head, bias=config.has_qkv_bias)
        if positions.content_to_position and not positions.shared:
            self.k = nn.Linear(config.d_model, config.kv_heads * self.d_head, bias=config.has_qkv_bias)

    def forward(self, q: Tensor, k: Tensor, relation: Relation, maps: tuple[nn.Module, nn.Module]) -> Tensor:
        """b h t k (already scaled), b h s k -> b h t s. `maps` are the attention's own maps of queries and keys."""
        assert relation.states is not None
        states = dropout(relation.states, self.dropout, self.training)
        scores: list[Tensor] = []
        rows = relation.rows[:, None].expand(q.shape[0], q.shape[1], -1, -1)
        if self.config.content_to_position:
            keys = self.split((self.k or maps[1])(states), q.shape[1])
            scores.append(tap(self, "c2p", torch.einsum("bhtk,hrk->bhtr", q, keys).gather(-1, rows), "b h t s"))
        if self.config.position_to_content:
            queries = self.split((self.q or maps[0])(states), q.shape[1])
            found = torch.einsum("bhsk,hrk->bhsr", k * self.scale, queries).gather(-1, rows.mT).mT
            scores.append(tap(self, "p2c", found, "b h t s"))
        return scores[0] if len(scores) == 1 else scores[0] + scores[1]

    def split(self, x: Tensor, heads: int) -> Tensor:
        """r (h k) -> h r k, with a shared head repeated for every head of its group."""
        x = x.unflatten(-1, (-1, self.d_head)).transpose(0, 1)
        return x if len(x) == heads else x.repeat_interleave(heads // len(x), 0)

    def steps(self, to: Steps, path: str, scores: str, qk: tuple[str, str], maps: Maps, attn_bias: BiasSteps) -> str:
        """Lists the ops of `forward` and their sum with `scores`; returns its address."""
        (q, k), states, numbers = qk, attn_bias.states, attn_bias.numbers
        (q_map, q_path), (k_map, k_path) = maps
        with to.inside(path):
            states = to.dropout(states, self.dropout, out=f"{path}.dropped")
            if self.config.content_to_position:
                by = (self.k, f"{path}.k") if self.k else (k_map, k_path)
                found = self._term(to, f"{path}.c2p", (states, numbers), q, by, self.n_kv_heads)
                scores = to.do(f"{path}.with_c2p", "add", scores, found)
            if self.config.position_to_content:
                by = (self.q, f"{path}.q") if self.q else (q_map, q_path)
                found = self._term(to, f"{path}.p2c", (states, numbers), k, by, self.n_heads)
                scores = to.do(f"{path}.with_p2c", "add", scores, found)
        return scores

    def _term(self, to: Steps, at: str, related: tuple[str, str], x: str, by: tuple[nn.Module, str], heads: int) -> str:
        """Lists the ops of one term: of queries or keys x with the vectors that the map `by` makes."""
        states, numbers = related
        made = to.linear(f"{at}.linear", states, *by)
        made = to.do(f"{at}.split", "split", made, by={"heads": heads})
        if heads < self.n_heads:
            made = to.do(f"{at}.repeat", "repeat", made, by={"times": self.n_heads // heads})
        scaled = to.do(f"{at}.state", "scale", x, by={"factor": self.scale})
        found = to.do(f"{at}.product", "matmul_nt", scaled, made)
        buckets, how = self.config.n_buckets, "query" if at.endswith("c2p") else "key"
        rows: dict[str, float] = {"buckets": buckets or 0, "distance": self.config.max_distance}
        return to.do(at, "by_distance", found, numbers, by=rows, how=how)


def _by_distance(call: Call) -> Tensor:
    x, positions = call.x
    rows = distance_rows(
        positions[:, None] - positions, int(call.op.by["buckets"]) or None, int(call.op.by["distance"])
    )
    rows = rows.expand(len(x), -1, -1)
    return x.gather(-1, rows) if call.op.how == "query" else x.gather(-1, rows.mT).mT


def _cells(call: Sized) -> tuple[int, ...]:
    heads, t, _ = call.x[0].shape
    return heads, t, t


KINDS |= {
    "rows": Kind(lambda call: call.w[0], lambda call: call.w[0], width=lambda _: 0),
    "by_distance": Kind(_by_distance, _cells, saves=lambda call: call.x[:1]),
}


def buckets(query: Tensor, key: Tensor, config: c.RelativeBias, *, causal: bool) -> Tensor:
    """b t, b s -> b t s: the row of each distance in a table of biases."""
    distance = key[:, None, :] - query[:, :, None]
    return bucket(distance, config.n_buckets, config.max_distance, causal=causal)


def relative_bias_steps(to: Steps, out: str, path: str, numbers: str, config: c.RelativeBias, *, causal: bool) -> str:
    """Lists the look-up of the biases in the table at `path`; returns `out`."""
    by: dict[str, float] = {"buckets": config.n_buckets, "distance": config.max_distance}
    how = "past" if causal else "both"
    return to.do(out, "relative_bias", numbers, weights=(f"{path}.table.weight",), by=by, how=how)


def _relative_bias(call: Call) -> Tensor:
    n, far, causal = int(call.op.by["buckets"]), int(call.op.by["distance"]), call.op.how == "past"
    return call.w[0][bucket(call.x[0] - call.x[0][:, None], n, far, causal=causal)].permute(2, 0, 1)


KINDS["relative_bias"] = Kind(_relative_bias, lambda call: (call.w[0][1], *call.x[0].shape, *call.x[0].shape))


class LayerBiasEncoding(NotAdded, NotTurned, NotScored):
    """The buckets of distances; each layer has a table for them   (Chung et al. 2023, UMT5)"""

    learns_bias = True

    def __init__(self, config: c.RelativeBias, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.config, self.causal = config, causal

    def relation(self, query: Tensor, key: Tensor) -> Relation:
        return Relation(buckets(query, key, self.config, causal=self.causal))

    def relation_steps(self, to: Steps, path: str) -> None:
        return None


class LayerBias(Part):
    """bias[h, bucket(key - query)]   (Raffel et al. 2019, 2.1)"""

    divisions = (Division("table", "heads", "outputs"),)

    def __init__(self, config: c.StackConfig, positions: c.RelativeBias) -> None:
        super().__init__()
        self.config = positions
        self.table = nn.Embedding(positions.n_buckets, config.n_heads)

    def forward(self, q: Tensor, k: Tensor, relation: Relation, maps: tuple[nn.Module, nn.Module]) -> Tensor:
        """-> b|1 h t s"""
        return self.table(relation.rows).permute(0, 3, 1, 2)

    def steps(self, to: Steps, path: str, scores: str, qk: tuple[str, str], maps: Maps, attn_bias: BiasSteps) -> str:
        """Lists the ops of `forward` and their sum with `scores`; returns its address."""
        assert isinstance(attn_bias.positions, LayerBiasEncoding)
        causal = attn_bias.positions.causal
        with to.inside(path):
            bias = relative_bias_steps(to, f"{path}.bias", path, attn_bias.numbers, self.config, causal=causal)
            return to.do(f"{path}.with_bias", "add", scores, bias)


def distance_scores(config: c.StackConfig) -> DistanceScores | LayerBias | None:
    """The part of an attention that makes scores of distances; None if this stack has none."""
    match config.distances:
        case None:
            return None
        case c.Disentangled() as positions:
            return DistanceScores(config, positions)
        case positions:
            return LayerBias(config, positions)
