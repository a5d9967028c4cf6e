"""Finds out what a file, a folder or an archive holds: by its content, not by its name alone. Imports no torch."""

import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from clearhead.brief import shorten
from clearhead.data.archives import archive_of, is_archive, plain_name
from clearhead.data.encodings import likeliest
from clearhead.data.file_contents import (
    Contents,
    Decision,
    Fields,
    contents_of_file,
    first_lines,
    foreign_form,
    is_dense,
    split_of,
    splits_in,
    table_source,
    with_encoding,
    with_encoding_of,
)
from clearhead.data.files import encoding_of, files_in, opened_text, read_files
from clearhead.data.layouts import class_of, is_about
from clearhead.data.tables import format_of
from clearhead.errors import UserError, pasted
from clearhead.recipe.places import Place, absolute

SAMPLE = 200
"""Files of a folder that tell its encoding."""
BESIDE = {"valid": ("val", "validation", "dev", "valid"), "test": ("test",)}
"""What stands in place of `train` in the names of the other files of a data set, the likeliest last."""
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
TEXT_NAMES, LABEL_NAMES = {"text", "texts", "title", "sentences", "data"}, {"label", "labels"}
"""Words in the names of files with a text or a label on each line."""
SUFFIX = re.compile(r"\.(csv|tsv|tab|jsonl?|ndjson|parquet|xml|conllu?|iob2?|bio)$")
"""Files that hold many rows, and not one text."""
LANGUAGE = re.compile(r"[a-z]{2}(-[a-z]{2})?")


def contents_of(path: Place) -> Contents | None:
    """What a path holds, with the splits in it; None for what is no data, such as a recipe or a program.

    Raises UserError if a file cannot be read, or if a folder may be meant in several ways.
    """
    if isinstance(path, Path) and (path.is_dir() or is_archive(path) or (archive_of(path) and any(files_in(path)))):
        return _of_tree(path)
    others = {split: contents_of_file(one) for split, one in beside(path).items()}
    return _together({"train": contents_of_file(path), **others})


def beside(path: Place) -> dict[str, Path]:
    """The files for validation and test beside one that is named for training, such as dev.csv beside train.csv."""
    train = re.compile(r"(?<![a-z])train(ing)?(?![a-z])|Train(ing)?(?![a-z])")
    if not isinstance(path, Path) or not train.search(path.name):
        return {}
    names = [(split, name) for split, some in BESIDE.items() for name in (*map(str.title, some), *some)]
    found = [(split, path.with_name(train.sub(name, path.name))) for split, name in names]
    return {split: one for split, one in found if one.is_file()}


def _of_tree(path: Path) -> Contents | None:
    files = [one for one in files_in(path) if not is_about(one)]
    if not files:
        return None
    pictures = [one for one in files if one.suffix.lower() in PICTURES]
    is_pictures = len(pictures) > len(files) / 2
    if is_pictures and not path.is_dir():
        raise UserError(f"{path}: expected a folder of pictures, got an archive of them; unpack it first")
    make = _of_pictures if is_pictures else _of_part
    root = Path(os.path.commonpath([one.parent for one in files]))
    folders = {one.relative_to(root).parts[0] for one in files if one.parent != root}
    if "train" in (splits := splits_in(folders)):
        found = _together(
            {split: make([one for one in files if root / name in one.parents]) for split, name in splits.items()}
        )
    else:
        found = make(files)
    if not found or (found.kind in ("text", "table") and found.sources["train"].get("format") != "folder"):
        _check_cells(files)
    return found


def _check_cells(files: Sequence[Path]) -> None:
    """Raises UserError for a table whose rows have the names of the other files, each that of another one."""
    names = {name: one for one in files for name in (one.name, one.stem)}
    for one in [one for one in files if format_of(one.name)]:
        rows = [re.split(r"[,;\t\"/]", line) for line in islice(first_lines(one) or [], 1, 100)]
        named = {names[cell] for row in rows for cell in row if cell in names}
        if len(named) > max(1, len(rows) / 2):
            raise UserError(f"{one}: expected the texts, got the names of their files; put each text into its row")


