"""Continues a text piece by piece: `Model.generate`, `stream` and `chat`."""

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pydantic import JsonValue

from clearhead.api.base import ModelBase
from clearhead.api.reader import Images
from clearhead.errors import UserError
from clearhead.generation import Draft, Step, check_draft, generate
from clearhead.generation.paths import Following
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.detokenizer import Detokenizer
from clearhead.text.tokenizers import Tokenizer


def beginning(model: ModelBase, prompt: str, image: Images = None) -> Tokens:
    """The ids of a prompt, at least the begin token, and the pictures within it."""
    if not isinstance(prompt, str):
        raise UserError(f"generate: expected one text, got {type(prompt).__name__}; call it for each")
    return model.reader.with_images(prompt, image)


def conversation(model: ModelBase, messages: Sequence[Mapping[str, JsonValue]], image: Images = None) -> Tokens:
    """The ids of a conversation in the model's own template, up to where its answer begins, and its pictures."""
    from clearhead.text.chat import render

    template = model.tokenizer.chat_template
    if template is None:
        raise UserError("chat: expected a chat template with the tokenizer, got none; try generate")
    text = render(template, messages, add_generation_prompt=True, special=model.tokenizer.special_tokens)
    return model.reader.with_images(text, image, encode=model.tokenizer.encode)


def continued(
    model: ModelBase,
    prompt: Tokens,
    config: GenerationConfig,
    stop: Sequence[str],
    draft: ModelBase | str | None = None,
) -> Following[str]:
    """Generates the pieces after a prompt, up to the first of the stop strings."""
    if model.network.decoder is None or model.network.encoder is not None:
        raise UserError(f"generate: expected a decoder-only model, got one with an encoder; {remedy(model)}")
    if "" in stop:
        raise UserError("stop: expected strings that are not empty, got an empty one; leave it out")
    if prompt.pictures is not None and draft is not None:
        raise UserError("draft: expected a prompt of text alone, got one with a picture; leave it out")
    config = config.model_copy(update={"beams": 1, "n_best": 1}).with_ids(
        start_id=None, end_id=model.tokenizer.eos_id, pad_id=None
    )
    events = generate(model.network, model.here(prompt), config=config, draft=draft_of(model, draft), scored=False)
    tokens = (int(event.tokens[0, 0]) for event in events if isinstance(event, Step))
    written = itertools.takewhile(lambda token: token not in config.end_ids, tokens)
    return Following(Detokenizer(model.tokenizer, prompt.ids[0].tolist(), stop).pieces(written), events.paths)


def remedy(model: ModelBase) -> str:
    """The remedy if a model does not have a method: the one to try instead."""
    if model.network.decoder is None:
        return "try embed or logits"
    if model.reader.reads_sounds:
        return "try transcribe"
    return "try translate" if model.is_encoder_decoder else "try generate"


def draft_of(model: ModelBase, draft: ModelBase | str | None) -> Draft | None:
    """The draft that guesses the tokens of `model`.

    Raises UserError unless it is "lookup" or a model of the same vocabulary.
    """
    if draft is None or draft == "lookup":
        return draft
    if isinstance(draft, str):
        raise UserError(f'draft: expected a model or "lookup", got {draft!r}; try clearhead.load({draft!r})')
    check_draft(model.network, draft.network)
    if draft.tokenizer is not model.tokenizer:
        _check_same(model.tokenizer, draft.tokenizer)
    return draft.network


@lru_cache(maxsize=4)
def _check_same(ours: Tokenizer, other: Tokenizer) -> None:
    """Raises UserError, which names the first difference, unless both have the same tokens."""
    mine, theirs = ({i: token for token, i in one.library.get_vocab().items()} for one in (ours, other))
    if mine == theirs:
        return
    n, m = len(mine), len(theirs)
    i = next((i for i in sorted(mine) if mine[i] != theirs.get(i)), n)
    expected = f"token {i} {mine.get(i)!r} as in the model, got {theirs.get(i)!r}"
    if n != m:
        expected += f" ({m:,} tokens, not {n:,})"
    raise UserError(f"draft: expected {expected}; use a draft that was trained with the model's tokenizer")
