"""Sentences with a tag for each word: reads them from CoNLL files and tables, checks them, holds some out. No torch."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from clearhead.data.conll import read_conll
from clearhead.data.files import nearest
from clearhead.data.guessing import is_table
from clearhead.data.labelled import complete_splits, written
from clearhead.data.sources import cells_of
from clearhead.data.tables import column_names
from clearhead.data.tag_schemes import OUTSIDE, Scheme, normalized, scheme_of, wrong_places
from clearhead.errors import UserError
from clearhead.recipe.data import SPLITS, Column, Data, HeldOut, HubDataset, Source, Table, TaggedFiles
from clearhead.recipe.places import Place

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

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags that are known."""
        return tuple(filter(None, self.tags))

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
        found = [one for path in source.paths for one in _read(path, words, tags)]
    elif isinstance(source, Table | HubDataset) and source.text is not None:
        found = [*_rows(source, source.text if words is None else words, TAGS[0] if tags is None else tags)]
    else:
        raise UserError(f'{source.kind}: expected words with tags, got other data; try kind = "tagged" with paths')
    if kept := [one for one in found if one.words]:
        return kept
    raise UserError(f"{source.kind}: expected sentences, got rows without words; try another column with data.words")


def _read(path: Place, words: Column | None, tags: Column | None) -> Iterator[TaggedSentence]:
    if not is_table(path.name):
        for forms, found, lines in read_conll(path, words, tags):
            yield TaggedSentence(tuple(forms), tuple(found), str(path), tuple(lines))
        return
    table = Table(path=path, text=0, header=True)
    known = column_names(table)
    yield from _rows(table, _named(path, known, words, WORDS, "data.words"), _named(path, known, tags, TAGS, "--label"))


def _named(path: Place, known: Sequence[Column], given: Column | None, usual: Sequence[str], option: str) -> Column:
    """The given column, or the first with a usual name."""
    names = [*map(str, known)]
    wanted = usual if given is None else [str(given)]
    found = next((name for name in wanted if name in names), None)
    if found is None:
        remedy = f"; there are {', '.join(names)}; try {option} NAME" if given is None else nearest(str(given), names)
        raise UserError(f"{path}:1: expected a column {' or '.join(wanted)}, got none{remedy}")
    return found


def _rows(source: Table | HubDataset, words: Column, tags: Column) -> Iterator[TaggedSentence]:
    for where, (forms, found) in cells_of(source, [words, tags]):
        both = [_several(cell, where, name) for cell, name in ((forms, words), (found, tags))]
        if len(both[0]) != len(both[1]):
            raise UserError(
                f"{where}: expected a tag for each of {len(both[0])} words, got {len(both[1])} in column {tags!r};"
                " mend the row"
            )
        yield TaggedSentence(both[0], both[1], where)


def _several(cell: object, where: str, name: Column) -> tuple[str, ...]:
    """The words or tags in a cell: a list, or text with spaces between them."""
    if isinstance(cell, str):
        return tuple(cell.split())
    if not isinstance(cell, list):
        raise UserError(f"{where}: expected a list in column {name!r}, got {cell!r}; try another column")
    return tuple(map(written, cell))


# --- splits ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaggedSplits:
    """Sentences by split, all with tags of one scheme that training has."""

    splits: dict[str, list[TaggedSentence]]
    scheme: Scheme
    tags: tuple[str, ...]
    """Every tag of training, O first, then by what they mark."""
    notes: tuple[str, ...]
    """What was changed, for people."""


def tagged_splits(data: Data, words: Column | None, tags: Column | None, held_out: HeldOut) -> TaggedSplits:
    """The splits of a recipe's data.

    Without a source for validation, holds out some of the training sentences for it, and as much for a
    test if there is no source for that either. Raises UserError for too few sentences, and for tags that are not those
    of one scheme or that training does not have.
    """
    splits = {split: read_tagged(source, words, tags) for split, source in data.sources.items()}
    train = splits["train"]
    scheme, notes = scheme_of(tags_in(train)), list[str]()
    if len(found := tags_in(train)) < 2:
        got = ", ".join(found) or "none"
        raise UserError(f"{train[0].where}: expected at least 2 tags, got {got}; try another --label")
    for split, sentences in splits.items():
        splits[split], told = checked(sentences, scheme)
        notes += told
    splits = complete_splits(splits, held_out, expected="sentences, to hold some out")
    known = tags_in(splits["train"])
    for split, sentences in splits.items():
        check_tags(sentences, known, remedy=f"correct it, or move sentences of it from {SPLITS[split]} to training")
    return TaggedSplits(splits, scheme, known, tuple(notes))


def tags_in(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
    """The distinct tags: O first, then by the label that they mark and their prefix."""
    found = {tag for sentence in sentences for tag in sentence.labels}
    marks = bool(scheme_of(found))
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:], tag[0]) if marks else (False, tag, "")))


def check_tags(sentences: Iterable[TaggedSentence], known: Sequence[str], *, remedy: str) -> None:
    """Raises UserError for the first word with a tag that is not `known`."""
    names = {*known, ""}
    for sentence in sentences:
        if not names.issuperset(sentence.tags):
            i = next(i for i, tag in enumerate(sentence.tags) if tag not in names)
            some = ", ".join(known[:6]) + (", ..." if len(known) > 6 else "")
            raise UserError(
                f"{sentence.place(i)}: expected a tag of the training data ({some}), got {sentence.tags[i]}; {remedy}"
            )


def checked(sentences: Sequence[TaggedSentence], scheme: Scheme) -> tuple[list[TaggedSentence], list[str]]:
    """The sentences with valid tags of the scheme, and what was changed.

    In BIO, an I- that begins a span is read as B-, as the usual scorers do. Raises UserError, which names the word, for
    any other tag that is not one of the scheme, or that cannot follow the one before it.
    """
    if not scheme:
        return [*sentences], []
    found, changed = list[TaggedSentence](), Counter[str]()
    prefixes = ", ".join(f"{prefix}-TYPE" for prefix in sorted(scheme.prefixes))
    for sentence in sentences:
        tags = tuple(tag or OUTSIDE for tag in sentence.tags)
        if alien := [i for i, tag in enumerate(tags) if not scheme.has(tag)]:
            i, known = alien[0], f"O, {prefixes}, as {scheme.name.upper()} has"
            raise UserError(f"{sentence.place(i)}: expected {known}, got {tags[i]}; mend the tag")
        if scheme.name == "bio":
            tags = tuple(normalized(tags))
            if n := sum(a != b for a, b in zip(tags, sentence.tags, strict=True) if b):
                changed[sentence.place()] += n
        elif wrong := [*wrong_places(tags, scheme)]:
            i = wrong[0]
            got = tags[i] if i < len(tags) else f"the end after {tags[-1]}"
            before = tags[i - 1] if i else "the beginning"
            raise UserError(
                f"{sentence.place(i)}: expected a tag that {scheme.name.upper()} has after {before}, got {got};"
                f" mend it, or the tags {scheme.last}- and {scheme.single}- elsewhere if the others are BIO"
            )
        found.append(replace(sentence, tags=tuple(a if b else "" for a, b in zip(tags, sentence.tags, strict=True))))
    if not changed:
        return found, []
    n, first = sum(changed.values()), next(iter(changed))
    return found, [f"{n:,} tags I- that begin a span are read as B-, such as in the sentence at {first}"]
