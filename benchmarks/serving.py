"""`python -m benchmarks.serving`: many requests at once against one after another, through `clearhead serve` itself."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated
from urllib.parse import urlsplit

import tokenizers
import torch
from cyclopts import App, Parameter

from benchmarks.figures import Figure, show, within
from benchmarks.racing.machine import Machine
from clearhead.api import Model
from clearhead.config import Config, ModelConfig
from clearhead.data.tokenizers import Tokenizer
from clearhead.families import preset
from clearhead.model import Transformer

Flag = Annotated[bool, Parameter(negative="")]
N_REQUESTS, N_READ, N_WRITTEN = 32, 32, 64
GOAL = 4.0
END = "<|endoftext|>"

app = App(name="python -m benchmarks.serving", help="Requests at once against one after another.")


class Answer(Config):
    """What one client got, and when."""

    tokens: tuple[int, ...]
    began: float
    first: float
    ended: float


class Turn(Config):
    """All requests once, at once or one after another."""

    tokens_per_second: float
    per_cpu_second: float
    """Tokens a second of the server's CPU time."""
    first_p50: float
    """Seconds from a request to its first token."""
    first_p95: float
    answers: tuple[Answer, ...]

    @classmethod
    def of(cls, answers: Sequence[Answer], cpu: float) -> "Turn":
        """The figures of some answers, for which the server took so many CPU seconds."""
        n_tokens = sum(len(answer.tokens) for answer in answers)
        seconds = max(answer.ended for answer in answers) - min(answer.began for answer in answers)
        waits = [answer.first - answer.began for answer in answers]
        return cls(
            tokens_per_second=n_tokens / seconds,
            per_cpu_second=n_tokens / cpu,
            first_p50=median(waits),
            first_p95=quantiles(waits, n=20)[-1],
            answers=tuple(answers),
        )


class Report(Config):
    """What came out, on which machine."""

    benchmark: str = "serving"
    int8: bool
    ratio: float
    """Tokens a second at once over one after another: medians of the turns."""
    ratio_per_cpu_second: float
    """The same by the server's CPU time, which depends less on what else the machine does."""
    goal: float = GOAL
    quick: bool
    equal: float
    """Share of the texts that are token-equal in every turn, at once and alone."""
    tokens: int
    """Written in a turn."""
    alone: tuple[float, ...]
    """Tokens a second of each turn, one request after another."""
    at_once: tuple[float, ...]
    first_alone: tuple[float, float]
    """Seconds to the first token, p50 and p95."""
    first_at_once: tuple[float, float]
    parameters: int
    machine: Machine


def network(*, quick: bool) -> Transformer:
    """The shape of a small pretrained decoder, 124 million random parameters; `quick`: a small one."""
    torch.manual_seed(0)
    config = preset("gpt2")
    assert config.decoder is not None
    if quick:
        changes = {"d_model": 64, "n_layers": 2, "n_heads": 2, "d_ff": 128}
        config = ModelConfig(decoder=config.decoder.model_copy(update=changes), head=config.head)
    return Transformer(config).eval()


def tokenizer(vocab_size: int) -> Tokenizer:
    """Bytes, as many made-up words as the table has rows left, and an end token."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [f"\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}w{i}" for i in range(vocab_size - len(alphabet) - 1)]
    vocabulary = {token: i for i, token in enumerate([*alphabet, *words, END])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens([END])
    return Tokenizer(library, {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"})


@contextmanager
def served(folder: Path, threads: int | None, *, int8: bool) -> Iterator[tuple[str, int]]:
    """The command on a free port: its address, and its process."""
    command = [sys.executable, "-m", "clearhead", "serve", str(folder), "--port", "0", "--slots", str(N_REQUESTS)]
    command += ["--int8"] if int8 else []
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def ask(url: str, prompt: Sequence[int]) -> Answer:
    """One client: a streamed completion, greedy, with the tokens' ids."""
    place = urlsplit(url)
    asked = {
        "prompt": list(prompt),
        "max_tokens": N_WRITTEN,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    began, first, tokens = time.perf_counter(), 0.0, list[int]()
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        for line in response:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter()
                tokens += json.loads(line[6:])["choices"][0]["token_ids"]
    connection.close()
    return Answer(tokens=tuple(tokens), began=began, first=first, ended=time.perf_counter())


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(server: tuple[str, int], prompts: Sequence[Sequence[int]], *, clients: int) -> Turn:
    """All prompts by so many clients."""
    url, pid = server
    before = cpu_seconds(pid)
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(partial(ask, url), prompts))
    return Turn.of(answers, max(cpu_seconds(pid) - before, 1e-2))


