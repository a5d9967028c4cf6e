"""Sounds: reads WAV files, brings them to a rate, and makes what a model reads of them.

Frames of loudness (Radford et al. 2022, 2.2) or samples (Baevski et al. 2020), as preprocessor_config.json describes.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd, log
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue, PositiveInt
from torch import Tensor

from clearhead.brief import brief
from clearhead.data.preprocessor import ANOTHER, Preprocessor
from clearhead.errors import UserError, reason, refuse, require

LOWEST = 1000
"""Samples a second of the slowest sound that is read: a header that claims fewer asks for hours of silence."""
CONVERT = "convert it: ffmpeg -i SOUND -ar 16000 -ac 1 SOUND.wav"


@dataclass(frozen=True)
class Wave:
    """A sound of one channel."""

    __repr__ = brief

    samples: NDArray[np.float32]
    """n: from -1 to 1."""
    rate: int
    """Samples a second."""


def read_wave(path: Path) -> Wave:
    """The mean of the channels of a WAV file: 8, 16, 24 or 32 bits, or floats of 32 or 64 bits.

    Raises UserError, which names the file, for any other file.
    """
    require("sounds", "scipy.io", "data", "scipy")
    from scipy.io import wavfile

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A recorder that was cut off leaves a last chunk that is too short.
            rate, samples = wavfile.read(file)
    except OSError as error:
        raise UserError(f"{path}: expected a sound file, got {reason(error)}; check the path") from None
    except Exception as error:  # struct.error, ZeroDivisionError and more
        raise UserError(f"{path}: expected a WAV file, got {reason(error)}; {CONVERT}") from None
    if rate < LOWEST:
        raise UserError(f"{path}: expected {LOWEST} samples a second or more, got {rate}; {CONVERT}")
    if samples.dtype.kind != "f":
        middle = 128 if samples.dtype == np.uint8 else 0  # The only width without a sign.
        samples = (samples - np.float64(middle)) / 2.0 ** (8 * samples.dtype.itemsize - 1)
    mean = (samples.mean(1, dtype=np.float64) if samples.ndim > 1 else samples).astype(np.float32)
    if not len(mean) or not np.isfinite(mean).all():
        got = "numbers that are not finite" if len(mean) else "none"
        raise UserError(f"{path}: expected a WAV file with at least one sample, got {got}; try another file")
    return Wave(mean, rate)


Sound = str | Path | NDArray[np.float32] | NDArray[np.float64]
"""A WAV file, or samples from -1 to 1 at the model's rate."""

HIGHEST = 8000.0
"""The upper end of the highest band, in Hz."""
RANGE = 8.0
"""The quietest level, in tens of dB below the loudest band (80 dB). Quieter bands are raised to it."""
WINDOW = ("kaiser", 5.0)
"""The window of the filter that resamples."""
EXPECTED = {"sampling_rate": "the samples a second of the model's sounds"}


class SoundConfig(Preprocessor):
    """Fields of preprocessor_config.json of frames."""

    ignored = frozenset(
        "feature_extractor_type processor_class transformers_version model_input_names mel_filters n_samples"
        " nb_max_frames return_attention_mask padding_side device".split()
    )
    only: ClassVar[Mapping[str, JsonValue]] = {"dither": 0.0, "padding_value": 0.0}
    expected = EXPECTED

    feature_size: PositiveInt = 80
    """Bands of frequencies, equally wide to the ear (the mel scale)."""
    sampling_rate: PositiveInt
    """Samples a second."""
    hop_length: PositiveInt = 160
    """Samples from one frame to the next."""
    chunk_length: PositiveInt = 30
    """Seconds that the model reads at once."""
    n_fft: PositiveInt = 400
    """Samples of each frame."""

    @property
    def n_samples(self) -> int:
        """Samples that the model reads at once."""
        return self.chunk_length * self.sampling_rate

    @property
    def n_frames(self) -> int:
        """Frames that the model reads at once."""
        return self.n_samples // self.hop_length

    def to_document(self) -> dict[str, JsonValue]:
        """preprocessor_config.json with every field written out, the inverse of `read`."""
        return {**self.model_dump(mode="json"), "padding_value": 0.0, "return_attention_mask": False}


class Resampler:
    """Reads sounds at the rate of a model."""

    rate: int

    def read(self, sounds: Sequence[object]) -> list[NDArray[np.float32]]:
        """n for each `Sound`: its samples."""
        if isinstance(sounds, str) or not isinstance(sounds, Sequence) or not sounds:
            raise UserError("sounds: expected a list of at least one sound; try [sound]")
        return [self.samples(sound, where=f"sounds[{i}]")[0] for i, sound in enumerate(sounds)]

    def samples(self, sound: object, *, where: str = "sound") -> tuple[NDArray[np.float32], int]:
        """n: the samples of a `Sound` at the model's rate, and the rate that it had.

        Raises UserError for what is no sound; `where` names one that has no file.
        """
        if isinstance(sound, str | Path):
            wave = read_wave(Path(sound))
            return resampled(wave.samples, wave.rate, self.rate), wave.rate
        if not isinstance(sound, np.ndarray) or sound.ndim != 1 or sound.dtype.kind != "f" or not len(sound):
            got = f"{sound.dtype} of {list(sound.shape)}" if isinstance(sound, np.ndarray) else type(sound).__name__
            raise refuse(where, "a WAV file or an array of floats from -1 to 1", got)
        if not np.isfinite(sound).all():
            raise refuse(where, "finite samples", "NaN or infinity")
        return sound.astype(np.float32), self.rate


