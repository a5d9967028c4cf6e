"""The data that a run reads, which examples it leaves out, and how it corrupts texts. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from clearhead.config import Config, Share
from clearhead.errors import UserError
from clearhead.recipe.places import Place, Url

# --- sources ------------------------------------------------------------------------------------------------

Column = str | NonNegativeInt
"""A column by its name, or by its index from 0."""


_Several = BeforeValidator(
    lambda v: (v,) if isinstance(v, str | Path) else v, json_schema_input_type=Url | Path | tuple[Place, ...]
)
Paths = Annotated[tuple[Place, ...], Field(min_length=1), _Several]
"""One path or several, or addresses such as s3://bucket/a.txt; * and ? in a path stand for any characters."""
Side = Annotated[
    Paths, PlainSerializer(lambda v: str(v[0]) if len(v) == 1 else list(map(str, v)), str | list[str], when_used="json")
]
"""The files of one side of pairs. JSON holds a single one as text, so that older recipes stay equal."""


class FileSource(Config):
    """What sources have in common: their files and whether their examples are pairs."""

    @property
    def is_paired(self) -> bool:
        """True if its examples are pairs of a source and a target."""
        parts = self.parts.values()
        return any(part.is_paired for part in parts) if parts else dict(self).get("source") is not None

    @property
    def files(self) -> list[Place]:
        """The files that it is read from; none for a dataset."""
        values = [value if isinstance(value, tuple) else (value,) for _, value in self]
        own = [path for value in values for path in value if isinstance(path, Path | Url)]
        return own + [path for part in self.parts.values() for path in part.files]

    @property
    def parts(self) -> "dict[str, FileSource]":
        """The sources that it consists of, by name; empty for most kinds."""
        found = [value for _, value in self if isinstance(value, dict)]
        return {name: part for table in found for name, part in table.items() if isinstance(part, FileSource)}

    def under(self, folder: Path, *, skip_bad: bool = False) -> Self:
        """The same source with its relative paths under `folder`, and the matching files in place of a pattern.

        With `skip_bad`, its bad rows are left out.
        """

        def moved(value: object) -> object:
            if isinstance(value, dict):
                return {name: part.under(folder, skip_bad=skip_bad) for name, part in self.parts.items()}
            if isinstance(value, tuple):
                return tuple(path for pattern in value for path in _matching(folder, pattern))
            return folder / value if isinstance(value, Path) else value

        changes = {name: moved(value) for name, value in self}
        if skip_bad and isinstance(self, RowSource):
            changes["skip_bad"] = True
        return self.model_copy(update=changes)


def _matching(folder: Path, name: Place) -> Sequence[Place]:
    """The files that match, in order of their names; the path itself if it is no pattern or nothing matches."""
    if isinstance(name, Url):
        return name.matching()
    pattern = folder / name
    if pattern.exists() or not set("*?[") & set(str(pattern)):
        return [pattern]
    return sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))) or [pattern]


class ParallelFiles(FileSource):
    """Two files of equally many lines: line n of one translates line n of the other. Gzip is fine.

    Several source files and as many target files are read one after another.
    """

    kind: Literal["parallel"] = "parallel"
    source: Side
    target: Side


class RowSource(FileSource):
    """A source of rows, some of which may be bad."""

    skip_bad: bool = False
    """Leave out rows that cannot be read, and list them. `data.skip_bad` sets it for every source."""


class Columns(RowSource):
    """Columns of rows: two for pairs (source, target), one for text."""

    source: Column | None = None
    target: Column | None = None
    text: Column | None = None

    @property
    def columns(self) -> list[Column]:
        """The columns to read, in order."""
        return [column for column in (self.source, self.target, self.text) if column is not None]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        source, target, text = self.source, self.target, self.text
        pair = source is not None and target is not None
        if pair == (text is not None) or (source is None) != (target is None):
            raise ValueError(f"columns: expected source and target, or text alone, got {source=}, {target=}, {text=}")
        return self


