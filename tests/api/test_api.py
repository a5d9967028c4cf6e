import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, architecture, load, named_config
from clearhead.api.folders import own_files
from clearhead.checkpoints.families.family import canonical
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.places import BEST
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Words
from clearhead.storage import checkpoints
from tests.small_models import PAIRS, STACKS, TEXTS, model_of


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def translator() -> Model:
    return model_of("demo")


@pytest.fixture(scope="module")
def writer() -> Model:
    model = model_of("nano", Characters())
    model.generation = GenerationConfig(max_new_tokens=24, temperature=1.0)
    return model


def told(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# --- folders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [Words(), BPE(vocab_size=60), ByteBPE(vocab_size=280), Characters()])
def test_saved_and_loaded_is_the_same_model(tmp_path, tokenizer: TokenizerConfig):
    model = model_of("demo", tokenizer, positions={"kind": "learned", "max_length": 99})
    again = load(model.save(tmp_path / "model"))
    assert canonical(again.config) == canonical(model.config)
    ids = model.tokenizer
    named = model.generation.with_ids(start_id=ids.bos_id, end_id=ids.eos_id, pad_id=ids.pad_id)
    assert again.generation == named
    assert not again.network.training
    for source, target in zip(PAIRS.source[:4], PAIRS.target[:4], strict=True):
        assert torch.equal(again.logits(source, target), model.logits(source, target))
    assert again.translate(PAIRS.source) == model.translate(PAIRS.source)
    assert again.tokenizer.encode_batch(TEXTS) == model.tokenizer.encode_batch(TEXTS)


def test_a_folder_is_never_overwritten(tmp_path, translator: Model, writer: Model):
    translator.save(tmp_path / "model")
    with pytest.raises(UserError, match="expected nothing there"):
        writer.save(tmp_path / "model")
    assert canonical(load(tmp_path / "model").config) == canonical(translator.config)


def kept_as_ours(model: Model) -> checkpoints.Checkpoint:
    """The files of a model as a run keeps it."""
    return replace(own_files(model.network, model.generation), raw=model.tokenizer.to_files())


def a_run(folder: Path, seeds: Sequence[int]) -> list[Model]:
    """A run's folder with a checkpoint of another model at each step 1, 2, ..."""
    models = [model_of("demo", seed=seed) for seed in seeds]
    for i, model in enumerate(models):
        checkpoints.save(folder, i + 1, kept_as_ours(model))
    return models


def test_a_run_stands_for_its_best_checkpoint(tmp_path):
    first, second = a_run(tmp_path, [1, 2])
    one = ("one two", "zwei eins")
    assert torch.equal(load(tmp_path).logits(*one), second.logits(*one)), "the newest, where no best is known"
    (tmp_path / BEST).write_text(json.dumps({"checkpoint": "step-00000001", "step": 1, "score": 9.0}))
    assert torch.equal(load(tmp_path).logits(*one), first.logits(*one))
    assert torch.equal(load(tmp_path / "step-00000002").logits(*one), second.logits(*one))
    assert named_config(str(tmp_path)) == first.config


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "{}", '{"checkpoint": 3}', '{"checkpoint": "../x"}', '{"checkpoint": "gone"}']
)
def test_best_json_is_only_a_hint(tmp_path, content: str):
    (only,) = a_run(tmp_path, [1])
    (tmp_path / BEST).write_text(content)
    assert torch.equal(load(tmp_path).logits("one", "eins"), only.logits("one", "eins"))


def test_what_is_no_model_is_told(tmp_path, translator: Model):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for path in ("missing", "file", "empty"):
        with pytest.raises(UserError) as error:
            load(tmp_path / path)
        assert told(error).startswith(f"{tmp_path / path}: expected a folder with a model")
    files = kept_as_ours(translator)
    config: dict[str, Any] = dict(files.json["config.json"])
    for wrong, says in (
        ({**config, "clearhead": 2}, "format 1, got 2"),
        ({**config, "model": {**config["model"], "bogus": 1}}, "bogus: no such field"),
        ({name: config[name] for name in ("clearhead", "model")}, "no 'generation'"),
    ):
        folder = tmp_path / f"wrong{len(str(wrong))}"
        checkpoints.write_folder(folder, checkpoints.Checkpoint(files.tensors, {"config.json": wrong}, files.raw))
        with pytest.raises(UserError) as error:
            load(folder)
        assert told(error).startswith(f"{folder}/config.json")
        assert says in told(error)
    lacking = checkpoints.write_folder(tmp_path / "lacking", checkpoints.Checkpoint(json={"config.json": config}))
    with pytest.raises(UserError, match="expected a file of the model, got none"):
        load(lacking)


