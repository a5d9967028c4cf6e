"""Encodes a recipe's data once, from their sources to the ids that a task trains on. Imports no torch.

The ids are kept in memory or on disk. On disk they are a cache entry: a folder that appears whole or not at all, which
the first process makes and all processes read. Each process reads the ids of its own batches when it needs them.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache as once
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from filelock import FileLock
from pydantic import JsonValue, ValidationError

from clearhead.config import Config
from clearhead.data.archives import archive_of
from clearhead.data.bad_rows import SHOWN
from clearhead.data.encoded import EncodedPairs, EncodedText, continued, encode_text, pieces
from clearhead.data.preparation import TRAIN, DataReport, Report, prepare
from clearhead.data.sequences import Described, Sequences, Shelf, open_sequences, settle
from clearhead.data.sources import Pairs, left_out, version_of
from clearhead.data.splits import fingerprint, pair_splits, text_splits
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.recipe import Recipe
from clearhead.recipe.data import SPLITS, Data, HeldOut, HubDataset, Preparation, Source
from clearhead.recipe.places import BAD_ROWS, Place, Url, cache_folder
from clearhead.recipe.tokenizers import TokenizerConfig
from clearhead.text.languages import untagged, with_tags
from clearhead.text.schemes import joins_at_spaces
from clearhead.text.special_tokens import SpecialTokens, document_tokens
from clearhead.text.tokenizers import Tokenizer

FORMAT = 2
CONTENT = "content.json"
Facts = JsonObject
Make = Callable[[Shelf], Facts]
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Content(Config):
    """An entry's description of itself."""

    format: int
    made_of: JsonObject
    """Everything that determines the content, such as the files' sizes and times."""
    facts: JsonObject
    sequences: dict[str, Described]


@dataclass(frozen=True)
class CacheEntry:
    """Facts and sequences made together."""

    facts: Facts
    sequences: dict[str, Sequences]


@dataclass(frozen=True)
class DiskCache:
    """A folder of entries. Without a folder, entries are made in memory and not kept."""

    folder: Path | None

    def get(self, name: str, make: Make, *, of: Mapping[str, JsonValue], state: JsonValue) -> CacheEntry:
        """Returns the entry for `of`, and calls `make` only if it is missing or out of date.

        `of` identifies the entry and `state` describes what it was made from. An entry is replaced if its `state`
        differs, or if one of its files is missing, truncated or unreadable. Raises UserError if the entry cannot be
        written, and leaves no partial files.
        """
        if self.folder is None:
            shelf = Shelf()
            return CacheEntry(make(shelf), shelf.in_memory())
        made_of: Facts = {**of, "state": state}
        digest = sha256(json.dumps(dict(of), sort_keys=True).encode()).hexdigest()
        place = self.folder / f"{name}-{digest[:24]}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder / f".{place.name}.lock"):
                entry = _open(place, made_of)
                if entry is None:
                    _write(place, made_of, make)
                    entry = _open(place, made_of)
        except OSError as error:  # Reading the data raises its own errors.
            raise UserError(
                f"{self.folder}: expected to write encoded data, got {error.strerror or error};"
                " try --data.cache with a folder that has room, or --data.storage memory"
            ) from None
        if entry is None:
            raise UserError(f"{place}: expected the data that were just written, got others; try another data.cache")
        return entry


def _open(place: Path, made_of: Facts) -> CacheEntry | None:
    """The entry if it exists, was made from `made_of` and its files are intact; otherwise None."""
    try:
        content = Content.model_validate_json((place / CONTENT).read_bytes())
        if content.format != FORMAT or content.made_of != made_of:
            return None
        sequences = {name: open_sequences(place, name, described) for name, described in content.sequences.items()}
    except (OSError, ValidationError, TypeError):
        return None
    whole = {name: opened for name, opened in sequences.items() if opened is not None}
    return CacheEntry(content.facts, whole) if len(whole) == len(sequences) else None


