"""Every way to ask every task the same: one answer, or one line that says why not."""

import contextlib
import csv
import io
import json
import math
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import batch
from clearhead.api import Model, load
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.json_text import tabbed
from clearhead.runs import start
from clearhead.tasks.registry import validate
from clearhead.training.train import train
from tests.reliability import Counted
from tests.reliability.asking_elsewhere import by_peft, elsewhere
from tests.serve.tiny import client_of

Row = str | tuple[str, str]
SIZES = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0, "attn_dropout": 0.0}
INIT = {"std": 0.5, "depth_scaled": False}
TRAINING = {"precision": "fp32", "device": "cpu", "steps": 1, "max_tokens": 512}
INPUTS = 300
CLOSE = 2e-4
"""How far numbers may differ: a text's place in a batch changes their last bits."""
WORDS = "cat dog horse mouse apple pear plum cherry saw drill file hammer the a ate fell on and Paris Rome".split()


# --- models -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A model to train, and how it is asked."""

    tables: Mapping[str, Any]
    verb: str
    route: str | None = "predict"
    """What the server does with it; None if it refuses such a model."""
    pairs: bool = False
    exports: Sequence[str] = ("hf", "onnx")
    """The formats in which other libraries answer the same; `clearhead export` refuses all others."""
    form: str = ""
    """How they are asked, if not by the verb."""

    @property
    def adapts(self) -> bool:
        """Whether it trains adapters of another model."""
        return "adapter" in self.tables


def rng_of(*names: object) -> random.Random:
    return random.Random("/".join(map(str, names)))


def sentence(rng: random.Random, least: int = 3, most: int = 12) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def write_data() -> None:
    """The training data of every kind, in the working folder."""
    rng = rng_of("data")
    texts = [sentence(rng, 4, 40) for _ in range(60)]
    kinds = ["odd\tlabel", "line\nbreak", 'say "so"', "plain"]

    def table(name: str, rows: Sequence[Mapping[str, object]]) -> None:
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    table("labels.jsonl", [{"text": t, "label": kinds[i % 4]} for i, t in enumerate(texts)])
    table("several.jsonl", [{"text": t, "label": ["a", "b"][: i % 3]} for i, t in enumerate(texts)])
    table("numbers.jsonl", [{"text": t, "label": float(i % 7)} for i, t in enumerate(texts)])
    table("two.jsonl", [{"text": t, "other": texts[-i], "label": "ab"[i % 2]} for i, t in enumerate(texts)])
    table("pairs.jsonl", [{"source": t, "target": " ".join(t.split()[::-1])} for t in texts])
    table("squad.jsonl", [{"question": f"which {t.split()[0]}", "context": t, "answer": t.split()[-1]} for t in texts])
    rows = ("".join(f"{w}\t{'B-x' if i % 3 == 0 else 'O'}\n" for i, w in enumerate(t.split())) for t in texts)
    Path("tags.conll").write_text("\n".join(rows), encoding="utf-8")
    rows = ("".join(f"{w}\t{w[0].upper()}\n" for w in t.split()) for t in texts)
    Path("words.conll").write_text("\n".join(rows), encoding="utf-8")
    Path("lines.txt").write_text("\n".join(texts), encoding="utf-8")


def write_pictures() -> None:
    rng = rng_of("training pictures")
    for name in ("dark", "light"):
        Path("shown", name).mkdir(parents=True)
        for i in range(20):
            picture_of(rng, "RGB", (16, 16)).save(Path("shown", name, f"{i}.png"))


def recipe(task: str, data: Mapping[str, Any], *, preset: str, tokenizer: str, **more: Any) -> dict[str, Any]:
    kind = {"kind": tokenizer, "vocab_size": 300 if tokenizer == "byte_bpe" else 120}
    model = {"preset": preset, "stacks": SIZES, "init": INIT}
    return {"task": task, "data": data, "tokenizer": kind, "model": model, "training": TRAINING, **more}


def labels(path: str, **data: Any) -> dict[str, Any]:
    return {"train": {"kind": "table", "path": path, "text": "text"}, "max_length": 24, **data}


