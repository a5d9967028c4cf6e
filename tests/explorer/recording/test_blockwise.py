"""A pass that keeps only the inputs of blocks has the values of one that keeps all, bit for bit, in any windows."""

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.explorer.recording import blockwise
from clearhead.explorer.recording import recording as recorded
from clearhead.explorer.recording.blockwise import Blockwise
from clearhead.explorer.recording.recording import Recording, observe, observe_by_block, recompute
from clearhead.explorer.recording.tokens import read
from clearhead.machine.precision import Arithmetic
from clearhead.trace import Edit, zero
from tests.explorer.traced import CONFIGS, inputs, model_of

TEXTS = [name for name, config in CONFIGS.items() if not isinstance(config.first.input, c.PatchInput)]


def both(name: str, edit: dict[str, Edit] | None = None, text: str | None = None) -> tuple[Recording, Recording]:
    model, (first, other) = model_of(CONFIGS[name]), inputs(CONFIGS[name])
    reading, edit = read(model, text or first, other), edit or {}
    whole = observe(model, reading, edit=edit, likeliest=5, lean=True)
    return whole, observe_by_block(model, reading, edit=edit, likeliest=5, arithmetic=Arithmetic("fp32"))


def check_equal(whole: Recording, lazy: Recording, *, exactly: bool) -> None:
    assert lazy.facts == whole.facts
    off = 0.0 if exactly else 1e-5
    for address in whole.facts:
        torch.testing.assert_close(lazy.value(address), whole.value(address), rtol=off, atol=off)
    assert (lazy.output is None) == (whole.output is None)
    if lazy.output is not None and whole.output is not None:
        torch.testing.assert_close(lazy.output.values, whole.output.values, rtol=off, atol=off)
    pixels = recorded.pixels_of(whole.tensors)
    assert lazy.pixels is not None
    assert pixels.keys() <= lazy.pixels.keys() or not exactly


@pytest.mark.parametrize("name", TEXTS)
def test_the_values_are_those_of_a_pass_that_keeps_all(name: str) -> None:
    check_equal(*both(name), exactly=True)


@pytest.mark.parametrize("name", TEXTS)
def test_windows_of_rows_make_the_same_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[Tensor]] = {}
    monkeypatch.setattr(blockwise, "CELLS", 50)
    monkeypatch.setattr(recorded, "MOST_PIXELS", 0)
    describe = Blockwise._describe

    def spy(self: Blockwise, path: str, value: Tensor, axes: str, windows: list[slice]) -> None:
        seen.setdefault(path, []).append(value)
        describe(self, path, value, axes, windows)

    monkeypatch.setattr(Blockwise, "_describe", spy)
    whole, lazy = both(name)
    assert isinstance(lazy.tensors, Blockwise)
    assert lazy.pixels == {}
    if name not in ("encoder_masked_language", "encoder_states"):
        assert any(len(values) > 1 for values in seen.values())
    check_equal(whole, lazy, exactly=False)
    for path, values in seen.items():
        axes = lazy.facts[path].axes
        axis = blockwise._axis(path, axes)
        at_once = torch.cat(values, axes.split().index(axis)) if axis and len(values) > 1 else values[0]
        assert torch.equal(lazy.tensors[path], at_once)  # What is computed again is what the pass saw.


@pytest.mark.parametrize("cells", [50, 1 << 22])
def test_a_part_of_a_value(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
        torch.testing.assert_close(lazy.value(address), whole.value(address), rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"t=6 is outside 0\.\.5"):
        lazy.value("decoder.blocks.1.attn.weights[t=6]")


@pytest.mark.parametrize("cells", [50, 1 << 22])
def test_edits(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
    check_equal(whole, lazy, exactly=cells > 50)
    if cells > 50:
        assert recompute(lazy).recompute_max_abs < 1e-4


def test_little_is_kept_and_edits_of_long_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "CELLS", 1 << 12)
    monkeypatch.setattr(blockwise, "KEPT_BYTES", 1 << 16)
    monkeypatch.setattr(blockwise, "EDITED_CELLS", 1 << 16)
    text = "one two three four " * 50
    whole, lazy = both("decoder_rotary_grouped", text=text)
    assert lazy.nbytes - sum(one.nbytes for one in (lazy.pixels or {}).values()) < whole.nbytes / 10
    with pytest.raises(UserError, match=r"attn\.z: expected at most 81 tokens for an edit here, got 201; cut the text"):
        both("decoder_rotary_grouped", {"decoder.blocks.0.attn.z": zero}, text)
