"""`clearhead serve`."""

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Literal

from clearhead.cli.options import Device, Flag, Int4, Int8, Named, Repeated, Revision, check_positive, tell
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.serve.batches import Predictor, Translator
    from clearhead.serve.engine import Engine
    from clearhead.serve.service import Does, Service

KEY = "CLEARHEAD_API_KEY"
EXAMPLES: "dict[Does, dict[str, object]]" = {
    "complete": {"prompt": "Once upon a time", "max_tokens": 32},
    "translate": {"text": "A man is riding a bike."},
    "embed": {"input": ["A text."]},
    "predict": {"inputs": ["A text."]},
}
"""What a client may ask of each kind of model."""
LAST_TURN = 0.2
"""Seconds that the network has at the end to finish its work."""


def serve(
    model: Named,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    slots: int = 32,
    queue: int = 256,
    max_length: int = 4096,
    prefix_cache: int = 512,
    edit: Repeated = (),
    draft: str | None = None,
    deterministic: Flag = False,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    revision: Revision = None,
    device: Device = "cpu",
) -> None:
    """Serve a model over HTTP with the API of OpenAI's completions: many requests at once, streamed on request.

    A language model has /v1/completions, and /v1/chat/completions with a chat template; a translator has /translate; a
    model that embeds has /v1/embeddings; any other has /v1/predict.
    Prints the address and a request to try; Ctrl-C ends it. With --host 0.0.0.0 other machines can connect; they need
    the key in the environment variable CLEARHEAD_API_KEY. docs/serving.md has every field.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        slots: Texts that are generated at once.
        queue: Prompts that wait at most; further requests are refused until there is room.
        max_length: Tokens of a prompt with its continuation at most; fewer where the model's positions end.
        prefix_cache: Megabytes for keys and values of earlier texts, so that a prompt that begins like one of them
            reads only the rest; 0 for none.
        edit: Directions of `clearhead steer make` that requests may name: FILE, named as the file is, or NAME=FILE.
        draft: Smaller model with the same vocabulary, or lookup for the text itself, that guesses the next tokens
            of a text that is alone: the same text, written faster.
        deterministic: Give every request the same answer to the bit, whoever else asks: each text is computed apart,
            which is slower where many ask.
        dtype: Type to compute in (default: that of the weights).
    """
    from clearhead.api import load
    from clearhead.cli.failures import leave_unless
    from clearhead.cli.look.steering import named_directions
    from clearhead.cli.use.translate import load_draft
    from clearhead.machine.device import keep_freed_memory
    from clearhead.serve.server import Routes, application
    from clearhead.serve.service import Service
    from clearhead.web import answering, listen, wait

    key = known_key(host)
    check_positive(slots=slots, queue=queue, max_length=max_length)
    if deterministic and draft is not None:
        raise UserError(
            "--deterministic: expected no --draft beside it, because how many tokens a draft guesses depends on time;"
            " leave one of them out"
        )
    if deterministic and int8:
        raise UserError(
            "--deterministic: expected no --int8 beside it, because time chooses its product; leave one out"
        )
    if prefix_cache < 0:
        raise UserError(f"--prefix-cache: expected 0 or more megabytes, got {prefix_cache}; 0 keeps nothing")
    with listen(port, host=host) as listener:
        port = listener.getsockname()[1]
        keep_freed_memory()
        opened = load(model, revision=revision, dtype=dtype, device=device, int8=int8, int4=int4)
        service = Service(
            opened,
            model.rstrip("/") or model,
            slots=slots,
            max_length=max_length,
            edits=named_directions(edit),
            draft=load_draft(draft, device=device),
        )
        worker = worker_of(service, queue=queue, prefix_cache=prefix_cache, is_deterministic=deterministic)
        url = f"http://{host}:{port}"
        worker.start()
        running = answering(application(Routes(service, worker), key=key), listener, name="serve")
        try:
            print(url, flush=True)
            tell(f"Serving {service.name}. Ctrl-C ends it. Try:\n{example(service, url, keyed=key is not None)}")
            wait(running.ended)
        finally:
            try:
                worker.end()  # Before the server, because its open requests wait for the worker.
                running.stop()
                worker.thread.join(LAST_TURN)
            finally:
                leave_unless(running.ended.is_set() and not worker.thread.is_alive())


def known_key(host: str) -> str | None:
    """The key that clients must send, if any.

    Raises UserError for a key that no header can hold, and for other machines without a key.
    """
    from clearhead.web import LOOPBACK

    key = os.environ.get(KEY)
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        got = "an empty one" if not key else "blanks alone" if key.isspace() else "blanks or other characters in it"
        raise UserError(f"{KEY}: expected visible ASCII characters, got {got}; set another key, or unset it for none")
    if key is None and not LOOPBACK.fullmatch(host):
        raise UserError(f"host: expected 127.0.0.1, got {host} without a key; set {KEY} to what clients must send")
    return key


def worker_of(
    service: "Service", *, queue: int, prefix_cache: int = 0, is_deterministic: bool = False
) -> "Engine | Translator | Predictor":
    """The worker for a model. `prefix_cache` is in megabytes."""
    from clearhead.generation.settings import searching
    from clearhead.serve.batches import Predictor, Translator
    from clearhead.serve.engine import Engine

    model = service.model
    sizes = {"most_waiting": queue} | ({"at_once": 1} if is_deterministic else {})
    if service.does in ("predict", "embed"):
        return Predictor(model, service.task, **sizes)
    if service.does == "translate":
        return Translator(model, searching(model.generation, {}), **sizes)
    return Engine(
        model.network,
        model.tokenizer,
        slots=service.slots,
        most_cells=service.max_length,
        most_waiting=queue,
        prefix_bytes=prefix_cache * 1_000_000,
        draft=service.draft,
        is_deterministic=is_deterministic,
    )


def example(service: "Service", url: str, *, keyed: bool) -> str:
    """An example of a command that asks the server."""
    from clearhead.api.predicting import reads_pairs
    from clearhead.serve.service import ROUTES

    asked = EXAMPLES[service.does]
    if service.does == "complete":
        asked = {"model": service.name, **asked}
    if service.task and service.task.pair and reads_pairs(service.model, service.task):
        asked = {"inputs": [dict(zip(service.task.pair, ("Who?", "A text."), strict=True))]}
    path = ROUTES[service.does][1]
    bearer = f' -H "Authorization: Bearer ${KEY}"' if keyed else ""
    return f"curl {url}{path}{bearer} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(asked))}"