def report(
    alone: Sequence[Turn],
    at_once: Sequence[Turn],
    *,
    parameters: int,
    quick: bool = False,
    int8: bool = False,
    threads: int | None = None,
) -> Report:
    """The medians, and what is equal in all turns."""
    texts = [[answer.tokens for answer in one.answers] for one in (*alone, *at_once)]
    equal = [len(set(versions)) == 1 for versions in zip(*texts, strict=True)]
    rates = [tuple(round(one.tokens_per_second, 1) for one in turns) for turns in (alone, at_once)]
    firsts = [
        (round(median(one.first_p50 for one in turns), 3), round(median(one.first_p95 for one in turns), 3))
        for turns in (alone, at_once)
    ]
    return Report(
        ratio=round(median(rates[1]) / median(rates[0]), 2),
        ratio_per_cpu_second=round(
            median(one.per_cpu_second for one in at_once) / median(one.per_cpu_second for one in alone), 2
        ),
        quick=quick,
        int8=int8,
        equal=sum(equal) / len(equal),
        tokens=sum(map(len, texts[0])),
        alone=rates[0],
        at_once=rates[1],
        first_alone=firsts[0],
        first_at_once=firsts[1],
        parameters=parameters,
        machine=Machine.now(threads),
    )


@app.default
def serving(
    *, quick: Flag = False, json: Flag = False, int8: Flag = False, rounds: int = 3, threads: int | None = None
) -> None:
    """32 requests of 32 -> 64 tokens at once, and the same one after another, in turns on one server.

    Parameters
    ----------
    quick: A small network and one round, to see that everything works; its ratio means nothing.
    json: Print the figures as one JSON object on the last line.
    int8: Serve with weights of eight bits, in place of float32.
    rounds: Turns of the requests at once, of which one is before those one after another.
    threads: CPU threads of the server (default: PyTorch's).
    """
    found: list[Report] = []

    def measure(scratch: Path) -> None:
        net = network(quick=quick)
        n_words = len(net.last_stack.table.weight)
        folder = Model(net, tokenizer(n_words)).save(scratch / "model")
        draw = random.Random(0)
        prompts = [[draw.randrange(n_words - 1) for _ in range(N_READ)] for _ in range(N_REQUESTS)]
        with served(folder, threads, int8=int8) as server:
            turn(server, prompts[:4], clients=4)  # Warm-up.
            at_once = [turn(server, prompts, clients=N_REQUESTS)]
            alone = [turn(server, prompts, clients=1)]
            at_once += [turn(server, prompts, clients=N_REQUESTS) for _ in range(0 if quick else rounds - 1)]
        parameters = sum(p.numel() for p in net.parameters())
        found.append(report(alone, at_once, parameters=parameters, quick=quick, int8=int8, threads=threads))
        one = found[0]
        figures = [
            Figure("tokens a second, one after another", median(one.alone), 0),
            Figure("tokens a second, at once", median(one.at_once), 0),
            Figure("ratio", one.ratio, 0 if quick else GOAL),
            Figure("ratio by the server's CPU time", one.ratio_per_cpu_second, 0),
            Figure("share of token-equal texts", one.equal, 0 if int8 else 1),
            Figure("first token, s, p50, one after another", one.first_alone[0], 0),
            Figure("first token, s, p95, one after another", one.first_alone[1], 0),
            Figure("first token, s, p50, at once", one.first_at_once[0], 0),
            Figure("first token, s, p95, at once", one.first_at_once[1], 0),
        ]
        show(f"{N_REQUESTS} requests of {N_READ} -> {N_WRITTEN} tokens, {one.parameters:,} parameters", figures)

    within(measure)
    if json:
        print(found[0].model_dump_json())


if __name__ == "__main__":
    app()