def kinds() -> dict[str, Kind]:
    """A model of each task; texts are cut at few tokens, so that many inputs are long."""
    short = {"max_new_tokens": 12}
    pairs = {"kind": "table", "path": "pairs.jsonl", "source": "source", "target": "target"}
    several = labels("several.jsonl", problem_type="multi_label_classification")
    number, two = labels("numbers.jsonl", problem_type="regression"), labels("two.jsonl", text_pair="other")
    encoder, writer = {"preset": "classifier", "tokenizer": "wordpiece"}, {"preset": "demo", "tokenizer": "byte_bpe"}
    cut, text = {"preparation": {"max_length": 16, "too_long": "cut"}}, {"kind": "text", "paths": "lines.txt"}
    text |= {"documents": "line"}
    tagged = {"kind": "tagged", "paths": "tags.conll"}
    squad = {"train": {"kind": "squad", "paths": "squad.jsonl"}, "max_length": 32, "overlap": 4}
    pairs_too, alone = ("hf", "onnx", "ctranslate2"), ("onnx",)
    adapted: dict[str, Any] = {"task": "classification", "data": labels("labels.jsonl"), "training": TRAINING}
    adapted |= {"model": {"start": "base"}}
    return {
        "classification": Kind(recipe("classification", labels("labels.jsonl"), **encoder), "classify"),
        "pictures": Kind(
            {
                "task": "image_classification",
                "data": {"train": {"kind": "image_folder", "path": "shown"}},
                "model": {"preset": "image-classifier", "stacks": SIZES, "init": INIT},
                "size": 16,
                "patch_size": 8,
                "training": TRAINING,
            },
            "classify",
            None,
            form="pictures",
        ),
        "adapter": Kind({**adapted, "adapter": {"rank": 2}}, "classify", exports=("peft",)),
        "adapter over four bits": Kind({**adapted, "adapter": {"rank": 2, "bits": 4}}, "classify", exports=("peft",)),
        "classification of bytes": Kind(
            recipe("classification", labels("labels.jsonl"), preset="nano", tokenizer="byte_bpe"),
            "classify",
            exports=alone,
        ),
        "several labels": Kind(recipe("classification", several, **encoder), "classify"),
        "regression": Kind(recipe("classification", number, **encoder), "classify"),
        "pairs": Kind(recipe("classification", two, **encoder), "classify", pairs=True),
        "spans": Kind(recipe("tagging", {"train": tagged, "max_length": 24}, **encoder), "tag"),
        "tags": Kind(
            recipe("tagging", {"train": {**tagged, "paths": "words.conll"}, "max_length": 24}, **encoder), "tag"
        ),
        "question answering": Kind(recipe("question_answering", squad, **encoder), "answer", pairs=True),
        "translation": Kind(
            recipe("translation", {"train": pairs, "held_out": 0.1, **cut}, **writer, generation=short),
            "translate",
            "translate",
            exports=pairs_too,
        ),
        "text to text": Kind(
            recipe(
                "text_to_text",
                {"train": pairs, "held_out": 8, "prefix": "turn: ", **cut},
                **writer,
                generation=short,
            ),
            "summarize",
            exports=pairs_too,
            form="translate",
        ),
        "denoising": Kind(
            recipe("denoising", {"train": text, "held_out": 6, "length": 16}, **writer, generation=short),
            "predict",
            exports=pairs_too,
            form="translate",
        ),
        "language model": Kind(
            recipe(
                "lm",
                {"train": text, "held_out": 6, "length": 32},
                preset="nano",
                tokenizer="byte_bpe",
                generation=short,
            ),
            "predict",
            "complete",
            exports=pairs_too,
            form="complete",
        ),
        "masked language model": Kind(
            recipe("masked_lm", {"train": text, "held_out": 6, "length": 64}, **encoder), "fill"
        ),
        "embedding": Kind(
            recipe("embedding", {"train": pairs, "held_out": 8, "max_length": 24}, **encoder),
            "embed",
            "embed",
        ),
    }


