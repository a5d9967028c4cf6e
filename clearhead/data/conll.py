"""Reads CoNLL and CoNLL-U: a word a line with its tags, sentences between blank lines. Imports no torch."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.data.files import nearest, read_lines
from clearhead.errors import UserError
from clearhead.recipe.data import Column
from clearhead.recipe.places import Place

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U (universaldependencies.org/format.html)."""
MARK = "-DOCSTART-"
"""The word of a line that begins a document in the files of CoNLL 2003."""
NAMES = (".conll", ".conllu", ".iob", ".iob2", ".bio")


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a line."""

    line: int
    fields: Sequence[str]


def is_conll(name: str) -> bool:
    """Whether a name is that of a CoNLL file."""
    return name.lower().removesuffix(".gz").endswith(NAMES)


def read_conll(
    path: Place, words: Column | None, tags: Column | None
) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Yields the words, tags and line numbers of each sentence.

    By default words are the first column and tags the last one; of CoNLL-U they are FORM and UPOS. A missing tag of
    CoNLL-U, `_`, is an empty one. Raises UserError, which names the line, for a row of another width than the first,
    and for a column that is missing.
    """
    columns: tuple[int, int] | None = None
    is_universal = False
    for rows in _sentences(path):
        if columns is None:
            columns, is_universal = _columns(path, rows[0], words, tags), _is_universal(rows[0])
        at, of = columns
        kept = [row for row in rows if row.fields[0].isdigit()] if is_universal else rows
        if kept:
            found = [row.fields[of] for row in kept]
            yield (
                [row.fields[at] for row in kept],
                ["" if is_universal and tag == "_" else tag for tag in found],
                [row.line for row in kept],
            )


def _sentences(path: Place) -> Iterator[list[Row]]:
    """The rows of each sentence, which are all as wide as the first one, without comments."""
    sentence: list[Row] = []
    first: Row | None = None
    separator = re.compile(r"[ \t]+")
    for line, text in enumerate(read_lines(path), start=1):
        if not text.strip(" \t"):
            if sentence:
                yield sentence
            sentence = []
            continue
        if first is None and "\t" in text:
            separator = re.compile("\t")
        row = Row(line, separator.split(text.strip(" ")))
        is_comment = text.startswith("#") and not sentence and (first is None or len(row.fields) != len(first.fields))
        if is_comment or row.fields[0] == MARK:
            continue
        first = first or row
        if len(row.fields) != len(first.fields):
            raise UserError(
                f"{path}:{line}: expected {len(first.fields)} columns as in line {first.line}, got {len(row.fields)};"
                " mend the line"
            )
        sentence.append(row)
    if sentence:
        yield sentence
    if first is None:
        raise UserError(f"{path}: expected words with tags, got only comments; try another file")


def _is_universal(row: Row) -> bool:
    """Whether a row is one of CoNLL-U: ten columns, of which the first counts the words."""
    return len(row.fields) == len(CONLLU) and re.fullmatch(r"1(-\d+)?|0\.1", row.fields[0]) is not None


def _columns(path: Place, row: Row, words: Column | None, tags: Column | None) -> tuple[int, int]:
    width, is_universal = len(row.fields), _is_universal(row)
    where = f"{path}:{row.line}"
    if width < 2:
        raise UserError(f"{where}: expected a word and its tag, got one column; put a tab or a space between them")

    def index(column: Column | None, default: int, option: str) -> int:
        if column is None:
            return default
        name = str(column)
        if name.isdigit():
            if int(name) < width:
                return int(name)
            raise UserError(f"{where}: expected a column {name}, got {width} columns from 0; try another {option}")
        if is_universal:
            if name.lower() in CONLLU:
                return CONLLU.index(name.lower())
            raise UserError(f"{where}: expected a column {name!r}, got none{nearest(name, CONLLU)}")
        raise UserError(f"{where}: expected a column by its number from 0, got {name!r}; try {option} {width - 1}")

    both = index(words, is_universal + 0, "data.words"), index(tags, 3 if is_universal else width - 1, "--label")
    if both[0] == both[1]:
        raise UserError(f"{where}: expected words and tags in two columns, got column {both[0]} twice; try --label N")
    return both
