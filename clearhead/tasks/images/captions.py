"""Captions: the text of a picture, by a decoder that reads the picture before it (Liu et al. 2023, LLaVA)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from tokenizers import AddedToken
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import ModelConfig, PatchInput, PictureInput
from clearhead.data.bad_rows import BadRow
from clearhead.data.batches import Batches
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize, load
from clearhead.data.sources import examples_of
from clearhead.data.splits import complete_splits
from clearhead.data.tables import MISSING, written
from clearhead.errors import UserError
from clearhead.generation import Finished, generate
from clearhead.generation.settings import changed
from clearhead.json_text import tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.progress import counted
from clearhead.randomness import key
from clearhead.recipe import ModelChoice, Overrides, Recipe
from clearhead.recipe.data import Column, HubDataset, Source, Table, TestedData
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import TokenizerConfig, Words
from clearhead.tasks.evaluation import Evaluation, Example, worst_samples
from clearhead.tasks.images.data import IN_MEMORY_UP_TO, PREPROCESSOR, Augmentation, Bytes, draws_of
from clearhead.tasks.networks import check_decoder, check_fits, total_loss
from clearhead.tasks.reports import SplitReport, repeats
from clearhead.tasks.scores import Score, perplexity
from clearhead.tasks.task import Batch, ExampleTask, Files, HeadLoss, Prediction, Trained
from clearhead.tasks.text_scores import exact_match
from clearhead.text.pictures import Marks
from clearhead.text.special_tokens import template_tokens, with_special
from clearhead.text.tokenizers import Tokenizer

MARK = "<image>"
"""The mark of a picture in the texts of a model that is trained from the start."""
AT_ONCE = 64
"""Pictures of one batch outside of training."""
UNCHANGED = Augmentation()


@dataclass(frozen=True, slots=True)
class Captioned:
    """A picture and its caption."""

    picture: Path
    caption: str
    where: str
    """Its place, such as `captions.csv:17`."""
    digest: str
    """The hash of its pixels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The caption, which a duplicate may contradict."""
        return (self.caption,)

    @property
    def normalized(self) -> str:
        """Equal for equal pictures alone."""
        return self.digest


class CaptionData(TestedData):
    """Pictures with captions, in two columns of a table or dataset. Relative paths begin at the table's folder."""

    image: Column = "image"
    """Column of the pictures' paths. The sources name that of the captions as `text`."""
    prompt: str = ""
    """The text before each caption, such as a question. A mark says where the picture stands in it, by default
    before it."""


class CaptionRecipe(Recipe):
    """How to train a model that reads a picture and writes its caption."""

    task: Literal["captions"]
    data: CaptionData
    tokenizer: TokenizerConfig = Words()
    model: ModelChoice = ModelChoice(preset="captioner")
    generation: GenerationConfig = GenerationConfig(max_new_tokens=64)
    batch_size: PositiveInt = 32
    """Pictures of one batch; `training.max_tokens` has no effect."""
    augment: Augmentation = UNCHANGED
    pixels: ImageConfig | None = None
    """How pixels become numbers. None: as in `model.start`, else by mean and deviation of the training data."""
    pictures: Overrides | None = None
    """How the model reads pictures, as a run notes it. None: as in `model.start`, else as the preset says."""


@dataclass(frozen=True)
class Captions:
    """Captions as ids after their prompts, and the frames of their pictures."""

    __repr__ = brief

    examples: Sequence[Captioned]
    ids: Sequence[list[int]]
    n_prompt: Sequence[int]
    """The first ids of each, which are no part of the caption."""
    read: Callable[[int], Bytes]
    """The frames of the picture with this number, n c y x."""

    def take(self, rows: Sequence[int]) -> Self:
        """The captions with these numbers."""
        own, ids, n = ([one[i] for i in rows] for one in (self.examples, self.ids, self.n_prompt))

        def read(i: int) -> Bytes:
            return self.read(rows[i])

        return replace(self, examples=own, ids=ids, n_prompt=n, read=read)

    @property
    def sizes(self) -> list[int]:
        """The tokens of each caption and its prompt."""
        return [*map(len, self.ids)]


