"""Reads the rows of tables that are no delimited text: JSON documents, lines that begin or end with a label, and texts
in a folder for each class. Imports no torch.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from clearhead.data.archives import plain_name
from clearhead.data.bad_rows import BadRow, RowErrors, Undecoded
from clearhead.data.files import (
    LONGEST_LINE,
    encoding_of,
    files_in,
    opened_text,
    read_files,
    read_lines,
    read_text,
    undecoded,
)
from clearhead.errors import UserError
from clearhead.json_text import parse, records
from clearhead.recipe.data import Table
from clearhead.recipe.places import Place

Objects: TypeAlias = Iterator[tuple[str, object]]
"""Rows as objects with fields, or as lists, each with its place, such as `reviews.json:17`."""
UNLABELLED = {"unsup", "unlabeled", "unlabelled"}
"""Folders of texts that have no class."""
LABELS = {"tag", "intent", "label", "class", "category", "topic"}
"""Fields that name a list of texts in JSON."""
FASTTEXT = "__label__"
ABOUT = re.compile(r"(readme|licen[cs]e|copying|notice|changes|changelog|citation)([^a-z].*)?|.*\.(md|pdf|html?|py|sh)")
"""Names of files that say something about the data."""


def objects_of(table: Table, errors: RowErrors) -> Objects | None:
    """The rows of a table of these formats; None for any other format. Adds those that cannot be read to `errors`."""
    match table.format:
        case "json":
            return _records(table)
        case "json_columns" | "json_rows" | "json_labels":
            return _of_object(table)
        case "json_texts":
            return _texts(table)
        case "word_tag":
            return _words_with_tags(table, errors)
        case "label_text" | "text_label":
            return _split_lines(table, errors)
        case "fasttext":
            return _fasttext(table, errors)
        case "folder":
            return _texts_by_class(table, errors)
        case "class_files":
            return _lines_by_class(table, errors)
        case "label_file":
            return _lines_with_labels(table)
        case _:
            return None


def _records(table: Table) -> Objects:
    """Rows of a list, or one after another, with their lines if each begins on a line of its own."""
    before = 0
    for i, (line, row) in enumerate(
        records(read_text(table.path, encoding=table.encoding), str(table.path), part=table.part)
    ):
        yield f"{table.path}:{line}" if line > before else f"{table.path}:record {i}", row
        before = max(before, line)


def _of_object(table: Table) -> Objects:
    where = str(table.path)
    value: Any = parse(read_text(table.path, encoding=table.encoding), where)
    value = value[table.part] if table.part is not None else value
    if table.format == "json_rows":
        yield from ((f"{where}: {name}", row) for name, row in value.items())
    elif table.format == "json_labels":
        rows = ((label, i, text) for label, texts in value.items() for i, text in enumerate(texts))
        yield from ((f"{where}: {label}[{i}]", {"text": text, "label": label}) for label, i, text in rows)
    elif {"columns", "data"} <= value.keys():
        for i, row in enumerate(value["data"]):
            yield f"{where}: data[{i}]", dict(zip(value["columns"], row, strict=False))
    else:
        first = next(iter(value.values()))
        for i in first if isinstance(first, dict) else range(len(first)):
            yield f"{where}: [{i}]", {name: cells[i] for name, cells in value.items()}


def texts_of(row: object) -> tuple[str, str] | None:
    """The fields of the label and of the list of texts in a chatbot's intent; None for any other row."""
    if not isinstance(row, dict):
        return None
    label = next((name for name, cell in row.items() if name.lower() in LABELS and isinstance(cell, str)), "")
    lists = [name for name, cell in row.items() if isinstance(cell, list) and all(isinstance(one, str) for one in cell)]
    has_text = any(isinstance(cell, str) and " " in cell for name, cell in row.items() if name != label)
    return (label, min(lists, key=lambda name: "respon" in name)) if label and lists and not has_text else None


def _texts(table: Table) -> Objects:
    """A row for each text of a list, with the list's label."""
    for where, row in _records(table):
        if isinstance(row, dict) and (fields := texts_of(row)):
            label, texts = fields
            yield from ((where, {"text": text, "label": row[label]}) for text in row[texts] if text.strip())


# --- lines ------------------------------------------------------------------------------------------------------------


def filled_lines(path: Place, table: Table, errors: RowErrors) -> Iterator[tuple[str, str]]:
    """The lines of a file that are not blank, each with its place. Adds those that cannot be decoded to `errors`."""
    with opened_text(path, table.encoding, errors=table.errors) as lines:
        for line, text in enumerate(iter(partial(lines.readline, LONGEST_LINE), ""), start=1):
            where = f"{path}:{line}"
            if byte := undecoded(text):
                expected = table.encoding or "UTF-8"
                errors.rows.append(Undecoded(f"{where}: expected {expected}, got the byte {byte}; mend the line"))
            elif text.strip():
                yield where, text.rstrip()


