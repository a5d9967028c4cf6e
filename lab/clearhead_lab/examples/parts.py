"""The engine's own parts, set up with the numbers of an example and read at their addresses. All in float64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import LayerNorm
from clearhead.model.positions import sinusoids
from clearhead.model.residual import Residual
from clearhead.trace import Edit, Trace, trace

Rows = Sequence[Sequence[float]]
Compute = Callable[[dict[str, Any]], Any]
"""Our values of a record, from its inputs: numbers, or a Statement where the record is one in words."""
Part = TypeVar("Part", bound=nn.Module)


@dataclass(frozen=True)
class Statement:
    """The truth of a statement, and the evidence."""

    holds: bool
    found: str


def f64(values: Any) -> Tensor:
    """A float64 tensor of numbers."""
    return torch.tensor(values, dtype=torch.float64)


def stack(d_model: int, **changes: Any) -> c.StackConfig:
    """One block with one head, no biases and no positions, unless the example says otherwise."""
    base: dict[str, Any] = dict(d_model=d_model, n_layers=1, n_heads=1, d_ff=4 * d_model, bias=False)
    return c.StackConfig(**(base | {"input": c.TokenInput(vocab_size=8), "positions": c.NoPositions()} | changes))


def set_weight(linear: nn.Module, weight: Tensor, bias: Tensor | None = None) -> None:
    """Give a linear layer the matrix of the documents, which multiply x W where nn.Linear stores W^T."""
    linear.get_parameter("weight").data = weight.mT.contiguous()
    if bias is not None:
        linear.get_parameter("bias").data = bias


def attend(
    x: Tensor | None = None,
    *,
    d_k: int | None = None,
    weights: dict[str, Tensor] | None = None,
    edit: dict[str, Edit] | None = None,
    n: int = 1,
    causal: bool = False,
    **changes: Any,
) -> Trace:
    """One head's attention over the rows of x, with matrices q, k, v as given: every step of it, by name."""
    x = torch.zeros(n, 4, dtype=torch.float64) if x is None else x
    d_k = d_k or x.shape[-1]
    attention = Attention(stack(x.shape[-1], **{"d_head": d_k, **changes})).double()
    for name, matrix in (weights or {}).items():
        set_weight(attention.get_submodule(name), matrix)
    layout = Layout.of(Tokens(torch.zeros(1, len(x), dtype=torch.long)))
    with trace(attention, edit) as t:
        attention(x[None], layout, AttentionBias.between(layout, layout, causal=causal, dtype=torch.float64))
    return t


def scores_of(q: Rows | Tensor, k: Rows | Tensor, **changes: Any) -> Tensor:
    """q k^T scale, as the attention computes it for these queries and keys."""
    q, k = torch.as_tensor(q, dtype=torch.float64), torch.as_tensor(k, dtype=torch.float64)
    t = attend(n=len(q), d_k=q.shape[-1], edit={"q": q, "k": k}, **changes)
    return t["scores"][0, 0]


def scaled(raw: Rows, d_k: int, **changes: Any) -> Tensor:
    """What the attention makes of a square of raw products q.k in heads of width d_k."""
    products = f64(raw)
    n = len(products)
    q, k = torch.zeros(2, n, d_k, dtype=torch.float64)
    q[:, :n], k[:, :n] = products, torch.eye(n)
    return scores_of(q, k, **changes)


def weights_of(scores: Rows | Tensor, *, causal: bool = False) -> Tensor:
    """softmax over the keys, as the attention takes it of these scores (square, or one row)."""
    given = torch.as_tensor(scores, dtype=torch.float64)
    square = given.expand(given.shape[-1], -1) if len(given) == 1 else given
    return attend(n=len(square), edit={"scores": square}, causal=causal)["weights"][0, 0, : len(given)]


def mixed(weights: Rows | Tensor, v: Rows | Tensor) -> Tensor:
    """weights V, as the attention mixes these values."""
    given, values = torch.as_tensor(weights, dtype=torch.float64), torch.as_tensor(v, dtype=torch.float64)
    square = given.expand(len(values), -1) if len(given) == 1 else given
    t = attend(n=len(values), d_k=values.shape[-1], edit={"weights": square, "v": values})
    return t["z"][0, 0, : len(given)]