def trained(name: str, kind: Kind) -> Path:
    """The run of a kind after one update."""
    folder = Path(name.replace(" ", "-"))
    if kind.adapts and not Path("base").exists():
        load(trained("classification for a base", kinds()["classification"])).save("base")
    if kind.route is None:
        write_pictures()
    list(train(start(validate(kind.tables, where=name), folder)[0]))
    return folder


# --- inputs -------------------------------------------------------------------------------------------------------


ODD = [
    *("", " ", "\t", "\n", " \r\n\t ", "\u3000", "\u00a0", "\u200b", "\ufeff", "\x00", "\x1c", "\x85", "\u2028"),
    *("🙂", "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪", "❤️" * 40, "שלום עולם", "مرحبا بالعالم", "\u202eabc\u202c", "中文没有空格", "ภาษาไทย"),
    *("e\u0301" * 9, "ﬀﬁ Ǆ ß İ", "\x1b[31mred\x1b[0m", "a\x00b", "a\tb", "a\nb", "a\r\nb", "a\u2028b", "a\x0bb\x0cc"),
    *(
        '"',
        "'",
        '""',
        '"a",b',
        "a,b;c|d",
        "\\",
        "\\t\\n",
        "%s {} {{}}",
        "-",
        "--help",
        "-1",
        "@x",
        "#",
        "//",
        "= 1 + 1",
    ),
    *("[MASK]", "<mask>", "[CLS] [SEP]", "<pad> <unk> <bos> <eos>", "</s>", "turn: cat", ">>de<< cat", "<2de> cat"),
    *("null", "NaN", "true", "0", '{"text": "cat"}', "[1, 2]", "http://example.org/?a=b&c=d#e", "a@b.example"),
    *(
        "x" * 5000,
        "cat" * 1500,
        "catdog " * 400,
        "the " * 600,
        ". " * 500,
        "🙂" * 700,
        "\u0301" * 300,
        " " * 900 + "cat",
    ),
]


def odd_texts(n: int, seed: str) -> list[str]:
    """Long, empty, odd and repeated texts."""
    rng, found = rng_of("inputs", seed), [*ODD]
    alphabet = [*map(chr, range(0x250)), *"אבגدهو中文字ไทย🙂🏽👍\u200d\u0301\u202e\ufeff\u3000", *(" " * 120)]
    while len(found) < n:
        match rng.randrange(7):
            case 0:
                found.append(sentence(rng, 200, 700))
            case 1:
                found.append(sentence(rng))
            case 2:
                found.append("".join(rng.choices(alphabet, k=rng.randint(1, 80))))
            case 3:
                found.append(rng.choice(found))
            case 4:
                found.append(rng.choice(["  ", "\t", "\n"]) + sentence(rng) + rng.choice(["  ", "\t", "\n"]))
            case 5:
                found.append(f"{sentence(rng)} <mask> {rng.choice(ODD)}")
            case _:
                found.append(f"{rng.choice(ODD)} {sentence(rng)} {rng.choice(ODD)}")
    rng.shuffle(found)
    return found[:n]


def odd_pictures(n: int, seed: str) -> list[str]:
    """Files of pictures of all sizes and modes, and of other things, some of them more than once."""
    rng, found = rng_of("pictures", seed), ["", " ", "none.png", "odd", "odd/empty.png", "odd/text.png", "odd/cut.png"]
    Path("odd").mkdir(exist_ok=True)
    Path("odd/empty.png").write_bytes(b"")
    Path("odd/text.png").write_text("no picture", encoding="utf-8")
    for i in range(n - len(found)):
        if i % 7 == 6:
            found.append(rng.choice(found))
            continue
        mode = rng.choice(["L", "RGB", "RGBA", "P", "1", "LA", "I;16", "CMYK"])
        kinds = [".png", ".jpg", ".webp"] if mode in ("L", "RGB") else [".png"]
        size = rng.choice([(1, 1), (1, 60), (300, 2), (16, 16), (rng.randint(2, 90), rng.randint(2, 90))])
        path = f"odd/{rng.choice(['a', 'ü 🙂', 'two words'])}{i}{'.jpg' if mode == 'CMYK' else rng.choice(kinds)}"
        picture_of(rng, mode, size).save(path)
        found.append(path)
    Path("odd/cut.png").write_bytes(Path(found[7]).read_bytes()[:40])
    rng.shuffle(found)
    return found


