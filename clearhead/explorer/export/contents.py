"""The contents of an exported file: a small model itself, with which the page computes, or a larger model's answers.

Every part is a reply: JSON and tensors in one safetensors file.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.api.sentences import Sentences
from clearhead.api.variants import changed, position_kinds
from clearhead.config import (
    ClassificationHead,
    LanguageHead,
    ModelConfig,
    NoHead,
    SpanHead,
    TaggingHead,
    TokenInput,
    VectorHead,
)  # fmt: skip
from clearhead.errors import UserError, pasted
from clearhead.explorer.answering.experiments import ProposalQuestion, propose, proposes
from clearhead.explorer.answering.measures import LensQuestion, StatisticsQuestion, lens, statistics
from clearhead.explorer.answering.opened import UNNAMED, Opened, stated
from clearhead.explorer.answering.overview import OverviewQuestion, Part, overview
from clearhead.explorer.answering.questions import Change, EditRequest, OfRun, Reply, RunRequest
from clearhead.explorer.answering.search_tree import GenerateQuestion, GenerateSettings, generate
from clearhead.explorer.answering.values import description, plan_of, vector_weights, worded
from clearhead.explorer.answering.values import run as pass_at_a_glance
from clearhead.explorer.answering.words import tokenized
from clearhead.explorer.export.carried import carried, refusal
from clearhead.explorer.export.held import held_answers, held_circuit
from clearhead.explorer.export.recorded import Answered, answered, splits_likeliest
from clearhead.explorer.static_files import catalogues, static_file
from clearhead.model.assign import merged
from clearhead.model.fast.rounding import RoundedMatrix
from clearhead.model.ops import Op, is_own, op_weights
from clearhead.progress import pieces

LIVE: int = 2_500_000
"""Parameters of the largest model that a file holds."""
PART_BYTES: int = 16 << 20
"""About the size of a part with rounded matrices: a page decodes one at a time."""
SETTINGS = GenerateSettings(max_new_tokens=24)
"""The settings of the text that a file of a larger model contains. They are those that a page begins with."""
ALWAYS = ("about", "run", "values", "statistics")
"""What every file answers."""


@dataclass(frozen=True)
class Contents:
    """The parts of a file by name. `document` describes the others."""

    document: dict[str, Any]
    parts: dict[str, Reply[Any]] = field(default_factory=dict[str, Reply[Any]])


def contents(
    opened: Opened,
    runs: Sequence[RunRequest],
    others: Sequence[RunRequest] = (),
    stops: Sequence[RunRequest] = (),
    *,
    corrupt: RunRequest | None = None,
    languages: Collection[str] = (),
) -> Contents:
    """Everything that a page needs to show these runs without a server; it begins with the first one, without edits.

    The reader may choose the `others` by their texts, and a walk goes through `stops`. `corrupt` is an input against
    which the file holds the circuit of the first run; so is another of the `runs` with as many tokens. For a model
    that the file does not hold, only `runs` have the effect of each head. The page speaks all its languages, or only
    these. Raises UserError if a run cannot be computed or is too large, or if another package computes a part of it.
    """
    head = opened.model.config.head
    _refuse_ops_of_packages(opened.passes.get(runs[0]).recording.ops.values())
    live = is_live(opened)
    runs = [*runs, *([corrupt] if corrupt else _proposed(opened, runs[0]))]
    more = [*others, *(_followed(opened, run) for run in stops)]
    why = refusal(opened, live=live)
    cut = _tokenized(opened, [*runs, *more])
    answers = [*ALWAYS, "effects", "overview"]
    answers += ["lens"] * (not isinstance(head, NoHead | SpanHead | VectorHead)) + ["tokenize"] * (
        opened.model.has_tokenizer and not opened.model.reader.reads_images
    )
    answers += (
        ["check"]
        + ["weights", "neighbours", "qk", "ov"] * live
        + ["patching"] * (live and _patches(opened.model.config))
    )
    splits = not isinstance(head, NoHead | SpanHead) if live else splits_likeliest(opened.model.network)
    answers += ["attribution"] * splits + ["generate"] * (_writing(opened.model) is not None)
    # A reader who chooses another text leaves the target to the file, which has one for each.
    firsts = [RunRequest(text=run.text) for run in (runs[0], *others)] if others else [_settled(opened, runs[0])]
    examples = [stated(run.model_copy(update={"edits": [], "written": None})) for run in firsts]
    known = {name: texts for name, texts in catalogues().items() if name in languages or not languages}
    # A file says that these places need the model. Another model's examples would say that this one lacks them.
    absent = ("example.examples", "example.generation", "example.patching", "example.steering")
    spoken = {
        name: worded({key: text for key, text in texts.items() if key not in absent}, opened.model.config)
        for name, texts in known.items()
    }
    answers += ["texts"] * bool(spoken)
    said: dict[str, Any] = {"history": (), "start": examples[0], "examples": examples, "answers": answers}
    if why is not None:
        said["fixed"] = _command(opened.name)
    if languages:
        said["languages"] = [*spoken]
    if opened.matrices:
        said["dtype"] = f"int{next(iter(opened.matrices.values())).bits}"
    made = Contents({"about": description(opened) | said, "command": _command(opened.name), "tokenized": cut})
    made.parts.update({"texts": Reply[Any](spoken)} if spoken else {})
    if live:
        _live(made, opened, [*runs, *more])
    else:
        _recorded(made, opened, runs, more)
    _held(made, opened, runs, others, corrupt=corrupt)
    return made


def _refuse_ops_of_packages(ops: Iterable[Op]) -> None:
    """A file's page computes in JavaScript, so it knows only the library's own kinds of op."""
    for op in ops:
        if not is_own(op):
            name = op.how if op.op == "activation" else op.op
            raise UserError(
                f"export: expected ops of clearhead's own, got {name!r} at {op.out}, which another package adds; "
                "open the model in the explorer without a file: its server computes it"
            )


def _proposed(opened: Opened, run: RunRequest) -> list[RunRequest]:
    """The run with a second text, if a small model has one: the example of places that compare two."""
    if not is_small(opened) or not proposes(opened):
        return []
    try:
        other, *_ = propose(opened, ProposalQuestion(run=_plain(run))).json["other"]
    except UserError:
        return []
    return [_plain(run).model_copy(update={"text": other, "target": None, "written": None})]


def _command(name: str) -> str:
    """The command or call that opens the model itself."""
    return "model.explore()" if name == UNNAMED else f"clearhead explore {pasted(name)}"


def _patches(config: ModelConfig) -> bool:
    """Returns True if the page's engine can patch the model, which must read tokens and choose among answers."""
    reads = all(isinstance(stack.input, TokenInput) for stack in config.stacks.values())
    return reads and isinstance(config.head, ClassificationHead | LanguageHead | TaggingHead)