class SoundProcessor(Resampler):
    """Sounds -> frames b x c in float32, equal to the reference library's."""

    def __init__(self, config: SoundConfig, *, shape: tuple[int, int] | None = None, where: str = "sounds") -> None:
        """`shape` is the number of frames and of bins that the model reads. `where` names the file in errors."""
        self.config, self.rate = config, config.sampling_rate
        own = config.n_frames, config.feature_size
        if shape is not None and own != shape:
            raise UserError(
                f"{where}: expected {shape[0]} frames of {shape[1]} bins, as the model reads, got {own[0]} of"
                f" {own[1]} (chunk_length * sampling_rate / hop_length, feature_size); {ANOTHER}"
            )
        if not 2 <= config.n_fft < 2 * config.n_samples:
            raise UserError(f"{where}:n_fft: expected 2 to {2 * config.n_samples - 1}, got {config.n_fft}; {ANOTHER}")
        self._bands = torch.from_numpy(bands(config.feature_size, config.n_fft, config.sampling_rate)).float()

    def __call__(self, sounds: Sequence[object]) -> NDArray[np.float32]:
        """b x c: the first `chunk_length` seconds of each `Sound`, silence after a shorter one."""
        return self.frames(np.stack([self.windows(samples)[0] for samples in self.read(sounds)]))

    def windows(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """n -> w n_samples: the sound in windows one after another, silence after the last."""
        n = self.config.n_samples
        n_windows = max(1, ceil(len(samples) / n))
        return np.pad(samples, (0, n_windows * n - len(samples))).reshape(n_windows, n)

    def frames(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """w n -> w x c: (max(log10 loudness, its largest - 8) + 4) / 4 of each band in each frame."""
        config = self.config
        samples, window = torch.from_numpy(windows), torch.hann_window(config.n_fft)
        waves = torch.stft(samples, config.n_fft, config.hop_length, window=window, return_complex=True)
        power: Tensor = waves[..., :-1].abs() ** 2
        loudness = (self._bands @ power).clamp(min=1e-10).log10()
        loudness = torch.maximum(loudness, loudness.amax((1, 2), keepdim=True) - RANGE)
        return ((loudness + 4.0) / 4.0).mT.contiguous().numpy()


# --- bands ------------------------------------------------------------------------------------------------------------


def bands(n_bands: int, n_fft: int, rate: int) -> NDArray[np.float64]:
    """c f: how much of each frequency is in each band: triangles of area 1, equally wide in mels   (Slaney 1998)"""
    edges = hertz(np.linspace(0.0, 15 + 27 * log(HIGHEST / 1000) / log(6.4), n_bands + 2))
    frequencies = np.linspace(0, rate // 2, 1 + n_fft // 2)
    width = np.diff(edges)[:, None]
    rises = (frequencies - edges[:-2, None]) / width[:-1]
    falls = (edges[2:, None] - frequencies) / width[1:]
    return np.maximum(0, np.minimum(rises, falls)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear to 1000 Hz, which are 15 mels, and exponential above."""
    return np.where(mels < 15, 200 * mels / 3, 1000 * np.exp(log(6.4) / 27 * (mels - 15)))


# --- another rate -----------------------------------------------------------------------------------------------------


def resampled(samples: NDArray[np.float32], rate: int, to: int) -> NDArray[np.float32]:
    """n -> n to / rate: the band-limited sound at the new places, by a sinc in a Kaiser window. It has no frequencies
    above half the lower rate.
    """
    if rate == to:
        return samples
    require("sounds", "scipy.signal", "data", "scipy")
    from scipy.signal import resample_poly

    common = gcd(rate, to)
    return resample_poly(samples.astype(np.float64), to // common, rate // common, window=WINDOW).astype(np.float32)


EPS = 1e-7
"""Added to the variance of a sound."""


class WaveConfig(Preprocessor):
    """Fields of preprocessor_config.json of samples."""

    ignored = frozenset(
        "feature_extractor_type processor_class transformers_version model_input_names device return_attention_mask"
        " padding_side padding".split()
    )
    only: ClassVar[Mapping[str, JsonValue]] = {"feature_size": 1, "padding_value": 0.0}
    expected = EXPECTED

    sampling_rate: PositiveInt
    """Samples a second."""
    do_normalize: bool = True
    """Bring the samples of each sound to mean 0 and variance 1."""

    def to_document(self) -> dict[str, JsonValue]:
        """preprocessor_config.json with every field written out, the inverse of `read`."""
        kind = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "return_attention_mask": True}
        return {**kind, **self.only, **self.model_dump(mode="json")}


class WaveProcessor(Resampler):
    """Sounds -> their samples in float32, equal to the reference library's for each sound alone."""

    def __init__(self, config: WaveConfig) -> None:
        self.config, self.rate = config, config.sampling_rate

    def __call__(self, sounds: Sequence[object]) -> list[NDArray[np.float32]]:
        """n for each of the sounds."""
        return [self.normalised(samples) for samples in self.read(sounds)]

    def normalised(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(x - mean) / sqrt(variance + 1e-7), if the model was trained so."""
        if not self.config.do_normalize:
            return samples
        return ((samples - samples.mean()) / np.sqrt(samples.var() + EPS)).astype(np.float32)
