"""Computes the forward passes that a page asks for, each once, and keeps them while there is room."""

import base64
import binascii
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.analysis.passes import inference
from clearhead.api import Model
from clearhead.api.reader import Input
from clearhead.api.steering import direction, pair
from clearhead.api.variants import changed as changed_config
from clearhead.capture.passes import every_address
from clearhead.config import StackName
from clearhead.config.heads import ClassificationHead, TaggingHead
from clearhead.errors import UserError, sizes
from clearhead.explorer.answering.checkpoints import RunCheckpoints
from clearhead.explorer.answering.edits import ResolvedEdit, Window, functions, resolve
from clearhead.explorer.answering.questions import COMPARED, REPLY_BYTES, EditRequest, RunRequest, TextSets
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.recording import Recording, observe
from clearhead.explorer.recording.tokens import ReadInput, labels_of, read, texts_of
from clearhead.explorer.turns import Turns
from clearhead.generation import Finished, Hypothesis, Step, generate
from clearhead.generation.settings import GREEDY, changed
from clearhead.machine.precision import Arithmetic, accurate
from clearhead.model import Tokens
from clearhead.model.linear import shapes
from clearhead.progress import cached
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import Address, Edit, Trace

if TYPE_CHECKING:
    from clearhead.data.images import Picture

URL = re.compile(r"data:image/(?:png|jpeg);base64,", re.ASCII)


def picture_of(image: str | None, examples: "Sequence[Picture]") -> "Picture":
    """The picture that `image` names. Raises UserError if it names none."""
    if image is None:
        raise UserError("image: expected a PNG or JPEG, or example:0, got none; this model reads images")
    if (number := re.fullmatch(r"example:([0-9]{1,9})", image)) is not None:
        if int(number[1]) >= len(examples):
            raise UserError(f"image: expected an example below {len(examples)}, got {number[1]}; send an image")
        return examples[int(number[1])]
    if (start := URL.match(image)) is None:
        raise UserError("image: expected data:image/png;base64,… or data:image/jpeg;base64,…, got another; try a PNG")
    return _decoded(image[start.end() :])


def _decoded(text: str) -> "Picture":
    from PIL import Image

    from clearhead.data.images import load

    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("image: expected base64, got something else; send it again") from None
    with tempfile.TemporaryDirectory() as folder:
        # `load` checks a file and turns it upright.
        path = Path(folder) / "image"
        path.write_bytes(content)
        try:
            found = load(path, n_channels=3, on_white=False, where="image")
        except UserError as error:
            raise UserError(
                replace(error.refusal, field="image") if error.refusal else "image: cannot be read"
            ) from None
    assert isinstance(found, Image.Image)
    return found


LONGEST_WRITTEN = 200
"""The most tokens that a model writes if no target is given."""


@dataclass
class EditedGeneration:
    """A model that continues a text, or writes a target. Use it from one thread that holds the lock."""

    model: Model
    inputs: list[Tokens]
    """One a stack; the decoder of an encoder-decoder begins with its start token."""
    edit: dict[str, Edit]
    window: Window
    left_out: tuple[str, ...] = ()
    """The addresses of edits that cannot be made during generation."""
    best: tuple[Hypothesis, ...] = ()
    """The results, best first; empty before `steps` has ended."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A note about the edits that were left out, if any."""
        if not self.left_out:
            return ()
        return (f"This was written without the edits of {', '.join(self.left_out)}, which need the whole text.",)

    @property
    def prompt(self) -> Tokens:
        """The last input with the vectors of its pictures, so that no trace keeps their maps."""
        with inference(self.model.network):
            return self.model.network.see(self.inputs[-1])

    def steps(self, config: GenerationConfig) -> Iterator[Step]:
        """Generates one step a token."""
        prompt, source = self.prompt, self.inputs[0] if self.model.is_encoder_decoder else None
        self.window.start = 0
        with torch.no_grad(), self.model.tracing(self.edit) if self.edit else nullcontext() as seen:
            for event in generate(self.model.network, prompt, source=source, config=config):
                if isinstance(event, Finished):
                    self.best = tuple(event.hypotheses[0])
                else:
                    if seen is not None:
                        seen._values.clear()  # Nobody reads them, and they would pile up.
                    self.window.start = prompt.grid[1] + event.index
                    yield event

    def logits(self, written: list[int]) -> Tensor:
        """t v: the logits from which each written token was chosen."""
        prompt, network = self.prompt, self.model.network
        self.window.start = 0
        watched = self.model.tracing(self.edit) if self.edit else nullcontext()
        with inference(network), watched:
            memory, cache = network.encode(self.inputs[0]) if network.encoder else None, network.new_cache()
            logits = network.decode(prompt, memory, cache)[:, -1:]
            self.window.start = prompt.grid[1]
            if read := written[:-1]:
                ids = torch.tensor([read], device=logits.device)
                logits = torch.cat([logits, network.decode(Tokens(ids), memory, cache)], 1)
        return logits[0].float()


