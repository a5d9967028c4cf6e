"""`clearhead plan` and `profile`."""

import re

import pytest

from clearhead.cli.plan.costs import CHARACTERS, SENTENCE, is_recipe, subject_of
from clearhead.training import profile
from tests.shell import Shell
from tests.training.tiny import write_recipe


def test_json_holds_the_cost_and_the_line_that_starts_it(shell: Shell):
    said = shell.done("plan", "gpt2", "--tokens", 1_000_000_000, "--carbon", 400, "--json")
    found = said.json
    assert found["fits"]
    assert found["memory"]["total"] <= sum(n for part, n in found["memory"].items() if part != "total")
    assert found["hours"] == pytest.approx(1e9 / found["tokens_per_second"] / 3600)
    assert found["kwh"] == pytest.approx(0.7 * found["hours"])
    assert found["co2_grams"] == pytest.approx(400 * found["kwh"])
    assert f"kWh at 700 W, {found['co2_grams']:,.0f} g CO2; " in said.err
    assert shell.done("plan", "gpt2", "--json").json["co2_grams"] is None
    assert found["command"].startswith("clearhead train RECIPE.toml --training.max_tokens ")
    assert "worst moment" in said.err


def test_tables_say_the_command_or_that_nothing_fits(shell: Shell):
    fits = shell.done("plan", "translation", "--gpu", "cpu").out
    assert fits.rstrip().endswith("clearhead train translation --training.max_tokens 4096")
    too_large = shell.done("plan", "gpt2", "--memory", 0.5)
    assert "Nothing fits: the least is" in too_large.out
    assert "train" not in too_large.lines[-1]


def test_a_recipe_says_its_lengths_and_batch(tmp_path):
    path = write_recipe(tmp_path, accumulate=3)
    subject = subject_of(str(path))
    assert (subject.source, subject.target, subject.batch) == (SENTENCE, SENTENCE, 180)
    assert subject_of(str(path), 5).target == 5
    lm = subject_of("lm")
    assert (lm.source, lm.target) == (0, 256)
    assert lm.config.output.input.vocab_size == CHARACTERS  # pyrefly: ignore
    assert (is_recipe("lm"), is_recipe("gpt2")) == (True, False)


def test_a_recipe_with_data_is_profiled_on_them(shell: Shell, tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "CEILING_SIZE", {"cpu": 64})
    recipe = write_recipe(tmp_path)
    said = shell.done("profile", recipe, "--steps", 2, "--json", "--training.clip", 0.5, "--carbon", 100)
    assert said.json["tokens"] <= 60
    assert said.json["co2_grams"] == pytest.approx(100 * said.json["joules"] / 3.6e6)
    assert said.json["flops"] > 0
    assert said.json["precision"] == "fp32"
    assert "random" not in said.err
    (tmp_path / "a.en").unlink()
    out = shell.done("profile", recipe, "--steps", 1, "--length", 6, "--batch", 48, "--watts", 20, "--carbon", 400).out
    assert "(48 a step, fp32, cpu)" in out
    energy = re.search(r"([\d.]+) Wh, ([\d.]+) g CO2 for 1,000,000 tokens, by 20 W, as given", out)
    assert energy
    assert float(energy[2]) == pytest.approx(0.4 * float(energy[1]), rel=0.02)
    assert "Largest beside the backward pass: " in out
