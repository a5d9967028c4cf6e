"""Thousands of changed configs, indexes and weight files: each is refused in one line, or is a model that works."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.hostile import FIRST, INDEX, WEIGHTS, config_outcome, document_of, make, outcome, put
from tests.parity.harness import Case

N, MANY, OPENED = 100, 10_000, 4
"""Changes in every run and in the slow one, and how many of the configs that are still good are opened there."""

WORDS = ["", "x", "24", "true", "gelu", "default", "linear", "yarn", "full_attention", "../x", "a\nb\u2028", "é"]
WHOLE = [0, 1, -1, 2, 3, 7, 24, 60, 2**20, 10**9, 2**31, 2**63, 10**300]
NUMBERS: list[object] = [*WHOLE, 0.0, 0.5, 1.0, -0.5, 1e-300, 1e300]


def anything(chance: random.Random, level: int = 0) -> object:
    """A random JSON value."""
    kind = chance.randrange(9 if level < 3 else 6)
    if kind < 3:
        return chance.choice(NUMBERS)
    if kind < 6:
        return chance.choice([None, True, False, *WORDS, "x" * chance.randrange(3000)])
    several = [anything(chance, level + 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return several
    names = [chance.choice(["a", "0", "1", "rope_type", "rope_theta", "factor", "height", *WORDS]) for _ in several]
    return dict(zip(names, several, strict=True))


def changed(document: dict[str, Any], chance: random.Random) -> str:
    """config.json with one to three changes, as text: a key may be there twice."""
    pairs = list(document.items())
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        i = chance.randrange(len(pairs))
        name, value = pairs[i]
        match chance.randrange(7):
            case 0:
                del pairs[i]
            case 1:
                pairs.insert(chance.randrange(len(pairs)), (name, value))
            case 2:
                pairs[i] = (chance.choice([name + "_", name[1:], name.upper(), *WORDS]), value)
            case 3:
                pairs[i] = (name, pairs[chance.randrange(len(pairs))][1])
            case 4 if isinstance(value, dict) and value:
                inner = chance.choice(list(value))
                pairs[i] = (name, {**value, inner: anything(chance)})
            case _:
                pairs[i] = (name, anything(chance))
        if not pairs:
            break
    return "{" + ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs) + "}"


def fuzz_configs(folder: Path, *, n: int, opened: int) -> tuple[int, int]:
    """How many of n changed configs are refused, and how many of those that are not were opened."""
    document, chance = document_of(folder), random.Random(0)
    refused = tried = 0
    for _ in range(n):
        put(folder, changed(document, chance))
        if config_outcome(folder) is not None:
            refused += 1
        elif tried < opened:
            tried += 1
            outcome(folder)
    return refused, tried


SLOW = pytest.param(MANY, marks=pytest.mark.slow)
QUICK = [(case, N) for case in FIRST[::2]]


@pytest.mark.parametrize(
    ("case", "n"), [*QUICK, *(pytest.param(case, MANY, marks=pytest.mark.slow) for case in FIRST)], ids=str
)
def test_changed_configs(case: Case, n: int, tmp_path):
    opened = OPENED if n == N else n // 10
    refused, tried = fuzz_configs(make(case, tmp_path / "model"), n=n, opened=opened)
    assert n // 3 < refused < n
    assert tried == opened


# --- weights -------------------------------------------------------------------------------------------------------


def with_bytes(content: bytes, chance: random.Random) -> bytes:
    """Some bytes exchanged, cut out or put in, most of them in the header."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    spoilt = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        i = chance.randrange(chance.choice([8, end, end, end, len(spoilt)]))
        match chance.randrange(5):
            case 0:
                del spoilt[i : i + chance.choice([1, 4, 1000])]
            case 1:
                spoilt[i:i] = chance.randbytes(chance.choice([1, 8]))
            case _:
                spoilt[i : i + 1] = chance.choice([chance.randbytes(1), b'"', b"}", b"0", b"9", b"-", b"."])
        if len(spoilt) < 8:
            break
    return bytes(spoilt)


def with_header(content: bytes, chance: random.Random) -> bytes:
    """A header that is JSON, and says something else."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    name = chance.choice([key for key in header if key != "__metadata__"])
    about = header[name]
    match chance.randrange(6):
        case 0:
            about["dtype"] = chance.choice(["F64", "F16", "BF16", "I32", "U8", "BOOL", "F8_E4M3", "C64", "x", 1, None])
        case 1:
            about["shape"] = chance.choice([about["shape"][::-1], [], [0], [1, *about["shape"]], [-1], [2**62, 4], "x"])
        case 2:
            start, stop = about["data_offsets"]
            about["data_offsets"] = chance.choice([[stop, start], [start, stop + 4], [0, 2**63], [-1], None])
        case 3:
            del header[name]
        case 4:
            header[chance.choice([name + "x", "a\nb\u2028", "x" * 3000, name.replace(".", "")])] = header.pop(name)
        case _:
            header[name] = anything(chance)
    new = json.dumps(header).encode()
    return struct.pack("<Q", len(new)) + new + content[end:]


def fuzz_weights(folder: Path, spoil: Callable[[bytes, random.Random], bytes], *, n: int) -> int:
    """How many of n changed files are refused."""
    content, chance = (folder / WEIGHTS).read_bytes(), random.Random(0)
    refused = 0
    for _ in range(n):
        (folder / WEIGHTS).unlink()  # what another model still maps stays as it was
        (folder / WEIGHTS).write_bytes(spoil(content, chance))
        refused += outcome(folder) is not None
    return refused


def fuzz_indexes(folder: Path, *, n: int) -> int:
    """How many of n changed indexes are refused."""
    tensors, chance = load_file(folder / WEIGHTS), random.Random(0)
    (folder / WEIGHTS).unlink()
    files = [f"model-0000{i + 1}-of-00003.safetensors" for i in range(3)]
    places = {name: files[i % 3] for i, name in enumerate(tensors)}
    for file in files:
        save_file({name: tensors[name] for name in tensors if places[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    assert outcome(folder) is None
    refused = 0
    for _ in range(n):
        new: dict[str, Any] = dict(places)
        name, other = chance.choices(list(places), k=2)
        match chance.randrange(6):
            case 0:
                new[name] = chance.choice([*files, "../" + files[0], "/etc/passwd", "x.bin", "", ".", files[0] + "\n"])
            case 1:
                new[name] = anything(chance)
            case 2:
                del new[name]
            case 3:
                new[chance.choice([name + "x", "a\nb\u2028", "x" * 3000])] = new.pop(name)
            case 4:
                new[name], new[other] = new[other], new[name]
            case _:
                new = {"": files[0]}
        text = json.dumps({"metadata": anything(chance), "weight_map": new})
        if chance.random() < 0.3:
            i = chance.randrange(len(text))
            text = text[:i] + chance.choice(["", '"', "}", "\\", "\0", "é"]) + text[i + 1 :]
        (folder / INDEX).write_text(text)
        refused += outcome(folder) is not None
    return refused


@pytest.mark.parametrize("n", [N, SLOW])
@pytest.mark.parametrize("spoil", [with_bytes, with_header])
def test_changed_weights(spoil: Callable[[bytes, random.Random], bytes], n: int, tmp_path):
    assert n // 2 < fuzz_weights(make(FIRST[0], tmp_path / "model"), spoil, n=n) <= n


@pytest.mark.parametrize("n", [N, SLOW])
def test_changed_indexes(n: int, tmp_path):
    assert n // 2 < fuzz_indexes(make(FIRST[0], tmp_path / "model"), n=n) <= n
