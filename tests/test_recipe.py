import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import architecture
from clearhead.config import Learned, Rotary
from clearhead.errors import UserError
from clearhead.recipe import ModelChoice, changed, leaves_length, merge, nested, read, recipe_folders
from clearhead.recipe.tokenizers import Characters
from clearhead.recipe.training import AdamW, Constant, Muon, WarmupStableDecay
from clearhead.session.recipes import with_files
from clearhead.tasks.language_model import LanguageRecipe
from clearhead.tasks.registry import fields_of, validate
from clearhead.tasks.translation import TranslationRecipe
from clearhead.training.run_folder import with_absolute_paths

RECIPES = sorted({path for folder in recipe_folders() for path in folder.glob("*.toml")})
FILES = {
    "parallel": {"source": "a", "target": "b"},
    "table": {"path": "a.csv"},
    "image_folder": {"path": "a"},
    **{kind: {"paths": ["a"]} for kind in ("text", "tagged", "squad")},
}
BASE = {"task": "translation", "data": {"train": {"kind": "parallel", "source": "a", "target": "b"}}}


def complaint(tables: dict[str, Any]) -> str:
    try:
        validate(tables, where="my.toml")
    except UserError as error:
        return str(error)
    return ""


def message(tables: dict[str, Any]) -> str:
    said = complaint(tables)
    assert said
    assert "\n" not in said
    return said


# --- the recipes that come along ---------------------------------------------------------------------------------


def test_there_are_recipes():
    assert {"translation", "lm"} <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_valid_and_its_network_can_be_made(path: Path):
    tables = read(path.stem)
    assert tables == read(str(path))
    missing = FILES.get(tables["data"]["train"]["kind"], {})
    recipe = validate(merge(tables, {"data": {"train": missing}}), where=path.name)
    assert (recipe.task == "translation") == isinstance(recipe, TranslationRecipe)
    config = architecture(recipe.model, 777)
    assert config.output.input.model_dump().get("vocab_size", 777) == 777
    assert (config.encoder is None) == (recipe.task in ("lm", "chat", "captions"))
    limits = (recipe.training.steps, recipe.training.epochs, recipe.training.minutes)
    assert leaves_length(recipe) or any(limit is not None for limit in limits)
    assert validate(recipe.model_dump(mode="json"), where="again") == recipe, "a checkpoint's recipe is this one"


@pytest.mark.parametrize("name", ["translation", "lm"])
def test_without_data_the_field_to_give_is_named(name: str):
    with pytest.raises(UserError, match=rf"^{name}:data\.train\.(source|paths): expected a value, got none"):
        validate(read(name), where=name)


def test_defaults_of_a_recipe_are_its_own():
    lm = validate({"task": "lm", "data": {"train": {"kind": "text", "paths": ["a"]}}}, where="x")
    assert isinstance(lm, LanguageRecipe)
    assert lm.model.preset == "nano"
    assert lm.generation.temperature == 0.8


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        ({"trainin": {}}, "trainin", "training"),
        ({"training": {"step": 1}}, "training.step", "steps"),
        ({"training": {"optimizer": {"kind": "muon", "momentun": 0.9}}}, "training.optimizer.momentun", "momentum"),
        ({"training": {"schedule": {"kind": "wsd", "warm_up": 1}}}, "training.schedule.warm_up", "warmup"),
        ({"data": {"hold_out": 3}}, "data.hold_out", "held_out"),
        ({"data": {"train": {"taget": "b"}}}, "data.train.taget", "target"),
        ({"data": {"valid": {"kind": "table", "path": "a", "text": 1, "headr": 1}}}, "data.valid.headr", "header"),
        ({"data": {"preparation": {"maxlength": 3}}}, "data.preparation.maxlength", "max_length"),
        ({"tokenizer": {"kind": "bpe", "vocabsize": 10}}, "tokenizer.vocabsize", "vocab_size"),
        ({"model": {"prest": "demo"}}, "model.prest", "preset"),
        ({"generation": {"beems": 2}}, "generation.beems", "beams"),
    ],
)
def test_unknown_field_is_named_with_the_nearest(change: dict[str, Any], field: str, remedy: str):
    assert message(merge(BASE, change)) == f"my.toml:{field}: no such field; did you mean {remedy}?"


