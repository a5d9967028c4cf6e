"""Answers with the description of the model, the numbers of a forward pass, and the texts of the page."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from clearhead.analysis.features import Features
from clearhead.api.sentences import Sentences
from clearhead.api.variants import changed, position_kinds
from clearhead.config import ModelConfig, NoHead, PatchInput, TokenInput
from clearhead.data.sentences import senses
from clearhead.errors import UserError
from clearhead.explorer.answering.answers import CheckReply, RunReply, ShapesReply, TextsReply
from clearhead.explorer.answering.opened import Opened, mask_of, stated
from clearhead.explorer.answering.passes import greedy
from clearhead.explorer.answering.questions import Addresses, Asked, OfRun, Reply, Step, check_size
from clearhead.explorer.places import places
from clearhead.explorer.recording.recording import recompute, to_half
from clearhead.explorer.recording.tokens import labels_of
from clearhead.explorer.static_files import catalogues
from clearhead.generation import complete
from clearhead.generation.settings import changed as changed_settings
from clearhead.json_text import parse
from clearhead.model.assign import merged
from clearhead.model.meta import masks_of, ops_of
from clearhead.model.ops import Op, Steps, op_weights
from clearhead.model.sentences import Dense, Dropout, Mode, Pooling, Unit, VectorLayerNorm
from clearhead.model.sentences import Step as SentenceStep
from clearhead.trace import Address, nearest

POOLS: dict[Mode, str] = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""The ways to pool that are one op."""
ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Sigmoid": "sigmoid"}


def vector_ops(config: ModelConfig, sentences: Sentences) -> tuple[Op, ...]:
    """The ops from the states of a network without logits, or from its vector, to `head.unit`, of length 1.

    None for a network with logits, and for a sentence encoder with a step that no op describes.
    """
    if config.has_logits or len(config.stacks) > 1:
        return ()
    to, x = Steps(), ops_of(config)[-1].out
    if isinstance(config.head, NoHead):
        for i, step in enumerate(sentences.steps):
            found = _listed(to, i, step, x)
            if found is None:
                return ()
            x = found
    to.do("head.unit", "unit", x)
    return tuple(to.ops)


def vector_weights(sentences: Sentences) -> dict[str, Tensor]:
    """The parameters of those steps, by the names that the ops use."""
    found: dict[str, Tensor] = {}
    for i, module in enumerate(sentences.modules):
        found |= {f"head.{i}.{name}": tensor for name, tensor in module.weights().items()}
    return found


def _listed(to: Steps, i: int, step: SentenceStep, x: str) -> str | None:
    """Lists the ops of one step on x; returns the address of its result, None if no op describes it."""
    path = f"head.{i}"
    match step:
        case Pooling((mode,), includes_prompt=True) if mode in POOLS:
            return to.do("head.pool", "pool", x, how=POOLS[mode])
        case Dense(residual=False) if step.activation in (*ACTIVATIONS, nn.Identity.__name__):
            names = (f"{path}.linear.weight", *[f"{path}.linear.bias"] * (step.bias is not None))
            x = to.do(f"head.dense.{i}", "linear", x, weights=names)
            how = ACTIVATIONS.get(step.activation)
            return x if how is None else to.do(f"head.act.{i}", "activation", x, how=how)
        case VectorLayerNorm():
            mean = to.do(f"{path}.norm.mean", "mean", x)
            rstd = to.do(f"{path}.norm.rstd", "rstd", x, mean, by={"eps": 1e-5})
            weights = (f"{path}.norm.weight", f"{path}.norm.bias")
            return to.do(f"{path}.norm.out", "norm", x, mean, rstd, weights=weights)
        case Unit() | Dropout():
            return x  # The last op makes it of length 1.
        case _:
            return None


GLOSSARY = "image.glossary"
"""The key of what a language calls the positions of a picture: `tokens: patches, token: patch`."""
SORTED = 32
"""Most numbers of a text for which it is asked whether a model sorts: it takes as many steps."""
KEPT = "image.class_token"
"""The key of a name that the glossary leaves as it is."""
APART = re.compile(r"(error|file|image|lost|made|view|walk|word)\.|\w+\.python$")
"""Texts about tokens themselves, code, and those that have words of their own for pictures."""

Texts = Mapping[str, str]


