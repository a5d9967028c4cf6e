"""WAV files of every kind of sample, and files that are none."""

import struct
from pathlib import Path

import numpy as np
import pytest

from clearhead.data.waves import read_wave
from clearhead.errors import UserError

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
def test_whole_samples(bits: int, channels: int, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    both = np.stack([SOUND, -0.5 * SOUND][:channels], 1)
    path.write_bytes(riff(form(1, bits, channels=channels), (b"LIST", b"odd"), (b"data", stored(both.ravel(), bits))))
    wave = read_wave(path)
    assert wave.rate == 16_000
    np.testing.assert_allclose(wave.samples, both.mean(1), atol=2.0 ** (2 - bits) + 1e-7)


@pytest.mark.parametrize("bits", [32, 64])
def test_floating_samples(bits: int, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(riff(form(3, bits, rate=8000), (b"data", SOUND.astype(f"<f{bits // 8}").tobytes())))
    wave = read_wave(path)
    assert wave.rate == 8000
    assert np.array_equal(wave.samples, SOUND.astype(np.float32))


def test_a_long_header_and_a_file_that_was_cut_off(tmp_path: Path) -> None:
    name, short = form(0xFFFE, 16)
    header = short + struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    content = riff((name, header), (b"data", stored(SOUND, 16)))
    path = tmp_path / "a.wav"
    path.write_bytes(content[:-11])
    np.testing.assert_allclose(read_wave(path).samples, SOUND[:-6], atol=1e-4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "expected a WAV file, got an empty file; convert it: ffmpeg"),
        (b"fLaC" + bytes(40), "expected a WAV file, got one that begins with b'fLaC'; convert it"),
        (riff((b"data", b"1234")), "expected a WAV file with a format and samples, got one without"),
        (riff((b"fmt ", b"12"), (b"data", b"1234")), "expected a format of 16 bytes or more, got 2"),
        (riff(form(85, 16), (b"data", b"1234")), "expected whole or floating samples, got 16 bits of format 85"),
        (riff(form(1, 12), (b"data", b"1234")), "expected whole or floating samples, got 12 bits of format 1"),
        (riff(form(1, 16, rate=1), (b"data", b"1234")), "1000 samples a second or more, got 1 and 1; convert it"),
        (
            riff(form(1, 16, channels=0), (b"data", b"1234")),
            "1000 samples a second or more, got 0 and 16000",
        ),
        (riff(form(1, 16), (b"data", b"")), "expected a WAV file with at least one sample, got none"),
        (riff(form(3, 32), (b"data", b"\xff" * 4)), "at least one sample, got numbers that are not finite"),
    ],
)
def test_other_files_name_themselves(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_wave(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.wav: expected a sound file, got No such file or directory; check"):
        read_wave(tmp_path / "a.wav")
