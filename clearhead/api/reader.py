"""Turns texts, images and sounds into the inputs that a network was trained on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from clearhead.config import ModelConfig, StackConfig
from clearhead.config.heads import ClassificationHead, VectorHead
from clearhead.config.inputs import FrameInput, PatchInput, TokenInput, WaveInput
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig, SpeechTokens
from clearhead.tasks.classification.data import NO_LIMIT, Inputs, until_padding
from clearhead.text.languages import prefix_of
from clearhead.text.pictures import Marks
from clearhead.text.special_tokens import (
    SpecialTokens,
    source_tokens,
    start_again,
    start_token,
    target_tokens,
    template_tokens,
)
from clearhead.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor, Picture
    from clearhead.data.sounds import SoundProcessor, WaveProcessor

Encode: TypeAlias = Callable[[Sequence[str]], list[list[int]]]
Input: TypeAlias = "str | Picture"
"""A text, or for a network that reads images or sounds a file, an image or an array."""
Images: TypeAlias = "Picture | list[Picture] | tuple[Picture, ...] | None"
"""The picture or the pictures within a text; None for none."""
Texts: TypeAlias = Iterable[str | tuple[str, str]] | None
"""Texts, or pairs of texts for a model that reads pairs; None for none."""


@dataclass(frozen=True)
class Reader:
    """The tokenizer, and the image or sound processor, before a network."""

    config: ModelConfig
    tokenizer: Tokenizer | None
    images: "ImageProcessor | None"
    sounds: "SoundProcessor | WaveProcessor | None" = None
    max_length: int | None = None
    """Most tokens of a text that the model was trained to read, special ones included; longer ones are cut."""

    @property
    def words(self) -> Tokenizer:
        """The tokenizer. Raises UserError if there is none."""
        if self.tokenizer is None:
            use = "logits, classify or embed" if self.reads_images else "model.network with token ids"
            raise UserError(f"tokenizer: expected one with the model, got none; use {use}")
        return self.tokenizer

    @property
    def pictures(self) -> "ImageProcessor":
        """The image processor. Raises UserError if there is none."""
        if self.images is None:
            raise UserError("images: expected preprocessor_config.json with the model, got none; use model.network")
        return self.images

    @property
    def hearing(self) -> "SoundProcessor | WaveProcessor":
        """The sound processor. Raises UserError if there is none."""
        if self.sounds is None:
            raise UserError(
                "sounds: expected preprocessor_config.json with the model, which has its sampling rate, got none;"
                " use model.network"
            )
        return self.sounds

    @property
    def processor(self) -> "ImageProcessor | SoundProcessor | WaveProcessor | None":
        """The image or sound processor; None for a model of texts."""
        return self.sounds or self.images

    @property
    def reads_images(self) -> bool:
        """True if the input is an image."""
        return isinstance(self.config.first.input, PatchInput)

    @property
    def reads_sounds(self) -> bool:
        """True if the input is a sound."""
        return isinstance(self.config.first.input, FrameInput | WaveInput)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text with the tokenizer's special tokens, otherwise with an encoder-decoder's end token.

        They begin with the prefix that the model was trained with, and are cut to the longest length.
        """
        if self.reads_sounds:
            raise UserError("text: expected a sound, which this model reads, got a text; try clearhead transcribe")
        return [ids for ids, _ in self.cut_ids(texts, limit=self.longest, prompt=self.prefix)]

    @property
    def prefix(self) -> str:
        """The text before each source that an encoder-decoder was trained with."""
        return prefix_of(self.words) if self.config.is_encoder_decoder else ""

    def cut_ids(
        self, texts: Sequence[str], *, limit: int | None, prompt: str = "", cuts_left: bool = False
    ) -> Iterator[tuple[list[int], bool]]:
        """The ids of each text after the prompt, at most `limit` with the special tokens, and whether it was cut."""
        special = self.special_tokens()
        for ids in self.words.encode_batch([prompt + text for text in texts] if prompt else texts):
            room = len(ids) if limit is None else min(max(limit - len(special), 0), len(ids))
            kept = ids[len(ids) - room :] if cuts_left else ids[:room]
            yield self.fitting(self.known(special.around(kept))), room < len(ids)

    @property
    def longest(self) -> int | None:
        """The most tokens of a text: as in training, and for a classifier no more than its positions."""
        stacks = self.config.stacks.values() if isinstance(self.config.head, ClassificationHead) else ()
        limits = [self.max_length, *(stack.max_length for stack in stacks)]
        return min((limit for limit in limits if limit is not None), default=None)

    def fitting(self, ids: list[int]) -> list[int]:
        """The ids that a network with one vector for the whole text reads: up to the end token, cut to the longest
        length with that token kept, and filled with padding tokens if its head says so.
        """
        head, end, limit = self.config.head, self.words.eos_id, self.config.first.max_length
        if not isinstance(head, VectorHead):
            return ids
        ids = ids[: ids.index(end) + 1] if end in ids else ids
        if limit is not None and len(ids) > limit:
            ids = [*ids[: limit - 1], ids[-1]]
        return ids + [self.fill(None)] * (limit - len(ids)) if head.fills and limit is not None else ids

    def special_tokens(self) -> SpecialTokens:
        """The special tokens around a text of the first stack."""
        return source_tokens(self.words) if self.config.is_encoder_decoder else template_tokens(self.words)

    def with_images(
        self,
        text: str,
        image: Images = None,
        *,
        encode: Callable[[str], list[int]] | None = None,
        most: int | None = None,
    ) -> Tokens:
        """The ids of a text and the pictures within it, whose marks are repeated for each of their vectors.

        Pictures stand before a text that has no mark. `encode` reads the text (default: `ids`). Raises UserError unless
        there are as many marks as pictures, and if pictures of any size have more than `most` vectors.
        """

        def row(text: str) -> Tokens:
            ids = self.known(encode(text)) if encode else self.ids([text])[0]
            return _row(ids or [self.words.need("bos")])

        images = list(image) if isinstance(image, (list, tuple)) else [] if image is None else [image]
        if self.config.pictures is None:
            if images:
                raise UserError("image: expected none, as this model reads text alone, got one; leave it out")
            return row(text)
        marks = Marks(self.config.pictures, self.words)
        text = marks.placed(text, len(images))
        if not images:
            return row(text)
        pixels, grids = self.pictures.framed(images, most=most)
        encode = self.words.encode if marks.begins else encode
        grid = torch.tensor(grids) if self.config.pictures.any_size else None
        return replace(row(marks.spelled(text, grids)), pictures=torch.from_numpy(pixels), grids=grid)

    def inputs(
        self, text: Input, other: str | None, generation: GenerationConfig, image: Images = None
    ) -> list[Tokens]:
        """An input for each stack: a source and a target with its start token, one or two texts, or an image.

        The target of a sound begins with the tokens of the model's language and task, by default English.
        """
        if self.reads_images:
            return [self.batch([text], pad_id=None)]
        if self.reads_sounds:
            return [self.batch([text], pad_id=None), *self._heard(other, generation)]
        if not isinstance(text, str):
            raise UserError(f"text: expected a string, got {type(text).__name__}")
        has_encoder, has_decoder = self.config.encoder is not None, self.config.decoder is not None
        if has_encoder and has_decoder and other is None and isinstance(self.config.head, ClassificationHead):
            # The decoder reads the text again, shifted by the start token.
            ids = self.ids([text])[0]
            return [_row(ids), _row([start_again(self.words, generation, [ids]), *ids[:-1]])]
        if has_decoder and has_encoder == (other is None):
            needs = "a source and a target text" if has_encoder else "one text"
            raise UserError(f"this model reads {needs}; got {'one text' if other is None else 'two'}")
        if image is not None or (self.config.pictures is not None and other is None):
            return [self.with_images(text, image)]
        if other is None:
            return [_row(self.until_padding(self.ids([text])[0], generation.pad_id))]
        if has_decoder:
            before = target_tokens(self.words, generation).before
            target = [start_token(self.words, generation), *before, *self.words.encode(other, target=True)]
            return [_row(self.ids([text])[0]), _row(self.known(target, stack=self.config.decoder))]
        both = Inputs.of([(text, other)], self.words, self.longest or NO_LIMIT)
        reads = self.config.first.input
        has_types = isinstance(reads, TokenInput) and reads.n_types > 1
        return [_row(self.known(both.ids[0]), both.types[0] if both.types and has_types else None)]

    def _heard(self, target: str | None, generation: GenerationConfig) -> list[Tokens]:
        """The decoder's input beside a sound; none without a decoder."""
        if self.config.decoder is None:
            return []
        if target is None:
            raise UserError("this model reads a sound and a target text; got one of them")
        speech = generation.speech or SpeechTokens()
        ids = [start_token(self.words, generation), *speech.after_start(), *self.words.encode(target, target=True)]
        return [_row(self.known(ids, stack=self.config.decoder))]

    def batch_of(
        self, texts: Sequence[Input], others: str | Sequence[str] | None, generation: GenerationConfig,
        image: Images = None,
    ) -> list[Tokens]:  # fmt: skip
        """The batch for each stack of several inputs, as `inputs` makes them for one.

        Raises UserError unless there is another text for each of the inputs, or for none, and for pictures within
        several texts.
        """
        if image is not None and len(texts) > 1:
            raise UserError(f"image: expected one text around it, got {len(texts)}; trace each alone")
        second = [None] * len(texts) if others is None else [others] if isinstance(others, str) else others
        if not texts or len(second) != len(texts):
            raise UserError(
                f"trace: expected inputs, and a target for each or none, got {len(texts)} and {len(second)}"
            )
        rows = [self.inputs(text, other, generation, image) for text, other in zip(texts, second, strict=True)]
        fill = 0 if len(texts) == 1 or self.reads_images else self.fill(generation.pad_id)
        return [_together(stack, fill=fill) for stack in zip(*rows, strict=True)]

    def until_padding(self, ids: list[int], pad_id: int | None) -> list[int]:
        """The ids that a classifier reads. One that reads the last state ignores padding tokens at a text's end."""
        return until_padding(ids, self.config, pad_id)

    def known(self, ids: list[int], *, stack: StackConfig | None = None) -> list[int]:
        """The ids. Raises UserError for an id without a row in the token table of the stack, by default the first one.

        The mark of a video is refused, too.
        """
        if (seen := self.config.pictures) and seen.video_id in ids:
            video = self.words.library.id_to_token(seen.video_id)
            raise UserError(f"text: expected no video, got its mark {video}; give pictures of it with image")
        reads = (stack or self.config.first).input
        if isinstance(reads, TokenInput) and max(ids, default=0) >= reads.vocab_size:
            raise UserError(
                f"tokenizer: expected ids below {reads.vocab_size}, the rows of the token table, got {max(ids)};"
                " try the model's own tokenizer"
            )
        return ids

    def fill(self, pad_id: int | None) -> int:
        """The id in padded cells. No real position reads it, so any row of the table works."""
        number = (self.words.pad_id if pad_id is None else pad_id) or 0
        reads = self.config.first.input
        return number if isinstance(reads, TokenInput) and number < reads.vocab_size else 0

    def batch(self, inputs: Sequence[Input], *, pad_id: int | None, encode: Encode | None = None) -> Tokens:
        """A batch of inputs of the first stack, padded on the right. `encode` reads texts (default: `ids`)."""
        if self.reads_images:
            return Tokens(torch.from_numpy(self.pictures(list(inputs))))
        if self.reads_sounds:
            features = self.hearing(list(inputs))
            if isinstance(features, list):
                return Tokens.waves([torch.from_numpy(one)[:, None] for one in features])
            return Tokens(torch.from_numpy(features))
        encoded = (encode or self.ids)([text for text in inputs if isinstance(text, str)])
        if len(encoded) < len(inputs) or not encoded or not all(encoded):
            raise UserError("embed: expected texts of at least one token, got an empty one; leave it out")
        return Tokens.pad(encoded, fill=self.fill(pad_id))


