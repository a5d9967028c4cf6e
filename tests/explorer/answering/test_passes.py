"""Passes are made once, kept while there is room, and refused where they would be too large."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering import passes
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.recording import observe, recompute
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.asking import ask, session_of
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of, stack
from tests.serve.tiny import endless_model


def test_a_pass_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(model_of(CONFIGS["decoder_pre_learned"]), name="once", text="one two")
    made: list[int] = []
    monkeypatch.setattr(passes, "observe", lambda *given, **named: made.append(1) or observe(*given, **named))
    run = {"text": "one two", "target": None, "edits": []}
    for what, more in (("run", {}), ("values", {"at": ["head.logits"]}), ("check", {}), ("lens", {"k": 2})):
        ask(session, what, run=run, **more)
    assert len(made) == 1
    ask(session, "run", run={**run, "text": "two one"})
    assert len(made) == 2


def test_kept_are_those_used_last() -> None:
    kept: LRUCache[str] = LRUCache(3, n_bytes=10, size=len)
    for key in "abc":
        assert kept.get(key, lambda key=key: key) == key
    kept.get("a", lambda: "not again")
    kept.get("d", lambda: "d")
    assert kept.get("a", lambda: "lost") == "a"
    assert kept.get("b", lambda: "lost") == "lost"
    assert kept.get("long", lambda: "x" * 20) == "x" * 20  # The newest stays, alone.
    assert kept.get("a", lambda: "gone") == "gone"


def test_a_text_too_long_to_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(Transformer(c.ModelConfig(decoder=stack())).eval(), TOKENIZER)
    run = RunRequest(text=" ".join(["one"] * 300))
    Passes(model, None, []).get(run)
    monkeypatch.setattr(passes, "MOST_BYTES", 1 << 20)
    with pytest.raises(UserError, match=r"text: expected one whose values fit into .* got 300 tokens"):
        Passes(model, None, []).get(run)


def test_runs_patched_from_runs_end_somewhere() -> None:
    run: dict[str, Any] = {"text": "one two", "target": None, "edits": []}
    for _ in range(passes.DEPTH):
        run = {"text": "one two", "target": None, "edits": [{"at": "decoder.embed.sum", "do": "patch", "from": run}]}
    with pytest.raises(UserError, match="patched from at most 8 others in a row"):
        ask(session_of("decoder_pre_learned"), "run", run=run)
    ask(session_of("decoder_pre_learned"), "run", run=run["edits"][0]["from"])


@pytest.mark.parametrize("name", ["decoder_rotary_grouped", "encoder_decoder_post", "encoder_classifier"])
def test_of_a_large_model_heads_are_made_again_and_all_is_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a page asks for says which it was; an edit of a head is made all the same."""
    model = model_of(CONFIGS[name])
    stack_name = "encoder" if model.config.decoder is None else "decoder"
    at = f"{stack_name}.blocks.0.attn.heads"
    for edits in ([], [{"at": f"{at}[h=1]", "do": "zero"}]):
        run = RunRequest.model_validate({"text": "one two three", "edits": edits})
        whole = Passes(model, None, []).get(run).recording
        with monkeypatch.context() as patch:
            patch.setattr(passes, "LARGE", 1)
            lean = Passes(model, None, []).get(run).recording
        kept = {a for a in lean.tensors if a.endswith(".heads")}
        assert kept == ({at} if edits else set())
        assert lean.facts == whole.facts
        for address in whole.tensors:
            torch.testing.assert_close(lean.value(address), whole.value(address), rtol=1e-5, atol=1e-5)
        assert recompute(lean).recompute_max_abs < 1e-5


def test_a_text_that_is_too_long_is_refused_before_its_tokens_are_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Tokenizer, "offsets", lambda *_: pytest.fail("too late"))
    with pytest.raises(UserError, match="text: expected one whose values fit into"):
        Passes(endless_model(), None, ()).get(RunRequest(text="ab " * 30_000))
