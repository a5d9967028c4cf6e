"""A deterministic server gives requests that come together what each gets alone, on a real checkpoint."""

import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients import post, served
from tests.reliability import Counted

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = 64
WORDS = "once upon a time there was little girl boy dog cat red ball park mom said happy sad big tree sun".split()
BEGINNING = " ".join(random.Random(1).choice(WORDS) for _ in range(90))
"""Two pieces of a prefill: texts that begin with it share their keys and values."""


def in_company(folder: Path) -> Counted:
    """64 clients at random times, two rounds, with float16 as it is stored and with bfloat16."""
    said, broken, tried = [], 0, 0
    for name, options in (("float16, as stored", ()), ("bfloat16", ("--dtype", "bfloat16"))):
        plain, mine = (compared(folder / f"{name}-{i}", CLIENTS, (*options, *more)) for i, more in enumerate(((), DET)))
        said.append(f"{name}: {mine} of {CLIENTS} equal to alone, without --deterministic {plain}")
        broken, tried = broken + CLIENTS - mine, tried + CLIENTS
    return Counted(tried, broken, "; ".join(said))


DET = ("--deterministic",)


def compared(folder: Path, n: int, options: Sequence[str]) -> int:
    """How many of n requests get the same tokens, texts and log-probabilities together as each alone.

    Alone is another start of the server, without known beginnings, that answers one request after another.
    """
    model = checkpoint(folder / "stories15M")
    bodies = [body(random.Random(number)) for number in range(n)]
    with serving(model, (*options, "--prefix-cache", "0")) as url:
        alone = [answer(url, one) for one in bodies]
    with serving(model, options) as url:
        found = together(url, bodies)
    return sum(one == other for one, other in zip(alone, found, strict=True))


def checkpoint(folder: Path) -> Path:
    """stories15M with its tokenizer. Skips where there is none."""
    data = Path(os.environ.get("CLEARHEAD_SHARED_DATA") or ROOT.parent / "shared" / "data")
    source, tokenizer = data / "checkpoints" / "stories15M", data / "tokenizers" / "llama2" / "tokenizer.model"
    if not source.is_dir() or not tokenizer.is_file():
        pytest.skip("stories15M is not here (CLEARHEAD_SHARED_DATA)")
    folder.mkdir(parents=True)
    for path in (*source.iterdir(), tokenizer):
        shutil.copyfile(path, folder / path.name)
    return folder


def body(draw: random.Random) -> dict[str, Any]:
    """A request: greedy or sampled, of any length, some with samples, stop strings, scores and a common beginning."""
    prompt = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 60)))
    asked: dict[str, Any] = {
        "prompt": f"{BEGINNING} {prompt}" if draw.random() < 0.4 else prompt,
        "max_tokens": draw.randint(4, 64),
        "return_token_ids": True,
        "logprobs": draw.randint(0, 3),
        "echo": draw.random() < 0.2,
    }
    if draw.random() < 0.6:
        asked |= {"temperature": draw.choice([0.7, 1.0, 1.3]), "seed": draw.randrange(1000)}
        asked["n"] = draw.choice([1, 1, 3])
        asked |= draw.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}])
    else:
        asked["temperature"] = 0
    if draw.random() < 0.3:
        asked["stop"] = ["day", "."]
    return asked


@contextmanager
def serving(model: Path, options: Sequence[str]) -> Iterator[str]:
    """The address of `clearhead serve` with these options."""
    with served("-m", "clearhead", "serve", model, "--port", 0, *options, stderr=subprocess.DEVNULL) as (_, url):
        assert url, "the server did not start"
        yield url


def answer(url: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of one request, in order."""
    _, body = post(url, "/v1/completions", asked, timeout=600)
    return sorted(json.loads(body)["choices"], key=lambda one: one["index"])


def together(url: str, bodies: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The choices of each request, where each comes at a random time while others are answered."""
    found: list[list[dict[str, Any]]] = [[] for _ in bodies]

    def client(number: int) -> None:
        time.sleep(random.Random(number).random() * len(bodies) / 20)
        found[number] = answer(url, bodies[number])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
