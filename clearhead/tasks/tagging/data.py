"""Sentences with a tag for each word: reads CoNLL files and tables, checks tags, holds some out. No torch."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import ne

from clearhead.data.bad_rows import BadRow, RowErrors
from clearhead.data.files import nearest, read_lines
from clearhead.data.guessing import is_table
from clearhead.data.sources import examples_of
from clearhead.data.splits import complete_splits
from clearhead.data.tables import column_names, items_of, written
from clearhead.data.tagged_columns import Row, sentences_in
from clearhead.errors import UserError
from clearhead.recipe.data import SPLITS, Column, HeldOut, HubDataset, Source, Table, TaggedFiles
from clearhead.recipe.places import Place
from clearhead.tasks.reports import check_known
from clearhead.tasks.tagging.tags import OUTSIDE, Scheme, scheme_of, with_begins

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U (universaldependencies.org/format.html)."""


def read_conll(
    path: Place, words: Column | None, tags: Column | None, *, encoding: str | None = None, skip_bad: bool = False
) -> "Iterator[TaggedSentence]":
    """Every sentence of a file, in order. With `skip_bad`, those with a bad row are left out.

    By default words are the first column and tags the last one; of CoNLL-U they are FORM and UPOS. A missing tag of
    CoNLL-U, `_`, is an empty one. Raises BadRows at the end for rows of another width than the first, and UserError for
    a column that is missing.
    """
    columns: tuple[int, int] | None = None
    is_universal, errors = False, RowErrors(skip_bad)
    for rows in _sentences(path, encoding, errors):
        if columns is None:
            columns, is_universal = _columns(path, rows[0], words, tags), _is_universal(rows[0])
        at, of = columns
        if kept := [row for row in rows if not is_universal or row.fields[0].isdigit()]:
            found = (row.fields[of] for row in kept)
            yield TaggedSentence(
                tuple(row.fields[at] for row in kept),
                tuple("" if is_universal and tag == "_" else tag for tag in found),
                str(path),
                tuple(row.line for row in kept),
            )
    errors.check(has_good=columns is not None)


def _sentences(path: Place, encoding: str | None, errors: RowErrors) -> Iterator[list[Row]]:
    """The rows of each sentence, which are all as wide as the first one. Adds others to `errors`."""
    first: Row | None = None
    for rows in sentences_in(read_lines(path, encoding=encoding)):
        first = first or rows[0]
        bad = [row for row in rows if len(row.fields) != len(first.fields)]
        for row in bad:
            expected = f"expected {len(first.fields)} columns as in line {first.line}, got {len(row.fields)}"
            errors.rows.append(BadRow(f"{path}:{row.line}: {expected}; mend the line"))
        if not bad:
            yield rows
    if first is None:
        raise UserError(f"{path}: expected words with tags, got only comments; try another file")


def _is_universal(row: Row) -> bool:
    """Returns True if a row is one of CoNLL-U: ten columns, the first with the number of the word."""
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


WORDS = ("tokens", "words", "form", "text")
TAGS = ("ner_tags", "tags", "labels", "pos_tags", "upos", "label")


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """An empty one is not known, and does not count."""
    where: str
    """The file, or the place of the row, such as `tags.jsonl:17`."""
    lines: tuple[int, ...] = ()
    """The line of each word, if each has one of its own."""
    n_changed: int = 0
    """Tags that were read as others."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags that are known."""
        return tuple(filter(None, self.tags))

    @property
    def placed(self) -> Iterator[tuple[str, str]]:
        """Each known tag and the place of its word."""
        return ((tag, self.place(i)) for i, tag in enumerate(self.tags) if tag)

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(self.words)

    @property
    def normalized(self) -> str:
        """Equal for sentences that differ only in case and white space."""
        return " ".join(self.text.casefold().split())

    def written(self, tags: Sequence[str]) -> str:
        """Each word with its tag of `tags`, where it has one."""
        return " ".join(f"{word}/{tag}" if tag else word for word, tag in zip(self.words, tags, strict=True))

    def place(self, i: int = 0) -> str:
        """The place of a word, such as `train.conll:17`; past the last word, that of the last."""
        i = min(i, len(self.words) - 1)
        return f"{self.where}:{self.lines[i]}" if self.lines else f"{self.where}: word {i + 1}"


def read_tagged(source: Source, words: Column | None, tags: Column | None) -> list[TaggedSentence]:
    """Every sentence of a source that has words, in order.

    `words` and `tags` are their columns; None takes those that the format has, or that have a usual name. Raises
    UserError, which names the row, for words without tags.
    """
    if isinstance(source, TaggedFiles):
        found = [one for path in source.paths for one in _read(path, words, tags, source)]
    elif isinstance(source, Table | HubDataset) and source.text is not None:
        found = [*_rows(source, source.text if words is None else words, TAGS[0] if tags is None else tags)]
    else:
        raise UserError(f'{source.kind}: expected words with tags, got other data; try kind = "tagged" with paths')
    if kept := [one for one in found if one.words]:
        return kept
    raise UserError(f"{source.kind}: expected sentences, got rows without words; try another column with data.words")


