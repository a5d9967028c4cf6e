"""Turns requests into prompts for the engine: checks the model, the settings and the lengths."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import JsonValue

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.api.continuing import draft_of
from clearhead.api.predicting import TEMPLATE, Row, ZeroShot, lines_of, task_of
from clearhead.config import Continuous
from clearhead.errors import UserError
from clearhead.generation.settings import NARROWING, changed
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.schemas import ChatRequest, CompletionRequest, PredictionRequest, Writes, Wrong, without_pictures
from clearhead.serve.texts import Prompt, Steering, check
from clearhead.tasks.task import RecipeTask
from clearhead.text.chat import render
from clearhead.text.tokenizers import Tokenizer

WIDEST = 256
"""The longest token that counts, in characters. Longer ones exist, but no text consists only of them."""
NARROWEST = 16
"""Characters allowed for each token at least: some tokenizers drop spaces, or read a long word as one token."""
FIRST = 8
"""Characters for each token that are tokenized first. Most texts have fewer, so they are tokenized once."""

Encode = Callable[[str], list[int]]


class TooLong(Exception):
    """A text has too many tokens. The message says how many were found before reading stopped."""


def most_characters(tokenizer: Tokenizer, most_tokens: int) -> int:
    """The most characters of a text with this many tokens."""
    widest = max(map(len, tokenizer.library.get_vocab(with_added_tokens=True)), default=0)
    return most_tokens * min(max(widest, NARROWEST), WIDEST)


def bounded(text: str, encode: Encode, *, most_tokens: int, most_characters: int) -> list[int]:
    """The ids of a text. Raises TooLong if they are too many, at the cost of about as many tokens as are allowed.

    A beginning of the text has about as many tokens as the same part of the whole has. So beginnings of growing
    length are tokenized, until one has twice as many tokens as are allowed.
    """
    if len(text) > most_characters:
        raise TooLong(f"{len(text)} characters")
    size = FIRST * most_tokens
    while size < len(text):
        if len(encode(text[:size])) > 2 * most_tokens:
            raise TooLong(f"more, in {len(text)} characters")
        size *= 2
    ids = encode(text)
    if len(ids) > most_tokens:
        raise TooLong(str(len(ids)))
    return ids


def extent(value: JsonValue) -> int:
    """Characters and members of a JSON value, however deep."""
    match value:
        case str():
            return len(value)
        case list():
            return len(value) + sum(map(extent, value))
        case dict():
            return sum(len(name) + 1 + extent(member) for name, member in value.items())
        case _:
            return 1


Does = Literal["complete", "translate", "predict", "embed"]
ROUTES: dict[Does, tuple[str, str]] = {
    "complete": ("continues texts", "/v1/completions"),
    "translate": ("translates", "/translate"),
    "predict": ("predicts", "/v1/predict"),
    "embed": ("embeds", "/v1/embeddings"),
}
INPUTS: dict[Does, str] = {"complete": "prompt", "translate": "text", "predict": "inputs", "embed": "input"}
"""The field of each route that has the texts."""
FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class Service:
    """A model with its name and the limits of requests."""

    def __init__(
        self,
        model: Model,
        name: str,
        *,
        slots: int,
        max_length: int,
        edits: Mapping[str, Direction] | None = None,
        draft: Model | str | None = None,
    ) -> None:
        """`edits` are the directions that requests may name. `draft` guesses tokens: a smaller model, or "lookup".

        Raises UserError for a model that does not read text, or that no task knows, and for edits or a draft that do
        not fit it.
        """
        if isinstance(reads := model.config.first.input, Continuous):
            verb = "transcribe" if model.reader.reads_sounds else "predict"
            raise UserError(
                f"{name}: expected a model that reads text, got one that reads {reads.medium}s; try clearhead {verb}"
            )
        _ = model.tokenizer
        self.model, self.name, self.slots = model, name, slots
        self.task = task_of(model, name=name) if model.config.has_logits else None
        """None for a model that has no head, and only embeds."""
        self.does = _kind(model, self.task)
        self.edits = edits or {}
        for edit, direction in self.edits.items():
            if self.does != "complete":
                what = ROUTES[self.does][0]
                raise UserError(f"--edit {edit}: expected a model that continues texts, got one that {what}")
            check(model.network, direction, f"--edit {edit}")
        if draft is not None and self.does != "complete":
            raise UserError(f"draft: expected a model that continues texts, got one that {ROUTES[self.does][0]}")
        self.draft = draft_of(model, draft)
        decoder, encoder = model.config.decoder, model.config.encoder
        self.max_length = min(max_length, (decoder.max_length if decoder else None) or max_length)
        """The most positions of a prompt with its continuation."""
        self.most_tokens = (encoder.max_length if encoder else None) or self.max_length
        """The most tokens of a text that the model reads."""
        if self.does in ("predict", "embed"):  # Which cut texts where the positions end, or read them in parts.
            self.most_tokens = max_length
        self.most_characters = most_characters(model.tokenizer, self.most_tokens)

    # --- what is asked -----------------------------------------------------------------------------------------

    def completion(self, asked: CompletionRequest, ids: Sequence[list[int]]) -> list[Prompt]:
        """The prompts of a request with these ids, each to be continued n times. Raises Wrong."""
        if asked.max_tokens == 0 and not asked.echo:
            raise Wrong("max_tokens: expected at least 1, got 0; 0 goes with echo", "max_tokens")
        scores = bool(asked.echo) and asked.logprobs is not None
        return self.prompts(asked, ids, asked.max_tokens, likeliest=asked.logprobs, scores_prompt=scores)

    def chat(self, asked: ChatRequest) -> list[Prompt]:
        """The conversation, written by the model's own template. Raises Wrong."""
        self.require("complete")
        tokenizer = self.model.tokenizer
        if tokenizer.chat_template is None:
            raise Wrong("messages: this model has no chat template; use /v1/completions", "messages")
        if asked.top_logprobs is not None and not asked.logprobs:
            raise Wrong("top_logprobs: expected logprobs to be true with it", "top_logprobs")
        if len(asked.messages) > self.most_tokens:
            raise self.too_long(f"{len(asked.messages)} messages", "messages")
        messages, pictures = without_pictures(asked.messages)
        if (size := extent([*messages])) > self.most_characters:
            raise self.too_long(f"{size} characters", "messages")
        row, reader, seen = None, self.model.reader, self.model.config.pictures
        least = 1 if seen is None or seen.any_size else seen.n_marks
        with _blamed("messages"):
            text = render(
                tokenizer.chat_template, messages, add_generation_prompt=True, special=tokenizer.special_tokens
            )
        if not pictures:
            ids = self.read(text, lambda text: reader.known(tokenizer.encode(text)), "messages")
        elif seen is not None and len(pictures) * least > self.most_tokens:
            raise self.too_long(f"{len(pictures)} pictures of {least}", "messages")
        else:
            with _blamed("messages"):
                row = self.model.here(
                    reader.with_images(text, [*pictures], encode=tokenizer.encode, most=self.most_tokens)
                )
            ids = row.ids[0].tolist()
            if len(ids) > self.most_tokens:
                raise self.too_long(str(len(ids)), "messages")
        limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
        if limit == 0:
            raise Wrong("max_tokens: expected at least 1, got 0", "max_tokens")
        likeliest = (asked.top_logprobs or 0) if asked.logprobs else None
        return self.prompts(asked, [ids], limit, likeliest=likeliest, seen=row)

    def ids(self, field: str, text: str, *, allows_blank: bool = False) -> list[int]:
        """The ids of one text to read, or the measure of its length. Raises Wrong."""
        ids = self.read(text, self.marked, field)
        if not allows_blank and not (text.strip() and ids):
            raise Wrong(f"{field}: expected texts that are not empty, got an empty one", field)
        return ids

    def zero_shot(self, asked: PredictionRequest) -> ZeroShot | None:
        """The labels of a request's own, if it has some. Raises Wrong."""
        if asked.labels is None:
            alone = "template" if asked.template is not None else "several" if asked.several is not None else None
            if alone is not None:
                raise Wrong(f"{alone}: expected labels beside it, got none", alone)
            return None
        given = ZeroShot(asked.labels, asked.template or TEMPLATE, several=bool(asked.several))
        try:
            given.check(self.model)
        except UserError as error:
            raise Wrong(str(error), error.field or None) from None
        for hypothesis in given.sentences(TEMPLATE):
            self.read(hypothesis, self.marked, "labels")
        return given

    def lines(self, inputs: Sequence[Row], own: ZeroShot | None = None) -> list[str]:
        """The inputs of a prediction as the task reads them, or single texts beside labels. Raises Wrong."""
        assert self.task is not None
        if own is not None:
            pair = next((i for i, row in enumerate(inputs, 1) if not isinstance(row, str)), None)
            if pair is not None:
                raise Wrong(f"inputs: input {pair}: expected one text beside labels, got several", "inputs")
            return [row for row in inputs if isinstance(row, str)]
        try:
            return lines_of(self.model, self.task, inputs)
        except UserError as error:
            raise Wrong(f"inputs: {error}", "inputs") from None

    def require(self, does: Does) -> None:
        """Raises Wrong unless the model does this."""
        if does != self.does and not (does == "embed" and self.task is not None and self.task.verb == "embed"):
            what, route = ROUTES[self.does]
            raise Wrong(f"this model {what}; use {route}", status=404)

    def check_name(self, name: str | None) -> None:
        """Raises Wrong unless `name` is this model."""
        if name is not None and name != self.name:
            raise Wrong(f"model: expected {self.name}, got {name:.100}", "model", status=404, code="model_not_found")

    # --- prompts -----------------------------------------------------------------------------------------------

    def prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """The ids of one prompt; a text gets the tokenizer's own marks. Raises Wrong."""
        ids = self.read(prompt, self.marked, "prompt") if isinstance(prompt, str) else self.known(prompt)
        if not ids or not prompt:
            raise Wrong("prompt: expected at least one token, got an empty prompt", "prompt")
        return ids

    def marked(self, text: str) -> list[int]:
        """The ids of a text with the marks of its ends."""
        return self.model.reader.ids([text])[0]

    def read(self, text: str, encode: Encode, field: str) -> list[int]:
        """The ids of a text. Raises Wrong if it is too long."""
        try:
            with _blamed(field):
                return bounded(text, encode, most_tokens=self.most_tokens, most_characters=self.most_characters)
        except TooLong as error:
            raise self.too_long(str(error), field) from None

    def known(self, ids: Sequence[int]) -> list[int]:
        """The ids that a client sent. Raises Wrong if the network does not know one."""
        if len(ids) > self.most_tokens:
            raise self.too_long(str(len(ids)), "prompt")
        if min(ids, default=0) < 0:
            raise Wrong(f"prompt: expected token ids of 0 or more, got {min(ids)}", "prompt")
        with _blamed("prompt"):
            return self.model.reader.known(list(ids))

    def too_long(self, got: str, field: str) -> Wrong:
        """The error for more tokens than can be read."""
        stack = self.model.config.first
        why = "where this model's positions end" if stack.max_length == self.most_tokens else "by --max-length"
        message = f"{field}: expected at most {self.most_tokens} tokens, {why}, got {got}"
        return Wrong(message, field, code="context_length_exceeded")

    def prompts(
        self,
        asked: Writes,
        several: Sequence[list[int]],
        max_tokens: int | None,
        *,
        likeliest: int | None,
        scores_prompt: bool = False,
        seen: Tokens | None = None,
    ) -> list[Prompt]:
        """The prompts for the engine, with what is `seen` within them. Raises Wrong for more texts than slots."""
        n = asked.n or 1
        if n > self.slots:
            raise Wrong(f"n: expected at most {self.slots}, as many as are written at once, got {n}", "n")
        if asked.stream_options is not None and not asked.stream:
            raise Wrong("stream_options: expected stream to be true with it", "stream_options")
        config, steering = self.settings(asked), self.steering(asked)
        drafts = self.drafts(asked, config) and not steering and seen is None
        if n > 1 and config.temperature == 0:
            raise Wrong(f"n: expected 1 at temperature 0, where all texts are alike, got {n}", "n")
        config = config if max_tokens is None else config.model_copy(update={"max_length": None})
        with _blamed("prompt"):
            configs = [config.after(len(ids)) for ids in several]
        return [
            Prompt(
                ids=ids,
                config=own,
                number=number,
                n=n,
                limit=min(own.max_new_tokens if max_tokens is None else max_tokens, self.max_length - len(ids) + 1),
                stop=tuple(asked.stop or ()),
                streams=bool(asked.stream),
                likeliest=likeliest,
                scores_prompt=scores_prompt,
                steering=steering,
                drafts=drafts,
                pictures=None if seen is None else seen.pictures,
                grids=None if seen is None else seen.grids,
            )
            for number, (ids, own) in enumerate(zip(several, configs, strict=True))
        ]

    def steering(self, asked: Writes) -> tuple[Steering, ...]:
        """The directions that a request names. Raises Wrong for a name that the server does not have."""
        for one in asked.edit or ():
            if one.name not in self.edits:
                known = ", ".join(self.edits) or "none; start the server with --edit FILE"
                raise Wrong(f"edit: expected a name that this server has, {known}, got {one.name:.100}", "edit")
        return tuple(Steering(self.edits[one.name], one.strength) for one in asked.edit or () if one.strength)

    def drafts(self, asked: Writes, config: GenerationConfig) -> bool:
        """Returns True if the draft may guess tokens of these texts. Raises Wrong if it is asked for and there is none.

        A draft that is a network guesses for texts sampled with a seed only if the request asks for it: which tokens
        it draws depends on where it guesses, and so on which other requests are in the batch.
        """
        if asked.draft and self.draft is None:
            raise Wrong("draft: this server has none; start it with --draft MODEL", "draft")
        if asked.draft is not None:
            return asked.draft
        return config.temperature == 0 or asked.seed is None or self.draft == "lookup"

    def settings(self, asked: Writes) -> GenerationConfig:
        """The model's settings with those of the request. Draws a seed if the request has none."""
        base = self.model.settings()
        given: dict[str, Any] = {name: value for name in FIELDS if (value := getattr(asked, name)) is not None}
        if given.get("temperature", base.temperature) == 0:
            given |= NARROWING  # Without chance there is nothing to narrow.
        changes = {"beams": 1, "n_best": 1, "seed": secrets.randbits(53) if asked.seed is None else asked.seed, **given}
        with _blamed(None):
            return changed(base, changes)


@contextmanager
def _blamed(field: str | None) -> Iterator[None]:
    """Raises Wrong, which names a field of the request, for a UserError."""
    try:
        yield
    except UserError as error:
        raise Wrong(str(error), field) from None


def _kind(model: Model, task: type[RecipeTask[Any]] | None) -> Does:
    """What the server does with a model."""
    if model.config.continues_texts:
        return "complete"
    if task is None:
        return "embed"
    return "translate" if task.verb == "translate" else "predict"