Json = Literal["jsonl", "json", "json_columns", "json_rows", "json_labels", "json_texts"]
"""JSON lines; a list of rows, or one row after another; an object of columns, of rows by name, of texts by label;
a list of labels with their texts."""
Lines = Literal["label_text", "text_label", "fasttext", "label_file", "class_files", "word_tag"]
"""Lines: label and text, or the text first, with `delimiter` between; labels marked by __label__; labels in the file
`part`; texts in the files that match the path, where * in it stands for the class; words with
`delimiter` and a tag after each."""
TableFormat = Literal["tsv", "csv", "parquet", "folder"] | Json | Lines
"""`folder` holds a folder for each class with a file for each text."""


class Table(Columns):
    """A table in a file. `clearhead train FILE` finds out how it is written."""

    kind: Literal["table"] = "table"
    path: Place
    format: TableFormat | None = None
    """None: taken from the file's name."""
    header: bool = False
    """The first line of a TSV or CSV names the columns."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """None: a tab for TSV, a comma for CSV."""
    encoding: str | None = None
    """None: as the byte order mark says, else UTF-8."""
    quotes: Literal["", '"', "'"] | None = None
    """What surrounds a cell that holds the delimiter; "" for nothing. None: " in CSV, nothing in TSV."""
    escape: Literal["\\"] | None = None
    """What stands before a quote or a delimiter inside a cell. None: quotes inside a quoted cell are doubled."""
    errors: Literal["strict", "replace"] = "strict"
    """A row with bytes of another encoding is a bad row, or U+FFFD takes their place."""
    extra_cells: NonNegativeInt = 0
    """A row may have exactly so many cells more than the first, which are left out."""
    skip_lines: NonNegativeInt = 0
    """Lines before the header or the first row, such as comments."""
    row_names: bool = False
    """Each row begins with a name for which the header has no cell, as R writes it."""
    part: str | None = None
    """The rows' name in a JSON object, or the file of labels."""


class HubDataset(Columns):
    """A dataset by its hub name, or a local folder of one; a dot reaches into a column: `translation.en`."""

    kind: Literal["dataset"] = "dataset"
    name: str
    config: str | None = None
    split: str = "train"
    streaming: bool = False
    """Read it row by row as it arrives, without storing it first."""


class TextFiles(FileSource):
    """Plain text; `documents` says what one document is."""

    kind: Literal["text"] = "text"
    paths: Paths
    documents: Literal["file", "line", "blank_line"] = "file"
    """A document is a file, a line, or a passage between blank lines."""


class ImageFolder(RowSource):
    """Pictures in a folder for each class, which is named for it: path/CLASS/*.png, or .jpg or .webp."""

    kind: Literal["image_folder"] = "image_folder"
    path: Path


class IdxFiles(FileSource):
    """Pictures and their labels in the two files of MNIST's format. Gzip is fine."""

    kind: Literal["idx"] = "idx"
    images: Path
    labels: Path


class ArrayFile(FileSource):
    """Pictures and their labels as two arrays of a file that numpy.savez wrote. It is never unpickled."""

    kind: Literal["npz"] = "npz"
    path: Path
    images: str = "images"
    """Name of the array of pictures: n y x, n y x c or n c y x of whole numbers from 0 to 255."""
    labels: str = "labels"


class TaggedFiles(RowSource):
    """Words with their tags: CoNLL, CoNLL-U, or tables whose rows hold a list of words and a list of tags."""

    kind: Literal["tagged"] = "tagged"
    paths: Paths
    encoding: str | None = None
    """None: as the byte order mark says, else UTF-8."""


class SquadFiles(RowSource):
    """Questions about contexts that hold their answers: SQuAD's JSON, or tables with columns for the three."""

    kind: Literal["squad"] = "squad"
    paths: Paths
    encoding: str | None = None
    """None: as the byte order mark says, else UTF-8."""


class Languages(FileSource):
    """Pairs in several target languages, with a tag before each source that says which one (Johnson et al. 2017)."""

    kind: Literal["languages"] = "languages"
    to: Annotated[dict[str, Annotated[ParallelFiles | Table, Field(discriminator="kind")]], Field(min_length=1)]
    """The pairs of each target language, by its name."""
    tag: Annotated[str, Field(pattern=r"\{\}")] = "<2{}> "
    """What is put before a source, with the language in place of {}: a token of a tokenizer that is trained here, and
    any text that a checkpoint knows, such as ">>{}<< "."""

    @property
    def tags(self) -> dict[str, str]:
        """The tag of each language."""
        return {language: self.tag.replace("{}", language) for language in self.to}

    @model_validator(mode="after")
    def _paired(self) -> Self:
        for language, part in self.to.items():
            if not part.is_paired:
                raise ValueError(f"to.{language}: expected columns of source and target, got a column of texts")
        return self


