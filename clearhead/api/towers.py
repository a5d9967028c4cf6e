"""`TwoTowerModel`, a model of texts and one of pictures whose vectors are compared, and what opens one."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.api.folders import CONFIG, PREPROCESSOR, images_of
from clearhead.api.model import Model
from clearhead.api.predicting import ZeroShot, answered
from clearhead.api.pretrained import CHANGED, Source, common_dtype, named_as_ours, opened
from clearhead.api.reader import Input, listed
from clearhead.api.saving import SHARD_BYTES
from clearhead.checkpoints.families.generation import SPECIAL, write_generation
from clearhead.checkpoints.families.pictures_and_sounds.towers import Towers, towers_of
from clearhead.checkpoints.weights import mapping, safetensors
from clearhead.checkpoints.weights.documents import AGAIN, CONFIG_LIMIT, INDEX, read_json
from clearhead.checkpoints.weights.hub import locate
from clearhead.config import ModelConfig
from clearhead.config.heads import VectorHead
from clearhead.config.inputs import PatchInput
from clearhead.errors import UserError
from clearhead.machine.device import device_named
from clearhead.model.mode import Evaluating
from clearhead.model.towers import TwoTowers
from clearhead.storage.checkpoints import Checkpoint, write_folder
from clearhead.storage.manifest import MANIFEST, verify
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.classification.task import labelled
from clearhead.tasks.task import NOTHING, Prediction
from clearhead.text.tokenizers import Tokenizer
from clearhead.trace import Edit, Trace, trace


class TwoTowerModel:
    """A model of texts and a model of pictures. `text` and `image` are these models; `network` compares them."""

    def __init__(self, text: Model, image: Model, network: TwoTowers, kind: Towers) -> None:
        self.text, self.image, self.network, self.kind = text, image, network.eval(), kind

    def __repr__(self) -> str:
        return f"TwoTowerModel(text={self.text!r}, image={self.image!r})"

    def logits(self, images: Sequence[Input], texts: Sequence[str]) -> Tensor:
        """i n: how well each picture and each text fit, for pictures i and texts n."""
        with Evaluating(self.network), torch.inference_mode():
            vectors = self.image.embed(images, unit=False), self.text.embed(texts, unit=False)
            return self.network.compared(*vectors)

    def classify(
        self, images: Sequence[Input], *, labels: Sequence[str], template: str | None = None, several: bool = False
    ) -> list[list[tuple[str, float]]]:
        """The labels of each picture with their probabilities, largest first.

        `template` is the sentence about a label, with {} in its place. The probabilities of a picture sum to 1; with
        `several`, and for a model that judges each pair by itself, each label has its own.
        """
        asked = ZeroShot(labels, template, several)
        return [sorted(row, key=lambda pair: -pair[1]) for row in self.judged(listed(images, "classify"), asked)]

    def judged(self, images: Sequence[Input], asked: ZeroShot) -> list[list[tuple[str, float]]]:
        """The probability of each label for each picture, in the order of the labels."""
        asked.check_labels()
        logits = self.logits(images, asked.sentences(self.kind.template)).float()
        shares = logits.sigmoid() if self.judges_alone(asked) else logits.softmax(-1)
        return [list(zip(asked.labels, row, strict=True)) for row in shares.tolist()]

    def judges_alone(self, asked: ZeroShot) -> bool:
        """True if each label has a probability of its own. Raises UserError if it cannot have one."""
        if asked.several and not self.kind.has_bias:
            raise UserError(
                f"several: expected a model that judges each pair by itself, got {self.kind.model_type}; leave it out"
            )
        return self.kind.has_bias

    def predictions(self, images: Sequence[str], asked: ZeroShot) -> Iterator[Prediction]:
        """The label of the picture at each path; an empty prediction for a blank path."""

        def ask(known: list[str]) -> Iterator[Prediction]:
            rows = self.judged([Path(image) for image in known], asked)
            return (labelled(dict(row), several=asked.several) for row in rows)

        return answered(images, ask, NOTHING)

    def embed(self, inputs: Sequence[Input], *, unit: bool = True) -> Tensor:
        """One vector for each text (a string) or picture (a path, an image or an array), b d.

        The vectors of texts and of pictures can be compared. Raises UserError for texts among pictures.
        """
        texts = [isinstance(one, str) for one in listed(inputs, "embed")]
        if any(texts) and not all(texts):
            raise UserError("embed: expected texts or pictures, got both; call it for each, with Path for a picture")
        return (self.text if all(texts) else self.image).embed(inputs, unit=unit)

    def trace(
        self, images: Sequence[Input], texts: Sequence[str], *, edit: Mapping[str, Edit] | None = None
    ) -> tuple[Trace, Tensor]:
        """A trace of every value of both towers, and the logits.

        An address begins with the name of its tower, such as image.encoder.blocks.0.attn.weights.
        """
        batches = self.image.reader.batch(images, pad_id=None), self.text.reader.batch(texts, pad_id=None)
        with Evaluating(self.network), torch.no_grad(), trace(self.network, edit) as seen:
            logits = self.network(self.image.here(batches[0]), self.text.here(batches[1]))
        return seen, logits

    def save(self, folder: str | Path) -> Path:
        """Writes a new folder for `load_towers`, and for other libraries."""
        kind, networks = self.kind, (self.text.network, self.image.network)
        document = kind.written(*(network.config for network in networks))
        assert document is not None
        own = {n: t for n, t in model_tensors(self.network).items() if n.startswith("logit_")}
        tensors = mapping.save(kind.rules, own)
        for family, network in zip((kind.text, kind.image), networks, strict=True):
            tensors |= mapping.save(family.table(network.config, family.heads[0]), model_tensors(network))
        settings = write_generation(self.text.settings(), encoder_decoder=False)
        document["text_config"] |= {name: settings[name] for name in settings.keys() & SPECIAL}
        document["dtype"] = self.network.dtype_name
        files: dict[str, Any] = {CONFIG: document}
        shards, index = safetensors.shards(tensors, limit_bytes=SHARD_BYTES)
        if index is not None:
            files[INDEX] = index
        if self.image.reader.images is not None:
            files[PREPROCESSOR] = self.image.images.config.to_document()
        raw = self.text.tokenizer_files() if self.text.has_tokenizer else {}
        return write_folder(Path(folder), Checkpoint(shards, files, raw))


def holds_towers(name: str | Path, *, revision: str | None = None) -> bool:
    """True if a name or folder is of a model with two towers."""
    try:
        path = locate(name, revision=revision) / CONFIG
        return path.is_file() and towers_of(read_json(path, limit=CONFIG_LIMIT)) is not None
    except UserError:
        return False


def load_towers(
    name: str | Path, *, revision: str | None = None, dtype: torch.dtype | None = None, device: str = "cpu"
) -> TwoTowerModel:
    """A model of two towers, such as CLIP or SigLIP, by the name that it has on the hub, or from a folder.

    Raises UserError for a model that is missing, damaged or not supported.
    """
    place, folder = device_named(device), locate(name, revision=revision)
    where = str(folder / CONFIG)
    document = read_json(folder / CONFIG, limit=CONFIG_LIMIT)
    kind = towers_of(document)
    if kind is None:
        raise UserError(f"{where}:model_type: expected clip or siglip, got {document.get('model_type')!r}; try load")
    kind.check(document, where=where)
    parts = [*zip(kind.families, kind.towers(document), PARTS.items(), strict=True)]
    for family, config, (part, _) in parts:
        family.read(config, where=f"{where}:{part}")  # Before any weight is read.
    if (folder / MANIFEST).exists():
        verify(folder, others=True, remedy=CHANGED)
    theirs = safetensors.read(folder)
    target = dtype or common_dtype((tensor.dtype, tensor.numel()) for tensor in theirs.values())
    towers: list[Model] = []
    for _, config, (part, prefixes) in parts:
        own = {name: theirs.pop(name) for name in [*theirs] if name.startswith(prefixes)}
        towers.append(_tower(Source(folder, config, f"{where}:{part}", lambda _, own=own: own, None), target))
    text, image = towers
    widths = [vector_width(model.config) for model in towers]
    if widths[0] != widths[1]:
        got = f"{widths[0]} and {widths[1]}"
        raise UserError(f"{where}: expected vectors of texts and of pictures of one width, got {got}; {AGAIN}")
    network = TwoTowers(text.network, image.network, bias=kind.has_bias)
    _fill(network, named_as_ours(theirs, kind.rules, where=str(folder)).tensors, where=str(folder))
    network.to(place, dtype=target)
    return TwoTowerModel(text, image, network, kind)


def vector_width(config: ModelConfig) -> int:
    """The width of the vector that a tower makes."""
    assert isinstance(config.head, VectorHead)
    return config.head.width or config.output.d_model


def _fill(network: TwoTowers, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Sets the numbers that compare the vectors. Raises UserError unless each is there, as one number."""
    for name, parameter in network.named_parameters(recurse=False):
        found = tensors.get(name)
        if found is None or found.shape != parameter.shape:
            got = "none" if found is None else f"shape {list(found.shape)}"
            raise UserError(f"{where}:{name}: expected one number, got {got}; {AGAIN}")
        parameter.data = found.detach().clone()


PARTS = {"text_config": ("text_",), "vision_config": ("vision_", "visual_")}
"""The beginnings of the names of each tower's tensors, by the field that holds its config."""


def _tower(source: Source, dtype: torch.dtype) -> Model:
    """Opens one tower as a model of its own."""
    tower = opened(source, dtype=dtype, head=None)
    network, name = tower.network.eval(), tower.family.model_type
    if isinstance(network.config.first.input, PatchInput):
        return Model(network, images=images_of(source.place, network.config), family=name)
    return Model(network, Tokenizer.find(source.place), tower.generation, family=name)
