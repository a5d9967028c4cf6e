"""One look inside a model, whole: its values, how each came from others, and the file they are kept in.

A trace is a folder: trace.json (clearhead-trace/1) and safetensors files, one a block, and overview.safetensors with
the attention weights as pixels. It appears whole or not at all, and is read strictly.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead import trace as edits
from clearhead.api import Model
from clearhead.api.reader import Input
from clearhead.brief import brief
from clearhead.config import LanguageHead
from clearhead.errors import UserError, reason
from clearhead.explorer import codecs
from clearhead.explorer.manifest import FORMAT, Check, Edited, Manifest, TensorFact
from clearhead.explorer.ops import masks_of, ops_of
from clearhead.explorer.outputs import Output
from clearhead.explorer.recompute import Difference, differences, evaluated
from clearhead.explorer.tokens import Reading, read, stack_names
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.mode import Evaluating
from clearhead.storage import checkpoints
from clearhead.storage.manifest import verify
from clearhead.storage.tensors import check_finite
from clearhead.trace import Address, Edit
from clearhead.weights.documents import AGAIN, LIMIT, read_json, shown, size_of

TRACE = "trace.json"
OVERVIEW = "overview.safetensors"
MADE_AGAIN = ("heads",)
"""Names of values that a lean recording makes again."""
LIKELIEST = 200
"""How many logits of each position are kept with their ids."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The values of one forward pass by address, float32 and finite, without the batch axis."""

    __repr__ = brief

    manifest: Manifest
    tensors: Mapping[str, Tensor]
    closed: Mapping[str, Tensor]
    """Of tensors that an edit made -inf in places: where, bool; the numbers there are 0."""
    output: Output | None = None
    network: Transformer | None = None
    """What makes values again that are not kept."""

    def value(self, address: str) -> Tensor:
        """As the network saw it. UserError for an address that is not stored."""
        where = Address.parse(address)
        if where.path not in self.manifest.tensors:
            why = self._why_not(where.path)
            raise UserError(f"{where.path}: expected an address of this trace, got {why}; try another")
        value = self.tensors[where.path] if where.path in self.tensors else self._again(where.path)
        if where.path in self.closed:
            value = value.masked_fill(self.closed[where.path], float("-inf"))
        return where.of(value, self.manifest.tensors[where.path].axes)

    def _again(self, path: str) -> Tensor:
        op = next(op for op in self.manifest.ops if op.out == path)
        assert self.network is not None
        return evaluated(op, [self.value(name) for name in op.inputs], self.network)

    def _why_not(self, path: str) -> str:
        op = next((op for op in self.manifest.ops if op.out == path), None)
        return "one that it does not have" if op is None else f"one that is not stored but made by {op.op}"

    def export(self, path: str | Path, model: Model) -> Path:
        """Write the explorer on this text and model as one HTML file: `clearhead.explorer.export.export_recording`."""
        from clearhead.explorer.export import export_recording  # Which reads recordings.

        return export_recording(self, model, path)

    def numbers(self) -> dict[str, Tensor]:
        """The whole numbers that the stacks read, by the names of `ops_of`."""
        found: dict[str, Tensor] = {}
        for stack, tokens in self.manifest.tokens.items():
            found[f"{stack}.ids"] = torch.tensor([token.id for token in tokens])
            found[f"{stack}.types"] = torch.tensor([token.type for token in tokens])
            found[f"{stack}.positions"] = torch.arange(len(self.tensors[f"{stack}.embed.sum"]))
        return found


# --- record ---------------------------------------------------------------------------------------------------


def record(model: Model, text: Input, other: str | None = None, *, edit: Mapping[str, Edit] | None = None) -> Recording:
    """Every value on the way to the logits of one input, edited where asked; each op evaluated again and compared."""
    recording = observe(model, read(model, text, other), edit=edit)
    edited = tuple(_edited(address, one) for address, one in (edit or {}).items())
    about = {"edits": edited, "check": recompute(recording, model.network)}
    return replace(recording, manifest=recording.manifest.model_copy(update=about))


