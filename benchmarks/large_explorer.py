"""`python -m benchmarks.large_explorer`: the explorer on a model as large as Llama-3.2-1B."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from cyclopts import App

import clearhead
from benchmarks.contestants.opening import memory
from benchmarks.entry import run_command
from benchmarks.figures import Figure, show, within
from benchmarks.loading import LARGE, checkpoints, network
from clearhead.api import Model
from clearhead.explorer.session import Session
from clearhead.storage.manifest import MANIFEST

FIRST, ANY, MEMORY = 8.0, 0.5, 1.15
OPENING = ("q[h=0]", "k[h=0]", "v[h=0]", "scores[h=0]", "weights[h=0]", "z[h=0]", "out")
"""The values of one head that the page draws first."""

app = App(name="python -m benchmarks.large_explorer", help="First picture, any number, and memory of a large model.")


@app.default
def large_explorer(*, tokens: int = 64, numbers: int = 50, quick: bool = False) -> None:
    """Open a random checkpoint of Llama-3.2-1B's config, in bfloat16, in a fresh process, and ask as the page does.

    Parameters
    ----------
    tokens: The length of the text.
    numbers: How many single values to ask for, each at a random address.
    quick: A tiny checkpoint, to see that everything works; its figures mean nothing.
    """

    def measure(scratch: Path) -> None:
        folder = Model(network(*checkpoints(quick=quick)[LARGE])).save(scratch / "model")
        (folder / MANIFEST).unlink()  # Which only our own folders have, and whose sums are checked.
        command = [sys.executable, "-m", "benchmarks.large_explorer", "page", str(folder), str(tokens), str(numbers)]
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(json.dumps(found, indent=2))
        figures = [
            Figure(f"{LARGE}, {tokens} tokens: first picture, s", found["first picture"]["wall"], FIRST, at_most=True),
            Figure("any number, the slowest, s", found["slowest number"]["wall"], ANY, at_most=True),
            Figure("peak memory / weights", found["memory / weights"]["numbers"], MEMORY, at_most=True),
        ]
        if not quick and tokens == 64:
            show("A large model in the explorer", figures)

    within(measure)


@app.command(show=False)
def page(folder: Path, tokens: int, numbers: int) -> None:
    """The questions of one page, in this process. Prints one JSON object."""
    imported, n_bytes = memory("VmRSS"), (folder / "model.safetensors").stat().st_size
    peak: dict[str, float] = {}

    def so_far(name: str) -> None:
        peak[name] = round((memory("VmHWM") - imported) / n_bytes, 4)

    draw, clock = random.Random(0), Clock()
    model = clearhead.load(str(folder))
    vocabulary = model.config.output.input.vocab_size  # type: ignore[union-attr]
    text = " ".join(str(draw.randrange(vocabulary)) for _ in range(tokens))
    session = Session(model, name="large", text=text)
    opened = clock.lap()
    so_far("opened")
    session_start: dict[str, Any] = {"text": text, "target": None, "edits": []}
    ask(session, "about")
    facts = ask(session, "run", run=session_start)["facts"]
    ran = clock.lap()
    so_far("run")
    at = f"decoder.blocks.{model.config.output.n_layers // 2}.attn."
    ask(session, "values", run=session_start, at=[at + name for name in OPENING])
    shown = clock.lap()
    so_far("first picture")
    asked: list[dict[str, float]] = []
    for path in draw.choices(sorted(facts), k=numbers):
        fact = facts[path]
        index = [f"{axis}={draw.randrange(n)}" for axis, n in zip(fact["axes"].split(), fact["shape"], strict=True)]
        ask(session, "values", run=session_start, at=[f"{path}[{','.join(index)}]"])
        asked.append(clock.lap())
    so_far("numbers")
    found: dict[str, Any] = {
        "opened": opened,
        "about and run": ran,
        "values of the head": shown,
        "first picture": {kind: round(sum(one[kind] for one in (opened, ran, shown)), 3) for kind in opened},
        "a number": {kind: median(one[kind] for one in asked) for kind in opened},
        "slowest number": {kind: max(one[kind] for one in asked) for kind in opened},
    }
    if tokens > 1000:
        found |= tiles(session, session_start, at, tokens, clock)
        so_far("tiles")
    print(json.dumps({**found, "memory / weights": peak}))


def tiles(session: Session, run: dict[str, Any], at: str, tokens: int, clock: "Clock") -> dict[str, Any]:
    """Parts of one head's map that nothing was asked of before."""
    clock.lap()
    rows = [f"{at}weights[h=5,t={t}]" for t in range(tokens // 2, tokens // 2 + 64)]
    ask(session, "values", run=run, at=rows)
    tile = clock.lap()
    ask(session, "values", run=run, at=[f"{at}weights[h=7]"])
    return {"64 rows of a head's map": tile, "a head's whole map": clock.lap()}


def ask(session: Session, what: str, **fields: Any) -> dict[str, Any]:
    """The JSON part of a reply, which is made whole."""
    content = session.answer({"ask": what, **fields})
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["reply"])


class Clock:
    """Seconds since the last look, by the wall and of the processor."""

    def __init__(self) -> None:
        self.lap()

    def lap(self) -> dict[str, float]:
        """The seconds since the last lap."""
        now = time.perf_counter(), time.process_time()
        before, self._before = getattr(self, "_before", now), now
        return {name: round(b - a, 3) for name, a, b in zip(("wall", "cpu"), before, now, strict=True)}


if __name__ == "__main__":
    run_command(app)
