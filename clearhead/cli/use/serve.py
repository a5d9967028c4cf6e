"""`clearhead serve`."""

import json
import os
import re
import shlex
from collections.abc import Sequence

from clearhead.api import load
from clearhead.api.predicting import reads_pairs
from clearhead.cli.ending import leave_unless
from clearhead.cli.look.steer import named_directions
from clearhead.cli.options import check_positive, tell
from clearhead.cli.use.translate import load_draft
from clearhead.errors import UserError
from clearhead.generation.settings import searching
from clearhead.machine.device import keep_freed_memory
from clearhead.serve.engine import Engine
from clearhead.serve.predictions import Predictor
from clearhead.serve.server import Routes, application
from clearhead.serve.service import ROUTES, Service
from clearhead.serve.translations import Translator
from clearhead.web import LOOPBACK, answering, listen, wait

KEY = "CLEARHEAD_API_KEY"
LAST_TURN = 0.2
"""Seconds that the network has at the end to finish its work."""


def serve_command(
    name: str,
    *,
    host: str,
    port: int,
    slots: int,
    queue: int,
    max_length: int,
    prefix_cache: int,
    edits: Sequence[str] = (),
    draft: str | None = None,
    deterministic: bool = False,
    dtype: str | None,
    int8: bool = False,
    int4: bool = False,
    revision: str | None,
    device: str,
) -> None:
    """Serves a model until Ctrl-C. Standard output gets one line: the address."""
    key = known_key()
    if key is None and not LOOPBACK.fullmatch(host):
        raise UserError(f"host: expected 127.0.0.1, got {host} without a key; set {KEY} to what clients must send")
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
        model = load(name, revision=revision, dtype=dtype, device=device, int8=int8, int4=int4)
        directions = named_directions(edits)
        guesses = load_draft(draft, device=device)
        service = Service(
            model,
            name.rstrip("/") or name,
            slots=slots,
            max_length=max_length,
            edits=directions,
            draft=guesses,
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


def known_key() -> str | None:
    """The key that clients must send, if any. Raises UserError for one that no header can hold."""
    key = os.environ.get(KEY)
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        got = "an empty one" if not key else "blanks alone" if key.isspace() else "blanks or other characters in it"
        raise UserError(f"{KEY}: expected visible ASCII characters, got {got}; set another key, or unset it for none")
    return key


def worker_of(
    service: Service, *, queue: int, prefix_cache: int = 0, is_deterministic: bool = False
) -> Engine | Translator | Predictor:
    """The worker for a model. `prefix_cache` is in megabytes."""
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


def example(service: Service, url: str, *, keyed: bool) -> str:
    """An example of a command that asks the server."""
    asked: dict[str, object]
    match service.does:
        case "translate":
            asked = {"text": "A man is riding a bike."}
        case "complete":
            asked = {"model": service.name, "prompt": "Once upon a time", "max_tokens": 32}
        case "embed":
            asked = {"input": ["A text."]}
        case "predict":
            pair = service.task.pair if service.task and reads_pairs(service.model, service.task) else None
            asked = {"inputs": [dict(zip(pair, ("Who?", "A text."), strict=True)) if pair else "A text."]}
    path = ROUTES[service.does][1]
    bearer = f' -H "Authorization: Bearer ${KEY}"' if keyed else ""
    return f"curl {url}{path}{bearer} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(asked))}"
