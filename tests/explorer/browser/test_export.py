"""An exported file in a real browser, opened from a disk with the network off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from clearhead.api import Model, load
from clearhead.errors import UserError
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export.page import export_page, export_translations, rounded_model
from clearhead.explorer.session import Session
from clearhead.trace import Edit, zero
from tests.explorer.asking import GENERATE, ask, start
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.files import written
from tests.explorer.browser.page import becomes, fragment, said
from tests.explorer.browser.seeing import SOURCE, TARGET, says
from tests.explorer.browser.trained import picture
from tests.explorer.browser.views import VIEWS, show

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SITE = "decoder.blocks.1.cross.z[h=1]"


def logits(session: Session, edit: dict[str, Edit] | None = None, model: Model | None = None) -> torch.Tensor:
    """At the position of STATE."""
    return (model or session.model).trace(SOURCE, TARGET, edit=edit)[1][2]


STATE = fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, position=2)


def test_a_small_model_takes_every_edit(open_file: Open, translator: Session, tmp_path: Path) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", state=STATE))
    assert opened.fragment()["stack"] == "decoder"
    plain = logits(translator)
    says(opened, plain)
    opened.choose("decoder", 1, "cross", 1)
    opened.button("off", ".change").click()
    says(opened, plain, logits(translator, {SITE: zero}))
    opened.button("on", ".change").click()
    opened.settled()
    opened.unfold()
    opened.page.locator("#weight").fill("0.9")
    becomes(lambda: [edit["do"] for edit in opened.fragment().get("edits", [])], ["set"])
    (edit,) = opened.fragment()["edits"]
    row = torch.tensor(edit["value"])
    says(opened, plain, logits(translator, {edit["at"]: lambda value: row.to(value).expand_as(value)}))
    opened.button("reset", ".heading").click()
    show(opened, "position")
    opened.button("none", ".change").click()
    says(opened, plain, logits(translator, model=translator.model.changed(positions="none")))


def test_a_large_model_computes_and_writes_in_a_worker(open_file: Open, translator: Session, tmp_path: Path) -> None:
    """In 8 bits: it says what Python says with the same weights, and its policy lets its products be compiled."""
    model, matrices = rounded_model(translator.model, "int8")
    session = Session(model, name="translator", text=SOURCE, target=TARGET, matrices=matrices)
    opened = open_file(session, written(session, tmp_path / "a.html", state=STATE))
    assert len(opened.page.workers) == 1
    assert opened.page.workers[0].evaluate(COMPILES)
    plain = logits(session)
    says(opened, plain)
    opened.choose("decoder", 1, "cross", 1)
    opened.button("off", ".change").click()
    says(opened, plain, logits(session, {SITE: zero}))
    show(opened, "generation")
    reply = ask(
        session, "generate", run={**start(session), "target": None}, settings={**GENERATE, "max_new_tokens": 24}
    )
    wanted = [reply[0]["nodes"][i]["text"] for i in reply[0]["best"]]
    shown = opened.page.locator(".texts .text.A button")
    becomes(lambda: [text.replace(" ", "") for text in shown.all_inner_texts()], wanted)


COMPILES = "() => Boolean(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])))"


def test_a_file_of_translations_opens_on_the_overview(open_file: Open, translator: Session, tmp_path: Path) -> None:
    runs = [RunRequest(text=SOURCE, target=TARGET), RunRequest(text="three four", target="vier drei")]
    export_translations(translator, runs, tmp_path / "a.html")
    opened = open_file(translator, tmp_path / "a.html")
    opened.page.locator(".overview .stage [role=switch]").wait_for()
    assert opened.page.locator(".examples option").all_inner_texts()[1:] == [run.text for run in runs]
    opened.run("three four")
    assert opened.alert is None
    said(opened.page.locator(".overview").inner_text, "drei")


def test_the_page_saves_itself(open_page: Open, open_file: Open, tmp_path: Path) -> None:
    """As it is: the file shows the same edit, and says the same."""
    served = open_page("translator", STATE)
    served.choose("decoder", 1, "cross", 1)
    served.button("off", ".change").click()
    served.settled()
    with served.page.expect_download() as saved:
        served.menu("This page as one file (HTML)")
    saved.value.save_as(tmp_path / "saved.html")
    opened = open_file(served.served.session, tmp_path / "saved.html")
    becomes(opened.chances, served.chances())
    assert opened.fragment() == served.fragment()
    opened.button("Menu").click()
    assert not opened.button("This page as one file (HTML)").count()


@pytest.mark.parametrize("large", [False, True], ids=["live", "large"])
def test_a_model_that_reads_images(
    open_file: Open, folder_of: Callable[[str], Path], tmp_path: Path, large: bool
) -> None:
    session = Session(load(folder_of("seer")), name="seer", image=picture(2, np.random.default_rng(3)))
    opened = open_file(session, written(session, tmp_path / "a.html", large=large))
    for view in ("image", "heads", "logits", "attention"):
        show(opened, view)
        assert opened.alert is None
    before = opened.chances()
    assert before
    opened.button("off", ".change").click()
    opened.settled()
    becomes(lambda: [b is not None for _, _, b in opened.chances()], [True] * len(before))


@pytest.mark.parametrize("large", [pytest.param(False, marks=pytest.mark.slow), True], ids=["live", "large"])
def test_every_place_opens(open_file: Open, translator: Session, tmp_path: Path, large: bool) -> None:
    """Without a mistake in a script. The list has no place without an answer; a link to one says that it has none."""
    corrupt = RunRequest(text="seven six nine one")
    opened = open_file(translator, written(translator, tmp_path / "a.html", large=large, corrupt=corrupt, state=STATE))
    absent = {"image", "training", "examples"} | ({"patching"} if large else set())
    listed = [text.strip() for text in opened.page.locator("nav.left .steps button").all_inner_texts()]
    unlisted = {view for view, name in VIEWS.items() if not any(text.endswith(name) for text in listed)}
    assert unlisted - {"overview"} == absent
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
    open_file: Open, translator: Session, tmp_path: Path
) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", large=True, state=STATE))
    plain = logits(translator)
    says(opened, plain)
    for part, layer, head in (("cross", 1, 1), ("attn", 0, 0)):
        opened.button("A  as trained").click() if opened.button("A  as trained").count() else None
        opened.choose("decoder", layer, part, head)
        opened.button("off", ".change").click()
        says(opened, plain, logits(translator, {f"decoder.blocks.{layer}.{part}.z[h={head}]": zero}), within=2e-3)
        opened.button("reset", ".heading").click()
    opened.button("mean", ".change").click()
    alert = said(lambda: opened.alert, "head. For other changes, open the model: clearhead explore translator")
    assert "any one head" in alert


def test_another_text_is_read_and_too_long_a_one_is_not(open_file: Open, translator: Session, tmp_path: Path) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", state=STATE))
    opened.run("three  four", "vier drei")
    opened.go_to(fragment("three  four", "vier drei", position=2))
    says(opened, translator.model.trace("three  four", "vier drei")[1][2])
    opened.button("off", ".change").click()
    opened.settled()
    opened.run("one " * 5000)
    said(lambda: opened.alert, "The text has 5002 tokens. The page can look into at most")
    opened.run(SOURCE)
    becomes(lambda: opened.alert, None)


def test_a_file_that_reads_no_other_text_says_so_in_place_of_the_field(
    open_file: Open, translator: Session, tmp_path: Path
) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html", large=True))
    line = "answers for the texts that it holds. To type your own, open the model: clearhead explore translator"
    assert line in opened.page.locator("header .say").inner_text()
    assert not opened.page.locator("#text").count()


def test_a_file_that_is_cut_short_says_so(chromium: Browser, translator: Session, tmp_path: Path) -> None:
    whole = written(translator, tmp_path / "a.html").read_bytes()
    data = whole.index(b'id="clearhead-data"')
    cuts = {int(data * 0.3): "the file is not whole"}
    cuts |= dict.fromkeys((int(data + (len(whole) - data) * share) - 100 for share in (0.92, 0.999)),
                          "the file is cut short or was changed; save it, or download it")  # fmt: skip
    page = chromium.new_page()
    for cut, message in cuts.items():
        (tmp_path / f"{cut}.html").write_bytes(whole[:cut])
        page.goto((tmp_path / f"{cut}.html").as_uri())
        said(page.locator("body").inner_text, message)
    page.close()


def test_a_file_from_python(open_file: Open, translator: Session, tmp_path: Path) -> None:
    path = export_page(translator.model, SOURCE, TARGET, path=tmp_path / "a.html", edits=[{"at": SITE, "do": "zero"}])
    opened = open_file(translator, path)
    assert opened.fragment()["edits"] == [{"at": SITE, "do": "zero"}]
    said(opened.page.locator(".overview .answers").inner_text, "before")
    with pytest.raises(UserError):
        export_page(translator.model, "one " * 5000, path=tmp_path / "b.html")