def picture_of(rng: random.Random, mode: str, size: tuple[int, int]) -> Any:
    from PIL import Image

    width, height = size
    if mode == "I;16":
        return Image.frombytes(mode, size, rng.randbytes(2 * width * height))
    return Image.frombytes("RGBA", size, rng.randbytes(4 * width * height)).convert(mode)


def inputs_of(kind: Kind, n: int, name: str) -> list[Row]:
    if kind.route is None:
        return [*odd_pictures(n, name)]
    texts = [f"{text} <mask>" if kind.verb == "fill" and i % 5 else text for i, text in enumerate(odd_texts(n, name))]
    return [*zip(texts, odd_texts(n, f"{name} second"), strict=True)] if kind.pairs else [*texts]


# --- answers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """The line that says why not."""

    line: str


Answer = Mapping[str, Any] | Refusal


class Broken(Exception):
    """A way to ask ended in something other than an answer or a line."""


def refused(ask: Callable[[], Any]) -> Any:
    """What is said, or the line why not."""
    try:
        return ask()
    except UserError as error:
        if len(str(error).splitlines()) != 1:
            raise Broken(f"a refusal of several lines: {str(error)[:200]!r}") from None
        return Refusal(str(error))


def command(*words: str) -> str | Refusal:
    """What a command prints."""
    out, told = io.StringIO(newline=""), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main([*words])
        except SystemExit as end:
            if end.code not in (0, None):
                lines = [line for line in told.getvalue().split("\n") if line.startswith("error: ")]
                if end.code != 2 or len(lines) != 1:
                    raise Broken(f"{words[0]}: code {end.code}: {told.getvalue()[:300]!r}") from None
                return Refusal(lines[0])
    return out.getvalue()


def from_lines(said: str | Refusal) -> list[Answer] | Refusal:
    """The values that --json prints for each input."""
    if isinstance(said, Refusal):
        return said
    rows = [json.loads(line) for line in said.split("\n")[:-1]]
    return [{name: value for name, value in row.items() if name != "input"} for row in rows]


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal but for the last bits of their numbers."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, int | float):
        return abs(one - other) <= CLOSE * max(1.0, abs(one))
    return one == other


# --- ways ---------------------------------------------------------------------------------------------------------


Way = Callable[[Sequence[Row]], list[Answer] | Refusal]


def on_a_line(row: Row) -> str:
    return row if isinstance(row, str) else "\t".join(part.replace("\t", " ") for part in row)


def columns(kind: Kind) -> tuple[str, ...]:
    if not kind.pairs:
        return ("text",)
    return ("question", "context") if kind.verb == "answer" else ("text", "other")


def in_file(folder: Path, kind: Kind, suffix: str) -> Way:
    """A table of all inputs."""

    def ask(rows: Sequence[Row]) -> list[Answer] | Refusal:
        path, names = Path(f"inputs{suffix}"), columns(kind)
        cells = [(row,) if isinstance(row, str) else row for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".csv":
                csv.writer(file).writerows([names, *cells])
            else:
                file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in cells)
        given = ("--text", names[0], *(("--text-pair", names[1]) if kind.pairs else ()))
        return from_lines(command("predict", str(folder), "--json", "--file", str(path), *given))

    return ask


def in_lines(folder: Path) -> Way:
    """A file of lines, of the inputs that have none of their own."""

    def ask(rows: Sequence[Row]) -> list[Answer] | Refusal:
        Path("inputs.txt").write_text("".join(f"{on_a_line(row)}\n" for row in rows), encoding="utf-8", newline="")
        return from_lines(command("predict", str(folder), "--json", "--file", "inputs.txt"))

    return ask


