"""A model that reads pictures learns their captions: its batches, its runs with adapters, and pictures it refuses."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import clearhead
from clearhead.errors import UserError
from clearhead.model.loss import IGNORED
from clearhead.runs import prepared_to_train
from clearhead.tasks.images.captions import Captioning, CaptionRecipe
from clearhead.tasks.registry import validate
from tests.small_pictures import pictured

COLOURS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}
SMALL: dict[str, Any] = {"tower": {"d_model": 32, "n_layers": 1, "input": {"image_size": 16}}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures of one colour, named by it."""
    folder = tmp_path_factory.mktemp("pictures")
    rows = ["image,text"]
    for i in range(24):
        name = [*COLOURS][i % 3]
        red, green, blue = COLOURS[name]
        Image.new("RGB", (16 + 8 * (i % 2), 16), (red + i, green + i, blue + i)).save(folder / f"{i}.png")
        rows.append(f"{i}.png,all is {name}")
    path = folder / "captions.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def run_of(table: Path, out: Path, **fields: Any) -> clearhead.Run:
    given: dict[str, Any] = {"model": {"pictures": SMALL, "decoder": {"d_model": 32, "n_layers": 1}}, "steps": 60}
    given |= {"training.schedule.warmup": 5, "training.optimizer.lr": 1e-2, "training.evaluate_every": 100}
    return clearhead.train(str(table), task="captions", out=out, view=False, device="cpu", **{**given, **fields})


def test_it_learns_captions_and_adapters_go_on(table: Path, tmp_path: Path):
    run = run_of(table, tmp_path / "run", **{"data.prompt": "what ?", "batch_size": 8})
    assert run.scores["exact_match"] == 1.0, run.scores
    paths = [table.parent / f"{i}.png" for i in range(3)]
    texts = [one["text"] for one in run.model.predict([*map(str, paths)])]
    assert texts == [f"all is {name}" for name in COLOURS]
    assert texts[1] == run.model.generate("what ?", image=paths[1]).strip()
    start = {"start": str(tmp_path / "run")}
    more = run_of(table, tmp_path / "lora", model=start, adapter={"rank": 2}, steps=2, **{"data.prompt": "what ?"})
    names = dict(more.model.network.named_parameters())
    assert {f"{at}.attn.q.down" for at in ("pictures.tower.blocks.0", "decoder.blocks.0")} <= names.keys()
    assert more.model.predict([str(paths[0])])
    at = "pictures.projector.up.weight"
    assert torch.equal(names[at], dict(run.model.network.named_parameters())[at])


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("family", ["llava", "paligemma", "qwen2_5_vl"])
def test_a_batch_reads_as_generate_and_learns_the_caption_alone(family: str, table: Path, tmp_path: Path):
    pictured(tmp_path / "start", family)
    ours = clearhead.load(tmp_path / "start")
    source = {"kind": "table", "path": str(table), "text": "text", "header": True}
    assert ours.config.pictures is not None
    tables = {
        "task": "captions",
        "data": {"train": source, "prompt": "what is"},
        "pictures": ours.config.pictures.model_dump(mode="json"),
    }
    recipe = validate({**tables, "pixels": ours.images.explicit(), "model": {"start": "x"}}, where="test")
    task = prepared_to_train(recipe, ours.tokenizer).task
    assert isinstance(task, Captioning)
    first, second = task.train.examples[:2]
    batch = task.collate([0, 1])
    (prompt,) = ours.inputs("what is", image=first.picture)
    n = prompt.grid[1]
    tokens = batch.inputs[0]
    assert torch.equal(tokens.ids[0, :n], prompt.ids[0])
    assert prompt.pictures is not None
    assert tokens.pictures is not None
    assert torch.equal(tokens.pictures[: len(prompt.pictures)], prompt.pictures)
    gap = "" if family == "paligemma" else " "  # A text that ends with a line needs none.
    labels = batch.labels[: len(task.train.ids[0]) - 1]
    assert (labels[: n - 1] == IGNORED).all()
    assert labels[n - 1 :].tolist() == [*ours.tokenizer.encode(gap + first.caption), ours.tokenizer.eos_id]
    with torch.no_grad():  # The caption's tokens see no later ones: its first logits are those of the prompt alone.
        logits = tokens.real(ours.network(tokens.padded()))
        alone = ours.network(prompt)[0, -1]
    assert (logits[n - 1] - alone).abs().max() < 1e-5
    assert batch.count == 2 * (len(ours.tokenizer.encode(gap + second.caption)) + 1)


