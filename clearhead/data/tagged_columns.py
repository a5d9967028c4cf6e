"""Finds out where words and tags are: in the columns of CoNLL files. Imports no torch."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from clearhead.recipe.data import Column

MARK = "-DOCSTART-"
"""The word of a line that begins a document in the files of CoNLL 2003."""
SPAN_TAG = re.compile(r"O|[BIESLUM][-_]\S+")
CHUNKS = {"NP", "VP", "PP", "ADVP", "ADJP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP"}
"""Types of phrases, which CoNLL 2000 and 2003 have beside or instead of names."""
LINES, N_COLUMNS = 20_000, 10


@dataclass(frozen=True)
class TaggedColumns:
    """Where words and tags are."""

    words: Column
    tags: Column
    why_words: str = ""
    why_tags: str = ""
    is_universal: bool = False
    """CoNLL-U, whose columns have names."""
    sign: str = ""
    """What stands between a word and its tag in a line of a sentence: `word_TAG`."""


def tagged_columns(lines: Sequence[str]) -> TaggedColumns | None:
    """The columns of a file of words with tags; None for any other."""
    if sign := next((sign for sign in "_/|" if _are_signed(lines[:2000], sign)), ""):
        why = f"{sign!r} in each word"
        return TaggedColumns("words", "tags", f"before {why}", f"after {why}", sign=sign)
    sentences = [*islice(sentences_in(lines[:LINES]), 2000)]
    rows = [row.fields for sentence in sentences for row in sentence]
    if len(rows) < 2:
        return None
    width, n = Counter(map(len, rows)).most_common(1)[0]
    if width < 2 or n < 0.99 * len(rows):
        return None
    columns = [*zip(*(row for row in rows if len(row) == width), strict=True)]
    if width == N_COLUMNS and re.fullmatch(r"1(-\d+)?|0\.1", rows[0][0]):
        return TaggedColumns(1, 3, is_universal=True)
    if any(" " in cell.strip() for row in rows[:500] for cell in row[:2]):
        return None
    spans = [i for i, cells in enumerate(columns) if _is_spans(cells)]
    counted = [i for i, cells in enumerate(columns) if all(cell.isdigit() for cell in cells)]
    names = [i for i in spans if not {cell[2:].upper() for cell in columns[i] if cell != "O"} <= CHUNKS]
    mean = len(rows) / len(sentences)
    if not spans and (len(sentences) < 2 or mean < 2):
        return None
    words = [i for i in range(width) if i not in spans and i not in counted]
    if not words:
        return None
    word = max(words, key=lambda i: (len({*columns[i]}), -i))
    tags = [*(names or spans), *(i for i in (width - 1, 0) if i not in (word, *counted) and len({*columns[i]}) > 1)]
    if not tags or (not spans and len({*columns[tags[0]]}) > max(5, len(rows) // 5)):
        return None
    others = [str(i) for i in spans if i != tags[0]]
    why = "tags of spans" if spans else f"{len({*columns[tags[0]]})} different tags"
    why += f"; column {' and '.join(others)} has others" if others else ""
    return TaggedColumns(word, tags[0], f"{len({*columns[word]}):,} different words", why)


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a line."""

    line: int
    fields: Sequence[str]


def sentences_in(lines: Iterable[str]) -> Iterator[list[Row]]:
    """The rows between blank lines, without comments, with tabs or else blanks between their fields."""
    sentence, separator = list[Row](), re.compile(r"[ \t]+")
    first: Row | None = None
    for line, text in enumerate(lines, start=1):
        if not text.strip(" \t"):
            if sentence:
                yield sentence
            sentence = list[Row]()
            continue
        if first is None and "\t" in text:
            separator = re.compile("\t")
        row = Row(line, separator.split(text.strip(" ")))
        is_other = first is None or len(row.fields) != len(first.fields) or first.fields[0].isdigit()
        is_comment = text.startswith("#") and not sentence and is_other
        if not is_comment and row.fields[0] != MARK:
            first = first or row
            sentence.append(row)
    if sentence:
        yield sentence


def _is_spans(cells: Sequence[str]) -> bool:
    """Returns True for tags of spans: O and at least one B-, I- or like."""
    return all(SPAN_TAG.fullmatch(cell) for cell in cells) and len({*cells}) > 1


def _are_signed(lines: Sequence[str], sign: str) -> bool:
    """Returns True if nearly all words of the lines end with a sign and one of a few tags."""
    words = [word.rpartition(sign) for line in lines for word in line.split()]
    tags = {tag for word, _, tag in words if word and tag and not tag[0].isdigit()}
    n = sum(bool(word) and tag in tags for word, _, tag in words)
    n_lines = sum(bool(line.strip()) for line in lines)
    return 0.99 * len(words) < n > 2 * n_lines > 0 and 1 < len(tags) <= max(5, len(words) / 20)
