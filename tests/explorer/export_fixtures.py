"""Exported files, and what Python answers where they must: NAME.html, NAME.json and NAME-I.safetensors in a folder."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from clearhead.analysis.features import Features, Site
from clearhead.api import Model
from clearhead.api.features import attach
from clearhead.errors import UserError
from clearhead.explorer import static_files
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export import contents as baking
from clearhead.explorer.export.held import EDGES, EDGES_LARGE
from clearhead.explorer.export.page import ESCAPE, FIRST, Format, html_of, rounded_model
from clearhead.explorer.session import Session
from tests.explorer.asking import ask, last, session_of
from tests.explorer.traced import CONFIGS, inputs, model_of

Json = dict[str, Any]
TYPED = "six  strange five four four"
OTHER, ALIKE = "one four five one", "one six three four five two"
"""A text of another length than the one that a file begins with, and one of as many tokens; TYPED is in no file."""
WITH_CIRCUITS = ("encoder_decoder_relative", "decoder_rotary_grouped", "encoder_states")
NEAR, ROUNDED = 1e-4, 4e-3
"""How far numbers may be off, as a share of the largest: float32 summed otherwise, and float16."""


ROUNDED_MODELS: dict[str, Format] = {
    "encoder_decoder_relative": "int8", "decoder_rotary_grouped": "int4", "encoder_classifier": "int8",
}  # fmt: skip


@contextmanager
def too_large() -> Iterator[None]:
    """Every model is, to go along."""
    before, baking.LIVE = baking.LIVE, 0
    try:
        yield
    finally:
        baking.LIVE = before


@contextmanager
def page_in(folder: Path) -> Iterator[None]:
    """A page in place of the built one, which may not be built."""
    folder.mkdir()
    for name in static_files.FILES:
        (folder / name).write_text("export {};" if name.endswith(".js") else "", encoding="utf-8")
    before, static_files.STATIC = static_files.STATIC, folder
    try:
        yield
    finally:
        static_files.STATIC = before


def bytes_of(text: str) -> bytes:
    """What a part holds, which is base64 or two bytes a character."""
    if ord(text[0]) < FIRST:
        return base64.b64decode(text)
    found, padding, *units = bytearray(), *map(ord, text)
    given = iter(units)
    for unit in given:
        number = unit if unit != ESCAPE else next(given) - FIRST
        found += (number if unit != ESCAPE or number < FIRST else number + 0xD700).to_bytes(2, "little")
    return bytes(found[: len(found) - (padding - FIRST)])


def parts_of(html: str) -> dict[str, tuple[Any, dict[str, Tensor]]]:
    """The JSON and the tensors of every part of a file."""
    found: dict[str, tuple[Any, dict[str, Tensor]]] = {}
    for name, text in re.findall(r'<script type="application/octet-stream" id="clearhead-([^"]+)"[^>]*>([^<]*)', html):
        content = gzip.decompress(bytes_of(text))
        length = int.from_bytes(content[:8], "little")
        found[name] = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["reply"]), load(content)
    return found


def write(folder: Path) -> None:
    """All of them, and `exports.json` with their names; besides `numbers.html`, of a model without a tokenizer."""
    with page_in(folder / "static"):
        names = [written for name in CONFIGS for written in _both(folder, name)]
        names += _featured(folder)
        names += [_rounded(folder, name, live) for name, live in ROUNDED_MODELS.items()]
        trained = session_of("decoder_pre_learned").model
        numbers = Session(Model(trained.network, None, trained.generation), name="numbers")
        (folder / "numbers.html").write_bytes(html_of(numbers, numbers.start))
    (folder / "exports.json").write_text(json.dumps(names), encoding="utf-8")


def _both(folder: Path, name: str) -> list[str]:
    """The architecture as a small model, and as if it were a large one."""
    session = session_of(name)
    corrupt = RunRequest(text=ALIKE) if name in WITH_CIRCUITS else None
    held = html_of(session, session.start, other_of(session), corrupt=corrupt)
    questions = live_questions(name, session) + circuit_questions(session, corrupt) + typed_questions(name, session)
    _write(folder / f"{name}_live", held, session, questions)
    with too_large():
        html = html_of(session, session.start, corrupt=corrupt)
        few = circuit_questions(session, corrupt, most=EDGES_LARGE)
    _write(folder / f"{name}_large", html, session, large_questions(name, session) + few)
    return [f"{name}_live", f"{name}_large"]


def _featured(folder: Path) -> list[str]:
    """A model with features, small and as if it were large."""
    given, at = session_of("decoder_pre_learned"), "decoder.blocks.0.resid_post"
    model = model_of(CONFIGS["decoder_pre_learned"])
    sizes = torch.randn(16, 40), torch.zeros(40), torch.randn(40, 16), torch.zeros(16)
    attach(model.network, Features(Site(at, at), *sizes, k=6))
    session = Session(model, name="decoder_featured", text=given.start.text)
    run = plain(session)
    questions: list[tuple[Json, float]] = [
        ({"ask": "features", "run": run, "at": f"{at}.features", "position": t, "k": 12, "also": []}, NEAR)
        for t in range(3)
    ]
    for large in (False, True):
        with too_large() if large else nullcontext():
            html = html_of(session, session.start)
        _write(folder / f"decoder_featured_{'large' if large else 'live'}", html, session, questions)
    return ["decoder_featured_live", "decoder_featured_large"]


def other_of(session: Session) -> RunRequest | None:
    """A second text that the file holds, of a model that can be patched from one text to another."""
    head, reads = session.model.config.head.kind, session.model.reader
    patches = head in ("language", "classification", "tagging") and not reads.reads_images
    return RunRequest(text=OTHER) if patches else None


def circuit_questions(session: Session, corrupt: RunRequest | None, most: int = EDGES) -> list[tuple[Json, float]]:
    """A circuit as a page asks for it: where it begins and where the texts differ, its strongest edge and another."""
    if corrupt is None:
        return []
    run, kind = plain(session), session.model.config.head.kind
    each = kind in ("language", "tagging")
    base = {"run": run, "corrupt": {**run, "text": corrupt.text}}
    n = len(ask(session, "run", run=run)[0]["tokens"].get("decoder", [])) or 1
    places = [{"position": n - 1}] if each else [{}]
    places += [{"position": 1}] * (each and not session.model.is_encoder_decoder)
    found: list[Json] = []
    for place in places:
        asked = {**base, **place}
        found += [{"ask": "circuits", **asked}, {"ask": "edges", **asked, "steps": 0, "most": most}]
        reply = ask(session, "edges", **asked, steps=0, most=most)[0]
        edges, total = reply["edges"], reply["total"]
        sizes = (10, -(-total // 2))  # The smallest and the largest circuit that a page measures.
        found += [{"ask": "faithfulness", **asked, "steps": 0, "share": size / total} for size in sizes]
        found += [
            {"ask": "edge", **asked, "steps": 0, "terms": 8, **{side: edges[i][side] for side in ("writer", "reader")}}
            for i in (0, 40)
        ]
    return [(question, NEAR) for question in found]


def patching_questions(name: str, session: Session) -> list[Json]:
    """Every kind of row of a sweep, between texts of two lengths."""
    if (other := other_of(session)) is None:
        return []
    run, at = plain(session), f"{last(name)}.blocks"
    asked = {"ask": "patching", "clean": run, "corrupt": {**run, "text": other.text}, "minus": 0}
    stack = "encoder" if session.model.is_encoder_decoder else last(name)
    rows = [f"{at}.1.resid_pre", f"{at}.0.attn.out", f"{at}.0.ffn.out", f"{at}.0.attn.z", f"{stack}.blocks.0.resid_pre"]
    rows += [f"{at}.0.cross.z"] * session.model.is_encoder_decoder
    positions = {-1: rows, 1 if session.model.is_encoder_decoder else 4: list[str]()}
    return [
        {**asked, "position": i, "answer": answer, "at": at}
        for i, at in positions.items()
        if (answer := told_apart(session, {**asked, "position": i})) is not None
    ]


def told_apart(session: Session, asked: Json) -> int | None:
    """The first answer whose logits differ enough between the two texts; some random models have none."""
    head: Any = session.model.network.head
    for answer in range(1, head.output.out_features):
        try:
            session.answer({**asked, "answer": answer})
        except UserError:
            continue
        return answer
    return None


def _rounded(folder: Path, name: str, live: Format) -> str:
    """The architecture as if it were a large one, in a few bits."""
    given = session_of(name)
    model, matrices = rounded_model(given.model, live)
    first, other = inputs(CONFIGS[name])
    with too_large():
        session = Session(model, name=name, text=first, target=other, matrices=matrices)
        html = html_of(session, session.start)
    _write(folder / f"{name}_{live}", html, session, live_questions(name, session))
    return f"{name}_{live}"


def _write(file: Path, html: bytes, session: Session, questions: list[tuple[Json, float]]) -> None:
    file.with_suffix(".html").write_bytes(html)
    cases: list[Json] = []
    for i, (question, near) in enumerate(questions):
        reply = file.with_name(f"{file.name}-{i}.safetensors")
        reply.write_bytes(session.answer(question))
        cases.append({"question": question, "reply": reply.name, "near": near})
    file.with_suffix(".json").write_text(json.dumps(cases), encoding="utf-8")


def plain(session: Session) -> Json:
    """As the file begins."""
    start = ask(session, "about")[0]["start"]
    return {**start, "target": ask(session, "run", run=start)[0]["target"]}


def typed_questions(name: str, session: Session) -> list[tuple[Json, float]]:
    """The same of a text that the file does not hold: its target is the one that the model writes, or another."""
    if session.model.reader.reads_images:
        return []
    typed = {**plain(session), "text": TYPED, "target": None}
    target = "vier drei eins zwei" if session.model.is_encoder_decoder else None
    return [({"ask": "run", "run": typed}, NEAR), *live_questions(name, session, {**typed, "target": target})]


def live_questions(name: str, session: Session, run: Json | None = None) -> list[tuple[Json, float]]:
    about, at = ask(session, "about")[0], f"{last(name)}.blocks"
    run = run or plain(session)
    runs = [run]
    runs.append({**run, "edits": [
        {"at": f"{at}.0.attn.z[h=1]", "do": "zero"},
        {"at": f"{at}.0.attn.masked[h=0,t=2,s=0]", "do": "close"},
        {"at": f"{at}.1.attn.weights[h=2,t=1]", "do": "set", "value": 0.25},
        {"at": f"{at}.1.ffn.pre[f=3]", "do": "scale", "value": -2},
        {"at": f"{at}.1.attn.z[h=3]", "do": "mean"},
    ]})  # fmt: skip
    runs += [{**run, "change": {"scale": False}}] if about["changes"]["scale"] else []
    runs += [{**run, "change": {"positions": kind}} for kind in about["changes"]["positions"][1:]]
    runs.append({**run, "edits": [{"at": f"{at}.1.attn.z[h=0]", "do": "patch", "from": runs[-1]}]})
    parts = [*(f"{at}.0.attn.z[h={h}]" for h in range(4)), f"{at}.1.ffn.post[f=7]"]
    found: list[Json] = []
    for one in runs:
        facts = ask(session, "run", run=one)[0]["facts"]
        found += [{"ask": "run", "run": one}, {"ask": "values", "run": one, "at": list(facts)}]
    for one in runs[:2] * _adds(session):
        shares = {"ask": "attribution", "run": one, "position": 2, "logit": 1}
        found += [shares, {**shares, "minus": 0}]
    found += [question for one in runs[:2] for question in score_questions(name, session, one)]
    for one in runs[:2]:
        found.append({"ask": "check", "run": one})
        found.append({"ask": "statistics", "run": one, "at": [f"{at}.1.attn.weights"]})
        found += [{"ask": "lens", "run": one, "k": 3}] * _has_lens(session)
        found.append({"ask": "effects", "run": one, "at": parts})
        found += [{**found[-1], "logit": 1}] * (about["plan"]["config"]["head"]["kind"] == "classification")
    found += [{"ask": "effects", "run": run, "at": parts[:2], "position": 2}] * _has_head(session)
    found += overview_questions(session, run)
    found.append({"ask": "weights", "at": [f"{at}.1.ffn.up.weight[i=3]", f"{at}.0.attn.q.weight"]})
    found[-1]["at"] += ["head.output.weight"] * _has_head(session)
    found += written_questions(name, run)
    found += [] if session.matrices else patching_questions(name, session)
    if about["kind"] != "image":
        ids = {"ask": "neighbours", "run": run, "stack": last(name), "k": 4}
        found += [{**ids, "of": {"id": 5}}, {**ids, "of": {"at": f"{at}.1.resid_post[t=2]"}}]
        width = about["plan"]["config"][last(name)]["d_model"]
        found.append({**ids, "of": {"numbers": [(-1.0) ** i * (i + 1) for i in range(width)]}})
        found.append({"ask": "tokenize", "text": run["text"], "target": False})
    return [(question, NEAR) for question in found]


def overview_questions(session: Session, run: Json) -> list[Json]:
    """The overview as a page asks for it, and without the head or words that decide."""
    heads, _ = ask(session, "overview", run=run, part="heads")
    sites = heads["decided"].get("part", {}).get("at") or [heads["at"][heads["decided"]["head"]]]
    off = {**run, "edits": [{"at": site, "do": "zero"} for site in sites]}
    parts = [(one, part) for one in (run, off) for part in ("curves", "lanes", "ffn")]
    place = {"position": heads["position"]}
    return [{"ask": "overview", "run": run, "part": "heads"}] + [
        {"ask": "overview", "run": one, "part": part, **place} for one, part in parts
    ]


def score_questions(name: str, session: Session, run: Json) -> list[Json]:
    """Why heads of each attention look somewhere, in the first layer too, and what they carry to a logit."""
    parts = [f"{last(name)}.blocks.0.attn", f"{last(name)}.blocks.1.attn"]
    parts += [f"{last(name)}.blocks.1.cross", "encoder.blocks.1.attn"] * session.model.is_encoder_decoder
    found = [{"ask": "qk", "run": run, "at": f"{at}.scores[h={h},t=2,s=1]", "k": 6} for at in parts for h in (1, 2)]
    if _adds(session):
        ov = [{"ask": "ov", "run": run, "at": f"{at}.weights[h=3,t=2,s=1]", "logit": 1} for at in parts]
        found += [question for one in ov[:3] for question in (one, {**one, "minus": 0})]
    return found


def written_questions(name: str, run: Json) -> list[Json]:
    """Texts of a model that writes: greedy, sampled, and by beams; with edits that can be made while it does."""
    if CONFIGS[name].decoder is None:
        return []
    other, at = run, "decoder.blocks"
    run = {**run, "target": None} if CONFIGS[name].encoder else run
    edits = [
        {"at": f"{at}.0.attn.z[h=1]", "do": "zero"},
        {"at": f"{at}.1.attn.k[h=0,s=1]", "do": "scale", "value": 3},
        {"at": f"{at}.1.attn.weights[h=2,t=2,s=0]", "do": "set", "value": 0.5},
        {"at": f"{at}.1.ffn.out[t=1]", "do": "patch", "from": other},
        {"at": f"{at}.1.attn.z[h=3]", "do": "mean"},
    ]
    settings = [{}, {"temperature": 1.3, "top_p": 0.9, "top_k": 12, "seed": 7}, {"beams": 3, "length_penalty": 0.7}]
    plain = {"max_new_tokens": 6, "beams": 1, "temperature": 0, "top_k": None, "top_p": None, "seed": 0}
    asked = [{"ask": "generate", "run": run, "settings": {**plain, **one}} for one in settings]
    return [*asked, {**asked[0], "run": {**run, "edits": edits}}, {**asked[2], "run": {**run, "edits": edits}}]


def large_questions(name: str, session: Session) -> list[tuple[Json, float]]:
    run, at = plain(session), f"{last(name)}.blocks"
    found: list[tuple[Json, float]] = [({"ask": "statistics", "run": run, "at": []}, 0.0)]
    shares = [f"{at}.{i}.attn.{value}[h=2]" for i in (0, 1) for value in ("q", "scores", "weights", "z")]
    found.append(({"ask": "values", "run": run, "at": shares}, ROUNDED))
    found.append(({"ask": "check", "run": run}, 0.0))
    if _has_lens(session):
        found.append(({"ask": "lens", "run": run, "k": 3}, 0.0))
    if CONFIGS[name].decoder is not None:
        began = {**run, "target": None} if CONFIGS[name].encoder else run
        settings = {"max_new_tokens": 24, "beams": 1, "temperature": 0, "top_k": None, "top_p": None, "seed": 0}
        found.append(({"ask": "generate", "run": began, "settings": settings}, 0.0))
    if _adds(session) and session.model.config.head.kind == "language":
        ids = [int(i) for i in ask(session, "run", run=run)[1]["output.ids"][2, :2]]
        shares = {"ask": "attribution", "run": run, "position": 2, "logit": ids[0]}
        found += [(shares, NEAR), ({**shares, "minus": ids[1]}, NEAR)]
    found.append(({"ask": "effects", "run": run, "at": [f"{at}.1.attn.z[h={h}]" for h in range(4)]}, NEAR))
    found += [(question, 0.0) for question in overview_questions(session, run)]
    if _has_head(session):
        for h in (0, 3):
            off = {**run, "edits": [{"at": f"{at}.1.attn.z[h={h}]", "do": "zero"}]}
            found.append(({"ask": "run", "run": off}, ROUNDED))
            found.append(({"ask": "values", "run": off, "at": [f"{at}.1.attn.weights", f"{at}.1.attn.z"]}, ROUNDED))
    return found


def _adds(session: Session) -> bool:
    """Whether a logit is a sum of what each part wrote."""
    head = session.model.config.head
    return _has_lens(session) and not any(getattr(head, name, None) for name in ("transform", "pooler", "soft_cap"))


def _has_head(session: Session) -> bool:
    return session.model.config.head.kind != "none"


def _has_lens(session: Session) -> bool:
    return session.model.config.head.kind not in ("none", "span")
