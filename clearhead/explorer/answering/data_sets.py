"""Answers about a data set: the texts that excite a part most, and how two models differ on it."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import TypedDict

from clearhead.analysis.difference import TensorChange, UnitChange
from clearhead.api import Model
from clearhead.capture import Difference, Example, Examples, difference, drawn
from clearhead.capture.difference import Answers, PartChange, over_texts
from clearhead.capture.examples import spelled
from clearhead.capture.texts import Text
from clearhead.data.prompts import BUNDLED, prompts_in
from clearhead.data.sentences import compose
from clearhead.errors import UserError
from clearhead.explorer.answering.checkpoints import RunCheckpoints
from clearhead.explorer.answering.opened import Opened, knows, own_source
from clearhead.explorer.answering.questions import COMPARED, AddressText, Asked, Reply, RunRequest, SmallCount, Step
from clearhead.explorer.lru_cache import LRUCache
from clearhead.progress import pieces
from clearhead.trace import Address

MOST_TEXTS, MOST_READ = 2000, 200_000
"""Texts that are looked at, drawn at random, and the first of a data set among which they are drawn."""
FEWEST = 6
"""Words of a text in which attention is looked for: in a shorter one a large weight says little."""
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


class ExampleRow(TypedDict):
    """A text, with the tokens of the stack that the address names, and the strength of each."""

    text: str
    target: str | None
    value: float
    position: int
    key: int | None
    """The token that a weight is on: of cross-attention one of the source."""
    source: list[str] | None
    """The tokens that cross-attention reads."""
    tokens: list[str]
    values: list[float]


# `from` is a keyword.
ExamplesReply = TypedDict(
    "ExamplesReply",
    {
        "measure": Literal["value", "norm", "towards", "weight"],
        "read": int,
        "of": int,
        "done": bool,
        "from": Literal["given", "valid", "train", "samples", "sentences", "prompts"],
        "rows": list[ExampleRow],
    },
)
"""The strongest texts among those `read`. `measure` is what the strength of a token is: a number, the norm of a vector,
its length along the direction, or the largest weight on a token that is not special nor, in its own text, the first.
`from`: the given texts, the run's data, its last samples, sentences of the demo's language, or the bundled sets of
prompts."""


class DifferenceReply(TypedDict):
    """The changes from one model to another, the largest first."""

    tensors: list[TensorChange]
    differing: int
    n_tensors: int
    units: list[UnitChange]
    n_texts: int
    heads: list[PartChange]
    neurons: list[PartChange]
    answers: Answers | None


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


def examples(opened: Opened, question: ExamplesQuestion) -> Reply[ExamplesReply]:
    """The strongest texts so far, each with the strength of its tokens."""
    data = opened.kept(DataSet, lambda: DataSet(opened))
    texts, name = data.texts()
    if question.at.partition("[")[0].endswith(".weights"):
        texts = longer(texts)
    scan = data.scans.get(question.model_dump_json(), lambda: _scan(opened, question, texts))
    until = time.monotonic() + AT_A_TIME
    for _ in pieces(iter(lambda: scan.is_done or time.monotonic() >= until, True)):
        scan.is_done = next(scan.reading, None) is None
    rows = [_row(one) for one in scan.found.best]
    about = {"measure": _measure(scan.found, question), "read": scan.found.n_read, "of": len(texts), "from": name}
    return Reply({**about, "done": scan.is_done, "rows": rows})


def longer(texts: Sequence[Text]) -> list[Text]:
    """The texts of at least `FEWEST` words; all if there is none."""
    some = [text for text in texts if len((text if isinstance(text, str) else " ".join(text)).split()) >= FEWEST]
    return some or [*texts]


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
    read = {"source": None if one.source is None else spelled(one.source), "tokens": spelled(one.tokens)}
    return {**shown, **read, "values": [round(value, 5) for value in one.values]}


# --- where the texts come from --------------------------------------------------------------------------------------


def has_data(opened: Opened) -> bool:
    """Returns True if there are texts to look through."""
    reader = opened.model.reader
    if reader.reads_images or reader.reads_sounds or not opened.model.has_tokenizer:
        return False
    return opened.data is not None or any(True for _ in data_of(opened, n=1)[0])


class Bundled(tuple[str, ...]):
    """The texts of the bundled prompts that the model's tokenizer knows."""

    __slots__ = ()


def data_of(opened: Opened, n: int = 500) -> tuple[Iterable[Text], str]:
    """The texts that were given, else those of the run's data, its last samples, or ours; and which they are.

    Ours are `n` sentences for a translator of no run, else the bundled prompts; none if the tokenizer does not know
    them.
    """
    model = opened.model
    if opened.data is not None:
        return opened.data, "given"
    if found := own_source(model):
        return found
    if model.is_encoder_decoder and model.recipe is None:
        pairs = compose("fr", n_train=0, n_valid=n, n_test=0).valid
        return ((one.source, one.target) for one in pairs if knows(model.tokenizer, one.source)), "sentences"
    if samples := _samples(opened):
        return samples, "samples"
    texts = (text for name in BUNDLED for one in prompts_in(name) for text in one.texts)
    known = opened.kept(Bundled, lambda: Bundled(text for text in texts if knows(model.tokenizer, text)))
    return known, "prompts"


def _samples(opened: Opened) -> list[Text]:
    samples, both = RunCheckpoints(opened.folder).samples(), opened.model.is_encoder_decoder
    return [(source, reference) if both else source for source, reference in samples if source.strip()]


SHOWN = 20
"""Tensors, heads, neurons and texts of a reply, at the most."""
LONGEST_READ = 128
"""Tokens of each text that are read."""


class DifferenceQuestion(Asked):
    """Asks what changed from one model to another: with texts, also in heads, neurons and answers."""

    step: Step | None = None
    """The checkpoint of the first; None: the model that was opened."""
    other: Step = COMPARED
    """The checkpoint of the second."""
    texts: Annotated[int, Field(ge=0, le=500)] = 0


class Kept(LRUCache[Difference]):
    """The differences that were found."""


def differs(opened: Opened) -> bool:
    """Returns True if there is a second model to compare with."""
    return opened.compared is not None or len(opened.passes.checkpoints.steps()) > 1


def compare(opened: Opened, question: DifferenceQuestion) -> Reply[DifferenceReply]:
    """The largest changes."""
    first, second = _models(opened, question)
    kept = opened.kept(Kept, lambda: Kept(8))
    plain = question.model_copy(update={"texts": 0})
    found = kept.get(plain.model_dump_json(), lambda: difference(first, second))
    texts = opened.kept(DataSet, lambda: DataSet(opened)).texts()[0] if question.texts and has_data(opened) else []
    if texts:
        some = [text for _, text in drawn(texts, question.texts)]
        found = kept.get(
            question.model_dump_json(), lambda: over_texts(found, first, second, some, length=LONGEST_READ, top=SHOWN)
        )
    shown = asdict(found)
    return Reply({**shown, "tensors": shown["tensors"][:SHOWN], "differing": len(found.tensors)})


def _models(opened: Opened, question: DifferenceQuestion) -> tuple[Model, Model]:
    return opened.passes.checkpoint(question.step), opened.passes.checkpoint(question.other)
