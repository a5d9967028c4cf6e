"""The alignment page, as text and in a real browser."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clearhead.explorer.alignment import PageFacts, Translated, alignment_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.explorer.conftest import ChromiumPage

N_LAYERS, N_HEADS = 3, 4
FACTS = PageFacts(
    title="clearhead demo: English to French",
    subtitle="encoder-decoder, 3 + 3 layers",
    figures=(("exact match", "96.4 %"), ("seconds", "128")),
    address="decoder.blocks.1.cross.weights",
    default_layer=1,
)
HOSTILE = (
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "</script ><script >window.hit=1</script >",
    "<!--<script>",
    "-->",
    "]]><script>window.hit=1</script>",
    '"><img src=x onerror=window.hit=1>',
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    "<style>*{display:none}</style>",
    "<a href=javascript:window.hit=1>x</a>",
    "' onmouseover='window.hit=1",
    "javascript:window.hit=1",
    "${window.hit=1}",
    "{{data}}",
    "\\u003cscript>window.hit=1\\u003c/script>",
    "</title><script>window.hit=1</script>",
    "\u2028window.hit=1\u2029",
    "\u202e<b>\x00\x1b\ud800",
    "<math><mtext><img src=//host.invalid/x onerror=window.hit=1>",
    "__proto__",
)


def phrase(
    source: str,
    target: str,
    *,
    pairs: dict[int, int] | None = None,
    kind: str | None = "dates",
    seed: int = 0,
) -> Translated:
    """Words at their places with attention that leans to `pairs`, as a trained model's does."""
    s, t = (*source.split(), "</s>"), (*target.split(), "</s>")
    scores = np.random.default_rng(seed).normal(size=(N_LAYERS, N_HEADS, len(t), len(s)))
    for row, column in (pairs or {}).items():
        scores[:, :, row, column] += 4
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return Translated(
        source_tokens=s,
        target_tokens=t,
        source_text=source,
        output_text=target,
        reference=target,
        kind=kind,
        cross=weights.astype(np.float32),
        probabilities=tuple(np.linspace(0.61, 0.99, len(t)).tolist()),
        alignment=tuple((pairs or {}).items()),
    )


MARCH = phrase("Tuesday March 14 2023", "mardi 14 mars 2023", pairs={0: 0, 1: 2, 2: 1, 3: 3})
LIST = replace(phrase("South Africa", "Afrique du Sud", kind="lists", seed=1), reference="Sud", alignment=None)
OWN = replace(phrase("red March", "mars rouge", kind="yours", seed=2), reference=None, unseen=("red",))


@pytest.fixture
def page(chromium_page: ChromiumPage, tmp_path: Path) -> Page:
    return chromium_page.open(write(tmp_path, [MARCH, LIST, OWN]))


def write(folder: Path, phrases: list[Translated], facts: PageFacts = FACTS) -> Path:
    file = folder / "page.html"
    file.write_text(alignment_page(phrases, facts), encoding="utf-8")
    return file


def numbers(page: Page) -> list[list[float]]:
    texts = page.locator("#table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].slice(2).map(cell => cell.textContent))"
    )
    return [[float(cell) for cell in row if re.fullmatch(r"\d\.\d+", cell)] for row in texts]


def test_thirty_phrases_stay_under_a_megabyte() -> None:
    twenty = " ".join(f"word{i}" for i in range(20))
    text = alignment_page([phrase(twenty, twenty, seed=i) for i in range(30)], FACTS)
    assert len(text.encode()) < 1_000_000


def test_nothing_but_the_two_own_parts_may_run() -> None:
    text = alignment_page([MARCH], FACTS)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    directives = dict(part.split(maxsplit=1) for part in policy.group(1).split("; "))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", directives["script-src"])
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", directives["style-src"])
    # An address that is not a name of a format would be something to fetch.
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}