def _of_pictures(files: Sequence[Path]) -> Contents:
    """Pictures in a folder for each class."""
    pictures = [one for one in files if one.suffix.lower() in PICTURES]
    root = Path(os.path.commonpath([one.parent for one in pictures]))
    names = dict.fromkeys(one.relative_to(root).parts[0] for one in pictures)
    told = [_listed("label", f"the {len(names)} folders", [*names], "each holds pictures of a class")]
    if rest := [one.name for one in files if one not in {*pictures}]:
        told.append(_listed("left out", f"{len(rest)} files", rest, "no pictures"))
    return Contents("image_folder", {"train": {"kind": "image_folder", "path": absolute(root)}}, decisions=told)


def _listed(what: str, kind: str, names: Sequence[str], why: str, option: str = "") -> Decision:
    """A decision about several files or folders."""
    return Decision(what, f"{kind}: {shorten([*names])}", why, option)


def _of_part(files: Sequence[Path]) -> Contents | None:
    """Texts in a folder for each class, or files."""
    root = Path(os.path.commonpath([one.parent for one in files]))
    classes = {one: label for one in files if (label := class_of(one, root))}
    counts = Counter(classes.values())
    if len(counts) < 2 or len(classes) < len(files) / 2 or max(counts.values()) < 2:
        return _of_files(root, [one for one in files if one.parent == root] or files)
    if any(split_of(one.name) == "train" for one in classes):
        some = ", ".join(islice(counts, 6))
        raise UserError(f"{root}: expected one set of data, got several folders with splits: {some}; give one of them")
    if sum(bool(SUFFIX.search(plain_name(one.name))) for one in classes) > len(classes) / 2:
        return _of_files(root, files)
    told = [_listed("label", f"the {len(counts)} folders", [*counts], "each holds texts of a class")]
    if rest := sorted({one.relative_to(root).parts[0] for one in files} - {*counts}):
        told.append(_listed("left out", f"{len(rest)} files", rest, "not in the folder of a class"))
    contents = Contents("table", {"train": table_source(root, format="folder")}, decisions=told)
    texts = (content for one, content in read_files(root) if class_of(one, root))
    others = b"\n".join(islice((content for content in texts if not _is_utf8(content)), SAMPLE))
    return with_encoding(contents, likeliest(others, root)) if others else contents


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode(encoding_of(content) or "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _together(parts: Mapping[str, Contents | None]) -> Contents | None:
    """One description of several splits, as far as they are of one kind."""
    train = parts["train"]
    if train is None:
        return None
    same = {split: one.sources["train"] for split, one in parts.items() if one and one.kind == train.kind}
    told = [Decision(split, _name(same[split]), "by its name", f"--{split} PATH") for split in same if split != "train"]
    return replace(train, sources=same | train.sources, decisions=[*train.decisions, *told])


def _name(source: Fields) -> str:
    return str(source.get("path") or source["paths"][0]).rpartition("/")[2]


def _of_files(root: Path, files: Sequence[Path]) -> Contents | None:
    """Files of one folder: one for each split, or for each class."""
    groups: dict[str | None, list[Path]] = {}
    for one in files:
        groups.setdefault(split_of(one.name), []).append(one)
    if "train" not in groups:
        return _of_group(root, files)
    train = _of_group(root, groups["train"])
    if train is None:
        return None
    begin = _name(train.sources["train"])
    parts: dict[str, Contents | None] = {"train": train}
    for split in ("valid", "test"):
        if split in groups:
            best = max(len(_common([begin, one.name])) for one in groups[split])
            like = [one for one in groups[split] if len(_common([begin, one.name])) == best]
            same = [one for one in like if one.suffix == Path(begin).suffix] or like
            parts[split] = _of_group(root, same)
    return _together(parts)


def _of_group(root: Path, files: Sequence[Path]) -> Contents | None:
    """Files that belong together: texts beside their labels, a file for each class, or the largest of several."""
    files = [one for one in files if not foreign_form(one.name)] or files
    if len(files) > 1:
        if pair := _text_and_label(files):
            text, label = pair
            told = [
                Decision("label", f"the lines of {label.name}", f"as many as in {text.name}", "--data.train.part NAME")
            ]
            if rest := [one.name for one in files if one not in pair]:
                told.append(_listed("left out", f"{len(rest)} files", rest, "other files", "--data.train.path FILE"))
            contents = Contents(
                "table", {"train": table_source(text, format="label_file", part=label.name)}, decisions=told
            )
            return with_encoding_of(contents, [text])
        if contents := _class_files(root, files):
            return contents
    found = {one: contents for one in files[:50] if (contents := contents_of_file(one))}
    data = {one: contents for one, contents in found.items() if contents.kind != "text"} or found
    if not data:
        return None
    size = {one: one.stat().st_size if one.exists() else i for i, one in enumerate(reversed(data))}
    chosen = max(data, key=lambda one: size[one])
    others = ", ".join(one.name for one in data if one != chosen)
    told = [Decision("data", chosen.name, "the largest of its kind", "clearhead train FILE")] if others else []
    told += [Decision("left out", others, "another file", "--test PATH")] if others else []
    return replace(data[chosen], decisions=[*told, *data[chosen].decisions])


def _common(names: Sequence[Any]) -> Any:
    """What all of these texts or lists begin with."""
    first, last = min(names), max(names)
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _worded(files: Sequence[Path], words: set[str]) -> list[Path]:
    return [one for one in files if words & {*re.findall(r"[a-z]+", one.stem.lower())} and one.suffix in (".txt", "")]


def _text_and_label(files: Sequence[Path]) -> tuple[Path, Path] | None:
    """A file of texts and one of their labels: by their names, or by lines that are as many, and few different ones."""
    if (text := _worded(files, TEXT_NAMES)) and (label := _worded(files, LABEL_NAMES)):
        return text[0], label[0]
    lines = {one: first_lines(one) or [] for one in _parallel(files)}
    if not lines:
        return None
    text = max(lines, key=lambda one: len({*" ".join(lines[one]).split()}))
    n_different = {one: len({*some}) for one, some in lines.items() if all(len(line.split()) <= 3 for line in some)}
    labels = [one for one, n in n_different.items() if one != text and 1 < n <= len(lines[one]) / 2]
    return (text, min(labels, key=n_different.__getitem__)) if labels else None


def _parallel(files: Sequence[Path]) -> list[Path]:
    """The files that have as many lines as most of them."""
    counts = dict[Path, int]()
    for one in files:
        if not format_of(one.name):
            with opened_text(one, "latin-1") as lines:
                counts[one] = sum(1 for _ in lines)
    most, n = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    return [one for one, count in counts.items() if count == most] if n > 1 and most > 1 else []


def _go_together(files: Sequence[Path]) -> bool:
    """Returns True if the lines of two of the files are as many, and longer in one where they are in the other."""
    sizes = [[len(line) for line in first_lines(one) or []] for one in _parallel(files)[:2]]
    pairs = [*zip(*sizes, strict=False)]
    try:
        return statistics.correlation(*zip(*pairs, strict=True)) > min(0.9, 3 / len(pairs) ** 0.5)
    except (statistics.StatisticsError, TypeError):  # All are equally long, or there are no pairs.
        return False


def _class_files(root: Path, files: Sequence[Path]) -> Contents | None:
    """A file of texts for each class, named by what differs in their names: `rt-polarity.pos`, `rt-polarity.neg`."""
    names = [re.split(r"(?<=[._-])|(?=[._-])", one.name) for one in files]
    most = min(map(len, names)) - 1
    before = "".join(_common(names)[:most])
    after = "".join(_common([name[::-1] for name in names])[:most][::-1])
    labels = [one.name[len(before) : len(one.name) - len(after)] for one in files]
    n_many = sum(len(first_lines(one) or []) > 1 for one in files)
    if not all(labels) or any(format_of(one.name) for one in files) or n_many < len(files) / 2:
        return None
    for one in files:
        contents = contents_of_file(one) if is_dense(first_lines(one) or []) else None
        if contents is None or contents.kind != "text":
            return None
    if all(LANGUAGE.fullmatch(label) for label in labels) or _go_together(files):
        pair = f"--source {pasted(files[0])} --target {pasted(files[1])}"
        raise UserError(
            f"{root}: expected one kind of data, got texts in {', '.join(labels)}; try"
            f" clearhead train translation {pair}"
        )
    told = [_listed("label", f"the {len(labels)} files", labels, "a text on each line")]
    contents = Contents(
        "table", {"train": table_source(root / f"{before}*{after}", format="class_files")}, decisions=told
    )
    return with_encoding_of(contents, files)
