"""Whatever JSON a session is asked, it answers or says in one line what is wrong."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.errors import UserError
from clearhead.explorer.answering.questions import RunRequest, checked
from clearhead.explorer.answering.values import ValuesQuestion
from tests.explorer.asking import GENERATE, last, session_of, start

NAMES = [
    "encoder_decoder_relative",
    "decoder_alibi_capped",
    "decoder_pre_learned",
    "encoder_tagger_no_first_norm",
    "vision",
]
TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "one two",
        "one",
        " ",
        "example:0",
        "example:9",
        "data:image/png;base64,",
        "data:image/png;base64,AAAA",
        "\ud800",
        "5 17",
    ]
)
ADDRESSES = st.sampled_from(
    [
        "decoder.blocks.0.attn.z[h=2]", "encoder.blocks.0.attn.z[h=2,t=1]", "decoder.blocks.1.attn.weights[s=1]",
        "decoder.blocks.0.attn.masked", "encoder.blocks.0.attn.masked[t=0]", "decoder.blocks.0.cross.k[h=1]",
        "encoder.embed.sum[t=-1]", "decoder.embed.positions[d=3]", "decoder.blocks.0.ffn.post[f=7]", "a[b=0]",
        "decoder.blocks.1.attn.q.weight[i=3]", "encoder.blocks.0.attn_norm.rstd", "decoder.final_norm.out", "[h=1]",
        "a.b", "head.logits", "head.logits[b=0]",
    ]
)  # fmt: skip
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 2**31, 1e38, -1e38, 10**400])
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS | ADDRESSES
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)
EDITS = st.fixed_dictionaries(
    {"at": ADDRESSES, "do": st.sampled_from(["zero", "mean", "set", "scale", "close", "patch"])},
    optional={"value": NUMBERS | st.lists(NUMBERS, max_size=4), "from": st.just({"text": "two one", "target": None})},
)


def questions(name: str) -> list[dict[str, Any]]:
    """One of each kind."""
    run, at = start(session_of(name)), f"{last(name)}.blocks.0"
    return [
        {"ask": "about"},
        {"ask": "run", "run": {**run, "change": {"scale": False, "positions": "none"}}},
        {"ask": "values", "run": run, "at": [f"{at}.attn.z[h=2]"], "dtype": "float16"},
        {"ask": "weights", "at": [f"{at}.ffn.up.weight[i=3]"], "step": None},
        {"ask": "check", "run": {**run, "target": None}},
        {"ask": "tokenize", "text": "one two", "target": False},
        {"ask": "effects", "run": run, "at": [f"{at}.attn.z[h=2]", f"{at}.ffn.post[f=3]"], "position": 1},
        {"ask": "statistics", "run": run, "at": [f"{at}.attn.weights"]},
        {"ask": "lens", "run": run, "k": 5},
        {"ask": "attribution", "run": run, "position": 1, "logit": 2, "minus": 3},
        {"ask": "qk", "run": run, "at": f"{at}.attn.scores[h=2,t=1,s=0]", "k": 3},
        {"ask": "ov", "run": run, "at": f"{at}.attn.weights[h=2,t=1,s=0]", "logit": 2, "minus": 3},
        {"ask": "patching", "clean": run, "corrupt": run, "answer": 1, "minus": 2, "at": [f"{at}.resid_pre"]},
        {"ask": "neighbours", "run": run, "stack": last(name), "of": {"at": f"{at}.resid_pre[t=1]"}, "k": 3},
        {"ask": "generate", "run": {**run, "target": None}, "settings": dict(GENERATE)},
    ]


def answered(name: str, question: Any) -> None:
    said = ""
    try:
        session_of(name).answer(question)
    except UserError as error:
        said = str(error)
    assert said == "" or said.isprintable()
    assert len(said) < 1500


@pytest.mark.parametrize("name", NAMES)
def test_each_question_is_answered_or_refused(name: str):
    for question in questions(name):
        answered(name, question)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(["ask", "run", "at", "text", "k", "of"]), ANY) | ANY)
def test_any_json(name: str, question: Any):
    answered(name, question)


@FUZZ
@given(st.data())
def test_questions_with_a_field_changed(data: st.DataObject):
    name = data.draw(st.sampled_from(NAMES))
    question = copy.deepcopy(data.draw(st.sampled_from(questions(name))))
    for _ in range(data.draw(st.integers(1, 2))):
        at: Any = question
        while True:
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
                at = at[key]
                continue
            break
        if isinstance(at, dict) and data.draw(st.integers(0, 4)) == 0:
            del at[key]
        else:
            at[key] = data.draw(ANY if key != "at" else st.lists(ADDRESSES, max_size=3))
        if not isinstance(question, dict) or not question:
            break
    answered(name, question)


@FUZZ
@given(
    st.sampled_from(NAMES),
    st.lists(EDITS, min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 11),
    st.integers(0, 3),
)
def test_any_edits(name: str, edits: list[dict[str, Any]], writes: bool, which: int, temperature: int):
    question = questions(name)[which]
    if "run" in question:
        target = None if writes else question["run"]["target"]
        question = {**question, "run": {**question["run"], "edits": edits, "target": target}}
    if "settings" in question:
        question = {**question, "settings": {**GENERATE, "temperature": temperature}}
    answered(name, question)


def test_what_is_nested_too_deep_is_refused():
    run: dict[str, Any] = {"text": "one two"}
    for _ in range(400):
        run = {"text": "one two", "edits": [{"at": "decoder.embed.sum", "do": "patch", "from": run}]}
    with pytest.raises(UserError):
        session_of("decoder_alibi_capped").answer({"ask": "run", "run": run})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": 1}, r"run\.text: expected a valid string, got 1"),
        ({"edits": [{"at": "a", "do": "cut"}]}, r"run\.edits\.0\.do: expected 'zero', .* got 'cut'"),
        ({"edits": [{"at": "a", "do": "set"}]}, r"run\.edits\.0: set needs value"),
        ({"edits": [{"at": "a", "do": "scale", "value": [1]}]}, r"run\.edits\.0: scale needs value, a number"),
        ({"edits": [{"at": "a", "do": "patch"}]}, r"run\.edits\.0: patch needs from"),
        ({"change": {"scale": 0}}, r"run\.change\.scale: expected a valid boolean, got 0"),
        ({"step": -2}, r"run\.step"),
    ],
)
def test_the_field_is_named(change: dict[str, Any], message: str):
    run = {"text": "one two", "target": None, "edits": [], **change}
    with pytest.raises(UserError, match=message):
        session_of("decoder_alibi_capped").answer({"ask": "run", "run": run})


def test_a_missing_field_is_named():
    with pytest.raises(UserError, match="at: expected a value, got none"):
        checked(ValuesQuestion, {"run": {"text": "one"}})


def test_equal_requests_have_equal_keys():
    short, whole = {"text": "a"}, {"text": "a", "target": None, "image": None, "step": None, "edits": [], "change": {}}
    one, two = (checked(RunRequest, json.loads(json.dumps(run))) for run in (short, whole))
    assert one.key == two.key
    assert one.key != checked(RunRequest, {"text": "b"}).key
