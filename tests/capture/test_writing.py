"""A capture holds the numbers of `Model.trace`, and a killed one goes on to equal bytes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model
from clearhead.capture import Captured, capture, texts_in
from clearhead.capture.passes import every_address, needs_explicit, sites_of
from clearhead.capture.texts import shares
from clearhead.errors import UserError
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of

KINDS = ["decoder_rotary_grouped", "decoder_alibi_capped", "encoder_masked_language", "encoder_classifier"]
TEXTS = ["one two three", "four", "", "two two one four three one", "three one", "one", "two four one", "  ", "one two"]
PAIRS = [("one two three", "eins zwei"), ("four", "vier vier drei"), ("", ""), ("two one", "zwei")]
RESID = "*.blocks.*.resid_post"


def decoder() -> Model:
    return model_of(CONFIGS["decoder_rotary_grouped"])


def fixed(model: Model) -> list[str]:
    """Every address of a model whose vectors have one size."""
    found: list[str] = []
    every = every_address(model)
    for address in every:
        wanted = address + ("[s=0]" if {"t", "s"} <= set(every.axes[address].split()) else "")
        try:
            sites_of(model, [wanted], every=every)
            found.append(wanted)
        except UserError:
            assert "r" in every.axes[address].split()  # A table of distances
    return found


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", [*KINDS, "encoder_decoder_relative"])
def test_every_vector_is_the_one_of_a_trace(name: str, tmp_path):
    model = model_of(CONFIGS[name])
    texts: list[Any] = PAIRS if model.is_encoder_decoder else TEXTS
    found = capture(model, texts, fixed(model), tmp_path / "out", shard_bytes=15_000)
    assert len(found.shards) > 1
    assert found.n_texts == len(texts)
    assert len(found.addresses) > 20
    values = {address: (found[address], found.rows(address)) for address in found}
    for row, text in enumerate(texts):
        alone = text if isinstance(text, str) else text[0]
        if not alone.strip():
            assert not (values[found.addresses[-1]][1].text == row).any()
            continue
        seen, _ = model.trace(alone, None if isinstance(text, str) else text[1])
        for address in found:
            captured, rows = values[address]
            mine, value = captured[rows.text == row], seen[address][0]
            axes = [axis for axis in seen.axes[address.partition("[")[0]].split()[1:] if f"[{axis}=" not in address]
            at = next((axis for axis in "ts" if axis in axes), None)
            expected = value[None] if at is None else value.movedim(axes.index(at), 0)
            torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)
            if at is not None:
                assert rows.position[rows.text == row].tolist() == [*range(len(expected))]


def test_reductions_positions_and_tokens(tmp_path):
    model, at = decoder(), "decoder.blocks.1.attn.z[h=2]"
    whole = capture(model, TEXTS, [at], tmp_path / "all")
    rows, value = whole.rows(at), whole[at]
    texts = rows.text.unique().tolist()
    assert texts == [i for i, text in enumerate(TEXTS) if text.strip()]
    assert rows.token[rows.text == 3].tolist() == model.reader.ids([TEXTS[3]])[0]
    each = [value[rows.text == row] for row in texts]
    expected = {
        "first": torch.stack([one[0] for one in each]),
        "last": torch.stack([one[-1] for one in each]),
        "mean": torch.stack([one.mean(0) for one in each]),
        "max": torch.stack([one.amax(0) for one in each]),
    }
    for positions, values in expected.items():
        found = capture(model, TEXTS, [at], tmp_path / positions, positions=positions)
        torch.testing.assert_close(found[at], values)
        assert (found.rows(at).position < 0).all() == (positions in ("mean", "max"))
    chosen = [f"{at[:-1]},t=-1]", f"{at[:-1]},t=2]"]
    found = capture(model, TEXTS, chosen, tmp_path / "chosen", dtype="float16")
    torch.testing.assert_close(found[chosen[0]], expected["last"].half(), atol=1e-3, rtol=1e-3)
    assert found.rows(chosen[1]).text.tolist() == [row for row in texts if len(TEXTS[row].split()) > 2]


def test_a_sample_depends_on_text_and_position_alone(tmp_path):
    model, at, texts = decoder(), "decoder.embed.sum", TEXTS * 40
    whole = capture(model, texts, [at], tmp_path / "all")
    some = capture(model, texts, [at], tmp_path / "some", sample=0.3, seed=5, shard_bytes=700)
    rows, kept = whole.rows(at), some.rows(at)
    chosen = torch.from_numpy(shares(5, rows.text.numpy(), rows.position.numpy()) < 0.3)
    assert 0.2 < chosen.float().mean() < 0.4
    assert torch.equal(kept.text, rows.text[chosen])
    assert torch.equal(kept.position, rows.position[chosen])
    torch.testing.assert_close(some[at], whole[at][chosen])


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


@pytest.fixture
def dies(monkeypatch) -> Callable[[int], None]:
    """Ends the process, as it were, at the n-th call that touches the disk."""
    real, left = {name: getattr(os, name) for name in ("replace", "fsync")}, [-1]

    def failing(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return real[name](*arguments) if name == "replace" else None

        return call

    for name in real:
        monkeypatch.setattr(os, name, failing(name))

    def arm(n: int) -> None:
        left[0] = n

    return arm


def test_a_capture_killed_anywhere_goes_on_to_equal_bytes(tmp_path, dies: Callable[[int], None]):
    model = decoder()

    def begin(folder: Path) -> None:
        capture(model, TEXTS, [RESID.replace("*.", "decoder.", 1)], folder, shard_bytes=900)

    begin(tmp_path / "whole")
    expected, n = bytes_of(tmp_path / "whole"), 0
    assert len(expected) > 5
    while True:
        n += 1
        dies(n)
        try:
            begin(tmp_path / f"{n}")
            break
        except Killed:
            dies(-1)
            begin(tmp_path / f"{n}")
        assert bytes_of(tmp_path / f"{n}") == expected
    assert n > 30
    dies(-1)
    stays = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "whole").iterdir()}
    begin(tmp_path / "whole")
    assert stays == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "whole").iterdir()}


def test_a_capture_of_an_earlier_version_opens_and_goes_on(tmp_path, dies: Callable[[int], None], monkeypatch):
    model, folder = decoder(), tmp_path / "begun"
    dies(20)
    with monkeypatch.context() as earlier:
        earlier.setattr("clearhead.capture.writing.__version__", "0.1.0")
        with pytest.raises(Killed):
            capture(model, TEXTS, [RESID], folder, shard_bytes=900)
    dies(-1)
    found = capture(model, TEXTS, [RESID], folder, shard_bytes=900)
    assert found.about["clearhead"] == "0.1.0"
    assert (found.is_complete, found.n_texts) == (True, len(TEXTS))


def test_another_capture_is_refused(tmp_path):
    model, at, out, new = decoder(), "decoder.blocks.1.resid_post", tmp_path / "out", tmp_path / "new"
    capture(model, TEXTS, [at], out)
    other = model_of(CONFIGS[KINDS[1]])
    for told, call in (
        (
            "expected --dtype float32, as it began, got float16",
            lambda: capture(model, TEXTS, [at], out, dtype="float16"),
        ),
        ("expected the same model, got another", lambda: capture(other, TEXTS, [at], out)),
        ("expected the texts of this capture", lambda: capture(model, [*TEXTS, "one"], [at], out)),
        ("expected --at decoder.blocks.1.resid_post", lambda: capture(model, TEXTS, ["decoder.embed.sum"], out)),
        ("expected a new folder or one of a capture", lambda: capture(model, TEXTS, [at], tmp_path)),
        ("no_such: expected an address of this model", lambda: capture(model, TEXTS, ["no_such"], new)),
        ("--sample: .*less than or equal to 1", lambda: capture(model, TEXTS, [at], new, sample=2)),
        ("expected a folder that clearhead capture wrote", lambda: Captured(tmp_path)),
    ):
        with pytest.raises(UserError, match=told):
            call()
    assert not new.exists()
    (out / "shard-00000.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match=r"shard-00000.safetensors: expected \d+ bytes, got 5"):
        Captured(out).verify()


def test_fast_forms_are_left_only_where_they_hide_a_value():
    model = decoder()
    for fast in (RESID, "*.blocks.0.attn.q", "*.blocks.1.ffn_norm.out", "*.blocks.0.attn.heads"):
        assert not needs_explicit(model, sites_of(model, [fast]))
    for hidden in ("*.blocks.0.attn.weights[s=0]", "*.blocks.1.ffn_norm.rstd"):
        assert needs_explicit(model, sites_of(model, [hidden]))


def test_an_encoder_alone_reads_the_prefix_of_its_model(tmp_path):
    """As `Model.trace` does, which reads the target too."""
    model, at = model_of(CONFIGS["encoder_decoder_post"]), "encoder.blocks.1.resid_post"
    plain = Tokenizer(TOKENIZER.library, {**TOKENIZER.settings, "source_prefix": "four "})
    model = Model(model.network, plain, model.generation)
    found = capture(model, ["one two"], [at], tmp_path / "out")
    torch.testing.assert_close(found[at], model.trace("one two", "eins")[0][at][0], atol=1e-5, rtol=1e-4)


def test_long_texts_are_cut_with_their_marks(tmp_path):
    model, (lines, out) = decoder(), (tmp_path / "lines.txt", tmp_path / "out")
    lines.write_text("one two three four\n\ntwo\n", "utf-8")
    found = capture(model, texts_in(lines), ["decoder.embed.sum"], out, length=3)
    assert found.rows("decoder.embed.sum").text.tolist() == [0, 0, 0, 2]
    assert found.facts(found.shards[0])["cut"] == 1