def observe(
    model: Model,
    reading: Reading,
    *,
    edit: Mapping[str, Edit] | None = None,
    likeliest: int = 0,
    lean: bool = False,
) -> Recording:
    """The same of what was read, with no check, and nothing said of the edits.

    `lean` keeps no head's share of its output, which would be most of what is kept: it is made again when asked for.
    UserError where an edit makes a number that is not finite, other than -inf, which closes a cell.
    """
    config = model.config
    with Evaluating(model.network), torch.no_grad(), model.tracing(edit, without=MADE_AGAIN if lean else ()) as seen:
        model.network(*reading.inputs)
    by_hand = frozenset(Address.parse(address).path for address in edit or {})
    values = {a: seen[a][0].float().cpu() for a in seen if a in by_hand or not a.endswith(".masked")}
    axes = {address: seen.axes[address].removeprefix("b ") for address in values}
    if reading.grid is not None:
        values["encoder.embed.pixels"], axes["encoder.embed.pixels"] = reading.inputs[0].ids[0].float().cpu(), "c y x"
    tensors, closed = _finite(values)
    facts = {
        a: TensorFact(shape=tuple(value.shape), axes=axes[a], by_hand=a in by_hand, closed=a in closed)
        for a, value in tensors.items()
    }
    ops = ops_of(config)
    for op in ops:
        if op.op == "project" and op.out not in facts:
            width = len(parameter(model.network, op.weights[0]))
            facts[op.out] = TensorFact(shape=(*tensors[op.inputs[0]].shape[:2], width), axes="h t d")
    manifest = Manifest(
        format=FORMAT, family=model.family, config=config, tokens=reading.tokens, masks=masks_of(config),
        tensors=facts, ops=ops,
    )  # fmt: skip
    is_language = isinstance(config.head, LanguageHead)
    output = Output.of(tensors["head.logits"], likeliest or LIKELIEST) if is_language else None
    return Recording(manifest, tensors, closed, output, model.network)


