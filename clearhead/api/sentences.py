"""Sentence encoders: how they read texts and make vectors, in the files of the sentence-transformers library."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue, PositiveInt, ValidationError
from torch import Tensor

from clearhead.api.sentence_modules import OLD_MODES, REMEDY, Module, check_widths, only_known, read_module
from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.families.shared import SENTENCE_FILES, SENTENCE_SETTINGS
from clearhead.checkpoints.weights import modules
from clearhead.checkpoints.weights.documents import MODEL, read_json, short, shown
from clearhead.checkpoints.weights.modules import CONFIG, MODULES, SETTINGS, Listed
from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Layout
from clearhead.model.sentences import First, Mode, Pooling, Step, Unit, vectors
from clearhead.storage.checkpoints import Checkpoint

_log = logging.getLogger("clearhead")

POOLING = Path("1_Pooling") / CONFIG
PROMPTS = {"query": "", "document": ""}
"""The prompts of a model without a file of prompts."""
TOKENIZER = "tokenizer_config.json"


@dataclass(frozen=True)
class Sentences:
    """Prepares texts for a network, and makes a vector of its states."""

    modules: tuple[Module, ...] = ()
    """The steps after the network. Empty without modules.json, and then the mean is used."""
    network: Listed | None = None
    """The network's entry in modules.json, if there is one."""
    prompts: Mapping[str, str] = field(default_factory=lambda: dict(PROMPTS))
    default_prompt: str | None = None
    max_length: int | None = None
    """Most tokens of a text, including special ones; None for as many as the network reads."""
    cuts_left: bool = False
    """True if the beginning of a text that is too long is cut off, instead of its end."""
    lowercase: bool = False
    width: int | None = None
    """The numbers of a vector that are kept, the first ones; None for all."""
    documents: Mapping[str, JsonObject] = field(default_factory=dict)
    """The settings of both files as they were read, which are written back."""

    def prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        """The prompt before a text: given, named, or the default. Raises UserError if it is both given and named."""
        if prompt is not None and prompt_name is not None:
            raise UserError("prompt: expected a prompt or its prompt_name, got both; leave one out")
        name = self.default_prompt if prompt_name is None else prompt_name
        if prompt is not None or name is None:
            return prompt or ""
        if name not in self.prompts:
            raise UserError(f"prompt_name: expected one of {', '.join(self.prompts)}, got {short(name)}; try prompt=")
        return self.prompts[name]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that make a vector of the states."""
        own = tuple(module.step for module in self.modules) or (Pooling(),)
        return own if self.width is None else (*own, First(self.width))

    def vectors(self, result: Tensor, layout: Layout) -> Tensor:
        """b t d, the states of a network without logits, or b d, its vectors -> b d."""
        return result if result.ndim == 2 else vectors(self.steps, result, layout.valid)

    @property
    def pooling(self) -> Mode:
        """The pooling of an encoder that does nothing else with the states.

        Raises UserError if it has other steps, a prompt, or changes texts: such an encoder cannot be trained here.
        """
        pools = [step for step in self.steps if not isinstance(step, Unit)]
        changes = {"do_lower_case": self.lowercase, "truncation_side": self.cuts_left}
        changes["truncate_dim"] = self.width is not None
        if self.default_prompt is not None:
            changes["default_prompt_name"] = True
        found = [name for name, is_set in changes.items() if is_set]
        found += [type(step).__name__ for step in pools[1:] if not isinstance(step, First)]
        if found or not isinstance(pools[0], Pooling) or len(pools[0].modes) > 1:
            got = ", ".join(found) or "several poolings"
            raise UserError(f"model: expected a sentence encoder that only pools, got {got}; try another model.start")
        return pools[0].modes[0]

    def own_files(self) -> Checkpoint:
        """These settings as the file of a run; none if there was no modules.json."""
        if self.network is None:
            return Checkpoint()
        return Checkpoint(json={OWN: {"pooling": self.pooling, "max_length": self.max_length}})

    def files(self) -> Checkpoint:
        """These settings as that library's files; none if there was no modules.json."""
        if self.network is None:
            return Checkpoint()
        listed = [replace(self.network, path=""), *(module.listed for module in self.modules)]
        entries = json.dumps([one.to_document(i) for i, one in enumerate(listed)], indent=2)
        own = [module for module in self.modules if module.listed.path]
        return Checkpoint(
            {f"{one.listed.path}/{MODEL}": tensors for one in own if (tensors := one.weights())},
            {**self.documents, **{f"{one.listed.path}/{CONFIG}": one.config for one in own}},
            {MODULES: entries.encode()},
        )


