"""Questions put to a session as a page puts them, and replies as a page reads them."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from safetensors.torch import load
from torch import Tensor

from clearhead.explorer.session import HANDLERS, Session
from tests.explorer.traced import CONFIGS, inputs, model_of

GENERATE = {"max_new_tokens": 5, "beams": 1, "temperature": 0, "top_k": None, "top_p": None, "seed": 0}


def from_pixels(pixels: Tensor, largest: Tensor) -> Tensor:
    """What pixels stand for, float32."""
    return (pixels.double() / 255 * largest.double()[..., None]).float()


def ask(session: Session, what: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON part and the tensors of a reply. The JSON has the form that the protocol states."""
    content = session.answer({"ask": what, **fields})
    length = int.from_bytes(content[:8], "little")
    reply = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["reply"])
    assert reply.keys() <= HANDLERS[what].reply.__annotations__.keys()
    form_of(what).validate_python(reply)
    return reply, load(content)


@cache
def form_of(what: str) -> TypeAdapter[Any]:
    """The JSON part of the reply to a question."""
    return TypeAdapter(HANDLERS[what].reply)


@cache
def session_of(name: str) -> Session:
    """One of the architectures, opened with its input."""
    model, (first, other) = model_of(CONFIGS[name]), inputs(CONFIGS[name])
    if not isinstance(first, str):
        return Session(model, name=name, image=first)
    return Session(model, name=name, text=first, target=other)


def start(session: Session) -> dict[str, Any]:
    """What the page begins with."""
    return ask(session, "about")[0]["start"]


def last(name: str) -> str:
    """The stack whose states the head reads."""
    return "encoder" if CONFIGS[name].decoder is None else "decoder"
