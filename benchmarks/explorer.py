"""`python -m benchmarks.explorer`: sizes and times of the explorer, in a real browser."""

import gc
import gzip
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch
from cyclopts import App
from pydantic import JsonValue

from benchmarks.entry import run_command
from benchmarks.figures import Figure, within
from clearhead.api import Model, architecture
from clearhead.checkpoints.families import preset
from clearhead.config import LanguageHead, ModelConfig, Rotary, StackConfig, TokenInput
from clearhead.data.sentences import compose
from clearhead.demo import CHOICE, TOKENIZER
from clearhead.explorer.export.page import export_page
from clearhead.explorer.hosting.server import QuestionQueue, serving
from clearhead.explorer.session import Session
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.tokenizers import Tokenizer
from clearhead.web.page import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

STATIC = Path(__file__).parents[1] / "clearhead/explorer/static"
SENTENCE = "The animal did not cross the street because it was too tired."
TARGET = "L'animal n'a pas traversé la rue parce qu'il était trop fatigué."
"""What the decoder reads. An untrained network writes anything, and its length decides how long an edit takes."""
WEBGPU = ("--enable-unsafe-webgpu", "--enable-features=Vulkan")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WARM_UP = 3
STRIDE = 7
"""From one head that is switched off to the next: those of every block have their turn."""

SMOLLM2 = ModelConfig(
    decoder=StackConfig(
        n_layers=30, n_heads=9, n_kv_heads=3, d_model=576, d_ff=1536, gated=True, activation="silu", norm="rms",
        bias=False, positions=Rotary(), input=TokenInput(vocab_size=49152),
    ),
    head=LanguageHead(tied=True),
)  # fmt: skip

app = App(name="python -m benchmarks.explorer", help="Sizes and times of the explorer, in a real browser.")

# The switch of a head, and how long until the answer without it is on the screen: the end of the frame that shows it.
EDIT = """async (wait) => {
  const page = document.querySelector(".clearhead");
  await new Promise((done) => setTimeout(done, wait));
  const off = page.querySelector(".change [role=switch]");
  const answer = page.querySelector(".answer"), before = answer.dataset.edits;
  const shown = new Promise((done, fail) => {
    setTimeout(() => fail(new Error("no answer")), 30000);
    new MutationObserver((_, observer) => {
      if (!answer.dataset.edits || answer.dataset.edits === before) return;
      observer.disconnect();
      done();
    }).observe(answer, { attributes: true, attributeFilter: ["data-edits"] });
  });
  const began = performance.now();
  off.click();
  await shown;
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done, 0));
  return performance.now() - began;
}"""

# How many questions are under way, and when the last was answered.
ASKING = """const own = fetch; window.asking = window.settled = 0; window.fetch = (...given) => {
  if (given[0] !== "/ask") return own(...given);
  asking++;
  return own(...given).finally(() => { asking--; settled = performance.now(); });
}"""

# When a picture was complete that began then: nothing has been asked for a while.
COMPLETE = """async (began) => {
  while (asking || performance.now() - Math.max(settled, began) < 400) await new Promise(requestAnimationFrame);
  return settled - began;
}"""

# When the first answer stands there.
ANSWERED = """async () => {
  while (!document.querySelector(".answers li")) await new Promise(requestAnimationFrame);
  return performance.now();
}"""

