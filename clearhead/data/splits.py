"""The splits of a recipe's data: what is trained on, what is held out, and a fingerprint of it. Imports no torch."""

import hashlib
from pathlib import Path

from clearhead.data.sources import Pairs, read_pairs, read_texts
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe import LanguageData, TranslationData
from clearhead.recipe.data import HubDataset, ParallelFiles, Source, Table, TextFiles


def translation_splits(data: TranslationData) -> dict[str, Pairs]:
    """The recipe's splits; validation is held out of training where it has no source of its own."""
    train = read_pairs(located(data.train, data.folder))
    if data.valid is not None:
        splits = {"train": train, "valid": read_pairs(located(data.valid, data.folder))}
    else:
        if len(train) < 10:
            raise UserError(
                f"data.train: expected at least 10 pairs to hold some out, got {len(train)}; give data.valid"
            )
        n = min(data.held_out, len(train) // 5)
        ranked = sorted(range(len(train)), key=lambda i: (key("held out", train.source[i]), i))
        out = set(ranked[:n])
        # Every pair of a held-out source leaves training, so that no source is in both.
        sources = {train.source[i] for i in out}
        inside = [i for i in range(len(train)) if train.source[i] not in sources]
        splits = {"train": _take(train, inside), "valid": _take(train, sorted(out))}
    if data.test is not None:
        splits["test"] = read_pairs(located(data.test, data.folder))
    return splits


def language_splits(data: LanguageData) -> tuple[list[str], list[str]]:
    """Training and validation documents (one is running text); without its own source, validation is the end."""
    train = _documents(data.train, data.folder)
    if data.valid is not None:
        return train, _documents(data.valid, data.folder)
    if len(train) == 1:
        cut = int(len(train[0]) * (1 - data.held_out))
        return [train[0][:cut]], [train[0][cut:]]
    cut = min(int(len(train) * (1 - data.held_out)), len(train) - 1)
    return train[:cut], train[cut:]


def _documents(source: Source, folder: Path) -> list[str]:
    texts = [text for text in read_texts(located(source, folder)).text if text.strip()]
    whole_files = isinstance(source, TextFiles) and source.documents == "file"
    if not texts:
        raise UserError(f"data: expected text in {source.kind} source, got none; give another file")
    return ["\n".join(texts)] if whole_files else texts


def _take(pairs: Pairs, which: list[int]) -> Pairs:
    return Pairs([pairs.source[i] for i in which], [pairs.target[i] for i in which])


def located(source: Source, folder: Path) -> Source:
    """The same source with its relative paths under `folder`."""
    match source:
        case ParallelFiles():
            return source.model_copy(update={"source": folder / source.source, "target": folder / source.target})
        case Table():
            return source.model_copy(update={"path": folder / source.path})
        case TextFiles():
            return source.model_copy(update={"paths": tuple(folder / path for path in source.paths)})
        case HubDataset():
            return source


def fingerprint(*columns: list[str]) -> str:
    """SHA-256 of the texts, in order."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update("\0".join(column).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
