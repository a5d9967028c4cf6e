"""One file: what is in it, and what is refused. What its page answers: ui/test/host, and browser/test_export.py."""

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape

import pytest

from clearhead.api import Model
from clearhead.cli.look import explore
from clearhead.errors import UserError
from clearhead.explorer import static_files
from clearhead.explorer.answering.questions import EditRequest, RunRequest
from clearhead.explorer.export import page as export
from clearhead.explorer.export.contents import contents
from clearhead.explorer.session import Session
from clearhead.model.ops import KINDS
from tests.explorer.asking import ask, session_of
from tests.explorer.export_fixtures import parts_of, plain, too_large
from tests.explorer.traced import CONFIGS, model_of

BUILT = 'console.log("<script>", `</script>`, "<SCRIPT");\nexport{};\n'


@pytest.fixture(autouse=True)
def _built(monkeypatch, tmp_path_factory) -> None:
    """A page in place of the built one."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "file.js").write_text(BUILT, encoding="utf-8")
    (folder / "explorer.css").write_text("body { color: red }", encoding="utf-8")
    (folder / "tokenizers.js").write_text("globalThis.texts = 1;", encoding="utf-8")
    (folder / "webgpu.js").write_text("globalThis.quicker = 1;", encoding="utf-8")
    monkeypatch.setattr(static_files, "STATIC", folder)


def test_a_file_may_speak_fewer_languages():
    (static_files.STATIC / "texts.json").write_text('{"en": {"a": "the"}, "fr": {"a": "le"}}', encoding="utf-8")
    session = session_of("decoder_pre_learned")
    every, one = (contents(session, [session.start], languages=names) for names in ((), ("en",)))
    assert (every.parts["texts"].json, every.document["about"]["languages"]) == (
        {"en": {"a": "the"}, "fr": {"a": "le"}},
        ["en", "fr"],
    )
    assert (one.parts["texts"].json, one.document["about"]["languages"]) == ({"en": {"a": "the"}}, ["en"])


def test_the_policy_names_each_script_and_the_one_style():
    """The script that reads with a tokenizer stands first, and has run when the page's own looks for it."""
    session = session_of("decoder_pre_learned")
    html = export.html_of(session, session.start).decode()
    for element, n in (("script", 2), ("style", 1)):
        found = re.findall(rf'<{element}(?: type="module"[^>]*)?>(.*?)</{element}>', html, re.DOTALL)
        assert len(found) == n
        digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in found]
        named = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert f"{element}-src {named};" in html
    assert "default-src 'none';" in html
    assert "'unsafe" not in html
    assert html.count("</script>") == 2 + len(parts_of(html))


def test_what_ends_an_element_is_written_otherwise_in_the_script():
    assert export.inline(BUILT.encode(), "script") == (
        'console.log("\\x3cscript>", `\\x3c/script>`, "\\x3cSCRIPT");\nexport{};\n'
    )
    with pytest.raises(ValueError, match="ends its element"):
        export.inline(b"a { content: '</style>' }", "style")


def test_a_large_model_answers_the_stops_of_a_walk():
    """Each text with the target that it has without edits, as the page asks for its side B."""
    session = session_of("encoder_decoder_relative")
    other = RunRequest(text="three two")
    edited = other.model_copy(update={"edits": [EditRequest(at="encoder.blocks.0.attn.z[h=0]", do="zero")]})
    with too_large():
        html = export.html_of(session, session.start, stops=[other, edited]).decode()
    held = [one["run"] for one in parts_of(html)["data"][0]["recorded"] if one["run"]["text"] == "three two"]
    assert [one["edits"] for one in held[:2]] == [[], [{"at": "encoder.blocks.0.attn.z[h=0]", "do": "zero"}]]
    assert held[0]["target"] == held[1]["target"] is not None


def test_no_name_and_no_text_is_markup():
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    session = Session(model_of(CONFIGS["decoder_rotary_grouped"]), name=evil, text=f"one two {evil}")
    html = export.html_of(session, session.start, state=f"#v=1&s={evil}").decode()
    assert "alert(1)</script>" not in html
    assert "<img" not in html
    shown = re.search(r'id="clearhead-data" data-state="([^"]*)"', html)
    assert shown is not None
    assert unescape(shown[1]) == f"#v=1&s={evil}"
    assert parts_of(html)["data"][0]["about"]["name"] == evil


