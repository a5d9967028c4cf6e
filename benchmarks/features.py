"""`python -m benchmarks.features MODEL`: what transcoders and sparse autoencoders keep of a small model's work.

    clearhead train shakespeare --data.folder PATH/TO/tinyshakespeare --out runs/own
    python -m benchmarks.features runs/own --kind transcoder --minutes 10

For a model whose data are not at hand, `python -m benchmarks.features stories MODEL FILE` lets it write some. Time is
CPU time of one thread, so that other work on the machine does not count. docs/features.md has the figures.
"""

import time
from pathlib import Path
from typing import Annotated, Literal

import torch
from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine
from clearhead.analysis.features import Ended, Settings, Site, Stepped, report, train
from clearhead.api import load
from clearhead.cli.look.sparse import batches, number, split
from clearhead.generation import complete
from clearhead.machine.device import keep_freed_memory

app = App(name="python -m benchmarks.features", help="What features keep of a small model's work.")
AT_ONCE = 128
"""Texts that are drawn together."""
SHOWN_EVERY = 60.0
"""Seconds between two lines about the training."""


@app.default
def main(
    model: str,
    *,
    data: Annotated[Path | None, Parameter(help="Text file (default: the data of the run).")] = None,
    kind: Literal["sae", "transcoder"] = "transcoder",
    at: Annotated[tuple[str, ...], Parameter(help="Addresses (default: that of every block).")] = (),
    minutes: float = 10.0,
    width: str = "16x",
    active: int = 32,
    skip: bool = False,
    lr: float = 1e-3,
    seed: int = 0,
) -> None:
    """Trains features at each address and prints a row of a table for each."""
    torch.set_num_threads(1)
    keep_freed_memory()
    machine = Machine.now(1)
    loaded = load(model, dtype="float32")
    network = loaded.network
    last = list(network.stacks())[-1]
    end = "ffn" if kind == "transcoder" else "resid_post"
    at = at or tuple(f"{last}.blocks.{i}.{end}" for i in range(len(network.last_stack.blocks)))
    (inputs, _), (texts, labels) = (zip(*part, strict=True) for part in split(batches(loaded, model, data)))
    parameters = sum(p.numel() for p in network.parameters())
    what = f"{kind}, k {active}{', skip' if skip else ''}"
    print(f"{machine.processor}, {machine.environment}, one thread; {parameters:,} parameters, {what}")
    print(
        "| at | features | CPU minutes | loss recovered (mean) | plain, features, zero, mean | explained | L0 | dead |"
    )
    print("|---|---:|---:|---:|---|---:|---:|---:|", flush=True)
    for address in at:
        site = Site.of(network, address, kind)
        settings = Settings(n=number(width, loaded, site), k=active, skip=skip, minutes=minutes, lr=lr, seed=seed)
        begun, shown = time.perf_counter(), SHOWN_EVERY
        for event in train(network, inputs, site, settings, clock=time.process_time):
            match event:
                case Stepped() if event.seconds > shown:
                    shown += SHOWN_EVERY
                    print(
                        f"  {event.seconds:.0f} s  explained {event.explained:.1%}  {event.n_positions:,}", flush=True
                    )
                case Ended():
                    found = report(network, texts, event.features, labels if labels[0] is not None else None)
                    wall = (time.perf_counter() - begun) / 60
                    print(
                        f"| `{address}` | {settings.n:,} | {event.seconds / 60:.1f} ({wall:.0f} by the clock)"
                        f" | {found.recovered:.3f} ({found.recovered_from_mean:.3f})"
                        f" | {found.plain:.4f}, {found.reconstructed:.4f}, {found.zero:.4f}, {found.mean:.4f}"
                        f" | {found.explained:.3f} | {found.active:.1f} | {found.dead:.1%} |",
                        flush=True,
                    )
                case _:
                    pass


@app.command
def stories(model: str, out: Path, *, n: int = 2240, length: int = 250) -> None:
    """Writes texts that a language model draws, one a line, for models whose own data are not at hand.

    Args:
        model: Folder of the model.
        out: Text file to write.
        n: Texts.
        length: Tokens of a text at most.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    loaded = load(model, dtype="float32")
    start = loaded.reader.special_tokens().before
    began, count = time.process_time(), 0
    with out.open("w", encoding="utf-8") as file:
        for i in range(0, n, AT_ONCE):
            some = complete(
                loaded.network, [start] * min(AT_ONCE, n - i), temperature=1.0, max_new_tokens=length, seed=i,
                pad_id=0, budget=1 << 20,
            )  # fmt: skip
            for best, *_ in some:
                ids = list(best.tokens)
                # A model that was trained on a stream of texts goes on with the next one.
                ids = ids[: ids.index(start[0])] if start and start[0] in ids else ids
                count += len(ids)
                print(" ".join(loaded.tokenizer.decode(ids).split()), file=file, flush=True)
            print(f"{min(i + AT_ONCE, n)} texts, {count:,} tokens, {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    run_command(app)
