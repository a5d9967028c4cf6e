"""`python -m benchmarks.serving`: many requests at once, and beside a long prompt, through `clearhead serve` itself."""

import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show, within
from benchmarks.racing.machine import Machine
from benchmarks.served import Answer, ask, network, served, tokenizer
from clearhead.api import Model
from clearhead.config import Config

Flag = Annotated[bool, Parameter(negative="")]
N_REQUESTS, N_READ, N_WRITTEN = 32, 32, 64
N_LONG, N_SHORT = 2_000, 12
"""Tokens of a long prompt, and short prompts that come while it is read."""
GOAL, GOAL_WAIT = 8.0, 2.0

app = App(name="python -m benchmarks.serving", help="Requests at once against one after another.")


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


class Waits(Config):
    """Seconds to the first token, medians."""

    short_alone: float
    """Of a short prompt."""
    short_beside: float
    """Of a short prompt that comes while a long one is read."""
    short_beside_p95: float
    long_alone: float
    """Of a long prompt that nobody interrupts."""
    long_again: float
    """Of one that begins with the same tokens, and ends as a short one."""

    @property
    def ratio(self) -> float:
        """A short prompt's wait beside a long one over its wait alone."""
        return round(self.short_beside / self.short_alone, 2)


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
    waits: "Waits"
    parameters: int
    machine: Machine


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def turn(server: tuple[str, int], prompts: Sequence[Sequence[int]], *, clients: int) -> Turn:
    """All prompts by so many clients."""
    url, pid = server
    before = cpu_seconds(pid)
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(partial(ask, url, n_written=N_WRITTEN), prompts))
    return Turn.of(answers, max(cpu_seconds(pid) - before, 1e-2))


def first_token(url: str, prompt: Sequence[int]) -> float:
    """Seconds to the first token."""
    answer = ask(url, prompt, n_written=1)
    return answer.first - answer.began


def waits(url: str, draw: random.Random, n_words: int, *, rounds: int) -> Waits:
    """Short prompts alone and beside long ones. All are new to the server, but for the one that is asked again."""

    def new(n_tokens: int) -> list[int]:
        return [draw.randrange(n_words) for _ in range(n_tokens)]

    short_alone, beside, long_alone, again = list[float](), list[float](), list[float](), list[float]()
    for _ in range(rounds):
        short_alone += [first_token(url, new(N_READ)) for _ in range(N_SHORT)]
        long = new(N_LONG)
        long_alone.append(first_token(url, long))
        again.append(first_token(url, [*long, *new(N_READ)]))
        n_asked = 0
        while n_asked < N_SHORT:
            reader = threading.Thread(target=first_token, args=(url, new(N_LONG)))
            reader.start()
            time.sleep(long_alone[-1] * draw.uniform(0.02, 0.1))
            while n_asked < N_SHORT:
                wait = first_token(url, new(N_READ))
                if not reader.is_alive():
                    break  # Perhaps it had the end of its reading to itself.
                beside.append(wait)
                n_asked += 1
                time.sleep(long_alone[-1] * draw.uniform(0.02, 0.1))
            reader.join()
    return Waits(
        short_alone=round(median(short_alone), 4),
        short_beside=round(median(beside), 4),
        short_beside_p95=round(quantiles(beside, n=20)[-1], 4),
        long_alone=round(median(long_alone), 4),
        long_again=round(median(again), 4),
    )


def report(
    alone: Sequence[Turn],
    at_once: Sequence[Turn],
    *,
    waits: Waits,
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
        waits=waits,
        parameters=parameters,
        machine=Machine.now(threads),
    )


def figures(one: Report) -> list[Figure]:
    """The report's figures beside what is promised."""
    waits, judged = one.waits, not one.quick
    return [
        Figure("tokens a second, one after another", median(one.alone), 0),
        Figure("tokens a second, at once", median(one.at_once), 0),
        Figure("ratio", one.ratio, GOAL if judged and not one.int8 else 0),
        Figure("ratio by the server's CPU time", one.ratio_per_cpu_second, 0),
        Figure("share of token-equal texts", one.equal, 0 if one.int8 else 1),
        Figure("first token, s, p50, one after another", one.first_alone[0], 0),
        Figure("first token, s, p95, one after another", one.first_alone[1], 0),
        Figure("first token, s, p50, at once", one.first_at_once[0], 0),
        Figure("first token, s, p95, at once", one.first_at_once[1], 0),
        Figure(f"first token of {N_READ} tokens, s, alone", waits.short_alone, 0),
        Figure(f"the same while {N_LONG} tokens are read", waits.short_beside, 0),
        Figure("the same, p95", waits.short_beside_p95, 0),
        Figure("ratio of the medians", waits.ratio, GOAL_WAIT if judged else 1e9, at_most=True),
        Figure(f"first token of {N_LONG} tokens, s", waits.long_alone, 0),
        Figure(f"of the same and {N_READ} more", waits.long_again, 0),
    ]


@app.default
def serving(
    *, quick: Flag = False, json: Flag = False, int8: Flag = False, rounds: int = 3, threads: int | None = None
) -> None:
    """32 requests of 32 -> 64 tokens at once, the same one after another, and short prompts beside a long one.

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
        options = ["--int8"] if int8 else []
        with served(folder, threads, "--slots", str(N_REQUESTS), "--prefix-cache", "0", *options) as server:
            turn(server, prompts[:4], clients=4)  # Warm-up.
            at_once = [turn(server, prompts, clients=N_REQUESTS)]
            alone = [turn(server, prompts, clients=1)]
            at_once += [turn(server, prompts, clients=N_REQUESTS) for _ in range(0 if quick else rounds - 1)]
        with served(folder, threads, *options) as (url, _):
            turn((url, os.getpid()), prompts[:4], clients=4)  # Warm-up.
            waited = waits(url, draw, n_words - 1, rounds=1 if quick else rounds)
        parameters = sum(p.numel() for p in net.parameters())
        found.append(
            report(alone, at_once, waits=waited, parameters=parameters, quick=quick, int8=int8, threads=threads)
        )
        title = f"{N_REQUESTS} requests of {N_READ} -> {N_WRITTEN} tokens, {parameters:,} parameters"
        show(title, figures(found[0]))

    within(measure)
    if json:
        print(found[0].model_dump_json())


if __name__ == "__main__":
    run_command(app)