@pytest.mark.parametrize("name", CONFIGS)
def test_a_small_model_is_in_it_each_parameter_once(name: str):
    session = session_of(name)
    parts = parts_of(export.html_of(session, session.start).decode())
    document, _ = parts["data"]
    said, weights = parts[document["live"]["inputs"][0]["weights"]]
    assert weights.keys() == dict(session.model.network.named_parameters()).keys()
    everything = dict(session.model.network.named_parameters(remove_duplicate=False))
    assert {*weights, *said["same"]} == everything.keys()
    assert document["about"]["start"] == plain(session)
    assert set(document["parts"]) == set(parts) - {"data"}


def test_parts_of_a_file_that_computes_hold_no_mark_of_html(tmp_path):
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    with too_large():
        path = export.export_page(model, "one two three", path=tmp_path / "a.html", live="int4")
    html = path.read_bytes().decode("utf-16")
    assert parts_of(html)["webgpu"][0] == {"script": "globalThis.quicker = 1;"}
    assert "'wasm-unsafe-eval'; worker-src blob:;" in html[: html.index("<title>")]
    blocks = re.findall(r'octet-stream" id="clearhead-[^>]*>(.*?)</script>', html, re.DOTALL)
    assert not re.search(r"[\x00-\x08\r<]", "".join(blocks))


def test_what_no_file_can_hold_is_refused(tmp_path, monkeypatch):
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    monkeypatch.setattr(export, "MOST", 1000)
    with pytest.raises(
        UserError, match=r"live: expected a model of at most 1,000 parameters, got \d,\d+; leave it out"
    ):
        export.export_page(model, "one", path=tmp_path / "a.html", live="int8")
    for name in static_files.FILES:
        (static_files.STATIC / name).touch()
    with pytest.raises(UserError, match="live: expected --export FILE beside it"):
        explore.explore("some/model", "one", live="int8")


def test_edits_are_shown_beside_the_input_and_stand_in_the_state(tmp_path):
    model, edit = (
        model_of(CONFIGS["decoder_pre_learned"]),
        {"at": "decoder.blocks.1.ffn.out", "do": "scale", "value": 2.0},
    )
    with too_large():
        path = export.export_page(model, "one two three", path=tmp_path / "a.html", edits=[edit])
    html = path.read_text(encoding="utf-8")
    first, second, third = parts_of(html)["data"][0]["recorded"]
    assert (first["run"]["edits"], second["run"]["edits"]) == ([], [edit])
    assert [one["do"] for one in third["run"]["edits"]] == ["zero"]  # Without the head that decides.
    assert "without" in first["parts"]
    assert "without" not in second["parts"]
    assert "view=overview&amp;side=b" in html
    with pytest.raises(UserError, match="do: expected"):
        export.export_page(model, "one two three", path=tmp_path / "b.html", edits=[{"at": "x", "do": "mend"}])


def test_what_an_edit_closed_is_kept_and_counts_for_no_rounding(tmp_path):
    edit = {"at": "decoder.blocks.0.attn.scores[h=1,t=3,s=0]", "do": "close"}
    with too_large():
        path = export.export_page(
            model_of(CONFIGS["decoder_pre_learned"]), "one two three four", path=tmp_path / "a.html", edits=[edit]
        )
    parts = parts_of(path.read_text(encoding="utf-8"))
    held = parts["data"][0]["recorded"][1]
    scores = parts[held["parts"][held["values"]["decoder.blocks.0.attn.scores"]]][1]["decoder.blocks.0.attn.scores"]
    assert scores[1, 3, 0] == float("-inf")
    notes = [one for one in parts["run-1"][0]["notes"] if "float16" in one]
    assert 0 < float(notes[0].split()[-2]) < 0.01


def test_refusals_are_one_line(tmp_path, monkeypatch):
    model = model_of(CONFIGS["decoder_pre_learned"])
    with pytest.raises(UserError, match=r"expected to write it, got .*; try another folder"):
        export.export_page(model, "one", path=tmp_path)
    monkeypatch.setattr("clearhead.explorer.export.recorded.MOST_BYTES", 100)
    with too_large(), pytest.raises(UserError, match=r"at most .* of attention, got .*; try a shorter text"):
        export.export_page(model, "one two three", path=tmp_path / "long.html")
    (static_files.STATIC / "file.js").unlink()
    with pytest.raises(UserError, match="expected the explorer's built page"):
        export.export_page(model, "one", path=tmp_path / "no.html")