def _write(place: Path, made_of: Facts, make: Make) -> None:
    """Writes the entry under a temporary name and renames it once all of it is on disk."""
    for left in place.parent.glob(f".tmp-{place.name}-*"):  # Left by a killed process: we hold the lock.
        shutil.rmtree(left, ignore_errors=True)
    temporary = place.with_name(f".tmp-{place.name}-{os.getpid()}")
    temporary.mkdir()
    shelf = Shelf(temporary)
    try:
        facts = make(shelf)
        content = Content(format=FORMAT, made_of=made_of, facts=facts, sequences=shelf.on_disk())
        with (temporary / CONTENT).open("wb") as file:
            file.write(content.model_dump_json().encode())
            settle(file)
        shutil.rmtree(place, ignore_errors=True)
        temporary.rename(place)
    finally:
        shelf.close()
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on this path where the file system has locks. A killed process frees its lock."""
    lock = FileLock(path)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


ON_DISK_FROM = 64 * 2**20
"""Total file size in bytes at which `data.storage = "auto"` starts to keep ids on disk."""


@dataclass(frozen=True)
class Corpus:
    """The cache of a recipe's data, and the inputs that its entries depend on."""

    cache: DiskCache
    made_of: JsonObject
    state: JsonValue
    """The size and time of each file, so that a change is noticed."""

    @classmethod
    def of(cls, data: Data) -> "Corpus":
        """The corpus of a recipe's data. Raises UserError if a file cannot be read more than once."""
        sources = list(data.sources.values())
        states = [state for source in sources for state in _states(source, is_kept=data.storage != "memory")]
        size = sum(n_bytes for n_bytes, _ in states)
        on_disk = data.storage == "disk" or (data.storage == "auto" and size >= ON_DISK_FROM)
        made_of = data.model_dump(mode="json", exclude={"storage", "cache", "folder", *SPLITS})
        made_of["sources"] = [source.model_dump(mode="json") for source in sources]
        return cls(DiskCache(_cache_folder(data) if on_disk else None), made_of, [list(state) for state in states])

    def line(self) -> str:
        """One line that says where the ids are kept."""
        if self.cache.folder is None:
            return "data: encoded in memory (data.storage)"
        return f"data: encoded on disk, in {self.cache.folder} (data.storage)"

    def tokenizer(self, config: TokenizerConfig, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """A tokenizer fitted to these texts."""

        def make(_: Shelf) -> Facts:
            files = Tokenizer.train(texts(), config).to_files()
            return {name: content.decode() for name, content in files.items()}

        made_of = {**self.made_of, "tokenizer": config.model_dump(mode="json")}
        files = self.cache.get("tokenizer", make, of=made_of, state=self.state).facts
        return Tokenizer.from_files({name: str(content).encode() for name, content in files.items()})

    def entry(self, name: str, make: Make, tokenizer: Tokenizer, **more: JsonValue) -> CacheEntry:
        """What `make` makes of the data with this tokenizer."""
        read_by = sha256(repr(sorted(tokenizer.to_files().items())).encode()).hexdigest()
        return self.cache.get(name, make, of={**self.made_of, "read by": read_by, **more}, state=self.state)


T = TypeVar("T")


@dataclass(frozen=True)
class Encoded(Generic[T]):
    """Examples for training and evaluation, and what a run records about their data."""

    text_tokenizer: Tokenizer | None
    """The tokenizer that encoded them; None for data that are no texts."""
    train: T
    valid: T
    report: Report | None
    fingerprints: Mapping[str, str]
    """Split name -> SHA-256 of its examples."""
    storage: str = "data: encoded in memory"
    """One line that says where the examples are kept."""
    documents: Mapping[str, JsonObject] = field(default_factory=dict)
    """JSON files of a model, besides the tokenizer's, that say how it reads its input."""
    test: T | None = None
    """Examples to measure the best model with, besides `valid`."""
    bad_rows: Sequence[str] = ()
    """The mistake in each row that is left out as `data.skip_bad` says."""

    @property
    def held_out(self) -> dict[str, T]:
        """The examples of the splits besides training."""
        return {"valid": self.valid} | ({} if self.test is None else {"test": self.test})

    def lines(self) -> list[str]:
        """The report as text, one finding a line."""
        n, some = len(self.bad_rows), [f"  {row}" for row in self.bad_rows[:SHOWN]]
        bad = [f"bad rows: {n:,} left out (data.skip_bad), all of them in the run's {BAD_ROWS}", *some] if n else []
        return [*bad, *(self.report.lines() if self.report else ()), self.storage]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of texts."""
        assert self.text_tokenizer is not None
        return self.text_tokenizer

    @property
    def vocab_size(self) -> int:
        """The number of different tokens of a text; 1 for data that are no texts."""
        return 1 if self.text_tokenizer is None else self.text_tokenizer.vocab_size

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the tokenizer; none for data that are no texts."""
        return {} if self.text_tokenizer is None else self.text_tokenizer.to_files()

    @property
    def digest(self) -> str:
        """A hash of the data and of what encoded them. Processes that read the same data get the same hash."""
        parts = (sorted(table.items()) for table in (self.fingerprints, self.files, self.documents))
        return sha256(repr([*parts]).encode()).hexdigest()


def encoded_pairs(
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    *,
    held_out: HeldOut,
    preparation: Preparation,
    tags: Sequence[str] = (),
    prefix: str = "",
) -> Encoded[EncodedPairs]:
    """Encodes sentence pairs. Trains a tokenizer unless one is given, and takes from the cache what it has.

    A trained tokenizer has a token for each of `tags`, with which sources begin. `prefix` is put before each source.
    """
    corpus, splits = Corpus.of(recipe.data), once(lambda: pair_splits(recipe.data, held_out, prefix=prefix))

    def side(i: int) -> Iterator[str]:
        return (untagged(row[i], tags) for row in splits()["train"])

    ids = tokenizer or with_tags(corpus.tokenizer(recipe.tokenizer, lambda: chain(side(0), side(1))), tags)

    def make(shelf: Shelf) -> Facts:
        rows = {name: split if name == TRAIN else list(split) for name, split in splits().items()}
        kept = prepare(rows, ids, preparation=preparation, shelf=shelf)
        return {
            "report": kept.report.model_dump(mode="json"),
            "rows": {name: [list(row) for row in rows] for name, rows in kept.rows.items()},
            "sha256": {name: fingerprint(*(_column(split, i) for i in range(2))) for name, split in rows.items()},
        }

    entry = corpus.entry("pairs", make, ids)
    facts: Any = entry.facts

    def pairs(name: str) -> EncodedPairs:
        text = Pairs.of(facts["rows"].get(name, ()))
        return EncodedPairs(text, entry.sequences[f"{name}.0"], entry.sequences[f"{name}.1"])

    report = DataReport.model_validate(facts["report"])
    test = pairs("test") if "test" in facts["rows"] else None
    line, bad_rows = corpus.line(), left_out(recipe.data)
    return Encoded(ids, pairs("train"), pairs("valid"), report, facts["sha256"], line, test=test, bad_rows=bad_rows)


def encoded_text(
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    *,
    held_out: HeldOut,
    extended: Callable[[Tokenizer], Tokenizer] = lambda trained: trained,
    marks: SpecialTokens | None = None,
) -> Encoded[EncodedText]:
    """Encodes text: one training text is running text, several are documents. Validation is read the same way.

    Trains a tokenizer unless one is given, to which `extended` adds what the task needs, and takes from the cache what
    it has. `marks` are those around documents (default: `document_tokens`).
    """
    corpus, splits = Corpus.of(recipe.data), once(lambda: text_splits(recipe.data, held_out))
    ids = tokenizer or extended(corpus.tokenizer(recipe.tokenizer, lambda: _to_train(splits()[0], recipe.tokenizer)))
    marks = document_tokens(ids, recipe.generation) if marks is None else marks

    def make(shelf: Shelf) -> Facts:
        running = splits()[0].n_documents == 1
        named = dict(zip(("train", "valid"), splits(), strict=True))
        facts: Facts = {"running": running, "sha256": {name: fingerprint(text) for name, text in named.items()}}
        for name, text in named.items():
            seen = encode_text(text, ids, shelf.writer(name, ids.vocab_size), marks=None if running else marks)
            facts[name] = {"n_bytes": seen.n_bytes, "beginning": seen.beginning}
        return facts

    entry = corpus.entry("text", make, ids, marks=[*marks.before, "text", *marks.after])

    facts: Any = entry.facts

    def text(name: str) -> EncodedText:
        return EncodedText(entry.sequences[name], facts["running"], **facts[name])

    bad_rows = left_out(recipe.data)
    return Encoded(ids, text("train"), text("valid"), None, facts["sha256"], corpus.line(), bad_rows=bad_rows)


def _to_train(documents: Iterable[Iterable[str]], config: TokenizerConfig) -> Iterator[str]:
    """The documents in pieces, cut so that a tokenizer counts the same words as in whole documents."""
    joins = joins_at_spaces(config)
    for document in documents:
        for i, piece in enumerate(pieces(document)):
            yield continued(piece, joins and i > 0)


def _column(rows: Iterable[tuple[str, ...]], i: int) -> Iterator[tuple[str]]:
    return ((row[i],) for row in rows)


def _states(source: Source, *, is_kept: bool) -> list[tuple[int, int | str]]:
    """The size and time of each file, or the size and fingerprint of a dataset."""
    if isinstance(source, HubDataset):
        return [version_of(source)] if is_kept else []
    return [_state(path) for path in source.files]


def _state(path: Place) -> tuple[int, int]:
    if isinstance(path, Url):
        return path.state()
    path = archive_of(path) or path
    try:
        about = path.stat()
    except OSError:  # Reading the file reports it.
        return 0, 0
    if not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: expected a file, which is read more than once, got a pipe; write it to a file first")
    return about.st_size, about.st_mtime_ns


def _cache_folder(data: Data) -> Path:
    if data.cache is None:
        return cache_folder()
    return data.folder / os.path.expanduser(data.cache)  # noqa: PTH111 - Path raises RuntimeError without a home
