"""Image classification: the class of a picture, by an encoder of patches (Dosovitskiy et al. 2020)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor

from clearhead.brief import amount
from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead
from clearhead.config.inputs import PatchInput
from clearhead.config.positions import Learned
from clearhead.data.bad_rows import RowErrors
from clearhead.data.batches import Batches
from clearhead.data.corpus import Encoded
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Column, Source, TestedData
from clearhead.tasks.classification.data import MOST_NAMES, LabelledText, names_of
from clearhead.tasks.classification.task import head_of, label_evaluation, label_losses, names_in, predictions_of
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.images.data import (
    PREPROCESSOR,
    Augmentation,
    Pictures,
    channels_of,
    draws_of,
    patch_for,
    read_pictures,
    size_of,
    with_held_out,
)
from clearhead.tasks.reports import SplitReport, SplitsReport, check_known, repeats, shares_line
from clearhead.tasks.task import Batch, Files, Prediction, Prepared, RecipeTask, Trained, defaults
from clearhead.text.tokenizers import Tokenizer


def picture_split(
    name: str, pictures: Sequence[LabelledText], labels: Sequence[str], train: Sequence[LabelledText]
) -> SplitReport:
    """The report on a split. Pictures with the same pixels are equal."""
    found = Counter(label for one in pictures for label in one.labels)
    counts = {label: found[label] for label in labels}
    lines = f"{name}: {amount(len(pictures), 'pictures')}", f"  classes: {shares_line(counts, MOST_NAMES)}"
    others: Sequence[LabelledText] = () if name == "train" else train
    again = repeats(
        pictures, others, labels=lambda one: one.labels, place=lambda one: one.where, another="of another class"
    )
    return SplitReport.of(lines, again, name=name, n=len(pictures), labels=counts)


EVALUATED_AT_ONCE = 256
"""Pictures of one batch outside of training."""
UNCHANGED = Augmentation()
PROBLEM = "single_label_classification"


class ImageData(TestedData):
    """Pictures with labels."""

    label: Column = "label"
    """Column of the labels in a table. Its sources name the column of the pictures' paths as `text`."""


