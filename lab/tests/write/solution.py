"""A solution of every function of `clearhead lab write`, as a learner writes it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def part(weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def merge_pair(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    i = 0
    while i < len(tokens):
        joins = tuple(tokens[i : i + 2]) == pair
        merged.append("".join(pair) if joins else tokens[i])
        i += 2 if joins else 1
    return merged


def encode(word: str, merges: list[tuple[str, str]]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        tokens = merge_pair(tokens, pair)
    return tokens


def embed(ids: Tensor, table: Tensor) -> Tensor:
    return table[ids] * math.sqrt(table.shape[1])


def positions(t: int, d: int) -> Tensor:
    angles = torch.arange(t)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    p = torch.zeros(t, d)
    p[:, 0::2] = angles.sin()
    p[:, 1::2] = angles.cos()
    return p


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight.T + bias


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def causal_mask(t: int) -> Tensor:
    i = torch.arange(t)
    return i[None, :] <= i[:, None]


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    return (ids != pad)[:, None, None, :]


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, float("-inf"))
    return softmax(scores) @ v


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    b, t, d = x.shape
    return x.view(b, t, n_heads, d // n_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    b, h, t, k = x.shape
    return x.transpose(1, 2).reshape(b, t, h * k)


def multi_head(x: Tensor, memory: Tensor, w: dict[str, Tensor], n_heads: int, mask: Tensor) -> Tensor:
    q = split_heads(linear(x, w["q.weight"], w["q.bias"]), n_heads)
    k = split_heads(linear(memory, w["k.weight"], w["k.bias"]), n_heads)
    v = split_heads(linear(memory, w["v.weight"], w["v.bias"]), n_heads)
    z = merge_heads(attention(q, k, v, mask))
    return linear(z, w["out.weight"], w["out.bias"])


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + eps) * weight + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    squares = (x**2).mean(-1, keepdim=True)
    return x / torch.sqrt(squares + eps) * weight


def gelu(x: Tensor) -> Tensor:
    phi = (1 + torch.erf(x / math.sqrt(2))) / 2
    return x * phi


def feed_forward(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    hidden = linear(x, w["up.weight"], w["up.bias"])
    hidden = torch.relu(hidden)
    return linear(hidden, w["down.weight"], w["down.bias"])


def post_norm(x: Tensor, f: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    return norm(x + f(x))


def pre_norm(x: Tensor, f: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    return x + f(norm(x))


def encoder_layer(x: Tensor, w: dict[str, Tensor], n_heads: int, mask: Tensor) -> Tensor:
    def norm(name: str) -> Callable[[Tensor], Tensor]:
        return lambda x: layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    y = post_norm(x, lambda x: multi_head(x, x, part(w, "attn"), n_heads, mask), norm("attn_norm"))
    return post_norm(y, lambda y: feed_forward(y, part(w, "ffn")), norm("ffn_norm"))


def decoder_layer(
    x: Tensor, memory: Tensor, w: dict[str, Tensor], n_heads: int, mask: Tensor, memory_mask: Tensor
) -> Tensor:
    def norm(name: str) -> Callable[[Tensor], Tensor]:
        return lambda x: layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    x = post_norm(x, lambda x: multi_head(x, x, part(w, "attn"), n_heads, mask), norm("attn_norm"))
    x = post_norm(x, lambda x: multi_head(x, memory, part(w, "cross"), n_heads, memory_mask), norm("cross_norm"))
    return post_norm(x, lambda x: feed_forward(x, part(w, "ffn")), norm("ffn_norm"))


def logits(x: Tensor, table: Tensor) -> Tensor:
    return x @ table.T


def shift(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1], ids[:, 1:]


def cross_entropy(logits: Tensor, targets: Tensor, pad: int) -> Tensor:
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    losses = -log_p.gather(-1, targets[..., None]).squeeze(-1)
    real = targets != pad
    return losses[real].sum() / real.sum()


def sgd_step(w: dict[str, Tensor], loss: Callable[[dict[str, Tensor]], Tensor], lr: float) -> dict[str, Tensor]:
    copies = {name: p.detach().requires_grad_() for name, p in w.items()}
    gradients = torch.autograd.grad(loss(copies), list(copies.values()))
    return {name: p - lr * g for (name, p), g in zip(w.items(), gradients, strict=True)}


def adam_step(w: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, lr: float) -> tuple[Tensor, Tensor, Tensor]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    m_hat = m / (1 - 0.9**step)
    v_hat = v / (1 - 0.999**step)
    return w - lr * m_hat / (torch.sqrt(v_hat) + 1e-8), m, v


def greedy(step: Callable[[list[int]], Tensor], start: int, end: int, limit: int) -> list[int]:
    ids = [start]
    for _ in range(limit):
        token = int(step(ids).argmax())
        if token == end:
            break
        ids.append(token)
    return ids[1:]


def beam_search(
    step: Callable[[list[int]], Tensor], start: int, end: int, limit: int, n_beams: int, alpha: float
) -> list[int]:
    going, done = [(0.0, [start])], []
    for _ in range(limit):
        grown = []
        for total, ids in going:
            log_p = torch.log_softmax(step(ids), -1).tolist()
            grown += [(total + p, [*ids, i]) for i, p in enumerate(log_p)]
        best = sorted(grown, key=lambda one: one[0], reverse=True)[:n_beams]
        done += [one for one in best if one[1][-1] == end]
        going = [one for one in best if one[1][-1] != end]
    ids = max(done + going, key=lambda one: one[0] / (len(one[1]) - 1) ** alpha)[1]
    return ids[1:-1] if ids[-1] == end else ids[1:]


def top_k(logits: Tensor, k: int) -> Tensor:
    smallest = logits.topk(k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < smallest, float("-inf"))


def top_p(logits: Tensor, p: float) -> Tensor:
    p_sorted, order = logits.softmax(-1).sort(descending=True)
    late = p_sorted.cumsum(-1) - p_sorted >= p
    dropped = torch.zeros_like(late).scatter(-1, order, late)
    return logits.masked_fill(dropped, float("-inf"))