Source = Annotated[
    ParallelFiles
    | Table
    | HubDataset
    | TextFiles
    | Languages
    | TaggedFiles
    | SquadFiles
    | ImageFolder
    | IdxFiles
    | ArrayFile,
    Field(discriminator="kind"),
]


# --- data ---------------------------------------------------------------------------------------------------

SPLITS = {"train": "training", "valid": "validation", "test": "test"}
"""Every split, and what messages call it."""


HeldOut = Annotated[
    PositiveInt | Annotated[float, Field(gt=0.0, lt=1.0)],
    BeforeValidator(lambda v: int(v) if isinstance(v, float) and v >= 1.0 and v.is_integer() else v),
]
"""A share below 1 of the training examples, or a number of them."""


def share_of(held_out: HeldOut, n: int, what: str, *, parts: int = 1) -> float:
    """The share of n examples that each of some parts holds out. Raises UserError if training has none left."""
    share = held_out if isinstance(held_out, float) else held_out / max(n, 1)
    if share * parts < 1:
        return share
    twice = " twice" if parts == 2 else ""
    raise UserError(
        f"data.held_out: expected fewer than the {n} {what} of the training data{twice}, got {held_out}; try 0.1"
    )


class Data(Config):
    """The sources of the data, and where encoded examples are kept. A task may add fields."""

    folder: Path = Path()
    """Where relative paths start."""
    train: Source
    valid: Source | None = None
    """None: part of the training data is held out."""
    skip_bad: bool = False
    """Leave out rows that cannot be read, such as those with too many columns or without a label, and list them."""
    storage: Literal["auto", "memory", "disk"] = "auto"
    """Where encoded examples are: in memory, or on disk and read when they are needed; auto: by the files' size."""
    cache: Path | None = None
    """Folder for those on disk, kept for the next run; None: clearhead's folder among the user's caches."""

    @property
    def sources(self) -> dict[str, Source]:
        """The sources that are given, by their split, with their paths under `folder`."""
        given = {split: dict(self).get(split) for split in SPLITS}
        return {
            split: source.under(self.folder, skip_bad=self.skip_bad)
            for split, source in given.items()
            if source is not None
        }


class TestedData(Data):
    """Data with a test. Parts that have no source of their own are held out of the training data."""

    test: Source | None = None
    """None: part of the training data is held out, unless `valid` is given."""
    held_out: HeldOut = 0.1
    """Share of the training examples that are held out for validation, or their number, and as much for a test."""


class TextData(Data):
    """Documents of one or several sources, or one running text."""

    held_out: HeldOut = 0.1
    """Share of the training text, at its end, that is the validation data where `valid` is None; or a number of its
    documents, and of the characters of one running text."""


class Spans(Config):
    """Spans become sentinels, and the decoder writes what was there (Raffel et al. 2020, 3.1.4)."""

    kind: Literal["spans"] = "spans"
    share: Share = 0.15
    """Share of the tokens that are in spans."""
    mean_length: PositiveFloat = 3.0
    """Mean tokens of a span."""


class Infilling(Config):
    """Spans become one mask token each, sentences change places; the decoder writes the text (Lewis et al. 2020)."""

    kind: Literal["infilling"] = "infilling"
    share: Share = 0.3
    """Share of the tokens that are in spans."""
    mean_length: PositiveFloat = 3.0
    """Mean of the Poisson distribution of a span's tokens."""
    permute_sentences: bool = True


Corruption = Annotated[Spans | Infilling, Field(discriminator="kind")]


class Preparation(Config):
    """How examples are filtered before training. Empty ones are always dropped. Every count is reported."""

    max_length: PositiveInt | None = 256
    """Most tokens a side, without <bos> and <eos>; None for no limit."""
    too_long: Literal["drop", "cut"] = "drop"
    """For training examples; long examples of the other splits are always cut."""
    remove_duplicates: bool = False
    """Keep the first of equal training examples."""
    remove_overlap: bool = False
    """Leave out training examples whose source is also in validation or test."""
