"""Small networks, small tasks and a training loop for the experiments, of the engine's own parts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.recipe.training import AdamW, Constant
from clearhead.training import optimizers
from clearhead.training.progress import factor
from clearhead.training.sharding import clipping, norm_of, scale

DISTANCES = c.RelativeBias(n_buckets=16, max_distance=32)
"""Positions by their distance, with which a small network learns text soonest."""


def stack(vocab_size: int, d_model: int = 64, **changes: Any) -> c.StackConfig:
    """Two blocks of four heads, without dropout, unless the experiment says otherwise."""
    base: dict[str, Any] = dict(d_model=d_model, n_layers=2, n_heads=4, d_ff=4 * d_model)
    return c.StackConfig(**(base | {"input": c.TokenInput(vocab_size=vocab_size)} | changes))


def decoder(vocab_size: int, *, head: c.Head | None = None, **changes: Any) -> Transformer:
    """A causal network, by default with an untied language head."""
    return Transformer(c.ModelConfig(decoder=stack(vocab_size, **changes), head=head or c.LanguageHead(tied=False)))


def encoder(vocab_size: int, *, head: c.Head | None = None, **changes: Any) -> Transformer:
    """A network that reads both ways, by default with an untied language head."""
    return Transformer(c.ModelConfig(encoder=stack(vocab_size, **changes), head=head or c.LanguageHead(tied=False)))


def published(
    vocab_size: int, d_model: int = 64, *, kind: c.StackName = "decoder", head: c.Head | None = None, **changes: Any
) -> Transformer:
    """Words of variance 1 and Xavier's matrices, as the first Transformer had them (Vaswani et al. 2017, 3.4).

    Words as small as in `decoder` drown in sinusoids, and a short training does not find them again.
    """
    config = stack(vocab_size, d_model, input=c.TokenInput(vocab_size=vocab_size, scale=True), **changes)
    init, head = c.Init(std=d_model**-0.5, matrices="xavier", depth_scaled=False), head or c.LanguageHead(tied=False)
    if kind == "encoder":
        return Transformer(c.ModelConfig(encoder=config, head=head, init=init))
    return Transformer(c.ModelConfig(decoder=config, head=head, init=init))


class Paired(nn.Module):
    """Two blocks that read and two that write, which take both inputs as a pair, as `learn` gives them."""

    def __init__(self, reads: c.StackConfig, writes: c.StackConfig) -> None:
        super().__init__()
        self.network = Transformer(c.ModelConfig(encoder=reads, decoder=writes, head=c.LanguageHead(tied=False)))

    def forward(self, both: tuple[Tokens, Tokens | Tensor], **how: Any) -> Tensor:
        return self.network(*both, **how)


def learn(
    network: nn.Module,
    batch: Callable[[], tuple[Tokens | Tensor, Tensor]],
    *,
    steps: int,
    lr: float = 3e-3,
    warmup: int = 20,
    cooled: bool = False,
) -> list[float]:
    """Trains by AdamW with a constant rate after the warm-up. `batch()` gives fresh inputs and their labels.

    `cooled`: the last fifth at a tenth of the rate, where its noise would hide a small difference.

    Returns the mean loss of each step.
    """
    optimizer = optimizers.build(network, AdamW(lr=lr))
    schedule, losses = Constant(warmup=warmup), list[float]()
    network.train()
    for step in range(1, steps + 1):
        value = mean_loss(network, *batch())
        value.backward()
        scale(optimizer.parameters, clipping(norm_of(optimizer.parameters), 1.0))
        optimizer.set_lr(factor(schedule, step, step / steps) * (0.1 if cooled and step > 0.8 * steps else 1.0))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    network.eval()
    return losses


def mean_loss(network: nn.Module, inputs: Tokens | Tensor, labels: Tensor) -> Tensor:
    """The loss of a labelled position, in nats."""
    flat = labels.flatten()
    return network(inputs, labels=flat) / (flat != IGNORED).sum()


@torch.no_grad()
def loss_on(network: nn.Module, inputs: Tokens | Tensor, labels: Tensor) -> float:
    """The same as a number."""
    return mean_loss(network, inputs, labels).item()


@torch.no_grad()
def accuracy(network: nn.Module, tokens: Tokens | Tensor, labels: Tensor) -> float:
    """The share of labelled positions, or sequences, whose likeliest class is right."""
    network.eval()
    counted = labels != IGNORED
    return (network(tokens).argmax(-1) == labels)[counted].double().mean().item()


@torch.no_grad()
def continued(network: Callable[[Tensor], Tensor], text: Tensor, n: int, *, likeliest: bool = False) -> Tensor:
    """Texts, each followed by n words that the network draws, or by the likeliest ones."""
    for _ in range(n):
        said = network(text)[:, -1]
        word = said.argmax(1, keepdim=True) if likeliest else said.softmax(-1).multinomial(1)
        text = torch.cat([text, word], 1)
    return text


def sampled(network: nn.Module, n: int, vocab_size: int, length: int) -> Tensor:
    """n t: texts that the network draws, each from a random first word."""
    return continued(network, torch.randint(0, vocab_size, (n, 1)), length - 1)


def log_probability(network: nn.Module, text: Tensor) -> Tensor:
    """b: the log probability of each text after its first word."""
    logs = network(text[:, :-1]).log_softmax(-1)
    return logs.gather(-1, text[:, 1:, None])[..., 0].sum(-1)


def copying(n_symbols: int, n: int, length: int, back: int) -> tuple[Tensor, Tensor]:
    """n t random symbols, and the labels of copying what stands `back` positions before."""
    tokens = torch.randint(0, n_symbols, (n, length))
    return tokens, copied(tokens, back)


def copied(tokens: Tensor, back: int) -> Tensor:
    """The labels of copying what stands `back` positions before; the first ones have none."""
    labels = tokens.roll(back, 1)
    labels[:, :back] = IGNORED
    return labels


def size(network: nn.Module) -> int:
    """The number of parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def steps_to(limit: float, losses: Sequence[float]) -> float:
    """The first step whose loss is below the limit; all steps if none is."""
    return float(next((i for i, loss in enumerate(losses, start=1) if loss < limit), len(losses)))


def final(values: Sequence[float]) -> float:
    """The end of a curve: the mean of its last tenth."""
    last = values[-max(1, len(values) // 10) :]
    return sum(last) / len(last)