def as_rows(found: Mapping[str, Any], names: Sequence[str]) -> list[Answer]:
    """The values of a batch, as `predict` gives them."""
    n = len(next(iter(found.values())))

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    rows = [{name: plain(found[name][i]) for name in names} for i in range(n)]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def in_batches(folder: Path, kind: Kind) -> Way:
    def ask(rows: Sequence[Row]) -> list[Answer] | Refusal:
        names = columns(kind)
        names = [f"given {name}" for name in names]  # The values of some tasks have these names too.
        given = {name: [row if isinstance(row, str) else row[i] for row in rows] for i, name in enumerate(names)}
        told = batch.Predict(str(folder), names[0], text_pair=names[1] if kind.pairs else None)
        found = refused(lambda: told(given))
        return found if isinstance(found, Refusal) else as_rows(found, [name for name in found if name not in names])

    return ask


def by_server(client: Any, kind: Kind) -> Way:
    """One request, in the form of the route that the model has."""

    def ask(rows: Sequence[Row]) -> list[Answer] | Refusal:
        route, body, values = {
            "translate": ("/translate", {"text": rows}, lambda said: [{"text": one} for one in said["translations"]]),
            "embed": ("/v1/embeddings", {"input": rows}, lambda s: [{"vector": one["embedding"]} for one in s["data"]]),
            "complete": (
                "/v1/completions",
                {"prompt": rows, "max_tokens": 12},
                lambda said: [{"text": one["text"]} for one in said["choices"]],
            ),
            "predict": ("/v1/predict", {"inputs": rows}, lambda said: said["predictions"]),
        }[kind.route or "predict"]
        found: list[Answer] = []
        for at in range(0, len(rows), 16):
            own = {name: value[at : at + 16] if value is rows else value for name, value in body.items()}
            response = client.post(route, json=own)
            said = response.json()
            if response.status_code != 200:
                line = said["error"]["message"]
                if response.status_code >= 500 or len(line.splitlines()) != 1:
                    raise Broken(f"{route}: {response.status_code}: {line[:200]!r}")
                return Refusal(line)
            found += values(said)
        is_blank = [kind.route == "translate" and not on_a_line(row).strip() for row in rows]
        return [{} if blank else one for one, blank in zip(found, is_blank, strict=True)]

    return ask


def by_verbs(model: Model, kind: Kind) -> Way:
    """The method of the model that its verb names, in the form of `predict`."""

    def ask(rows: Sequence[Row]) -> list[Answer] | Refusal:
        texts: Any = [on_a_line(row) for row in rows]
        if kind.verb in ("translate", "summarize"):
            found = refused(lambda: model.translate(texts))
            if isinstance(found, Refusal):
                return found
            return [{"text": said} if text.strip() else {} for said, text in zip(found, texts, strict=True)]
        if kind.route == "embed":
            vectors = refused(lambda: model.embed(texts))
            return vectors if isinstance(vectors, Refusal) else [{"vector": row} for row in vectors.tolist()]
        found = refused(lambda: model.classify(texts))
        if isinstance(found, Refusal):
            return found
        if kind.tables["data"].get("problem_type") == "regression":
            return [{"values": [value for _, value in row]} if row else {} for row in found]
        return [{"probabilities": dict(row)} if row else {} for row in found]

    return ask


# --- all of them --------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was asked, and what was broken."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def compare(self, way: str, rows: Sequence[Row], found: Any, expected: Sequence[Answer]) -> None:
        """Compares the answers of one way with those of Python to each input alone."""
        self.counts["asked"] += len(rows)
        if isinstance(found, Refusal):
            self.broken.append(f"{way}: refuses what Python answers: {found.line[:200]}")
            return
        if len(found) != len(rows):
            self.broken.append(f"{way}: {len(found)} answers for {len(rows)} inputs")
            return
        for row, one, own in zip(rows, found, expected, strict=True):
            wanted = own if not isinstance(own, Mapping) else {name: own[name] for name in own if name in one}
            complete = isinstance(own, Mapping) and bool(one) == bool(own)
            if complete and same(wanted, one):
                self.counts["equal"] += 1
            else:
                self.broken.append(f"{way}: {row!r:.120}: {one!r:.300} in place of {own!r:.300}")

    def refuse(self, way: str, row: Row, found: Any) -> None:
        """Checks that one way refuses an input that Python refuses."""
        self.counts["asked"] += 1
        if isinstance(found, Refusal):
            self.counts["refused"] += 1
        else:
            self.broken.append(f"{way}: {row!r:.120}: {found!r:.300} in place of a refusal")


