"""Texts: artificial languages whose entropy is known, and the real texts that every Python has."""

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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


N_CHARACTERS = 96
"""The printable characters of ASCII, and the line break."""
MODULES = ("argparse", "datetime", "inspect", "pickle", "shutil", "subprocess", "tarfile", "turtle", "typing")


class Written:
    """A text as ids of characters. What is not ASCII becomes a question mark. The last tenth is for validation."""

    def __init__(self, text: str) -> None:
        codes = torch.tensor(list(text.encode("ascii", "replace")))
        ids = torch.where(codes == ord("\n"), N_CHARACTERS - 1, (codes - ord(" ")).clamp(0, N_CHARACTERS - 2))
        border = len(ids) * 9 // 10
        self.train, self.valid = ids[:border], ids[border:]

    def batch(self, n: int, length: int) -> tuple[Tensor, Tensor]:
        """n t characters at random places, and the characters that follow them."""
        return windows(self.train, torch.randint(0, len(self.train) - length, (n,)), length)

    def valid_batch(self, n: int, length: int) -> tuple[Tensor, Tensor]:
        """n t characters of the validation part, always the same, and the characters that follow them."""
        return windows(self.valid, torch.arange(n) * ((len(self.valid) - length) // n), length)


@cache
def manual() -> Written:
    """The reference manual of Python: three quarters of a million characters of English."""
    from pydoc_data.topics import topics

    return Written("\n".join(topics[name] for name in sorted(topics)))


@cache
def library() -> Written:
    """Code of Python's standard library, half a million characters."""
    origins = [spec.origin for name in MODULES if (spec := find_spec(name)) and spec.origin]
    return Written("\n".join(Path(origin).read_text(encoding="utf-8") for origin in origins))


def windows(ids: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """n t: so many words from each start, and the words that follow them."""
    text = ids[starts[:, None] + torch.arange(length + 1)]
    return text[:, :-1], text[:, 1:]