def is_live(opened: Opened) -> bool:
    """Returns True if a file holds the model itself: one of texts alone that is small or has 8 or 4 bits."""
    return opened.model.config.pictures is None and (bool(opened.matrices) or is_small(opened))


def is_small(opened: Opened) -> bool:
    """Returns True if a file holds the model's weights as they are."""
    return opened.model.network.n_parameters <= LIVE


def _plain(run: RunRequest) -> RunRequest:
    """The same input without edits and changes."""
    return run.model_copy(update={"edits": [], "change": Change()})


def _settled(opened: Opened, run: RunRequest) -> RunRequest:
    """The same with the target that the model writes if none is given, and with the tokens that it wrote."""
    if run.target is not None:
        return run
    found = opened.passes.get(run)
    if found.target is None:
        return run
    wrote = [token.id for token in found.reading.tokens["decoder"][1:]]
    return run.model_copy(update={"target": found.target, "written": wrote})


def _followed(opened: Opened, run: RunRequest) -> RunRequest:
    """The same with the target that the model writes without the run's edits, as a page asks for it beside that one."""
    plain = _settled(opened, _plain(run))
    return run.model_copy(update={"target": plain.target, "written": plain.written})


def _started(opened: Opened, run: RunRequest) -> RunRequest:
    """The run as a page asks for a text: an encoder-decoder writes its target from the beginning."""
    return run.model_copy(update={"target": None, "written": None}) if opened.model.is_encoder_decoder else run


def _distinct(runs: Sequence[RunRequest]) -> list[RunRequest]:
    return list({run.key: run for run in runs}.values())


