"""Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, explicit and fused, for every mask and grouping of heads."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import Latent, StackConfig
from clearhead.model.attention_bias import AttentionBias, BiasSteps
from clearhead.model.attention_ops import softmax
from clearhead.model.cache import KeyValues
from clearhead.model.distances import distance_scores
from clearhead.model.fast.blocked_attention import TILE, blocked_attention
from clearhead.model.fast.dropout import dropout
from clearhead.model.fast.tensor_parallel import Division
from clearhead.model.layout import Layout
from clearhead.model.linear import effective_weight, narrowed
from clearhead.model.mode import Part
from clearhead.model.norm import Norm, build_norm
from clearhead.model.ops import Steps
from clearhead.trace import looked_at, tap, tell_padding, tracing

Kernel = Literal["auto", "explicit", "fused"]
EXPLICIT_UP_TO: int = 512
"""Keys up to which matmul and softmax beat PyTorch's fused kernel on CPU (docs/log)."""
FUSED_FROM = 32
"""Queries from which the fused kernel is faster on CPU all the same, in float32 and without gradients (docs/log)."""


def by_heads(x: Tensor, heads: int) -> Tensor:
    """b t (h k) -> b h t k"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _as_wide(x: Tensor, width: int) -> Tensor:
    """... k -> ... width: zeros behind it, for a kernel that has one width for queries, keys and values."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def _together(q: Tensor, n: int) -> Tensor:
    """(b n) h t k -> b h (n t) k: the queries of n rows as those of one."""
    return q if n == 1 else q.unflatten(0, (-1, n)).transpose(1, 2).flatten(2, 3)


def _apart(z: Tensor, n: int) -> Tensor:
    """b h (n t) k -> (b n) h t k"""
    return z if n == 1 else z.unflatten(2, (n, -1)).transpose(1, 2).flatten(0, 1)


class Latents(Part):
    """c = Norm(W_k x), from which all heads compute keys and values; k_h = [W_s x; W_h c]   (DeepSeek-AI 2024, 2.1.2)

    The shared part of the keys, W_s x, comes first, and rotary positions turn it. Queries are made of Norm(W_q x) if
    they have a vector of their own, else of x.
    """

    def __init__(self, config: StackConfig, latent: Latent) -> None:
        super().__init__()
        d, norms = config.d_model, config.model_copy(update={"norm_eps": latent.norm_eps})
        self.n_heads, self.d_shared = config.n_heads, latent.d_shared
        self.widths = latent.query_rank or d, latent.rank
        self.q = nn.Linear(d, latent.query_rank, bias=latent.bias) if latent.query_rank else None
        self.q_norm = build_norm(norms, latent.query_rank, axes="b t k") if latent.query_rank else None
        self.k = nn.Linear(d, latent.rank, bias=latent.bias)
        self.k_norm = build_norm(norms, latent.rank, axes="b s k")
        self.shared = nn.Linear(d, latent.d_shared, bias=latent.bias)

    def queries(self, x: Tensor) -> Tensor:
        """... d -> ... k: what queries are made of."""
        return x if self.q is None or self.q_norm is None else self.q_norm(tap(self, "q", self.q(x), "b t k"))

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """... d -> ... k each: what each head's keys and values are made of, and the shared part of the keys."""
        return self.k_norm(tap(self, "k", self.k(x), "b s k")), self.shared(x)

    def query_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `queries`; returns the address of the result."""
        if self.q is None or self.q_norm is None:
            return x
        with to.inside(path):
            return self.q_norm.steps(to, f"{path}.q_norm", to.linear(f"{path}.q", x, self.q, f"{path}.q"))

    def key_steps(self, to: Steps, path: str, x: str, k: str) -> tuple[str, str]:
        """Lists the ops of `keys`; returns the addresses of the results, the second one below `k`, for every head."""
        with to.inside(path):
            made = self.k_norm.steps(to, f"{path}.k_norm", to.linear(f"{path}.k", x, self.k, f"{path}.k"))
            at = f"{k}.shared"
            shared = to.linear(f"{at}.linear", x, self.shared, f"{path}.shared")
            shared = to.do(f"{at}.split", "split", shared, by={"heads": 1, "width": self.d_shared})
            return made, to.do(f"{at}.each", "repeat", shared, by={"times": self.n_heads})


def joined(shared: Tensor, own: Tensor) -> Tensor:
    """b 1 s k and b h s j -> b h s (k j): the shared part of every head's key before its own."""
    return torch.cat([shared.expand(-1, own.shape[1], -1, -1), own], -1)


