"""`load`: opens a model from a folder, a GGUF file or the hub."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

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
from clearhead.api.pretrained import check_load, converted, gguf_contract, gguf_tokenizer, read, read_gguf
from clearhead.checkpoints.families.pictures_and_sounds.towers import towers_of
from clearhead.checkpoints.weights.documents import (
    ADAPTER,
    CONFIG_LIMIT,
    INDEX,
    MODEL,
    read_json,
    refuse_adapter,
    refuse_other_form,
)
from clearhead.checkpoints.weights.gguf import gguf_in
from clearhead.checkpoints.weights.hub import locate
from clearhead.checkpoints.weights.legacy import BIN
from clearhead.checkpoints.weights.modules import network_folder
from clearhead.config import Config, Head
from clearhead.errors import UserError, refuse
from clearhead.machine.device import device_named, hand_back_freed_memory
from clearhead.model.adapter import adapt
from clearhead.model.assign import filled, new_head
from clearhead.model.fast.int4 import rounded_to_four_bits
from clearhead.model.fast.int8 import quantized
from clearhead.model.linear import is_rounded
from clearhead.model.meta import unallocated
from clearhead.model.transformer import Transformer
from clearhead.recipe.contract import FILE as CONTRACT
from clearhead.recipe.contract import Contract
from clearhead.recipe.places import RECIPE
from clearhead.storage import checkpoints
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
    tokenizer: OwnTokenizer = "own",
) -> Model:
    """A model by its name on the hub, from a GGUF file, or from a folder: of a run (its best checkpoint), of
    `Model.save` or of another library. A folder of PEFT is loaded with the model that it names, or with `base`.

    Weights are mapped into memory, in their stored type unless `dtype` names another. `head` puts a new head with
    random weights on the network, for fine-tuning. `int8` rounds its matrices to eight bits, for inference only, and
    `int4` to four, which is smaller, less accurate, and quickest for one text on a CPU.
    `tokenizer` replaces the folder's; None opens the network alone.

    Raises UserError for a model that is missing, damaged or not supported, for a device that this machine does not
    have, and, before any weight is read, for weights that do not fit into memory.
    """
    place, kind = device_named(device), _dtype(dtype)
    rounds = "int8" if int8 else "int4" if int4 else ""
    if int8 and int4:
        raise UserError("int4: expected one of int8 and int4, got both; leave one of them out")
    if int8 and kind not in (None, torch.float32):
        raise UserError(f"dtype: expected float32 beside int8, got {dtype}; leave one of them out")
    if head is not None and not isinstance(head, Config):
        raise UserError(f"head: expected one of clearhead.config, such as ClassificationHead(n_labels=2), got {head!r}")
    top = locate(name, revision=revision)
    loader = _Loader(kind, head, place, tokenizer, rounds=bool(rounds))
    if (top / ADAPTER).is_file():
        model = loader.adapted(top, base)
    elif base is not None:
        raise UserError(f"base: expected it with the folder of an adapter, got {top}; leave it out")
    else:
        model = loader.whole(top)
        if head is not None:
            _log.warning("%s: a new head (%s), its weights drawn at random: train before use", top, head.kind)
    if rounds and not is_rounded(model.network):
        model = model.merge()  # One product in place of three, with adapters.
    model.network.to(place).eval()
    if rounds:
        _round(model.network, quantized if int8 else rounded_to_four_bits)
    return model


def _round(network: Transformer, rounded: Callable[[Transformer], object]) -> None:
    """Rounds the weights of a network, in place, and gives back the memory of those that were read."""
    rounded(network)
    for weight in network.parameters():  # What is left is small, and would keep the whole file mapped.
        weight.data = weight.data.clone()
    hand_back_freed_memory()


@dataclass(frozen=True)
class _Loader:
    """Opens models with these options of `load`."""

    dtype: torch.dtype | None
    head: Head | None
    device: torch.device
    tokenizer: OwnTokenizer
    rounds: bool

    def whole(self, top: Path) -> Model:
        """The model of a folder with all weights, or of a GGUF file."""
        if (file := gguf_in(top)) is not None:
            pretrained = read_gguf(file, dtype=self.dtype, head=self.head)
            own = chosen_tokenizer(self.tokenizer, lambda: gguf_tokenizer(file))
            under = gguf_contract(file) if self.head is None else None
            family = pretrained.family.model_type
            return Model(pretrained.network, own, pretrained.generation, contract=under, family=family)
        folder = network_folder(top)
        refuse_adapter(folder)
        if (folder / CONFIG).is_file():
            return self._checkpoint(folder, top)
        refuse_other_form(folder)
        if any((folder / file).exists() for file in (MODEL, INDEX, BIN)):
            raise refuse(folder / CONFIG, "a file beside the weights", "none", "try the complete folder")
        while True:  # A living run may replace its best checkpoint meanwhile.
            best = model_folder(folder)
            try:
                return self._checkpoint(best, top)
            except UserError:
                if best.is_dir():
                    raise

    def _checkpoint(self, folder: Path, top: Path) -> Model:
        document = read_json(folder / CONFIG, limit=CONFIG_LIMIT)
        check_load(folder, dtype=self.dtype, device=self.device, int8=self.rounds)
        if "clearhead" in document:
            return self._own(folder)
        if (towers := towers_of(document)) is not None:
            got = f"the two of {towers.model_type}"
            raise refuse(folder / CONFIG, "a model of one network", got, "try clearhead.load_towers")
        pretrained = read(folder, document, dtype=self.dtype, head=self.head)
        tokenizer, config = chosen_tokenizer(self.tokenizer, lambda: Tokenizer.find(folder)), pretrained.network.config
        return Model(
            pretrained.network,
            tokenizer,
            pretrained.generation,
            contract=contract_in(folder, tokenizer) if self.head is None else None,
            images=images_of(folder, config),
            sounds=sounds_of(folder, config),
            family=pretrained.family.model_type,
            sentences=sentences.read(top, document, width=config.output.d_model),
        )

    def _own(self, folder: Path) -> Model:
        """The model of a checkpoint in our own form."""
        saved, head = checkpoints.load(folder), self.head
        for file in (CONFIG, WEIGHTS):
            if file not in saved.json and file not in saved.tensors:
                raise refuse(folder / file, "a file of the model", "none", "give a folder that holds one")
        config, generation = read_config(saved.json[CONFIG], where=f"{folder}/{CONFIG}")
        # A new head needs no adapters, which the weights contain.
        adapter, base = read_adapter(saved.json[CONFIG], where=f"{folder}/{CONFIG}") if head is None else (None, None)
        file = WEIGHTS if adapter is None else next(name for name in TRAINED if name in saved.tensors)
        tensors = saved.tensors[file]
        check_finite(tensors, where=str(folder / file))
        tensors = tensors if self.dtype is None else converted(tensors, self.dtype, where=folder)
        config, tensors = (config, tensors) if head is None else new_head(config, tensors, head)
        empty = unallocated(config) if adapter is None else adapt(unallocated(config), adapter)
        network = filled(empty, tensors, where=f"{folder}/{file}")
        tokenizer = chosen_tokenizer(
            self.tokenizer,
            lambda: Tokenizer.from_files(saved.raw, where=str(folder)) if formats.is_there(saved.raw) else None,
        )
        recipe, contract = saved.json.get(RECIPE), Contract()
        if head is None and recipe is not None:
            n_special = len(source_tokens(tokenizer)) if tokenizer is not None and config.is_encoder_decoder else 0
            contract = Contract.of_recipe(recipe, n_special, where=folder / RECIPE)
        elif head is None:
            contract = Contract.read(saved.json.get(CONTRACT, {}), folder / CONTRACT)
        return Model(
            network,
            tokenizer,
            generation,
            images=images_of(folder, config),
            sounds=sounds_of(folder, config),
            sentences=sentences.of_run(folder, width=config.output.d_model),
            contract=contract,
            about=training_facts(saved),
            recipe=recipe,
            base=base,
        )

    def adapted(self, folder: Path, base: str | Path | None) -> Model:
        """The base model of an adapter with the adapter on it, in the wider type of the two."""
        saved = SavedAdapter.read(folder)
        try:
            place = locate(saved.base if base is None else base, revision=saved.revision if base is None else None)
        except UserError as error:
            remedy = f"{error}, or load(…, base=FOLDER)"
            raise refuse(folder / ADAPTER, "the model that it is of", remedy=remedy) from None
        if (place / ADAPTER).is_file():
            raise refuse(place, f"a whole model below {folder}", "an adapter", "merge() and save() it first")
        head = self.head or saved.head(named_config(str(place)))
        model = replace(self, head=head, device=torch.device("cpu"), rounds=False).whole(place).merge()
        network = model.network.eval()
        if self.dtype is None:
            wider = torch.promote_types(network.dtype, saved.dtype)
            network.to(_dtype(saved.contract.base_dtype) or wider)
        put_on(network, saved, model.family, base=str(place))
        model.base = str(place) if base is not None else saved.base
        model.put_under(saved.contract)
        return model


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
    """While open, models are loaded without a tokenizer of their own."""
    token = _is_left_out.set(True)
    try:
        yield
    finally:
        _is_left_out.reset(token)
