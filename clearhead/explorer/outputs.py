"""What a language head says at each position: the likeliest tokens, and what all of them weigh."""

from dataclasses import dataclass

from torch import Tensor

from clearhead.brief import brief


@dataclass(frozen=True)
class Output:
    """What a language head says: softmax over the whole vocabulary is exp(values - lse)."""

    __repr__ = brief

    ids: Tensor
    """t k, int32: the likeliest first."""
    values: Tensor
    """t k: their logits."""
    lse: Tensor
    """t: log sum exp of all logits."""

    @classmethod
    def of(cls, logits: Tensor, k: int) -> "Output":
        """t v, float32 -> the k likeliest; lse to the last digit of float32, which a sum in double would not better."""
        values, ids = logits.topk(min(k, logits.shape[-1]), -1)
        return cls(ids.int(), values, logits.logsumexp(-1))