class ImageRecipe(Recipe):
    """How to train a classifier of pictures."""

    task: Literal["image_classification"]
    data: ImageData
    model: ModelChoice = ModelChoice(preset="image-classifier")
    size: PositiveInt | None = None
    """Side in pixels of the squares to which pictures are resized. None: keeps them, and expects equal sizes."""
    patch_size: PositiveInt | None = None
    """Side of a patch in pixels. None: the smallest that makes at most 8 patches on a side."""
    batch_size: PositiveInt = 128
    """Pictures of one batch; `training.max_tokens` has no effect."""
    augment: Augmentation = UNCHANGED
    pixels: ImageConfig | None = None
    """How pixels become numbers. None: as in `model.start`, else by mean and deviation of the training data."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tokenizer != type(self).model_fields["tokenizer"].default:
            raise ValueError("tokenizer has no meaning for pictures; leave it out")
        if self.model.start is not None and (self.size, self.patch_size) != (None, None):
            raise ValueError("size and patch_size cannot be set beside model.start, which has its own; leave them out")
        if "input" in self.model.encoder or "input" in self.model.stacks:
            raise ValueError("model.encoder.input follows from the pictures; set size and patch_size in its place")
        return self


@dataclass(eq=False)
class ImageClassification(RecipeTask[ImageRecipe]):
    """p(class | picture)."""

    recipe = ImageRecipe
    files = Files("a folder with a folder of pictures for each class", {"kind": "image_folder", "path": "--data"})
    verb = "classify"
    use = "classify {} picture.png"
    samples = "worst mistakes"
    heads = ("classification",)
    main_score = "accuracy"
    higher_is_better = True
    unit = "pictures"

    processor: ImageProcessor
    train: Pictures
    valid: Pictures
    _: KW_ONLY
    labels: Sequence[str]
    patch_size: int | None = None
    is_new: bool = True
    """Whether the input takes its size from the pictures. A checkpoint's input must fit them already."""
    batch_size: int = 128
    augment: Augmentation = UNCHANGED
    seed: int = 0

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """Example n * epoch + i is picture i in this epoch. Every epoch draws new random changes."""
        n = len(self.train.examples)
        order = np.random.default_rng(key(seed, "batches", epoch)).permutation(n)
        return Batches.of_size(order + n * epoch, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        n = len(self.train.examples)
        epoch, rows = examples[0] // n, [number % n for number in examples]
        pixels = self.train.read(rows)
        if self.augment != UNCHANGED:
            pixels = self.augment.of(pixels, draws_of(key(self.seed, "augment", epoch), n)[rows])
        inputs = Tokens(torch.from_numpy(self.processor.values(pixels)))
        return Batch((inputs,), self.targets([self.train.examples[i] for i in rows]))

    def targets(self, pictures: Sequence[LabelledText]) -> Tensor:
        """n: the class of each picture."""
        index = {name: i for i, name in enumerate(self.labels)}
        return torch.tensor([index[one.labels[0]] for one in pictures])

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.decoder is not None or not isinstance(config.first.input, PatchInput):
            raise UserError(f"{where}: expected an encoder of pictures to classify them, got one of texts; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        """Gives a new network the size of the pictures, and its head the labels of the data."""
        self.check_kind(config, where="model", remedy="try preset image-classifier")
        stack = config.encoder
        assert stack is not None
        assert isinstance(stack.input, PatchInput)
        channels, height, width = self.train.shape
        if self.is_new:
            self._check_square(height, width)
            side = {"image_size": height, "patch_size": self.patch_size or patch_for(height)}
            reads = PatchInput.model_validate({**dict(stack.input), **side, "n_channels": channels})
            positions = Learned(max_length=reads.length) if isinstance(stack.positions, Learned) else stack.positions
            stack = stack.model_copy(update={"input": reads, "positions": positions})
        elif (channels, height, width) != (stack.input.n_channels, *[stack.input.image_size] * 2):
            wanted = f"{stack.input.n_channels} x {stack.input.image_size} x {stack.input.image_size}"
            got = f"{channels} x {height} x {width}"
            raise UserError(f"pixels: expected pictures of {wanted} for model.start, got {got}; set pixels.size")
        own = {"n_labels": len(self.labels), "labels": tuple(self.labels), "problem_type": PROBLEM}
        known = config.head if isinstance(config.head, ClassificationHead) else ClassificationHead(n_labels=2)
        return ModelConfig.model_validate({**dict(config), "encoder": stack, "head": known.model_copy(update=own)})

    def _check_square(self, height: int, width: int) -> None:
        if height != width:
            raise UserError(f"data: expected square pictures, got {height} x {width}; try --size {min(height, width)}")
        if self.patch_size is not None and height % self.patch_size:
            raise UserError(
                f"patch_size: expected a divisor of the {height} pixels of a side, got {self.patch_size};"
                f" try {patch_for(height)}"
            )

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The cross-entropy of the class, in nats."""
        return label_losses(network(*batch.inputs), batch.labels, PROBLEM, smoothing=smoothing).sum(), batch.count

    def score(self, network: Transformer, data: Pictures) -> Evaluation:
        """The scores on these pictures, and the mistakes with the largest loss."""
        numbers = range(len(data.examples))
        logits = torch.cat(
            [
                logits_of(network, self.processor.values(data.read(numbers[i : i + EVALUATED_AT_ONCE])))
                for i in counted(numbers[::EVALUATED_AT_ONCE], "reading")
            ]
        )
        targets = self.targets(data.examples)
        each = label_losses(logits, targets, PROBLEM)
        about = [(one.where, one.labels[0], one.where) for one in data.examples]
        return label_evaluation(network.config, logits, targets, each, about, self.labels, PROBLEM)

    @classmethod
    def prepare(cls, recipe: ImageRecipe, tokenizer: Tokenizer | None) -> Prepared:
        data = recipe.data
        errors = RowErrors(data.skip_bad)
        read = {name: read_pictures(source, data.label, errors) for name, source in data.sources.items()}
        every = [one for pictures in read.values() for one in pictures]
        config = recipe.pixels
        if config is None:
            height, width = size_of(every) if recipe.size is None else (recipe.size, recipe.size)
            n, size = channels_of(every), PixelSize(height=height, width=width)
            config = ImageConfig(size=size, image_mean=(0.0,) * n, image_std=(1.0,) * n)
        sizing = ImageProcessor(config)
        in_memory = {"auto": None, "memory": True, "disk": False}[data.storage]
        own = {"in_memory": in_memory, "patch_size": recipe.patch_size, "errors": errors}
        found = {name: Pictures.of(pictures, sizing, **own) for name, pictures in read.items()}
        splits = with_held_out(found, data.held_out)
        if recipe.pixels is None:
            mean, std = splits["train"].statistics()
            config = config.model_copy(update={"image_mean": mean, "image_std": std})
        labels, train = names_of(splits["train"].examples), splits["train"]
        task = cls(
            ImageProcessor(config),
            train,
            splits["valid"],
            labels=labels,
            patch_size=recipe.patch_size,
            is_new=recipe.model.start is None,
            batch_size=recipe.batch_size,
            augment=recipe.augment,
            seed=recipe.training.seed,
        )
        channels, height, width = train.shape
        line = f"pictures: {height} x {width} pixels, {'grey' if channels == 1 else 'in colour'}"
        counts = (picture_split(name, split.examples, labels, train.examples) for name, split in splits.items())
        report = SplitsReport(about=(line,), splits=tuple(counts))
        where = "in memory" if train.is_in_memory else "read from their files for each batch"
        hashes = {name: split.fingerprint for name, split in splits.items()}
        about = {"storage": f"data: pictures {where} (data.storage)", "documents": {PREPROCESSOR: config.to_document()}}
        return Prepared(
            task, Encoded(None, train, task.valid, report, hashes, bad_rows=[*map(str, errors.rows)], **about)
        )

    @classmethod
    def measure(
        cls, model: Trained, recipe: ImageRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        names = names_in(head_of(model.network.config))
        data = defaults(cls.recipe, model) if recipe is None else recipe.data
        sources = data.sources if source is None else {"test": source}
        errors = RowErrors(data.skip_bad)
        read = {name: read_pictures(one, data.label, errors) for name, one in sources.items()}
        splits = {name: Pictures.of(pictures, model.images, errors=errors) for name, pictures in read.items()}
        splits = splits if source is not None else with_held_out(splits, data.held_out)
        found = splits.get("test") or splits["valid"]
        check_known(found.examples, names, remedy="correct it, or train with pictures of it")
        return cls(model.images, found, found, labels=names).score(model.network, found)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Predicts the probability of each class for the picture at each path."""
        head_of(model.network.config)
        for text in texts:
            yield from predictions_of(model.network.config, logits_of(model.network, model.images([Path(text)])))


def logits_of(network: Transformer, pixels: np.ndarray) -> Tensor:
    """b v: the logits of pictures b c y x, on the CPU."""
    with Evaluating(network), torch.inference_mode():
        return network(Tokens(torch.from_numpy(pixels).to(network.device, network.dtype))).float().cpu()