def test_captions_of_pictures_of_any_size_are_learned(table: Path, tmp_path: Path):
    pictured(tmp_path / "start", "qwen2_5_vl")
    fields = {"model": {"start": str(tmp_path / "start")}, "batch_size": 8, "augment.flip": True}
    rows = [{"image": str(table.parent / f"{i}.png"), "text": "red" if i % 3 == 0 else "what"} for i in range(24)]
    given = tmp_path / "rows.jsonl"
    given.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = run_of(given, tmp_path / "run", **fields)
    assert run.scores["exact_match"] == 1.0, run.scores
    paths = [str(table.parent / f"{i}.png") for i in (3, 4)]
    assert [one["text"] for one in run.model.predict(paths)] == ["red", "what"]
    for name in ("<image>", "<|video_pad|>"):
        given.write_text("\n".join(map(json.dumps, [*rows, {**rows[0], "text": f"red {name}"}])), encoding="utf-8")
        message = rf"rows\.jsonl:25: .*expected a caption without {re.escape(name)}, the mark of a picture or video"
        with pytest.raises(UserError, match=message):
            run_of(given, tmp_path / "none", **fields)


def _truncated(path: Path) -> None:
    Image.effect_noise((64, 64), 90).convert("RGB").save(path, format="PNG")
    path.write_bytes(path.read_bytes()[:900])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (_truncated, "expected a whole image"),
    "missing": (lambda path: None, "expected an image file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_one_line_or_left_out(kind: str, table: Path, tmp_path: Path):
    make, message = BROKEN[kind]
    path = tmp_path / "bad.png"
    make(path)
    rows = [{"image": str(table.parent / f"{i}.png"), "text": "a"} for i in range(4)]
    given = tmp_path / "rows.jsonl"
    given.write_text("\n".join(map(json.dumps, [*rows, {"image": str(path), "text": "b"}])), encoding="utf-8")
    source = {"kind": "table", "path": str(given), "text": "text"}
    recipe = CaptionRecipe.model_validate({"task": "captions", "data": {"train": source}})
    with pytest.raises(UserError, match=message) as caught:
        Captioning.read(recipe.data.sources["train"], recipe.data)
    assert str(caught.value).startswith(f"{given}:5:image: ")
    assert "\n" not in str(caught.value)
    data = recipe.data.model_copy(update={"skip_bad": True})
    assert len(Captioning.read(data.sources["train"], data)) == 4


def test_odd_pictures_are_read(table: Path, tmp_path: Path):
    """CMYK, 1 x 10,000, and one that EXIF turns: its pixels are those of the upright picture."""
    upright = Image.effect_mandelbrot((31, 20), (-2, -1, 1, 1), 50).convert("RGB")
    upright.convert("CMYK").save(tmp_path / "cmyk.jpg")
    Image.new("L", (1, 10_000), 90).save(tmp_path / "long.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    upright.save(tmp_path / "upright.png")
    names = ("cmyk.jpg", "long.png", "turned.png", "upright.png")
    rows = [json.dumps({"image": name, "text": "a picture"}) for name in names]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    source = {"kind": "table", "path": str(tmp_path / "rows.jsonl"), "text": "text"}
    recipe = CaptionRecipe.model_validate({"task": "captions", "data": {"train": source}})
    found = Captioning.read(recipe.data.sources["train"], recipe.data)
    assert [one.picture.name for one in found] == [*names]
    assert found[2].digest == found[3].digest


def test_what_does_not_fit_is_named(table: Path, tmp_path: Path):
    refused = {
        "image: expected 2 pictures, one for each <image>, got 1": {"data.prompt": "<image> <image>"},
        "model: expected one that reads pictures": {"model": {"preset": "nano"}},
        "model.pictures: preset 'nano' reads text alone": {"model": {"preset": "nano", "pictures": SMALL}},
    }
    for message, fields in refused.items():
        with pytest.raises(UserError, match=message):
            run_of(table, tmp_path / "none", **fields)
    marked = tmp_path / "marked.csv"
    rows = "".join(f"{table.parent}/{i}.png,an <image>\n" for i in range(9))
    marked.write_text(f"image,text\n{rows}", encoding="utf-8")
    with pytest.raises(UserError, match="expected a caption without <image>, the mark of a picture"):
        run_of(marked, tmp_path / "none", **{"data.held_out": 0.2})
