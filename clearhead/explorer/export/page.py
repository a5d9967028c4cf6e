"""One HTML file of an exploration or of translations, which opens without a server and without a network."""

import base64
import copy
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

import numpy as np
import torch
from pydantic import Field, JsonValue

from clearhead.api import Model
from clearhead.config.adapter import Bits
from clearhead.errors import UserError
from clearhead.explorer.answering.answers import ExportReply
from clearhead.explorer.answering.opened import UNNAMED, Opened
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import EditRequest, OfRun, Reply, RunRequest, checked
from clearhead.explorer.export.contents import Contents, contents, is_live
from clearhead.explorer.places import places
from clearhead.explorer.static_files import static_file
from clearhead.model.fast.rounding import RoundedMatrix, rounded
from clearhead.model.linear import refuse_rounded
from clearhead.storage.disk import replace_file

if TYPE_CHECKING:
    from clearhead.data.images import Picture

FIRST, ESCAPE = 0x100, 0x40
"""The first character of a dense text, or those after it, and the one before a character that stands for another."""


def sparse(content: bytes) -> str:
    """Base64: 4 bytes of UTF-8 for 3."""
    return base64.b64encode(content).decode()


def dense(content: bytes) -> str:
    """A character that says whether a zero was added, then one for each two bytes, or two: 2 bytes of UTF-16 each.

    Marks of HTML, control characters and halves of pairs are written as two.
    """
    padding = len(content) % 2
    units = np.frombuffer(content + bytes(padding), "<u2")
    halves = units >= 0xD800
    halves &= units < 0xE000
    bad = np.flatnonzero(halves | (units <= ESCAPE))
    written = np.where(halves, units - 0xD700, units)[bad] + FIRST
    made = np.insert(units, bad + 1, written)
    made[bad + np.arange(len(bad))] = ESCAPE
    return chr(FIRST + padding) + made.tobytes().decode("utf-16-le")


FORMAT = "clearhead-export/1"
Format = Literal["int8", "int4"]
BITS: dict[Format, Bits] = {"int8": 8, "int4": 4}
MOST = 300_000_000
"""Parameters of the largest model that a file can hold: a browser must hold it several times while it opens."""
LARGE = 4 << 20
"""Bytes of a part from which looking for repeats takes long."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · clearhead</title>
<link rel="icon" href="data:,">
</head>
<body>
<div id="app"><p>Opening. If nothing else appears, the file is not whole, or JavaScript is off.</p></div>
<style>{style}</style>
{scripts}
{parts}
</body>
</html>
"""
"""The script is a module, so the browser runs it after it has parsed the whole page. Data blocks never run."""


class ExportQuestion(OfRun):
    """Asks for the page as one file, which begins with `run` and, if it is given, `other` beside it."""

    other: RunRequest | None = None
    stops: Annotated[list[RunRequest], Field(max_length=64)] = Field(default_factory=list[RunRequest])
    """The runs of a walk, which the file answers too."""
    state: Annotated[str, Field(pattern="^#", max_length=2_000_000)] | None = None
    """The fragment that the page begins with."""


def export(opened: Opened, question: ExportQuestion) -> Reply[ExportReply]:
    """The file as tensor `html`, uint8. Raises UserError for a run that cannot be computed or is too large."""
    html = html_of(opened, question.run, question.other, question.stops, state=question.state)
    return Reply(
        {"bytes": len(html), "live": is_live(opened)},
        {"html": torch.frombuffer(bytearray(html), dtype=torch.uint8)},
    )


def html_of(
    opened: Opened,
    run: RunRequest,
    other: RunRequest | None = None,
    stops: Sequence[RunRequest] = (),
    *,
    corrupt: RunRequest | None = None,
    state: str | None = None,
) -> bytes:
    """The file itself. `corrupt` is an input against which it holds circuits, beside `other` if that compares."""
    runs = [run] if other is None else [run, other]
    return page(opened.name, contents(opened, runs, stops=stops, corrupt=corrupt), state or "")


