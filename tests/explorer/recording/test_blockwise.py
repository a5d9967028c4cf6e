"""A pass that keeps only the inputs of blocks has the values of one that keeps all, in any windows, after any edit."""

import pytest
import torch
from torch import Tensor

from clearhead.analysis.passes import Part, part_of
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.recording import blockwise
from clearhead.explorer.recording import recording as recorded
from clearhead.explorer.recording.blockwise import Blockwise
from clearhead.explorer.recording.recording import Recording, recompute
from clearhead.explorer.recording.tokens import ReadInput, read
from clearhead.model import attention
from clearhead.model.mode import Evaluating
from clearhead.trace import Address, Edit, zero
from tests.explorer.traced import CONFIGS, inputs, model_of, observed

Values = dict[str, Tensor]


def traced(model: Model, reading: ReadInput, edit: dict[str, Edit]) -> Values:
    """What a trace of the whole network sees."""
    with Evaluating(model.network), torch.no_grad(), model.tracing(edit) as seen:
        model.network(*reading.inputs)
    by_hand = {Address.parse(at).path for at in edit}
    left_out = [at for at in seen if at.endswith((".masked", ".heads")) and at not in by_hand]
    return {at: seen[at][0] for at in seen if at not in left_out}


def both(name: str, edit: dict[str, Edit] | None = None, text: str | None = None) -> tuple[Values, Recording]:
    model, (first, other) = model_of(CONFIGS[name]), inputs(CONFIGS[name])
    reading, edit = read(model, first if text is None else text, other), edit or {}
    return traced(model, reading, edit), observed(model, reading, edit)


def check_equal(whole: Values, lazy: Recording) -> None:
    assert [at for at in lazy.tensors if not at.endswith("embed.pixels")] == list(whole)
    for at, value in whole.items():
        assert lazy.facts[at].shape == value.shape
        torch.testing.assert_close(lazy.value(at), value, rtol=1e-5, atol=1e-5)
    if lazy.output is not None:
        torch.testing.assert_close(lazy.output.values, whole["head.logits"].topk(lazy.output.values.shape[1])[0])
    shares = {at for at in whole if at.endswith(".weights")}
    assert lazy.is_long or {at.rpartition(".")[0] for at in lazy.pixels} == shares


@pytest.mark.parametrize("name", CONFIGS)
def test_the_values_are_those_that_a_trace_sees(name: str):
    check_equal(*both(name))


@pytest.mark.parametrize("name", CONFIGS)
def test_windows_of_rows_make_the_same_values(name: str, monkeypatch):
    monkeypatch.setattr(blockwise, "CELLS", 50)
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 2)
    for most in (0, 1 << 20):
        monkeypatch.setattr(recorded, "MOST_PIXELS", most)
        whole, lazy = both(name)
        assert lazy.is_long == (most == 0)
        check_equal(whole, lazy)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_edit_computes_what_follows_from_it(name: str, monkeypatch):
    """From the first part whose edits differ on; the result is that of a whole pass, bit for bit."""
    model, (first, other) = model_of(CONFIGS[name]), inputs(CONFIGS[name])
    reading, stacks = read(model, first, other), list(CONFIGS[name].stacks)
    made: list[Part] = []
    forward = Blockwise._forward
    monkeypatch.setattr(Blockwise, "_forward", lambda self, part: made.append(part) or forward(self, part))
    one: dict[str, Edit] = {f"{stacks[0]}.blocks.0.ffn.out": zero}
    two: dict[str, Edit] = {f"{stacks[-1]}.blocks.1.attn.weights[h=1]": 0.1}
    before, every, last = observed(model, reading), made.copy(), dict[str, Edit]()
    later: list[dict[str, Edit]] = [{f"{stacks[-1]}.blocks.1.resid_post": 0.5}, {"head.logits": 1.0}, {}]
    for edit in (one, one | two, two, *later):
        if "head.logits" in edit and "head.logits" not in before.facts:
            continue
        made.clear()
        paths = {Address.parse(at).path for at in {*edit, *last} if edit.get(at) != last.get(at)}
        before, last = observed(model, reading, edit, (before, paths)), edit
        assert made == every[min(every.index(part_of(model.network, path)) for path in paths) :]
        again = observed(model, reading, edit)
        assert all(torch.equal(again.value(at), before.value(at)) for at in again.facts)
        assert again.facts == before.facts
        assert again.pixels.keys() == before.pixels.keys()
        check_equal(traced(model, reading, edit), before)


@pytest.mark.parametrize("cells", [50, 1 << 22])
def test_a_part_of_a_value(cells: int, monkeypatch):
    monkeypatch.setattr(blockwise, "CELLS", cells)
    whole, lazy = both("decoder_rotary_grouped")
    for at in (
        "attn.weights[h=2,t=4]",
        "attn.weights[h=1]",
        "attn.scores[t=-1,s=2]",
        "attn.k[h=1,s=3]",
        "ffn.pre[t=3]",
    ):
        address = f"decoder.blocks.1.{at}"
        where = Address.parse(address)
        part = where.of(whole[where.path], lazy.facts[where.path].axes)
        torch.testing.assert_close(lazy.value(address), part, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"t=6 is outside 0\.\.5"):
        lazy.value("decoder.blocks.1.attn.weights[t=6]")


@pytest.mark.parametrize("cells", [50, 1 << 22])
def test_edits(cells: int, monkeypatch):
    monkeypatch.setattr(blockwise, "CELLS", cells)

    def close(scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[..., 3, 1] = float("-inf")
        return scores

    edit: dict[str, Edit] = {
        "decoder.blocks.0.attn.z[h=1]": zero,
        "decoder.blocks.1.attn.masked": close,
        "decoder.blocks.1.cross.heads[h=0]": zero,
        "encoder.blocks.1.resid_post[t=2]": 0.5,
    }
    whole, lazy = both("encoder_decoder_relative", edit)
    check_equal(whole, lazy)
    if cells > 50:
        assert recompute(lazy).recompute_max_abs < 1e-4


def test_little_is_kept_and_edits_of_long_texts_are_refused(monkeypatch):
    monkeypatch.setattr(blockwise, "CELLS", 1 << 12)
    monkeypatch.setattr(blockwise, "KEPT_BYTES", 1 << 16)
    monkeypatch.setattr(blockwise, "EDITED_CELLS", 1 << 16)
    text = "one two three four " * 50
    whole, lazy = both("decoder_rotary_grouped", text=text)
    assert lazy.tensors.nbytes < sum(value.nbytes for value in whole.values()) / 10
    with pytest.raises(UserError, match=r"attn\.z: expected at most 81 tokens for an edit here, got 201; cut the text"):
        both("decoder_rotary_grouped", {"decoder.blocks.0.attn.z": zero}, text)
