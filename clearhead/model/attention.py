"""Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, explicit and fused, for every mask and grouping of heads."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model.cache import KeyValues
from clearhead.model.dropout import dropout
from clearhead.model.layout import Layout
from clearhead.model.linear import effective_weight
from clearhead.model.norm import build_norm
from clearhead.model.reach import Reach
from clearhead.trace import looked_at, tap, tell_padding, tracing

Kernel = Literal["auto", "explicit", "fused"]
EXPLICIT_UP_TO: int = 512
"""Keys up to which matmul and softmax beat PyTorch's fused kernel on CPU (docs/log.md)."""


def is_explicit(kernel: Kernel, n_keys: int, device: torch.device, *, soft_cap: float | None = None) -> bool:
    """When somebody looks, when the fused kernel cannot do it, and where explicit is the faster one."""
    if tracing() or soft_cap is not None or kernel == "explicit":
        return True
    return kernel == "auto" and device.type == "cpu" and n_keys <= EXPLICIT_UP_TO


def _together(q: Tensor, n: int) -> Tensor:
    """(b n) h t k -> b h (n t) k: the queries of n rows as those of one."""
    return q if n == 1 else q.unflatten(0, (-1, n)).transpose(1, 2).flatten(2, 3)


def _apart(z: Tensor, n: int) -> Tensor:
    """b h (n t) k -> (b n) h t k"""
    return z if n == 1 else z.unflatten(2, (n, -1)).transpose(1, 2).flatten(0, 1)


class Attention(nn.Module):
    """out = concat_h(softmax(Q_h K_h^T scale + mask) V_h) W_O   (Vaswani et al. 2017, 3.2)

    Self-attention when keys come from the same states, cross-attention when they come from an encoder's.
    n_kv_heads < n_heads shares each key and value head among a group of queries (Ainslie et al. 2023).
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.n_heads, self.d_head, self.scale = config.n_heads, config.head_width, config.score_scale
        self.soft_cap, self.dropout = config.soft_cap, config.attn_dropout
        self.kernel: Kernel = "auto"
        inner, kv_inner = config.n_heads * self.d_head, config.kv_heads * self.d_head
        self.q = nn.Linear(config.d_model, inner, bias=config.has_qkv_bias)
        self.k = nn.Linear(config.d_model, kv_inner, bias=config.has_qkv_bias)
        self.v = nn.Linear(config.d_model, kv_inner, bias=config.has_qkv_bias)
        self.out = nn.Linear(inner, config.d_model, bias=config.has_out_bias)
        self.q_norm = build_norm(config, self.d_head, axes="b h t k") if config.qk_norm else None
        self.k_norm = build_norm(config, self.d_head, axes="b h s k") if config.qk_norm else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        reach: Reach,
        *,
        memory: tuple[Tensor, Layout] | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """b t d (or packed n d) -> the same shape; keys and values from `memory` where given, else from x."""
        tell_padding(t=layout.valid, s=reach.valid)
        q = self.project(self.q, self.q_norm, x, layout)
        if memory is not None and cache is not None and cache.k is not None and cache.v is not None:
            k, v = cache.k, cache.v
        else:
            source, source_layout = memory or (x, layout)
            k = self.project(self.k, self.k_norm, source, source_layout)
            k = k if reach.rotation is None else reach.rotation(k)
            k, v = source_layout.blank(k), source_layout.blank(self.project(self.v, None, source, source_layout))
            if cache is not None:
                k, v = cache.append(k, v)
        q = q if reach.rotation is None else reach.rotation(q)
        n = len(q) // len(k)  # Beams of an input, which read one memory.
        if n > 1 and tracing():
            k, v, reach, n = k.repeat_interleave(n, 0), v.repeat_interleave(n, 0), reach.repeated(n), 1
        q, k, v = tap(self, "q", q, "b h t k"), tap(self, "k", k, "b h s k"), tap(self, "v", v, "b h s k")
        group = self.n_heads // k.shape[1]
        explicit = is_explicit(self.kernel, k.shape[2], q.device, soft_cap=self.soft_cap)
        z = (self.explicit if explicit else self.fused)(_together(q, n), k, v, reach, group)
        return self.combine(_apart(z, n), layout)

    def project(self, linear: nn.Module, norm: nn.Module | None, x: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed n d) -> b h t k, each head normed where there is a norm."""
        x = linear(x)
        if norm is None:
            return self.split(layout.unpack(x))
        if layout.rows is None:
            return norm(self.split(x))
        # Before padding is there: a norm may make anything of zeros.
        return self.split(layout.unpack(norm(x.unflatten(-1, (-1, self.d_head))).flatten(-2)))

    def split(self, x: Tensor) -> Tensor:
        """b t (h k) -> b h t k"""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach, group: int) -> Tensor:
        """softmax(Q K^T scale + bias + mask) V, step by step."""
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = (q * self.scale) @ k.mT
        if self.soft_cap is not None:
            scores = self.soft_cap * (scores / self.soft_cap).tanh()
        if reach.score_bias is not None:
            scores = scores + reach.score_bias
        scores = tap(self, "scores", scores, "b h t s")
        # A mask of 0 and -inf is exact in any type: one of float32 would make all that follows float32.
        mask = None if reach.mask is None else reach.mask.to(scores.dtype)
        masked = tap(self, "masked", scores if mask is None else scores + mask, "b h t s")
        # In the scores' own type: sums inside are float32 all the same, and autocast would copy every weight twice.
        with torch.autocast(q.device.type, enabled=False):
            weights = masked.softmax(-1).to(v.dtype)
        if reach.unreachable is not None:
            weights = weights.masked_fill(reach.unreachable, 0.0)
        weights = tap(self, "weights", weights, "b h t s")
        return dropout(weights, self.dropout, self.training) @ v

    def fused(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach, group: int) -> Tensor:
        """The same by PyTorch's fused kernel, which never shows the scores."""
        mask = None if reach.causal and reach.score_bias is None else reach.mask
        if reach.score_bias is not None:
            mask = reach.score_bias if mask is None else mask + reach.score_bias
        z = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if mask is None else mask.to(q.dtype),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=reach.causal and mask is None,
            scale=self.scale,
            enable_gqa=group > 1,
        )
        return z if reach.unreachable is None else z.masked_fill(reach.unreachable, 0.0)

    def combine(self, z: Tensor, layout: Layout) -> Tensor:
        """b h t k -> b t d: out = sum_h z_h W_O^h + bias, one product unless somebody looks at each head's share."""
        z = tap(self, "z", z, "b h t k")
        if not looked_at(self, "heads"):
            return tap(self, "out", self.out(layout.pack(z.transpose(1, 2).flatten(2))), "b t d")
        per_head = effective_weight(self.out).unflatten(1, (self.n_heads, self.d_head))
        heads = tap(self, "heads", torch.einsum("bhtk,dhk->bhtd", z, per_head), "b h t d")
        out = heads.sum(1) if self.out.bias is None else heads.sum(1) + self.out.bias
        return tap(self, "out", out, "b t d")
