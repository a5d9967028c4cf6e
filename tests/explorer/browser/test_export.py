"""An exported file in a real browser, opened from a disk with the network off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from clearhead import config as c
from clearhead.analysis.sweep import PatchingSweep
from clearhead.api import Model, load
from clearhead.errors import UserError
from clearhead.explorer import static_files
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export.page import export_page, export_translations, html_of, rounded_model
from clearhead.explorer.hosting.server import QuestionQueue
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.trace import zero
from clearhead.web.page import Server
from tests.explorer.asking import GENERATE, ask, start
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, Served, eventually, fragment
from tests.explorer.browser.trained import picture
from tests.explorer.browser.views import VIEWS, show
from tests.explorer.conftest import ChromiumPage, _missing
from tests.explorer.export_fixtures import too_large
from tests.explorer.traced import CONFIGS, model_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"
SITE = "decoder.blocks.1.cross.z[h=1]"
OpenFile = Callable[..., "OpenedFile"]


@dataclass
class OpenedFile(Opened):
    """A page that no server serves."""

    path: Path = Path()

    def go_to(self, fragment: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + fragment)
        self.page.locator(".clearhead .page, .clearhead [role=alert]").first.wait_for()
        if self.page.locator("main").count():
            self.settled()

    def is_clean(self) -> None:
        assert self.chromium.complaints == []
        own = (self.path.as_uri(), "about:", "data:", "blob:")
        assert [url for url in self.chromium.requests if not url.startswith(own)] == []


@pytest.fixture
def open_file(chromium: Browser) -> Iterator[OpenFile]:
    """Opens a file of a session with the network off; nothing may be complained about, or asked for."""
    if not (static_files.STATIC / "explorer.js").is_file():
        _missing("the built page (npm run build, in ui/)")
    opened: list[OpenedFile] = []
    with ExitStack() as contexts:

        def file_of(session: Session, path: Path, fragment: str = "") -> OpenedFile:
            context = chromium.new_context(viewport={"width": 1600, "height": 1000}, offline=True, locale="en-GB")
            contexts.callback(context.close)
            context.set_default_timeout(20_000)
            nobody: Any = None
            server: Server[QuestionQueue] = nobody
            served = Served(session.model, session, server)
            opened.append(OpenedFile(served, ChromiumPage(context.new_page()), path=path))
            opened[-1].go_to(fragment)
            return opened[-1]

        yield file_of
        for one in opened:
            one.is_clean()


@pytest.fixture
def translator(folder_of: Callable[[str], Path]) -> Session:
    return Session(load(folder_of("translator")), name="translator", text=SOURCE, target=TARGET)


def written(session: Session, path: Path, *, large: bool = False, **options: Any) -> Path:
    with ExitStack() as during:
        if large:
            during.enter_context(too_large())
        path.write_bytes(html_of(session, session.start, **options))
    return path


def says(opened: OpenedFile, position: int, edit: dict[str, Any] | None, *, within: float = 0.0) -> None:
    """A's and B's likeliest words have the shares that Python gives them."""
    model = opened.served.model
    sides = [model.trace(SOURCE, TARGET, edit=one)[1][position].softmax(-1) for one in (None, edit)]
    names = model.tokenizer.tokens(range(len(sides[0])))

    def is_right() -> None:
        opened.settled()
        found = {word: texts for word, *texts in opened.chances()}
        assert names[int(sides[0].argmax())] in found
        for word, texts in found.items():
            for text, p in zip(texts, sides[: 1 if edit is None else 2], strict=False):
                share = float(p[names.index(word)])
                assert text is not None
                if text == "–":  # A file holds B's likeliest alone.
                    assert share < 0.01
                    continue
                assert agrees(text, share) or agrees(text, share + within) or agrees(text, share - within), found

    eventually(is_right)


STATE = fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, position=2)


def test_a_small_model_takes_every_edit(open_file: OpenFile, translator: Session, tmp_path: Path) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", state=STATE))
    assert opened.fragment()["stack"] == "decoder"
    says(opened, 2, None)
    opened.choose("decoder", 1, "cross", 1)
    opened.button("off", ".change").click()
    says(opened, 2, {SITE: zero})
    opened.button("on", ".change").click()
    opened.settled()
    opened.page.locator("#weight").fill("0.9")
    given = eventually(lambda: _one_edit(opened))
    at, row = given["at"], torch.tensor(given["value"])
    says(opened, 2, {at: lambda value: row.to(value).expand_as(value)})
    opened.button("reset", ".change").click()
    opened.button("none", ".change").click()
    changed = translator.model.changed(positions="none")
    logits = changed.trace(SOURCE, TARGET)[1][2].softmax(-1)
    names = translator.model.tokenizer.tokens(range(len(logits)))
    eventually(lambda: _agree({w: b for w, _, b in opened.chances()}, logits, names))


def test_a_large_model_computes_and_writes_in_a_worker(
    open_file: OpenFile, translator: Session, tmp_path: Path
) -> None:
    """In 8 bits: it says what Python says with the same weights, and its policy lets its products be compiled."""
    model, matrices = rounded_model(translator.model, "int8")
    session = Session(model, name="translator", text=SOURCE, target=TARGET, matrices=matrices)
    opened = open_file(session, written(session, tmp_path / "a.html", state=STATE))
    assert len(opened.page.workers) == 1
    assert opened.page.workers[0].evaluate(COMPILES)
    says(opened, 2, None)
    opened.choose("decoder", 1, "cross", 1)
    opened.button("off", ".change").click()
    says(opened, 2, {SITE: zero})
    show(opened, "generation")
    reply = ask(
        session, "generate", run={**start(session), "target": None}, settings={**GENERATE, "max_new_tokens": 24}
    )
    wanted = [reply[0]["nodes"][i]["text"] for i in reply[0]["best"]]
    shown = opened.page.locator(".texts .text.A button")
    eventually(lambda: _equal([text.replace(" ", "") for text in shown.all_inner_texts()], wanted))


COMPILES = "() => Boolean(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])))"


def test_a_file_of_translations_opens_at_their_cross_attention(
    open_file: OpenFile, translator: Session, tmp_path: Path
) -> None:
    runs = [RunRequest(text=SOURCE, target=TARGET), RunRequest(text="three four", target="vier drei")]
    export_translations(translator, runs, tmp_path / "a.html")
    opened = open_file(translator, tmp_path / "a.html")
    assert (opened.fragment()["stack"], opened.fragment()["part"]) == ("decoder", "cross")
    assert opened.page.locator(".examples option").all_inner_texts()[1:] == [run.text for run in runs]
    opened.run("three four")
    assert opened.alert is None
    assert "drei" in opened.page.locator(".ribbon").inner_text()


def _one_edit(opened: OpenedFile) -> dict[str, Any]:
    edits: list[dict[str, Any]] = opened.fragment().get("edits", [])
    assert [edit["do"] for edit in edits] == ["set"]
    return edits[0]


def _agree(shown: dict[str, str | None], p: torch.Tensor, names: list[str]) -> None:
    assert shown
    assert all(text is not None and agrees(text, float(p[names.index(word)])) for word, text in shown.items()), shown


def test_the_page_saves_itself(open_page: Open, open_file: OpenFile, tmp_path: Path) -> None:
    """As it is: the file shows the same edit, and says the same."""
    served = open_page("translator", STATE)
    served.choose("decoder", 1, "cross", 1)
    served.button("off", ".change").click()
    served.settled()
    with served.page.expect_download() as saved:
        served.button("Export").click()
        served.button("This page as one file (HTML)").click()
    saved.value.save_as(tmp_path / "saved.html")
    opened = open_file(served.served.session, tmp_path / "saved.html")
    eventually(lambda: _equal(opened.chances(), served.chances()))
    assert opened.fragment() == served.fragment()
    assert not opened.button("This page as one file (HTML)").count()


@pytest.mark.parametrize("large", [False, True], ids=["live", "large"])
def test_a_model_that_reads_images(
    open_file: OpenFile, folder_of: Callable[[str], Path], tmp_path: Path, large: bool
) -> None:
    session = Session(load(folder_of("seer")), name="seer", image=picture(2, np.random.default_rng(3)))
    opened = open_file(session, written(session, tmp_path / "a.html", large=large))
    before = opened.chances()
    for view in ("image", "attention", "heads", "logits"):
        show(opened, view)
        assert opened.alert is None
    opened.button("off", ".change").click()
    opened.settled()
    eventually(lambda: _equal([b is not None for _, _, b in opened.chances()], [True] * len(before)))


@pytest.mark.parametrize("large", [pytest.param(False, marks=pytest.mark.slow), True], ids=["live", "large"])
def test_every_place_opens(open_file: OpenFile, translator: Session, tmp_path: Path, large: bool) -> None:
    """Without a mistake in a script. The list has no place without an answer; a link to one says that it has none."""
    corrupt = RunRequest(text="seven six nine one")
    opened = open_file(translator, written(translator, tmp_path / "a.html", large=large, corrupt=corrupt, state=STATE))
    absent = {"image", "training", "examples"} | ({"patching"} if large else set())
    listed = [text.strip() for text in opened.page.locator("nav.left .steps button").all_inner_texts()]
    assert {view for view, name in VIEWS.items() if not any(text.endswith(name) for text in listed)} == absent
    for view in [view for view in VIEWS if view not in absent]:
        show(opened, view)
        assert opened.alert is None
        gaps = opened.page.locator("main .gap").all_inner_texts()
        assert not [gap for gap in gaps if "no value" in gap or "undefined" in gap], (view, gaps)
        assert large or not [gap for gap in gaps if "file" in gap], (view, gaps)
    if large:
        opened.go_to(fragment(SOURCE, TARGET, view="patching"))
        assert "takes the model in Python" in opened.page.locator("main .gap").inner_text()


def test_a_large_model_takes_any_head_off_and_refuses_the_rest(
    open_file: OpenFile, translator: Session, tmp_path: Path
) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", large=True, state=STATE))
    says(opened, 2, None)
    for part, layer, head in (("cross", 1, 1), ("attn", 0, 0)):
        opened.button("A  as trained").click() if opened.button("A  as trained").count() else None
        opened.choose("decoder", layer, part, head)
        opened.button("off", ".change").click()
        says(opened, 2, {f"decoder.blocks.{layer}.{part}.z[h={head}]": zero}, within=2e-3)
        opened.button("reset", ".change").click()
    opened.button("mean", ".change").click()
    eventually(
        lambda: _contains(opened.alert, "no other change. For any change, open the model: clearhead explore translator")
    )
    assert "any one head" in (opened.alert or "")


def _contains(text: str | None, part: str) -> None:
    assert text is not None
    assert part in text


def test_another_text_is_refused_in_one_line(open_file: OpenFile, translator: Session, tmp_path: Path) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html"))
    opened.run("one two three")
    line = f"This file only holds “{SOURCE}”. To type your own text, open the model: clearhead explore translator"
    eventually(lambda: _contains(opened.alert, line))
    opened.run(SOURCE)
    eventually(lambda: _equal(opened.alert, None))


def _equal(got: object, wanted: object) -> None:
    assert got == wanted


def test_two_texts_side_by_side(open_file: OpenFile, translator: Session, tmp_path: Path) -> None:
    other = RunRequest(text="one nine two seven", target="sieben zwei neun eins")
    state = fragment(SOURCE, TARGET, other={"text": other.text, "target": other.target}, side="b")
    opened = open_file(translator, written(translator, tmp_path / "a.html", other=other, state=state))
    assert opened.alert is None
    assert opened.button("B  second text").get_attribute("aria-pressed") == "true"


def test_a_file_patches_between_its_two_texts(
    open_file: OpenFile, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """The page's engine finds what Python's sweep finds."""
    clean, corrupt = "six seven eight nine ten one", "six seven two nine ten one"
    session = Session(load(folder_of("writer")), name="writer", text=clean)
    state = fragment(clean, view="patching", other={"text": corrupt, "target": None})
    opened = open_file(session, written(session, tmp_path / "a.html", other=RunRequest(text=corrupt), state=state))
    model = session.model
    given = [model.reader.inputs(text, None, model.generation) for text in (clean, corrupt)]
    (wanted,), (other,) = (model.network(*one)[:, -1].topk(2).indices for one in given)
    answer = int(wanted[0])
    minus = next(int(i) for i in other if int(i) != answer)
    sweep = PatchingSweep(model.network, given[0], given[1], answer, minus=minus)
    expected = [sweep.row(f"decoder.blocks.{i}.resid_pre").restored.tolist() for i in (1, 0)]
    opened.page.get_by_label("minus that of").select_option(str(minus))

    def is_right() -> None:
        table = opened.figures()["decoder resid_pre"]
        for r, row in enumerate(expected):
            assert all(agrees(table.cells.get((r, i), ""), x) for i, x in enumerate(row)), row

    eventually(is_right)


def test_markup_in_texts_and_names_is_text(open_file: OpenFile, tmp_path: Path) -> None:
    evil = "<img src=x onerror=window.__xss=1></script><script>window.__xss=1</script>"
    session = Session(model_of(CONFIGS["decoder_rotary_grouped"]), name=evil, text=f"one two {evil}")
    opened = open_file(session, written(session, tmp_path / "a.html", state=fragment(f"one two {evil}")))
    for view in ("tokens", "logits", "attention"):
        show(opened, view)
    assert opened.page.evaluate("[typeof window.__xss, document.querySelectorAll('main img').length]") == [
        "undefined",
        0,
    ]
    assert opened.page.title() == f"{evil.rpartition('/')[2]} · clearhead"


def test_a_file_that_is_cut_short_says_so(chromium: Browser, translator: Session, tmp_path: Path) -> None:
    whole = written(translator, tmp_path / "a.html").read_bytes()
    data = whole.index(b'id="clearhead-data"')
    cuts = {int(data * 0.3): "the file is not whole"}
    cuts |= dict.fromkeys((int(data + (len(whole) - data) * share) - 100 for share in (0.92, 0.999)),
                          "the file is cut short or was changed; save it, or download it")  # fmt: skip
    page = chromium.new_page()
    for cut, said in cuts.items():
        (tmp_path / f"{cut}.html").write_bytes(whole[:cut])
        page.goto((tmp_path / f"{cut}.html").as_uri())
        eventually(partial(shows_text, page, said))
    page.close()


def shows_text(page: Page, part: str) -> None:
    _contains(page.locator("body").inner_text(), part)


@pytest.mark.slow
def test_every_edit_of_many_is_answered(open_file: OpenFile, tmp_path: Path) -> None:
    """A model of 2 + 2 blocks of width 128. It prints how long a page and an edit take."""
    torch.manual_seed(0)
    wide = c.StackConfig(input=c.TokenInput(vocab_size=4000), d_model=128, n_layers=2, n_heads=4, d_ff=512)
    network = Transformer(c.ModelConfig(encoder=wide, decoder=wide, share_embeddings=True)).eval()
    text, target = "5 17 33 90 2 8 40 7 61 12 99 3", "4 8 15 16 23 42 4 8 15 16 23"
    session = Session(Model(network), name="wide", text=text, target=target)
    path = written(session, tmp_path / "a.html")
    began = time.monotonic()
    opened = open_file(session, path)
    took = time.monotonic() - began
    paint = opened.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    times = opened.page.evaluate(MEASURE)
    p50, p95 = (sorted(times)[int(len(times) * share)] for share in (0.5, 0.95))
    print(f"\n{path.stat().st_size / 1e6:.1f} MB: first paint {paint:.0f} ms, page {took:.2f} s;"
          f" edit to output p50 {p50:.0f} ms, p95 {p95:.0f} ms")  # fmt: skip
    assert len(times) == 20


MEASURE = """async () => {
  const slider = document.querySelector("#weight"), answer = document.querySelector(".answer"), times = [];
  for (let i = 0; i < 25; i++) {
    const before = answer.dataset.edits + answer.textContent, start = performance.now();
    slider.value = 0.1 + 0.8 * ((i * 7) % 25) / 25;
    const shown = new Promise((resolve) => {
      const seen = new MutationObserver(() => resolve(seen.disconnect()));
      seen.observe(answer, { subtree: true, childList: true, characterData: true, attributes: true });
    });
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await shown;
    if (i >= 5) times.push(performance.now() - start);
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  return times;
}"""


def test_a_file_from_python(open_file: OpenFile, translator: Session, tmp_path: Path) -> None:
    path = export_page(translator.model, SOURCE, TARGET, path=tmp_path / "a.html", edits=[{"at": SITE, "do": "zero"}])
    opened = open_file(translator, path)
    assert opened.fragment()["edits"] == [{"at": SITE, "do": "zero"}]
    assert opened.button("B  head 1 off").get_attribute("aria-pressed") == "true"
    with pytest.raises(UserError):
        export_page(translator.model, "one " * 5000, path=tmp_path / "b.html")