@dataclass(eq=False)
class Captioning(HeadLoss, ExampleTask[CaptionRecipe, Captioned, Captions]):
    """p(token of a caption | the picture, and the tokens before it)."""

    recipe = CaptionRecipe
    files = Files("a table of pictures and captions", {"kind": "table", "path": "--data"})
    use = "predict {} picture.png"
    samples = "worst mistakes"
    main_score = "loss"
    higher_is_better = False
    unit = "trained tokens"

    tokenizer: Tokenizer
    processor: ImageProcessor
    seen: PictureInput
    _: KW_ONLY
    prompt: str
    generation: GenerationConfig
    batch_size: int = AT_ONCE
    augment: Augmentation = UNCHANGED
    seed: int = 0

    def __post_init__(self) -> None:
        self.generation = changed(self.generation, {"temperature": 0}).with_ids(
            start_id=None, end_id=self.tokenizer.need("eos"), pad_id=None
        )
        self.documents = {PREPROCESSOR: self.processor.config.to_document()}
        if self.augment != UNCHANGED and self.seen.tiles:
            raise UserError("augment: expected none for a model that cuts pictures into tiles; leave it out")

    # --- data

    @classmethod
    def read(cls, source: Source, data: CaptionData) -> list[Captioned]:
        """Every picture with its caption. Each picture is decoded once, so that a broken one is a bad row."""
        if not isinstance(source, Table | HubDataset) or source.text is None:
            raise UserError(f'{source.kind}: expected a table with a column of captions, got none; try text = "text"')
        table, columns = (source.path if isinstance(source, Table) else None), (data.image, source.text)
        folder = table.parent if isinstance(table, Path) else Path()

        def make(where: str, cells: list[object]) -> Captioned:
            path, caption = map(written, cells)
            for what, column, cell in (("picture's path", data.image, path), ("caption", source.text, caption)):
                if not cell.strip() or cell.lower() in MISSING:
                    got = cell or "none"
                    raise BadRow(f"{where}:{column}: expected a {what}, got {got}; fill it in or delete the row")
            try:
                image = load(folder / path, n_channels=3, on_white=False, where=where)
            except UserError as error:
                raise BadRow(f"{where}:{data.image}: {error}") from None
            return Captioned(folder / path, caption, f"{where}: {path}", sha256(image.tobytes()).hexdigest())

        return [*examples_of(source, columns, make)]

    @classmethod
    def split(cls, splits: dict[str, list[Captioned]], data: CaptionData) -> dict[str, list[Captioned]]:
        return complete_splits(splits, data.held_out, expected="pictures to hold some out", by_label=False)

    @classmethod
    def from_recipe(
        cls, recipe: CaptionRecipe, splits: Mapping[str, Sequence[Captioned]], tokenizer: Tokenizer | None
    ) -> Self:
        if recipe.pictures is None:
            got = f"got {recipe.model.start or recipe.model.preset}; try preset captioner"
            raise UserError(f"model: expected one that reads pictures within a text, {got}")
        seen, config, train = PictureInput.model_validate(recipe.pictures), recipe.pixels, splits["train"]
        if tokenizer is None:
            prompt = recipe.data.prompt if MARK in recipe.data.prompt else f"{MARK}\n{recipe.data.prompt}"
            texts = (f"{prompt.partition(MARK)[2]} {one.caption}" for one in train)
            tokenizer = with_special(Tokenizer.train(texts, recipe.tokenizer), [AddedToken(MARK, normalized=False)])
            seen = seen.model_copy(update={"mark_id": tokenizer.library.token_to_id(MARK)})
        reads = seen.reads
        if seen.any_size and (config is None or config.patch_size != reads.patch_size):
            expected = f"those of model.start with patch_size={reads.patch_size}, as it reads pictures of any size"
            raise UserError(f"pixels: expected {expected}, got others; leave it out")
        if config is None:
            assert isinstance(reads, PatchInput)
            size, n = PixelSize(height=reads.image_size, width=reads.image_size), reads.n_channels
            sizing = ImageProcessor(ImageConfig(size=size, image_mean=(0.0,) * n, image_std=(1.0,) * n))
            mean, std = statistics(sizing.resized(one.picture, where=one.where) for one in train)
            config = ImageConfig(size=size, image_mean=mean, image_std=std)
        own = {"prompt": recipe.data.prompt, "generation": recipe.generation, "batch_size": recipe.batch_size}
        processor = ImageProcessor(config, n_channels=seen.reads.n_channels)
        return cls(tokenizer, processor, seen, augment=recipe.augment, seed=recipe.training.seed, **own)

    @classmethod
    def from_model(cls, model: Trained, recipe: CaptionRecipe | None) -> Self:
        seen, prompt = model.network.config.pictures, recipe.data.prompt if recipe else ""
        assert seen is not None
        return cls(model.tokenizer, model.images, seen, prompt=prompt, generation=model.generation)

    def settle(self, recipe: CaptionRecipe) -> tuple[CaptionRecipe, Sequence[str]]:
        """The recipe with how pictures are read."""
        reads, n = self.seen.reads, self.seen.n_marks
        line = "pictures: as large as they are"
        if isinstance(reads, PatchInput):
            line = f"pictures: {reads.image_size} x {reads.image_size} pixels, {n} vectors each"
        return recipe.model_copy(
            update={"pixels": self.processor.explicit(), "pictures": self.seen.model_dump(mode="json")}
        ), [line]

    def known(self, examples: list[Captioned]) -> list[Captioned]:
        """The examples. Raises UserError for a caption with the mark of a picture, or a video, which it lacks."""
        reserved = Marks(self.seen, self.tokenizer).reserved
        for one in examples:
            for name in (name for name in reserved if name in one.caption):
                expected = f"expected a caption without {name}, the mark of a picture or video"
                raise UserError(f"{one.where}: {expected}; leave it out")
        return examples

    def encode(self, examples: Sequence[Captioned]) -> Captions:
        marks, begin = Marks(self.seen, self.tokenizer), template_tokens(self.tokenizer).before
        prompt, own = marks.placed(self.prompt, 1), () if marks.begins else begin
        end, kept, size = self.generation.end_ids[0], list[Bytes](), 0
        prompts, ids, n_prompt = dict[tuple[int, int], tuple[str, list[int]]](), list[list[int]](), list[int]()
        for one in examples:
            frames, grid = self.processor.frames(one.picture, where=one.where)
            if grid not in prompts:
                text = marks.spelled(prompt, [grid])
                prompts[grid] = text if text[-1:].isspace() else f"{text} ", self.tokenizer.encode(text)
            text, before = prompts[grid]
            whole, n = self.tokenizer.encode(text + one.caption), len(before)
            caption = whole[n:] if whole[:n] == before else self.tokenizer.encode(one.caption)
            ids.append([*own, *before, *caption, end])
            n_prompt.append(len(own) + n)
            size = size or frames.nbytes * len(examples)
            if size <= IN_MEMORY_UP_TO:
                kept.append(frames)
        if kept:
            return Captions(examples, ids, n_prompt, kept.__getitem__)
        return Captions(examples, ids, n_prompt, lambda i: self.processor.frames(examples[i].picture, where="")[0])

    @classmethod
    def content(cls, example: Captioned) -> Sequence[str]:
        return example.digest, example.caption

    def describe(
        self, name: str, examples: Sequence[Captioned], data: Captions, train: Sequence[Captioned]
    ) -> SplitReport:
        n, total = len(examples), sum(data.sizes) - sum(data.n_prompt)
        line = f"{name}: {n:,} pictures, captions of {total / max(n, 1):.1f} tokens"
        again = repeats(
            examples, train, labels=lambda one: one.labels, place=lambda one: one.where, another="with another caption"
        )
        captions = (ids[first:-1] for ids, first in zip(data.ids, data.n_prompt, strict=True))
        return SplitReport.of_texts([line], again, captions, self.tokenizer, name=name, n=n, n_tokens=total)

    # --- training

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """Example n * epoch + i is picture i in this epoch. Every epoch draws new random changes."""
        n = len(self.train.ids)
        order = np.random.default_rng(key(seed, "batches", epoch)).permutation(n)
        return Batches.of_size(order + n * epoch, self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        n = len(self.train.ids)
        epoch, rows = examples[0] // n, [number % n for number in examples]
        changes = None if self.augment == UNCHANGED else draws_of(key(self.seed, "augment", epoch), n)[rows]
        return self.batch(self.train, rows, changes)

    def batch(self, data: Captions, rows: Sequence[int], draws: NDArray[np.float64] | None = None) -> Batch:
        """These captions as one batch, whose labels are the tokens of the captions."""
        frames = [data.read(i) for i in rows]
        if draws is not None:
            frames = [self.augment.of(one, own[None]) for one, own in zip(frames, draws, strict=True)]
        ids, n_prompt = [data.ids[i] for i in rows], [data.n_prompt[i] for i in rows]
        tokens = Tokens.pad([one[:-1] for one in ids], packed=True)
        groups = None
        if self.seen.sees == "prompt":
            groups = (torch.arange(tokens.grid[1]) < torch.tensor(n_prompt)[:, None]).long()
        labels = [label for one, n in zip(ids, n_prompt, strict=True) for label in [IGNORED] * (n - 1) + one[n:]]
        inputs = replace(tokens, groups=groups, **self.pictures(frames))
        return Batch((inputs,), torch.tensor(labels), n_ignored=labels.count(IGNORED))

    def pictures(self, frames: Sequence[Bytes], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """What `Tokens` have of the frames of pictures, n c y x each."""
        pixels, side = torch.from_numpy(self.processor.joined(frames)), self.seen.reads.patch_size
        sizes = {"grids": torch.tensor([one.shape[2:] for one in frames]) // side} if self.seen.any_size else {}
        return {"pictures": pixels.to(dtype), **sizes}

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        check_decoder(config, "that reads pictures, to write captions", where=where, remedy=remedy)
        if config.pictures is None:
            raise UserError(f"{where}: expected a model that reads pictures within a text, got one of texts; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset captioner")
        ids = [*self.train.ids, *self.valid.ids]
        check_fits(config, (max(map(len, ids)), max(map(max, ids))), remedy="cut the captions")
        return ModelConfig.model_validate({**dict(config), "pictures": self.seen})

    # --- use

    def score(self, network: Transformer, data: Captions) -> Evaluation:
        """Measures the loss of the captions' tokens and the share of captions that the network writes exactly."""
        every = range(len(data.ids))
        batches = [every[i : i + AT_ONCE] for i in every[::AT_ONCE]]
        nats, n = total_loss(network, (self.batch(data, rows) for rows in batches), len(batches))
        outputs, references = self.write(network, data), [one.caption.strip() for one in data.examples]
        examples = [
            Example(one.where, output, caption, float(output != caption), output != caption, one.where)
            for one, output, caption in zip(data.examples, outputs, references, strict=True)
        ]
        scores = (
            Score("loss", nats / n, unit="nats a token of a caption"),
            perplexity(nats, n),
            exact_match(outputs, [[caption] for caption in references]),
        )
        return Evaluation(scores, worst_samples(examples), tuple(outputs), nats / n, tuple(examples))

    def write(self, network: Transformer, data: Captions) -> list[str]:
        """The captions that the network writes, the likeliest token each time."""
        lengths, found = dict[int, list[int]](), dict[int, str]()
        for i, n in enumerate(data.n_prompt):
            lengths.setdefault(n, []).append(i)
        batches = [rows[i : i + AT_ONCE] for rows in lengths.values() for i in range(0, len(rows), AT_ONCE)]
        for rows in counted(batches, "writing", len(batches)):
            ids = torch.tensor([data.ids[i][: data.n_prompt[i]] for i in rows])
            seen = self.pictures([data.read(i) for i in rows], network.dtype)
            prompts = Tokens(ids, **seen).to(network.device)
            *_, last = generate(network, prompts, config=self.generation, scored=False)
            assert isinstance(last, Finished)
            texts = (self.tokenizer.decode(best[0].tokens).strip() for best in last.hypotheses)
            found |= zip(rows, texts, strict=True)
        return [found[i] for i in range(len(data.ids))]

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        """Writes the caption of the picture at each path."""
        data: Any = (model.recipe or {}).get("data")
        prompt = data.get("prompt", "") if isinstance(data, Mapping) else ""
        for text in texts:
            caption = model.generate(str(prompt), image=Path(text)).strip()
            yield Prediction(tabbed(caption), {"text": caption})


def statistics(pictures: Iterator[Bytes]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the standard deviation of each channel of pictures c y x, with pixels from 0 to 1."""
    sums = np.array([[one.mean((1, 2)), (one.astype(np.float64) ** 2).mean((1, 2))] for one in pictures]).mean(0)
    mean, std = sums[0] / 255, np.sqrt(np.maximum(sums[1] - sums[0] ** 2, 0)) / 255
    return tuple(np.round(mean, 4).tolist()), tuple(np.maximum(np.round(std, 4), 1e-4).tolist())