class Combining(Part):
    """Heads, whose results one map joins."""

    n_heads: int
    d_value: int
    """Width of a head's result."""
    out: nn.Linear

    def combine(self, z: Tensor, layout: Layout) -> Tensor:
        """b h t k -> b t d: out = sum_h z_h W_O^h + bias, one product unless a trace reads each head's share."""
        z = tap(self, "z", z, "b h t k")
        if not looked_at(self, "heads"):
            return tap(self, "out", self.out(layout.pack(z.transpose(1, 2).flatten(2))), "b t d")
        per_head = effective_weight(self.out).unflatten(1, (self.n_heads, self.d_value))
        heads = tap(self, "heads", torch.einsum("bhtk,dhk->bhtd", z, per_head), "b h t d")
        out = heads.sum(1) if self.out.bias is None else heads.sum(1) + self.out.bias
        return tap(self, "out", out, "b t d")

    def combine_steps(self, to: Steps, path: str, z: str) -> str:
        """Lists the ops of `combine`; returns the address of the result."""
        heads = to.do(f"{path}.heads", "project", z, weights=(f"{path}.out.weight",))
        bias = () if self.out.bias is None else (f"{path}.out.bias",)
        return to.do(f"{path}.out", "sum_heads", heads, weights=bias)


class Attention(Combining):
    """out = concat_h(softmax(Q_h K_h^T scale + mask) V_h) W_O   (Vaswani et al. 2017, 3.2)

    Self-attention when keys come from the same states, cross-attention when they come from an encoder's.
    n_kv_heads < n_heads shares each key and value head among a group of queries (Ainslie et al. 2023).
    """

    @property
    def divisions(self) -> tuple[Division, ...]:
        """How the heads divide among processes."""
        return (
            *(Division(name, "heads", "outputs") for name in ("q", "k", "v", "gate")),
            Division("out", "heads", "inputs"),
            *(
                Division(name, "heads", "whole" if self.norms_heads_together else "states")
                for name in ("q_norm", "k_norm")
            ),
            Division("sinks", "heads", "whole"),
            *(Division(name, "heads") for name in ("n_heads", "n_kv_heads")),
        )

    def __init__(self, config: StackConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = config.n_heads, config.kv_heads
        self.d_head, self.d_value, self.scale = config.head_width, config.value_width, config.score_scale
        self.soft_cap, self.dropout = config.soft_cap, config.attn_dropout
        self.kernel: Kernel = "auto"
        self.sinks = nn.Parameter(torch.zeros(config.n_heads)) if config.sinks else None
        inner, kv_inner = config.n_heads * self.d_head, config.kv_heads * self.d_head
        self.latent = None if config.latent is None else Latents(config, config.latent)
        reads, read = (config.d_model, config.d_model) if self.latent is None else self.latent.widths
        self.d_key = self.d_head if self.latent is None else self.d_head - self.latent.d_shared
        self.q = nn.Linear(reads, inner, bias=config.has_qkv_bias)
        self.k = nn.Linear(read, config.kv_heads * self.d_key, bias=config.has_key_bias)
        self.v = nn.Linear(read, config.kv_heads * self.d_value, bias=config.has_qkv_bias)
        self.out = nn.Linear(config.n_heads * self.d_value, config.d_model, bias=config.has_out_bias)
        gate = nn.Linear(config.d_model, self.out.in_features, bias=config.has_qkv_bias) if config.attn_gate else None
        self.gate = gate
        self.distance = None if cross else distance_scores(config)
        self.norms_heads_together, self.norms_last = (
            config.qk_norm_over == "heads",
            config.qk_norm_over == "turned_head",
        )
        self.clip = config.clip_qkv
        self.q_norm = self.k_norm = None
        if config.qk_norm and self.norms_heads_together:
            self.q_norm, self.k_norm = build_norm(config, inner), build_norm(config, kv_inner, axes="b s d")
        elif config.qk_norm:
            self.q_norm = build_norm(config, self.d_head, axes="b h t k")
            self.k_norm = build_norm(config, self.d_head, axes="b h s k")

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        attn_bias: AttentionBias,
        *,
        memory: tuple[Tensor, Layout] | None = None,
        cache: KeyValues | None = None,
        onto: Layout | None = None,
    ) -> Tensor:
        """b t d (or packed m d) -> the same shape; keys and values from `memory` where given, else from x.

        With `onto`, made by `layout.only`, the result has only the cells of that layout.
        """
        tell_padding(t=layout.valid, s=attn_bias.valid)
        x = narrowed(x, self.q, self.k, self.v)
        made = x if self.latent is None else self.latent.queries(x)
        q = self.project((self.q, self.q_norm), made, layout, self.n_heads)
        if memory is not None and cache is not None and cache.k is not None and cache.v is not None:
            k, v = cache.k, cache.v
        else:
            k, v = self.keys_and_values(*(memory or (x, layout)), attn_bias)
            if cache is not None:
                k, v = cache.append(k, v)
        q = self.turned(q, self.q_norm, attn_bias)
        n = q.shape[0] // k.shape[0]  # The beams of an input read one memory.
        if n > 1 and tracing():
            k, v, attn_bias, n = k.repeat_interleave(n, 0), v.repeat_interleave(n, 0), attn_bias.repeated(n), 1
        q, k, v = tap(self, "q", q, "b h t k"), tap(self, "k", k, "b h s k"), tap(self, "v", v, "b h s k")
        group = self.n_heads // k.shape[1]
        z = _apart(self.attend(_together(q, n), k, v, attn_bias, group), n)
        if self.gate is not None:
            gate = by_heads(layout.unpack(self.gate(x)), self.n_heads).sigmoid()
            z = tap(self, "read", z, "b h t k") * tap(self, "gate", gate, "b h t k")
        return self.combine(z, onto or layout)

    def keys_and_values(self, source: Tensor, layout: Layout, attn_bias: AttentionBias) -> tuple[Tensor, Tensor]:
        """b s d (or packed m d) -> b h s k each, keys rotated, and 0 in padding."""
        made, shared = (source, None) if self.latent is None else self.latent.keys(source)
        made = narrowed(made, self.k, self.v)
        k = self.project((self.k, self.k_norm), made, layout, self.n_kv_heads)
        k = k if shared is None else joined(layout.unpack(shared)[:, None], k)
        k = self.turned(k, self.k_norm, attn_bias)
        return layout.blank(k), layout.blank(self.project((self.v, None), made, layout, self.n_kv_heads))

    def project(self, by: tuple[nn.Module, Norm | None], x: Tensor, layout: Layout, heads: int) -> Tensor:
        """b t d (or packed m d) -> b h t k, each head or all heads together normed where there is a norm."""
        linear, norm = by
        x = linear(x)
        x = norm(x) if norm is not None and self.norms_heads_together else x
        x = x if self.clip is None else x.clamp(-self.clip, self.clip)
        if norm is None or self.norms_heads_together or self.norms_last:
            return by_heads(layout.unpack(x), heads)
        if layout.rows is None:
            return norm(by_heads(x, heads))
        # Before padding is inserted, because a norm of zeros may be anything.
        return by_heads(layout.unpack(norm(x.unflatten(-1, (heads, -1))).flatten(-2)), heads)

    def turned(self, x: Tensor, norm: Norm | None, attn_bias: AttentionBias) -> Tensor:
        """b h t k -> b h t k: rotated, and normed where the norm comes last."""
        x = x if attn_bias.rotation is None else attn_bias.rotation(x)
        return norm(x) if norm is not None and self.norms_last else x

    def is_explicit(self, n_queries: int, n_keys: int, dtype: torch.dtype, device: torch.device) -> bool:
        """True if it computes step by step: while traced, where no kernel has these scores, or if that is faster.

        `dtype` is that of the input, and autocast may lower it.
        """
        if tracing() or not self.has_plain_scores or self.kernel == "explicit":
            return True
        if self.kernel == "fused" or device.type != "cpu" or n_keys > EXPLICIT_UP_TO:
            return False
        is_float32 = dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return n_queries < FUSED_FROM or not is_float32 or torch.is_grad_enabled()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: AttentionBias, group: int) -> Tensor:
        """softmax(Q K^T scale + bias + mask) V; of documents that are read alone, those of one length at once."""
        if not attn_bias.documents:
            explicit = self.is_explicit(q.shape[2], k.shape[2], q.dtype, q.device)
            return (self.explicit if explicit else self.fused)(q, k, v, attn_bias, group)
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
        z = v.new_zeros(len(rows[0]), self.n_heads, self.d_value)
        for cells in attn_bias.documents:
            own_q, own_k, own_v = (x[cells].transpose(1, 2) for x in rows)
            own = self.attend(own_q, own_k, own_v, AttentionBias(), group)
            z.index_copy_(0, cells.flatten(), own.transpose(1, 2).flatten(0, 1))
        return z.unflatten(0, (len(q), -1)).transpose(1, 2)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: AttentionBias, group: int) -> Tensor:
        """softmax(Q K^T scale + bias + mask) V, step by step."""
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        in_16_bits = q.dtype == torch.bfloat16 and q.device.type == "cpu"
        if in_16_bits:  # The product would copy them anyway, and slowly where it reads them transposed.
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        scaled = q * self.scale
        if self.uses_blocks(q, k, attn_bias):
            assert attn_bias.mask is not None
            rate = self.dropout if self.training else 0.0
            return blocked_attention(
                scaled, k, v, attn_bias.mask, attn_bias.unreachable, is_causal=attn_bias.causal, rate=rate
            )
        scores = scaled @ k.mT
        if self.soft_cap is not None:
            scores = self.soft_cap * (scores / self.soft_cap).tanh()
        if attn_bias.score_bias is not None:
            scores = scores + attn_bias.score_bias
        if self.distance is not None and attn_bias.relation is not None:
            scores = scores + self.distance(scaled, k, attn_bias.relation, (self.q, self.k))
        scores = tap(self, "scores", scores, "b h t s")
        # 0 and -inf are exact in any type, and a float32 mask would make all that follows float32.
        mask = None if attn_bias.mask is None else attn_bias.mask.to(scores.dtype)
        if mask is None and attn_bias.causal:  # It was made for the fused kernel of another layer.
            mask = torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype, device=scores.device).triu(1)
        masked = tap(self, "masked", scores if mask is None else scores + mask, "b h t s")
        # In the scores' own type: softmax sums in float32 anyway, and autocast would copy every weight twice.
        with torch.autocast(q.device.type, enabled=False):
            weights = softmax(masked, self.sinks).to(v.dtype)
        if attn_bias.unreachable is not None:
            weights = weights.masked_fill(attn_bias.unreachable, 0.0)
        weights = tap(self, "weights", weights, "b h t s")
        return dropout(weights, self.dropout, self.training) @ v

    @property
    def has_plain_scores(self) -> bool:
        """True if scores are products, to which at most a position adds something."""
        return self.soft_cap is None and self.sinks is None and self.distance is None

    def uses_blocks(self, q: Tensor, k: Tensor, attn_bias: AttentionBias) -> bool:
        """True if training computes tiles of queries, for which later keys do not exist."""
        is_learning = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
        if (
            not is_learning
            or tracing()
            or torch.compiler.is_compiling()
            or not attn_bias.is_lower
            or attn_bias.mask is None
        ):
            return False
        return self.has_plain_scores and attn_bias.score_bias is None and k.shape[2] >= 2 * TILE

    def fused(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: AttentionBias, group: int) -> Tensor:
        """The same by PyTorch's fused kernel, which does not expose the scores."""
        mask = None if attn_bias.causal and attn_bias.score_bias is None else attn_bias.mask
        if attn_bias.score_bias is not None:
            mask = attn_bias.score_bias if mask is None else mask + attn_bias.score_bias
        width = max(self.d_head, self.d_value)
        z = F.scaled_dot_product_attention(
            _as_wide(q, width),
            _as_wide(k, width),
            _as_wide(v, width),
            attn_mask=None if mask is None else mask.to(q.dtype),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=attn_bias.causal and mask is None,
            scale=self.scale,
            enable_gqa=group > 1,
        )[..., : self.d_value]
        return z if attn_bias.unreachable is None else z.masked_fill(attn_bias.unreachable, 0.0)

    def steps(self, to: Steps, path: str, x: str, attn_bias: BiasSteps, *, memory: str | None = None) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            whole, source, shared = x, (x if memory is None else memory), None
            if self.latent is not None:
                x = self.latent.query_steps(to, f"{path}.latent", x)
                source, shared = self.latent.key_steps(to, f"{path}.latent", source, f"{path}.k")
            n, d = self.n_kv_heads, self.d_key
            q = self.side_steps(to, f"{path}.q", x, (self.q, self.q_norm), (self.n_heads, self.d_head), attn_bias)
            k = self.side_steps(to, f"{path}.k", source, (self.k, self.k_norm), (n, d), attn_bias, shared=shared)
            v = self.side_steps(to, f"{path}.v", source, (self.v, None), (n, self.d_value), None)
            learns_bias = attn_bias.positions is not None and attn_bias.positions.learns_bias
            # For the gradients of a learned bias the kernel keeps the scores, too.
            if to.explicit.get(attn_bias.keys, True) or learns_bias or not self.has_plain_scores:
                z = self.explicit_steps(to, path, (q, k, v), attn_bias)
            else:
                z = self.fused_steps(to, path, (q, k, v))
            if self.gate is not None:
                read = to.named(f"{path}.read")
                gate = to.linear(f"{path}.gate.linear", whole, self.gate, f"{path}.gate")
                gate = to.do(f"{path}.gate.split", "split", gate, by={"heads": self.n_heads, "width": self.d_value})
                gate = to.do(f"{path}.gate", "activation", gate, how="sigmoid")
                z = to.do(z, "multiply", read, gate)
            return self.combine_steps(to, path, z)

    def fused_steps(self, to: Steps, path: str, qkv: tuple[str, str, str]) -> str:
        """Lists the ops of `fused`, for their sizes; returns the address of z."""
        width, widths = max(self.d_head, self.d_value), (self.d_head, self.d_head, self.d_value)
        wide = (
            x if own == width else to.do(f"{x}.wide", "resize", x, by={"width": width})
            for x, own in zip(qkv, widths, strict=True)
        )
        z = to.do(f"{path}.z", "attention", *wide)
        return z if self.d_head == self.d_value else to.do(z, "resize", z, by={"width": self.d_value})

    def side_steps(
        self, to: Steps, at: str, x: str, by: tuple[nn.Module, Norm | None], grid: tuple[int, int],
        attn_bias: BiasSteps | None, *, shared: str | None = None,
    ) -> str:  # fmt: skip
        """Lists the ops of `project`, for heads and their width, and of the bias's rotation; returns the address `at`.

        `shared` is the address of the part of keys that all heads share.
        """
        (linear, norm), (heads, width) = by, grid
        to.linear(f"{at}.linear", x, linear, at)
        whole = norm if self.norms_heads_together else None
        x = f"{at}.linear" if whole is None else whole.steps(to, f"{at}_norm", f"{at}.linear")
        if self.clip is not None:
            x = to.do(f"{at}.clipped", "clamp", x, by={"least": -self.clip, "most": self.clip})
        by_width: dict[str, float] = {} if width == self.d_head else {"width": width}
        x = to.do(f"{at}.split", "split", x, by={"heads": heads, **by_width})
        last = norm if self.norms_last else None
        x = x if norm is None or whole or last else norm.steps(to, f"{at}_norm", x)
        x = x if shared is None else to.do(f"{at}.joined", "join", shared, x, by={"width": self.d_head - width})
        if last is not None:
            turned = None if attn_bias is None else attn_bias.rotated(to, f"{at}.turned", x)
            return to.do(at, "copy", last.steps(to, f"{at}_norm", turned or x))
        if (attn_bias is None or attn_bias.rotated(to, at, x) is None) and norm is not None and not whole:
            return to.do(at, "copy", x)
        return to.named(at)

    def explicit_steps(self, to: Steps, path: str, qkv: tuple[str, str, str], attn_bias: BiasSteps) -> str:
        """Lists the ops of `explicit`; returns the address of z."""
        q, k, v = qkv
        group = self.n_heads // self.n_kv_heads
        if group > 1:
            k, v = (to.do(f"{side}.repeat", "repeat", side, by={"times": group}) for side in (k, v))
        scores = to.do(f"{path}.scores.product", "matmul_nt", q, k)
        scores = to.do(f"{path}.scores.scaled", "scale", scores, by={"factor": self.scale})
        scores = to.capped(f"{path}.scores.capped", scores, self.soft_cap)
        if self.distance is not None:
            maps = (self.q, f"{path}.q"), (self.k, f"{path}.k")
            scores = self.distance.steps(to, f"{path}.distance", scores, (q, k), maps, attn_bias)
        is_plain = attn_bias.biased(to, f"{path}.scores", scores) == scores and self.has_plain_scores
        masked = to.do(f"{path}.masked", "mask", to.named(f"{path}.scores"), how=attn_bias.mask)
        sinks = () if self.sinks is None else (f"{path}.sinks",)
        by: dict[str, float] = {}
        if to.training and is_plain and to.masks[attn_bias.mask].causal:
            by = {"tile": TILE, "again": float(to.selective)}
        weights = to.do(f"{path}.weights", "softmax", masked, weights=sinks, by=by)
        if to.training:
            weights = to.do(f"{weights}.cast", "cast", weights, v)
            if by and self.dropout:
                weights = to.do(f"{weights}.dropped", "dropout_of_tiles", weights, by=by)
            else:
                weights = to.dropout(weights, self.dropout)
        return to.do(f"{path}.z", "matmul", weights, v, by=by)
