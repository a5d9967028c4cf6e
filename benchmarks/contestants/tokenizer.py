"""One contestant of `benchmarks.racing.tokenizing` in a process of its own, told what to do on standard input.

The first line in is the assignment, the answer to it a line of JSON; after that each line asks for one turn.
"""

import io
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

from benchmarks.contestants.contestant import peak_gb
from clearhead.config import Config

Kind = Literal["clearhead", "tokenizers", "sentencepiece", "tiktoken"]
T = TypeVar("T")
PART = 2000
"""Lines that a thread of tiktoken's encodes at a time."""


class Assignment(Config):
    """Whom to be, and on what."""

    kind: Kind
    corpus: Path
    """A text, one sentence a line."""
    vocab_size: int
    threads: int


class Timed(Config):
    """One thing done."""

    seconds: float
    cpu_seconds: float


class Turn(Config):
    """Train, then encode the same text."""

    train: Timed | None
    """None for who can only encode."""
    encode: Timed
    n_tokens: int
    peak_gb: float


class Contestant(ABC):
    """A tokenizer from the corpus's file, and its ids of the corpus's lines."""

    trains = True

    def __init__(self, a: Assignment) -> None:
        self.corpus, self.vocab_size, self.threads = a.corpus, a.vocab_size, a.threads

    @abstractmethod
    def train(self) -> None:
        """From the file; reading it counts."""

    @abstractmethod
    def encode(self, lines: list[str]) -> list[list[int]]:
        """The ids of each."""

    def turn(self) -> Turn:
        """Both by the clock."""
        train = timed(self.train)[0] if self.trains else None
        lines = self.corpus.read_text(encoding="utf-8").split("\n")
        encode, ids = timed(lambda: self.encode(lines))
        return Turn(train=train, encode=encode, n_tokens=sum(map(len, ids)), peak_gb=peak_gb())


def timed(run: Callable[[], T]) -> tuple[Timed, T]:
    """Wall and CPU seconds, and what was made."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = run()
    return Timed(seconds=time.perf_counter() - wall, cpu_seconds=time.process_time() - cpu), made


class Ours(Contestant):
    """As `clearhead train lm --text FILE` makes one and reads with it."""

    def train(self) -> None:
        from clearhead.data.sources import read_texts
        from clearhead.recipe.data import TextFiles
        from clearhead.recipe.tokenizers import ByteBPE
        from clearhead.text.tokenizers import Tokenizer

        texts = read_texts(TextFiles(paths=(self.corpus,), documents="line"))
        self.tokenizer = Tokenizer.train(texts, ByteBPE(vocab_size=self.vocab_size))

    def encode(self, lines: list[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch(lines)


class Tokenizers(Contestant):
    """The library alone: its own byte-level splitting, trained from the file, without offsets, on all threads."""

    def train(self) -> None:
        import tokenizers
        from tokenizers import models, pre_tokenizers, trainers

        self.tokenizer = tokenizers.Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
        )
        self.tokenizer.train([str(self.corpus)], trainer)

    def encode(self, lines: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(lines, add_special_tokens=False)]


class SentencePiece(Contestant):
    """Its BPE, over characters."""

    def train(self) -> None:
        import sentencepiece

        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            input=str(self.corpus), model_writer=model, model_type="bpe", vocab_size=self.vocab_size,
            num_threads=self.threads, max_sentence_length=1 << 20, minloglevel=2,
        )  # fmt: skip
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def encode(self, lines: list[str]) -> list[list[int]]:
        return self.tokenizer.encode(lines, num_threads=self.threads)


class TikToken(Contestant):
    """With the vocabulary and the splitting that `tokenizers` alone has."""

    trains = False
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

    def __init__(self, a: Assignment) -> None:
        super().__init__(a)
        self.train()

    def train(self) -> None:
        import tiktoken

        from clearhead.text.formats.byte_pairs import hidden

        other = Tokenizers(Assignment(kind="tokenizers", corpus=self.corpus, vocab_size=self.vocab_size, threads=1))
        other.train()
        ranks = {raw: i for piece, i in other.tokenizer.get_vocab().items() if (raw := hidden(piece)) is not None}
        self.encoding = tiktoken.Encoding("corpus", pat_str=self.pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(self, lines: list[str]) -> list[list[int]]:

        def one_after_the_other(part: list[str]) -> list[list[int]]:
            return [self.encoding.encode_ordinary(line) for line in part]

        # In large parts: its own batches make a task of each text, which for lines costs five times the encoding.
        parts = [lines[i : i + PART] for i in range(0, len(lines), PART)]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(chain.from_iterable(pool.map(one_after_the_other, parts)))


KINDS: dict[Kind, type[Contestant]] = {
    "clearhead": Ours,
    "tokenizers": Tokenizers,
    "sentencepiece": SentencePiece,
    "tiktoken": TikToken,
}


def main() -> None:
    """Answer line by line until there are no more."""
    a = Assignment.model_validate_json(sys.stdin.readline())
    os.environ["RAYON_NUM_THREADS"] = str(a.threads)  # which `tokenizers` reads when it first computes
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # as the command line has it
    me = KINDS[a.kind](a)
    print("{}", flush=True)
    for _ in sys.stdin:
        print(me.turn().model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