def greedy(model: Model) -> GenerationConfig:
    """The model's settings, with greedy decoding and at most LONGEST_WRITTEN tokens."""
    settings = model.settings()
    longest = min(settings.max_new_tokens, LONGEST_WRITTEN)
    lengths = {"max_new_tokens": longest, "min_new_tokens": min(settings.min_new_tokens, longest)}
    return changed(settings, GREEDY | lengths)


LOCK = Turns()
"""Held during every computation, because all threads share the kept passes, the modes of networks and the precision of
products.
"""
KEPT_BYTES = 320 << 20
"""Bytes of the kept passes, those used last. The limit is low because fresh memory is slow to get (docs/log)."""
LARGE = 1 << 24
"""The number of parameters from which it pays to probe for faster float32 products."""
LIKELIEST = 20
DEPTH = 8
"""How many runs in a row may be patched from one another."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass with all its values."""

    model: Model
    """The model of the requested checkpoint, with the requested config."""
    reading: ReadInput
    edit: dict[str, Edit]
    edits: Mapping[str, Sequence[EditRequest]]
    """What was asked for, by path."""
    recording: Recording
    target: str | None
    notes: tuple[str, ...]

    @property
    def last(self) -> str:
        """The stack whose states the head reads."""
        return list(self.recording.tokens)[-1]

    def words(self, ids: Tensor) -> dict[str, str]:
        """The texts of ids of the head, each once."""
        numbers: list[int] = ids.unique().tolist()
        if isinstance(self.model.config.head, ClassificationHead | TaggingHead):
            labels = labels_of(self.model)
            return {str(i): labels[i] if labels else str(i) for i in numbers}
        return texts_of(self.model, numbers)

    def __getitem__(self, address: str) -> Tensor:
        """The value as `model.trace` returns it: with the batch axis and in the network's type."""
        return self.recording.value(address)[None].to(next(self.model.network.parameters()))

    def __contains__(self, address: object) -> bool:
        return address in self.recording.tensors


