"""A process with limits of memory and time, which runs programs of unknown origin: tokenizers' rules, chat templates.

A library ends its process where memory runs out, and a regular expression cannot be interrupted. Both happen to the
worker alone, and the caller gets an error. As a program this module is the worker: it reads and writes JSON lines.
"""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.errors import UserError, reason, refuse
from clearhead.json_text import parse

MEMORY, MEMORY_PER_CHARACTER = 1 << 30, 1 << 10
"""Bytes that a question may take, and bytes for each character of it."""
SECONDS, CHARACTERS_PER_SECOND = 2, 100_000
"""Seconds of CPU time that a question may take, and characters for each second more."""
AT_ONCE = 4
"""Processes of a worker: a question that takes all its time does not hold the others."""


class Worker:
    """Processes that answer questions, one each at a time. They start at the first question, and again after an end.

    With a `tokenizer`, a tokenizer.json, they hold it.
    """

    def __init__(self, where: str, program: str, purpose: str, *, tokenizer: str = "") -> None:
        """`where` stands before errors, `program` names what needs memory and time, and `purpose` what it is for."""
        self.where, self.program, self.purpose, self.tokenizer = where, program, purpose, tokenizer
        self.idle: list[subprocess.Popen[bytes]] = []
        self.turns = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, what: str, *question: object) -> Any:
        """The answer. Raises UserError beyond the limits of memory and time, and for an error of the worker's."""
        n = len(json.dumps(question))
        memory = MEMORY + MEMORY_PER_CHARACTER * (n + len(self.tokenizer))
        seconds = SECONDS + n // CHARACTERS_PER_SECOND
        with self.turns:
            try:
                try:
                    process = self.idle.pop()
                except IndexError:
                    process = self.start(memory)
                answer = send(process, (memory, seconds), what, *question)
            except OSError as error:
                raise refuse(self.where, self.purpose, reason(error)) from None
            if answer is None:
                most = f"{self.program} at most {memory >> 20} MB and {seconds} s for a text of {n} characters"
                raise refuse(self.where, most, "more", "try another")
            self.idle.append(process)
        if "refused" in answer:
            raise UserError(answer["refused"])
        if "failed" in answer:
            raise refuse(self.where, self.purpose, answer["failed"], "try another")
        return answer["value"]

    def start(self, memory: int) -> subprocess.Popen[bytes]:
        """A new process, which holds the tokenizer."""
        # -P and this package's own path: nothing from the current folder is imported.
        package = str(Path(__file__).resolve().parents[2])
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
        if self.tokenizer:
            send(process, (memory, SECONDS + len(self.tokenizer) // CHARACTERS_PER_SECOND), "load", self.tokenizer)
        return process


def send(process: subprocess.Popen[bytes], limits: tuple[int, int], *question: object) -> dict[str, Any] | None:
    """The answer of a process; None if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps([limits, *question]).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        end(process)
        return None
    answer: Any = parse(line, "worker")
    return answer


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, whatever it computes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe.close() if pipe else None
    process.wait()


# --- the process ---------------------------------------------------------------------------------------------------


def failure(error: BaseException) -> str:
    """The error of a library, in one line. A panic derives from BaseException, not from Exception."""
    kind = type(error).__name__ if isinstance(error, Exception) else "a failure of the library"
    return f"{kind}: {reason(error)}"


def main() -> None:
    """Answers questions until its parent ends."""
    library: Any = None
    for line in sys.stdin.buffer:
        answer: dict[str, Any]
        try:
            question: Any = parse(line, "text")
            (memory, seconds), what, *values = question
            limit(memory, seconds)
            if what == "load":
                library = _load(*values)
            answer = {"value": ANSWERS[what](library, *values) if what in ANSWERS else None}
        except MemoryError:
            os._exit(3)
        except UserError as error:
            answer = {"refused": str(error)}
        except BaseException as error:  # A panic of the library derives from it.
            answer = {"failed": failure(error)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _load(document: str) -> Any:
    import tokenizers

    library = tokenizers.Tokenizer.from_str(document)
    library.no_padding()
    library.no_truncation()
    return library


def _encode(library: Any, texts: list[Any], keeps_special: bool, options: dict[str, bool]) -> list[Any]:
    library.encode_special_tokens = keeps_special
    pretokenized = options.get("is_pretokenized", False)
    pairs = [tuple(text) if isinstance(text, list) and not pretokenized else text for text in texts]
    encodings = library.encode_batch(pairs, **options)
    fields = "ids", "tokens", "offsets", "type_ids", "word_ids", "sequence_ids"
    return [[getattr(one, field) for field in fields] for one in encodings]


def _decode(library: Any, rows: list[list[int]], options: dict[str, bool]) -> list[str]:
    return library.decode_batch(rows, **options)


def _render(_: Any, template: str, values: dict[str, Any]) -> str:
    from clearhead.text.sandbox import render

    return render(template, values)


ANSWERS: dict[str, Callable[..., Any]] = {"encode": _encode, "decode": _decode, "render": _render}


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