def export_page(
    model: Model,
    text: str | None = None,
    target: str | None = None,
    *,
    path: str | Path,
    name: str | None = None,
    image: "Picture | None" = None,
    edits: Sequence[Mapping[str, JsonValue]] = (),
    corrupt: str | None = None,
    live: Format | None = None,
) -> Path:
    """Writes the explorer on this input as one HTML file, and returns where it is.

    It opens in a browser without a server or a network. The file holds a model of at most 2.5 million parameters, so
    that every edit works; with `live` a larger one, its matrices and token tables in 8 or 4 bits. Without it the file
    holds the answers of a larger model to this input: as it is, with `edits` (such as
    `{"at": "decoder.blocks.0.attn.z[h=1]", "do": "zero"}`), and without each head. `corrupt` is a text of as many
    tokens, against which the file holds the circuit. Raises UserError if the model cannot read the input, or if its
    values are too many for one file.
    """
    model, matrices = (model, None) if live is None else rounded_model(model, live)
    opened = Opened(model, name=name or UNNAMED, text=text, target=target, image=image, matrices=matrices)
    return write(opened, path, edits, corrupt=corrupt)


def rounded_model(model: Model, live: Format) -> tuple[Model, dict[str, RoundedMatrix]]:
    """The model that a file contains, with which the page computes, and its rounded matrices.

    It computes in float32. Raises UserError for a model that is too large for a file, or rounded already.
    """
    refuse_rounded(model.network, "live")
    if model.config.pictures is not None:
        raise UserError("live: expected a model of texts alone, got one that reads pictures within them; leave it out")
    n = model.network.n_parameters
    if n > MOST:
        raise UserError(f"live: expected a model of at most {MOST:,} parameters, got {n:,}; leave it out")
    made = copy.copy(model)
    made.network, matrices = rounded(model.network, BITS[live])
    return made, matrices


def write(
    opened: Opened,
    path: str | Path,
    edits: Sequence[Mapping[str, JsonValue]] = (),
    *,
    corrupt: str | None = None,
) -> Path:
    """Writes the file on the first input, with its edited run beside it. Raises UserError if it cannot be written."""
    run, other, state = opened.start, None, None
    if edits:
        stated = [checked(EditRequest, edit) for edit in edits]
        other = run.model_copy(update={"edits": stated})
        state = fragment(other, {"view": "overview", "side": "b"}, {"edits": list(edits), "image": run.image})
    against = None if corrupt is None else RunRequest(text=corrupt)
    with LOCK:
        replace_file(Path(path), html_of(opened, run, other, corrupt=against, state=state))
    return Path(path)


def fragment(run: RunRequest, place: Mapping[str, str | int], rest: Mapping[str, object] | None = None) -> str:
    """The permalink of a page on a run: where it opens, and the rest of its state (ui/src/state/permalink.ts)."""
    fields: dict[str, str | int] = {"v": "1", "s": run.text, **place}
    if run.target is not None:
        fields["t"] = run.target
    if rest:
        fields["e"] = base64.urlsafe_b64encode(json.dumps(rest).encode()).decode().rstrip("=")
    return "#" + urlencode(fields)


# --- the file ---------------------------------------------------------------------------------------------------


def page(title: str, inside: Contents, state: str = "") -> bytes:
    """The HTML of the explorer, which begins in a state, or else with the overview."""
    computes = any(reply.json.get("rounded") for reply in inside.parts.values())
    scripts = [
        f"{place.source()}\n(globalThis.clearheadPlaces ??= {{}})[{name!r}] = {{ draw }};"
        for name, place in places().items()
    ]
    return document(title, parts_of(inside, dense if computes else sparse), state, computes=computes, scripts=scripts)


def parts_of(inside: Contents, form: Callable[[bytes], str] = sparse) -> dict[str, str]:
    """Every part as text by its name; the first, `data`, is the table of the others."""
    parts = {name: form(packed(reply)) for name, reply in inside.parts.items()}
    sizes = {name: len(text) for name, text in parts.items()}
    return {"data": form(packed(Reply({"format": FORMAT, "parts": sizes, **inside.document}))), **parts}