class Passes:
    """A model, the other checkpoints of its run, the variants of its config, and their forward passes."""

    def __init__(
        self, model: Model, folder: Path | None, examples: "Sequence[Picture]", compared: Model | None = None
    ) -> None:
        """`folder` is that of a run or a checkpoint; `examples` are images that a page may ask for by number.
        `compared` is a model of the same architecture and tokens.
        """
        self.model, self.checkpoints, self.examples, self.compared = model, RunCheckpoints(folder), examples, compared
        self._models: LRUCache[Model] = LRUCache(2)
        self._variants: LRUCache[Model] = LRUCache(8)
        self._every: LRUCache[Trace] = LRUCache(8)
        self._passes: LRUCache[Pass] = LRUCache(64, n_bytes=KEPT_BYTES, size=_size)
        self._directions: LRUCache[Tensor] = LRUCache(16)
        self._depth = 0

    def model_of(self, run: RunRequest) -> Model:
        """The model of the requested checkpoint, with the requested config."""
        model = self.checkpoint(run.step)
        if changed_config(model.config, scale=run.change.scale, positions=run.change.positions) == model.config:
            return model
        return self._variants.get(
            self._variant(run), lambda: model.changed(scale=run.change.scale, positions=run.change.positions)
        )

    def checkpoint(self, step: int | None) -> Model:
        """The model after this many steps; the opened one for None. Raises UserError if there is none."""
        if step == COMPARED:
            if self.compared is None:
                raise UserError(f"step: expected a checkpoint, got {step}; try clearhead explore MODEL --compare OTHER")
            return self.compared
        if step is None or step == self.checkpoints.step:
            return self.model
        return self._models.get(str(step), lambda: self.checkpoints.load(step))

    def get(self, run: RunRequest) -> Pass:
        """The requested pass. Raises UserError if it cannot be computed."""
        if self._depth >= DEPTH:
            raise UserError(f"edits: expected runs patched from at most {DEPTH} others in a row, got more; use fewer")
        self._depth += 1
        try:
            return self._passes.get(run.key, lambda: self._made(run))
        finally:
            self._depth -= 1

    def addresses(self, run: RunRequest) -> Trace:
        """Every address with its axes, the batch first."""
        model = self.model_of(run)
        return self._every.get(self._variant(run), lambda: every_address(model, large=True))

    def _variant(self, run: RunRequest) -> str:
        step = self.checkpoints.step if run.step is None else run.step
        return f"{step} {run.change.model_dump_json()}"

    @cached
    def arithmetic(self) -> Arithmetic:
        """Products of large float32 networks are oneDNN's, the faster ones, where these are as exact."""
        network = self.model.network
        sizes = [one.numel() for one in network.parameters() if one.dtype == torch.float32]
        if sum(sizes) < LARGE:
            return Arithmetic("fp32")
        return Arithmetic("fp32", accurate(shapes(network), network.last_stack.device, [])[-1])

    def _read(
        self,
        model: Model,
        text: Input,
        other: str | None = None,
        written: Sequence[int] | None = None,
        image: "Picture | None" = None,
    ) -> ReadInput:
        """What a pass reads. Raises UserError if it is too long, for a text before its tokens are shown."""
        check = partial(check_size, image=image)
        reading = read(model, text, other, written=written, check=check, image=image)
        check_size({name: len(tokens) for name, tokens in reading.tokens.items()})
        return reading

    def given(self, model: Model, run: RunRequest) -> "tuple[Input, Picture | None]":
        """The input of the first stack, and the picture within it."""
        if model.config.pictures is not None:
            return run.text, None if run.image is None else picture_of(run.image, self.examples)
        return (picture_of(run.image, self.examples) if model.reader.processor else run.text), None

    def direction(self, model: Model, of: TextSets, at: str) -> Tensor:
        """The difference of the means of two sets of texts at an address of a model."""
        sets = [
            [pair(text) if model.is_encoder_decoder else text for text in some] for some in (of.positive, of.negative)
        ]
        key = f"{id(model.network)} {at} {of.model_dump_json()}"
        return self._directions.get(key, lambda: direction(model, *sets, at=at).vector)

    def _value(self, run: RunRequest, address: str) -> Tensor:
        return self.get(run).recording.value(address)

    def _made(self, run: RunRequest) -> Pass:
        model = self.model_of(run)
        edits = resolve(run.edits, self.addresses(run).axes) if run.edits else []
        written, notes = self._written(model, run, edits)
        given, image = self.given(model, run)
        target = run.target if written is None or run.target is not None else text_of(model, written)
        reading = self._read(model, given, target, written, image)
        edit: dict[str, Edit] = dict(functions(edits, self._value, direct=partial(self.direction, model)))
        recording = observe(
            model,
            reading,
            edit=edit,
            likeliest=LIKELIEST,
            arithmetic=self.arithmetic,
            every=self.addresses(run),
            before=self._before(run, model, reading),
        )
        return Pass(
            model,
            reading,
            edit,
            _by_path(run.edits),
            recording,
            target,
            (*_untrained(model), *_unknown(model, run), *_prompted(model), *_laid_out(model, reading), *notes),
        )

    def _before(self, run: RunRequest, model: Model, reading: ReadInput) -> tuple[Recording, set[str]] | None:
        """The kept pass of the same input that shares most with the run, and the paths whose edits differ."""
        edits, found = _by_path(run.edits), list[tuple[Recording, set[str]]]()
        for other in self._passes.newest_first():
            inputs = zip(other.reading.inputs, reading.inputs, strict=True)
            is_same = other.model is model and other.reading.tokens == reading.tokens
            if is_same and all(a.ids.equal(b.ids) and _same_pictures(a, b) for a, b in inputs):
                paths = {path for path in {*edits, *other.edits} if edits.get(path) != other.edits.get(path)}
                found.append((other.recording, paths))
        return max(found, key=lambda one: one[0].tensors.first_of(one[1]), default=None)

    def _written(
        self, model: Model, run: RunRequest, edits: Sequence[ResolvedEdit]
    ) -> tuple[list[int] | None, tuple[str, ...]]:
        """The target that the model writes, if the request asks for one, and notes about it."""
        writes = model.is_encoder_decoder and model.config.predicts_tokens
        if run.written is not None:
            if not model.is_encoder_decoder:
                raise UserError("written: expected none, because this model reads one text; leave it out")
            return model.reader.known(run.written, stack=model.config.decoder), ()
        if not writes or run.target is not None:
            return None, ()
        writer = self.writer(model, run, edits)
        ids = [int(step.tokens[0, 0]) for step in writer.steps(greedy(model))]
        return ids[:-1] if ids and ids[-1] in model.settings().end_ids else ids, writer.notes

    def writer(self, model: Model, run: RunRequest, edits: Sequence[ResolvedEdit]) -> EditedGeneration:
        """Generation from the run's text, or of its target, with the edits that it can make."""
        if not model.config.predicts_tokens or model.network.decoder is None:
            raise UserError("generate: expected a model that writes text, got another; try run")
        window = Window()
        possible = [edit for edit in edits if edit.waits]
        left_out = tuple(dict.fromkeys(str(edit.where) for edit in edits if not edit.waits))
        text, image = self.given(model, run)
        first = self._read(model, text, "", []) if model.is_encoder_decoder else self._read(model, text, image=image)
        edit: dict[str, Edit] = dict(functions(possible, self._value, window, direct=partial(self.direction, model)))
        return EditedGeneration(model, first.inputs, edit, window, left_out)


