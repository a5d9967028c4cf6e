"""`python -m benchmarks.one_file [FOLDER]`: a large model in one offline file, opened in a real browser."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from cyclopts import App
from torch import Tensor, nn

from benchmarks.entry import run_command
from benchmarks.explorer import EDIT, browser, ids, random_decoder, table
from benchmarks.figures import Figure, within
from clearhead.api import Model, load
from clearhead.explorer.export.page import Format, export_page, rounded_model
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.int8 import quantized
from clearhead.recipe.generation import GenerationConfig

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROMPT, WRITTEN = 32, 256
SCALE = 3.0
"""Times the usual random weights: a text of these repeats itself less."""
TICKS = os.sysconf("SC_CLK_TCK")

app = App(name="python -m benchmarks.one_file", help="A large model in one offline file, opened in a real browser.")


@app.default
def one_file(folder: str | None = None, *, written: int = WRITTEN, webgpu: bool = False) -> None:
    """Size, opening, writing and an edit of a file with 124 million parameters in 8 and in 4 bits.

    Its greedy text is compared with the one that Python writes with the same rounded weights. FOLDER: a trained
    model that reads ids, for the same with real weights. With `--webgpu` the browser may use the machine's WebGPU, and
    a line says which one wrote.
    """

    def measure(scratch: Path) -> None:
        formats: tuple[Format, ...] = ("int8", "int4")
        holds = [
            measured(scaled(random_decoder()), "124 million parameters", live, scratch, written, webgpu=webgpu)
            for live in formats
        ]
        if folder is not None:
            holds.append(
                measured(load(folder, dtype="float32"), Path(folder).name, "int8", scratch, written, webgpu=webgpu)
            )
        if not all(holds):
            raise SystemExit(1)

    within(measure)


def scaled(model: Model) -> Model:
    """The model with larger weights in its blocks."""
    with torch.no_grad():
        for name, module in model.network.named_modules():
            if type(module) is nn.Linear and not name.startswith("head."):
                module.weight.mul_(SCALE)
    return model


def measured(model: Model, what: str, live: Format, scratch: Path, n: int, *, webgpu: bool = False) -> bool:
    """One table of figures; whether all hold."""
    path = export_page(model, ids(PROMPT), path=scratch / "page.html", live=live)
    size = path.stat().st_size / 1e6
    rounded = rounded_model(model, live)[0].network
    wanted = greedy(rounded, n)
    with browser(webgpu=webgpu) as page:
        page.context.set_offline(True)
        began, busy = time.perf_counter(), cpu_seconds()
        page.goto(path.as_uri() + "#v=1&view=attention")
        page.wait_for_selector(".clearhead main table", state="attached", timeout=300_000)
        opened, opened_busy = time.perf_counter() - began, cpu_seconds() - busy
        edit = edited(page)
        page.goto(path.as_uri() + "#v=1&view=generation")
        got, took, busy = wrote(page, n)
        print(*page.get_by_text("WebGPU").all_inner_texts(), sep="\n")
    same = sum(a == b for a, b in zip(got, wanted, strict=False))
    floor = (175, 15, 4) if what.startswith("124") else (25, 15, 4)
    holds = table(f"{what}, {live}", [
        Figure("size, MB", size, floor[0], at_most=True),
        Figure("opens, s", opened, floor[1], at_most=True),
        Figure("tokens a second", n / took, floor[2]),
        Figure(f"greedy tokens equal to Python's, of {n}", same, n),
    ])  # fmt: skip
    print(
        f"CPU seconds of the browser: {opened_busy:.1f} to open, {busy / n:.3f} a token; a head off in {edit:.0f} ms;"
        f" {len(set(wanted))} different tokens"
    )
    if live == "int8":
        print(beside_int8(model, rounded, wanted))
    return holds


def greedy(network: Transformer, n: int) -> list[int]:
    """The ids that a network writes after the prompt."""
    config = GenerationConfig(max_new_tokens=n)
    return list(complete(network, [[int(i) for i in ids(PROMPT).split()]], config=config)[0][0].tokens)


def beside_int8(model: Model, rounded: Transformer, text: Sequence[int]) -> str:
    """How the file's weights differ from `load(…, int8=True)`, which rounds activations, too, and no token table."""
    n_ids = [int(i) for i in ids(PROMPT).split()]
    read = Tokens(torch.tensor([[*n_ids, *text[:-1]]]))

    def likeliest(network: Transformer) -> Tensor:
        with torch.inference_mode():
            return network(read)[0, PROMPT - 1 :].argmax(-1)

    plain, ours = likeliest(model.network.float()), likeliest(rounded)
    theirs = likeliest(quantized(model.network))
    same, exact, other = (int((a == b).sum()) for a, b in ((ours, theirs), (ours, plain), (theirs, plain)))
    return (
        f"the likeliest token at {len(ours)} places of this text: as load(…, int8=True) at {same}, as float32 at"
        f" {exact}; load(…, int8=True) as float32 at {other}"
    )


# --- the page ---------------------------------------------------------------------------------------------------


def edited(page: "Page") -> float:
    """Milliseconds from the click that switches a head off to the answer."""
    page.wait_for_selector(".clearhead .thumbs button", timeout=300_000)
    page.wait_for_timeout(1000)
    return page.evaluate(EDIT, [0, 1000])


def wrote(page: "Page", n: int) -> tuple[list[int], float, float]:
    """The tokens that the page writes, the seconds that it takes, and those of its processors."""
    tokens = page.locator(".texts .text button")
    tokens.first.wait_for(timeout=300_000)
    page.locator("form.settings input").first.fill(str(n))
    began, busy = time.perf_counter(), cpu_seconds()
    page.locator("form.settings button.run").click()
    tokens.nth(n - 1).wait_for(timeout=600_000)
    took, busy = time.perf_counter() - began, cpu_seconds() - busy
    return [int(text) for text in tokens.all_inner_texts()], took, busy


def cpu_seconds() -> float:
    """What the processes below this one have used."""
    children: dict[int, list[tuple[int, float]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        children.setdefault(int(fields[1]), []).append((int(file.parent.name), sum(map(int, fields[11:15])) / TICKS))
    total, below = 0.0, [os.getpid()]
    while below:
        for child, seconds in children.get(below.pop(), []):
            total += seconds
            below.append(child)
    return total


if __name__ == "__main__":
    run_command(app)
