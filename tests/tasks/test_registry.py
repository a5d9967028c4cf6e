import json
from pathlib import Path

import pytest
import torch

from clearhead.checkpoints.families import preset
from clearhead.config import TaggingHead
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.recipe import merge
from clearhead.runs import resume, start
from clearhead.tasks.registry import TASKS, find, suitable, validate
from clearhead.tasks.task import Batch
from clearhead.training.run_folder import RECIPE
from tests.training.test_ranks import rewound
from tests.training.tiny import drive, losses

KNOWN = ", ".join(sorted(TASKS))
OLD = sorted((Path(__file__).parent / "old_runs").glob("*.json"))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_the_recipe_of_a_run_of_an_older_version_opens_and_means_the_same(path: Path):
    """As clearhead wrote it when recipes were not yet part of their tasks; newer fields have their defaults."""
    tables = json.loads(path.read_bytes())
    now = validate(tables, where="old").model_dump(mode="json")
    assert merge(now, tables) == now
    assert (now["adapter"], now["training"]["teacher"], now["training"]["freeze"]) == (None, None, [])


def test_a_run_of_an_older_version_is_resumed(tmp_path: Path):
    tables = json.loads((Path(__file__).parent / "old_runs" / "lm.json").read_bytes())
    (tmp_path / "book.txt").write_text("one two three four\n" * 40, encoding="utf-8")
    small = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    tables["data"] |= {"folder": str(tmp_path), "length": 8}
    tables["model"]["stacks"] = small
    tables["training"] |= {"steps": 4, "save_every": 2, "precision": "fp32", "matmul_precision": "highest"}
    tables["generation"] |= {"max_new_tokens": 4}
    whole = losses(drive(start(validate(tables, where="x"), tmp_path / "run")[0]))
    rewound(tmp_path / "run", 2)
    kept = json.loads((tmp_path / "run" / "step-00000002" / RECIPE).read_bytes())
    assert merge(kept, tables) == kept, "in the old form"
    assert losses(drive(resume(tmp_path / "run")[0])) == {step: loss for step, loss in whole.items() if step > 2}


def test_every_task_is_there_by_its_name():
    for name in TASKS:
        assert find(name, where="x").recipe.model_fields["task"].annotation.__args__ == (name,)  # pyrefly: ignore


def test_a_name_that_is_none_is_told_with_the_nearest():
    with pytest.raises(UserError, match=rf"^my\.toml:task: expected one of {KNOWN}, got lmm; did you mean lm\?"):
        find("lmm", where="my.toml:task")
    for odd in (3, ["lm"], {}):
        with pytest.raises(UserError, match=rf"^x: expected one of {KNOWN}, got"):
            find(odd, where="x")


def test_a_model_without_a_recipe_has_the_task_of_its_kind():
    assert suitable(preset("demo"), where="x") is find("translation", where="x")
    assert suitable(preset("nano"), where="x") is find("lm", where="x")
    assert suitable(preset("classifier"), where="x") is find("classification", where="x")
    assert suitable(preset("image-classifier"), where="x") is find("image_classification", where="x")
    with pytest.raises(UserError, match=rf"^x: expected a model for one of {KNOWN},"):
        suitable(preset("demo").model_copy(update={"head": TaggingHead(n_labels=2)}), where="x")


@pytest.mark.parametrize(
    ("task", "preset_name", "message"),
    [
        ("classification", "vit-tiny", "a network of texts to classify them, got one of pictures"),
        ("image_classification", "classifier", "an encoder of pictures to classify them, got one of texts"),
        ("embedding", "demo", "an encoder or a decoder alone to make vectors, got both"),
        ("embedding", "vit-tiny", "a network of texts, got one of pictures"),
        ("tagging", "demo", "an encoder or a decoder alone to tag, got both"),
        ("question_answering", "nano", "an encoder alone to find answers, got a decoder"),
        ("masked_lm", "nano", "an encoder alone to restore masked tokens, got a decoder alone"),
        ("masked_lm", "demo", "an encoder alone to restore masked tokens, got a decoder too"),
        ("lm", "bert-base", "a decoder alone to model language, got an encoder alone"),
        ("chat", "demo", "a decoder alone to answer, got an encoder too"),
        ("translation", "nano", "an encoder and a decoder to translate, got one of them"),
        ("text_to_text", "nano", "an encoder and a decoder to write a text for another, got one of them"),
        ("denoising", "nano", "an encoder and a decoder to restore texts, got one of them"),
    ],
)
def test_a_network_of_another_kind_is_refused(task: str, preset_name: str, message: str):
    with pytest.raises(UserError, match=f"^model: expected {message}; try it$"):
        find(task, where="x").check_kind(preset(preset_name), where="model", remedy="try it")


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 5), (6, 4, 4)], ids=["classes", "spans", "vectors", "pixels"])
def test_labels_are_counted_along_their_first_axis(shape: tuple[int, ...]):
    batch = Batch((Tokens(torch.zeros(6, 3, dtype=torch.long)),), torch.zeros(shape), n_ignored=2)
    assert batch.count == batch.to(torch.device("cpu")).count == 4


def test_every_verb_is_a_command():
    from clearhead.cli.commands import application

    for name in TASKS:
        task = find(name, where="x")
        assert task.verb in application()
        assert task.use.split()[0] in (task.verb, "predict"), name
