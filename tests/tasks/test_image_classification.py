"""Pictures and their classes: the loss and the updates of the other library, and what users do with a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from clearhead.api import Model, load
from clearhead.checkpoints.families import preset
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead
from clearhead.config.inputs import PatchInput
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.runs import resume, start
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.images.data import Augmentation, Pictures
from clearhead.tasks.images.task import ImageClassification, patch_for
from clearhead.tasks.registry import suitable, validate
from clearhead.tasks.task import Batch
from clearhead.training.run import Run
from clearhead.training.train import train
from clearhead.training.update import BatchIterator, update
from tests.tasks.updates import check_resumed

SIDE = 8
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16, "dropout": 0.0}
CHANGES = [word for name, value in SMALL.items() for word in (f"--model.stacks.{name}", str(value))]
KINDS = {"dark": (0, 120), "light": (136, 256)}
TRAINING = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu"}


def picture(kind: str, seed: int, *, channels: int = 1) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(*KINDS[kind], (SIDE, SIDE, channels), dtype=np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)


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


def network_of(task: ImageClassification) -> Transformer:
    config = preset("image-classifier").model_dump()
    config["encoder"] |= SMALL
    return Transformer(task.fit(ModelConfig.model_validate(config)))


def doubled(batch: Batch) -> Batch:
    return Batch(tuple(Tokens(tokens.ids.double()) for tokens in batch.inputs), batch.labels)


# --- the loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_updates", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_loss_and_updates_are_those_of_the_other_library(n_updates: int, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    task = task_of(augment=Augmentation(shift=1, flip=True))
    ours = network_of(task).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    folder = Model(ours, images=task.processor).save(tmp_path / "model")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(folder, dtype=torch.float64).train()
    assert type(theirs).__name__ == "ViTForImageClassification"
    assert theirs.config.id2label == dict(enumerate(KINDS))
    training = Training(optimizer=AdamW(lr=1e-3), schedule=Constant(), steps=n_updates, clip=None, precision="fp32")
    run = Run(ours, task, training, None)
    batches, optimizer = (
        BatchIterator(run),
        torch.optim.AdamW(theirs.parameters(), 1e-3, (0.9, 0.98), 1e-9, weight_decay=0.0),
    )
    for _ in range(n_updates):
        batch = doubled(batches.next()[0][0])
        expected = theirs(batch.inputs[0].ids, labels=batch.labels).loss
        expected.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert update(run, [(batch, True)], 1.0)[0] == pytest.approx(expected.item(), rel=1e-9)
    pixels = doubled(task.collate([0, 1, 2])).inputs[0].ids
    torch.testing.assert_close(ours(pixels), theirs(pixels).logits, rtol=1e-9, atol=1e-9)


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
    network = network_of(task).eval()
    assert task.evaluate(network).outputs == task_of().evaluate(network).outputs


# --- a run -------------------------------------------------------------------------------------------------------


def test_from_a_folder_to_predictions(capsys: pytest.CaptureFixture[str]):
    write_folder(Path("pictures"))
    line = "train pictures --out run --steps 30 --precision fp32 --training.optimizer.lr 1e-2 --batch_size 8 --json"
    main([*line.split(), *CHANGES, "--training.evaluate_every", "30", "--training.ema", "null"])
    said = capsys.readouterr()
    tables = {"confusion", "by_label", "calibration"}
    assert json.loads(said.out)["held_out"].keys() == {"accuracy", "macro_f1", "loss"} | tables
    for told in (
        "task: image classification (a folder of pictures for each of 2 classes: dark, light)",
        "pictures: 8 x 8 pixels, grey",
        "classes: dark 50.0%, light 50.0%",
        "use it: clearhead classify run picture.png",
    ):
        assert told in said.err
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


def tables(**training: Any) -> dict[str, Any]:
    return {
        "task": "image_classification",
        "data": {"train": {"kind": "image_folder", "path": "pictures"}},
        "model": {"preset": "image-classifier", "stacks": SMALL},
        "batch_size": 8,
        "augment": {"shift": 1, "flip": True},
        "training": {**TRAINING, "steps": 6, "save_every": 3, "evaluate_every": 100, **training},
    }


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_resumed_as_if_never_stopped(storage: str):
    write_folder(Path("pictures"), channels=3)
    given = tables()
    given["data"]["storage"] = storage
    check_resumed(given)
    assert load("part").images.config == load("whole").images.config


def test_a_checkpoint_reads_pictures_as_it_did(capsys: pytest.CaptureFixture[str]):
    """Pictures of another size are resized as it says; the run and what is saved of it keep that."""
    write_folder(Path("pictures"))
    list(train(start(validate(tables(), where="x"), Path("first"))[0]))
    load("first").save("saved")
    for kind in KINDS:
        for path in Path("pictures", kind).iterdir():
            Image.open(path).resize((11, 13)).save(path)
    again = tables() | {"model": {"start": "saved"}}
    run, _ = start(validate(again, where="x"), Path("second"))
    assert torch.equal(
        run.network.state_dict()["head.output.weight"], load("saved").network.state_dict()["head.output.weight"]
    )
    list(train(run))
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
        ({"model": {"preset": "classifier"}}, "expected an encoder of pictures to classify them, got one of texts"),
        ({"size": 11}, "patch_size: expected patches that divide 11 pixels, found none"),
    ],
)
def test_a_wrong_recipe_is_told(changes: dict[str, Any], told: str):
    write_folder(Path("pictures"), 10)
    with pytest.raises(UserError) as error:
        start(validate(tables() | changes, where="x"), Path("run"))
    assert told in str(error.value)
    assert not Path("run").exists()


def test_a_picture_that_is_none_is_told_before_training():
    write_folder(Path("pictures"), 10)
    Path("pictures/dark/3.png").write_bytes(b"no picture")
    with pytest.raises(
        UserError, match=r"^.*pictures/dark/3\.png: expected a PNG, JPEG or WebP image, got something else$"
    ):
        start(validate(tables(), where="x"), Path("run"))
    assert not Path("run").exists()


def test_a_patch_divides_a_side():
    assert [patch_for(side) for side in (1, 8, 12, 28, 32, 96, 224, 30)] == [1, 1, 2, 4, 4, 12, 28, 5]
    head = task_of().fit(preset("image-classifier")).head
    assert isinstance(head, ClassificationHead)
    assert head.labels == ("dark", "light")
