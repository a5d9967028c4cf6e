"""Compares attention weights with the effect of taking each word away."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.trace import trace
from clearhead_lab.datasets import LONGEST, Reviews, Words, batches
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, encoder, learn

SHORTEST = 6
"""Words of a sentence of which several can be compared."""


def network(words: Words, n_layers: int) -> Transformer:
    """A classifier that reads the last state of the token before the sentence."""
    head = c.ClassificationHead(n_labels=2, pool="first", dropout=0.1)
    positions = c.Learned(max_length=LONGEST + 1)
    return encoder(words.size, head=head, d_model=32, n_layers=n_layers, dropout=0.1, positions=positions)


@torch.no_grad()
def attended(one: Transformer, tokens: Tokens) -> Tensor:
    """t: the weights of the last layer from the token that the head reads to each word, the mean of the heads."""
    with trace(one) as seen:
        one(tokens)
    return seen[f"encoder.blocks.{len(one.last_stack.blocks) - 1}.attn.weights"][0, :, 0, 1:].mean(0)


def margin(logits: Tensor) -> Tensor:
    """b: the log odds of a favourable review."""
    return logits[:, 1] - logits[:, 0]


@torch.no_grad()
def taken_away(one: Transformer, tokens: Tokens) -> Tensor:
    """t: the change of the log odds without each word. The others keep their positions."""
    n = tokens.grid[1]
    without = replace(
        tokens,
        ids=tokens.ids.expand(n - 1, -1),
        valid=~torch.eye(n, dtype=torch.bool)[1:],
        positions=torch.arange(n).expand(n - 1, -1),
    )
    return (margin(one(without)) - margin(one(tokens))).abs()


def by_gradient(one: Transformer, tokens: Tokens) -> Tensor:
    """t: |gradient of the log odds . vector| of each word: its first-order effect."""
    seen: list[Tensor] = []

    def keep(_module: object, _inputs: object, out: Tensor) -> Tensor:
        seen.append(out.detach().requires_grad_())
        return seen[0]

    handle = one.last_stack.embed.register_forward_hook(keep)
    (gradient,) = torch.autograd.grad(margin(one(tokens)).sum(), seen)
    handle.remove()
    return (gradient * seen[0]).sum(2)[0, 1:].abs().detach()


@torch.no_grad()
def evenly(one: Transformer, tokens: Tokens) -> Tensor:
    """b v: the logits if the last layer attends to every position alike."""
    path = f"encoder.blocks.{len(one.last_stack.blocks) - 1}.attn.weights"
    with trace(one, {path: lambda weights: torch.full_like(weights, 1 / weights.shape[-1])}):
        return one(tokens)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's: the correlation of the ranks."""
    ranks = torch.stack([one.argsort().argsort().double() for one in (a, b)])
    return torch.corrcoef(ranks)[0, 1].item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Correlation with taking each word away, how often the top words agree, and what even attention changes."""
    train, dev = Reviews.read("train"), Reviews.read("dev")
    words = Words.of(train.texts)
    some = [text for text in dev.some(len(dev.texts)).texts if len(text.split()) >= SHORTEST][: 100 if quick else 300]
    for n_layers in (1, 2) if quick else (1, 2, 4):
        one = network(words, n_layers)
        learn(one, batches(train, words, 64), steps=200 if quick else 400, lr=2e-3)
        found: list[Tensor] = []
        for text in some:
            tokens = words.tokens([text])
            weights, effect, slope = attended(one, tokens), taken_away(one, tokens), by_gradient(one, tokens)
            with torch.no_grad():
                same = one(tokens).argmax() == evenly(one, tokens).argmax()
            found.append(
                torch.tensor(
                    [
                        rank_correlation(weights, effect),
                        rank_correlation(slope, effect),
                        float(weights.argmax() == effect.argmax()),
                        1 / len(weights),
                        float(same),
                    ]
                )
            )
        names = ("attention", "gradient", "same top word", "chance", "same class if even")
        values = dict(zip(names, torch.stack(found).mean(0).tolist(), strict=True))
        yield Row({"layers": n_layers}, {"accuracy": accuracy(one, words.tokens(dev.texts), dev.labels)} | values)