def _tokenized(opened: Opened, runs: Sequence[RunRequest]) -> list[dict[str, Any]]:
    """The tokenization of every text and target, if the page cannot cut them itself."""
    model, texts = opened.model, dict[tuple[str, bool], None]()
    if refusal(opened, live=is_live(opened)) is None or not model.has_tokenizer:
        return []
    for run in runs:
        target = _settled(opened, run).target
        texts |= {(run.text, False): None} | ({} if target is None else {(target, model.is_encoder_decoder): None})
    return [
        {"text": text, "target": target, "reply": tokenized(model.tokenizer, text, target=target)}
        for text, target in texts
    ]


# --- the model itself ----------------------------------------------------------------------------------------


def _live(made: Contents, opened: Opened, runs: Sequence[RunRequest]) -> None:
    """The weights, a plan for every change, the texts of all tokens, and the inputs."""
    inputs: list[dict[str, Any]] = []
    pixels: dict[str, Tensor] = {}
    every = _distinct([_settled(opened, _plain(run)) for run in runs])
    for i, run in enumerate(pieces(_seen(opened, every) if opened.matrices else every)):
        reply, found = pass_at_a_glance(opened, OfRun(run=run)).json, opened.passes.get(run)
        part = f"weights-{opened.passes.checkpoints.step if run.step is None else run.step}"
        if part not in made.parts:
            made.parts.update(_weights(part, found.model, opened.matrices))
        said = {name: reply[name] for name in ("tokens", "target", "grid", "notes") if name in reply}
        seen = _overview(opened, run) if opened.matrices else {}
        inputs.append(_keep(made, i, run, seen) | {"weights": part, "reply": {**said, "facts": {}, "words": {}}})
        if (image := found.recording.tensors.get("encoder.embed.pixels")) is not None:
            pixels[f"pixels.{i}"] = image
    made.parts.update({"pixels": Reply[Any]({}, pixels)} if pixels else {})
    if not opened.model.reader.reads_images and refusal(opened, live=True) is None:
        made.parts["tokenizer"] = Reply[Any](carried(opened.model))
    made.parts.update({"webgpu": Reply[Any]({"script": static_file("webgpu.js").decode()})} if opened.matrices else {})
    config = opened.model.config
    held = {"plans": _plans(config, opened.model.sentences), "words": _words(opened), "writing": _writing(opened.model)}
    made.document["live"] = {"inputs": inputs, "is_large": bool(opened.matrices), **held}


def _weights(part: str, model: Model, matrices: Mapping[str, RoundedMatrix]) -> dict[str, Reply[Any]]:
    """Every parameter once, rounded matrices in parts of their own, and the names of those that are shared."""
    first: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    for name, parameter in (op_weights(merged(model.network)) | vector_weights(model.sentences)).items():
        own = first.setdefault(id(parameter), name)
        if own != name:
            same[name] = own
        elif name not in matrices:
            tensors[name] = parameter.detach().float()
    parts: list[dict[str, Tensor]] = []
    for name, matrix in matrices.items():
        pair = {name: matrix.integers.view(torch.uint8), f"{name}.scale": matrix.scale}
        if not parts or sum(tensor.nbytes for tensor in [*parts[-1].values(), *pair.values()]) > PART_BYTES:
            parts.append({})
        parts[-1].update(pair)
    named = {f"{part}-{i}": Reply[Any]({}, one) for i, one in enumerate(parts)}
    facts = {name: {"bits": matrix.bits, "width": matrix.width} for name, matrix in matrices.items()}
    return {part: Reply[Any]({"same": same, "rounded": facts, "parts": list(named)}, tensors), **named}


def _plans(config: ModelConfig, sentences: Sentences) -> list[dict[str, Any]]:
    """The plan of the network for every change of its config that a page can ask for."""
    scales = [True] if changed(config, scale=False) == config else [True, False]
    found: list[dict[str, Any]] = []
    for scale, positions in product(scales, (None, *position_kinds(config)[1:])):
        new = changed(config, scale=scale, positions=positions)
        found.append({"scale": scale, "positions": positions, "plan": plan_of(new, sentences)})
    return found


def _writing(model: Model) -> dict[str, Any] | None:
    """The settings with which the model writes. None if it writes no text, or if the page lacks its rules."""
    settings = model.settings()
    if model.config.decoder is None or not model.config.predicts_tokens or settings.speech is not None:
        return None
    return settings.model_dump(mode="json")