def _split_lines(table: Table, errors: RowErrors) -> Objects:
    """A label such as `NUM:date` is a coarse one, `NUM`, and a fine one (Li and Roth 2002)."""
    delimiter = table.delimiter or " "
    for where, line in islice(filled_lines(table.path, table, errors), table.skip_lines, None):
        label, found, text = divide(line, delimiter, table.format)
        if not found:
            remedy = f"mend the line: {delimiter!r} stands between them"
            errors.rows.append(BadRow(f"{where}: expected a label and a text, got one; {remedy}"))
            continue
        coarse, _, fine = label.partition(":")
        yield where, {"label": coarse} | ({"fine_label": label} if fine else {}) | {"text": text}


def divide(line: str, delimiter: str, form: str | None) -> tuple[str, str, str]:
    """The label of a line, the delimiter if it is there, and the text."""
    text = line.strip()
    label, found, rest = text.partition(delimiter) if form == "label_text" else text.rpartition(delimiter)[::-1]
    return label.strip(), found, rest.strip()


def _words_with_tags(table: Table, errors: RowErrors) -> Objects:
    """Lines of words, each with a sign and a tag after it: `word_TAG`."""
    for where, text in filled_lines(table.path, table, errors):
        words = [word.rpartition(table.delimiter or "_") for word in text.split()]
        if bad := next((tag for word, _, tag in words if not word or not tag), ""):
            errors.rows.append(BadRow(f"{where}: expected a tag after each word, got {bad!r}; mend the line"))
        else:
            yield where, {"words": [word for word, _, _ in words], "tags": [tag for _, _, tag in words]}


def _fasttext(table: Table, errors: RowErrors) -> Objects:
    """Lines in which words that begin with __label__ are labels (Joulin et al. 2017)."""
    for where, text in filled_lines(table.path, table, errors):
        words = text.split()
        labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
        rest = " ".join(word for word in words if not word.startswith(FASTTEXT))
        yield where, {"label": labels[0] if len(labels) == 1 else labels, "text": rest}


# --- folders ----------------------------------------------------------------------------------------------------------


def _texts_by_class(table: Table, errors: RowErrors) -> Objects:
    """A text in each file, whose class is the folder below the table's."""
    folder = _path(table.path)
    for path, content in read_files(folder):
        if label := class_of(path, folder):
            try:
                text = _decoded(content, table.encoding)
            except UnicodeDecodeError as error:
                got = f"the byte 0x{content[error.start]:02X}; try another data.train.encoding"
                errors.rows.append(BadRow(f"{path}: expected {error.encoding}, got {got}"))
            else:
                yield str(path), {"text": text.strip(), "label": label}


def _decoded(content: bytes, encoding: str | None) -> str:
    """A file's text in UTF-8, or in the folder's encoding if it is in that."""
    try:
        return content.decode(encoding_of(content) or "utf-8")
    except UnicodeDecodeError:
        if encoding is None:
            raise
        return content.decode(encoding, "replace")


def class_of(path: Path, folder: Path) -> str | None:
    """The class of a text; None for a file that is directly in the folder, or says something about the data."""
    name, *below = path.relative_to(folder).parts
    return None if not below or name.lower() in UNLABELLED or is_about(path) else name


def _lines_by_class(table: Table, errors: RowErrors) -> Objects:
    """A text in each line of the files that match the path; its class is what * stands for in the file's name."""
    pattern = _path(table.path)
    before, _, after = pattern.name.partition("*")
    for path in class_files(pattern):
        label = path.name[len(before) : len(path.name) - len(after)]
        yield from (
            (where, {"text": text.lstrip(), "label": label}) for where, text in filled_lines(path, table, errors)
        )


def _lines_with_labels(table: Table) -> Objects:
    """A text in each line, and its label in the same line of the file `part` beside it."""
    path = _path(table.path)
    labels = path.with_name(table.part or "")
    both = zip_longest(read_lines(path, encoding=table.encoding), read_lines(labels, encoding=table.encoding))
    for line, (text, label) in enumerate(both, start=1):
        if text is None or label is None:
            raise UserError(f"{path}:{line}: expected as many lines as in {labels.name}, got more in one of them")
        yield f"{path}:{line}", {"text": text.strip(), "label": label.strip()}


def class_files(pattern: Path) -> list[Path]:
    """The files that match a pattern, apart from those about the data."""
    return [path for path in files_in(pattern.parent) if path.match(pattern.name) and not is_about(path)]


def is_about(path: PurePath) -> bool:
    """Returns True if a file says something about the data: a README, a license."""
    return ABOUT.fullmatch(plain_name(path.name)) is not None


def _path(place: Place) -> Path:
    if isinstance(place, Path):
        return place
    raise UserError(f"{place}: expected a folder of this machine, got an address; fetch it first")