def _finite(values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The numbers, and the cells that are -inf, whose number is 0."""
    tensors, closed = dict(values), dict[str, Tensor]()
    for address, value in values.items():
        # NaN and infinity make a sum like them; so may many large numbers.
        if bool(value.sum().isfinite()) or bool(value.isfinite().all()):
            continue
        closed[address] = value.isneginf()
        tensors[address] = value.masked_fill(closed[address], 0.0)
        if not bool(tensors[address].isfinite().all()):
            raise UserError(f"{address}: expected finite numbers, got NaN or infinity; try another edit")
    return tensors, closed


def recompute(recording: Recording, network: Transformer) -> Check:
    """How far each op, evaluated from its recorded inputs, is from its recorded output, at most."""
    found = recomputed(recording, network).values()
    weights = [v for a, v in recording.tensors.items() if a.endswith(".weights") and not _by_hand(recording, a)]
    return Check(
        recompute_max_abs=max(one.most for one in found),
        recompute_max_relative=max(one.relative for one in found),
        rows_sum_max_error=max((float((value.sum(-1) - 1).abs().max()) for value in weights), default=0.0),
    )


def recomputed(recording: Recording, network: Transformer) -> dict[str, Difference]:
    """The same for each address. UserError for another network than the one recorded."""
    manifest = recording.manifest
    if network.config != manifest.config:
        raise UserError("trace: expected the network that it was recorded from, got another; try its own model")
    try:
        return differences(
            manifest.ops,
            {address: recording.value(address) for address in recording.tensors},
            by_hand=frozenset(a for a in recording.tensors if _by_hand(recording, a)),
            numbers=recording.numbers(),
            masks=manifest.masks,
            network=network,
        )
    except (RuntimeError, IndexError, ValueError, KeyError) as error:
        raise UserError(f"trace: expected values that fit their ops, got {shown(str(error))}; {AGAIN}") from error


def _by_hand(recording: Recording, address: str) -> bool:
    return recording.manifest.tensors[address].by_hand


def _edited(address: str, edit: Edit) -> Edited:
    if isinstance(edit, int | float):
        if edit == float("-inf"):
            return Edited(at=address, do="close")
        return Edited(at=address, do="set", value=float(edit))
    if isinstance(edit, Tensor):
        return Edited(at=address, do="tensor")
    return Edited(at=address, do="zero" if edit is edits.zero else "mean" if edit is edits.mean else "function")


# --- in and out -----------------------------------------------------------------------------------------------


def save(recording: Recording, folder: Path) -> Path:
    """Write a new folder: whole or not at all. UserError where one is there."""
    blobs: dict[str, dict[str, Tensor]] = {OVERVIEW: {}}
    for address, value in recording.tensors.items():
        blob = blobs.setdefault(_blob(address), {})
        blob[address] = value
        if address in recording.closed:
            blob[f"{address}.closed"] = recording.closed[address].to(torch.uint8)
        if address.endswith(".weights") and not bool((value < 0).any()):
            pixels, largest = codecs.to_pixels(value)
            blobs[OVERVIEW] |= {f"{address}.u8": pixels, f"{address}.max": largest}
    if recording.output is not None:
        blobs[_blob("head")] |= {f"output.{name}": value for name, value in vars(recording.output).items()}
    files = {name: tensors for name, tensors in blobs.items() if tensors}
    return checkpoints.write_folder(folder, checkpoints.Files(files, {TRACE: recording.manifest.to_document()}))


def open(folder: Path) -> Recording:  # noqa: A001 - trace_file.open, as in gzip.open
    """What `save` wrote, every byte verified. UserError, one line, for anything else; it names a file that is gone."""
    verify(folder)
    path = folder / TRACE
    try:
        manifest = Manifest.model_validate(read_json(path, limit=LIMIT))
    except ValidationError as error:
        first = error.errors()[0]
        field = shown(".".join(map(str, first["loc"]))) or "format"
        raise UserError(
            f"{path}:{field}: expected {FORMAT}, got a field where {shown(first['msg'])}; {AGAIN}"
        ) from None
    _check(manifest, path)
    expected: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for address, fact in manifest.tensors.items():
        blob = expected.setdefault(_blob(address), {})
        blob[address] = ("F32", fact.shape)
        if fact.closed:
            blob[f"{address}.closed"] = ("U8", fact.shape)
    is_language = isinstance(manifest.config.head, LanguageHead)
    if is_language:
        t, v = manifest.tensors["head.logits"].shape
        k = min(LIKELIEST, v)
        rows = {"ids": ("I32", (t, k)), "values": ("F32", (t, k)), "lse": ("F32", (t,))}
        expected[_blob("head")] |= {f"output.{name}": what for name, what in rows.items()}
    found: dict[str, Tensor] = {}
    for name, tensors in expected.items():
        found |= _read(folder / name, tensors)
    output = Output(found["output.ids"], found["output.values"], found["output.lse"]) if is_language else None
    closed = {a: found[f"{a}.closed"].bool() for a, fact in manifest.tensors.items() if fact.closed}
    return Recording(manifest, {address: found[address] for address in manifest.tensors}, closed, output)


def slice(  # noqa: A001
    recording: Recording, address: str, dtype: codecs.Codec, **index: int
) -> tuple[bytes, tuple[int, ...]]:
    """The bytes and the shape of a part: a head or a row, as `[h=2,t=0]` in the address or h=2, t=0 say."""
    where = Address.parse(address)
    part = recording.value(str(Address(where.path, (*where.index, *index.items()))))
    if not bool(part.isfinite().all()):
        raise UserError(f"{where}: expected numbers, got cells that an edit closed; try its mask")
    return codecs.encode(part, dtype), tuple(part.shape)


def _blob(address: str) -> str:
    """The file of an address: its block's, the head's, or that of what stands around the blocks."""
    block = re.match(r"(encoder|decoder)\.blocks\.\d+(?=\.)", address)
    part = block[0] if block else "head" if address.partition(".")[0] == "head" else "around"
    return f"{part}.safetensors"


def _check(manifest: Manifest, path: Path) -> None:
    """Nothing, if the ops are those of the config, and the tensors theirs."""
    for stack in filter(None, (manifest.config.encoder, manifest.config.decoder)):
        if (stack.n_heads + stack.head_width) * stack.n_layers > 1 << 20 or stack.n_layers > len(manifest.ops):
            raise UserError(f"{path}:config: expected a network of the size of its ops, got a larger one; {AGAIN}")
    if manifest.ops != ops_of(manifest.config) or manifest.masks != masks_of(manifest.config):
        raise UserError(f"{path}:ops: expected those of the config, got others; try recording it again")
    made = {op.out for op in manifest.ops} | {"encoder.embed.pixels"}
    for address, fact in manifest.tensors.items():
        if address not in made or len(fact.shape) != len(fact.axes.split()):
            raise UserError(f"{path}:tensors.{shown(address)}: expected a tensor of an op, got another; {AGAIN}")
    stacks = stack_names(manifest.config)
    needed = [f"{name}.embed.sum" for name in stacks]
    if isinstance(manifest.config.head, LanguageHead):
        needed.append("head.logits")
    for address in needed:
        if address not in manifest.tensors or len(manifest.tensors[address].shape) != 2:
            raise UserError(f"{path}:tensors: expected {address}, of two axes, got none; {AGAIN}")
    if list(manifest.tokens) != stacks:
        raise UserError(f"{path}:tokens: expected those of {', '.join(stacks)}, got others; {AGAIN}")


def _read(path: Path, expected: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """The tensors of a file, of which only the header is read before all types and shapes are as expected."""
    size_of(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name in sorted(names ^ expected.keys()):
                raise UserError(f"{path}:{shown(name)}: expected the tensors of {TRACE}, got a difference; {AGAIN}")
            for name, (dtype, shape) in expected.items():
                part = file.get_slice(name)
                got = part.get_dtype(), tuple(part.get_shape())
                if got != (dtype, shape):
                    raise UserError(f"{path}:{shown(name)}: expected {dtype} {shape}, got {got[0]} {got[1]}; {AGAIN}")
            tensors = {name: file.get_tensor(name) for name in expected}
    except UserError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"{path}: expected a whole safetensors file, got {reason(error)}; {AGAIN}") from error
    check_finite({shown(name): one for name, one in tensors.items()}, where=str(path), remedy=AGAIN)
    return tensors
