"""Transcripts of sounds: `Model.transcribe`, and the command that shares it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.api.base import ModelBase
from clearhead.brief import brief
from clearhead.config.heads import TaggingHead
from clearhead.config.inputs import WaveInput
from clearhead.data.sounds import Sound, SoundProcessor, WaveProcessor
from clearhead.errors import UserError
from clearhead.generation import Finished, Hypothesis, generate
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.recipe.generation import GenerationConfig, SpeechTask, SpeechTokens
from clearhead.text.special_tokens import start_token

_log = logging.getLogger("clearhead")

AT_ONCE = 8
"""Windows in one batch."""


@dataclass(frozen=True)
class Segment:
    """A part of a text with its times in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Transcript:
    """The text that a model wrote for a sound."""

    __repr__ = brief

    text: str
    language: str | None
    """The code of the language that was spoken; None for a model of one language."""
    seconds: float
    windows: tuple[Hypothesis, ...]
    """The hypothesis for each window."""
    segments: tuple[Segment, ...] = ()
    """The parts between two times, if the model writes times."""


def transcripts(
    model: ModelBase,
    sounds: Sequence[Sound],
    *,
    language: str | None = None,
    task: SpeechTask | None = None,
    config: GenerationConfig,
) -> Iterator[Transcript]:
    """The transcript of each sound, in windows of the length that the model reads, one after another.

    Raises UserError, at the call, for a model that transcribes nothing, and for a language or a task that it does not
    have; while it iterates, for what is no sound.
    """
    if decodes_ctc(model):
        if language is not None or task == "translate" or (config.speech is not None and config.speech.times):
            raise UserError("language, task, times: expected none for a model that labels moments; leave them out")
        return (Transcript(text, None, seconds, ()) for text, seconds in _ctc_transcripts(model, sounds))
    if not model.reader.reads_sounds or model.network.decoder is None:
        raise UserError("transcribe: expected a model that writes what a sound says, got another; try predict")
    speech = config.speech or SpeechTokens()
    if not speech.is_multilingual and (language is not None or task == "translate"):
        asked = f"language {language}" if language is not None else "task translate"
        raise UserError(f"{asked}: expected none for a model of one language, got one; leave it out")
    named = language or speech.language
    code = None if named is None or not speech.is_multilingual else speech.code(named)
    if speech.times and speech.first_time is None:
        raise UserError("times: expected a model whose settings name no_timestamps_token_id, got none; leave it out")
    return _each(model, sounds, code, task or speech.task, speech, model.settings(config))


def with_times(config: GenerationConfig, *, times: bool) -> GenerationConfig:
    """Returns the settings, changed to write times too if `times` is true."""
    if not times:
        return config
    speech = (config.speech or SpeechTokens()).model_copy(update={"times": True})
    return config.model_copy(update={"speech": speech})


def _each(
    model: ModelBase,
    sounds: Sequence[Sound],
    language: str | None,
    task: SpeechTask,
    speech: SpeechTokens,
    config: GenerationConfig,
) -> Iterator[Transcript]:
    processor = _framing(model)
    start = start_token(model.tokenizer, config)
    for _, samples in _samples(processor, sounds):
        windows = processor.windows(samples)
        spoken = language
        if spoken is None and speech.is_multilingual:
            spoken = heard_language(model, processor.frames(windows[:1]), start, speech)
        prompt = [start, *speech.after_start(spoken, task)]
        hypotheses: list[Hypothesis] = []
        segments: list[Segment] = []
        for one, parts in moving(model, samples, prompt, config) if speech.times else ():
            hypotheses.append(one)
            segments += parts
        for first in range(0, 0 if speech.times else len(windows), AT_ONCE):
            hypotheses += written(model, processor.frames(windows[first : first + AT_ONCE]), prompt, config)
        tokens = [one.tokens for one in (segments if speech.times else hypotheses)]
        text = "".join(model.tokenizer.decode(words(part, speech)) for part in tokens).strip()
        seconds = len(samples) / processor.config.sampling_rate
        yield Transcript(text, spoken, seconds, tuple(hypotheses), tuple(segments))