def document(
    title: str,
    parts: Mapping[str, str],
    state: str = "",
    *,
    computes: bool = False,
    scripts: Sequence[str] = (),
    page: Literal["file", "exercises", "training"] = "file",
) -> bytes:
    """A page with these parts. Its policy loads nothing and allows the page's script and these `scripts` of places.

    A page with a tokenizer has a script that reads with it. One that `computes` may compile WebAssembly and work in the
    background; it is UTF-16, with a mark at its start that says so, because its parts are dense.
    """
    style = inline(static_file("explorer.css" if page == "file" else f"{page}.css"), "style")
    own = ["tokenizers.js"] * any(name.endswith("tokenizer") for name in parts)
    sources = [*map(static_file, [*own, f"{page}.js"]), *map(str.encode, scripts)]
    modules = [inline(text, "script") for text in sources]
    wasm, worker = " 'wasm-unsafe-eval'" * computes, ["worker-src blob:"] * (computes or page == "training")
    hashes = " ".join(map(digest, modules))
    policy = [
        "default-src 'none'", f"script-src {hashes}{wasm}", *worker, f"style-src {digest(style)}",
        "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    names = [' id="clearhead-tokenizers"'] * len(own) + [""] * len(sources)
    elements = "\n".join(
        f'<script type="module"{name}>{text}</script>' for name, text in zip(names, modules, strict=False)
    )
    html = PAGE.format(
        policy="; ".join(policy), title=escape(title), style=style, scripts=elements, parts=blocks(parts, state)
    )
    return html.encode("utf-16" if computes else "utf-8")


def packed(reply: Reply[Any]) -> bytes:
    """Compresses with gzip, reproducibly. Large parts, of weights, are compressed without a search for repeats."""
    content = reply.encode(limited=False)
    strategy = zlib.Z_HUFFMAN_ONLY if len(content) > LARGE else zlib.Z_DEFAULT_STRATEGY
    press = zlib.compressobj(wbits=16 + zlib.MAX_WBITS, strategy=strategy)
    return press.compress(content) + press.flush()


def inline(content: bytes, element: str) -> str:
    r"""The text of a script or style sheet. Strings of a script hold "\x3c" for "<", so that none ends the element."""
    text = content.decode().replace("\r\n", "\n")
    if element == "script":
        return re.sub(r"<(?=/?script)", r"\\x3c", text, flags=re.IGNORECASE)
    if re.search(r"</style", text, re.IGNORECASE):
        raise ValueError("a style sheet that ends its element")
    return text


def digest(text: str) -> str:
    """The name of a script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def blocks(parts: Mapping[str, str], state: str = "") -> str:
    """The parts as elements of a page. The first one says in which state the page begins."""
    first, *others = parts.items()
    return "\n".join([_block(*first, f' data-state="{escape(state)}"'), *(_block(*part) for part in others)])


def _block(name: str, text: str, state: str = "") -> str:
    return f'<script type="application/octet-stream" id="clearhead-{escape(name)}"{state}>{text}</script>'


MOST_TRANSLATIONS = 32
"""Texts in a file that holds the model."""
MOST_RECORDED_TRANSLATIONS = 8
"""Texts in a file that only holds what the model computed of them: up to some megabytes each."""


def export_translations(opened: Opened, runs: Sequence[RunRequest], path: str | Path) -> int:
    """Writes the explorer on the first of these translations. The reader may choose the others by their text.

    Returns how many translations the file holds: the first ones, each source text once. Raises UserError for a model
    without cross-attention, if there is no text, and if the file cannot be written.
    """
    if not opened.model.is_encoder_decoder:
        raise UserError("page: expected an encoder-decoder, whose cross-attention it shows, got a single stack")
    if not runs:
        raise UserError("page: expected at least one text to show, got none; give one")
    by_text: dict[str, RunRequest] = {}
    for run in runs:
        by_text.setdefault(run.text, run)
    first, *others = list(by_text.values())[: MOST_TRANSLATIONS if is_live(opened) else MOST_RECORDED_TRANSLATIONS]
    with LOCK:
        replace_file(Path(path), page(opened.name, contents(opened, [first], others)))
    return 1 + len(others)
