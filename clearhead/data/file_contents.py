"""Finds out what a file holds: by its content, not by its name alone. Imports no torch."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from clearhead.data.archives import plain_name
from clearhead.data.dialects import has_header
from clearhead.data.encodings import find_encoding, marked
from clearhead.data.files import opened, read_text
from clearhead.data.layouts import FASTTEXT, divide, texts_of
from clearhead.data.tables import format_of, written
from clearhead.data.tagged_columns import TaggedColumns, tagged_columns
from clearhead.errors import UserError
from clearhead.json_text import NotJson, parse, records
from clearhead.recipe.places import Place, absolute

Kind: TypeAlias = Literal["table", "tagged", "squad", "image_folder", "text"]
Fields: TypeAlias = dict[str, Any]
SPLIT_WORDS = {
    "train": {"train", "training", "trn"},
    "valid": {"valid", "val", "validation", "dev", "devel", "development", "testa", "trial"},
    "test": {"test", "testing", "tst", "testb"},
}
"""Words in the names of files and folders that hold one split each."""
BEGINNING, LINES = 1 << 24, 20_000
"""The bytes and lines of a file that are looked at."""
LEAST, PARAGRAPH = 3, 50
"""Lines of a paragraph: more than the one, at most the other."""
COLUMN_NAMES = {*"text sentence content review title body label labels target class category".split()}
LABEL = re.compile(r"[+-]?\d{1,3}|[A-Z]{2,}[:_]\w+|[A-Z_]{2,}|(?i:pos|neg|neu|positive|negative|neutral|ham|spam)")
"""What is more likely a label than the first or last word of a sentence."""


FOREIGN = {".xml": "XML", ".html": "HTML", ".yml": "YAML", ".yaml": "YAML"}
FOREIGN |= dict.fromkeys((".xlsx", ".xls", ".ods"), "a workbook")
"""Forms that are not read, by the suffixes of their files."""
SPAN = {"start", "end", "label"}
"""The fields of a span of characters, as tools of annotation write it."""
SIGNS = {
    "XML": r"(?i)\A\s*(<\?xml|<!doctype|<html|<[^<>]+>\s*\n\s*<)",
    "pairs of index:value": r"\A([-+.\d,]+( (\d+|qid):[-+.\deE]+)+ *(\n|\Z)){2}",
    "Markdown of Rasa": r"(?m)^## (intent|synonym|regex|lookup):",
}
"""Forms that are not read, by how their files begin."""


@dataclass(frozen=True)
class Decision:
    """One choice about the data, as the table of decisions shows it."""

    what: str
    """What is decided, such as "encoding", "text", "label" or "left out"."""
    value: str
    why: str
    option: str
    """The option that changes it, such as `--text NAME`."""
    example: str = ""


@dataclass(frozen=True)
class Contents:
    """What a path holds, as a recipe describes it."""

    kind: Kind
    sources: dict[str, Fields]
    """The fields of the source of each split."""
    data: Fields = field(default_factory=dict)
    """Other fields of the recipe's data."""
    decisions: list[Decision] = field(default_factory=list)


def table_source(path: Place, **fields: Any) -> Fields:
    """The source of a table with these fields."""
    return {"kind": "table", "path": absolute(path), **fields}


def with_encoding_of(contents: Contents, files: Iterable[Place]) -> Contents:
    """The contents with the encoding of these files, if it is not UTF-8."""
    names = {name for path in files if (name := find_encoding(path, whole=True))}
    return with_encoding(contents, max(names)) if names else contents


def with_encoding(contents: Contents, name: str) -> Contents:
    """The contents with this encoding in every source."""
    told = Decision("encoding", name, "the file is not UTF-8", "--data.train.encoding NAME")
    sources = {split: source | {"encoding": name} for split, source in contents.sources.items()}
    return replace(contents, sources=sources, decisions=[*contents.decisions, told])


# --- files ------------------------------------------------------------------------------------------------------------


