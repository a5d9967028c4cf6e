"""What a sound says, of a model that labels each of its moments (Graves et al. 2006, CTC)."""

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import TaggingHead, WaveInput
from clearhead.data.samples import WaveProcessor
from clearhead.data.sounds import Sound
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating

if TYPE_CHECKING:
    from clearhead.api.model import Model

_log = logging.getLogger("clearhead")

AT_ONCE, AROUND = 60.0, 5.0
"""Seconds of a sound that are read at once, and those at either end of which only the moments between are read."""


def spells(model: "Model") -> bool:
    """Whether the labels of the moments of a sound spell a text."""
    reads, head = model.config.first.input, model.config.head
    return isinstance(reads, WaveInput) and isinstance(head, TaggingHead) and head.blank is not None


def spelled(model: "Model", sounds: Sequence[Sound]) -> Iterator[tuple[str, float]]:
    """The text of each sound, and its seconds. While iterating, raises UserError for an input that is not a sound."""
    processor = model.reader.hearing
    assert isinstance(processor, WaveProcessor)
    model.tokenizer.need("pad")
    rate = processor.config.sampling_rate
    for i, sound in enumerate(sounds):
        where = str(sound) if isinstance(sound, str | Path) else f"sounds[{i}]"
        samples, had = processor.samples(sound, where=where)
        if had != rate:
            _log.warning("%s: resampled from %d to %d samples a second", where, had, rate)
        labels = torch.cat([part.argmax(-1) for part in read(model, processor.normalised(samples), rate, where)])
        yield text_of(model, labels.tolist()), len(samples) / rate


def text_of(model: "Model", labels: Sequence[int]) -> str:
    """The labels of all moments in order as a text: each run of one label once, without the blank."""
    head = model.config.head
    assert isinstance(head, TaggingHead)
    letters = [label for label, _ in groupby(labels) if label != head.blank]
    return model.tokenizer.library.decode(letters, skip_special_tokens=False).strip()


def read(model: "Model", samples: NDArray[np.float32], rate: int, where: str) -> Iterator[Tensor]:
    """t v: the logits of the moments of a sound, in parts.

    A long sound is read in windows that overlap. Of the moments that two windows have, each gives half: those that are
    further from its end.
    """
    reads = model.config.first.input
    assert isinstance(reads, WaveInput)
    if len(samples) < (least := reads.shape_of(1)[0]):
        raise UserError(f"{where}: expected {least} samples or more, got {len(samples)}; try a longer sound")
    whole, around = int(AT_ONCE * rate / reads.step), int(AROUND * rate / reads.step)
    width, last = reads.shape_of(whole)[0], len(samples)
    for first in range(0, last, (whole - 2 * around) * reads.step):
        window = samples[first : first + width]
        is_last = first + width >= last
        logits = logits_of(model, window)
        yield logits[around if first else 0 : None if is_last else whole - around]
        if is_last:
            return


def logits_of(model: "Model", samples: NDArray[np.float32]) -> Tensor:
    """n -> t v"""
    tokens = model.here(Tokens.waves([torch.from_numpy(samples)[:, None].to(next(model.network.parameters()).dtype)]))
    with Evaluating(model.network), torch.inference_mode():
        return model.network(tokens)[0].float().cpu()