def test_data_survives_the_way_into_html() -> None:
    hostile = replace(MARCH, source_text="".join(HOSTILE), kind="</script>")
    text = alignment_page([hostile], replace(FACTS, title="</title>{{data}}\ud800"))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert data is not None
    assert "<" not in data.group(1)
    assert json.loads(data.group(1))["phrases"][0]["source"] == "".join(HOSTILE)
    assert html.unescape(text.split("<title>")[1].split("</title>")[0]) == "</title>{{data}}?"
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            replace(MARCH, cross=MARCH.cross[..., 1:]),
            r"phrases\[1\].cross has shape .* expected \(3, 4, 5, 5\)",
        ),
        (replace(MARCH, cross=MARCH.cross[:2]), r"phrases\[1\].cross has shape"),
        (replace(MARCH, cross=MARCH.cross * np.float32("nan")), r"not in \[0, 1\]; give weights"),
        (replace(MARCH, cross=MARCH.cross - 1), r"not in \[0, 1\]"),
        (replace(MARCH, probabilities=(0.5,)), r"probabilities has 1 numbers for 5 target tokens"),
        (replace(MARCH, alignment=((0, 5),)), r"alignment has \(0, 5\) outside 5 x 5"),
        (replace(MARCH, alignment=((-1, 0),)), r"alignment has \(-1, 0\) outside"),
    ],
)
def test_what_does_not_fit_is_named(wrong: Translated, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        alignment_page([MARCH, wrong], FACTS)


def test_facts_must_name_a_layer_that_is_there() -> None:
    with pytest.raises(ValueError, match="default_layer=3 is not one of the 3 layers"):
        alignment_page([MARCH], replace(FACTS, default_layer=3))
    with pytest.raises(ValueError, match=r"does not name default_layer: \.blocks\.0\."):
        alignment_page([MARCH], replace(FACTS, default_layer=0))
    with pytest.raises(ValueError, match="phrases is empty"):
        alignment_page([], FACTS)


def test_opens_from_a_file_quietly_and_alone(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    file = write(tmp_path, [MARCH, LIST, OWN])
    page = chromium_page.open(file)
    for number in range(3):
        page.locator("[role=option]").nth(number).click()
    page.locator("#theme").click()
    page.locator("summary").click()
    assert chromium_page.complaints == []
    assert {url for url in chromium_page.requests if not url.startswith("data:")} == {file.as_uri()}
    assert page.locator("#curves path").count() > 0
    assert page.title() == FACTS.title


def test_numbers_and_address_follow_layer_and_head(page: Page) -> None:
    assert page.locator("#address").inner_text() == "decoder.blocks.1.cross.weights"
    np.testing.assert_allclose(numbers(page), MARCH.cross[1].mean(0), atol=1.01e-4)
    for layer, head in ((1, 2), (0, 2), (2, 0)):
        page.locator(f"#layers input[value='{layer}']").check()
        page.locator(f"#heads input[value='{head}']").check()
        assert page.locator("#address").inner_text() == f"decoder.blocks.{layer}.cross.weights[h={head}]"
        np.testing.assert_array_equal(numbers(page), np.round(MARCH.cross[layer, head].astype(np.float64), 4))
    page.locator("#heads input[value='-1']").check()
    assert page.locator("#address").inner_text() == "decoder.blocks.2.cross.weights"


def test_a_word_shows_its_row_and_its_probability(page: Page) -> None:
    page.locator("#heads input[value='3']").check()
    page.locator("#targets button").nth(2).hover()
    row = [float(text) for text in page.locator(".bars b").all_inner_texts()]
    np.testing.assert_allclose(row, MARCH.cross[1, 3, 2], atol=0.51e-3 + 1e-4)
    assert MARCH.probabilities is not None
    assert page.locator("#probability").inner_text() == f"{MARCH.probabilities[2]:.4f}"
    assert page.locator("#targets .on").inner_text().startswith("mars")


def test_lines_are_as_wide_as_their_weights(page: Page) -> None:
    widths: list[tuple[float, float]] = page.locator("#curves path").evaluate_all(
        "paths => paths.map(path => [path.w, Number(path.getAttribute('stroke-width'))])"
    )
    mean = MARCH.cross[1].mean(0)
    assert len(widths) == (mean >= 0.02).sum()
    for weight, width in widths:
        assert width == pytest.approx(max(0.7, 17 * weight), abs=0.01)


def test_heatmap_rings_the_strongest_and_judges_it_where_it_can(page: Page) -> None:
    assert page.locator("#heat .ring").count() == 5
    assert page.locator("#heat .tick").count() == 4  # not the end of the sentence: nobody aligned it
    strongest = MARCH.cross[1].mean(0).argmax(-1)
    right = sum(int(strongest[t]) == s for t, s in MARCH.alignment or ())
    assert right == 4
    assert page.locator("#glyphs").inner_text().endswith("as composed: 4 of 4")
    assert "1 pair of words changes places" in page.locator("#crossed").inner_text()
    page.locator("[role=option]").nth(1).click()
    assert page.locator("#heat .tick").count() == 0


def test_wrong_alignment_is_marked(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    wrong = replace(MARCH, alignment=((0, 0), (1, 3)))
    page = chromium_page.open(write(tmp_path, [wrong]))
    assert page.locator("#heat .tick").count() == 2
    assert page.locator("#heat .tick.bad").count() == page.locator("#heat .due").count() == 1
    assert page.locator("#table tbody tr td:last-child").all_text_contents() == [
        "right",
        "wrong",
        "–",
        "–",
        "–",
    ]


def test_phrases_are_grouped_and_marked(page: Page) -> None:
    assert page.locator(".group b").all_inner_texts() == ["dates", "lists", "yours"]
    marks = page.locator("[role=option] .mark").evaluate_all("all => all.map(mark => mark.textContent)")
    assert marks == ["right: ", "differs: ", "no reference: "]
    assert page.locator("[role=option]").nth(2).inner_text().endswith("never seen: red")
    page.locator("[role=option]").nth(2).click()
    assert page.locator("#sources .unseen").all_inner_texts() == ["red"]


def test_keyboard_walks_phrases_and_words(page: Page) -> None:
    selected = page.locator("[role=option][aria-selected=true] .src")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == page.locator("#targets .on").inner_text().replace(
        "\n", ""
    )
    assert page.locator("#targets .on").get_attribute("aria-label") == (
        f"14, probability 0.705, reads most from 14, {MARCH.cross[1].mean(0)[1].max():.3f}, as the composer aligned it"
    )
    page.keyboard.press("ArrowDown")
    assert selected.inner_text() == "South Africa"
    page.keyboard.press("Escape")
    assert page.locator("#targets .on").count() == 0
    page.locator("[role=option][aria-selected=true]").focus()
    page.keyboard.press("End")
    assert selected.inner_text() == "red March"
    page.keyboard.press("Home")
    assert selected.inner_text() == "Tuesday March 14 2023"
    page.locator("#heads input[value='-1']").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#address").inner_text().endswith("[h=0]")


def test_hostile_strings_are_only_text(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    tokens = len(HOSTILE)
    hostile = Translated(
        source_tokens=HOSTILE,
        target_tokens=HOSTILE,
        source_text=HOSTILE[1],
        output_text=HOSTILE[6],
        reference=HOSTILE[7],
        kind=HOSTILE[8],
        cross=np.full((1, 2, tokens, tokens), 1 / tokens, dtype=np.float32),
        probabilities=(float("nan"),) * tokens,
        alignment=((0, 0),),
        unseen=HOSTILE,
    )
    facts = PageFacts(HOSTILE[17], HOSTILE[0], ((HOSTILE[8], HOSTILE[9]),), f"{HOSTILE[5]}.blocks.0.cross.weights", 0)
    proto = replace(hostile, kind="__proto__", reference=None)
    page = chromium_page.open(write(tmp_path, [hostile, proto], facts))
    for number in range(2):
        page.locator("[role=option]").nth(number).click()
        page.locator("#targets button, #heat .hit").evaluate_all(
            "all => all.forEach(node => node.dispatchEvent(new MouseEvent('click', { bubbles: true })))"
        )
    assert page.evaluate("window.hit") is None
    assert chromium_page.complaints == []
    assert page.locator("img, iframe, main a, math, body style, main script").count() == 0
    assert page.locator("#targets b").nth(0).text_content() == HOSTILE[0].replace(" ", "␣")
    assert page.locator("#title").text_content() == HOSTILE[17]


def test_right_to_left_rows_run_right_to_left(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    page = chromium_page.open(
        write(tmp_path, [phrase("Tuesday 14 March", "الثلاثاء ١٤ مارس", pairs={0: 0, 1: 1, 2: 2})])
    )
    places: list[float] = page.locator("#targets button").evaluate_all(
        "all => all.map(word => word.getBoundingClientRect().left)"
    )
    assert places == sorted(places, reverse=True)
    page.locator("#targets button").nth(0).click()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#targets .on b").inner_text() == "١٤"
    assert "order is kept" in page.locator("#crossed").inner_text()


@pytest.mark.parametrize("width", [1440, 390])
def test_long_phrases_scroll_inside_their_figure(chromium_page: ChromiumPage, tmp_path: Path, width: int) -> None:
    long = " ".join(f"Verfassungsgericht{i}" for i in range(40))
    page = chromium_page.page
    page.set_viewport_size({"width": width, "height": 900})
    chromium_page.open(write(tmp_path, [phrase(long, long)]))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.getElementById('weave').parentElement.scrollWidth > innerWidth")


# Paints both colours on one pixel, as the screen does, because mixed colours are not given back as RGB.
CONTRAST = """() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => value / 255);
  };
  const linear = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const found = {};
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest(".sr, script, noscript, .num") || !node.getClientRects().length) continue;
    const grounds = [];
    for (let up = node; up; up = up.parentElement) grounds.unshift(getComputedStyle(up).backgroundColor);
    const style = getComputedStyle(node), ink = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const pair = [luminance(paint(grounds)), luminance(paint([...grounds, ink]))];
    const name = `${node.tagName}.${node.getAttribute("class")} ${node.textContent.slice(0, 20)}`;
    found[name] = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_aa_contrast(chromium_page: ChromiumPage, tmp_path: Path, scheme: str) -> None:
    page = chromium_page.page
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    chromium_page.open(write(tmp_path, [OWN, MARCH, LIST]))
    page.locator("#targets button").nth(1).click()
    page.locator("summary").click()
    found: dict[str, float] = page.evaluate(CONTRAST)
    assert len(found) > 60
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
