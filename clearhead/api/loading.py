"""`load`: opens a model from a folder, a GGUF file or the hub."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from clearhead.api import sentences
from clearhead.api.adapters import SavedAdapter, put_on
from clearhead.api.folders import (
    CONFIG,
    TRAINED,
    WEIGHTS,
    contract_in,
    images_of,
    model_folder,
    named_config,
    read_adapter,
    read_config,
    sounds_of,
    training_facts,
)
from clearhead.api.model import Model
from clearhead.api.pretrained import check_load, converted, gguf_tokenizer, read, read_gguf
from clearhead.checkpoints.families.pictures_and_sounds.towers import towers_of
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, INDEX, MODEL, read_json
from clearhead.checkpoints.weights.elsewhere import ADAPTER, refuse_adapter, refuse_other_form
from clearhead.checkpoints.weights.gguf_file import gguf_in
from clearhead.checkpoints.weights.hub import locate
from clearhead.checkpoints.weights.legacy import BIN
from clearhead.checkpoints.weights.modules import network_folder
from clearhead.config import Config, Head
from clearhead.errors import UserError
from clearhead.machine.device import device_named, hand_back_freed_memory
from clearhead.model.adapter import adapt
from clearhead.model.assign import filled, new_head
from clearhead.model.fast.int4 import rounded_to_four_bits
from clearhead.model.fast.int8 import quantized
from clearhead.model.linear import is_rounded
from clearhead.model.shapes import unallocated
from clearhead.model.transformer import Transformer
from clearhead.recipe.contract import FILE as CONTRACT
from clearhead.recipe.contract import Contract
from clearhead.storage import checkpoints
from clearhead.storage.run_files import RECIPE
from clearhead.storage.tensors import check_finite
from clearhead.text import formats
from clearhead.text.special_tokens import source_tokens
from clearhead.text.tokenizers import Tokenizer

_log = logging.getLogger("clearhead")

OwnTokenizer: TypeAlias = Tokenizer | Literal["own"] | None
_is_left_out = ContextVar("_is_left_out", default=False)


def load(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: str = "cpu",
    head: Head | None = None,
    base: str | Path | None = None,
    int8: bool = False,
    int4: bool = False,
    compile: bool = False,  # noqa: A002
    tokenizer: OwnTokenizer = "own",
) -> Model:
    """A model by the name it has on the hub, or from a folder: a run's (its best checkpoint), or one that `Model.save`
    or another library wrote, or from a GGUF file. A folder of PEFT with an adapter is loaded with the model that it
    names; `base` names another place of that model.

    Weights are mapped into memory, in their stored type unless `dtype` names another. `head` puts a new head with
    random weights on the network, for fine-tuning. `int8` rounds its matrices to eight bits, for inference only, and
    `int4` to four, which is smaller, less accurate, and quickest for one text on a CPU.
    `compile` generates a text in compiled steps; the first step takes long (docs/inference.md).
    `tokenizer` replaces that of the folder, whose files are then not read; None opens the network alone.

    Raises UserError for a model that is missing, damaged or not supported, for a device that this machine does not
    have, and, before any weight is read, for weights that do not fit into memory.
    """
    place, kind = device_named(device), _dtype(dtype)
    rounds = "int8" if int8 else "int4" if int4 else ""
    if int8 and int4:
        raise UserError("int4: expected one of int8 and int4, got both; leave one of them out")
    if int8 and kind not in (None, torch.float32):
        raise UserError(f"dtype: expected float32 beside int8, got {dtype}; leave one of them out")
    if rounds and compile:
        raise UserError(f"compile: expected weights as they are stored, got {rounds}; leave one of them out")
    if head is not None and not isinstance(head, Config):
        raise UserError(f"head: expected one of clearhead.config, such as ClassificationHead(n_labels=2), got {head!r}")
    top = locate(name, revision=revision)
    if (top / ADAPTER).is_file():
        model = _adapted(top, base, kind, head, tokenizer)
    elif base is not None:
        raise UserError(f"base: expected it with the folder of an adapter, got {top}; leave it out")
    else:
        model = _whole(top, kind, head, place, tokenizer, rounds=bool(rounds))
        if head is not None:
            _log.warning("%s: a new head (%s), its weights drawn at random: train before use", top, head.kind)
    if rounds and not is_rounded(model.network):
        model = model.merge()  # One product in place of three, with adapters.
    model.network.to(place).eval()
    if rounds:
        _round(model.network, quantized if int8 else rounded_to_four_bits)
    model.network.compiles_steps = compile
    return model


def _round(network: Transformer, rounded: Callable[[Transformer], object]) -> None:
    """Rounds the weights of a network, in place, and gives back the memory of those that were read."""
    rounded(network)
    for weight in network.parameters():  # What is left is small, and would keep the whole file mapped.
        weight.data = weight.data.clone()
    hand_back_freed_memory()


def _whole(
    top: Path,
    dtype: torch.dtype | None,
    head: Head | None,
    place: torch.device,
    tokenizer: OwnTokenizer,
    *,
    rounds: bool,
) -> Model:
    """The model of a folder with all weights, or of a GGUF file."""
    if (file := gguf_in(top)) is not None:
        found = read_gguf(file, dtype=dtype, head=head)
        own = chosen_tokenizer(tokenizer, lambda: gguf_tokenizer(file))
        return Model(found.network, own, found.generation, family=found.family.model_type)
    folder = network_folder(top)

    def opened(folder: Path) -> Model:
        document = read_json(folder / CONFIG, limit=CONFIG_LIMIT)
        check_load(folder, dtype=dtype, device=place, int8=rounds)
        if "clearhead" in document:
            return _own(folder, dtype, head, tokenizer)
        if (towers := towers_of(document)) is not None:
            kind = towers.model_type
            raise UserError(
                f"{folder / CONFIG}: expected a model of one network, got the two of {kind}; try clearhead.load_towers"
            )
        model = _pretrained(folder, document, dtype, head, tokenizer)
        model.sentences = sentences.read(top, document, width=model.config.output.d_model)
        return model

    refuse_adapter(folder)
    if (folder / CONFIG).is_file():
        return opened(folder)
    refuse_other_form(folder)
    if any((folder / file).exists() for file in (MODEL, INDEX, BIN)):
        raise UserError(f"{folder / CONFIG}: expected a file beside the weights, got none; try the complete folder")
    return _of_run(folder, opened)


def _of_run(run: Path, opened: Callable[[Path], Model]) -> Model:
    """The best checkpoint of a run. Tries again if a living run replaces it meanwhile."""
    while True:
        folder = model_folder(run)
        try:
            return opened(folder)
        except UserError:
            if folder.is_dir():
                raise


def _own(folder: Path, dtype: torch.dtype | None, head: Head | None, tokenizer: OwnTokenizer) -> Model:
    saved = checkpoints.load(folder)
    for file in (CONFIG, WEIGHTS):
        if file not in saved.json and file not in saved.tensors:
            raise UserError(f"{folder / file}: expected a file of the model, got none; give a folder that holds one")
    config, generation = read_config(saved.json[CONFIG], where=f"{folder}/{CONFIG}")
    # A new head needs no adapters, which the weights contain.
    adapter, base = read_adapter(saved.json[CONFIG], where=f"{folder}/{CONFIG}") if head is None else (None, None)
    file = WEIGHTS if adapter is None else next(name for name in TRAINED if name in saved.tensors)
    tensors = saved.tensors[file]
    check_finite(tensors, where=str(folder / file))
    tensors = tensors if dtype is None else converted(tensors, dtype, where=folder)
    config, tensors = (config, tensors) if head is None else new_head(config, tensors, head)
    empty = unallocated(config) if adapter is None else adapt(unallocated(config), adapter)
    network = filled(empty, tensors, where=f"{folder}/{file}")
    found = chosen_tokenizer(
        tokenizer,
        lambda: Tokenizer.from_files(saved.raw, where=str(folder)) if formats.is_there(saved.raw) else None,
    )
    pooled = sentences.of_run(folder, width=config.output.d_model)
    beside = {"images": images_of(folder, config), "sounds": sounds_of(folder, config), "sentences": pooled}
    recipe, contract = saved.json.get(RECIPE), Contract()
    if head is None and recipe is not None:
        n_marks = len(source_tokens(found)) if found is not None and len(config.stacks) == 2 else 0
        contract = Contract.of_recipe(recipe, n_marks, where=folder / RECIPE)
    elif head is None:
        contract = Contract.read(saved.json.get(CONTRACT, {}), folder / CONTRACT)
    given = {"about": training_facts(saved), "recipe": recipe, "base": base, "contract": contract}
    return Model(network, found, generation, **beside, **given)


def _pretrained(
    folder: Path,
    document: Mapping[str, Any],
    dtype: torch.dtype | None,
    head: Head | None,
    tokenizer: OwnTokenizer,
) -> Model:
    found, own = (
        read(folder, document, dtype=dtype, head=head),
        chosen_tokenizer(tokenizer, lambda: Tokenizer.find(folder)),
    )
    return Model(
        found.network,
        own,
        found.generation,
        contract=contract_in(folder, own) if head is None else None,
        images=images_of(folder, found.network.config),
        sounds=sounds_of(folder, found.network.config),
        family=found.family.model_type,
    )


def _adapted(
    folder: Path, base: str | Path | None, dtype: torch.dtype | None, head: Head | None, tokenizer: OwnTokenizer
) -> Model:
    """The model that an adapter is of, with the adapter on it, in the wider type of the two."""
    saved = SavedAdapter.read(folder)
    try:
        place = locate(saved.base if base is None else base, revision=saved.revision if base is None else None)
    except UserError as error:
        raise UserError(
            f"{folder / ADAPTER}: expected the model that it is of; {error}, or load(…, base=FOLDER)"
        ) from None
    if (place / ADAPTER).is_file():
        raise UserError(f"{place}: expected a whole model below {folder}, got an adapter; merge() and save() it first")
    head = head or saved.head(named_config(str(place)))
    model = _whole(place, dtype, head, torch.device("cpu"), tokenizer, rounds=False).merge()
    model.network.eval()
    if dtype is None:
        model.network.to(_dtype(saved.contract.base_dtype) or _wider(model.network, saved.dtype))
    put_on(model.network, saved, model.family, base=str(place))
    model.base = str(place) if base is not None else saved.base
    model.put_under(saved.contract)
    return model


def _wider(network: Transformer, other: torch.dtype) -> torch.dtype:
    """The type that holds the numbers of both."""
    return torch.promote_types(next(network.parameters()).dtype, other)


def _dtype(name: torch.dtype | str | None) -> torch.dtype | None:
    """The type of this name, such as bfloat16."""
    if name is None or isinstance(name, torch.dtype):
        return name
    known = {str(t).removeprefix("torch."): t for t in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
    if name not in known:
        raise UserError(f"dtype: expected {', '.join(known)}, got {name!r}; try float32")
    return known[name]


def chosen_tokenizer(given: OwnTokenizer, read: Callable[[], Tokenizer | None]) -> Tokenizer | None:
    """The given tokenizer, or what `read` returns. Raises UserError, which says how to do without, if it cannot."""
    if not isinstance(given, str):
        return given
    if given != "own":
        raise UserError(f'tokenizer: expected a Tokenizer, None or "own", got {given!r}; try Tokenizer.load(FOLDER)')
    if _is_left_out.get():
        return None
    try:
        return read()
    except UserError as error:
        raise UserError(f"{error}, or open the network alone: load(…, tokenizer=None), --no-tokenizer") from None


@contextmanager
def without_tokenizers() -> Iterator[None]:
    """Models that are loaded inside get no tokenizer of their own."""
    token = _is_left_out.set(True)
    try:
        yield
    finally:
        _is_left_out.reset(token)
