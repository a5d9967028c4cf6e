"""Small files under the names that the documents use: what a reader would have in the folder."""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.small_sounds import sound, wav

N, N_DIGITS = 60, 300
WORDS = "the a red old small car house dog book money boat where is my parcel bill delivery two good bad".split()
CLASSES = ("cat", "dog")


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 9)))


def rows() -> list[dict[str, Any]]:
    """Rows with every column that a document names."""
    draw = random.Random(0)
    found: list[dict[str, Any]] = []
    for i in range(N):
        a, b, c = (f"{sentence(draw)} {i}." for _ in range(3))
        found.append({"a": a, "b": b, "c": c, "label": ("x", "y")[i % 2], "number": i / N})
    return found


def columns(**names: str) -> list[dict[str, Any]]:
    """The rows with these columns: `message="a"` is the first text under the name message."""
    return [{name: row[of] for name, of in names.items()} for row in rows()]


def lines(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def table(path: Path, given: Sequence[Mapping[str, Any]]) -> None:
    if path.suffix == ".jsonl":
        lines(path, [json.dumps(row) for row in given])
    elif path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist([*given]), path)
    else:
        tab = "\t" if path.suffix == ".tsv" else ","
        lines(path, [tab.join(given[0]), *(tab.join(map(str, row.values())) for row in given)])


def squad(path: Path) -> None:
    """Questions whose answer is the third word of their context."""
    paragraphs = []
    for i, row in enumerate(rows()):
        answer = row["a"].split()[2]
        answers = [{"text": answer, "answer_start": row["a"].index(f" {answer}") + 1}]
        paragraphs.append({"context": row["a"], "qas": [{"id": f"{i}", "question": row["b"], "answers": answers}]})
    path.write_text(
        json.dumps({"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8"
    )


def tagged(path: Path) -> None:
    """Words with tags, in the form that the ending names."""
    draw = random.Random(0)
    found: list[str] = []
    for _ in range(N):
        for i, word in enumerate(sentence(draw).split()):
            kind = "NOUN" if len(word) > 3 else "DET"
            tag = "B-thing" if kind == "NOUN" else "O"
            conllu = [i + 1, word, word, kind, kind[:2], "_", 0, "root", "_", "_"]
            found.append("\t".join(map(str, conllu)) if ".conllu" in path.name else f"{word}\t{tag}")
        found.append("")
    packed = "\n".join(found).encode() + b"\n"
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (16, 16, 3)).astype(np.uint8))


def pictures(folder: Path) -> None:
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True)
        for i in range(12):
            picture(i + 100 * CLASSES.index(kind)).save(folder / kind / f"{i}.png")


