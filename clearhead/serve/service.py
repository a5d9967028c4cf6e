"""From a request to the prompts that the engine writes: which model, which settings, how long."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from clearhead.api import Model
from clearhead.config import LanguageHead
from clearhead.data.chat import render
from clearhead.errors import UserError
from clearhead.recipe import explain
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.schemas import ChatRequest, CompletionRequest, TranslationRequest, Writes, Wrong
from clearhead.serve.translations import Source
from clearhead.serve.writing import Prompt

NARROWING: dict[str, Any] = {"top_k": None, "top_p": None, "min_p": None}
FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class Service:
    """A model, the name it goes by, and the limits of what is asked of it."""

    def __init__(self, model: Model, name: str, *, slots: int, max_length: int) -> None:
        """Raises UserError for a model that does not write."""
        decoder = model.config.decoder
        if decoder is None or not isinstance(model.config.head, LanguageHead):
            raise UserError(f"{name}: expected a model that writes, got one that does not; try clearhead explore")
        _ = model.tokenizer
        self.model, self.name, self.slots = model, name, slots
        self.max_length = min(max_length, decoder.max_length or max_length)
        """Positions of a prompt with its continuation."""

    # --- what is asked -----------------------------------------------------------------------------------------

    def completion(self, asked: CompletionRequest) -> list[Prompt]:
        """The prompts of a request, each to be continued n times; raises Wrong."""
        self.decoder_only("/translate")
        if not asked.prompts:
            raise Wrong("prompt: expected at least one, got an empty list", "prompt")
        if asked.max_tokens == 0 and not asked.echo:
            raise Wrong("max_tokens: expected at least 1, got 0; 0 goes with echo", "max_tokens")
        ids = [self.ids(prompt) for prompt in asked.prompts]
        scores = bool(asked.echo) and asked.logprobs is not None
        return self.prompts(asked, ids, asked.max_tokens, likeliest=asked.logprobs, scores_prompt=scores)

    def chat(self, asked: ChatRequest) -> list[Prompt]:
        """The conversation as the model's own template writes it; raises Wrong."""
        self.decoder_only("/translate")
        tokenizer = self.model.tokenizer
        if tokenizer.chat_template is None:
            raise Wrong("messages: this model has no chat template; use /v1/completions", "messages")
        if asked.top_logprobs is not None and not asked.logprobs:
            raise Wrong("top_logprobs: expected logprobs to be true with it", "top_logprobs")
        try:
            text = render(
                tokenizer.chat_template, asked.messages, add_generation_prompt=True, special=tokenizer.special_tokens
            )
            ids = self.model.reader.known(tokenizer.encode(text))
        except UserError as error:
            raise Wrong(str(error), "messages") from None
        limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
        if limit == 0:
            raise Wrong("max_tokens: expected at least 1, got 0", "max_tokens")
        likeliest = (asked.top_logprobs or 0) if asked.logprobs else None
        return self.prompts(asked, [ids], limit, likeliest=likeliest, field="messages")

    def translation(self, asked: TranslationRequest) -> list[Source]:
        """The texts of a request; raises Wrong."""
        if not self.model.is_encoder_decoder:
            raise Wrong("this model continues texts; use /v1/completions", status=404)
        if not asked.texts:
            raise Wrong("text: expected at least one, got an empty list", "text")
        encoder = self.model.config.encoder
        limit = (encoder.max_length if encoder else None) or self.max_length
        try:
            sources = self.model.reader.ids(asked.texts)
        except UserError as error:
            raise Wrong(str(error), "text") from None
        if not all(text.strip() for text in asked.texts) or not all(sources):
            raise Wrong("text: expected texts that say something, got an empty one", "text")
        if (longest := max(map(len, sources))) > limit:
            raise Wrong(f"text: expected at most {limit} tokens, got {longest}", "text")
        return [Source(i, ids) for i, ids in enumerate(sources)]

    def decoder_only(self, other: str) -> None:
        """Raises Wrong for a model with an encoder."""
        if self.model.is_encoder_decoder:
            raise Wrong(f"this model translates; use {other}", status=404)

    def check_name(self, name: str | None) -> None:
        """Raises Wrong for a model that is not here."""
        if name is not None and name != self.name:
            raise Wrong(f"model: expected {self.name}, got {name:.100}", "model", status=404, code="model_not_found")

    # --- prompts -----------------------------------------------------------------------------------------------

    def ids(self, prompt: str | Sequence[int]) -> list[int]:
        """The ids of one prompt, with the tokenizer's own marks around a text; raises Wrong."""
        try:
            ids = self.model.reader.ids([prompt])[0] if isinstance(prompt, str) else self.known(prompt)
        except UserError as error:
            raise Wrong(str(error), "prompt") from None
        if not ids or not prompt:
            raise Wrong("prompt: expected at least one token, got an empty prompt", "prompt")
        return ids

    def known(self, ids: Sequence[int]) -> list[int]:
        """Ids that a client sends, each of which the network knows."""
        if min(ids, default=0) < 0:
            raise UserError(f"prompt: expected token ids of 0 or more, got {min(ids)}")
        return self.model.reader.known(list(ids))

    def prompts(
        self,
        asked: Writes,
        several: Sequence[list[int]],
        max_tokens: int | None,
        *,
        likeliest: int | None,
        scores_prompt: bool = False,
        field: str = "prompt",
    ) -> list[Prompt]:
        """What the engine is asked; raises Wrong for a prompt that is too long, and for more texts than slots."""
        longest, n = max(map(len, several)), asked.n or 1
        if longest > self.max_length:
            positions = self.model.config.output.max_length
            why = "where this model's positions end" if positions == self.max_length else "by --max-length"
            message = f"{field}: expected at most {self.max_length} tokens, {why}, got {longest}"
            raise Wrong(message, field, code="context_length_exceeded")
        if n > self.slots:
            raise Wrong(f"n: expected at most {self.slots}, as many as are written at once, got {n}", "n")
        if asked.stream_options is not None and not asked.stream:
            raise Wrong("stream_options: expected stream to be true with it", "stream_options")
        config = self.settings(asked)
        if n > 1 and config.temperature == 0:
            raise Wrong(f"n: expected 1 at temperature 0, where all texts are alike, got {n}", "n")
        most = config.max_new_tokens if max_tokens is None else max_tokens
        return [
            Prompt(
                ids=ids,
                config=config,
                number=number,
                n=n,
                limit=min(most, self.max_length - len(ids) + 1),
                stop=asked.stops,
                streams=bool(asked.stream),
                likeliest=likeliest,
                scores_prompt=scores_prompt,
            )
            for number, ids in enumerate(several)
        ]

    def settings(self, asked: Writes) -> GenerationConfig:
        """The model's own settings with what is asked; a seed that nobody names is drawn."""
        base = self.model.settings()
        given: dict[str, Any] = {name: value for name in FIELDS if (value := getattr(asked, name)) is not None}
        if given.get("temperature", base.temperature) == 0:
            given |= NARROWING  # Without chance there is nothing to narrow.
        changes = {"beams": 1, "n_best": 1, "seed": secrets.randbits(53) if asked.seed is None else asked.seed, **given}
        return _changed(base, changes)


def _changed(config: GenerationConfig, changes: Mapping[str, Any]) -> GenerationConfig:
    try:
        return GenerationConfig.model_validate(config.model_dump() | dict(changes))
    except ValidationError as error:
        raise Wrong(explain(error, "settings")) from None
