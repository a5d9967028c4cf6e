"""`Opened`: a model, opened in a page, with the inputs that the page begins with. All answers are computed from it."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import JsonValue

from clearhead.analysis.overview import Overview
from clearhead.api import Model
from clearhead.capture.difference import check_comparable
from clearhead.capture.texts import Text
from clearhead.config.heads import ClassificationHead
from clearhead.config.inputs import TokenInput
from clearhead.data.sources import rows_of
from clearhead.data.tables import read_rows
from clearhead.errors import UserError
from clearhead.explorer.answering.checkpoints import RunCheckpoints
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.questions import RunRequest
from clearhead.model.fast.rounding import RoundedMatrix
from clearhead.recipe import Recipe
from clearhead.recipe.data import ArrayFile, IdxFiles, Languages, ParallelFiles, Source, Table, TextFiles
from clearhead.tasks.images.data import read_pictures
from clearhead.tasks.masked_lm import fill
from clearhead.tasks.registry import validate
from clearhead.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from clearhead.data.images import Picture

SENTENCE = "The animal did not cross the street because it was too tired."
SIMILAR = (
    SENTENCE,
    "The dog was exhausted.",
    "The dog crossed the road.",
    "The bank raised its interest rates.",
)
CONTINUED = (
    "Anna and Ben went to the park. Ben gave a flower to",
    "Mary met Tom. She said hello to",
    "The dog chased the cat. The cat ran away from the",
    "The animal did not cross the street because it was too",
)
"""Texts whose next word stands in the text, or depends on a word before, so that attention decides it."""
MOST_EXAMPLES = 8
"""Examples."""
USUAL_WORDS = 7
"""Preferred number of tokens of the first example: enough for a pattern of attention, few enough to show numbers."""
MOST_CHARACTERS = 200
"""The longest example."""
MOST_ROWS = 1000
"""The first rows of a run's own data that are looked at."""
MOST_TRIED = 10
"""Texts and pictures of them that are tried at once."""
MOST_CUT = 40
"""The most texts that are tried without each of their words."""
CLEAR = 0.5
"""No more texts are tried once the answer of one falls by this, which makes another likelier."""
MOST_SURE = 3
"""The texts of each label that are shown."""


def starts(
    model: Model, folder: Path | None, text: str | None, target: str | None, image: "Picture | None"
) -> "tuple[RunRequest, list[RunRequest], Sequence[Picture]]":
    """The first request, examples to choose from, and the images or sounds that they name."""
    seen = model.config.pictures
    if seen is not None and model.reader.images is not None:
        picture = _stripes() if image is None else image
        start = RunRequest(text=_captioned(model, picture) if text is None else text, image="example:0")
        return start, [start], [picture]
    if model.reader.processor and seen is None:
        own = _shown(model) if model.reader.reads_images else [text or np.arange(30_000) % 97 / 97]
        given = own if image is None else [image]
        examples = [RunRequest(text="", target=target, image=f"example:{i}") for i in range(len(given))]
        return examples[0], examples, given
    mask = mask_of(model)
    examples = (_masked(model, mask) if mask else _of_run(model, folder)) or _sentences(model)
    if decided := _decided(model):
        examples = [*decided, *examples][:MOST_EXAMPLES]
        if text is None and target is None:
            return examples[0], examples, []
    if text is not None or target is not None:
        start = RunRequest(text=text or (examples[0].text if examples else _known(model)), target=target)
    else:
        default = (examples or [RunRequest(text=_known(model))])[0]
        usual = [] if mask else _of_run(model, folder)
        start = min(usual, key=lambda run: abs(len(run.text.split()) - USUAL_WORDS), default=default)
    return start, examples or [start], []


def _captioned(model: Model, picture: "Picture") -> str:
    """The prompt of a model that was trained on captions, and the caption that it writes; empty for any other model."""
    data: Any = (model.recipe or {}).get("data")
    if not isinstance(data, dict) or "prompt" not in data:
        return ""
    return f"{data['prompt']} {model.generate(data['prompt'], image=picture).strip()}".strip()


def _of_run(model: Model, folder: Path | None) -> list[RunRequest]:
    """The sentences of the run's last evaluation, without the file and line that they are from."""
    sources = [re.sub(r"^\S+:\d+: ", "", source) for source, _ in RunCheckpoints(folder).samples()]
    if not model.has_tokenizer:
        return []
    texts = [text for text in dict.fromkeys(sources) if text.strip() and len(text) <= MOST_CHARACTERS]
    return [RunRequest(text=text) for text in texts[:MOST_EXAMPLES]]


