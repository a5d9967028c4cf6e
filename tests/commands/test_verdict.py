"""`clearhead check` of a config without weights, and of one that does not open."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.families.hub import CONFIGS
from tests.shell import Shell

FORECASTER = {
    "model_type": "patchtsmixer",
    "architectures": ["PatchTSMixerForPrediction"],
    "prediction_length": 16,
    "hidden_size": 24,
}


def written(folder: Path, document: dict[str, Any], name: str = "config.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("alone", [True, False], ids=["file", "folder"])
def test_a_config_that_opens(alone: bool, tmp_path, shell: Shell):
    file = written(tmp_path, CONFIGS["llama_3_2"], "some.json" if alone else "config.json")
    said = shell.done("check", file if alone else tmp_path)
    assert said.err == "note: no weights here, so nothing is compared with the reference\n"
    first, *rest = said.lines
    assert first == "opens: llama, LlamaForCausalLM, 16,416 parameters"
    assert any(line.split()[:2] == ["hidden_size", "32"] for line in rest)


def test_a_config_that_does_not(tmp_path, shell: Shell):
    file = written(tmp_path, FORECASTER)
    said = shell("check", file)
    missing = "  missing: forecasts of time series (prediction_length=16)"
    assert (said.code, said.lines[:2]) == (2, ["does not open: patchtsmixer, PatchTSMixerForPrediction", missing])
    assert said.err.startswith(
        f"error: {file}:model_type: expected an architecture that clearhead opens, got 'patchtsmixer'"
    )
    assert said.err.count("\n") == 1


def test_for_programs(tmp_path, shell: Shell):
    said = shell("check", written(tmp_path, FORECASTER), "--json")
    assert (said.code, said.json["verdict"], said.json["parameters"]) == (2, "does not open", None)
    assert said.json["missing"] == [
        {"mechanism": "forecasts of time series", "field": "prediction_length", "value": 16}
    ]
    told = shell.done("check", written(tmp_path, CONFIGS["qwen3"]), "--json").json
    assert (told["verdict"], told["error"]) == ("opens", "")
    assert {"field": "head_dim", "value": 16, "sets": ["decoder.d_head"], "note": ""} in told["fields"]


def test_a_head_without_a_table(tmp_path, shell: Shell):
    document = {**CONFIGS["gpt2_medium"], "architectures": ["GPT2ForMultipleChoice"]}
    said = shell("check", written(tmp_path, document))
    assert said.code == 2
    assert said.out.startswith("opens but for a head: gpt2, GPT2ForMultipleChoice, ")
    assert " opens; so do " in said.out


def test_a_config_of_our_own(tmp_path, shell: Shell):
    from clearhead.api import model_json
    from clearhead.checkpoints.families import preset
    from clearhead.recipe.generation import GenerationConfig

    document = model_json(preset("transformer-tiny"), GenerationConfig())
    assert shell.done("check", written(tmp_path, document)).out.startswith("opens: clearhead, ")


def test_only_the_config_of_a_model_that_does_not_open_is_downloaded(tmp_path, monkeypatch, shell: Shell):
    import huggingface_hub

    asked: list[list[str]] = []

    def snapshot(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    written(tmp_path, FORECASTER)
    said = shell("check", "ibm-granite/granite-timeseries-patchtsmixer")
    assert (said.code, said.lines[0]) == (2, "does not open: patchtsmixer, PatchTSMixerForPrediction")
    assert [sorted(names) for names in asked] == [["config.json", "modules.json"]]