def test_a_device_that_is_not_there_is_told(tmp_path, translator: Model, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for device in ("cuda", "cuda:3", "gpu", "meta"):
        with pytest.raises(UserError, match=f"device: expected .* got '{device}'"):
            load(tmp_path / "never read", device=device)
    assert load(translator.save(tmp_path / "model"), device="cpu").device.type == "cpu"


# --- writing -----------------------------------------------------------------------------------------------------


def test_each_model_does_what_it_can(translator: Model, writer: Model):
    encoder = Model(Transformer(architecture(ModelChoice(preset="bert-base", stacks=STACKS), 30)), writer.tokenizer)
    for call, says in (
        (lambda: writer.translate(["one"]), r"translate: expected an encoder-decoder.* try generate"),
        (lambda: translator.generate("one"), r"generate: expected a decoder-only model.* try translate"),
        (lambda: translator.logits("one"), "a source and a target text; got one"),
        (lambda: writer.logits("one", "eins"), "reads one text; got two"),
        (lambda: translator.translate("one two"), r"expected a list of texts, got one text; try translate\(\[text\]\)"),
        (lambda: writer.logits(""), "at least one token"),
        (lambda: encoder.stream("one"), "try embed"),
        (lambda: writer.stream("one", stop=[""]), "stop: expected strings that are not empty"),
        (lambda: translator.embed("one"), "embed: expected a list of texts"),
        (lambda: translator.embed([]), "embed: expected texts"),
    ):
        with pytest.raises(UserError, match=says):
            call()


def test_translations_are_the_best_hypotheses(translator: Model):
    config = GenerationConfig(max_new_tokens=6, beams=3, n_best=3)
    found = translator.hypotheses(PAIRS.source[:3], config)
    assert [len(hypotheses) for hypotheses in found] == [3, 3, 3]
    assert all([h.score for h in one] == sorted((h.score for h in one), reverse=True) for one in found)
    best = [translator.tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]
    assert translator.translate(PAIRS.source[:3], config) == best
    assert translator.translate([]) == []


def test_pieces_join_to_the_continuation(writer: Model):
    whole = writer.generate("one two")
    pieces = list(writer.stream("one two"))
    assert "".join(pieces) == whole
    assert len(pieces) > 3
    assert "" not in pieces
    ids = writer.tokenizer.encode(whole)
    assert 3 < len(ids) <= 24
    word = whole[4:6]
    assert writer.generate("one two", stop=["@@", word]) == whole[: whole.index(word)]
    assert writer.generate("one two", stop=["@"]) == whole


@pytest.mark.parametrize("tokenizer", [BPE(vocab_size=60), ByteBPE(vocab_size=280), Words()])
def test_a_continuation_keeps_the_space_before_it(tokenizer: TokenizerConfig):
    model = model_of("nano", tokenizer)
    config = GenerationConfig(max_new_tokens=12, temperature=1.0, seed=3)
    prompt = "one two"
    text = prompt + model.generate(prompt, config)
    ids = model.tokenizer.encode(prompt)
    assert text == model.tokenizer.decode(ids) + text[len(prompt) :]
    assert " " in text[len(prompt) :]
    assert "\N{REPLACEMENT CHARACTER}" not in text or isinstance(tokenizer, ByteBPE)


def test_a_prompt_that_is_too_long_is_told_before_anything_is_written():
    model = model_of("nano", Characters(), positions={"kind": "learned", "max_length": 8})
    with pytest.raises(UserError, match="expected at most 8 tokens"):
        model.stream("one two three")


# --- looking inside ----------------------------------------------------------------------------------------------


def test_settings_are_keywords(translator: Model, writer: Model):
    texts = PAIRS.source[:3]
    with_three = translator.generation.model_copy(update={"beams": 3})
    assert translator.translate(texts, beams=3) == translator.translate(texts, with_three)
    assert len(translator.hypotheses(texts[:1], n_best=2)[0]) == 2
    warm = writer.generation.model_copy(update={"beams": 1, "temperature": 0.9, "top_k": 3, "seed": 4})
    assert writer.generate("one", temperature=0.9, top_k=3, seed=4) == writer.generate("one", warm)
    cold = warm.model_copy(update={"temperature": 0.0, "top_k": None})
    assert writer.generate("one", warm, beams=3) == writer.generate("one", cold)
    for call, says in (
        (lambda: translator.translate(texts, beamz=3), "generation:beamz: no such field; did you mean beams?"),
        (lambda: writer.generate("one", temperature="hot"), "generation:temperature: expected a valid number"),
        (lambda: translator.translate(texts, top_p=0.5), "top_p=0.5 narrows sampling: set temperature above 0"),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert says in told(caught)


@pytest.mark.parametrize("name", ["demo", "nano"])
def test_a_trace_of_several_texts(name: str):
    model = model_of(name)
    sources, targets = ["one two three", "four"], ["eins", "zwei drei vier"]
    both = [targets] if name == "demo" else []
    seen, logits = model.trace([*sources], *both)
    for i, source in enumerate(sources):
        alone, wanted = model.trace(source, *([targets[i]] if both else []))
        torch.testing.assert_close(logits[i, : len(wanted)], wanted)
        address = "decoder.blocks.0.attn.weights"
        n = len(wanted)
        torch.testing.assert_close(seen[address][i, :, :n, :n], alone[address][0])
    with pytest.raises(UserError, match="a target for each or none, got 2 and 1"):
        model.trace([*sources], ["one"])


def test_the_card_has_the_figures_of_the_training(tmp_path):
    files = kept_as_ours(model_of("nano"))
    progress: dict[str, Any] = {"step": 70, "n_tokens": 9000, "seconds": 12.5, "best_score": 1.25, "precision": "fp32"}
    run = checkpoints.save(tmp_path, 70, replace(files, json={**files.json, "train.json": progress}))
    card = (load(run).save(tmp_path / "model") / "README.md").read_text(encoding="utf-8")
    assert all(line in card for line in ("| Updates | 70 |", "| Best validation score | 1.25 |", "ArceeForCausalLM"))