def _together(rows: Sequence[Tokens], *, fill: int) -> Tokens:
    """Joins batches of one row."""
    if len(rows) == 1:
        return rows[0]
    if rows[0].ids.is_floating_point() and rows[0].ids.ndim == 3:
        return Tokens.waves([row.ids[0] for row in rows])
    if rows[0].ids.is_floating_point():
        return Tokens(torch.cat([row.ids for row in rows]))
    batch = Tokens.pad([row.ids[0].tolist() for row in rows], fill=fill)
    pixels = [row.pictures for row in rows if row.pictures is not None]
    batch = replace(batch, pictures=torch.cat(pixels) if pixels else None)
    if rows[0].types is None:
        return batch
    types = Tokens.pad([row.types[0].tolist() for row in rows if row.types is not None])
    return replace(batch, types=types.ids)


def _row(ids: list[int], types: list[int] | None = None) -> Tokens:
    if not ids:
        raise UserError("text: expected at least one token, got an empty text")
    return Tokens(torch.tensor([ids]), types=None if types is None else torch.tensor([types]))


T = TypeVar("T")


def listed(texts: Sequence[T], what: str) -> Sequence[T]:
    """The inputs. Raises UserError for a lone string, which is a sequence of its characters."""
    if isinstance(texts, str):
        raise UserError(f"{what}: expected a list of texts, got one text; try {what}([text])")
    return texts