def test_unknown_field_like_no_other_lists_all():
    told = message(merge(BASE, {"data": {"zzz": 1}}))
    assert told.startswith("my.toml:data.zzz: no such field; try one of cache, folder, held_out, preparation,")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_no_suggested_field_is_refused(path: Path):
    tables, _ = with_files(read(path.stem), where=path.name)
    said = {
        field: complaint(merge(tables, nested([(field, '"nonsense"')]))) for field in fields_of(tables, where="").fields
    }
    assert {field: one for field, one in said.items() if "no such field" in one} == {}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"training": {"steps": "many"}}, r"training\.steps: expected a valid integer.* got 'many'"),
        ({"training": {"steps": 0}}, r"training\.steps: expected greater than 0, got 0"),
        ({"training": {"minutes": float("nan")}}, r"training\.minutes: expected .*, got nan"),
        ({"training": 3}, r"training: expected .*, got 3"),
        ({"training": {"precision": "fp8"}}, r"training\.precision: expected 'auto', 'fp32' or 'bf16', got 'fp8'"),
        ({"data": {"train": {"source": 5}}}, r"data\.train\.source: .*, got 5"),
        ({"generation": {"early_stopping": "maybe"}}, r"generation\.early_stopping: .*, got 'maybe'"),
        ({"generation": {"beams": 2, "temperature": 1.0}}, r"generation: beams=2 and temperature=1\.0: set"),
        ({"training": {"optimizer": {"kind": "adam"}}}, r"training\.optimizer\.kind: .*got adam; did you mean adamw\?"),
        ({"training": {"optimizer": {"lr": 1.0}}}, r"training\.optimizer\.kind: expected one of adamw, muon, got none"),
        ({"tokenizer": {"kind": "bpe", "vocab_size": 3}}, r"tokenizer\.vocab_size: expected greater than 4, got 3"),
        (
            {"task": "translatoin"},
            r"task: expected one of .*translation, got translatoin; did you mean translation\?",
        ),
    ],
)
def test_wrong_value_is_named_with_what_was_expected(change: dict[str, Any], wanted: str):
    assert re.match(r"^my\.toml:" + wanted, message(merge(BASE, change)))


def test_empty_tables_are_told_what_they_lack():
    assert re.match(r"my\.toml:task: expected one of .*, lm, .*translation, got none", message({}))
    assert message({"task": "lm"}) == "my.toml:data: expected a value, got none; set it"
    assert message({"task": "lm", "data": {"train": {"kind": "text"}}}).startswith("my.toml:data.train.paths:")


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"stacks": {"droput": 0.1}}, r"^model:(en|de)coder\.droput: no such field; did you mean dropout\?"),
        ({"decoder": {"positions": {"kind": "rotary", "bas": 2.0}}}, r"^model:decoder\.positions\.bas: .*mean base\?"),
        ({"head": {"teid": True}}, r"^model:head\.teid: no such field; did you mean tied\?"),
        ({"stacks": {"n_heads": 7}}, r"n_heads=7 must divide d_model"),
        ({"preset": "transformer-tny"}, r"^preset: .*transformer-tiny"),
    ],
)
def test_a_mistake_in_the_architecture_is_told_by_its_own_fields(choice: dict[str, Any], wanted: str):
    with pytest.raises(UserError, match=wanted) as caught:
        architecture(ModelChoice.model_validate({"preset": "demo"} | choice), 50)
    assert "\n" not in str(caught.value)


def test_file_that_is_no_recipe(tmp_path: Path):
    with pytest.raises(UserError, match=r"^translatoin: expected a recipe or data.*did you mean translation\?"):
        read("translatoin")
    with pytest.raises(UserError, match=r"none\.toml: expected a recipe or data, got no such file"):
        read(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="expected a recipe file"):
        read(str(tmp_path))
    bad = tmp_path / "bad.toml"
    for content, wanted in ((b"a = = 1", "line 1"), (b"a = 1\na = 2\n", "line 2"), (b"a = '\xff'", "0xff")):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=wanted) as caught:
            read(str(bad))
        assert str(bad) in str(caught.value)
        assert "\n" not in str(caught.value)
    bad.write_bytes(b"a = " + b"[" * 100_000)
    with pytest.raises(UserError):
        read(str(bad))


# --- merging -----------------------------------------------------------------------------------------------------


def test_dotted_names_become_tables_and_values_json_where_they_can():
    found = nested(
        [
            ("training.steps", "100"),
            ("training.clip", "null"),
            ("training.optimizer.betas", "[0.9, 0.95]"),
            ("training.precision", "bf16"),
            ("data.train.source", "a b.en"),
            ("training.compile", "true"),
        ]
    )
    training = {"steps": 100, "clip": None, "optimizer": {"betas": [0.9, 0.95]}, "precision": "bf16", "compile": True}
    assert found == {"training": training, "data": {"train": {"source": "a b.en"}}}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_table_keeps_the_fields_that_stand_beside_it(order: tuple[int, int]):
    """`steps=40, training={"clip": 2}` in Python, `--steps 40 --training '{"clip": 2}'` on the line."""
    both = [("training.steps", "40"), ("training", '{"clip": 2}')]
    assert nested([both[i] for i in order]) == {"training": {"steps": 40, "clip": 2}}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_name_that_is_a_value_and_a_table_is_told(order: tuple[int, int]):
    both = [("training", "3"), ("training.steps", "4")]
    with pytest.raises(UserError, match=r"--training(\.steps)?: expected training to be a table"):
        nested([both[i] for i in order])


