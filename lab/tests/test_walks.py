"""The documents' chains as walks: every address exists, and every printed number has the verdict that is shown."""

import json
import re
from typing import Any

import pytest
from safetensors.torch import load as tensors_in
from torch import Tensor

from clearhead.errors import UserError
from clearhead.explorer import static_files
from clearhead.explorer.session import Session
from clearhead_lab.app import walk
from clearhead_lab.examples.records import numbers, records
from clearhead_lab.examples.verdicts import compare
from clearhead_lab.experiments import experiments
from clearhead_lab.walks import STORIES, chains, find
from tests.conftest import ROOT

CHAINS = ("money", "apple", "game", "river", "geometry")
NAMES = {
    *("text", "n", "query", "key", "id", "d_model", "d_ff", "d_head", "root", "n_heads", "n_layers"),
    *("t", "s", "at", "block", "head", "layer", "right"),
}
"""What the page fills in by itself (ui/src/state/walk.ts)."""
SUMS = {"attn_sum": ("resid_pre", "attn.out"), "ffn_sum": ("resid_attn", "ffn.out")}
NAME = re.compile(r"\{(\w+)\}")


def values(session: Session, run: dict[str, Any], at: str) -> Tensor:
    """What the session answers for an address of a run. The page computes products and sums from others."""
    path, _, index = at.partition("[")
    block, _, last = path.rpartition(".")
    if last == "product":
        q, k = (values(session, run, f"{block.removesuffix('.scores')}.{name}[h=0]") for name in "qk")
        product = q @ k.mT
        chosen = dict(part.split("=") for part in index.rstrip("]").split(",") if part)
        return product[tuple(int(chosen[axis]) if axis in chosen else slice(None) for axis in "ts")]
    if last in SUMS:
        one, other = (values(session, run, f"{block}.{name}") for name in SUMS[last])
        return one + other
    reply = session.answer({"ask": "values", "run": run, "at": [at], "dtype": "float32"})
    return tensors_in(reply)[at]


def run_of(walk: dict[str, Any], stop: dict[str, Any]) -> dict[str, Any]:
    """The forward pass that the page shows at a stop."""
    place = stop["place"]
    run: dict[str, Any] = {"text": place.get("other", walk["text"]), "target": None, "edits": place.get("edits", [])}
    return run | ({"change": place["change"]} if "change" in place else {})


@pytest.mark.parametrize("name", CHAINS)
def test_the_walks_of_a_chain(name: str):
    chain = chains()[name]
    documents = chain.documents()
    session = Session(chain.model(), name=name, text=chain.text, walks=documents)
    for document in documents:
        check_walk(session, document)


def check_walk(session: Session, walk: dict[str, Any]) -> None:
    assert len({stop["name"] for stop in walk["stops"]}) == len(walk["stops"])
    assert json.loads(json.dumps(walk)) == walk
    for stop in walk["stops"]:
        place, run = stop["place"], run_of(walk, stop)
        at = {"at": "encoder.blocks.0.attn", "block": "encoder.blocks.0", "head": 0, "t": place["query"]}
        named = dict(stop.get("numbers", {}))
        question = stop.get("question", {})
        named |= question.get("numbers", {})
        said = " ".join(filter(None, [stop["say"], question.get("ask"), question.get("because")]))
        assert set(NAME.findall(said)) <= NAMES | named.keys(), stop["name"]
        for reading in named.values():
            assert values(session, run, reading["at"].format(**at, s=place["key"])).numel(), stop["name"]
        for one in stop.get("printed", []):
            is_right(session, run, one)


def is_right(session: Session, run: dict[str, Any], one: dict[str, Any]) -> None:
    """The value at the address of a printed number has the verdict that stands beside it, and a wrong one its cause."""
    assert one["cause"] or one["verdict"] not in ("wrong", "cannot be checked"), one["record"]
    if "at" not in one:
        assert one["right"], one["record"]
        return
    found, theirs = values(session, run, one["at"]).flatten().tolist(), list(numbers(one["printed"]))
    assert len(found) == len(theirs), one["record"]
    slack = records()[one["record"]].slack if one["record"] in records() else 1.0
    assert compare(theirs, found, decimals=one["decimals"], slack=slack) == one["verdict"], one["record"]


def test_every_chain_of_the_documents_is_found():
    """As a network, or as a story with an experiment and records that exist."""
    assert tuple(chains()) == CHAINS
    for story in STORIES:
        assert story.experiment in experiments()
        assert all(any(known.startswith(name) for known in records()) for name in story.records.split())


def test_a_chain_that_is_no_network_says_what_shows_it(capsys):
    walk("variance")
    assert "`clearhead lab run saturation`" in capsys.readouterr().out
    with pytest.raises(UserError, match="lab walk: expected the name of a chain, got 'aple'; try apple"):
        find("aple")


def test_the_list_names_every_chain(capsys):
    walk()
    said = capsys.readouterr().out
    assert all(name in said for name in (*chains(), *(story.name for story in STORIES)))


@pytest.mark.skipif(not (static_files.STATIC / "explorer.js").is_file(), reason="needs the built page")
def test_a_walk_as_a_file_begins_in_learn(tmp_path):
    path = tmp_path / "apple.html"
    walk("apple", export=path)
    assert 'data-state="#v=1&amp;s=I+love+apple+phones&amp;mode=learn&amp;walk=apple"' in path.read_text()


def test_chapters_of_stops_exist():
    """A stop that names a chapter names a page of the course; an address on the web stays as it is."""
    pages = {file.stem for file in (ROOT / "lab/clearhead_lab/course/pages").glob("*.md")}
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in (ROOT / "ui/src/walks").glob("*.json")]
    documents += [walk for chain in chains().values() for walk in chain.documents()]
    stops = [stop for walk in documents for stop in walk["stops"]]
    assert len(stops) > 50
    named = {stop["chapter"] for stop in stops if re.fullmatch(r"[a-z-]+", stop.get("chapter", ""))}
    places = (ROOT / "ui/src/state/places.ts").read_text(encoding="utf-8")
    assert named | set(re.findall(r'chapter: "([\w-]+)"', places)) <= pages