def tried(name: str, kind: Kind, n: int, *, exports: bool) -> Tally:
    """Asks one model in every way."""
    folder, tally, rows = trained(name, kind), Tally(), inputs_of(kind, n, name)
    model = load(folder)
    alone: list[Answer] = []
    for row in rows:
        said = refused(lambda row=row: model.predict([row]))
        alone.append(said if isinstance(said, Refusal) else said[0])
    known = [(row, own) for row, own in zip(rows, alone, strict=True) if not isinstance(own, Refusal)]
    bad = [row for row, own in zip(rows, alone, strict=True) if isinstance(own, Refusal)]
    blank = [(row, own) for row, own in known if not own]
    saved = load(model.save(Path(f"{folder}-saved"), adapter=kind.adapts))
    ways: dict[str, Way] = {
        "Python": lambda some: refused(lambda: [*model.predict(some)]),
        "line": lambda some: from_lines(command("predict", str(folder), "--json", "--", *map(on_a_line, some))),
        "verb": lambda some: from_lines(command(kind.verb, str(folder), "--json", "--", *map(on_a_line, some))),
        "saved": lambda some: refused(lambda: [*saved.predict(some)]),
        "jsonl": in_file(folder, kind, ".jsonl"),
        "csv": in_file(folder, kind, ".csv"),
        "lines": in_lines(folder),
        "batch": in_batches(folder, kind),
    }
    if kind.verb == "translate":
        ways["verb"] = lambda some: plain_of(command("translate", str(folder), "--", *map(on_a_line, some)), some)
    if kind.verb in ("classify", "translate", "summarize", "embed"):  # The other tasks have no method but `predict`.
        ways["method"] = by_verbs(model, kind)
    # A line separates two texts by a tab, so it holds none in them. Lines of a file hold no line break either, and
    # no mark of the order of bytes.
    whole = {row for row in rows if isinstance(row, str) or "\t" not in "".join(row)}
    one_line = {row for row in whole if not any(c in on_a_line(row) for c in "\r\n\ufeff")}
    holds = {"line": whole, "verb": whole, "method": whole, "lines": one_line}
    with contextlib.ExitStack() as open_:
        if kind.route is None:
            tally.refuse("server", "", refused(lambda: open_.enter_context(client_of(model))))
        else:
            ways["server"] = by_server(open_.enter_context(client_of(model, max_length=1 << 16)), kind)
        for way, ask in ways.items():
            # These routes take no blank text.
            some = [(row, own) for row, own in known if row in holds.get(way, rows)]
            no_blanks = (way, kind.route) in {("server", route) for route in ("embed", "complete")}
            no_blanks |= (way, kind.route) == ("method", "embed")
            try:
                if no_blanks:
                    some = [(row, own) for row, own in some if own]
                    for row, _ in blank if kind.route != "complete" else ():  # A prompt may be blank.
                        tally.refuse(way, row, ask([row]))
                tally.compare(way, [row for row, _ in some], ask([row for row, _ in some]), [own for _, own in some])
                for row in bad:
                    if row in holds.get(way, rows):
                        tally.refuse(way, row, ask([row]))
            except Broken as error:
                tally.broken.append(f"{way}: {error}")
    plain = command("predict", str(folder), "--", *(on_a_line(row) for row, _ in known))
    tally.counts["asked"] += 1
    n_lines = len(plain.splitlines()) if isinstance(plain, str) else 0
    if n_lines != len(known):
        tally.broken.append(f"plain: {n_lines} lines for {len(known)} inputs")
    answered = [(row, own) for row, own in known if own]
    if exports:
        ask_elsewhere(tally, folder, kind, model, [row for row, _ in answered], [own for _, own in answered])
    return tally