def _usual(model: Model) -> list[list[str]]:
    """The words of the first texts of a run's own data that are of a usual length; none without such data."""
    source = own_source(model)
    try:
        rows = [row.split() for row in itertools.islice(source[0], MOST_ROWS) if isinstance(row, str)] if source else []
    except UserError:  # A bad row: the page opens without it.
        return []
    return [words for words in rows if abs(len(words) - USUAL_WORDS) <= 2]


def _masked(model: Model, mask: str) -> list[RunRequest]:
    """Texts of a run's own data with one gap each: of the words that the model fills in rightly, the surest. The first
    is the one where two answers are surest, the right one and, without one of the other words, another.
    """
    found = list[tuple[float, str]]()
    for row in map(" ".join, _usual(model)[:MOST_CUT]):
        gaps = list[tuple[float, str]]()
        for word in re.finditer(r"\w+", row):
            text = row[: word.start()] + mask + row[word.end() :]
            if (filled := fill(model, model.tokenizer.encode(text))) and filled[0][0][0].lower() == word[0].lower():
                gaps.append((filled[0][0][1], text))
        found += [max(gaps)] if gaps else []
    found.sort(reverse=True)
    first = 0.0, ""
    for p, text in found:
        if p > first[0]:
            first = max(first, (min(p, _other(model, text)), text), key=itemgetter(0))
    texts = dict.fromkeys([first[1], *(text for _, text in found)])
    return [RunRequest(text=text) for text in texts if text][:MOST_EXAMPLES]


def _other(model: Model, text: str) -> float:
    """The largest probability of another answer that leads in the gap of a text without one of its other words."""
    [given] = model.inputs(text)
    ids, special = given.ids[0].tolist(), {*model.tokenizer.special_tokens.values()}
    with suppress(UserError):  # Rounded weights have no overview.
        parts = Overview(model.network, [given], position=ids.index(model.tokenizer.need("mask"))).parts
        return max(one.risen_p * (i not in special and one.risen_p > one.p) for i, one in zip(ids, parts, strict=True))
    return 0.0


def _decided(model: Model) -> list[RunRequest]:
    """The text of a classifier's own data whose answer falls most without one of its words, and the three surest of
    each label; none for other models.
    """
    head = model.config.head
    if not isinstance(head, ClassificationHead) or head.problem_type == "regression":
        return []
    rows, falls, sure = _usual(model)[:MOST_CUT], dict[str, float](), dict[str, list[tuple[float, str]]]()
    while rows and max(falls.values(), default=0) < CLEAR:
        cuts = [[" ".join(w[:i] + w[i + 1 :]) for i in range(len(w), -1, -1)] for w in rows[:MOST_TRIED]]
        del rows[:MOST_TRIED]
        scores = iter(model.classify([*itertools.chain(*cuts)]))
        for text, *others in cuts:
            (label, p), *_ = next(scores)
            falls[text] = p - min(dict(next(scores))[label] for _ in others)
            sure.setdefault(label, []).append((p, text))
    if not falls:
        return []
    first = max(falls, key=falls.__getitem__)
    ranks = itertools.zip_longest(*(sorted(texts, reverse=True)[:MOST_SURE] for texts in sure.values()))
    surest = (one[1] for rank in ranks for one in rank if one)
    return [RunRequest(text=text) for text in dict.fromkeys([first, *surest])]


def _shown(model: Model) -> "list[Picture]":
    """The first pictures of a run's own arrays that the model names rightly; else the default picture."""
    recipe = _recipe_of(model)
    try:
        source = list(recipe.data.sources.values())[-1] if recipe else None
        if isinstance(source, IdxFiles | ArrayFile) and all(
            isinstance(path, Path) and path.is_file() for path in source.files
        ):
            some = read_pictures(source, "label")[:MOST_TRIED]
            found = model.classify([one.picture for one in some])
            right = [one.picture for one, ((label, _), *_) in zip(some, found, strict=True) if label == one.label]
            return right[:MOST_EXAMPLES] or [_stripes()]
    except UserError:
        pass
    return [_stripes()]


def _recipe_of(model: Model) -> Recipe | None:
    """The recipe of a run; None without one that is valid."""
    try:
        return None if model.recipe is None else validate(dict(model.recipe), where="recipe")
    except UserError:
        return None


def own_source(model: Model) -> tuple[Iterator[Text], str] | None:
    """The texts of a run's validation data, else of its training data; None without a run or its files."""
    recipe = _recipe_of(model)
    if recipe is None:
        return None
    name = "valid" if "valid" in recipe.data.sources else "train"
    source, second = recipe.data.sources[name], dict(recipe.data).get("text_pair")
    is_text = isinstance(source, ParallelFiles | TextFiles | Table | Languages)
    if not is_text or not all(isinstance(path, Path) and path.is_file() for path in source.files):
        return None
    return _texts(source, [second] if isinstance(second, str | int) else []), name