# --- a run -----------------------------------------------------------------------------------------------------------

OWN = "sentences.json"
"""The settings of a run that trains a sentence encoder."""
SENTENCE_CLASSES = f"{modules.LIBRARY}models."


class OwnSettings(Config):
    """The settings with which a run makes one vector of a text."""

    pooling: Mode
    max_length: PositiveInt | None


def of_run(folder: Path, *, width: int) -> Sentences:
    """The sentence encoder of a run's checkpoint. Without its settings, the mean is used."""
    path = folder / OWN
    if not path.is_file():
        return Sentences()
    try:
        own = OwnSettings.model_validate(read_json(path))
    except ValidationError as error:
        raise UserError(f"{path}: expected pooling and max_length, got {error.errors()[0]['msg']}") from None
    pooling: JsonObject = {"word_embedding_dimension": width}
    pooling |= {name: mode == own.pooling for name, mode in OLD_MODES.items()}
    return Sentences(
        (
            Module(Listed("1", "1_Pooling", f"{SENTENCE_CLASSES}Pooling"), pooling, Pooling((own.pooling,))),
            Module(Listed("2", "2_Normalize", f"{SENTENCE_CLASSES}Normalize"), {}, Unit()),
        ),
        Listed("0", "", SENTENCE_CLASSES + modules.NETWORK),
        max_length=own.max_length,
        documents={SENTENCE_SETTINGS: {"max_seq_length": own.max_length, "do_lower_case": False}},
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def read(folder: Path, document: Mapping[str, Any], *, width: int) -> Sentences:
    """Reads the files of `folder`. `document` is the network's config.json, and `width` that of its states.

    Raises UserError that names the file, for a module or a setting that is not supported.
    """
    listed = modules.listed(folder)
    said = modules.settings(folder)
    if not listed or said.get("model_type") == modules.CROSS_ENCODER:
        if not listed and (folder / POOLING).is_file():
            _log.warning("%s: not read, as there is no %s: embed takes the mean", folder / POOLING, MODULES)
        return Sentences()
    network = folder / listed[0].path
    path = modules.texts_file(network, SENTENCE_FILES)
    texts = {} if path is None else read_json(path)
    max_length, lowercase = _texts(texts, where=str(path))
    tokenizer = read_json(network / TOKENIZER) if (network / TOKENIZER).is_file() else {}
    found = tuple(read_module(folder, one) for one in listed[1:])
    if not found or not isinstance(found[0].step, Pooling):
        got = shown(", ".join(one.kind for one in listed[1:])) or "none"
        raise UserError(f"{folder / MODULES}: expected a Pooling after the {modules.NETWORK}, got {got}; {REMEDY}")
    check_widths(found, width, folder)
    prompts, default = _prompts(said, where=f"{folder}/{SETTINGS}")
    if unread := said.keys() - {*OF_WHOLE}:
        told = shown(", ".join(sorted(unread)))
        _log.warning("%s/%s: not read, as %s does not either: %s", folder, SETTINGS, REFERENCE, told)
    kept = {SETTINGS: said} if said else {}
    return Sentences(
        found,
        listed[0],
        prompts,
        default,
        max_length=_shortest(tokenizer, document) if max_length is None else max_length,
        cuts_left=tokenizer.get("truncation_side") == "left",
        lowercase=lowercase,
        width=_width(said, where=f"{folder}/{SETTINGS}"),
        documents=kept | ({path.name: texts} if path else {}),
    )


def _shortest(tokenizer: JsonObject, document: Mapping[str, Any]) -> int | None:
    """The number of tokens to read if the settings do not limit it."""
    family = family_of(document, where=CONFIG)
    fields = family.map_of(family.head_of(document, where=CONFIG))
    values = {**document, **fields.values(family.modernize(dict(document)), where=CONFIG)}
    longest = [values.get("max_position_embeddings"), None if "n_embd" not in values else values.get("n_positions")]
    said = [tokenizer.get("model_max_length", tokenizer.get("max_len")), *longest]
    return min((int(n) for n in said if isinstance(n, int | float) and n > 0), default=None)


ONLY: dict[str, tuple[JsonValue, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "processing_kwargs": ({}, None),
    "query_expansion": (None,),
    "query_length": (None,),
    "document_length": (None,),
    **dict.fromkeys(("model_args", "model_kwargs", "config_args", "config_kwargs"), ({}, None)),
    **dict.fromkeys(("tokenizer_args", "processor_kwargs"), ({}, None)),
}
"""The supported values of settings of texts."""
WITHOUT_EFFECT = ("unpad_inputs", "backend")
STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
"""The modality_config of texts whose states are pooled."""
REFERENCE = "sentence-transformers 6.2.0"
"""The library whose source tells which settings it reads."""
OF_WHOLE = (
    "prompts",
    "default_prompt_name",
    "truncate_dim",
    "similarity_fn_name",
    "model_type",
    "requirements",
    "__version__",
)
"""The settings of the whole that it reads. Only the first three change a vector."""


def _texts(said: JsonObject, *, where: str) -> tuple[int | None, bool]:
    """max_seq_length and do_lower_case. Raises UserError for an unsupported setting."""
    only_known(said, (*ONLY, *WITHOUT_EFFECT, "modality_config", "max_seq_length", "do_lower_case"), where)
    reads = said.get("modality_config", {"text": STATES})
    if not isinstance(reads, dict) or reads.get("text") != STATES:
        raise UserError(f"{where}:modality_config: expected {STATES!r} of text, got {short(reads)}; {REMEDY}")
    for name, value in said.items():
        if name in ONLY and value not in ONLY[name]:
            raise UserError(f"{where}:{name}: expected {ONLY[name][0]!r}, got {short(value)}; {REMEDY}")
    length, lowercase = said.get("max_seq_length"), said.get("do_lower_case", False)
    if length is not None and (type(length) is not int or length < 1):
        raise UserError(f"{where}:max_seq_length: expected a whole number from 1 on, got {short(length)}; {REMEDY}")
    if not isinstance(lowercase, bool):
        raise UserError(f"{where}:do_lower_case: expected true or false, got {short(lowercase)}; {REMEDY}")
    return length, lowercase


def _width(said: JsonObject, *, where: str) -> int | None:
    """truncate_dim."""
    width = said.get("truncate_dim")
    if width is not None and (type(width) is not int or width < 1):
        raise UserError(f"{where}:truncate_dim: expected a whole number from 1 on, got {short(width)}; {REMEDY}")
    return width


def _prompts(said: JsonObject, *, where: str) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of the default."""
    found = said.get("prompts", {})
    if not isinstance(found, dict) or not all(isinstance(text, str | None) for text in found.values()):
        raise UserError(f"{where}:prompts: expected a table of names and texts, got {short(found)}; {REMEDY}")
    prompts = PROMPTS | {name: str(text or "") for name, text in found.items()}
    default = said.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        known = ", ".join(map(shown, prompts))
        raise UserError(f"{where}:default_prompt_name: expected one of {known}, got {short(default)}; {REMEDY}")
    return prompts, default
