"""Chapters lead to exercises, walks and stops of the explorer, and these lead back."""

import json
import re
from base64 import urlsafe_b64decode

from clearhead.explorer.static_files import static_file
from clearhead_lab.course import around, beside
from clearhead_lab.course.figures import Figure, link
from clearhead_lab.course.page import names
from clearhead_lab.exercises.sets import SETS
from clearhead_lab.walks import MODULES
from tests.conftest import ROOT

UI = ROOT / "ui" / "src"


def test_every_set_and_every_walk_belongs_to_a_chapter():
    of = list(around.CHAPTERS.values())
    assert {name for one in of for name in one.exercises} == set(SETS)
    assert {name for one in of for name in one.walks} == set(MODULES)
    assert set(around.CHAPTERS) == set(names()) - {"index", "teacher", "errata", "questions"}


def test_the_stops_and_the_places_of_the_explorer_have_chapters():
    stops = json.loads((UI / "walks" / "word.json").read_text(encoding="utf-8"))["stops"]
    assert {one.stop for one in around.CHAPTERS.values()} <= {stop["name"] for stop in stops}
    places = re.findall(r'chapter: "([\w-]+)"', (UI / "state" / "places.ts").read_text(encoding="utf-8"))
    assert len(places) > 10
    assert {*places, *(stop["chapter"] for stop in stops if "chapter" in stop)} <= set(around.CHAPTERS)


def test_a_figure_with_a_second_text_opens_on_it():
    at = "encoder.blocks.1.resid_post[t=1,d=0]"
    opened = link(Figure(model="translator", text="one", other="two", at=at, value="1.0", title="", move=""))
    place, _, rest = opened.partition("&e=")
    assert "s=one" in place
    assert "side=b" in place
    assert json.loads(urlsafe_b64decode(rest + "=="))["other"] == {"text": "two", "target": None}


def test_the_last_section_of_a_chapter():
    figure = Figure(model="seer", at="encoder.embed.sum[t=0,d=0]", value="1.0", title="", move="")
    text = around.places("images", [figure])
    assert "](../figures/seer.html#v=1&s=&mode=learn&walk=word&stop=image&e=" in text
    assert "](../exercises/positions.html): 1" in around.places("positions", [])
    assert "](../walks/river.html)" in around.places("positions", [])
    assert around.places("teacher", []) == ""


def test_the_shared_script_is_a_classic_one():
    script = beside.classic(static_file("file.js").decode())
    assert not re.search(r"(^|[;}\s])(import|export)[\s{]", script[-2000:])
