"""Answers which texts of a data set excite a head, a unit or a direction most, a while at a time."""

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.capture import Example, Examples, drawn
from clearhead.capture.texts import Text
from clearhead.data.sources import rows_of
from clearhead.data.tables import read_rows
from clearhead.errors import UserError
from clearhead.explorer.answering.moments import Moments
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.replies import Reply
from clearhead.explorer.answering.requests import AddressText, Asked, RunRequest, SmallCount
from clearhead.explorer.lru_cache import LRUCache
from clearhead.progress import pieces
from clearhead.recipe.data import Languages, ParallelFiles, Source, Table, TextFiles
from clearhead.tasks.registry import validate
from clearhead.trace import Address

MOST_TEXTS, MOST_READ = 2000, 200_000
"""Texts that are looked at, drawn at random, and the first of a data set among which they are drawn."""
LONGEST = 128
"""Tokens of each text that are looked at."""
AT_A_TIME = 0.5
"""Seconds of a question, after which it answers with the best so far."""


class Towards(Asked):
    """The vector that a run has at an address, such as `decoder.blocks.1.resid_post[t=3]`."""

    run: RunRequest
    at: AddressText


class ExamplesQuestion(Asked):
    """Asks for the texts that excite a part most. Asked again, it looks at more of them."""

    at: AddressText
    towards: Towards | None = None
    """For a state: the direction along which it is measured."""
    top: SmallCount = 12


@dataclass
class Scan:
    """A data set that is being looked through for one part."""

    found: Examples
    reading: Iterator[int]
    is_done: bool = False


@dataclass(eq=False)
class DataSet:
    """The texts of a page, read once, and what has been found in them so far."""

    opened: Opened
    scans: LRUCache[Scan] = field(default_factory=lambda: LRUCache[Scan](16))
    _texts: list[Text] | None = None
    _name: str = ""

    def texts(self) -> tuple[list[Text], str]:
        """The texts, and what they are. Raises UserError if there are none."""
        if self._texts is None:
            every, self._name = data_of(self.opened)
            some = itertools.islice(every, MOST_READ)
            self._texts = [text for _, text in drawn(some, MOST_TEXTS)]
        if not self._texts:
            raise UserError(
                "examples: expected data, got none with this model; try clearhead explore MODEL --data FILE"
            )
        return self._texts, self._name


def examples(opened: Opened, question: ExamplesQuestion) -> Reply:
    """The strongest texts so far, each with the strength of its tokens."""
    data = opened.kept(DataSet, lambda: DataSet(opened))
    texts, name = data.texts()
    scan = data.scans.get(question.model_dump_json(), lambda: _scan(opened, question, texts))
    until = time.monotonic() + AT_A_TIME
    for _ in pieces(iter(lambda: scan.is_done or time.monotonic() >= until, True)):
        scan.is_done = next(scan.reading, None) is None
    rows = [_row(one) for one in scan.found.best]
    about = {"measure": _measure(scan.found, question), "read": scan.found.n_read, "of": len(texts), "from": name}
    return Reply({**about, "done": scan.is_done, "rows": rows})


def _scan(opened: Opened, question: ExamplesQuestion, texts: list[Text]) -> Scan:
    direction = None if question.towards is None else _direction(opened, question.towards)
    found = Examples(opened.model, texts, question.at, top=question.top, direction=direction, length=LONGEST)
    return Scan(found, found.reading())


def _direction(opened: Opened, towards: Towards) -> Tensor:
    """The vector of length 1."""
    vector = opened.passes.get(towards.run).recording.value(towards.at).float()
    return torch.nn.functional.normalize(vector.flatten(), dim=0).view(vector.shape)


def _measure(found: Examples, question: ExamplesQuestion) -> str:
    if question.towards is not None:
        return "towards"
    if found.points:
        return "weight"
    return "value" if Address.parse(question.at).index and not found.width else "norm"


def _row(one: Example) -> dict[str, Any]:
    both = (one.text,) if isinstance(one.text, str) else one.text or ()
    text, target = (*both, None, None)[:2]
    shown = {"text": text, "target": target, "value": one.value, "position": one.position, "key": one.key}
    return {**shown, "tokens": one.pieces, "values": [round(value, 5) for value in one.values]}


# --- where the texts come from --------------------------------------------------------------------------------------


def has_data(opened: Opened) -> bool:
    """Whether there are texts to look through."""
    model = opened.model
    if model.reader.reads_images or model.reader.reads_sounds or not model.has_tokenizer:
        return False
    return opened.data is not None or own_source(model) is not None or bool(_samples(opened))


def data_of(opened: Opened) -> tuple[Iterable[Text], str]:
    """The texts that were given, else those of the run's data, else its last samples; and which they are."""
    if opened.data is not None:
        return opened.data, "given"
    return own_source(opened.model) or (_samples(opened), "samples")


def own_source(model: Model) -> tuple[Iterator[Text], str] | None:
    """The texts of a run's validation data, else of its training data; None without a run or its files."""
    if model.recipe is None:
        return None
    try:
        recipe = validate(dict(model.recipe), where="recipe")
    except UserError:
        return None
    name = "valid" if "valid" in recipe.data.sources else "train"
    source, second = recipe.data.sources[name], dict(recipe.data).get("text_pair")
    is_text = isinstance(source, ParallelFiles | TextFiles | Table | Languages)
    if not is_text or not all(isinstance(path, Path) and path.is_file() for path in source.files):
        return None
    return _texts(source, [second] if isinstance(second, str | int) else []), name


def _samples(opened: Opened) -> list[Text]:
    samples, both = Moments(opened.folder).samples(), opened.model.is_encoder_decoder
    return [(source, reference) if both else source for source, reference in samples if source.strip()]


def _texts(source: Source, columns: list[str | int]) -> Iterator[Text]:
    """The lines of running text, and the rows of anything else."""
    if isinstance(source, TextFiles):
        lines = source.model_copy(update={"documents": "line"}) if source.documents == "file" else source
        rows = rows_of(lines)
    elif isinstance(source, Table) and source.text is not None and columns:
        rows = read_rows(source, [*source.columns, *columns])
    else:
        rows = rows_of(source)
    return (row if len(row) > 1 else row[0] for row in rows)
