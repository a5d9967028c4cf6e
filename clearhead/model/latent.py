"""Keys and values that are made of one short vector for each position."""

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.mode import Part
from clearhead.model.norm import build_norm
from clearhead.model.ops import Steps
from clearhead.trace import tap


class Latents(Part):
    """c = Norm(W_k x), of which all heads make keys and values; k_h = [W_s x; W_h c]   (DeepSeek-AI 2024, 2.1.2)

    The shared part of the keys, W_s x, is the first, which rotary positions turn. Queries are made of Norm(W_q x) where
    they have a vector of their own, else of x.
    """

    def __init__(self, config: c.StackConfig, latent: c.Latent) -> None:
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
        """List the ops of `queries`; returns the address of the result."""
        if self.q is None or self.q_norm is None:
            return x
        with to.inside(path):
            return self.q_norm.steps(to, f"{path}.q_norm", to.linear(f"{path}.q", x, self.q, f"{path}.q"))

    def key_steps(self, to: Steps, path: str, x: str, k: str) -> tuple[str, str]:
        """List the ops of `keys`; returns the addresses of the results, the second one below `k`, for every head."""
        with to.inside(path):
            made = self.k_norm.steps(to, f"{path}.k_norm", to.linear(f"{path}.k", x, self.k, f"{path}.k"))
            at = f"{k}.shared"
            shared = to.linear(f"{at}.linear", x, self.shared, f"{path}.shared")
            shared = to.do(f"{at}.split", "split", shared, by={"heads": 1, "width": self.d_shared})
            return made, to.do(f"{at}.each", "repeat", shared, by={"times": self.n_heads})


def joined(shared: Tensor, own: Tensor) -> Tensor:
    """b 1 s k and b h s j -> b h s (k j): the shared part of every head's key before its own."""
    return torch.cat([shared.expand(-1, own.shape[1], -1, -1), own], -1)
