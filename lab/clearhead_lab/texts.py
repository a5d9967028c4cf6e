"""Artificial languages whose entropy is known."""

import math

import torch
from torch import Tensor


class Chain:
    """A Markov chain: each word is followed by one of `followers` words, all as likely."""

    def __init__(self, n_words: int, *, followers: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.next = torch.rand(n_words, n_words, generator=generator).argsort(1)[:, :followers]
        self.entropy = math.log(followers)

    def text(self, n: int, length: int) -> Tensor:
        """n t: rows of words."""
        words = [torch.randint(0, len(self.next), (n,))]
        for _ in range(length - 1):
            choice = torch.randint(0, self.next.shape[1], (n,))
            words.append(self.next[words[-1], choice])
        return torch.stack(words, 1)

    def batch(self, n: int, length: int) -> tuple[Tensor, Tensor]:
        """n t words each, and the words that follow them."""
        text = self.text(n, length + 1)
        return text[:, :-1], text[:, 1:]