# The switch of the overview, and how long until other answers stand there.
SWITCH = """async () => {
  const answers = document.querySelector(".answers"), before = answers.textContent;
  const began = performance.now();
  document.querySelector(".overview .stage [role=switch]").click();
  while (answers.textContent === before) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""

# Goes to a place by its link; when.
GO = """(where) => {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(where)) link.set(name, value);
  const began = performance.now();
  location.hash = link;
  return began;
}"""

# A pointer that moves over the largest picture: from each move to the end of the frame that shows it.
HOVER = """async (n) => {
  const canvas = [...document.querySelectorAll(".clearhead main canvas")]
    .sort((a, b) => b.clientWidth * b.clientHeight - a.clientWidth * a.clientHeight)[0];
  const box = canvas.getBoundingClientRect();
  const target = document.elementFromPoint(box.x + box.width / 2, box.y + 40) ?? canvas;
  const times = [];
  for (let i = 0; i < n; i++) {
    const x = (i * 37) % (box.width - 10), y = (i * 23) % Math.min(box.height - 10, 400);
    const at = { clientX: box.x + 5 + x, clientY: box.y + 5 + y };
    const began = performance.now();
    target.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true, pointerType: "mouse" }));
    await new Promise(requestAnimationFrame);
    await new Promise((done) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = done;
      port2.postMessage(0);
    });
    times.push(performance.now() - began);
  }
  return times;
}"""


@app.default
def explorer(*, rounds: int = 30) -> None:
    """Every figure that was promised of the page."""

    def measure(folder: Path) -> None:
        keep_freed_memory()  # As `clearhead explore` begins,
        gc.freeze()  # and as `clearhead.load` leaves what it has imported.
        small, large = demo_model(), random_decoder()
        holds = [table("sizes", [*bundle(), overview(large)])]
        with browser() as page:
            figures = served(page, small, Session(small, name="demo", text=SENTENCE, target=TARGET), rounds)
            holds.append(table("the demo's model, served", figures))
            holds.append(exported(page, "the demo's model", small, folder / "demo.html", rounds))
            figures = served(page, large, numbers(large, 64), rounds)
            holds.append(table("12 x 12 heads x 768, 64 tokens, served", figures))
            holds.append(table("512 tokens of it, served", hovered(page, numbers(large, 512))))
            holds.append(exported(page, "12 x 12 heads x 768, 64 tokens", large, folder / "large.html", 0))
            holds.append(table("the overview, served", [*overviews(page, small, large)]))
        if not all(holds):
            raise SystemExit(1)

    within(measure)


@app.command
def opening(*only: str) -> None:
    """From opening, edits and places to their pictures: of the demo, SmolLM2's shape and GPT-2's.

    Parameters
    ----------
    only: Names of rows; all if there are none.
    """
    keep_freed_memory()
    with browser() as page:
        holds = table("the overview, served", [*overviews(page, demo_model(), random_decoder(), only)])
    if not holds:
        raise SystemExit(1)


def overviews(page: "Page", small: Model, large: Model, only: Sequence[str] = ()) -> Iterator[Figure]:
    """Each model's figures; a promise is the floor of issue 34."""
    page.add_init_script(ASKING)
    torch.manual_seed(0)
    llama = Model(Transformer(SMOLLM2).eval())
    rows = {
        "demo": (0.5, 0.1, lambda: Session(small, name="demo", text=SENTENCE, target=TARGET)),
        "smollm2-5": (1.0, 0.4, lambda: numbers(llama, 5)),
        "gpt2-111": (1.5, 1.0, lambda: numbers(large, 111)),
        "gpt2-933": (6.0, 5.0, lambda: numbers(large, 933)),
    }
    for name, (complete, edit, session) in rows.items():
        if only and name not in only:
            continue
        with serving(session()) as server:
            began = time.process_time()
            page.goto(server.url, wait_until="commit")
            yield Figure(f"{name}: opening to the answer, s", page.evaluate(ANSWERED) / 1000, complete, at_most=True)
            picture = page.evaluate(COMPLETE, 0) / 1000
            yield Figure(f"{name}: opening to the complete overview, s", picture, complete, at_most=True)
            yield Figure(
                f"{name}: CPU seconds of the server for it", time.process_time() - began, float("inf"), at_most=True
            )
            switched = median(page.evaluate(SWITCH) / 1000 for _ in range(3))
            yield Figure(f"{name}: edit to answer, s, median of 3", switched, edit, at_most=True)
            times = list[float]()
            for head in range(3):
                page.evaluate(GO, {"view": "heads"})
                page.wait_for_timeout(1000)
                times.append(page.evaluate(COMPLETE, page.evaluate(GO, {"view": "attention", "head": head})) / 1000)
            yield Figure(f"{name}: another place, while Heads measures, s", max(times), 0.2, at_most=True)


def table(title: str, figures: list[Figure]) -> bool:
    """Print the figures; whether all hold."""
    print(f"\n{title}\n\n| figure | measured | promised | holds |\n|---|---|---|---|", *figures, sep="\n", flush=True)
    return all(figure.holds for figure in figures)


def demo_model() -> Model:
    """The demo's network before any training: its numbers take as long as trained ones."""
    sentences = compose("fr", n_train=2000, n_valid=10, n_test=10).train
    texts = [text for one in sentences for text in (one.source, one.target)]
    tokenizer = Tokenizer.train(texts, TOKENIZER)
    torch.manual_seed(0)
    network = Transformer(architecture(CHOICE, tokenizer.vocab_size)).eval()
    return Model(network, tokenizer, GenerationConfig(max_new_tokens=14))


def random_decoder() -> Model:
    """A network of the shape of a small pretrained decoder, 124 million random parameters; it reads ids."""
    torch.manual_seed(0)
    return Model(Transformer(preset("gpt2")).eval())


