"""A task: how examples become batches, what the loss is, and how good the network is at it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import LanguageHead, ModelConfig, StackConfig, TokenInput
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.tasks.metrics import Score


@dataclass(frozen=True)
class Batch:
    """What one forward and backward pass works on."""

    __repr__ = brief

    inputs: tuple[Tokens, ...]
    """One a stack, the encoder's first."""
    labels: Tensor
    """n: the token to predict at each valid cell of the last input, row by row."""

    @property
    def n_tokens(self) -> int:
        """Real tokens the loss counts."""
        return len(self.labels)

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        return replace(self, inputs=tuple(x.to(device) for x in self.inputs), labels=self.labels.to(device))


@dataclass(frozen=True)
class Sample:
    """One example and what the network made of it."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Evaluation:
    """Figures on the validation split, and some outputs to read."""

    __repr__ = brief

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    outputs: tuple[str, ...] = ()
    """Every output, in the order of the data, where the task writes text."""
    loss: float = math.nan
    """Mean negative log-likelihood in nats a token, which decides between equal main scores."""

    def value(self, name: str) -> float:
        """A figure by its name."""
        return self.score(name).value

    def score(self, name: str) -> Score:
        """A figure by its name, with how it was computed."""
        return next(score for score in self.scores if score.name == name)


class Task(ABC):
    """Loss is a sum and a count, so that accumulation and data parallelism are exact."""

    main_score: str
    """The figure that chooses the best checkpoint; where it does not change, the loss does."""
    higher_is_better: bool

    @abstractmethod
    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """The batches of one epoch as numbers of examples: a function of (seed, epoch) alone."""

    @abstractmethod
    def collate(self, examples: Sequence[int]) -> Batch:
        """These training examples as one batch."""

    @abstractmethod
    def check(self, config: ModelConfig) -> None:
        """Nothing, if a network of this architecture can do the task on these data; else UserError says what lacks."""

    @abstractmethod
    def evaluate(self, network: Transformer) -> Evaluation:
        """How good the network is on the validation split."""

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """Summed cross-entropy in nats, and the number of tokens it is the sum of."""
        return network(*batch.inputs, labels=batch.labels, smoothing=smoothing), batch.n_tokens


def check_writes(config: ModelConfig, *, where: str) -> None:
    """Nothing, if the network gives every token a probability."""
    if not isinstance(config.head, LanguageHead):
        raise UserError(f"{where}.head.kind: expected language, got {config.head.kind}; try a model with such a head")


def check_length(name: str, stack: StackConfig, length: int, *, remedy: str) -> None:
    """Nothing, if the stack's positions reach as far as the data."""
    if stack.max_length is not None and length > stack.max_length:
        raise UserError(f"model.{name}: expected positions for {length} tokens, got {stack.max_length}; {remedy}")


def check_vocabulary(name: str, stack: StackConfig, largest: int) -> None:
    """Nothing, if the stack has an embedding for every token of the data, up to the `largest`."""
    if isinstance(stack.input, TokenInput) and largest >= stack.input.vocab_size:
        raise UserError(
            f"model.{name}: expected tokens below {stack.input.vocab_size}, the size of its embedding, got {largest};"
            " try the tokenizer that belongs to it"
        )