def _read(path: Place, words: Column | None, tags: Column | None, source: TaggedFiles) -> Iterator[TaggedSentence]:
    if not is_table(path.name) or isinstance(words, int):
        yield from read_conll(path, words, tags, encoding=source.encoding, skip_bad=source.skip_bad)
        return
    table = Table(path=path, text=0, header=True, encoding=source.encoding, skip_bad=source.skip_bad)
    names = [*map(str, column_names(table))]
    both = [(words, WORDS, "data.words"), (tags, TAGS, "--label")]
    for given, usual, option in both:
        if given is None and not {*usual} & {*names}:
            raise UserError(
                f"{path}:1: expected a column {' or '.join(usual)}, got none; there are {', '.join(names)};"
                f" try {option} NAME"
            )
    columns = (next(name for name in usual if name in names) if given is None else given for given, usual, _ in both)
    yield from _rows(table, *columns)


def _rows(source: Table | HubDataset, words: Column, tags: Column) -> Iterator[TaggedSentence]:
    def make(where: str, cells: list[object]) -> TaggedSentence:
        both = [_several(cell, where, name) for cell, name in zip(cells, (words, tags), strict=True)]
        if len(both[0]) != len(both[1]):
            raise BadRow(
                f"{where}: expected a tag for each of {len(both[0])} words, got {len(both[1])} in column {tags!r};"
                " mend the row"
            )
        return TaggedSentence(both[0], both[1], where)

    return examples_of(source, [words, tags], make)


def _several(cell: object, where: str, name: Column) -> tuple[str, ...]:
    """The words or tags in a cell: a list, or text that writes one."""
    if isinstance(cell, str):
        return tuple(items_of(cell))
    if not isinstance(cell, list):
        raise BadRow(f"{where}: expected a list in column {name!r}, got {cell!r}; try another column")
    return tuple(map(written, cell))


# --- splits ---------------------------------------------------------------------------------------------------------


def split_tagged(splits: dict[str, list[TaggedSentence]], held_out: HeldOut) -> dict[str, list[TaggedSentence]]:
    """The splits, with tags of one scheme; those without a source are held out of training.

    Raises UserError for too few sentences, and for tags that are not those of one scheme or that training does not
    have.
    """
    train, known = splits["train"], tags_in(splits["train"])
    if len(known) < 2:
        got = ", ".join(known) or "none"
        raise UserError(f"{train[0].where}: expected at least 2 tags, got {got}; try another --label")
    scheme = scheme_of(known)
    normal = {split: normalize(sentences, scheme) for split, sentences in splits.items()}
    normal = complete_splits(normal, held_out, expected="sentences, to hold some out")
    known = tags_in(normal["train"])
    for split, sentences in normal.items():
        check_known(
            sentences, known, what="tag", remedy=f"correct it, or move sentences of it from {SPLITS[split]} to training"
        )
    return normal


def tags_in(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
    """The distinct tags: O first, then by the label that they mark and their prefix."""
    found = {tag for sentence in sentences for tag in sentence.labels}
    marks = bool(scheme_of(found))
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:], tag[0]) if marks else (False, tag, "")))


def normalize(sentences: Sequence[TaggedSentence], scheme: Scheme) -> list[TaggedSentence]:
    """The sentences with valid tags of the scheme.

    In BIO, an I- that begins a span is read as B-, as the usual scorers do. Raises UserError, which names the word, for
    any other tag that is not one of the scheme, or that cannot follow the one before it.
    """
    return [_normal(sentence, scheme) for sentence in sentences] if scheme else [*sentences]


def _normal(sentence: TaggedSentence, scheme: Scheme) -> TaggedSentence:
    tags = tuple(tag or OUTSIDE for tag in sentence.tags)
    if alien := [i for i, tag in enumerate(tags) if not scheme.has(tag)]:
        i, prefixes = alien[0], ", ".join(f"{prefix}-TYPE" for prefix in sorted(scheme.prefixes))
        known = f"O, {prefixes}, as {scheme.name.upper()} has"
        raise UserError(f"{sentence.place(i)}: expected {known}, got {tags[i]}; mend the tag")
    if scheme.name == "bio":
        tags = tuple(with_begins(tags))
    elif wrong := [i for i, two in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])) if not scheme.follows(*two)]:
        i = wrong[0]
        got = tags[i] if i < len(tags) else f"the end after {tags[-1]}"
        before = tags[i - 1] if i else "the beginning"
        raise UserError(
            f"{sentence.place(i)}: expected a tag that {scheme.name.upper()} has after {before}, got {got};"
            f" mend it, or the tags {scheme.last}- and {scheme.single}- elsewhere if the others are BIO"
        )
    known = tuple(tag if given else "" for tag, given in zip(tags, sentence.tags, strict=True))
    n_changed = sum(map(ne, known, sentence.tags))
    return replace(sentence, tags=known, n_changed=sentence.n_changed + n_changed)