def test_merging_changes_one_value_and_no_input():
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    over = {"a": {"c": {"f": 3}}, "e": [2]}
    assert merge(base, over) == {"a": {"b": 1, "c": {"d": 2, "f": 3}}, "e": [2]}
    assert base == {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    assert over == {"a": {"c": {"f": 3}}, "e": [2]}
    assert merge(base, {"a": 5}) == {"a": 5, "e": [1]}
    assert merge({"a": 5}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_another_kind_replaces_the_table_and_the_same_keeps_it():
    base = {"optimizer": {"kind": "muon", "lr": 1.0, "adamw_lr": 2.0}}
    assert merge(base, {"optimizer": {"kind": "adamw", "lr": 3.0}}) == {"optimizer": {"kind": "adamw", "lr": 3.0}}
    assert merge(base, {"optimizer": {"kind": "muon", "lr": 3.0}})["optimizer"] == base["optimizer"] | {"lr": 3.0}
    assert merge(base, {"optimizer": {"lr": 3.0}})["optimizer"] == base["optimizer"] | {"lr": 3.0}


def test_overrides_on_a_real_recipe():
    changes = [("training.optimizer.kind", "adamw"), ("training.optimizer.lr", "0.5"), ("data.train.source", "x.en")]
    changes += [("data.train.target", "x.de"), ("training.schedule.warmup", "7"), ("model.stacks.dropout", "0.4")]
    recipe = validate(merge(read("translation"), nested(changes)), where="translation")
    assert recipe.training.optimizer == AdamW(lr=0.5)
    assert isinstance(recipe.training.schedule, WarmupStableDecay)
    assert recipe.training.schedule.warmup == 7
    plain = validate(merge(read("translation"), nested(changes[2:])), where="translation")
    assert isinstance(plain.training.optimizer, Muon)
    config = architecture(recipe.model, 50)
    assert config.encoder is not None
    assert config.encoder.dropout == 0.4
    assert config.output.dropout == 0.4


def test_a_checkpoint_to_start_from_takes_the_place_of_what_trains_from_nothing():
    """The recipe's network, tokenizer and large steps; what is given beside it stays, and so does the rest."""
    base = merge(read("lm"), {"data": {"train": {"paths": ["a"]}}})
    plain = validate(changed(base, nested([("model.start", "owner/name"), ("training.steps", "7")])), where="lm")
    assert plain.model == ModelChoice(start="owner/name")
    assert plain.tokenizer == Characters()
    assert (plain.training.steps, plain.training.max_tokens) == (7, 8192)
    assert isinstance(plain.training.optimizer, AdamW)
    assert plain.training.optimizer.lr == 1e-4
    given = [("model.start", "x"), ("training.optimizer.lr", "3e-5"), ("training.schedule.kind", "constant")]
    recipe = validate(changed(base, nested(given)), where="lm")
    assert isinstance(recipe.training.optimizer, AdamW)
    assert recipe.training.optimizer.lr == 3e-5
    assert recipe.training.schedule == Constant()
    own = merge(base, {"model": {"start": "x", "preset": "nano"}})
    with pytest.raises(UserError, match=r"^lm:model: preset='nano' cannot be set beside start"):
        validate(changed(own, {}), where="lm")
    assert changed(base, {"training": {"steps": 3}}) == merge(base, {"training": {"steps": 3}})
    for odd in ({"model": 3}, {"training": 3, "model": {"start": "x"}}, {"model": {"start": 5}}):
        with pytest.raises(UserError, match=r"^lm:(model|training)"):
            validate(changed(base, odd), where="lm")


def test_changes_of_an_architecture():
    choice = ModelChoice(
        preset="nano",
        stacks={"positions": {"kind": "learned", "max_length": 9}},
        head={"tied": True},
        init={"std": 0.5},
    )
    config = architecture(choice, 50)
    assert config.output.positions == Learned(max_length=9)
    assert config.init.std == 0.5
    assert config.head.model_dump()["tied"] is True
    kept = architecture(ModelChoice(preset="nano", stacks={"positions": {"base": 5.0}}), 50)
    assert kept.output.positions == Rotary(base=5.0)
    with pytest.raises(UserError, match=r"model\.encoder: preset 'nano' has no encoder"):
        architecture(ModelChoice(preset="nano", encoder={"dropout": 0.1}), 50)


def test_paths_are_found_again_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = validate(BASE, where="x")
    monkeypatch.chdir(tmp_path)
    assert with_absolute_paths(recipe).data.folder == tmp_path
    (tmp_path / "mine").mkdir()
    for start, wanted in (("mine", str(tmp_path / "mine")), ("owner/name", "owner/name")):
        recipe = validate({**BASE, "model": {"start": start}}, where="x")
        assert with_absolute_paths(recipe).model.start == wanted
