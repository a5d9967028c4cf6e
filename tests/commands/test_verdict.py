"""`clearhead check` of a config without weights, and of one that does not open."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from tests.checkpoints.families.hub import CONFIGS

MAMBA = {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "state_size": 16, "hidden_size": 24}


def written(folder: Path, document: dict[str, Any], name: str = "config.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(document))
    return file


def checked(name: Path | str, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    """The exit code and both streams."""
    code = 0
    try:
        main(["check", str(name), *flags])
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("alone", [True, False], ids=["file", "folder"])
def test_a_config_that_opens(alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, CONFIGS["llama_3_2"], "some.json" if alone else "config.json")
    code, out, err = checked(file if alone else tmp_path, capsys)
    assert (code, err) == (0, "note: no weights here, so nothing is compared with the reference\n")
    first, *rest = out.splitlines()
    assert first == "opens: llama, LlamaForCausalLM, 16,416 parameters"
    assert any(line.split()[:2] == ["hidden_size", "32"] for line in rest)


def test_a_config_that_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, MAMBA)
    code, out, err = checked(file, capsys)
    assert code == 2
    assert out.splitlines()[:2] == [
        "does not open: mamba, MambaForCausalLM",
        "  missing: state space layers (state_size=16)",
    ]
    assert err.startswith(f"error: {file}:model_type: expected an architecture that clearhead opens, got 'mamba'")
    assert err.count("\n") == 1


def test_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(written(tmp_path, MAMBA), capsys, "--json")
    told = json.loads(out)
    assert (code, told["verdict"], told["parameters"]) == (2, "does not open", None)
    assert told["missing"] == [{"mechanism": "state space layers", "field": "state_size", "value": 16}]
    code, out, _ = checked(written(tmp_path, CONFIGS["qwen3"]), capsys, "--json")
    told = json.loads(out)
    assert (code, told["verdict"], told["error"]) == (0, "opens", "")
    assert {"field": "head_dim", "value": 16, "sets": ["decoder.d_head"], "note": ""} in told["fields"]


def test_a_head_without_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(
        written(tmp_path, {**CONFIGS["gpt2_medium"], "architectures": ["GPT2ForMultipleChoice"]}), capsys
    )
    assert code == 2
    assert out.startswith("opens but for a head: gpt2, GPT2ForMultipleChoice, ")
    assert " opens; so do " in out


def test_a_config_of_our_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from clearhead.api import model_json
    from clearhead.checkpoints.families import preset
    from clearhead.recipe.generation import GenerationConfig

    document = model_json(preset("transformer-tiny"), GenerationConfig())
    code, out, _ = checked(written(tmp_path, document), capsys)
    assert code == 0
    assert out.startswith("opens: clearhead, ")


def test_only_the_config_of_a_model_that_does_not_open_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    asked: list[list[str]] = []

    def snapshot(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    written(tmp_path, MAMBA)
    code, out, _ = checked("state-spaces/mamba-130m-hf", capsys)
    assert (code, out.splitlines()[0]) == (2, "does not open: mamba, MambaForCausalLM")
    assert [sorted(names) for names in asked] == [["config.json", "modules.json"]]
