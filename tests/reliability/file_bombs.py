"""Files that would take all memory or time: pictures, sounds, archives, tables, weights, at the page's server and in
commands.
"""

import base64
import gzip
import io
import json
import os
import resource
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from PIL import Image

from tests import processes
from tests.clients import post, served
from tests.explorer.traced import CONFIGS, model_of
from tests.serve.tiny import writer_model
from tests.small_sounds import speech_model

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEGABYTES = 30, 6000
"""What a command may take: CPU time and address space."""


# --- pictures at the page's server ---------------------------------------------------------------------------------


def png(width: int, height: int, content: bytes = b"", *, depth: int = 8, kind: int = 2, extra: bytes = b"") -> bytes:
    """A PNG of which the header says the size."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, kind, 0, 0, 0])
    chunks = [
        _chunk(b"IHDR", header),
        extra,
        _chunk(b"IDAT", content or zlib.compress(bytes(1 << 20))),
        _chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")


def saved(kind: str, size: tuple[int, int] = (64, 64), mode: str = "RGB", **options: object) -> bytes:
    """A picture that Pillow writes."""
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind, **options)
    return stream.getvalue()


def pictures() -> dict[str, bytes]:
    """Pictures of too many pixels, of other formats, cut off, animated, and with hostile parts."""
    zeros = zlib.compress(bytes(100 << 20), 6)
    jpeg, webp, plain = saved("JPEG"), saved("WEBP"), saved("PNG")
    frames = [Image.new("RGB", (300, 300), (i, 0, 0)) for i in range(100)]
    turned = Image.Exif()
    turned[0x0112], turned[0x010E] = 6, "a" * 60_000
    text = _chunk(b"zTXt", b"a\0\0" + zeros)
    claims = {
        f"{w} x {h}": png(w, h) for w, h in ((60_000, 60_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 9), (8193, 8193))
    }
    return claims | {
        "most pixels": png(8192, 8192, zeros, kind=0),
        "most pixels of a palette": png(8192, 8192, zeros, depth=1, kind=3, extra=_chunk(b"PLTE", b"aaa")),
        "more rows than said": png(8, 8, zeros),
        "16 bits": png(4000, 4000, zeros, depth=16),
        "a text that unpacks": png(8, 8, extra=text),
        "many texts": png(8, 8, extra=_chunk(b"tEXt", b"a\0b") * 90_000),
        "a profile that unpacks": png(8, 8, extra=_chunk(b"iCCP", b"a\0\0" + zeros)),
        "an animation": _animated(frames, "PNG"),
        "an animated WebP": _animated(frames, "WEBP"),
        "a GIF": _animated(frames, "GIF"),
        "TIFF": saved("TIFF"),
        "TIFF, packed": saved("TIFF", (9000, 9000), compression="tiff_lzw"),
        "ICO": saved("ICO"),
        "BMP": saved("BMP"),
        "PPM": b"P6 99999 99999 255\n",
        "PDF": saved("PDF"),
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99999 99999\n",
        "SVG": b"<svg width='99999999'/>",
        "CMYK": saved("JPEG", (3000, 3000), "CMYK"),
        "turned": saved("JPEG", (4000, 2000), exif=turned),
        "EXIF cut off": jpeg[:20] + b"\xff\xe1\xff\xffExif\0\0II*\0\xff\xff\xff\xff" + jpeg[20:],
        "JPEG of 65500": saved("JPEG", (65_500, 900), quality=5),
        "JPEG claims": jpeg.replace(b"\0\x40\0\x40", b"\xff\xff\xff\xff"),
        "JPEG cut off": jpeg[:-200],
        "JPEG of scans": jpeg[:-2] + jpeg[2:-2] * 3000,
        "WebP cut off": webp[: len(webp) // 2],
        "WebP claims": webp[:4] + b"\xff\xff\xff\xff" + webp[8:],
        "PNG cut off": plain[:-30],
        "no PNG": plain[:8],
        "noise": bytes(range(256)) * 20_000,
        "nothing": b"",
        "a zip in it": plain + _zip({"a": bytes(1 << 20)}),
        "a chunk of 2 GB": plain[:33] + b"\x7f\xff\xff\xffIDAT",
    }


def _animated(frames: list[Image.Image], kind: str) -> bytes:
    stream = io.BytesIO()
    frames[0].save(stream, kind, save_all=True, append_images=frames[1:], loop=0)
    return stream.getvalue()


@contextmanager
def page(folder: Path) -> Iterator[str]:
    """The address of `clearhead explore` of a model that reads pictures."""
    model_of(CONFIGS["vision"]).save(folder / "vision")
    first = folder / "first.png"
    first.write_bytes(saved("PNG", (8, 8)))
    words = ("-m", "clearhead", "explore", folder / "vision", first, "--no-browser")
    with served(*words, stderr=subprocess.DEVNULL) as (_, url):
        assert url, "the page's server did not start"
        yield url


def asked(url: str, path: str, body: bytes, **headers: Any) -> int:
    """The status of an answer of a server; 0 for none."""
    try:
        return post(url, path, body, **headers)[0]
    except OSError:
        return 0


def at_the_page(folder: Path) -> Iterator[bool]:
    """Whether the page's server answers each bomb with 200 or 400, and the next question with 200."""
    about = b'{"ask": "about"}'
    with page(folder) as url:
        session_start = {"image": "example:0"}
        bodies = [
            json.dumps(
                {
                    "ask": "run",
                    "run": session_start | {"image": f"data:image/{kind};base64," + base64.b64encode(one).decode()},
                }
            ).encode()
            for kind, one in (
                ("jpeg" if content[:2] == b"\xff\xd8" else "png", content) for content in pictures().values()
            )
        ]
        deep = b"[" * 900_000
        bodies += [b'{"ask": ' + deep, b'{"ask": "run", "run": ' + deep + b"]" * 900_000 + b"}", b"1" * 2_000_000]
        bodies += [b'{"ask": "run", "run": {"image": "data:image/png;base64,' + b"A" * 11_000_000 + b'"}}']
        bodies += [b'{"ask": "run", "run": {"image": "example:' + b"9" * 5_000_000 + b'"}}']
        bearer = f"Bearer {parse_qs(urlsplit(url).query)['token'][0]}"
        for body in bodies:
            status, after = (asked(url, "/ask", one, Authorization=bearer) for one in (body, about))
            good = status in (200, 400, 413, 422) and after == 200
            if not good:
                print("the page's server:", status, body[:100], flush=True)
            yield good


