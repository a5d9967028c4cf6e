"""`clearhead capture`, `effects` and `examples` on files."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from clearhead.capture import Captured, texts_in
from clearhead.cli import main
from tests.explorer.traced import CONFIGS, model_of

LINES = ["one two three", "", "four three", "two two one four three one", "three one"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model_of(CONFIGS["decoder_rotary_grouped"]).save(tmp_path_factory.mktemp("models") / "decoder"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a-1.txt").write_text("\n".join(LINES[:3]) + "\n", "utf-8")
    Path("a-2.txt.gz").write_bytes(gzip.compress(("\n".join(LINES[3:]) + "\n").encode()))
    rows = [json.dumps({"id": i, "sentence": text}) for i, text in enumerate(LINES)]
    Path("rows.jsonl").write_text("\n".join(rows), "utf-8")
    return tmp_path


def test_files_of_every_form_are_one_data_set(folder: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [*texts_in("a-*")] == LINES
    at = ["--at", "decoder.blocks.*.resid_post", "decoder.blocks.0.attn.z[h=1]"]
    main(["capture", folder, "--data", "a-*", *at, "--out", "lines"])
    assert "5 texts, 3 addresses, 1 shards" in capsys.readouterr().err
    main(["capture", folder, "--data", "rows.jsonl", "--text", "sentence", *at, "--out", "rows"])
    first, other = Captured("lines"), Captured("rows")
    assert len(first.addresses) == 3
    for address in first:
        assert torch.equal(first[address], other[address])
    assert first.about["data"] == {"files": ["a-*"], "text": None, "text_pair": None}
    assert first.about["model"]["name"] == folder
    capsys.readouterr()
    main(["capture", folder, "--data", "a-*", *at, "--out", "lines"])
    assert "lines: goes on after 5 texts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["capture", folder, "--data", "a-*", *at, "--out", "lines", "--positions", "mean"])
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == "error: lines: expected --positions all, as it began, got mean; give another --out"
    with pytest.raises(SystemExit):
        main(["capture", folder, "--data", "a-*", "--at", "decoder.no_such", "--out", "wrong"])
    assert "decoder.no_such: expected an address of this model" in capsys.readouterr().err
    assert not Path("wrong").exists()
    assert sorted(path.name for path in Path("lines").iterdir()) == [
        "MANIFEST.json", "capture.json", "index.json", "shard-00000.safetensors"
    ]  # fmt: skip


def test_a_capture_that_stopped_between_its_first_files_goes_on(folder: str, files: Path) -> None:
    words = ["capture", folder, "--data", "a-*", "--at", "decoder.blocks.*.resid_post", "--out", "c"]
    main(words)
    for path in Path("c").iterdir():
        if path.name != "capture.json":
            path.unlink()
    main(words)
    assert Captured("c").is_complete


def test_effects_are_printed_with_intervals(folder: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["effects", folder, "--data", "a-*", "--top", "3"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["KL", "in", "nats", "95%", "interval"]
    assert len(rows) == 3
    for row in rows:
        site, mean, low, _, high = row.split()
        assert site.startswith("decoder.blocks.")
        assert float(low) <= float(mean) <= float(high)
    main(["effects", folder, "--data", "a-*", "--sites", "layers", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [one["site"] for one in found] == [f"decoder.blocks.{i}.resid_post" for i in range(2)]
    assert found[0]["n_texts"] == 4


def test_examples_are_printed_with_their_token(folder: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["examples", folder, "--data", "a-*", "--at", "decoder.blocks.1.ffn.post[f=3]", "--top", "2"])
    said = capsys.readouterr()
    assert said.err == "decoder.blocks.1.ffn.post[f=3]: value, the strongest of 5 texts\n"
    (first, row, *words), _ = [line.split() for line in said.out.splitlines()]
    assert " ".join(words).replace("[", "").replace("]", "") == LINES[int(row) - 1]
    main(["capture", folder, "--data", "a-*", "--at", "decoder.blocks.1.ffn.post", "--out", "units"])
    capsys.readouterr()
    main(["examples", folder, "--data", "units", "--at", "decoder.blocks.1.ffn.post[f=3]", "--top", "2", "--json"])
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert again[0]["value"] == pytest.approx(float(first), abs=1e-3)
    assert again[0]["row"] == int(row) - 1
