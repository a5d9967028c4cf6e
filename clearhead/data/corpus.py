"""Encodes a recipe's data once, from their sources to the ids that a task trains on. Imports no torch.

The ids are kept in memory or on disk. On disk they are a cache entry, which the first process makes and all processes
read. Each process reads the ids of its own batches when it needs them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache as once
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import JsonValue

from clearhead.data.cache import DiskCache, Facts
from clearhead.data.encoded import EncodedPairs, EncodedText, continued, encode_text, pieces
from clearhead.data.preparation import TRAIN, prepare
from clearhead.data.report import DataReport, Report
from clearhead.data.sequences import Shelf
from clearhead.data.sources import Pairs, version_of
from clearhead.data.splits import fingerprint, pair_splits, text_splits
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.recipe import Recipe
from clearhead.recipe.data import SPLITS, Data, HeldOut, HubDataset, Preparation, Source
from clearhead.recipe.places import Place, Url, cache_folder
from clearhead.recipe.tokenizers import TokenizerConfig
from clearhead.text.languages import untagged, with_tags
from clearhead.text.schemes import joins_at_spaces
from clearhead.text.special_tokens import SpecialTokens, document_tokens
from clearhead.text.tokenizers import Tokenizer

ON_DISK_FROM = 64 * 2**20
"""Total file size in bytes at which `data.storage = "auto"` starts to keep ids on disk."""


@dataclass(frozen=True)
class Corpus:
    """The cache of a recipe's data, and the inputs that its entries depend on."""

    cache: DiskCache
    made_of: dict[str, JsonValue]
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


T = TypeVar("T")


class TrainingData(Protocol):
    """What a run needs of its data besides their examples, which its task reads."""

    @property
    def report(self) -> Report | None:
        """What was found in them."""
        ...

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Split name -> SHA-256 of its examples."""
        ...

    @property
    def storage(self) -> str:
        """One line that says where the examples are kept."""
        ...

    @property
    def vocab_size(self) -> int:
        """The number of different tokens of a text; 1 for data that are no texts."""
        ...

    @property
    def files(self) -> dict[str, bytes]:
        """The tokenizer's files; none for data that are no texts."""
        ...

    @property
    def documents(self) -> Mapping[str, JsonObject]:
        """JSON files of a model, besides the tokenizer's, that say how it reads its input."""
        ...

    @property
    def digest(self) -> str:
        """A hash of the data and of what encoded them. Processes that read the same data get the same hash."""
        ...

    def lines(self) -> list[str]:
        """The report as text, one finding a line."""
        ...


@dataclass(frozen=True)
class Encoded(Generic[T]):
    """Texts to train on and to measure with, and the tokenizer that encoded them."""

    tokenizer: Tokenizer
    train: T
    valid: T
    report: Report | None
    fingerprints: Mapping[str, str]
    """Split name -> SHA-256 of its text."""
    storage: str = "data: encoded in memory"
    """One line that says where the ids are kept."""
    documents: Mapping[str, JsonObject] = field(default_factory=dict)
    """JSON files of a model, besides the tokenizer's, that say how it reads its input."""

    def lines(self) -> list[str]:
        """The report as text, one finding a line."""
        return [*(self.report.lines() if self.report else ()), self.storage]

    @property
    def vocab_size(self) -> int:
        """The number of different tokens."""
        return self.tokenizer.vocab_size

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the tokenizer."""
        return self.tokenizer.to_files()

    @property
    def digest(self) -> str:
        """A hash of the data and the tokenizer. Processes that read the same data get the same hash."""
        files = sorted(self.files.items()), *([sorted(self.documents.items())] if self.documents else [])
        return sha256(repr((sorted(self.fingerprints.items()), *files)).encode()).hexdigest()


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

    entry = corpus.cache.get("pairs", make, of=corpus.made_of | _read_by(ids), state=corpus.state)
    rows: Any = entry.facts["rows"]

    def pairs(name: str) -> EncodedPairs:
        text = Pairs.of(tuple(map(str, row)) for row in rows.get(name, ()))
        return EncodedPairs(text, entry.sequences[f"{name}.0"], entry.sequences[f"{name}.1"])

    report = DataReport.model_validate(entry.facts["report"])
    return Encoded(ids, pairs("train"), pairs("valid"), report, _fingerprints(entry.facts), corpus.line())


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

    made_of = corpus.made_of | _read_by(ids) | {"marks": [*marks.before, "text", *marks.after]}
    entry = corpus.cache.get("text", make, of=made_of, state=corpus.state)

    def text(name: str) -> EncodedText:
        seen: Any = entry.facts[name]
        return EncodedText(entry.sequences[name], bool(entry.facts["running"]), **seen)

    return Encoded(ids, text("train"), text("valid"), None, _fingerprints(entry.facts), corpus.line())


def _to_train(documents: Iterable[Iterable[str]], config: TokenizerConfig) -> Iterator[str]:
    """The documents in pieces, cut so that a tokenizer counts the same words as in whole documents."""
    joins = joins_at_spaces(config)
    for document in documents:
        for i, piece in enumerate(pieces(document)):
            yield continued(piece, joins and i > 0)


def _column(rows: Iterable[tuple[str, ...]], i: int) -> Iterator[tuple[str]]:
    return ((row[i],) for row in rows)


def _fingerprints(facts: Facts) -> dict[str, str]:
    found: Any = facts["sha256"]
    return {str(name): str(digest) for name, digest in found.items()}


def _read_by(tokenizer: Tokenizer) -> dict[str, JsonValue]:
    files = sorted(tokenizer.to_files().items())
    return {"read by": sha256(repr(files).encode()).hexdigest()}


def _states(source: Source, *, is_kept: bool) -> list[tuple[int, int | str]]:
    """The size and time of each file, or the size and fingerprint of a dataset."""
    if isinstance(source, HubDataset):
        return [version_of(source)] if is_kept else []
    return [_state(path) for path in source.files]


def _state(path: Place) -> tuple[int, int]:
    if isinstance(path, Url):
        return path.state()
    try:
        found = path.stat()
    except OSError:  # Reading the file reports it.
        return 0, 0
    if not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: expected a file, which is read more than once, got a pipe; write it to a file first")
    return found.st_size, found.st_mtime_ns


def _cache_folder(data: Data) -> Path:
    if data.cache is None:
        return cache_folder()
    return data.folder / os.path.expanduser(data.cache)  # noqa: PTH111 - Path raises RuntimeError without a home