def contents_of_file(path: Place) -> Contents | None:
    """What a file holds; None for what is no data. Raises UserError if it cannot be read."""
    name = plain_name(path.name)
    if name.endswith(".parquet"):
        return Contents("table", {"train": table_source(path)})
    lines = None if name.endswith((".toml", ".pdf", ".npz", *FOREIGN)) else first_lines(path)
    beginning = "\n".join((lines or [])[:20])
    if form := foreign_form(name) or next((form for form, sign in SIGNS.items() if re.search(sign, beginning)), ""):
        raise UserError(f"{path}: expected a table or text, got {form}; save it as CSV or JSON lines")
    if not lines:
        return None
    if lines[0].lstrip()[:1] in ("[", "{") and (name.endswith((".json", ".jsonl", ".ndjson")) or not format_of(name)):
        try:
            return _of_json(path, lines)
        except NotJson:
            if name.endswith((".json", ".jsonl", ".ndjson")):
                raise
    if columns := tagged_columns(lines):
        return with_encoding_of(_of_tagged(path, columns), [path])
    if format_of(name):
        return Contents("table", {"train": table_source(path)})
    contents = _of_lines(path, [line for line in lines if line.strip()], is_dense=is_dense(lines))
    return with_encoding_of(contents, [path]) if "format" in contents.sources["train"] else contents


def foreign_form(name: str) -> str:
    """The form of a file that is not read, by its name; "" for any other."""
    return FOREIGN.get(PurePath(plain_name(name)).suffix, "")


def is_dense(lines: Sequence[str]) -> bool:
    """Returns True if blank lines divide at most a quarter of the lines into paragraphs."""
    sizes = [len([*run]) for is_filled, run in groupby(lines, lambda line: bool(line.strip())) if is_filled]
    paragraphs = [n for n in sizes if LEAST < n <= PARAGRAPH]
    return len(paragraphs) <= 1 or sum(paragraphs) <= sum(sizes) / 4


def first_lines(path: Place) -> list[str] | None:
    """Lines of the beginning of a file, in whatever encoding they may be; None for bytes that are no text."""
    with opened(path) as file:
        content = b""
        while len(content) < BEGINNING and (more := file.read(BEGINNING - len(content))):
            content += more
    name = marked(content)
    if name is None and b"\0" in content:
        return None
    try:
        text = content[: len(content) - 3 * (len(content) == BEGINNING)].decode(
            name or "utf-8", "ignore" if name else "strict"
        )
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = re.split(r"\r\n|\n|\r", text)
    return lines[:-1] if len(content) == BEGINNING or not lines[-1] else lines


def _of_tagged(path: Place, columns: TaggedColumns) -> Contents:
    """Words with tags, one or a sentence a line."""
    told = [Decision("words", f"column {columns.words}", columns.why_words, "--data.words N")]
    told += [Decision("label", f"column {columns.tags}", columns.why_tags, "--label N")]
    train = {"kind": "tagged", "paths": [absolute(path)]}
    if columns.is_universal:
        return Contents("tagged", {"train": train})
    if columns.sign:
        train = table_source(path, format="word_tag", delimiter=columns.sign, text=columns.words)
        return Contents("tagged", {"train": train}, {"label": columns.tags}, told)
    return Contents("tagged", {"train": train}, {"words": columns.words, "label": columns.tags}, told)