def worded(texts: Texts, config: ModelConfig) -> dict[str, str]:
    """The catalogue of a language for a model.

    A text `KEY@KIND` takes the place of KEY: KIND is the kind of the head (vector if there are no logits), encoder if
    there is no decoder, or image.
    """
    kinds = [f"@{config.head.kind}" if config.has_logits else "@vector"]
    kinds += ["@encoder"] * (config.decoder is None) + ["@image"] * isinstance(config.first.input, PatchInput)
    own = {key: text for key, text in texts.items() if "@" not in key}
    if "@image" in kinds:
        own = _in_patches(own)
    own |= {f"view.{name}": place.title for name, place in places().items()}
    return own | {key.removesuffix(kind): text for kind in kinds for key, text in texts.items() if key.endswith(kind)}


def _in_patches(texts: Texts) -> dict[str, str]:
    """The texts with the glossary's words. Placeholders and the class token keep their names."""
    words = dict(pair.split(": ") for pair in texts.get(GLOSSARY, "").split(", ") if pair)
    if not words:
        return dict(texts)
    kept = re.escape(texts.get(KEPT, "{"))
    found = "|".join(rf"\b{word}\b" if word.isascii() else word for word in words)
    pattern = re.compile(rf"\{{\w+\}}|{kept}|({found})", re.IGNORECASE)

    def said(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        word = words[match[1].lower()]
        return word.capitalize() if match[1][0].isupper() else word

    return {key: text if APART.match(key) else pattern.sub(said, text) for key, text in texts.items()}


def description(opened: Opened) -> dict[str, Any]:
    """Everything that a page needs to know first, except for the questions that its host answers."""
    model, passes, config = opened.model, opened.passes, opened.model.config
    one = "image" if model.reader.reads_images else next(iter(config.stacks))
    return {
        "name": opened.name,
        "kind": "encoder-decoder" if model.is_encoder_decoder else one,
        "family": model.family,
        "parameters": model.network.n_parameters,
        "dtype": model.network.dtype_name,
        "limits": {name: stack.max_length for name, stack in config.stacks.items()},
        "has_tokenizer": model.has_tokenizer,
        "labels": labels_of(model) or None,
        "mask": mask_of(model),
        "step": passes.checkpoints.step,
        "plan": plan_of(config, model.sentences),
        "history": passes.checkpoints.history(),
        "losses": passes.checkpoints.losses(),
        "compared": opened.compared_name,
        "senses": senses() if model.is_encoder_decoder else [],
        "task": _task(opened),
        "revision": opened.revision,
        "start": stated(opened.start),
        "examples": [stated(example) for example in opened.examples],
        "languages": list(catalogues()) or ["en"],
        "walks": list(opened.walks),
        "features": [
            {"address": one.address, "writes": one.writes, "n": one.n, "source": one.source}
            for one in model.network.attached
            if isinstance(one, Features)
        ],
        "changes": {"scale": changed(config, scale=False) != config, "positions": position_kinds(config)},
        "places": [{"name": name, "title": place.title} for name, place in places().items()],
    }


def _task(opened: Opened) -> str | None:
    """What a model does, if more is known than from its head: "fr" of a translator that `clearhead demo` made, by its
    figures; "sort" of one that writes four rows of numbers in order.
    """
    model = opened.model
    if model.is_encoder_decoder:
        figures = opened.folder / "figures.json" if opened.folder else None
        known = None
        if figures and figures.is_file():
            with suppress(UserError):
                known = parse(figures.read_bytes(), str(figures))
        language = known.get("language") if isinstance(known, dict) else None
        return language if isinstance(language, str) else None
    if model.has_tokenizer or not model.config.continues_texts:
        return None
    given = [int(x) for x in opened.start.text.split() if x.isdecimal()]
    reads, longest = model.config.first.input, model.config.output.max_length or len(given)
    if (
        not isinstance(reads, TokenInput)
        or not 1 < len(given) <= min(longest, SORTED)
        or not all(x < reads.vocab_size for x in given)
    ):
        return None
    rows = [given[i:] + given[:i] for i in range(4)]

    def begins_sorted(n: int) -> bool:
        config = changed_settings(greedy(model), {"max_new_tokens": n})
        written = complete(model.network, rows, config=config, scored=False)
        return all([*best.tokens] == sorted(given)[:n] for (best,) in written)

    return "sort" if begins_sorted(1) and begins_sorted(len(given)) else None


def plan_of(config: ModelConfig, sentences: Sentences) -> dict[str, object]:
    """How the values of a network are computed, and the vector of a sentence encoder of these."""
    ops = [*ops_of(config), *vector_ops(config, sentences)]
    return {
        "config": config.model_dump(mode="json"),
        "ops": [op.model_dump(mode="json", exclude_defaults=True) for op in ops],
        "masks": {name: mask.model_dump(mode="json") for name, mask in masks_of(config).items()},
    }


class TextsQuestion(Asked):
    """Asks for the page's texts in a language."""

    language: Annotated[str, Field(max_length=20)]


def texts(opened: Opened, question: TextsQuestion) -> Reply[TextsReply]:
    """The texts by their keys."""
    known = catalogues()
    if question.language not in known:
        raise UserError(f"language: expected one of {', '.join(known) or 'none'}, got {question.language}")
    return Reply({"texts": worded(known[question.language], opened.model.config)})


def run(opened: Opened, question: OfRun) -> Reply[RunReply]:
    """A pass at a glance: tokens, shapes, attention as pixels, the likeliest answers."""
    found = opened.passes.get(question.run)
    recording = found.recording
    tensors = dict(recording.pixels)
    if recording.output is not None:
        tensors |= {f"output.{name}": value for name, value in vars(recording.output).items()}
    elif "head.logits" in recording.tensors:
        tensors["output.logits"] = recording.tensors["head.logits"]
    is_changed = recording.config != opened.model.config
    facts = {a: fact.model_dump(mode="json", exclude_defaults=True) for a, fact in recording.facts.items()}
    reply = {
        "tokens": {name: [token.model_dump(mode="json") for token in row] for name, row in recording.tokens.items()},
        "facts": facts,
        "words": found.words(recording.output.ids) if recording.output is not None else {},
        "notes": list(found.notes),
        "grid": found.reading.grid,
        "plan": plan_of(recording.config, found.model.sentences) if is_changed else None,
    }
    present = {name: value for name, value in reply.items() if value is not None}
    return Reply(present | {"target": found.target}, tensors)


class ValuesQuestion(OfRun):
    """Asks for recorded numbers, whole or in part."""

    at: Addresses
    dtype: Literal["float32", "float16"] = "float32"


def values(opened: Opened, question: ValuesQuestion) -> Reply[ShapesReply]:
    """The numbers; closed cells are NaN."""
    recording = opened.passes.get(question.run).recording
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        value = recording.value(at)
        value = value.masked_fill(value.isneginf(), float("nan"))
        tensors[at] = to_half(value) if question.dtype == "float16" else value
        check_size(sum(tensor.nbytes for tensor in tensors.values()))
    return _shaped(tensors)


class WeightsQuestion(Asked):
    """Asks for parameters, whole or one row."""

    at: Addresses
    step: Step | None = None


def weights(opened: Opened, question: WeightsQuestion) -> Reply[ShapesReply]:
    """The parameters as float32."""
    model = opened.passes.checkpoint(question.step)
    known = op_weights(merged(model.network)) | vector_weights(model.sentences)
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        where = Address.parse(at)
        if where.path not in known:
            raise UserError(f"{where.path}: expected a parameter, got none{nearest(where.path, known)}")
        weight = known[where.path].detach()
        row = dict(where.index)
        if row and (len(where.index) > 1 or "i" not in row or not 0 <= row["i"] < len(weight)):
            raise UserError(f"{where}: expected no index, or one row from i=0 to i={len(weight) - 1}")
        part = weight[row["i"]] if row else weight
        check_size(4 * part.numel() + sum(tensor.nbytes for tensor in tensors.values()))
        tensors[at] = part.to("cpu").float()
    return _shaped(tensors)


def check(opened: Opened, question: OfRun) -> Reply[CheckReply]:
    """How far every op, evaluated again, is from its recorded value."""
    found = opened.passes.get(question.run)
    return Reply({"check": recompute(found.recording).model_dump(mode="json")})


def _shaped(tensors: Mapping[str, Tensor]) -> Reply[ShapesReply]:
    return Reply({"shapes": {at: list(value.shape) for at, value in tensors.items()}}, tensors)
