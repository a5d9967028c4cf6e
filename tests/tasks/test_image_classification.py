"""Pictures and their classes: random changes, and what users do with a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.api import load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config.heads import ClassificationHead
from clearhead.config.inputs import PatchInput
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.model import Tokens
from clearhead.runs import resume
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.images.data import Augmentation, Pictures, patch_for
from clearhead.tasks.images.task import ImageClassification
from clearhead.tasks.registry import suitable
from clearhead.tasks.task import Batch
from tests.tasks.small import begin, check_refused, check_resumed, losses, network_of, run_of, tables_of, trained

SIDE = 8
KINDS = {"dark": (0, 120), "light": (136, 256)}


def picture(kind: str, seed: int, *, channels: int = 1) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(*KINDS[kind], (SIDE, SIDE, channels), dtype=np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def write_folder(folder: Path, n: int = 12, *, channels: int = 1) -> None:
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(picture(kind, i, channels=channels)).save(folder / kind / f"{i}.png")


def task_of(n: int = 20, **settings: Any) -> ImageClassification:
    pixels = np.stack([picture([*KINDS][i % 2], i)[None] for i in range(n)])
    examples = [LabelledText((str(i),), ([*KINDS][i % 2],), f"digits[{i}]") for i in range(n)]
    data = Pictures(examples, lambda rows: pixels[list(rows)], is_in_memory=True)
    config = ImageConfig(size=PixelSize(height=SIDE, width=SIDE), image_mean=(0.5,), image_std=(0.25,))
    return ImageClassification(ImageProcessor(config), data, data, labels=[*KINDS], batch_size=8, **settings)


def tables(**data: Any) -> dict[str, Any]:
    train = {"kind": "image_folder", "path": "pictures"}
    fields = {"training": {"evaluate_every": 100}, "batch_size": 8, "augment": {"shift": 1, "flip": True}}
    given = tables_of("image_classification", train, preset="image-classifier", data=data, **fields)
    given.pop("tokenizer")
    return given


def doubled(batch: Batch) -> Batch:
    return Batch(tuple(Tokens(tokens.ids.double()) for tokens in batch.inputs), batch.labels)


# --- the loss ----------------------------------------------------------------------------------------------------


def test_random_changes_are_a_function_of_seed_epoch_and_picture():
    """However the pictures are divided among batches and processes; evaluation sees none of them."""
    task = task_of(augment=Augmentation(shift=2, flip=True))
    n = len(task.train.examples)

    def pixels(seed: int, epoch: int, i: int) -> bytes:
        one = task_of(augment=Augmentation(shift=2, flip=True), seed=seed)
        return one.collate([n * epoch + i]).inputs[0].ids.numpy().tobytes()

    for epoch in (0, 3):
        batches = task.plan(seed=0, epoch=epoch)
        assert sorted(number - n * epoch for batch in batches for number in batch) == [*range(n)]
        batch = batches[0]
        together = task.collate(batch).inputs[0].ids
        assert [one.numpy().tobytes() for one in together] == [pixels(0, epoch, i - n * epoch) for i in batch]
    assert len({pixels(seed, epoch, 5) for seed in range(3) for epoch in range(3)}) > 6
    network = network_of(task, "image-classifier").float()
    assert task.evaluate(network).outputs == task_of().evaluate(network).outputs


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_a_folder_to_predictions(capsys):
    write_folder(Path("pictures"))
    line = "pictures --steps 30 --training.optimizer.lr 1e-2 --batch_size 8 --training.evaluate_every 30"
    figures, lines = trained(f"{line} --training.ema null", capsys)
    tables = {"confusion", "by_label", "calibration"}
    assert figures["held_out"].keys() == {"accuracy", "macro_f1", "loss"} | tables
    for told in (
        "the 2 folders: dark, light  label",
        "pictures: 8 x 8 pixels, grey",
        "classes: dark 50.0%, light 50.0%",
        "use it: clearhead classify run picture.png",
    ):
        assert told in lines
    model = load("run")
    assert (model.config.first.input, model.has_tokenizer) == (
        PatchInput(image_size=8, patch_size=1, n_channels=1),
        False,
    )
    paths = ["pictures/dark/1.png", "pictures/light/1.png"]
    main(["predict", "run", *paths, "--json"])
    found = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [one["label"] for one in found] == ["dark", "light"]
    assert [one["input"] for one in found] == paths
    for one, (best, *_) in zip(found, model.classify(paths), strict=True):
        assert one["probabilities"][best[0]] == pytest.approx(best[1], abs=1e-6)
    Path("pictures/dark/1.png").rename("pictures/light/other.png")
    main(["evaluate", "run", "--data", "pictures", "--page", "mistakes.html"])
    assert "<!doctype html>" in Path("mistakes.html").read_text(encoding="utf-8").lower()
    assert "pictures/light/other.png" in capsys.readouterr().out


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_resumed_as_if_never_stopped(storage: str):
    write_folder(Path("pictures"), channels=3)
    check_resumed(tables(storage=storage))
    assert load("part").images.config == load("whole").images.config


def test_a_checkpoint_reads_pictures_as_it_did(capsys):
    """Pictures of another size are resized as it says; the run and what is saved of it keep that."""
    write_folder(Path("pictures"))
    run_of(tables(), "first")
    load("first").save("saved")
    for kind in KINDS:
        for path in Path("pictures", kind).iterdir():
            Image.open(path).resize((11, 13)).save(path)
    again = tables() | {"model": {"start": "saved"}}
    run, _ = begin(again, "second")
    assert torch.equal(
        run.network.state_dict()["head.output.weight"], load("saved").network.state_dict()["head.output.weight"]
    )
    losses(run)
    assert load("second").images.config.output == load("first").images.config.output
    resume(Path("second"), changes={"steps": 9})
    assert suitable(load("saved").config, where="x") is ImageClassification
    main(["predict", "saved", "pictures/dark/1.png"])
    assert capsys.readouterr().out.split("\t")[0] in KINDS


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"patch_size": 3}, "patch_size: expected a divisor of the 8 pixels of a side, got 3; try 1"),
        ({"tokenizer": {"kind": "bpe", "vocab_size": 50}}, "tokenizer has no meaning for pictures; leave it out"),
        ({"model": {"start": "x"}, "size": 8}, "size and patch_size cannot be set beside model.start"),
        ({"model": {"encoder": {"input": {"patch_size": 2}}}}, "set size and patch_size in its place"),
        ({"size": 11}, "patch_size: expected patches that divide 11 pixels, found none"),
    ],
)
def test_a_wrong_recipe_is_told(changes: dict[str, Any], told: str):
    write_folder(Path("pictures"), 10)
    check_refused(tables() | changes, told)


def test_a_picture_that_is_none_is_told_before_training():
    write_folder(Path("pictures"), 10)
    Path("pictures/dark/3.png").write_bytes(b"no picture")
    check_refused(tables(), "pictures/dark/3.png: expected a PNG, JPEG or WebP image, got something else")


def test_a_patch_divides_a_side():
    assert [patch_for(side) for side in (1, 8, 12, 28, 32, 96, 224, 30)] == [1, 1, 2, 4, 4, 12, 28, 5]
    head = task_of().fit(preset("image-classifier")).head
    assert isinstance(head, ClassificationHead)
    assert head.labels == ("dark", "light")
