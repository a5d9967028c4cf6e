"""Files that nobody wrote for us: changed, broken and hostile ones are read, or refused in one line that names them."""

import io
import json
import pickle  # noqa: TID251 - to write what must not run
import random
import struct
import sys
import time
import wave
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.api import load
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.data.sounds import read_wave
from clearhead.data.sources import read_texts
from clearhead.errors import UserError
from clearhead.recipe.data import SquadFiles, Table, TextFiles
from clearhead.recipe.tokenizers import ByteBPE, Words
from clearhead.tasks.images.data import idx
from clearhead.tasks.question_answering.data import QuestionData, read_questions
from clearhead.tasks.tagging.data import read_conll
from clearhead.text.tokenizers import Tokenizer
from tests import processes
from tests.api.test_load_fuzz import anything, changed
from tests.hostile import FIRST, config_outcome, document_of, make, put
from tests.reliability import Counted

ROOT = Path(__file__).resolve().parents[2]
N = 10_000
SLOW = 5.0
"""Seconds that the refusal of a config may take."""


# --- configs and tokenizers -----------------------------------------------------------------------------------------


def configs(folder: Path) -> Counted:
    """10,000 changed configs, over all families."""
    each, refused, slowest, tried = -(-N // len(FIRST)), 0, 0.0, 0
    for case in FIRST:
        place = make(case, folder / str(case))
        document, chance = document_of(place), random.Random(case.family)
        for _ in range(each):
            put(place, changed(document, chance))
            began = time.process_time()
            refused += config_outcome(place) is not None
            slowest = max(slowest, time.process_time() - began)
            tried += 1
    said = f"clearhead refused {refused:,} of {tried:,} changed configs of {len(FIRST)} families; none gave a"
    said += f" traceback, and the slowest took {slowest:.2f} s"
    return Counted(tried, slowest > SLOW, said)


REGULAR_BOMBS = (
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "((a*)*)*b",
    "(.*a){20}",
    "(?=(a+))a*b\\1",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
)


def tokenizers(folder: Path) -> Counted:
    """10,000 changed tokenizers, some with a regular expression that needs exponential time."""
    made = [
        Tokenizer.train(["the man sees the dog"] * 3, kind).to_files() for kind in (Words(), ByteBPE(vocab_size=300))
    ]
    documents = [json.loads(files["tokenizer.json"]) for files in made]
    chance, refused, slowest, wrong = random.Random(29), 0, 0.0, 0
    text = "a" * 2000 + "!"
    for i in range(N):
        document = json.loads(json.dumps(documents[i % 2]))
        if i % 50 == 0:
            pattern = {"Regex": chance.choice(REGULAR_BOMBS)}
            document["pre_tokenizer"] = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
            content = json.dumps(document)
        else:
            content = _edited(document, chance)
        began = time.process_time()
        try:
            tokenizer = Tokenizer.from_files({"tokenizer.json": content.encode("utf-8", "surrogatepass")}, where="t")
            tokenizer.encode(text)
        except UserError as error:
            refused += 1
            wrong += "\n" in str(error)
        slowest = max(slowest, time.process_time() - began)
    said = f"clearhead refused {refused:,} of {N:,} changed tokenizers with an error message of one line;"
    said += f" the slowest tokenizer took {slowest:.2f} s of CPU time for 2,000 characters"
    return Counted(N, wrong + (slowest > 2.0), said)


def _edited(document: Any, chance: random.Random) -> str:
    """A document with one to three changes at any depth, as text that may be broken too."""
    for _ in range(chance.choice([1, 1, 2, 3])):
        at = document
        while True:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            if not len(keys):
                break
            key = chance.choice(list(keys))
            if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.8:
                at = at[key]
                continue
            at[key] = _another(at[key], chance) if chance.random() < 0.7 else anything(chance)
            break
    text = json.dumps(document)
    if chance.random() < 0.1:
        i = chance.randrange(len(text))
        text = text[:i] + chance.choice(["", '"', "}", "\\", "\0", "é"]) + text[i + 1 :]
    return text


def _another(value: object, chance: random.Random) -> object:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice([0, 1, value + 1, 7, 300])
        case str():
            return chance.choice([value[1:], value + "a", value.upper(), value * 2, " ", "▁", "##x"])
        case _:
            return type(value)() if value is not None else chance.choice([True, "a", {}, []])


# --- data ----------------------------------------------------------------------------------------------------------

Reader = Callable[[Path], object]


def data_files(folder: Path) -> Counted:
    """10,000 changed files of each format of data."""
    broken = tried = refused = 0
    for name, content, read in _formats(folder):
        path, chance = folder / name, random.Random(name)
        for _ in range(N):
            path.write_bytes(_spoilt(content, chance))
            try:
                found = read(path)
                list(found) if isinstance(found, Iterable) else None
            except UserError as error:
                refused += 1
                *some, last = str(error).split("\n")
                broken += not all(str(path) in line for line in some or [last])
            tried += 1
    said = f"clearhead refused {refused:,} of {tried:,} changed files of {tried // N} formats with an error message of"
    said += " one line that names the file; none gave a traceback"
    return Counted(tried, broken, said)


def _formats(folder: Path) -> list[tuple[str, bytes, Reader]]:
    import pyarrow as pa
    from pyarrow import parquet

    def text(path: Path) -> object:
        return read_texts(TextFiles(paths=str(path)))

    def table(**columns: Any) -> Reader:
        return lambda path: read_texts(Table(path=path, **columns))

    parquet.write_table(pa.table({"x": ["a", "b" * 50]}), folder / "made.parquet")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)).save(folder / "made.png")
    with wave.open(str(folder / "made.wav"), "wb") as sound:
        sound.setnchannels(1), sound.setsampwidth(2), sound.setframerate(16_000)
        sound.writeframes(bytes(range(200)))
    squad = {"data": [{"paragraphs": [{"context": "a b", "qas": [{"question": "q", "id": "1", "answers": []}]}]}]}
    squad["data"][0]["paragraphs"][0]["qas"][0]["answers"] = [{"text": "b", "answer_start": 2}]
    with zipfile.ZipFile(archive := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("d/t.csv", "a,b\n" * 99)
    pictures = ImageProcessor(ImageConfig(size=PixelSize(height=8, width=8)))
    return [
        ("t.txt", "a line\nand ä one\n\nmore\n".encode(), text),
        ("t.tsv", b"x\ty\na\tb\nc\td\n", table(text="x", header=True)),
        ("t.csv", b'x,y\n"a ""q""",b\nc,d\n', table(text="x", header=True)),
        ("t.jsonl", b'{"x": "a", "y": [1, {"z": null}]}\n{"x": "b"}\n', table(text="x")),
        ("t.parquet", (folder / "made.parquet").read_bytes(), table(text="x")),
        ("t.conllu", b"# x\n1\tIt\tit\tPRON\tPRP\t_\t0\troot\t_\t_\n\n", lambda path: read_conll(path, None, None)),
        ("t.json", json.dumps(squad).encode(), questions),
        ("rows.json", b'[{"x": "a",\n "y": [1]}, {"x": "b"}]', table(text="x", format="json")),
        ("t.zip", archive.getvalue(), lambda path: read_texts(Table(path=path / "d/t.csv", text=0))),
        ("t.idx", bytes([0, 0, 8, 1]) + struct.pack(">i", 5) + b"12345", lambda path: idx(path, 1)),
        ("t.wav", (folder / "made.wav").read_bytes(), read_wave),
        ("t.png", (folder / "made.png").read_bytes(), lambda path: pictures([path])),
    ]


def questions(path: Path) -> object:
    source = SquadFiles.model_validate({"paths": str(path)})
    return read_questions(source, QuestionData(train=source))


def _spoilt(content: bytes, chance: random.Random) -> bytes:
    """Some bytes exchanged, cut out, put in or repeated."""
    spoilt = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        i = chance.randrange(len(spoilt) + 1)
        match chance.randrange(5):
            case 0:
                del spoilt[i : i + chance.choice([1, 4, 100])]
            case 1:
                spoilt[i:i] = chance.randbytes(chance.choice([1, 8]))
            case 2:
                spoilt[i:i] = spoilt[:i][-20:] * chance.choice([1, 50])
            case _:
                spoilt[i : i + 1] = chance.choice([chance.randbytes(1), b'"', b"\n", b"\t", b"\0", b"{", b"\xff", b"9"])
    return bytes(spoilt)


# --- bombs and slips -----------------------------------------------------------------------------------------------


def depth_bombs(folder: Path) -> Counted:
    """JSON of a million brackets and zip archives of gigabytes in each place where a file is read."""
    deep = "[" * 1_000_000
    readers: dict[str, Reader] = {
        "config.json": lambda path: load(path.parent),
        "tokenizer.json": lambda path: Tokenizer.load(path.parent),
        "t.json": questions,
        "t.jsonl": lambda path: read_texts(Table(path=path, text="x")),
    }
    broken = tried = 0
    slowest = 0.0
    for name, read in readers.items():
        for content in (deep, '{"a": ' + deep, '{"a":' * 200_000, '"' + "\\u0041" * 1_000_000 + '"'):
            path = folder / str(tried) / name
            path.parent.mkdir()
            path.write_text(content, encoding="utf-8")
            began = time.perf_counter()
            try:
                read(path)
                broken += 1
            except UserError as error:
                broken += "\n" in str(error)
            slowest = max(slowest, time.perf_counter() - began)
            tried += 1
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(300 << 20))
    began = time.perf_counter()
    done = processes.run(
        [sys.executable, "-m", "clearhead", "summary", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    broken += done.returncode != 2 or "Traceback" in done.stderr
    said = f"clearhead refused {tried + 1} files of huge size or depth, the slowest in {slowest:.2f} s"
    return Counted(tried + 1, broken + (slowest > 2.0), said)
