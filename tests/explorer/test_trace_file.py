"""A trace comes back as it was, whole or not at all; what is hostile or cut short is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.explorer import trace_file
from clearhead.explorer.recording.recording import Recording, recompute
from clearhead.storage.manifest import MANIFEST, render, seal
from clearhead.trace import mean, scale, zero
from tests.explorer.traced import CONFIGS, inputs, model_of

MASKED = "decoder.blocks.0.attn.masked"


def small(**edit: Any) -> Recording:
    return trace_file.record(model_of(CONFIGS["encoder_decoder_post"]), "one two three", "eins zwei", edit=edit)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_trace_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    at = "encoder" if config.decoder is None else "decoder"
    edit = {f"{at}.blocks.0.attn.masked[h=1,t=2,s=0]": float("-inf"), f"{at}.blocks.1.ffn.out": zero}
    model = model_of(config)
    recording = trace_file.record(model, *inputs(config), edit=edit)
    back = trace_file.open(trace_file.save(recording, tmp_path / "trace"))
    assert back.manifest == recording.manifest
    assert set(back.tensors) == set(recording.tensors)
    for address in recording.tensors:
        assert torch.equal(back.value(address), recording.value(address)), address
    assert (back.output is None) == (recording.output is None) == (not isinstance(config.head, c.LanguageHead))
    assert recompute(back, model.network).recompute_max_relative <= 1e-5


def test_no_file_holds_what_is_not_finite(tmp_path: Path) -> None:
    recording = small(**{f"{MASKED}[h=0,t=1,s=0]": float("-inf"), "decoder.blocks.0.ffn.out": 1})
    folder = trace_file.save(recording, tmp_path / "trace")
    for file in folder.glob("*.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(file).values())
    closed = trace_file.open(folder).value(f"{MASKED}[h=0]").isneginf()
    assert closed.tolist() == [[False, True, True], [True, False, True], [False, False, False]]
    assert MASKED not in small().tensors  # made from scores and mask, unless set by hand


def test_the_manifest_says_what_was_read_and_edited() -> None:
    recording = small(**{f"{MASKED}[h=0]": 1, "encoder.embed.sum": zero, "decoder.blocks.1.attn.q": mean})
    read = recording.manifest.tokens
    assert [(token.text, token.span) for token in read["encoder"]] == [
        ("▁one", (0, 3)), ("▁two", (4, 7)), ("▁three", (8, 13)), ("<eos>", None),
    ]  # fmt: skip
    assert [(token.text, token.span) for token in read["decoder"]][1:] == [("▁eins", (0, 4)), ("▁zwei", (5, 9))]
    assert [(e.at, e.do, e.value) for e in recording.manifest.edits] == [
        (f"{MASKED}[h=0]", "set", 1.0),
        ("encoder.embed.sum", "zero", None),
        ("decoder.blocks.1.attn.q", "mean", None),
    ]
    others = {"encoder.embed.sum": scale(2.0), "encoder.blocks.0.attn.v": torch.zeros(1), MASKED: float("-inf")}
    others[f"{MASKED}[s=0]"] = others.pop(MASKED)
    with pytest.raises(UserError, match="weights: expected finite numbers, got NaN"):
        small(**others)  # the first query is left with no key
    others[f"{MASKED}[t=1,s=0]"] = others.pop(f"{MASKED}[s=0]")
    assert [edit.do for edit in small(**others).manifest.edits] == ["function", "tensor", "close"]


def test_probabilities_are_over_the_whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.explorer.recording.recording.LIKELIEST", 3)
    recording = small()
    assert recording.output is not None
    ids, values, lse = recording.output.ids.long(), recording.output.values, recording.output.lse
    shares = recording.value("head.logits").softmax(-1)
    assert ids.shape == (3, 3)
    torch.testing.assert_close((values - lse[:, None]).exp(), shares.gather(-1, ids))
    torch.testing.assert_close(shares.gather(-1, ids), shares.sort(-1, descending=True).values[:, :3])


def test_what_is_not_in_a_recording_is_told() -> None:
    recording, at = small(), "decoder.blocks.1.cross.weights"
    for address, message in (
        (f"{at}[h=4]", "h=4 is outside 0..3"),
        (f"{at}[k=0]", "axis 'k' is not one of 'h t s'"),
        (MASKED, "got one that is not stored but made by mask"),
        ("decoder.nothing", "got one that it does not have"),
    ):
        with pytest.raises(UserError, match=message):
            recording.value(address)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return small()


@pytest.fixture
def folder(recording: Recording, tmp_path: Path) -> Path:
    return trace_file.save(recording, tmp_path / "trace")


def one_line(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        trace_file.open(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    return str(caught.value)


def reseal(folder: Path) -> None:
    """A manifest of sums that fit, as an attacker would write it."""
    files = {p.name: seal(p, "json" if p.suffix == ".json" else "tensors") for p in folder.iterdir()}
    files.pop(MANIFEST, None)
    (folder / MANIFEST).write_bytes(render(0, files))


def test_nothing_is_overwritten_and_nothing_half_written(folder: Path, recording: Recording) -> None:
    with pytest.raises(UserError, match="expected nothing there"):
        trace_file.save(recording, folder)
    assert [path.name for path in folder.parent.iterdir()] == ["trace"]


def test_a_trace_cut_short_names_what_is_missing(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        assert path.name in one_line(folder)
        path.write_bytes(content[: len(content) // 2])
        assert path.name in one_line(folder)
        path.write_bytes(content)
    (folder / "decoder.blocks.1.safetensors").unlink()
    reseal(folder)
    assert "decoder.blocks.1.safetensors: expected a file, got none" in one_line(folder)


def huge(document: dict[str, Any]) -> None:
    document["tensors"]["decoder.blocks.0.attn.q"]["shape"] = [4, 2**31, 4]


def deep(document: dict[str, Any]) -> None:
    document["config"]["encoder"]["n_layers"] = 1024
    document["config"]["encoder"]["d_head"] = 2**20


def outside(document: dict[str, Any]) -> None:
    document["tensors"]["../../etc/passwd"] = document["tensors"]["head.logits"]


def other_op(document: dict[str, Any]) -> None:
    document["ops"][3]["weights"] = ["__class__"]


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "huge": (huge, "expected F32 (4, 2147483648, 4), got F32 (4, 3, 4)"),
    "deep": (deep, "expected a network of the size of its ops"),
    "outside": (outside, "expected a tensor of an op"),
    "other_op": (other_op, "expected those of the config"),
    "other_format": (lambda d: d.update(format="clearhead-trace/2"), ":format: expected clearhead-trace/1"),
    "extra_key": (lambda d: d.update(script="<script>alert(1)</script>"), ":script:"),
    "negative": (lambda d: d["tensors"]["head.logits"].update(shape=[-1, 4]), "head.logits.shape.0"),
    "other_type": (lambda d: d.update(tensors=[1]), ":tensors:"),
    "no_logits": (lambda d: d["tensors"].pop("head.logits"), "expected head.logits"),
    "flat_logits": (lambda d: d["tensors"]["head.logits"].update(shape=[3], axes="t"), "of two axes"),
    "no_tokens": (lambda d: d["tokens"].pop("encoder"), "expected those of encoder, decoder"),
    "dropped": (lambda d: d["tensors"].pop("decoder.blocks.0.attn.q"), "decoder.blocks.0.attn.q: expected"),
    "new_line": (lambda d: d.update({"a\nb\x1b[31m": 1}), "expected clearhead-trace/1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_is_refused_in_one_line(name: str, folder: Path) -> None:
    change, message = HOSTILE[name]
    document = json.loads((folder / trace_file.TRACE).read_text())
    change(document)
    (folder / trace_file.TRACE).write_text(json.dumps(document))
    reseal(folder)
    said = one_line(folder)
    assert message in said
    assert said.isprintable()


def test_numbers_that_are_not_finite_are_refused(folder: Path) -> None:
    path = folder / "head.safetensors"
    tensors = load_file(path)
    tensors["head.logits"][0, 0] = float("inf")
    save_file(tensors, path)
    reseal(folder)
    assert "head.logits: expected finite numbers" in one_line(folder)
