"""Models of two towers: their logits, traces, files, labels of pictures, loss and updates beside the reference's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.analysis.comparison import CLOSE
from clearhead.api import TwoTowerModel, load, load_towers
from clearhead.api.predicting import ZeroShot
from clearhead.cli.use.inputs import Options
from clearhead.cli.use.predictions import predict_inputs
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.storage.tensors import model_tensors
from tests.later import later
from tests.parity.cases import base
from tests.parity.harness import Case, reference

later("transformers")

LETTERS = "abcdefghijklmnopqrstuvwxyz."
START, END = "<|startoftext|>", "<|endoftext|>"
VOCABULARY = {mark: i for i, mark in enumerate([*LETTERS, *(f"{one}</w>" for one in LETTERS), "th", START, END])}
IDS = {"bos_token_id": VOCABULARY[START], "eos_token_id": VOCABULARY[END], "pad_token_id": VOCABULARY[END]}
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 16, 20, 3), dtype=np.uint8)
TEXTS = ["a cat.", "This is a photo of a dog, seen from far away", "x"]
PROCESSOR = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 12}, "crop_size": 12}
IMAGE_BASE = base("siglip_vision_model")
TEXT = base("siglip_text_model") | {"vocab_size": len(VOCABULARY), **IDS}
CLIP: dict[str, Any] = {"text_config": TEXT, "vision_config": IMAGE_BASE, "projection_dim": 10}
# The width of both towers is that of their vectors.
SIGLIP: dict[str, Any] = {"text_config": TEXT | {"pad_token_id": 1}, "vision_config": IMAGE_BASE}
KINDS = {"CLIPModel": CLIP, "SiglipModel": SIGLIP}


def made(architecture: str, folder: Path) -> Any:
    """A tiny random reference in a folder with tokenizer and image processor."""
    import transformers

    theirs = reference(Case("", "", architecture, KINDS[architecture]))
    theirs.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    if architecture == "CLIPModel":
        tokenizer: Any = transformers.CLIPTokenizer
        tokenizer(VOCABULARY, [("t", "h")]).save_pretrained(folder)
    return theirs


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> tuple[Any, Path, TwoTowerModel]:
    folder = tmp_path_factory.mktemp("clip")
    return made("CLIPModel", folder), folder, load_towers(folder)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours - theirs).abs().max() <= CLOSE * max(1.0, float(theirs.abs().max()))


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Three pictures and three texts that end with the end token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(LETTERS), (3, 7), generator=generator)
    ids[:, -1] = IDS["eos_token_id"]
    return torch.randn(3, 3, 12, 12, generator=generator), ids


@pytest.mark.parametrize("architecture", KINDS)
def test_logits_files_and_loss_are_the_reference_s(architecture: str, tmp_path):
    theirs = made(architecture, tmp_path / "theirs")
    ours = load_towers(tmp_path / "theirs")
    pixels, ids = batch()
    with torch.no_grad():
        expected = theirs(input_ids=ids, pixel_values=pixels, return_loss=True)
        logits = ours.network(Tokens(pixels), Tokens(ids))
    close(logits, expected.logits_per_image)
    torch.testing.assert_close(ours.network.loss(logits), expected.loss, rtol=1e-5, atol=1e-5)
    ours.save(tmp_path / "ours")
    back, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    kept = theirs.state_dict()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in back.state_dict().items())
    with torch.no_grad():
        close(logits, back(input_ids=ids, pixel_values=pixels).logits_per_image)
    again, own = model_tensors(load_towers(tmp_path / "ours").network), model_tensors(ours.network)
    assert all(torch.equal(tensor, again[name]) for name, tensor in own.items())


@pytest.mark.parametrize("steps", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", KINDS)
def test_updates_are_the_reference_s(architecture: str, steps: int, tmp_path):
    theirs = made(architecture, tmp_path).double().train()
    ours = load_towers(tmp_path, dtype=torch.float64).network.train()
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (theirs, ours)]
    for step in range(steps):
        pixels, ids = batch(step)
        pixels = pixels.double()
        expected = theirs(input_ids=ids, pixel_values=pixels, return_loss=True).loss
        loss = ours.loss(ours(Tokens(pixels), Tokens(ids)))
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
        for value, optimizer in zip((expected, loss), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()


def test_texts_and_pictures_as_people_have_them(clip: tuple[Any, Path, TwoTowerModel]):
    import transformers

    theirs, folder, ours = clip
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXTS, padding=True, truncation=True, max_length=20, return_tensors="pt")
    pixels = torch.from_numpy(ours.image.images(list(PICTURES)))
    with torch.no_grad():
        expected = theirs(**ids, pixel_values=pixels)
    close(ours.logits(list(PICTURES), TEXTS), expected.logits_per_image)
    close(ours.embed(TEXTS), expected.text_embeds)
    close(ours.embed(list(PICTURES)), expected.image_embeds)
    rows = ours.classify(list(PICTURES), labels=["a cat", "a dog"])
    with torch.no_grad():
        ids = tokenizer([f"This is a photo of {x}." for x in ("a cat", "a dog")], padding=True, return_tensors="pt")
        shares = theirs(**ids, pixel_values=pixels).logits_per_image.softmax(-1)
    found = torch.tensor([[dict(row)[label] for label in ("a cat", "a dog")] for row in rows])
    torch.testing.assert_close(found, shares, rtol=1e-4, atol=1e-5)


def test_every_value_of_both_towers_has_an_address(clip: tuple[Any, Path, TwoTowerModel]):
    ours = clip[2]
    seen, logits = ours.trace(list(PICTURES), TEXTS)
    for address in (
        "text.decoder.blocks.1.attn.weights",
        "image.encoder.embed.norm.out",
        "image.head.vector",
        "logits",
    ):
        assert address in seen
    assert torch.equal(seen["logits"], logits)
    changed, other = ours.trace(list(PICTURES), TEXTS, edit={"image.encoder.blocks.0.attn.z[h=1]": 0.0})
    assert torch.equal(changed["text.head.vector"], seen["text.head.vector"])
    assert not torch.equal(other, logits)


def test_a_tower_is_a_model_of_its_own(clip: tuple[Any, Path, TwoTowerModel], tmp_path):
    ours = clip[2]
    for tower, architecture in (
        (ours.text, "CLIPTextModelWithProjection"),
        (ours.image, "CLIPVisionModelWithProjection"),
    ):
        folder = tower.save(tmp_path / architecture)
        assert json.loads((folder / "config.json").read_text())["architectures"] == [architecture]
        inputs = TEXTS if tower is ours.text else list(PICTURES)
        assert torch.equal(load(folder).embed(inputs), tower.embed(inputs))


def test_the_command_line(clip: tuple[Any, Path, TwoTowerModel], tmp_path, capsys):
    from PIL import Image

    folder, ours = clip[1], clip[2]
    picture = str(tmp_path / "one.png")
    Image.fromarray(PICTURES[0]).save(picture)
    predict_inputs(str(folder), [picture], Options(), verb="classify", zero_shot=ZeroShot(["a cat", "a dog"]))
    ((label, share), _) = ours.classify([PICTURES[0]], labels=["a cat", "a dog"])[0]
    assert capsys.readouterr().out == f"{label}\t{share:.4f}\n"
    predict_inputs(str(folder), [picture, "a cat"], Options(json=True), verb="embed")
    vectors = [json.loads(line)["vector"] for line in capsys.readouterr().out.splitlines()]
    expected = torch.cat([ours.embed([PICTURES[0]]), ours.embed(["a cat"])])
    torch.testing.assert_close(torch.tensor(vectors), expected, rtol=0, atol=1e-6)


def test_refused(clip: tuple[Any, Path, TwoTowerModel], tmp_path):
    _, folder, ours = clip
    document, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")

    def changed(**fields: object) -> TwoTowerModel:
        (tmp_path / "config.json").write_text(json.dumps(document | fields))
        return load_towers(tmp_path)

    def scaled(**scale: torch.Tensor) -> TwoTowerModel:
        kept = {name: tensor for name, tensor in tensors.items() if name != "logit_scale"} | scale
        save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
        return changed()

    pictures = list(PICTURES)
    for call, message in (
        (lambda: load(folder), r"got the two of clip; try clearhead.load_towers"),
        (lambda: ours.classify(pictures, labels=["a", "b"], several=True), "several: expected a model that judges"),
        (lambda: ours.classify(pictures, labels=["a", "a"]), "labels: expected a list of different labels, got"),
        (lambda: ours.embed(["a", PICTURES[0]]), "embed: expected texts or pictures, got both"),
        (lambda: ours.network.loss(torch.zeros(3, 2)), "loss: expected as many pictures as texts, got 3 and 2"),
        (lambda: changed(model_type="bert"), "model_type: expected clip or siglip, got 'bert'; try load"),
        (lambda: changed(architectures=["CLIPForImageClassification"]), "architectures: expected CLIPModel"),
        (lambda: changed(is_decoder=True), "is_decoder: expected False"),
        (lambda: changed(text_config=[1]), r"text_config: expected a table, got \[1\]"),
        (lambda: changed(projection_dim="wide"), "projection_dim: expected a whole number, got"),
        (lambda: changed(vision_config={"hidden_size": -1}), "vision_config:hidden_size: expected greater than 0"),
        (lambda: scaled(logit_scale=torch.zeros(2)), "logit_scale: expected one number, got"),
        (scaled, "logit_scale: expected one number, got"),
    ):
        with pytest.raises(UserError, match=message):
            call()