def numbers(model: Model, length: int) -> Session:
    """A session on a text of so many ids."""
    return Session(model, name="random", text=ids(length))


def ids(length: int) -> str:
    """A text for a model without a tokenizer."""
    return " ".join(str(100 + 7 * i) for i in range(length))


def bundle() -> list[Figure]:
    """All JavaScript that the page loads."""
    scripts = [(STATIC / name).read_bytes() for name in ("explorer.js", "boot.js")]
    return [Figure("JavaScript, kB gzipped", sum(len(gzip.compress(one)) for one in scripts) / 1000, 201, at_most=True)]


def overview(model: Model) -> Figure:
    """What a page gets of a forward pass before it asks for any single value."""
    run: dict[str, JsonValue] = {"text": ids(64), "target": None, "edits": list[JsonValue]()}
    return Figure(
        "overview of 12 x 12 heads, 64 tokens, MB",
        len(numbers(model, 64).answer({"ask": "run", "run": run})) / 1e6,
        0.7,
        at_most=True,
    )


@contextmanager
def browser(*, webgpu: bool = False) -> Iterator["Page"]:
    """A page of an installed chromium, with the machine's WebGPU or without."""
    import shutil

    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", *(WEBGPU if webgpu else ["--disable-gpu"])]
        )
        yield chromium.new_page(viewport={"width": 1600, "height": 1000})
        chromium.close()


def opened(page: "Page", url: str) -> tuple[float, float]:
    """Seconds to the first paint, and to the numbers."""
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(url)
    page.wait_for_selector(".clearhead main table, .answers li", state="attached", timeout=60_000)
    numbers = time.perf_counter() - began
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    return paint / 1000, numbers


def served(page: "Page", model: Model, session: Session, rounds: int) -> list[Figure]:
    """First paint, and edits."""
    with serving(session) as server:
        paints = [opened(page, again(server, i)) for i in range(5)]
        return [*painted(paints, 1.0), *edited(page, model, rounds, 500.0)]


def again(server: Server[QuestionQueue], i: int) -> str:
    """The token is for the first visit; a page that is opened again has its cookie."""
    return server.url if i == 0 else server.origin + "/"


def painted(paints: list[tuple[float, float]], limit: float) -> list[Figure]:
    """Medians."""
    first, shown = (median(times) for times in zip(*paints, strict=True))
    return [
        Figure("time until the first paint, s, median of 5", first, limit, at_most=True),
        Figure("time until the numbers appear, s, median of 5", shown, limit, at_most=True),
    ]


def edited(page: "Page", model: Model, rounds: int, limit: float) -> list[Figure]:
    """From the click that switches a head off to its answer, each time another head."""
    stack, times = model.network.last_stack.config, list[float]()
    for i in range(rounds + WARM_UP):
        layer, head = divmod(i * STRIDE % (stack.n_layers * stack.n_heads), stack.n_heads)
        page.evaluate(GO, {"v": "1", "view": "attention", "layer": layer, "head": head, "e": ""})
        page.wait_for_selector(".clearhead .change [role=switch]")
        times.append(page.evaluate(EDIT, 300))
    times = times[WARM_UP:]
    return [
        Figure("edit to answer, ms, median", median(times), limit, at_most=True),
        Figure("edit to answer, ms, 95th percentile", quantiles(times, n=20)[-1], limit, at_most=True),
    ]


def exported(page: "Page", what: str, model: Model, path: Path, rounds: int) -> bool:
    """An exported file, opened with the network off."""
    export_page(model, *((SENTENCE, TARGET) if model.has_tokenizer else (ids(64),)), path=path)
    page.context.set_offline(True)
    try:
        figures = painted([opened(page, path.as_uri()) for _ in range(5)], 2.0)
        figures += edited(page, model, rounds, 50.0) if rounds else []
    finally:
        page.context.set_offline(False)
    return table(f"{what}, in one file of {path.stat().st_size / 1e6:.1f} MB", figures)


def hovered(page: "Page", session: Session) -> list[Figure]:
    """A long text."""
    with serving(session) as server:
        opened(page, server.url)
        page.evaluate(GO, {"v": "1", "view": "attention"})
        page.wait_for_selector(".clearhead main canvas")
        page.wait_for_timeout(1500)
        times: list[Any] = page.evaluate(HOVER, 200)
    return [
        Figure("hover to frame, ms, 95th percentile", quantiles(times, n=20)[-1], 32, at_most=True),
    ]


if __name__ == "__main__":
    run_command(app)