def _texts(source: Source, columns: list[str | int]) -> Iterator[Text]:
    """The lines of running text, and the rows of anything else."""
    if isinstance(source, TextFiles) and source.documents == "file":
        source = source.model_copy(update={"documents": "line"})
    if isinstance(source, Table) and source.text is not None and columns:
        rows = read_rows(source, [*source.columns, *columns])
    else:
        rows = rows_of(source)
    return (row if len(row) > 1 else row[0] for row in rows)


def _sentences(model: Model) -> list[RunRequest]:
    """Texts to compare for a model that makes vectors, and to go on with for a decoder, if it knows words; numbers."""
    if not model.has_tokenizer:
        return _numbers(model)
    if not knows(model.tokenizer, SENTENCE):
        return []
    if not model.config.has_logits:
        return [RunRequest(text=text) for text in SIMILAR]
    return [RunRequest(text=text) for text in CONTINUED] if model.config.continues_texts else []


def _numbers(model: Model) -> list[RunRequest]:
    """Rows of numbers for a model without a tokenizer."""
    reads = model.config.first.input
    n = reads.vocab_size if isinstance(reads, TokenInput) else 1
    return [RunRequest(text=" ".join(str((k * i * i + 2 * i + 1) % n) for i in range(6))) for k in range(3)]


def knows(tokenizer: Tokenizer, text: str) -> bool:
    """Returns True if the tokenizer knows at least half of the tokens of a text."""
    ids = tokenizer.encode(text)
    return bool(ids) and 2 * sum(i == tokenizer.unk_id for i in ids) < len(ids)


def mask_of(model: Model) -> str | None:
    """The mask token, for an encoder that predicts masked tokens."""
    if not model.has_tokenizer or not model.config.predicts_tokens or model.config.decoder is not None:
        return None
    mask = model.tokenizer.mask_id
    return None if mask is None else model.tokenizer.library.id_to_token(mask)


def _known(model: Model) -> str:
    """SENTENCE if the tokenizer knows it, masked for a model that predicts masks; else the first tokens as text."""
    tokenizer = model.tokenizer
    if knows(tokenizer, SENTENCE):
        mask = mask_of(model)
        return SENTENCE if mask is None else SENTENCE.replace("cross", mask)
    special = set(tokenizer.special_tokens.values())
    names = [i for i in range(tokenizer.vocab_size) if (tokenizer.library.id_to_token(i) or "") not in special]
    return tokenizer.decode(names[:6]) or SENTENCE


def _stripes() -> "Picture":
    """The default picture: rings over colours that change from left to right and from top to bottom."""
    y, x = np.mgrid[0:224, 0:224]
    rings = 127 + 127 * np.sin(np.hypot(y - 112, x - 112) / 9)
    return np.stack([x * 255 // 223, y * 255 // 223, rings], -1).astype(np.uint8)


T = TypeVar("T")
UNNAMED = "model"
"""The name of a model that was opened from Python, whose origin the page does not know."""


class Opened:
    """A model with its name, its forward passes, and the inputs that a page begins with."""

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        folder: Path | None = None,
        text: str | None = None,
        target: str | None = None,
        image: "Picture | None" = None,
        walks: Sequence[Mapping[str, JsonValue]] = (),
        data: Iterable[Text] | None = None,
        matrices: Mapping[str, RoundedMatrix] | None = None,
        compared: Model | None = None,
        compared_name: str | None = None,
        revision: str | None = None,
    ) -> None:
        """`folder` is the folder of the model: that of a run has a history. `walks` lead along this model
        (ui/src/core/walk.ts). `data` are texts in which the page looks for examples; None: those of the run. `matrices`
        are those of a model that is rounded to 8 or 4 bits. `compared` is another model, of which the page shows how
        it differs. The rest is what the page begins with. Raises UserError for one of another architecture.
        """
        self.name, self.model, self.walks, self.folder, self.data = name, model, walks, folder, data
        self.matrices, self.revision = matrices or {}, revision
        if compared is not None:
            check_comparable(model, compared)
        self.compared, self.compared_name = compared, compared_name or (None if compared is None else UNNAMED)
        self._kept: dict[type, Any] = {}
        self.start, self.examples, pictures = starts(model, folder, text, target, image)
        self.passes = Passes(model, folder, pictures, compared)

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """What the answers of one kind keep for the next question; `make` makes it at the first."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return self._kept[kind]


def stated(run: RunRequest) -> dict[str, JsonValue]:
    """A request as a page makes it."""
    return {
        "target": None, "edits": [], **run.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    }  # fmt: skip
