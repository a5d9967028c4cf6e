"""What a model was trained under goes with it: texts are cut, windowed and begun as in training, whoever asks."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model, load
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.recipe.contract import FILE, Contract
from clearhead.recipe.data import Table
from clearhead.runs import start
from clearhead.tasks.registry import find, validate
from clearhead.tasks.tagging.task import tag_names
from clearhead.training.events import Evaluated
from clearhead.training.train import train
from tests.reliability.asking import kinds, rng_of, sentence, trained, write_data
from tests.shell import classifier

LABELS = ["odd\tlabel", "line\nbreak", 'say "so"', "plain"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    write_data()


def long_rows(n: int = 24) -> list[dict[str, str]]:
    """Texts of hundreds of words whose labels are no guess."""
    rng = rng_of("long")
    return [{"text": sentence(rng, 300, 600), "label": LABELS[i % 4]} for i in range(n)]


def table(name: str, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"kind": "table", "path": name, "text": "text"}


def test_training_evaluation_and_use_cut_long_texts_alike():
    tables = {**kinds()["classification"].tables}
    tables["data"] = {**tables["data"], "valid": table("long.jsonl", long_rows())}
    events = [*train(start(validate(tables, where="x"), Path("run"))[0])]
    scores = {s.name: s.value for e in events if isinstance(e, Evaluated) for s in e.evaluation.scores}
    model = load("run")
    assert model.contract == Contract(task="classification", max_length=24, pairs=False)
    source = Table(path=Path("long.jsonl"), text="text")
    assert model.recipe is not None
    measured = find("classification", where="x").measure(model, validate(model.recipe, where="x"), source, {})
    assert measured.value("loss") == pytest.approx(scores["loss"], abs=1e-6)
    said = {row["text"]: model.predict([row["text"]])[0]["label"] for row in long_rows()}
    assert {one.source: one.output.rpartition("\t")[0] for one in measured.examples} == {
        text: tabbed(str(label)) for text, label in said.items()
    }
    # Without the contract, the same network says other things of them.
    model.put_under(Contract())
    assert [row["label"] for row in model.predict([*said])] != [*said.values()]


@pytest.mark.parametrize("name", ["classification", "pairs", "question answering", "spans", "text to text"])
def test_a_saved_model_keeps_its_contract(name: str):
    model = load(trained(name, kinds()[name]))
    saved = load(model.save("saved"))
    assert saved.contract == model.contract
    settings = json.loads(Path("saved/tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["model_max_length"] == model.contract.max_length == saved.reader.max_length
    assert load(saved.save("again")).contract == model.contract


def test_a_contract_that_another_file_contradicts_is_told(caplog):
    load(trained("run", kinds()["classification"])).save("saved")
    (Path("saved") / "MANIFEST.json").unlink()
    settings = Path("saved/tokenizer_config.json")
    settings.write_text(
        settings.read_text(encoding="utf-8").replace('"model_max_length": 24', '"model_max_length": 99')
    )
    with caplog.at_level(logging.WARNING):
        assert load("saved").contract.max_length == 24
    assert "max_length: 24 tokens, as in training, not the 99 of tokenizer_config.json" in caplog.text
    (Path("saved") / FILE).write_text('{"max_length": 0}', encoding="utf-8")
    with pytest.raises(UserError, match=rf"saved/{FILE}:max_length: expected greater than 0"):
        load("saved")


def test_the_bits_and_the_model_below_an_adapter_are_kept(caplog):
    model = load(trained("run", kinds()["adapter over four bits"]))
    tokens = model.inputs("the cat ate the plum")
    with caplog.at_level(logging.WARNING):
        model.save("adapter", adapter=True)
    assert "of a model in 4 bits, which PEFT does not round" in caplog.text
    again = load("adapter")
    torch.testing.assert_close(again.network(*tokens), model.network(*tokens), atol=1e-6, rtol=1e-6)
    assert (again.contract.base_bits, again.contract.max_length) == (4, 24)
    # What the file says is looked at, and the model that it is put on.
    document = json.loads(Path("adapter/adapter_config.json").read_text(encoding="utf-8"))
    (Path("adapter") / "MANIFEST.json").unlink(missing_ok=True)
    base = load("base")
    for name, parameter in base.network.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data += 0.5
    base.save("changed")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        load("adapter", base="changed")
    assert "made from another model than" in caplog.text
    del document["clearhead_base_bits"]
    Path("adapter/adapter_config.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="expected the bits of the model below in both files"):
        load("adapter")


@pytest.mark.parametrize("name", ["embed.tokens.weight", "attn.q.weight", "ffn.down.weight"])
def test_another_base_of_equal_norms_is_told(name: str, caplog):
    """As a model into which other adapters were merged; the type in which it is read changes nothing."""
    model = load(trained("run", kinds()["adapter"]))
    model.save("adapter", adapter=True)
    base = load("base")
    changed = next(p for n, p in base.network.named_parameters() if n.endswith(name))
    changed.data[-1] *= 1.05
    base.save("changed")
    with caplog.at_level(logging.WARNING):
        for dtype in (None, torch.bfloat16):
            caplog.clear()
            load("adapter", dtype=dtype)
            assert "another model" not in caplog.text
            load("adapter", base="changed", dtype=dtype)
            assert "made from another model than" in caplog.text


def test_a_long_text_is_filled_in_pieces_as_evaluation_reads_it():
    model = load(trained("run", kinds()["masked language model"]))
    words = ["cat"] * 150
    words[2] = words[140] = "<mask>"
    (said,) = model.predict([" ".join(words)])
    masks: Any = said["masks"]
    ids = model.tokenizer.encode(" ".join(words))
    room = 64 - len(model.reader.special_tokens())
    mask = model.tokenizer.need("mask")
    expected = []
    for at in range(0, len(ids), room):
        piece = model.reader.special_tokens().around(ids[at : at + room])
        with torch.inference_mode():
            rows = model.network(torch.tensor([piece]))[0].softmax(-1)
        expected += [rows[i].max().item() for i, token in enumerate(piece) if token == mask]
    assert [mask[0]["probability"] for mask in masks] == pytest.approx(expected, abs=1e-5)
    assert len(ids) > 64


def test_a_tab_is_a_part_of_a_text_where_the_model_reads_single_texts():
    """It was read as a space, but by evaluation."""
    model = load(trained("run", kinds()["classification of bytes"]))
    tabbed, spaced = (dict(model.classify([text])[0]) for text in ("cat\tdog\tdog", "cat dog dog"))
    assert tabbed != pytest.approx(spaced, abs=1e-3)
    logits = model.logits("cat\tdog\tdog")
    assert [*tabbed.values()] == pytest.approx(sorted(logits.softmax(-1).tolist(), reverse=True), abs=1e-5)
    said: Any = model.predict(["cat\tdog\tdog"])
    assert said[0]["probabilities"] == pytest.approx(tabbed, abs=1e-5)
    source = Table(path=Path("tabs.jsonl"), text="text")
    table("tabs.jsonl", [{"text": "cat\tdog\tdog", "label": name} for name in tabbed])
    assert model.recipe is not None
    measured = find("classification", where="x").measure(model, validate(model.recipe, where="x"), source, {})
    assert measured.value("loss") == pytest.approx(-logits.log_softmax(-1).mean().item(), abs=1e-4)


def test_classes_of_one_name_are_told_apart():
    model = classifier(labels=("same", "other", "same"))
    said: Any = model.predict(["one two"])[0]
    assert sorted(said["probabilities"]) == ["other", "same (0)", "same (2)"]
    assert sum(said["probabilities"].values()) == pytest.approx(1.0, abs=1e-6)
    assert dict(model.classify(["one two"])[0]) == pytest.approx(said["probabilities"])
    assert tag_names(c.TaggingHead(n_labels=2, labels=("O", "O"))) == ("O (0)", "O (1)")


def test_blank_texts_have_no_answer_wherever_they_are_asked():
    model = classifier()
    said: Any = model.predict(["one", "", " \t\n", "two"])
    assert said[1:3] == [{}, {}]
    assert [dict(row) for row in model.classify(["one", "", " \t\n", "two"])] == [
        row.get("probabilities", {}) for row in said
    ]
    assert classifier(labels=("entailment", "neutral"), pairs=True).classify(["", " "], labels=["a"]) == [[], []]
    with pytest.raises(UserError, match="embed: input 2: expected a text, got a blank one; leave it out"):
        model.embed(["one", " "])


@pytest.mark.parametrize("held_out", [0.25, 15])
@pytest.mark.parametrize("name", ["classification", "spans", "question answering", "translation", "embedding"])
def test_held_out_is_a_share_or_a_number(name: str, held_out: float):
    tables = {**kinds()[name].tables}
    tables["data"] = {**tables["data"], "held_out": held_out}
    prepared = find(tables["task"], where="x").prepare(validate(tables, where="x"), None)
    n = len(prepared.task.sizes())
    # 60 examples. A share of each label is rounded, and a number of pairs is at most a fifth.
    assert abs(n - (12 if name == "translation" and held_out == 15 else 15)) <= 3


@pytest.mark.parametrize(("held_out", "message"), [(60, "got 60"), (0.6, "got 0.6"), (0, "held_out"), (-1, "held_out")])
def test_what_leaves_nothing_to_train_on_is_refused(held_out: float, message: str):
    tables = {**kinds()["classification"].tables}
    tables["data"] = {**tables["data"], "held_out": held_out}
    with pytest.raises(UserError, match=message):
        find("classification", where="x").prepare(validate(tables, where="x"), None)


def test_a_model_in_our_own_form_keeps_how_it_makes_vectors():
    model = load(trained("run", kinds()["embedding"]))
    own = Model(
        model.network, model.tokenizer, sentences=model.sentences, contract=model.contract, family="none of theirs"
    )
    text = "the cat " * 60
    torch.testing.assert_close(load(own.save("saved")).embed([text]), model.embed([text]))
