"""Passes are made once, kept while there is room, and refused where they would be too large."""

from typing import Any

import pytest

from clearhead import config as c
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering import passes
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.recording import observe
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.asking import ask, session_of
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of, stack
from tests.serve.tiny import endless_model


def test_a_pass_is_made_once(monkeypatch):
    session = Session(model_of(CONFIGS["decoder_pre_learned"]), name="once", text="one two")
    made: list[int] = []
    monkeypatch.setattr(passes, "observe", lambda *given, **named: made.append(1) or observe(*given, **named))
    run = {"text": "one two", "target": None, "edits": []}
    for what, more in (("run", {}), ("values", {"at": ["head.logits"]}), ("check", {}), ("lens", {"k": 2})):
        ask(session, what, run=run, **more)
    assert len(made) == 1
    ask(session, "run", run={**run, "text": "two one"})
    assert len(made) == 2


def test_kept_are_those_used_last():
    kept: LRUCache[str] = LRUCache(3, n_bytes=10, size=len)
    for key in "abc":
        assert kept.get(key, lambda key=key: key) == key
    kept.get("a", lambda: "not again")
    kept.get("d", lambda: "d")
    assert kept.get("a", lambda: "lost") == "a"
    assert kept.get("b", lambda: "lost") == "lost"
    assert kept.get("long", lambda: "x" * 20) == "x" * 20  # The newest stays, alone.
    assert kept.get("a", lambda: "gone") == "gone"


def test_a_text_too_long_to_keep_is_refused(monkeypatch):
    model = Model(Transformer(c.ModelConfig(decoder=stack())).eval(), TOKENIZER)
    run = RunRequest(text=" ".join(["one"] * 300))
    Passes(model, None, []).get(run)
    monkeypatch.setattr(passes, "REPLY_BYTES", 1 << 18)
    with pytest.raises(UserError, match=r"text: expected one whose attention fits into .* got 300 tokens"):
        Passes(model, None, []).get(run)


def test_runs_patched_from_runs_end_somewhere():
    run: dict[str, Any] = {"text": "one two", "target": None, "edits": []}
    for _ in range(passes.DEPTH):
        run = {"text": "one two", "target": None, "edits": [{"at": "decoder.embed.sum", "do": "patch", "from": run}]}
    with pytest.raises(UserError, match="patched from at most 8 others in a row"):
        ask(session_of("decoder_pre_learned"), "run", run=run)
    ask(session_of("decoder_pre_learned"), "run", run=run["edits"][0]["from"])


def test_an_edit_begins_at_the_pass_of_the_same_tokens_that_shares_most(monkeypatch):
    made: list[tuple[Any, set[str]] | None] = []
    monkeypatch.setattr(
        passes, "observe", lambda *given, **named: made.append(named["before"]) or observe(*given, **named)
    )
    known = Passes(model_of(CONFIGS["decoder_pre_learned"]), None, [])
    off = [{"at": f"decoder.blocks.1.attn.z[h={h}]", "do": "zero"} for h in range(2)]
    scaled = {"at": "decoder.blocks.0.ffn.out", "do": "scale", "value": 2}
    asked = [("one two", []), ("two one", []), ("one two", off[:1]), ("one two", off), ("one two", [*off, scaled])]
    asked.append(("one two", off[1:]))
    found = [known.get(RunRequest.model_validate({"text": text, "edits": edits})) for text, edits in asked]
    z, out = "decoder.blocks.1.attn.z", "decoder.blocks.0.ffn.out"
    shared = [(found[i].recording, {path}) for i, path in ((0, z), (2, z), (3, out), (3, z))]
    assert made == [None, None, *shared]


def test_a_text_that_is_too_long_is_refused_before_its_tokens_are_shown(monkeypatch):
    monkeypatch.setattr(Tokenizer, "offsets", lambda *_: pytest.fail("too late"))
    with pytest.raises(UserError, match="text: expected one whose attention fits into"):
        Passes(endless_model(), None, ()).get(RunRequest(text="ab " * 30_000))