def _of_lines(path: Place, lines: Sequence[str], *, is_dense: bool) -> Contents:
    """Lines of text without the name of a table: with columns, with a label at one end, or prose."""
    some = lines[:: max(1, len(lines) // LINES)]

    def table(why: str, **fields: Any) -> Contents:
        told = Decision("form", fields["format"].replace("_", " "), why, "--data.train.format FORMAT")
        return Contents("table", {"train": table_source(path, **fields)}, decisions=[told])

    if sum(FASTTEXT in line for line in some) > 0.9 * len(some):
        return table("lines have words that begin with __label__", format="fasttext")
    for delimiter in "\t;|," if is_dense else "\t":
        widths = Counter(line.count(delimiter) for line in some)
        width, n = widths.most_common(1)[0]
        if width and n >= (0.8 if delimiter == "\t" else 0.97) * len(some) and len(some) > 1:
            return Contents("table", {"train": table_source(path)})
    for delimiter in " \t@|;,":
        for form in ("label_text", "text_label"):
            parts = (divide(line, delimiter, form) for line in some)
            ends = [label if found and text else "" for label, found, text in parts]
            if _are_labels(ends, is_sure=delimiter != " " or form == "label_text"):
                mark = "blank" if delimiter == " " else repr(delimiter)
                place = "before the first" if form == "label_text" else "after the last"
                why = f"{len({*ends})} different words {place} {mark}"
                return table(why, format=form, **({} if delimiter == " " else {"delimiter": delimiter}))
    return Contents("text", {"train": {"kind": "text", "paths": [absolute(path)]}})


def _are_labels(ends: Sequence[str], *, is_sure: bool) -> bool:
    """Returns True if all lines have one of a few labels. They are not the first words of prose, many of which are
    there once.
    """
    counts = Counter(ends)
    if len(counts) < 2 or "" in counts or any(len(name) > 40 or len(name.split()) > 3 for name in counts):
        return False
    if sum(LABEL.fullmatch(name) is not None for name in counts) > 0.9 * len(counts):
        return len(counts) <= max(2, len(ends) // 2)
    n_once = sum(n == 1 for n in counts.values())
    return is_sure and len(counts) <= min(200, len(ends) / 10) and n_once <= len(counts) / 10


# --- JSON -------------------------------------------------------------------------------------------------------------


def _of_json(path: Place, lines: Sequence[str]) -> Contents | None:
    """Rows of JSON in any of the ways in which they are written."""
    full = [line for line in islice(lines, 200) if line.strip()]
    try:
        rows = (
            [parse(line, str(path)) for line in full[:100]] if len(full) > 1 or format_of(path.name) == "jsonl" else []
        )
    except NotJson:
        rows = list[Any]()
    if rows and all(isinstance(row, (dict, list)) for row in rows):
        return _of_rows(path, rows, {"train": {"format": "jsonl"}}, [])
    text = read_text(path)
    try:
        value: Any = parse(text, str(path))
    except NotJson:
        rows = [row for _, row in islice(records(text, str(path)), 100)]  # Raises for what is none of both.
        if len(rows) < 2:
            raise
        return _of_rows(path, rows, {"train": {"format": "json"}}, [])
    if isinstance(value, dict) and "task" in value and {"data", "training"} & value.keys():
        return None  # A recipe.
    parts, why = {"train": found} if (found := _layout(value)) else {}, "by its name"
    if isinstance(value, dict) and not found:
        splits = splits_in(value)
        parts = {split: layout | {"part": name} for split, name in splits.items() if (layout := _layout(value[name]))}
        lists = [name for name, inner in value.items() if isinstance(inner, list) and _layout(inner)]
        if "train" not in parts:
            most = max(lists, key=lambda name: len(value[name]), default="")
            is_most = sum(len(value[name]) for name in lists) < 1.1 * len(value.get(most, ()))
            parts, why = {"train": {"format": "json", "part": most}} if is_most else {}, "the largest list"
    if not parts:
        return None
    named = {one["part"]: split for split, one in parts.items() if "part" in one}
    told = [
        Decision("data" if split == "train" else split, f"part {name!r}", why, f"--data.{split}.part NAME")
        for name, split in named.items()
    ]
    if rest := [name for name in value if name not in named and _layout(value[name])] if named else []:
        told.append(Decision("left out", ", ".join(rest), "other parts of the object", "--data.test.part NAME"))
    rows = value[parts["train"]["part"]] if named else value
    return _of_rows(path, rows if isinstance(rows, list) else [], parts, told)


def _layout(value: Any) -> Fields | None:
    """How rows are written in a JSON value; None if there are none."""
    if isinstance(value, list):
        return {"format": "json"} if value and all(isinstance(row, (dict, list)) for row in value[:100]) else None
    if not isinstance(value, dict) or not value:
        return None
    inner = [*value.values()]
    if isinstance(value.get("columns"), list) and isinstance(value.get("data"), list):
        return {"format": "json_columns"}
    if all(isinstance(one, dict) and one for one in inner):
        if all(all(name.isdigit() for name in one) and one.keys() == inner[0].keys() for one in inner):
            return {"format": "json_columns"}
        n_scalars = sum(not isinstance(cell, (dict, list)) for one in inner for cell in one.values())
        is_rows = len(inner) > 1 and n_scalars and len({*value} & COLUMN_NAMES) == 0 and not splits_in(value)
        return {"format": "json_rows"} if is_rows and {*inner[0]} & {*inner[1]} else None
    if all(isinstance(one, list) and one and not isinstance(one[0], (dict, list)) for one in inner):
        is_even = len({len(one) for one in inner}) == 1 and len(inner) > 1
        if is_even and {name.lower() for name in value} & COLUMN_NAMES:
            return {"format": "json_columns"}
        are_texts = len(inner) > 1 and all(isinstance(cell, str) for one in inner for cell in one)
        return {"format": "json_labels"} if are_texts and not splits_in(value).get("train") else None
    return None


def _of_rows(path: Place, rows: Sequence[Any], splits: Mapping[str, Fields], told: list[Decision]) -> Contents:
    """Rows of JSON as questions, as words with tags, or as any table."""
    some = [row for row in rows[:100] if isinstance(row, dict)]
    names = {name for row in some for name in row}
    if "paragraphs" in names or ({"question", "context"} <= names and {"answer", "answers"} & names):
        return Contents("squad", {"train": {"kind": "squad", "paths": [absolute(path)]}})
    if rows and isinstance(rows[0], list) and has_header([[*map(written, row)] for row in rows]):
        splits = {split: one | {"header": True} for split, one in splits.items()}
    sources = {split: table_source(path, **one) for split, one in splits.items()}
    first = {name: cell[0] for row in some for name, cell in row.items() if isinstance(cell, list) and cell}
    if name := next((name for name, one in first.items() if isinstance(one, dict) and one.keys() >= SPAN), ""):
        got = f"spans of characters in {name!r}"
        raise UserError(f"{path}: expected labels, or words with tags, got {got}; write each word with its tag")
    if found := _texts_by_label(rows[:100]):
        told = [*told, Decision("text", f"each text of {found[1]!r}", "they are lists", "--data.train.format json")]
        told.append(Decision("label", f"field {found[0]!r}", "it is that of a list of texts", "--label NAME"))
        sources = {split: one | {"format": "json_texts"} for split, one in sources.items()}
    return Contents("table", sources, decisions=told)


def _texts_by_label(rows: Sequence[Any]) -> tuple[str, str] | None:
    """The fields of a label and of its texts, if all rows are alike, and most of the texts have several words."""
    found = {texts_of(row) for row in rows}
    pair = found.pop() if len(found) == 1 else None
    texts = [text for row in rows for text in row[pair[1]]] if pair else []
    return pair if sum(" " in text for text in texts) > len(texts) / 2 else None


# --- names of splits -------------------------------------------------------------------------------------------------


def split_of(name: str) -> str | None:
    """The split that a name says: `train.csv`, `GermEval21_TestData.csv`, `eng.testa`; None without one."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    words = {re.sub(r"(set|data|file)$", "", part.lower()) for part in parts}
    found = [split for split, usual in SPLIT_WORDS.items() if words & usual]
    return found[0] if len(found) == 1 else None


def splits_in(names: Iterable[str]) -> dict[str, str]:
    """The name of each split: the shortest that says it."""
    ordered = sorted(names, key=len, reverse=True)
    found = {split: name for name in ordered if (split := split_of(name))}
    return {split: found[split] for split in SPLIT_WORDS if split in found}