def test_a_model_with_an_op_of_another_package_is_refused(tmp_path, monkeypatch):
    model, norm = model_of(CONFIGS["decoder_rotary_grouped"]), KINDS["rstd"]
    monkeypatch.delitem(KINDS, "rstd")
    monkeypatch.setitem(KINDS, "rstd", replace(norm, evaluate=lambda call: 1 / call.x[0].std(-1, keepdim=True)))
    with pytest.raises(UserError, match=r"^export: expected ops of clearhead's own, got 'rstd' at .*; open .*$"):
        export.export_page(model, "one", path=tmp_path / "no.html")
    monkeypatch.delitem(KINDS, "rstd")
    monkeypatch.setitem(KINDS, "rstd", norm)
    monkeypatch.setattr("clearhead.config.mechanism.extensions", lambda _: {"own.tanh": "torch:tanh"})
    config = CONFIGS["decoder_pre_learned"]
    decoder = config.stacks["decoder"].model_copy(update={"activation": "own.tanh"})
    model = model_of(config.model_copy(update={"decoder": decoder}))
    with pytest.raises(UserError, match=r"^export: expected ops of clearhead's own, got 'own.tanh' at .*; open .*$"):
        export.export_page(model, "one", path=tmp_path / "no.html")
    assert [*tmp_path.iterdir()] == []


def test_the_question_and_the_command(tmp_path, capsys, monkeypatch):
    session = session_of("decoder_pre_learned")
    reply, tensors = ask(session, "export", run=plain(session), state="#v=1")
    html = bytes(tensors["html"].numpy())
    assert reply == {"bytes": len(html), "live": True}
    assert html == export.html_of(session, RunRequest.model_validate(plain(session)), state="#v=1")
    with pytest.raises(UserError, match="state: "):
        ask(session, "export", run=plain(session), state="javascript:alert(1)")

    def loaded(*_: object, **__: object) -> Model:
        return session.model

    monkeypatch.setattr("clearhead.api.load", loaded)
    for name in static_files.FILES:
        (static_files.STATIC / name).touch()
    path = tmp_path / "page.html"
    explore.explore("some/model", "one two", export=path)
    assert capsys.readouterr().out == f"{path}\n"
    assert parts_of(path.read_text(encoding="utf-8"))["data"][0]["command"] == "clearhead explore some/model"


def test_a_file_holds_the_circuit_against_a_text_that_compares(tmp_path):
    """Asked for, another length is refused; a second text of the page just has none."""
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    path = export.export_page(model, "one two three", path=tmp_path / "a.html", corrupt="one four three")
    parts = parts_of(path.read_text(encoding="utf-8"))
    document = parts["data"][0]
    (held,) = document["held"]
    assert (held["run"]["text"], held["corrupt"]["text"], held["at"]) == ("one two three", "one four three", [2, 1])
    answers = parts[held["part"]][0]
    edges = answers['["edges",["position",1],["steps",5]]']["edges"]
    of_edges = [key for key in answers if key.startswith('["edge",["position",1]') and '["steps",5]' in key]
    assert len(of_edges) == len(edges)
    with pytest.raises(UserError, match="corrupt: expected 3 tokens"):
        export.export_page(model, "one two three", path=tmp_path / "b.html", corrupt="one four")
    session = Session(model, name="a", text="one two three")
    document = parts_of(export.html_of(session, session.start, RunRequest(text="one four")).decode())["data"][0]
    assert "circuits" not in document["about"]["answers"]


def test_a_small_file_holds_the_second_text_that_is_proposed():
    """Circuits and patching open with it, at the position that the page begins with."""
    model, texts = model_of(CONFIGS["decoder_rotary_grouped"]), ["one two three", "four two one", "one four three"]
    session = Session(model, name="a", text=texts[0], data=texts)
    said = ask(session, "propose", run={"text": texts[0], "target": None})[0]
    document = parts_of(export.html_of(session, session.start).decode())["data"][0]
    (held,) = document["held"]
    assert document["about"]["corrupt"] == held["corrupt"]["text"] == said["other"][0]
    assert said["position"] in held["at"]
