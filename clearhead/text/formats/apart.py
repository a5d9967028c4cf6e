"""A tokenizer whose rules have no known bound, in a process of its own with limits of memory and time.

The library's code ends its process where memory runs out, and a regular expression cannot be interrupted. Both then
happen to the other process alone, and the caller gets a UserError. As a program this module is that process: it reads
and writes lines of JSON.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import tokenizers

from clearhead.errors import UserError, reason
from clearhead.json_text import parse
from clearhead.text.formats.bounds import LONGEST_PIECE, parts_of, unbounded
from clearhead.text.formats.checked import failure

MEMORY, MEMORY_PER_CHARACTER = 1 << 30, 1 << 10
"""Bytes that a call may take, and bytes for each character of its texts or of the tokenizer."""
SECONDS, CHARACTERS_PER_SECOND = 2, 100_000
"""Seconds of CPU time that a call may take, and characters for each second more."""
AT_ONCE = 4
"""Processes of a tokenizer: a text that takes all its time does not hold the others."""


class Encoding(NamedTuple):
    """What the library's encoding of a text says."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    type_ids: list[int]
    word_ids: list[int | None]


def bounded(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer itself where its rules are known to be harmless, else one that works apart."""
    if isinstance(library, TokenizerApart):
        return library
    longest = max(map(len, library.get_vocab(with_added_tokens=True)), default=0)
    if longest <= LONGEST_PIECE and not unbounded(parts_of(library)):
        return library
    return cast("tokenizers.Tokenizer", TokenizerApart(library))


def check(document: str) -> None:
    """Raises UserError if a tokenizer.json cannot even be opened within the limits."""
    Child(document).ask([], "open")


class TokenizerApart:
    """A tokenizer that asks its child for all that depends on a text, and the library for the rest."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.__dict__.update(library=library, child=Child(library.to_str()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["library"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.library, name, value)
        if name != "encode_special_tokens":  # A rule, which the child must know.
            self.__dict__["child"] = Child(self.library.to_str())

    def encode(self, sequence: Any, pair: str | None = None, **options: bool) -> Encoding:
        """As the library."""
        texts = [sequence if pair is None else [sequence, pair]]
        return self.encode_batch(texts, **options)[0]

    def encode_batch(self, texts: Sequence[Any], **options: bool) -> list[Encoding]:
        """As the library."""
        found = self.child.ask(list(texts), "encode", self.library.encode_special_tokens, options)
        return [
            Encoding(ids, tokens, [(start, end) for start, end in offsets], types, words)
            for ids, tokens, offsets, types, words in found
        ]

    encode_batch_fast = encode_batch

    def decode(self, ids: Sequence[int], **options: bool) -> str:
        """As the library."""
        return self.decode_batch([ids], **options)[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], **options: bool) -> list[str]:
        """As the library."""
        return self.child.ask([list(ids) for ids in batch], "decode", options)


class Child:
    """Processes that hold one tokenizer, one for each question at a time. They start with a question, and again after
    their end.
    """

    def __init__(self, document: str) -> None:
        self.document = document
        self.idle: list[subprocess.Popen[bytes]] = []
        self.turns = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, texts: list[Any], *question: object) -> Any:
        """The answer to a question about texts. Raises UserError beyond the limits, and for the library's errors."""
        n = sum(len(json.dumps(text)) for text in texts)
        limits = MEMORY + MEMORY_PER_CHARACTER * (n + len(self.document)), SECONDS + n // CHARACTERS_PER_SECOND
        with self.turns:
            try:
                try:
                    process = self.idle.pop()
                except IndexError:
                    process = self.start(limits[0])
                found = send(process, [limits, texts, *question])
            except OSError as error:
                found = {"wrong": reason(error)}
            else:
                if found is not None:
                    self.idle.append(process)
        if found is None:
            raise UserError(
                f"tokenizer: expected rules that need at most {limits[0] >> 20} MB and {limits[1]} s for a text of"
                f" {n} characters, got more; try another tokenizer"
            )
        if "wrong" in found:
            raise UserError(f"tokenizer: expected rules that can read the text, got {found['wrong']}; try another")
        return found["right"]

    def start(self, memory: int) -> subprocess.Popen[bytes]:
        """A new process, which has been given the tokenizer."""
        # -P and this package's own path: nothing from the current folder is imported.
        package = str(Path(__file__).resolve().parents[3])
        environment = {**os.environ, "PYTHONPATH": package, "TOKENIZERS_PARALLELISM": "false"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is its parent's.
        )
        weakref.finalize(self, end, process)
        send(process, [(memory, SECONDS + len(self.document) // CHARACTERS_PER_SECOND), [], "load", self.document])
        return process


def send(process: subprocess.Popen[bytes], message: object) -> Any:
    """The answer of a process; None if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        end(process)
        return None
    return parse(line, "tokenizer")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, whatever it computes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close() if pipe else None
    process.wait()


# --- the process ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Answers questions until its parent ends."""
    library: Any = None
    for line in sys.stdin.buffer:
        try:
            question: Any = parse(line, "text")
            (memory, seconds), texts, what, *more = question
            limit(memory, seconds)
            match what:
                case "load":
                    library = tokenizers.Tokenizer.from_str(more[0])
                    library.no_padding()
                    library.no_truncation()
                    found = None
                case "encode":
                    library.encode_special_tokens = more[0]
                    several = [tuple(text) if isinstance(text, list) and not more[1].get("is_pretokenized") else text
                               for text in texts]  # fmt: skip
                    found = [_told(one) for one in library.encode_batch(several, **more[1])]
                case "decode":
                    found = library.decode_batch(texts, **more[0])
                case _:
                    found = None
            answer = {"right": found}
        except MemoryError:
            os._exit(3)
        except BaseException as error:
            answer = {"wrong": failure(error)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _told(one: Any) -> Encoding:
    return Encoding(one.ids, one.tokens, one.offsets, one.type_ids, one.word_ids)


def limit(memory: int, seconds: int) -> None:
    """Bounds what this process may take from now on, where the system can."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + seconds + 1),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
