"""`clearhead capture`, `effects` and `examples` on files."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from clearhead.capture import Captured, texts_in
from tests.files import put
from tests.shell import Folders, Shell

LINES = ["one two three", "", "four three", "two two one four three one", "three one"]


@pytest.fixture(autouse=True)
def _files(empty_folder: Path) -> None:
    put("a-1.txt", "\n".join(LINES[:3]) + "\n")
    put("a-2.txt.gz", gzip.compress(("\n".join(LINES[3:]) + "\n").encode()))
    rows = [json.dumps({"id": i, "sentence": text}) for i, text in enumerate(LINES)]
    put("rows.jsonl", rows)


@pytest.fixture
def folder(folders: Folders) -> str:
    return str(folders["decoder_rotary_grouped"])


def test_files_of_every_form_are_one_data_set(shell: Shell, folder: str):
    assert [*texts_in("a-*")] == LINES
    at = ("--at", "decoder.blocks.*.resid_post", "decoder.blocks.0.attn.z[h=1]")
    line = ("capture", folder, "--data", "a-*", *at, "--out", "lines")
    assert "5 texts, 3 addresses, 1 shard" in shell.done(*line).err
    shell.done("capture", folder, "--data", "rows.jsonl", "--text", "sentence", *at, "--out", "rows")
    first, other = Captured("lines"), Captured("rows")
    assert len(first.addresses) == 3
    for address in first:
        assert torch.equal(first[address], other[address])
    assert first.about["data"] == {"files": ["a-*"], "text": None, "text_pair": None}
    assert first.about["model"]["name"] == folder
    assert "lines: goes on after 5 texts" in shell.done(*line).err
    told = shell.refused(*line, "--positions", "mean")
    assert told == "lines: expected --positions all, as it began, got mean; give another --out"
    assert sorted(path.name for path in Path("lines").iterdir()) == [
        "MANIFEST.json", "capture.json", "index.json", "shard-00000.safetensors"
    ]  # fmt: skip


def test_a_capture_that_stopped_between_its_first_files_goes_on(shell: Shell, folder: str):
    line = ("capture", folder, "--data", "a-*", "--at", "decoder.blocks.*.resid_post", "--out", "c")
    shell.done(*line)
    for path in Path("c").iterdir():
        if path.name != "capture.json":
            path.unlink()
    shell.done(*line)
    assert Captured("c").is_complete


def test_effects_are_printed_with_intervals(shell: Shell, folder: str):
    head, *rows = shell.done("effects", folder, "--data", "a-*", "--top", 3).lines
    assert head.split() == ["KL", "in", "nats", "95%", "interval", "site"]
    assert len(rows) == 3
    for row in rows:
        mean, low, _, high, site = row.split()
        assert site.startswith("decoder.blocks.")
        assert float(low) <= float(mean) <= float(high)
    found = shell.done("effects", folder, "--data", "a-*", "--sites", "layers", "--json").json
    assert [one["site"] for one in found] == [f"decoder.blocks.{i}.resid_post" for i in range(2)]
    assert found[0]["n_texts"] == 4


def test_effects_over_pairs(shell: Shell, folder: str):
    texts = ("--clean", "one two three", "--corrupt", "one four three")
    found = {how: shell.done("effects", folder, *texts, "--sites", how, "--json").json for how in ("heads", "direct")}
    assert found["heads"][0]["site"] == "decoder.blocks.0.attn.z[h=0]"
    assert "decoder.embed.tokens" in {one["site"] for one in found["direct"]}
    lens = shell.done("effects", folder, *texts, "--sites", "layers").lines
    assert [line.split()[-1] for line in lens[1:]] == [f"decoder.blocks.{i}.resid_post" for i in range(2)]


def test_examples_are_printed_with_their_token(shell: Shell, folder: str):
    neuron = ("--at", "decoder.blocks.1.ffn.post[f=3]", "--top", 2)
    said = shell.done("examples", folder, "--data", "a-*", *neuron)
    assert said.err == "decoder.blocks.1.ffn.post[f=3]: value, the strongest of 5 texts\n"
    (first, row, *words), _ = [line.split() for line in said.lines]
    assert " ".join(words).replace("[", "").replace("]", "") == LINES[int(row) - 1]
    shell.done("capture", folder, "--data", "a-*", "--at", "decoder.blocks.1.ffn.post", "--out", "units")
    again = shell.done("examples", folder, "--data", "units", *neuron, "--json").rows
    assert again[0]["value"] == pytest.approx(float(first), abs=1e-3)
    assert again[0]["row"] == int(row) - 1
