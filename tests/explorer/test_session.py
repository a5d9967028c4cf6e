"""Every number of every reply is the one that the library gives from Python."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.session import HANDLERS, Session
from clearhead.model import Transformer
from clearhead.trace import Edit, zero
from tests.explorer.asking import ask, from_pixels, last, session_of, start
from tests.explorer.traced import CONFIGS, TOKENIZER, WORDS, inputs, model_of, stack


def edited(name: str) -> tuple[list[dict[str, Any]], dict[str, Edit]]:
    """The same edits as a page and as Python state them."""
    at = f"{last(name)}.blocks"
    page = [
        {"at": f"{at}.0.attn.z[h=1]", "do": "zero"},
        {"at": f"{at}.0.attn.masked[h=0,t=2,s=0]", "do": "close"},
        {"at": f"{at}.1.attn.weights[h=2,t=1]", "do": "set", "value": 0.25},
        {"at": f"{at}.1.ffn.pre[f=3]", "do": "scale", "value": -2},
    ]
    python: dict[str, Edit] = {
        f"{at}.0.attn.z[h=1]": zero,
        f"{at}.0.attn.masked[h=0,t=2,s=0]": float("-inf"),
        f"{at}.1.attn.weights[h=2,t=1]": 0.25,
        f"{at}.1.ffn.pre[f=3]": lambda value: value * -2,
    }
    return page, python


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "edited"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_and_its_values_are_those_of_a_trace(name: str, plain: bool) -> None:
    session = session_of(name)
    page, python = ([], {}) if plain else edited(name)
    run = {**start(session), "edits": page}
    seen, logits = session.model.trace(*inputs(CONFIGS[name]), edit=python)
    reply, tensors = ask(session, "run", run=run)
    by_hand = {address.split("[")[0] for address in python}
    assert {a for a, fact in reply["facts"].items() if fact.get("by_hand")} == by_hand
    assert (
        set(reply["facts"]) - by_hand - {"encoder.embed.pixels"}
        == {a for a in seen if not a.endswith(".masked")} - by_hand
    )
    _, values = ask(session, "values", run=run, at=list(reply["facts"]), dtype="float32")
    for address, fact in reply["facts"].items():
        assert list(values[address].shape) == fact["shape"]
        if address in seen:
            expected = seen[address][0]
            torch.testing.assert_close(
                values[address], expected.masked_fill(expected.isneginf(), torch.nan), equal_nan=True
            )
        if address.endswith(".weights"):
            pixels = from_pixels(tensors[f"{address}.u8"], tensors[f"{address}.max"])
            assert float((pixels - values[address]).abs().max()) <= float(values[address].max()) / 500
    head = CONFIGS[name].head
    if isinstance(head, c.LanguageHead):
        ids, k = tensors["output.ids"].long(), min(20, logits.shape[-1])
        assert ids.shape == (len(logits), k)
        torch.testing.assert_close(tensors["output.values"], logits.gather(-1, ids))
        torch.testing.assert_close(tensors["output.lse"], logits.logsumexp(-1))
        assert reply["words"] == {str(i): TOKENIZER.tokens([i])[0] for i in ids.unique().tolist()}
    elif not isinstance(head, c.NoHead):
        torch.testing.assert_close(tensors["output.logits"], logits)


def test_weights_are_the_parameters() -> None:
    session = session_of("encoder_decoder_post")
    network = session.model.network
    names = ["encoder.blocks.0.attn.q.bias", "decoder.embed.tokens.weight", "head.output.weight"]
    reply, tensors = ask(session, "weights", at=[*names, "decoder.blocks.1.ffn.up.weight[i=3]"])
    for name in names:
        assert torch.equal(tensors[name], network.get_parameter(name))
        assert reply["shapes"][name] == list(network.get_parameter(name).shape)
    assert torch.equal(
        tensors["decoder.blocks.1.ffn.up.weight[i=3]"], network.get_parameter("decoder.blocks.1.ffn.up.weight")[3]
    )
    for at, message in (
        ("encoder.blocks.0.attn.q.bia", "did you mean encoder.blocks.0.attn.q.bias"),
        ("encoder.blocks.0.attn.q.bias[i=16]", "from i=0 to i=15"),
        ("encoder.blocks.0.attn.q.bias[j=1]", "no index, or one row"),
    ):
        with pytest.raises(UserError, match=message):
            ask(session, "weights", at=[at])


def test_values_of_half_the_width_and_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("decoder_pre_learned")
    run, at = start(session), "decoder.blocks.0.attn.weights[h=1,t=2]"
    reply, tensors = ask(session, "values", run=run, at=[at], dtype="float16")
    assert tensors[at].dtype == torch.float16
    assert reply["shapes"] == {at: [6]}
    with pytest.raises(UserError, match="got one that is not stored but made by mask"):
        ask(session, "values", run=run, at=["decoder.blocks.0.attn.masked"])
    big = [{"at": "decoder.blocks.1.ffn.out", "do": "set", "value": 1e6}]
    with pytest.raises(UserError, match="float16: expected numbers up to 65504"):
        ask(session, "values", run={**run, "edits": big}, at=["decoder.blocks.1.ffn.out"], dtype="float16")
    monkeypatch.setattr("clearhead.explorer.answering.questions.REPLY_BYTES", 100)
    with pytest.raises(UserError, match=r"reply: expected at most .* ask for fewer"):
        ask(session, "values", run=run, at=["decoder.blocks.0.resid_pre"])


# --- about ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_about_says_what_the_model_is(name: str) -> None:
    session, config = session_of(name), CONFIGS[name]
    about, _ = ask(session, "about")
    assert c.ModelConfig.model_validate(about["plan"]["config"]) == config
    assert about["parameters"] == sum(p.numel() for p in session.model.network.parameters())
    kinds = {"encoder_decoder": "encoder-decoder", "decoder": "decoder", "encoder": "encoder", "vision": "image"}
    assert about["kind"] == next(kind for prefix, kind in kinds.items() if name.startswith(prefix))
    assert set(about["limits"]) == {s for s in ("encoder", "decoder") if dict(config)[s] is not None}
    assert about["answers"] == [ask for ask in HANDLERS if ask not in ("examples", "difference", "propose", "prompts")]
    assert about["history"] == about["losses"] == []
    assert about["step"] is None
    ask(session, "run", run=about["start"])


def test_about_of_a_model_without_a_tokenizer() -> None:
    config = c.ModelConfig(decoder=stack(input=WORDS, positions=c.Learned(max_length=4)))
    session = Session(Model(Transformer(config).eval()), name="bare")
    about, _ = ask(session, "about")
    assert (about["has_tokenizer"], about["limits"]) == (False, {"decoder": 4})
    run = {"text": "5 17 3", "target": None, "edits": []}
    reply, tensors = ask(session, "run", run=run)
    assert [(t["id"], t["text"], t["span"]) for t in reply["tokens"]["decoder"]] == [
        (5, "5", [0, 1]), (17, "17", [2, 4]), (3, "3", [5, 6]),
    ]  # fmt: skip
    assert reply["notes"] == ["This model has no tokenizer: texts are the numbers of tokens, such as 5 17 3."]
    expected = session.model.network(torch.tensor([[5, 17, 3]]))[0]
    torch.testing.assert_close(tensors["output.values"][:, 0], expected.max(-1).values)
    ask(session, "generate", run=run, settings={"max_new_tokens": 1})
    for text, message in (
        ("1 2 3 4 5", "positions end at 4"),
        ("1 x", "expected numbers of tokens such as 5 17 3, got 'x'"),
        ("", "expected numbers of tokens such as 5 17 3, got none"),
        ("1 99", "expected ids below"),
    ):
        with pytest.raises(UserError, match=message):
            ask(session, "run", run={**run, "text": text})
    with pytest.raises(UserError, match="tokenizer: expected one with the model"):
        ask(session, "tokenize", text="a")


@pytest.mark.parametrize("head", [c.ClassificationHead(n_labels=2), c.VectorHead(), c.LanguageHead()])
@pytest.mark.parametrize("text", ["3 1 2", "3 ² 1"])
def test_what_a_model_of_numbers_does_is_asked_of_those_that_write(head: c.Head, text: str) -> None:
    """Four rows of numbers are written to find one that sorts."""
    config = c.ModelConfig(decoder=stack(input=WORDS), head=head)
    about, _ = ask(Session(Model(Transformer(config).eval()), name="bare", text=text), "about")
    assert about["task"] is None


def test_labels_and_what_is_asked_are_told() -> None:
    config = c.ModelConfig(encoder=stack(), head=c.ClassificationHead(n_labels=2, labels=("bad", "good")))
    session = Session(model_of(config), name="labels", text="one two")
    assert ask(session, "about")[0]["labels"] == ["bad", "good"]
    assert set(ask(session, "lens", run=start(session), k=2)[0]["words"].values()) == {"bad", "good"}
    with pytest.raises(UserError, match="ask: expected one of about, run, values"):
        session.answer({"ask": "abuot"})
    with pytest.raises(UserError, match=r"run\.txt: expected no such field"):
        session.answer({"ask": "run", "run": {"text": "one", "txt": 1}})


def test_the_overview_of_twelve_by_twelve_heads_fits_its_budget() -> None:
    torch.manual_seed(0)
    decoder = stack(n_layers=12, n_heads=12, d_model=24, positions=c.Learned(max_length=64))
    session = Session(Model(Transformer(c.ModelConfig(decoder=decoder)).eval(), TOKENIZER), name="wide")
    run: dict[str, Any] = {"text": " ".join(["one"] * 64), "target": None, "edits": []}
    size = len(session.answer({"ask": "run", "run": run}))
    assert 12 * 12 * 64 * 64 < size <= 700_000


def save(model: Model, folder: Path, step: int) -> None:
    from clearhead.api.folders import own_files
    from clearhead.storage import checkpoints

    files = own_files(model.network, model.generation)
    checkpoints.save(folder, step, checkpoints.Checkpoint(files.tensors, files.json, model.tokenizer_files()))


def test_a_pass_may_read_what_another_wrote() -> None:
    session = session_of("encoder_decoder_post")
    run = {**start(session), "target": None}
    plain, tensors = ask(session, "run", run=run)
    written = [token["id"] for token in plain["tokens"]["decoder"]][1:]
    _, same = ask(session, "run", run={**run, "target": "anything", "written": written})
    assert torch.equal(same["output.values"], tensors["output.values"])
    with pytest.raises(UserError, match="expected none, because this model reads one text"):
        ask(session_of("decoder_pre_learned"), "run", run={**start(session_of("decoder_pre_learned")), "written": [1]})
