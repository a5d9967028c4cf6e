"""`python -m benchmarks.overview MODEL TEXT`: what the first suggested edit changes, and what the overview takes."""

import resource
import time

import torch
from cyclopts import App

import clearhead
from benchmarks.entry import run_command
from clearhead.api import Model
from clearhead.checkpoints.families import preset
from clearhead.explorer.answering.overview import OverviewQuestion, overview
from clearhead.explorer.session import Session
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Transformer

app = App(name="python -m benchmarks.overview", help="What the first suggested edit changes, and what it takes.")


@app.default
def measure(model: str, text: str = "", target: str | None = None, *, tokens: int = 111) -> None:
    """Open a model and ask for its overview, as the page does: the answer with and without the head, and seconds.

    Parameters
    ----------
    model: A folder, a file, or `gpt2`: a random network of that shape, which reads `tokens` ids.
    text: What it reads. By default what the page opens with.
    target: What its decoder reads. By default what it writes.
    """
    keep_freed_memory()
    if model == "gpt2":
        torch.manual_seed(0)
        opened = Model(Transformer(preset("gpt2")).eval())
        text = " ".join(str(100 + 7 * i) for i in range(tokens))
    else:
        opened = clearhead.load(model)
    session = Session(opened, name=model, text=text or None, target=target)
    _ = session.passes.arithmetic
    fresh = session.start.model_copy(update={"change": session.start.change.model_copy()})
    session.passes._passes._kept.clear()
    total = _now()
    session.passes.get(fresh)
    print(f"{'pass':8}{_since(total)}")
    for part in ("heads", "curves", "lanes", "ffn"):
        began = _now()
        reply = overview(session, OverviewQuestion(run=fresh, part=part))
        about, cells = reply.json, [value.isfinite() for value in reply.tensors.values()]
        reached = f"{sum(int(x.sum()) for x in cells)} of {sum(x.numel() for x in cells)} numbers"
        if part == "curves":
            reached = f"{len(about['curves'])} of {about['total']} weights"
        print(f"{part:8}{_since(began)}  {reached}")
        if part == "heads" and about["decided"]:
            head, moved = about["decided"]["head"], about["decided"]["moved"]
            print(f"        position {about['position']}, {about['at'][head]}: moves {100 * moved:.1f} %")
            for one in about["answers"][:1]:
                p = float(reply.tensors["p"][head])
                print(f"        {one['word']!r}: {100 * one['p']:.1f} % with it, {100 * p:.1f} % without")
    print(f"{'all':8}{_since(total)}")


def _now() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _since(began: tuple[float, float]) -> str:
    wall, cpu = (now - then for now, then in zip(_now(), began, strict=True))
    return f"{wall:6.2f} s, {cpu:6.2f} s of processors"


if __name__ == "__main__":
    run_command(app)
