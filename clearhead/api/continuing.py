"""Continues a text piece by piece: `Model.generate`, `stream` and `chat`."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import JsonValue

from clearhead.api.drafting import draft_of
from clearhead.errors import UserError
from clearhead.generation import Step, generate
from clearhead.generation.decoding import Following
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.detokenizer import Detokenizer

if TYPE_CHECKING:
    from clearhead.api.model import Model


def beginning(model: "Model", prompt: str) -> list[int]:
    """The ids of a prompt, at least the begin token."""
    if not isinstance(prompt, str):
        raise UserError(f"generate: expected one text, got {type(prompt).__name__}; call it for each")
    return model.reader.ids([prompt])[0] or [model.tokenizer.need("bos")]


def conversation(model: "Model", messages: Sequence[Mapping[str, JsonValue]]) -> list[int]:
    """The ids of a conversation in the model's own template, up to where its answer begins."""
    from clearhead.text.chat import render

    template = model.tokenizer.chat_template
    if template is None:
        raise UserError("chat: expected a chat template with the tokenizer, got none; try generate")
    text = render(template, messages, add_generation_prompt=True, special=model.tokenizer.special_tokens)
    return model.reader.known(model.tokenizer.encode(text))


def continued(
    model: "Model",
    ids: list[int],
    config: GenerationConfig,
    stop: Sequence[str],
    draft: "Model | str | None" = None,
) -> Following[str]:
    """The pieces after these ids, up to the first of the stop strings, of one hypothesis."""
    if model.network.decoder is None or model.network.encoder is not None:
        raise UserError(f"generate: expected a decoder-only model, got one with an encoder; {remedy(model)}")
    if "" in stop:
        raise UserError("stop: expected strings that are not empty, got an empty one; leave it out")
    config = config.model_copy(update={"beams": 1, "n_best": 1}).with_ids(
        start_id=None, end_id=model.tokenizer.eos_id, pad_id=None
    )
    prompt = Tokens(torch.tensor([ids], device=model.device))
    events = generate(model.network, prompt, config=config, draft=draft_of(model, draft), scored=False)
    tokens = (int(event.tokens[0, 0]) for event in events if isinstance(event, Step))
    written = itertools.takewhile(lambda token: token not in config.end_ids, tokens)
    return Following(Detokenizer(model.tokenizer, ids, stop).pieces(written), events.paths)


def remedy(model: "Model") -> str:
    """What to try in place of a method that this model does not have."""
    if model.network.decoder is None:
        return "try embed or logits"
    if model.reader.reads_sounds:
        return "try transcribe"
    return "try translate" if model.is_encoder_decoder else "try generate"