def encoding(positions: Sequence[int], d: int) -> Tensor:
    """The rows PE(p) of the sinusoidal encoding."""
    table = sinusoids(torch.tensor(positions), d)
    return table.double()


def frequency(dim: int, d: int) -> float:
    """The angle that dimension `dim` turns by from one position to the next, read off PE(1)."""
    sine, cosine = encoding([1], d)[0, dim - dim % 2 :][:2].tolist()
    return torch.atan2(f64(sine), f64(cosine)).item()


def normed(
    rows: Rows, *, eps: float = 1e-12, weight: Any = None, bias: Any = None, edit: dict[str, Edit] | None = None
) -> Trace:
    """LayerNorm of each row: mean, rstd and out."""
    x = f64(rows)
    norm = LayerNorm(x.shape[-1], eps=eps, bias=True).double()
    if weight is not None and bias is not None:
        norm.get_parameter("weight").data, norm.get_parameter("bias").data = f64(weight), f64(bias)
    with trace(norm, edit) as t:
        norm(x[None])
    return t


def deviation(t: Trace, eps: float = 1e-12) -> Tensor:
    """The population standard deviation, from the norm's own rstd."""
    return (t["rstd"] ** -2 - eps).sqrt()


def residual(x: Tensor, f: Callable[[Tensor], Tensor], place: str = "pre") -> Tensor:
    """x joined with f(x), with the norm at this place."""
    join = Residual(stack(x.shape[-1], norm_place=place, norm_eps=1e-12))
    norm, second = join.norms()
    return join(x, f, (None if norm is None else norm.double(), second), False)


def fed(rows: Any, up: Tensor, down: Tensor | None = None, bias: Tensor | None = None) -> Trace:
    """The feed-forward of these matrices (an identity for `down` where there is none): pre, post and out."""
    x = torch.as_tensor(rows, dtype=torch.float64)
    ffn = feed_forward(up, down, bias)
    with trace(ffn) as t:
        ffn(x[None])
    return t


def feed_forward(up: Tensor, down: Tensor | None = None, bias: Tensor | None = None) -> FeedForward:
    """The feed-forward itself."""
    down = torch.eye(up.shape[1], dtype=torch.float64) if down is None else down
    ffn = FeedForward(stack(up.shape[0], d_ff=up.shape[1], ffn_bias=bias is not None)).double()
    set_weight(ffn.up, up.double(), bias)
    set_weight(ffn.down, down.double(), None if bias is None else torch.zeros_like(down[0]))
    return ffn


def on_meta(build: Callable[[], Part]) -> Part:
    """A part in the documents' sizes, without its memory."""
    with torch.device("meta"):
        return build()


def heads_of(n: int, d: int, h: int, b: int = 1) -> dict[str, Tensor]:
    """Every step of a multi-head attention over n positions of width d."""
    network = Transformer(c.ModelConfig(encoder=stack(d, n_heads=h)))
    with trace(network) as seen, torch.no_grad():
        network(torch.zeros(b, n, dtype=torch.long))
    at = "encoder.blocks.0.attn."
    return {name.removeprefix(at): seen[name] for name in seen if name.startswith(at)}


def count(module: nn.Module, *endings: str) -> int:
    """Parameters, each tied one once; only those whose names end so, where given."""
    return sum(p.numel() for name, p in module.named_parameters() if not endings or name.endswith(endings))


def small_decoder(*, tied: bool = True, final_norm: bool = True, **changes: Any) -> Transformer:
    """The second document's decoder: 512 wide, 6 blocks, 30,000 words, 512 learned positions."""
    config = stack(
        512,
        **dict(
            input=c.TokenInput(vocab_size=30_000),
            positions=c.Learned(max_length=512),
            n_layers=6,
            n_heads=8,
            bias=True,
            final_norm=final_norm,
        )
        | changes,
    )
    return on_meta(lambda: Transformer(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=tied))))