def ask_elsewhere(
    tally: Tally, folder: Path, kind: Kind, model: Model, rows: Sequence[Row], known: Sequence[Any]
) -> None:
    """Asks the exports of a model in their own libraries; the formats that cannot hold it are refused in one line."""
    form = kind.form or kind.verb
    if form in ("translate", "complete"):  # Exports are asked without beams.
        texts: Any = rows
        said = model.translate(texts, beams=1) if form == "translate" else [*map(model.generate, texts)]
        known = [{"text": text} for text in said]
    by_row = dict(zip(rows, known, strict=True))
    for export in ("peft",) if kind.adapts else ("hf", "onnx", "ctranslate2", "gguf"):
        place = Path(f"{folder}-{export}")
        told = command("export", str(folder), "--to", export, "--out", str(place))
        if isinstance(told, Refusal) or export not in kind.exports:
            if export in kind.exports:
                tally.broken.append(f"{export}: {told}")
            else:
                tally.refuse(export, "the model", told)
            continue
        if export == "peft":
            asked = by_peft(place)
            if isinstance(asked, str):
                tally.counts["refused"] += 1
                continue
        else:

            def words_of(row: str) -> Any:
                return by_row[row]["words"]

            asked = elsewhere(export, place, form, data=kind.tables["data"], words_of=words_of)
        found, own = asked(rows), known
        if form == "fill":  # The shares alone: other libraries spell the tokens in other ways.
            own = [{"masks": [[one["probability"] for one in mask] for mask in row["masks"]]} for row in known]
        elif form == "answer" and not isinstance(found, Refusal):  # Of two spans as likely, the last bits choose.
            start, chance = operator.itemgetter("start", "end"), operator.itemgetter("probability")
            pairs = enumerate(zip(found, own, strict=True))
            ties = {
                i for i, (a, b) in pairs if start(a) != start(b) and math.isclose(chance(a), chance(b), rel_tol=1e-6)
            }
            if len(ties) <= len(rows) // 100:
                found = [own[i] if i in ties else one for i, one in enumerate(found)]
        tally.compare(export, rows, found, own)


def plain_of(said: str | Refusal, rows: Sequence[Row]) -> list[Answer] | Refusal:
    """The texts of lines that are not JSON; nothing for a blank input."""
    if isinstance(said, Refusal):
        return said
    texts = [json.loads(line) if quoted(line) else line for line in said.split("\n")[:-1]]
    return [{"text": text} if on_a_line(row).strip() else {} for text, row in zip(texts, rows, strict=True)]


def quoted(line: str) -> bool:
    """Whether a line is a cell that `tabbed` wrote as JSON."""
    try:
        return tabbed(json.loads(line)) == line
    except ValueError:
        return False


def every_way(folder: Path, n: int = INPUTS, only: Sequence[str] = (), *, exports: bool = True) -> Counted:
    """All kinds in a folder."""
    total = Tally()
    with contextlib.chdir(folder):
        write_data()
        for name, kind in kinds().items():
            if only and name not in only:
                continue
            with told_nothing():
                found = tried(name, kind, n, exports=exports)
            print(f"{name}: {dict(found.counts)}, {len(found.broken)} broken", flush=True)
            for line in found.broken[:8]:
                print(f"    {line}", flush=True)
            total.counts += found.counts
            total.broken += [f"{name}: {line}" for line in found.broken]
    counts = total.counts
    said = f"{counts['asked']:,} answers: {counts['equal']:,} equal, {counts['refused']:,} refused in one line alike"
    return Counted(counts["asked"], len(total.broken), said)


@contextlib.contextmanager
def told_nothing() -> Iterator[None]:
    """Hides what training says."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        print(every_way(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else INPUTS, sys.argv[2:]))