def idx(path: Path, values: np.ndarray) -> None:
    """A file of MNIST's form."""
    head = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    path.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def digits(folder: Path, images: str, labels: str, n: int = N_DIGITS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    idx(folder / images, rng.integers(0, 255, (n, 28, 28)))
    idx(folder / labels, np.arange(n) % 10)


def texts(folder: Path) -> None:
    draw = random.Random(1)
    for name in ("train", "some", "other", "a", "b", "v", "part-1", "part-2"):
        for language in ("en", "de", "fr"):
            lines(folder / f"{name}.{language}", [sentence(draw) for _ in range(6 if name == "some" else N)])
    lengths = {
        "book": 600,
        "other": 600,
        "a": 600,
        "b": 600,
        "v": 300,
        "lines": N,
        "texts": 6,
        "story": 2,
        "joyful": 6,
        "gloomy": 6,
    }
    for name, n in lengths.items():
        lines(folder / f"{name}.txt", [f"{sentence(draw).capitalize()}." for _ in range(n)])


def tables(folder: Path) -> None:
    table(folder / "reviews.csv", columns(body="a", topic="label"))
    table(folder / "tickets.csv", columns(message="a", team="label"))
    more = {"message": "a", "team": "label", "body": "a", "topic": "label", "anchor": "a", "positive": "b"}
    table(folder / "more.csv", columns(**more))
    table(folder / "test.tsv", columns(body="a", label="label"))
    table(folder / "texts.csv", columns(text="a"))
    table(folder / "labels.csv", columns(text="a", label="label"))
    table(folder / "genes.csv", columns(sequence="a", family="label"))
    pairs = columns(anchor="a", positive="b", question="a", answer="b", en="a", de="b", wrong_answer="c", wrong="c")
    table(folder / "pairs.csv", pairs)
    table(folder / "sts.csv", columns(one="a", two="b", score="number"))
    lines(folder / "pairs.tsv", [f"{row['a']}\t{row['b']}" for row in rows()])
    gave = [f"When Mary and John went home, {name} gave it to" for name in ("John", "Mary")]
    lines(folder / "gave.tsv", ["clean\tcorrupt", "\t".join(gave), "\t".join(reversed(gave))])
    for ending in ("jsonl", "parquet"):
        both = columns(premise="a", hypothesis="b", relation="label", en="a", de="b", question="b", context="a")
        nested = [{**row, "translation": {"en": row["en"], "de": row["de"]}} for row in both]
        table(folder / f"pairs.{ending}", nested)
    table(folder / "texts.jsonl", columns(body="a"))
    table(folder / "articles.jsonl", columns(body="a", summary="b"))
    faq = [{"question": row["b"], "context": row["a"], "answer": row["a"].split()[1]} for row in rows()]
    table(folder / "faq.jsonl", faq)
    words = [{"tokens": (a := row["a"].split()), "ner_tags": ["B-thing", *["O"] * (len(a) - 1)]} for row in rows()]
    table(folder / "train.jsonl", words)
    (folder / "dataset").mkdir()
    table(folder / "dataset" / "train.jsonl", [a | b for a, b in zip(nested, words, strict=True)])
    said = [
        {"messages": [{"role": "user", "content": row["a"]}, {"role": "assistant", "content": row["b"]}]}
        for row in rows()
    ]
    table(folder / "chats.jsonl", said)
    table(folder / "more.jsonl", [a | b for a, b in zip(said, columns(body="a", summary="b"), strict=True)])


def write(folder: Path, document: str) -> None:
    """Every file that a document names, with a few rows in it."""
    texts(folder)
    tables(folder)
    for name in ("train-v2.0", "dev-v2.0", "other"):
        squad(folder / f"{name}.json")
    for name in ("train.conll", "dev.conll", "test.conll", "more.conll", "train.conllu", "dev.conllu", "test.conllu"):
        tagged(folder / name)
    for name in ("train.conllu.gz", "dev.conllu", "test.conllu"):
        tagged(folder / f"en_ewt-ud-{name}")
    for name in ("pictures", "other-pictures"):
        pictures(folder / name)
    for name in ("new", "cat"):
        picture(5).save(folder / f"{name}.png")
    for i, name in enumerate(("a", "b", "speech", "talk")):
        wav(folder / f"{name}.wav", sound(i))
    if document in ("your-data.md", "images.md"):  # Where others have texts in a table of this name.
        files = [{"file": f"pictures/{kind}/{i}.png", "kind": kind} for kind in CLASSES for i in range(12)]
        table(folder / "labels.csv", files)
    if document == "classification.md":  # SST-2 has no line of names.
        for split in ("train", "dev", "test"):
            lines(folder / f"{split}.tsv", [f"{row['a']}\t{row['label']}" for row in rows()])
    if document == "gguf.md":
        from clearhead.cli.share.gguf import write as write_gguf
        from tests.small_models import model_of

        for name in ("model.gguf", "model-Q4_K_M.gguf"):
            write_gguf(model_of("llama-tiny"), folder / name, "q8_0", name=name)
    lines(folder / "paths.txt", ["new.png"])
    digits(folder, "images.gz", "labels.gz")
    for split in ("train", "t10k"):
        for name in ("mnist", "PATH/TO/mnist"):
            digits(folder / name, f"{split}-images-idx3-ubyte.gz", f"{split}-labels-idx1-ubyte.gz")
    x = np.random.default_rng(0).integers(0, 255, (N_DIGITS, 16, 16), np.uint8)
    np.savez(folder / "digits.npz", x=x, y=np.arange(N_DIGITS) % 10)