def _words(opened: Opened) -> list[str] | None:
    """The text of every token; None without a tokenizer."""
    model = opened.model
    if not model.has_tokenizer:
        return None
    sizes = [getattr(stack.input, "vocab_size", 0) for stack in model.config.stacks.values()]
    return model.tokenizer.tokens(range(max(sizes)))


# --- the answers of a larger one -------------------------------------------------------------------------------


def _recorded(made: Contents, opened: Opened, runs: Sequence[RunRequest], others: Sequence[RunRequest]) -> None:
    """Each run with and without its edits, and without the head that decides: values that fit, and answers."""
    told: list[dict[str, Any]] = []
    settled = [_settled(opened, run) for run in runs]
    measured = _distinct([*map(_plain, settled), *settled])
    every = [*measured, *(_settled(opened, run) for run in others)]
    can = made.document["about"]["answers"]
    for i, run in enumerate(pieces(_seen(opened, _distinct(every)))):
        found = opened.passes.get(run)
        written: Mapping[str, Any] = {}
        replies: dict[str, Reply[Any]] = {
            "run": pass_at_a_glance(opened, OfRun(run=run)),
            "statistics": statistics(opened, StatisticsQuestion(run=run)),
        }
        if "lens" in can:
            replies["lens"] = lens(opened, LensQuestion(run=run))
        if "generate" in can:
            written = generate(opened, GenerateQuestion(run=_started(opened, run), settings=SETTINGS)).json
        one: Answered = answered(
            found, replies, is_plain=run == _plain(run), measure="effects" in can and run in measured
        )
        parts = one.parts | _overview(opened, run)
        told.append(_keep(made, i, run, parts) | {"written": written, **one.told})
    made.document["recorded"] = told


def _heads(opened: Opened, run: RunRequest) -> Any:
    return overview(opened, OverviewQuestion(run=_plain(run), part="heads")).json


def _seen(opened: Opened, runs: Sequence[RunRequest]) -> list[RunRequest]:
    """These runs, and each without edits also without the head or words that decide its answer."""
    found = [*runs]
    for run in runs:
        if not run.edits:
            heads = _heads(opened, run)
            decided = heads["decided"]
            sites = decided["part"]["at"] if "part" in decided else [heads["at"][decided["head"]]]
            found.append(run.model_copy(update={"edits": [EditRequest(at=site, do="zero") for site in sites]}))
    return found


def _keep(made: Contents, i: int, run: RunRequest, parts: Mapping[str, Reply[Any]]) -> dict[str, Any]:
    """Adds parts of a run, and says where they are."""
    made.parts.update({f"{name}-{i}": reply for name, reply in parts.items()})
    return {"run": stated(run), "parts": {name: f"{name}-{i}" for name in parts}}


def _overview(opened: Opened, run: RunRequest) -> dict[str, Reply[Any]]:
    """The overview of a run by part, at the position that decides most without its edits."""
    place = _heads(opened, run)["position"] if run.edits else None
    asked = (OverviewQuestion(run=run, position=place, part=part) for part in get_args(Part))
    return {f"overview.{one.part}": overview(opened, one) for one in asked}


# --- what needs the model in Python ------------------------------------------------------------------------------


def _held(
    made: Contents,
    opened: Opened,
    runs: Sequence[RunRequest],
    others: Sequence[RunRequest],
    *,
    corrupt: RunRequest | None,
) -> None:
    """The features of each text, and the circuit of the first run against each other that can be compared with it."""
    texts, more = ([_settled(opened, _plain(run)) for run in some] for some in (runs, others))
    found = [held_answers(opened, run) for run in _distinct([*texts, *more])]
    for other in _distinct(texts)[1:]:
        is_asked = corrupt is not None and (other.text, other.image) == (corrupt.text, corrupt.image)
        found.append(held_circuit(opened, texts[0], other, is_small=is_small(opened), is_asked=is_asked))
    about, held = made.document["about"], list[dict[str, Any]]()
    for i, one in enumerate(one for one in found if one is not None):
        made.parts[f"held-{i}"] = one.reply
        held.append({**one.told, "part": f"held-{i}"})
        about["answers"] += [ask for ask in one.told["asks"] if ask not in about["answers"]]
        if "corrupt" in one.told:
            about.setdefault("corrupt", one.told["corrupt"]["text"])
    made.document["held"] = held