def _by_path(edits: Sequence[EditRequest]) -> dict[str, list[EditRequest]]:
    found: dict[str, list[EditRequest]] = {}
    for edit in edits:
        found.setdefault(Address.parse(edit.at).path, []).append(edit)
    return found


def _same_pictures(a: Tokens, b: Tokens) -> bool:
    both = (a.pictures, b.pictures), (a.grids, b.grids)
    return all(x is y if x is None or y is None else x.equal(y) for x, y in both)


def check_size(lengths: Mapping[StackName, int], image: "Picture | None" = None) -> None:
    """Raises UserError for texts of these lengths if the attention map of a head does not fit into a reply."""
    s = max(lengths.values())
    if 4 * s * s > REPLY_BYTES:
        most, need = sizes(REPLY_BYTES, 4 * s * s)
        remedy = "cut the text" if image is None else "cut the text or give a smaller picture"
        got = f"got {s} tokens, which need {need}; {remedy}"
        raise UserError(f"text: expected one whose attention fits into {most}, {got}")


def text_of(model: Model, ids: Sequence[int]) -> str:
    """The text of these ids; without a tokenizer the ids themselves."""
    return model.tokenizer.decode(ids) if model.has_tokenizer else " ".join(map(str, ids))


def _untrained(model: Model) -> tuple[str, ...]:
    """A note if each norm of a model of sounds is as it began, or drawn with both signs: no training leaves them so."""
    if not model.generation.speech:
        return ()
    norms = [one for name, one in model.network.named_parameters() if name.endswith("norm.weight")]
    is_new = [bool((one == 1).all() or (one < 0).float().mean() > 0.2) for one in norms]
    return ("This model is not trained: its answers mean nothing.",) if norms and all(is_new) else ()


def _unknown(model: Model, run: RunRequest) -> tuple[str, ...]:
    if model.reader.processor and model.config.pictures is None:
        return ()
    if not model.has_tokenizer:
        return ("This model has no tokenizer: texts are the numbers of tokens, such as 5 17 3.",)
    words = model.tokenizer.unknown(run.text)
    return (f"Words without a token of their own: {', '.join(words)}.",) if words else ()


def _laid_out(model: Model, reading: ReadInput) -> tuple[str, ...]:
    """A note on what the page's own arithmetic does not know of a picture: rows and columns, or who sees all of it."""
    seen, tokens = model.config.pictures, reading.inputs[-1]
    if seen is None or tokens.pictures is None:
        return ()
    turned = (
        "q and k of a picture turn by row and column, and the text after it goes on at an earlier place."
        " The page's own steps to q and k count tokens instead."
    )
    whole = f"The tokens of a {seen.sees} attend to later ones of it, too. The page's own step of the mask shuts these."
    return (turned,) * seen.any_size + (whole,) * (seen.sees != "past")


def _prompted(model: Model) -> tuple[str, ...]:
    """A note if `embed` reads more than the text."""
    prompt = model.sentences.prompt(None, None)
    return (f"model.embed puts {prompt!r} before a text. This page reads the text as it is: type it, too.",) * bool(
        prompt
    )


def _size(one: Pass) -> int:
    return one.recording.nbytes