def _samples(
    processor: SoundProcessor | WaveProcessor, sounds: Sequence[Sound]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The name and the samples of each sound. A warning tells of a rate that is not the model's."""
    for i, sound in enumerate(sounds):
        where = str(sound) if isinstance(sound, str | Path) else f"sounds[{i}]"
        samples, rate = processor.samples(sound, where=where)
        if rate != processor.config.sampling_rate:
            _log.warning("%s: resampled from %d to %d samples a second", where, rate, processor.config.sampling_rate)
        yield where, samples


def written(
    model: ModelBase, frames: NDArray[np.float32] | Tensor, prompt: Sequence[int], config: GenerationConfig
) -> list[Hypothesis]:
    """b x c -> the best text of each window, after these tokens."""
    limit = model.config.output.max_length
    most = config.max_new_tokens if limit is None else max(1, min(config.max_new_tokens, limit - len(prompt)))
    config = config.model_copy(update={"max_new_tokens": most, "min_new_tokens": min(config.min_new_tokens, most)})
    source = model.here(Tokens(torch.as_tensor(frames)))
    prompts = Tokens(torch.tensor([prompt] * len(frames)))
    *_, last = generate(model.network, prompts, source=source, config=config)
    assert isinstance(last, Finished)
    return [best[0] for best in last.hypotheses]


def _framing(model: ModelBase) -> SoundProcessor:
    """The processor of a model that reads frames."""
    processor = model.reader.hearing
    assert isinstance(processor, SoundProcessor)
    return processor


def heard_language(model: ModelBase, frames: NDArray[np.float32] | Tensor, start: int, speech: SpeechTokens) -> str:
    """The likeliest language of a window, after the start token alone."""
    inputs = model.here(Tokens(torch.as_tensor(frames))), Tokens(torch.tensor([[start]], device=model.device))
    with Evaluating(model.network), torch.inference_mode():
        logits = model.network(*inputs)[0, -1]
    return max(speech.languages, key=lambda code: float(logits[speech.languages[code]]))


def words(tokens: Sequence[int], speech: SpeechTokens) -> list[int]:
    """The tokens without times."""
    last = speech.no_timestamps_id
    return [token for token in tokens if last is None or token <= last]


# --- windows that move by the times -------------------------------------------------------------------------------


def moving(
    model: ModelBase, samples: NDArray[np.float32], prompt: Sequence[int], config: GenerationConfig
) -> Iterator[tuple[Hypothesis, list[Segment]]]:
    """Yields the hypothesis and the segments of each window. A window begins where the last whole segment ends.

    The reference library does the same for long sounds.
    """
    processor, speech = _framing(model), config.speech
    assert speech is not None
    reads = processor.config
    whole = np.pad(samples, (0, max(0, reads.n_samples - len(samples))))
    frames = processor.frames(whole[None])[0]
    a_frame, at = reads.hop_length / reads.sampling_rate, 0
    while at < len(frames):
        window = frames[at : at + reads.n_frames]
        padded = np.pad(window, ((0, reads.n_frames - len(window)), (0, 0)))
        (one,) = written(model, padded[None], prompt, config)
        parts, n_read = cut(one.tokens, speech, len(window))
        yield (
            one,
            [
                Segment(
                    (at + 2 * start) * a_frame,
                    (at + 2 * end) * a_frame,
                    model.tokenizer.decode(words(tokens, speech)),
                    tokens,
                )
                for tokens, start, end in parts
            ],
        )
        at += n_read


def cut(
    tokens: Sequence[int], speech: SpeechTokens, n_frames: int
) -> tuple[list[tuple[tuple[int, ...], int, int]], int]:
    """The parts of a window, whose times count every second frame, and the number of frames that are done.

    A part ends where two times follow one another. What comes after the last such place is read again.
    """
    first = speech.first_time
    assert first is not None
    text = tuple(tokens)
    is_time = [token >= first for token in text]
    ends = [i + 1 for i in range(len(text) - 1) if is_time[i] and is_time[i + 1]]
    if not ends:
        times = [token - first for token in text if token >= first]
        return [(text, 0, times[-1] if times and times[-1] else n_frames // 2)], n_frames
    is_done = is_time[-2:] == [False, True]
    if is_done:
        ends.append(len(text))
    else:
        ends[-1] += 1  # The begin of the next part tells that this one is whole.
    begins = [0, *ends[:-1]]
    parts = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
    lasts = [*(part[-1] for part in parts[:-1]), parts[-1][-1 if is_done else -2]]
    found = [(part, part[0] - first, last - first) for part, last in zip(parts, lasts, strict=True)]
    return found, n_frames if is_done else 2 * (text[ends[-1] - 2] - first) or n_frames


# --- CTC decoding: texts of models that label each moment of a sound (Graves et al. 2006) ---

WINDOW_SECONDS, OVERLAP_SECONDS = 60.0, 5.0
"""The length of a window of a long sound, and the part at either end that only gives context."""


def decodes_ctc(model: ModelBase) -> bool:
    """True if the labels of the moments of a sound spell a text."""
    reads, head = model.config.first.input, model.config.head
    return isinstance(reads, WaveInput) and isinstance(head, TaggingHead) and head.blank is not None


def _ctc_transcripts(model: ModelBase, sounds: Sequence[Sound]) -> Iterator[tuple[str, float]]:
    """The text of each sound, and its seconds. While iterating, raises UserError for an input that is not a sound."""
    processor = model.reader.hearing
    assert isinstance(processor, WaveProcessor)
    model.tokenizer.need("pad")
    rate = processor.config.sampling_rate
    for where, samples in _samples(processor, sounds):
        labels = torch.cat(
            [part.argmax(-1) for part in windowed_ctc_logits(model, processor.normalised(samples), rate, where)]
        )
        yield ctc_text(model, labels.tolist()), len(samples) / rate


def ctc_text(model: ModelBase, labels: Sequence[int]) -> str:
    """The labels of all moments in order as a text: each run of one label once, without the blank."""
    head = model.config.head
    assert isinstance(head, TaggingHead)
    letters = [label for label, _ in groupby(labels) if label != head.blank]
    return model.tokenizer.library.decode(letters, skip_special_tokens=False).strip()


def windowed_ctc_logits(model: ModelBase, samples: NDArray[np.float32], rate: int, where: str) -> Iterator[Tensor]:
    """t v: the logits of the moments of a sound, in parts.

    A long sound is read in windows that overlap. Each window gives the half of the overlap further from its end.
    """
    reads = model.config.first.input
    assert isinstance(reads, WaveInput)
    if len(samples) < (least := reads.shape_of(1)[0]):
        raise UserError(f"{where}: expected {least} samples or more, got {len(samples)}; try a longer sound")
    whole, around = int(WINDOW_SECONDS * rate / reads.step), int(OVERLAP_SECONDS * rate / reads.step)
    width, last = reads.shape_of(whole)[0], len(samples)
    for first in range(0, last, (whole - 2 * around) * reads.step):
        window = samples[first : first + width]
        is_last = first + width >= last
        logits = ctc_logits(model, window)
        yield logits[around if first else 0 : None if is_last else whole - around]
        if is_last:
            return


def ctc_logits(model: ModelBase, samples: NDArray[np.float32]) -> Tensor:
    """n -> t v"""
    tokens = model.here(Tokens.waves([torch.from_numpy(samples)[:, None].to(model.network.dtype)]))
    with Evaluating(model.network), torch.inference_mode():
        return model.network(tokens)[0].float().cpu()