# --- files of commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A command about a file."""

    name: str
    arguments: tuple[str, ...]


CLEARHEAD = (sys.executable, "-m", "clearhead")


def _zip(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _array(shape: str, kind: str = "|u1", content: bytes = b"") -> bytes:
    """The header of an array of numpy, and bytes."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + content


def _wave(
    size: int, channels: int = 1, rate: int = 16000, bits: int = 16, code: int = 1, data: bytes = bytes(32_000)
) -> bytes:
    form = struct.pack("<HHIIHH", code, channels, rate, 0xFFFFFFFF, 1, bits)
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size) + data


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(["a" * 150_000_000])}), stream, compression="zstd")
    return stream.getvalue()


def _header(text: str, length: int | None = None) -> bytes:
    """A safetensors file of a header."""
    return (len(text) if length is None else length).to_bytes(8, "little") + text.encode()


def files() -> dict[str, tuple[str, bytes]]:
    """What a command is asked of each file, and the file."""
    many = {f"{i}": bytes(1 << 20) for i in range(200)}
    big = gzip.compress(bytes(100 << 20), 6)
    sounds = {
        "claims 4 GB.wav": _wave(0xFFFFFFFF),
        "65535 channels.wav": _wave(32_000, 65_535),
        "one a second.wav": _wave(32_000, rate=1),
        "4 GHz.wav": _wave(32_000, rate=0xFFFFFFFF),
        "no channel.wav": _wave(9, 0),
        "no rate.wav": _wave(9, rate=0),
        "nan.wav": _wave(32_000, bits=32, code=3, data=b"\xff" * 32_000),
        "chunks.wav": _wave(0, data=b"abcd\0\0\0\0" * 900_000),
        "17 bits.wav": _wave(9, bits=17),
        "MP3.wav": _wave(9, code=85),
        "cut off.wav": _wave(9)[:30],
        "noise.wav": bytes(range(256)) * 9000,
    }
    arrays = {
        "claims.npz": _zip({"images.npy": _array("(999999, 999, 999)"), "labels.npy": _array("(999999,)")}),
        "negative.npz": _zip({"images.npy": _array("(-1, 9, 9)"), "labels.npy": _array("(9,)")}),
        "overflow.npz": _zip({"images.npy": _array("(4294967296, 4294967296, 4)"), "labels.npy": _array("(9,)")}),
        "objects.npz": _zip(
            {"images.npy": _array("(9,)", "|O", b"cos\nsystem\n(S'true'\ntR."), "labels.npy": _array("(9,)")}
        ),
        "zeros.npz": _zip(
            {
                "images.npy": _array("(300, 900, 900)", content=bytes(243_000_000)),
                "labels.npy": _array("(300,)", content=bytes(300)),
            }
        ),
        "members.npz": _zip(many),
        "deep.npz": _zip({"images.npy": _array("(" * 9000 + ")" * 9000)}),
        "cut off.npz": _zip(many)[:5000],
    }
    tables = {
        "gigabytes.txt": big,
        "a line.txt": b"a" * 5_000_000,
        "spaces.txt": b"a" + b" " * 5_000_000 + b"x",
        "noughts.txt": bytes(5_000_000),
        "gzip in gzip.txt": gzip.compress(big),
        "deep.jsonl": b"[" * 900_000,
        "deep members.jsonl": b'{"a":' * 200_000,
        "digits.jsonl": b'{"text": ' + b"9" * 2_000_000 + b"}",
        "a field.csv": b'text\n"' + b"a" * 5_000_000,
        "columns.csv": b"text," * 900_000 + b"\na",
        "quotes.csv": b"text\n" + b'"' * 4_000_001,
        "a page.parquet": _parquet(),
        "claims.parquet": b"PAR1" + b"\xff" * 900 + b"\xff\xff\xff\x7fPAR1",
        "no foot.parquet": b"PAR1" * 9,
        "gzip cut off.txt": big[: len(big) // 2],
    }
    at = '{{"a": {{"dtype": "F32", "shape": {}, "data_offsets": {}}}}}'
    weights = {
        "long.safetensors": _header("", 2**63),
        "99 MB.safetensors": _header("{", 99_000_000),
        "deep.safetensors": _header('{"a":' * 200_000),
        "shape.safetensors": _header(at.format([2**62, 4], [0, 16])),
        "offsets.safetensors": _header(at.format([4], [0, 2**62])),
        "same.safetensors": _header(
            "{"
            + ",".join(f'"a{i}": {{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}' for i in range(90_000))
            + "}"
        ),
        "negative.safetensors": _header(at.format([-4], [0, 16])),
    }
    key = struct.pack("<Q", 1) + b"a"
    head = lambda tensors, keys, more=b"": b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + more  # noqa: E731
    nested = key + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 90_000
    ggufs = {
        "tensors.gguf": head(2**63 - 1, 0),
        "keys.gguf": head(0, 2**63 - 1),
        "a key.gguf": head(0, 1, struct.pack("<Q", 2**62)),
        "a text.gguf": head(0, 1, key + struct.pack("<IQ", 8, 2**62)),
        "an array.gguf": head(0, 1, key + struct.pack("<IIQ", 9, 0, 2**62)),
        "texts.gguf": head(0, 1, key + struct.pack("<IIQ", 9, 8, 2**40)),
        "nested.gguf": head(0, 1, nested),
        "dimensions.gguf": head(
            1, 0, key + struct.pack("<I", 4) + struct.pack("<4Q", *[2**60] * 4) + struct.pack("<IQ", 0, 0)
        ),
        "empty.gguf": b"GGUF",
        "version.gguf": b"GGUF\xff\xff\xff\xff" + bytes(99),
    }
    asked = ((sounds, "transcribe"), (arrays, "pictures"), (tables, "predict"), (weights, "open"), (ggufs, "open"))
    return {name: (what, content) for group, what in asked for name, content in group.items()}


def in_commands(folder: Path) -> Iterator[tuple[str, bool]]:
    """Whether each command ends within its limits, with its work done or with one line."""
    speech_model().save(folder / "speech")
    writer_model(positions={"kind": "rotary"}).save(folder / "writer")
    cases = list(_cases(folder))
    with ThreadPoolExecutor(2) as pool:
        yield from zip((case.name for case in cases), pool.map(_ends, cases), strict=True)


def _cases(folder: Path) -> Iterator[Case]:
    for i, (name, (what, content)) in enumerate(files().items()):
        path = folder / name
        path.write_bytes(content)
        match what:
            case "transcribe":
                yield Case(name, ("transcribe", str(folder / "speech"), str(path)))
            case "pictures":
                recipe = folder / f"{i}.toml"
                recipe.write_text(RECIPE.format(json.dumps(str(path)), json.dumps(str(folder / f"run-{i}"))))
                yield Case(name, ("train", str(recipe)))
            case "predict":
                yield Case(name, ("generate", str(folder / "writer"), "--file", str(path), "--max-new-tokens", "2"))
                yield Case(
                    f"train {name}",
                    ("train", str(path))
                    if path.suffix != ".txt"
                    else (
                        "train",
                        "lm",
                        "--text",
                        str(path),
                        "--training.steps",
                        "1",
                        "--data.held_out",
                        "1000",
                        "--out",
                        str(folder / f"run-{i}"),
                    ),
                )
            case _:
                model = folder / f"model-{i}"
                model.mkdir()
                (model / "config.json").write_bytes((folder / "writer" / "config.json").read_bytes())
                path.rename(target := model / ("model" + path.suffix))
                yield Case(name, ("explore", str(target if path.suffix == ".gguf" else model), "--no-browser"))


RECIPE = """
task = "image_classification"
[data]
train = {{kind = "npz", path = {}}}
[training]
folder = {}
steps = 1
"""


def _ends(case: Case) -> bool:
    began = time.monotonic()
    done = processes.run(
        [*CLEARHEAD, *case.arguments],
        cwd=ROOT,
        text=True,
        errors="replace",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_limited,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    good = (done.returncode == 0 or (done.returncode in (2, 3) and len(lines) == 1)) and "Traceback" not in done.stderr
    if not good:
        print(case.name, done.returncode, f"{time.monotonic() - began:.0f} s", done.stderr[-250:], flush=True)
    return good


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))
