"""What the stacks read: tokens with their places in the text, patches of an image, or moments of a sound."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from clearhead.api import Model
from clearhead.api.reader import Images, Input
from clearhead.config import ClassificationHead, PatchInput, StackName, TaggingHead
from clearhead.errors import UserError
from clearhead.explorer.recording.facts import Token
from clearhead.model import Tokens
from clearhead.text.schemes import SPACE
from clearhead.text.tokenizers import Tokenizer

CharSpan = tuple[int, int]
LengthCheck = Callable[[Mapping[StackName, int]], None]
"""Takes the number of tokens by stack and raises UserError if they are too many."""


@dataclass(frozen=True)
class ReadInput:
    """One input a stack, and its tokens as people read them."""

    inputs: list[Tokens]
    """On the network's device."""
    tokens: dict[StackName, tuple[Token, ...]]
    grid: CharSpan | None = None
    """Rows and columns of an image's patches, or of the vectors of a picture within a text."""


def read(
    model: Model,
    text: Input,
    other: str | None = None,
    *,
    written: Sequence[int] | None = None,
    check: LengthCheck | None = None,
    image: Images = None,
) -> ReadInput:
    """What `model.trace` reads of a text, a text and its target, two texts, an image, or a sound and its text.

    `image` is the picture within the text. `written` are ids that the decoder reads after its start token, in place of
    those of `other`. Without a tokenizer texts are ids, such as `5 17 3`. Raises UserError if the model cannot read the
    input.
    """
    if model.reader.reads_images:
        return _image(model, text)
    is_sound = model.reader.reads_sounds
    if not model.has_tokenizer:
        return _numbers(model, text, other, written)
    inputs = model.reader.inputs(text, "" if is_sound and written is not None else other, model.generation, image)
    if written is not None:
        start = inputs[-1].ids[0].tolist()[: None if is_sound else 1]
        task = start[1:]  # That of a sound, which may be sent with what was written.
        rest = written[len(task) :] if [*written[: len(task)]] == task else written
        inputs[-1] = Tokens(torch.tensor([[*start, *rest]]))
    names = list(model.config.stacks)
    if check and not is_sound:
        check({name: given.ids.shape[1] for name, given in zip(names, inputs, strict=True)})
    texts = [text if isinstance(text, str) else "", other or ""]
    tokens = {
        name: _moments(model, given)
        if is_sound and not i
        else _tokens(model.tokenizer, given, texts if len(names) == 1 else [texts[i] or texts[0]], target=i > 0)
        for i, (name, given) in enumerate(zip(names, inputs, strict=True))
    }
    seen, last, grid = model.config.pictures, inputs[-1], None
    if seen is not None and last.pictures is not None:
        rows, columns = [seen.side] * 2 if last.grids is None else (last.grids[-1] // seen.projector.join).tolist()
        grid = rows, columns
    return ReadInput([model.here(given) for given in inputs], tokens, grid)


def texts_of(model: Model, ids: Sequence[int]) -> dict[str, str]:
    """The tokens of these ids as people read them, by id; without a tokenizer the ids themselves."""
    texts = model.tokenizer.tokens(ids) if model.has_tokenizer else map(str, ids)
    return {str(i): text for i, text in zip(ids, texts, strict=True)}


def labels_of(model: Model) -> list[str]:
    """The names of the labels. A label of a text that has only a number gets a word before it."""
    head = model.config.head
    labels = head.labels if isinstance(head, ClassificationHead | TaggingHead) else ()
    is_numbered = not model.reader.reads_images and all(map(str.isdigit, labels))
    return [f"label {name}" if is_numbered else name for name in labels]


def _moments(model: Model, given: Tokens) -> tuple[Token, ...]:
    """The positions of a sound, named by the second at which they begin."""
    sounds = model.reader.hearing.config
    n = model.network.stacks()["encoder"].embed.layout(model.here(given)).grid[1]
    seconds = getattr(sounds, "chunk_length", given.ids.shape[1] / sounds.sampling_rate)
    return tuple(Token(id=i, text=f"{i * seconds / n:.2f} s") for i in range(n))


def _image(model: Model, picture: Input) -> ReadInput:
    """An image as patches, named by row and column from 1."""
    reads = model.config.first.input
    assert isinstance(reads, PatchInput)
    rows = reads.side
    names = [f"{y},{x}" for y, x in product(range(1, rows + 1), repeat=2)]
    first = [*["class"] * reads.class_token, *["register"] * reads.n_registers]
    tokens = tuple(Token(id=i, text=name) for i, name in enumerate([*first, *names]))
    batch = model.reader.batch([picture], pad_id=None)
    return ReadInput([model.here(batch)], {"encoder": tokens}, (rows, rows))


# --- tokens -----------------------------------------------------------------------------------------------------


def _tokens(tokenizer: Tokenizer, given: Tokens, texts: Sequence[str], *, target: bool) -> tuple[Token, ...]:
    ids = given.ids[0].tolist()
    types = [0] * len(ids) if given.types is None else given.types[0].tolist()
    spans: list[CharSpan | None] = [None] * len(ids)
    start = 0
    for text in filter(None, texts):
        bare = tokenizer.encode(text, target=target)
        at = next((i for i in range(start, len(ids)) if bare and ids[i : i + len(bare)] == bare), None)
        if at is None:  # The model wrote tokens that the tokenizer would not have chosen.
            spans[start:] = matched(text, tokenizer.tokens(ids[start:]))
            break
        start = at + len(bare)
        spans[at:start] = spans_of(tokenizer, text, bare)
    rows = zip(ids, tokenizer.tokens(ids), spans, types, strict=True)
    return tuple(Token(id=i, text=text, span=span, type=kind) for i, text, span, kind in rows)


def spans_of(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[CharSpan | None]:
    """Where each token of a text stands in it, [start, end) in characters; `ids` are the tokens of the text."""
    places = tokenizer.offsets(text)
    if len(places) == len(ids) and tokenizer.encode(text) == list(ids):
        return list(places)
    return matched(text, tokenizer.tokens(ids))  # The tokenizer has another target side.


def matched(text: str, pieces: Sequence[str]) -> list[CharSpan | None]:
    """Where each piece stands in a text, in order, with only spaces between; None for a piece that does not."""
    spans: list[CharSpan | None] = []
    cursor = 0
    for piece in pieces:
        bare = piece.replace(SPACE, " ").strip()
        at = text.find(bare, cursor) if bare else -1
        if at < 0 or text[cursor:at].strip():
            spans.append(None)
            continue
        cursor = at + len(bare)
        spans.append((at, cursor))
    return spans


# --- without a tokenizer ----------------------------------------------------------------------------------------


def _numbers(model: Model, text: Input, other: str | None, written: Sequence[int] | None) -> ReadInput:
    stacks = model.config.stacks
    if len(stacks) == 1 and other is not None:
        raise UserError("target: expected none, because this model reads one text of ids; leave it out")
    texts = [text if isinstance(text, str) else "", other or ""]
    tokens: dict[StackName, tuple[Token, ...]] = {}
    for i, (name, stack) in enumerate(stacks.items()):
        found = _marked(texts[i], written if i else None)
        start = model.generation.start_id
        if i and start is not None:
            found = [Token(id=start, text=str(start)), *found]
        if not found:
            raise UserError("text: expected numbers of tokens such as 5 17 3, got none; this model has no tokenizer")
        model.reader.known([token.id for token in found], stack=stack)
        tokens[name] = tuple(found)
    inputs = [Tokens(torch.tensor([[token.id for token in row]])) for row in tokens.values()]
    return ReadInput([given.to(model.device) for given in inputs], tokens)


def _marked(text: str, written: Sequence[int] | None) -> list[Token]:
    if written is not None:
        return [Token(id=i, text=str(i)) for i in written]
    found: list[Token] = []
    for part in re.finditer(r"\S+", text):
        if re.fullmatch(r"[0-9]{1,9}", part[0]) is None:
            said = "text: expected numbers of tokens such as 5 17 3"
            raise UserError(f"{said}, got {part[0][:40]!r}; this model has no tokenizer")
        found.append(Token(id=int(part[0]), text=part[0], span=part.span()))
    return found
