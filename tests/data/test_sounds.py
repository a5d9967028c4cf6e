"""Sounds: WAV files of every kind of sample, their frames and samples, and files that are none."""

import struct
from typing import Any

import numpy as np
import pytest

from clearhead.data.sounds import (
    EPS,
    SoundConfig,
    SoundProcessor,
    WaveConfig,
    WaveProcessor,
    read_wave,
    resampled,
)
from clearhead.errors import UserError
from tests.files import put
from tests.later import later

N = 50
SOUND = np.sin(np.arange(N) / 3) * 0.9


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A RIFF file of these chunks."""
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def form(code: int, bits: int, *, channels: int = 1, rate: int = 16_000) -> tuple[bytes, bytes]:
    """The chunk that says how samples are stored."""
    width = channels * bits // 8
    return b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits)


def stored(values: np.ndarray, bits: int) -> bytes:
    """Whole numbers of so many bits."""
    whole = np.round(values * (2 ** (bits - 1) - 1)).astype(np.int32)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return whole.astype("<i4").view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_whole_samples(bits: int, channels: int, tmp_path):
    path = tmp_path / "a.wav"
    both = np.stack([SOUND, -0.5 * SOUND][:channels], 1)
    put(path, riff(form(1, bits, channels=channels), (b"LIST", b"odd"), (b"data", stored(both.ravel(), bits))))
    wave = read_wave(path)
    assert wave.rate == 16_000
    np.testing.assert_allclose(wave.samples, both.mean(1), atol=2.0 ** (2 - bits) + 1e-7)


@pytest.mark.parametrize("bits", [32, 64])
def test_floating_samples(bits: int, tmp_path):
    path = tmp_path / "a.wav"
    put(path, riff(form(3, bits, rate=8000), (b"data", SOUND.astype(f"<f{bits // 8}").tobytes())))
    wave = read_wave(path)
    assert wave.rate == 8000
    assert np.array_equal(wave.samples, SOUND.astype(np.float32))


def test_a_long_header_and_a_file_that_was_cut_off(tmp_path):
    name, short = form(0xFFFE, 16)
    header = short + struct.pack("<HHIH", 22, 16, 4, 1) + bytes.fromhex("000000001000800000aa00389b71")
    content = riff((name, header), (b"data", stored(SOUND, 16)))
    path = tmp_path / "a.wav"
    put(path, content[:-11])
    np.testing.assert_allclose(read_wave(path).samples, SOUND[:-6], atol=1e-4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "expected a sound file, got No such file or directory; check"),
        (b"", "expected a WAV file, got File format b'' not understood"),
        (b"fLaC" + bytes(40), "expected a WAV file, got File format b'fLaC' not understood"),
        (riff((b"data", b"1234")), "expected a WAV file, got No fmt chunk before data; convert it: ffmpeg"),
        (riff((b"fmt ", b"12"), (b"data", b"1234")), "expected a WAV file, got Binary structure"),
        (riff(form(85, 16), (b"data", b"1234")), "got Unknown wave file format: MPEGLAYER3"),
        (riff(form(1, 16, rate=1), (b"data", b"1234")), "expected 1000 samples a second or more, got 1; convert it"),
        (riff(form(1, 16, channels=0), (b"data", b"1234")), "expected a WAV file, got integer division"),
        (riff(form(1, 16), (b"data", b"")), "expected a WAV file with at least one sample, got none"),
        (riff(form(3, 32), (b"data", b"\xff" * 4)), "at least one sample, got numbers that are not finite"),
    ],
)
def test_other_files_name_themselves(content: bytes | None, expected: str, tmp_path):
    path = tmp_path / "a.wav"
    if content is not None:
        put(path, content)
    with pytest.raises(UserError) as caught:
        read_wave(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spread", [0.0, 1e-5, 3e-4, 1e-2, 1.0])
@pytest.mark.parametrize("mean", [0.0, 0.1])
def test_the_variance_is_1_or_less_for_a_sound_that_is_almost_silent(spread: float, mean: float):
    noise = np.random.default_rng(0).standard_normal(4000)
    sound = (spread * noise + mean).astype(np.float32)
    found = WaveProcessor(WaveConfig(sampling_rate=16_000)).normalised(sound)
    exact = sound.astype(np.float64)
    expected = (exact - exact.mean()) / np.sqrt(exact.var() + EPS)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert found.dtype == np.float32


def test_samples_stay_as_they_are_where_the_model_was_trained_so():
    sound = np.arange(5, dtype=np.float32)
    processor = WaveProcessor(WaveConfig(sampling_rate=16_000, do_normalize=False))
    assert processor.normalised(sound).tolist() == sound.tolist()


later("transformers")

SMALL = SoundConfig(sampling_rate=16_000, chunk_length=1)


def tones(n: int, rate: int, *hertz: float) -> np.ndarray:
    """n: some tones together."""
    at = np.arange(n) / rate
    return sum((np.sin(2 * np.pi * f * at) for f in hertz), np.zeros(n)).astype(np.float32) / (len(hertz) + 1)


def extractor(**fields: Any) -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"feature_size": 128},
        {"feature_size": 8, "hop_length": 200, "n_fft": 512, "chunk_length": 2},
        {"feature_size": 8, "hop_length": 133, "n_fft": 401, "sampling_rate": 22_050},
    ],
)
@pytest.mark.parametrize("seconds", [0.3, 1.0, 3.7])
def test_frames_are_the_reference_s(fields: dict[str, Any], seconds: float):
    config = {"sampling_rate": 16_000, "chunk_length": 1, **fields}
    theirs = extractor(**config)
    rate = config["sampling_rate"]
    sound = tones(int(seconds * rate), rate, 220, 1870, 5000)
    sound += np.random.default_rng(0).normal(0, 0.01, len(sound)).astype(np.float32)
    expected = theirs(sound, sampling_rate=rate, return_tensors="np").input_features[0].T
    frames = SoundProcessor(SoundConfig.model_validate(config))([sound])[0]
    assert frames.shape == expected.shape
    np.testing.assert_allclose(frames, expected, atol=1e-5)


def test_a_file_and_its_samples_are_one_sound(tmp_path):
    sound = tones(9000, 16_000, 440, 3000)
    path = tmp_path / "a.wav"
    put(path, riff(form(3, 32), (b"data", sound.tobytes())))
    process = SoundProcessor(SMALL)
    assert np.array_equal(process([path]), process([sound]))
    assert np.array_equal(process([str(path)]), process([sound.astype(np.float64)]))


def test_long_sounds_have_windows():
    process = SoundProcessor(SMALL)
    assert [len(process.windows(np.ones(n, np.float32))) for n in (1, 16_000, 16_001, 40_000)] == [1, 1, 2, 3]
    windows = process.windows(tones(40_000, 16_000, 300))
    assert np.array_equal(windows.ravel()[:40_000], tones(40_000, 16_000, 300))
    assert not windows.ravel()[40_000:].any()


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 44_101])
def test_another_rate_is_the_same_sound(rate: int):
    n = rate // 2
    made = resampled(tones(n, rate, 250, 1500, 3100), rate, 16_000)
    assert len(made) == -(-n * 16_000 // rate)
    expected = tones(len(made), 16_000, 250, 1500, 3100)
    inside = slice(100, -100)  # The filter reaches beyond the ends.
    np.testing.assert_allclose(made[inside], expected[inside], atol=2e-3)


def test_what_a_lower_rate_cannot_hold_is_removed():
    high = resampled(tones(24_000, 48_000, 11_000), 48_000, 16_000)
    assert np.abs(high[100:-100]).max() < 2e-3


def test_parts_join_without_a_seam():
    sound = np.random.default_rng(0).normal(0, 0.3, 100_000).astype(np.float32)
    whole, late = resampled(sound, 8000, 16_000), resampled(sound[20_000:], 8000, 16_000)
    assert len(whole) > 1 << 17
    np.testing.assert_allclose(whole[40_000 + 200 :], late[200:], atol=1e-6)


def test_documents_go_there_and_back():
    theirs = extractor(feature_size=128, chunk_length=20).to_dict()
    config = SoundConfig.read(theirs, where="p")
    assert config == SoundConfig(feature_size=128, chunk_length=20, sampling_rate=16_000)
    assert SoundConfig.read(config.to_document(), where="p") == config


def test_the_model_type_is_enough_for_the_reference(tmp_path):
    import json

    from transformers import AutoFeatureExtractor

    put(tmp_path / "config.json", '{"model_type": "whisper"}')
    put(tmp_path / "preprocessor_config.json", json.dumps(SMALL.to_document()))
    opened = AutoFeatureExtractor.from_pretrained(tmp_path)
    assert type(opened) is type(extractor())
    assert (opened.sampling_rate, opened.chunk_length, opened.n_samples) == (16_000, 1, 16_000)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "p:sampling_rate: expected the samples a second of the model's sounds, got none; try the file it"),
        ({"sampling_rate": 16_000, "dither": 0.1}, "p:dither: expected 0.0, got 0.1; only that is supported"),
        ({"sampling_rate": 16_000, "size": 224}, "p:size: expected no such field, got 224; remove it"),
        ({"sampling_rate": "fast"}, "p:sampling_rate: expected"),
    ],
)
def test_documents_refused(document: dict[str, Any], expected: str):
    with pytest.raises(UserError) as caught:
        SoundConfig.read(document, where="p")
    assert str(caught.value).startswith(expected)


def test_a_processor_of_another_model_is_refused():
    with pytest.raises(UserError, match="p: expected 3000 frames of 80 bins, as the model reads, got 100 of 80"):
        SoundProcessor(SMALL, shape=(3000, 80), where="p")


@pytest.mark.parametrize(
    ("sound", "expected"),
    [
        (np.zeros(5, np.int16), r"sounds\[0\]: expected a WAV file or an array of floats from -1 to 1, got int16 of"),
        (np.zeros((2, 5), np.float32), r"got float32 of \[2, 5\]"),
        (np.zeros(0, np.float32), r"got float32 of \[0\]"),
        (np.full(5, np.nan), r"sounds\[0\]: expected finite samples, got NaN or infinity"),
        (3, "got int"),
    ],
)
def test_other_values_say_what_was_expected(sound: Any, expected: str):
    with pytest.raises(UserError, match=expected):
        SoundProcessor(SMALL)([sound])
