"""`Session`: a model, and an answer to every question a page asks of it. The questions: ui/src/core/protocol.ts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.api import Model
from clearhead.api.variants import changed, position_kinds
from clearhead.config import ClassificationHead, TaggingHead
from clearhead.errors import UserError
from clearhead.explorer import analyses, codecs, requests, trace_file, words
from clearhead.explorer.edits import nearest
from clearhead.explorer.manifest import Mask
from clearhead.explorer.passes import LOCK, Passes
from clearhead.explorer.replies import Reply, check_size, object_of
from clearhead.explorer.requests import RunRequest
from clearhead.explorer.search_tree import generated
from clearhead.explorer.starts import starts
from clearhead.explorer.static_files import other_texts
from clearhead.explorer.tokens import stack_names
from clearhead.model.assign import merged
from clearhead.model.ops import Op
from clearhead.model.record import masks_of, ops_of
from clearhead.trace import Address

if TYPE_CHECKING:
    from clearhead.data.pictures import Picture

Q = TypeVar("Q", bound=requests.Question)


@dataclass(frozen=True)
class Handler(Generic[Q]):
    """What answers a kind of question."""

    question: type[Q]
    answer: Callable[[Q], Reply]
    locks: bool = True
    """Whether to hold the lock from beginning to end; else it takes it itself, for a while at a time."""


class Session:
    """One model, opened in a page. It remembers no question: each says whole which forward pass it is about."""

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        folder: Path | None = None,
        text: str | None = None,
        target: str | None = None,
        image: "Picture | None" = None,
    ) -> None:
        """`folder` is where the model is from: a run's has a history. The rest is what the page begins with."""
        self.name, self.model = name, model
        self.start, self.examples, pictures = starts(model, folder, text, target, image)
        self.passes = Passes(model, folder, pictures)
        self.handlers: dict[str, Handler[Any]] = {
            "about": Handler(requests.Question, self.about),
            "run": Handler(requests.OfRun, self.run),
            "values": Handler(requests.Values, self.values),
            "weights": Handler(requests.Weights, self.weights),
            "check": Handler(requests.OfRun, self.check),
            "texts": Handler(requests.Texts, self.texts),
            "tokenize": Handler(requests.Tokenize, self.tokenize),
            "effects": Handler(requests.Effects, lambda q: analyses.effects(self.passes, q), locks=False),
            "statistics": Handler(requests.Statistics, lambda q: analyses.statistics(self.passes.get(q.run), q)),
            "lens": Handler(requests.Lens, lambda q: analyses.lens(self.passes.get(q.run), q)),
            "attribution": Handler(requests.Attribution, lambda q: analyses.attribution(self.passes.get(q.run), q)),
            "neighbours": Handler(requests.Neighbours, lambda q: analyses.neighbours_of(self.passes, q)),
            "generate": Handler(requests.Generate, lambda q: generated(self.passes, q)),
            "export": Handler(requests.Export, self.export, locks=False),
        }
        """By what is asked. More may be put here."""

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        """The reply as one safetensors file; UserError, one line, for whatever cannot be answered."""
        ask = question.get("ask") if isinstance(question, Mapping) else None
        if not isinstance(ask, str) or ask not in self.handlers:
            known = ", ".join(self.handlers)
            raise UserError(f"ask: expected one of {known}, got {str(ask)[:40]!r}; try about")
        handler = self.handlers[ask]
        asked = requests.checked(handler.question, question)
        if not handler.locks:
            return handler.answer(asked).encode()
        with LOCK:
            reply = handler.answer(asked)
        return reply.encode()

    # --- what the model is ---

    def about(self, _question: requests.Question) -> Reply:
        """What a page needs before it asks for anything else."""
        model, passes = self.model, self.passes
        config, head = model.config, model.config.head
        both = model.is_encoder_decoder
        one = "image" if model.reader.reads_images else stack_names(config)[0]
        named = head.labels if isinstance(head, ClassificationHead | TaggingHead) else ()
        limits = {"encoder": config.encoder, "decoder": config.decoder}
        return Reply(
            {
                "name": self.name,
                "kind": "encoder-decoder" if both else one,
                "family": model.family,
                "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
                "limits": {name: stack.max_length for name, stack in limits.items() if stack is not None},
                "has_tokenizer": model.has_tokenizer,
                "labels": list(named) or None,
                "step": passes.moments.step,
                "plan": plan(ops_of(config), masks_of(config), config.model_dump(mode="json")),
                "history": passes.moments.history(),
                "losses": passes.moments.losses(),
                "start": stated(self.start),
                "examples": [stated(example) for example in self.examples],
                "answers": list(self.handlers),
                "languages": ["en", *other_texts()],
                "changes": {
                    "scale": changed(config, scale=False) != config,
                    "positions": position_kinds(config),
                },
            }
        )

    # --- a forward pass ---

    def run(self, question: requests.OfRun) -> Reply:
        """The pass at a glance: tokens, shapes, attention as pixels, the likeliest answers."""
        found = self.passes.get(question.run)
        recording, manifest = found.recording, found.recording.manifest
        tensors: dict[str, Tensor] = {}
        for address, value in recording.tensors.items():
            if address.endswith(".weights"):
                pixels, largest = codecs.to_pixels(value.clamp(min=0))
                tensors |= {f"{address}.u8": pixels, f"{address}.max": largest}
        if recording.output is not None:
            tensors |= {f"output.{name}": value for name, value in vars(recording.output).items()}
        elif "head.logits" in recording.tensors:
            tensors["output.logits"] = recording.tensors["head.logits"]
        is_changed = manifest.config != self.model.config
        config = manifest.config.model_dump(mode="json")
        facts = {a: fact.model_dump(mode="json", exclude_defaults=True) for a, fact in manifest.tensors.items()}
        reply = {
            "tokens": {name: [token.model_dump(mode="json") for token in row] for name, row in manifest.tokens.items()},
            "facts": facts,
            "words": found.words(recording.output.ids) if recording.output is not None else {},
            "notes": list(found.notes),
            "grid": found.reading.grid,
            "plan": plan(manifest.ops, manifest.masks, config) if is_changed else None,
        }
        return Reply(object_of(reply) | {"target": found.target}, tensors)

    def values(self, question: requests.Values) -> Reply:
        """Recorded numbers; closed cells are NaN."""
        recording = self.passes.get(question.run).recording
        tensors: dict[str, Tensor] = {}
        for at in question.at:
            value = recording.value(at)
            value = value.masked_fill(value.isneginf(), float("nan"))
            if question.dtype == "float16":
                codecs.to_half(value.nan_to_num())  # Refuses what is beyond its range.
                value = value.half()
            tensors[at] = value
            check_size(sum(tensor.nbytes for tensor in tensors.values()))
        return Reply({"shapes": {at: list(value.shape) for at, value in tensors.items()}}, tensors)

    def check(self, question: requests.OfRun) -> Reply:
        """Every op evaluated again."""
        found = self.passes.get(question.run)
        return Reply({"check": trace_file.recompute(found.recording, found.model.network).model_dump(mode="json")})

    # --- what is fixed ---

    def weights(self, question: requests.Weights) -> Reply:
        """Parameters as float32."""
        network = merged(self.passes.checkpoint(question.step).network)
        known = dict(network.named_parameters(remove_duplicate=False))
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
            tensors[at] = part.to("cpu", torch.float32)
        return Reply({"shapes": {at: list(value.shape) for at, value in tensors.items()}}, tensors)

    def texts(self, question: requests.Texts) -> Reply:
        """The page's texts in another language."""
        known = other_texts()
        if question.language not in known:
            raise UserError(f"language: expected one of {', '.join(known) or 'none'}, got {question.language}")
        return Reply({"texts": known[question.language]})

    def tokenize(self, question: requests.Tokenize) -> Reply:
        """How a text is cut."""
        return Reply(words.tokenized(self.model.tokenizer, question.text, target=question.target))

    def export(self, question: requests.Export) -> Reply:
        """The page as one file."""
        from clearhead.explorer.export import exported  # Which reads sessions.

        return exported(self, question)


def plan(ops: tuple[Op, ...], masks: Mapping[str, Mask], config: object) -> dict[str, object]:
    """How the values of a network come about."""
    return {
        "config": config,
        "ops": [op.model_dump(mode="json", exclude_defaults=True) for op in ops],
        "masks": {name: mask.model_dump(mode="json") for name, mask in masks.items()},
    }


def stated(run: RunRequest) -> dict[str, JsonValue]:
    """A request as a page makes it."""
    return {
        "target": None, "edits": [], **run.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    }  # fmt: skip
