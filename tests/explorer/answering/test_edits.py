"""Edits as a page states them do what they say, in order, and are refused in one line where they cannot."""

from typing import Any

import pytest
import torch

from clearhead.errors import UserError
from clearhead.explorer.answering.edits import ResolvedEdit, Window, functions, resolve
from clearhead.explorer.answering.questions import EditRequest, RunRequest, checked
from clearhead.trace import Address
from tests.explorer.asking import ask, session_of, start

AXES = {"decoder.blocks.0.attn.z": "b h t k", "decoder.blocks.0.attn.weights": "b h t s", "head.logits": "b v"}
Z, W = "decoder.blocks.0.attn.z", "decoder.blocks.0.attn.weights"
VALUE = torch.arange(24.0).view(1, 2, 3, 4)


def edit(at: str, do: str, **fields: Any) -> EditRequest:
    return checked(EditRequest, {"at": at, "do": do, **fields})


def none(run: RunRequest, address: str) -> torch.Tensor:
    raise AssertionError((run, address))


def made(*edits: EditRequest, value: torch.Tensor = VALUE, window: Window | None = None) -> torch.Tensor:
    found = functions(resolve(edits, AXES), none, window)
    assert len(found) == 1
    return next(iter(found.values()))(value)


def test_each_kind():
    assert made(edit(f"{Z}[h=1]", "zero"))[0, 1].eq(0).all()
    assert torch.equal(made(edit(f"{Z}[h=1]", "zero"))[0, 0], VALUE[0, 0])
    assert torch.equal(made(edit(f"{Z}[h=1]", "mean"))[0, 1], VALUE[0, 1].mean(0).expand(3, 4))
    assert torch.equal(made(edit(f"{W}[h=1,t=2]", "mean"))[0, 1, 2], VALUE[0, 1, 2].mean().expand(4))
    assert torch.equal(made(edit(f"{Z}[t=0]", "set", value=[1, 2, 3, 4]))[0, :, 0], torch.tensor([[1.0, 2, 3, 4]] * 2))
    assert made(edit(f"{Z}[h=0,t=1,k=2]", "set", value=9))[0, 0, 1, 2] == 9
    assert torch.equal(made(edit(Z, "scale", value=-0.5)), VALUE * -0.5)
    assert made(edit(f"{W}[s=0]", "close"))[..., 0].isneginf().all()
    assert torch.equal(VALUE, torch.arange(24.0).view(1, 2, 3, 4))  # The network's own value is left alone.


def test_edits_of_one_value_are_made_in_order():
    edits = [edit(f"{Z}[h=0]", "set", value=1), edit(Z, "scale", value=3), edit(f"{Z}[h=0]", "scale", value=2)]
    assert made(*edits)[0, 0].eq(6).all()
    assert made(*edits[::-1])[0, 0].eq(1).all()
    assert torch.equal(made(*edits)[0, 1], VALUE[0, 1] * 3)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (edit("decoder.blocks.0.attn.zz", "zero"), "expected an address of this model, got another; did you mean"),
        (edit(f"{Z}[s=0]", "zero"), "axis 's' is not one of 'h t k'"),
        (edit(f"{Z}[b=0]", "zero"), "axis 'b' is not one of 'h t k'"),
        (edit(f"{Z}[h=2]", "zero"), "h=2 is outside 0..1"),
        (edit(f"{Z}[h=0]", "set", value=[1, 2]), r"expected an edit of shape \[3, 4\], got \[2\]; try a number"),
        (edit(f"{Z}[t=0]", "mean"), "expected positions to take the mean over"),
        (edit("head.logits", "mean"), "expected positions to take the mean over"),
        (edit("head.logits[", "zero"), "expected an address such as"),
    ],
)
def test_what_cannot_be_is_refused(one: EditRequest, message: str):
    with pytest.raises(UserError, match=message):
        made(one)


def test_a_patch_is_the_value_of_another_run():
    session, at = session_of("decoder_pre_learned"), f"{Z}[h=2]"
    run = start(session)
    other = {**run, "text": "six five four three two one"}
    patched = {**run, "edits": [{"at": at, "do": "patch", "from": other}]}
    theirs = ask(session, "values", run=other, at=[at])[1][at]
    assert torch.equal(ask(session, "values", run=patched, at=[at])[1][at], theirs)
    shorter = {**run, "edits": [{"at": at, "do": "patch", "from": {**run, "text": "one two"}}]}
    with pytest.raises(UserError, match=r"expected an edit of shape \[6, 4\], got \[2, 4\]"):
        ask(session, "run", run=shorter)


@pytest.mark.parametrize(
    ("at", "do", "waits"),
    [
        ("encoder.blocks.0.attn.z", "mean", True),
        (f"{Z}[h=0]", "zero", True),
        (f"{Z}[t=5]", "zero", True),
        (f"{Z}[t=-1]", "zero", False),
        (f"{Z}[h=0]", "mean", False),
        (f"{Z}[h=0]", "row", True),
        (f"{W}[h=0,t=3]", "row", False),
        ("decoder.blocks.0.cross.weights[h=0,t=3]", "row", True),
        ("decoder.blocks.0.cross.v[h=0]", "mean", True),
        ("decoder.blocks.0.cross.v[h=0]", "patch", True),
        (f"{Z}[h=0]", "patch", False),
        (f"{Z}[h=0,t=1]", "patch", True),
    ],
)
def test_which_edits_can_be_made_while_a_decoder_writes(at: str, do: str, waits: bool):
    axes = "b h s k" if at.endswith("v[h=0]") else "b h t s" if "weights" in at else "b h t k"
    fields: dict[str, Any] = {"row": {"value": [1.0]}, "patch": {"from": {"text": "a"}}}.get(do, {})
    assert ResolvedEdit(Address.parse(at), axes, edit(at, "set" if do == "row" else do, **fields)).waits == waits


def test_an_edit_waits_for_its_position():
    one, window = edit(f"{Z}[t=2]", "zero"), Window()
    now = VALUE[:, :, :1]
    for start_, touched in ((0, False), (1, False), (2, True), (3, False)):
        window.start = start_
        assert made(one, value=now, window=window).eq(0).all() == touched
    key = edit(f"{W}[s=2]", "set", value=7)
    window.start = 3
    assert made(key, value=torch.zeros(1, 2, 1, 4), window=window)[..., 2].eq(7).all()  # All keys are there,
    window.start = 1
    assert made(key, value=torch.zeros(1, 2, 1, 2), window=window).eq(0).all()  # or not yet,
    for start_, position, touched in ((1, 1, True), (1, 0, False), (3, 3, True), (3, 2, False)):
        window.start = start_
        key = edit(f"{W}[s={position}]", "set", value=7)
        assert made(key, value=torch.zeros(1, 2, 1, 1), window=window).eq(7).all() == touched  # or the new one alone.
