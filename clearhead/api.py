"""What a user holds: `Model`, a network with its tokenizer; and `load`, which makes one from a folder."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue, ValidationError
from torch import Tensor

from clearhead.config import ModelConfig, TokenInput
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.families import preset
from clearhead.generation import Hypothesis, Step, complete, generate
from clearhead.generation.pieces import first, pieces
from clearhead.model import Tokens, Transformer
from clearhead.model.summary import Summary, summarize
from clearhead.recipe import ModelChoice, explain, merge
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import Edit, Trace, trace
from clearhead.training import checkpoints
from clearhead.training.manifest import MANIFEST, PLAIN_NAME
from clearhead.training.tensors import model_tensors, restore

BEST = "best.json"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"


@dataclass(eq=False)
class Model:
    """A network, the tokenizer it was trained with, and how it generates by default."""

    network: Transformer
    tokenizer: Tokenizer
    generation: GenerationConfig = field(default_factory=GenerationConfig)

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device

    def logits(self, text: str, target: str | None = None) -> Tensor:
        """Logits for one text, t v; for an encoder-decoder of the target's positions (bos first), given the source."""
        self.network.eval()
        with torch.inference_mode():
            return self.network(*self._inputs(text, target))[0]

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[str]:
        """The best translation of each text."""
        return [self.tokenizer.decode(best[0].tokens) for best in self.hypotheses(texts, config)]

    def hypotheses(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[list[Hypothesis]]:
        """For each source text its n_best translations with their scores, best first."""
        if not self.is_encoder_decoder:
            raise UserError(f"translate: expected an encoder-decoder, got one stack; {self._use()}")
        return complete(
            self.network,
            source=self.tokenizer.encode_batch(_several(texts, "translate"), eos=True),
            config=config or self.generation,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id or 0,
        )

    def generate(self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()) -> str:
        """The prompt's continuation, up to the first of the stop strings."""
        return "".join(self.stream(prompt, config, stop=stop))

    def stream(
        self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        """The continuation piece by piece, as it is written, up to the first of the stop strings.

        One hypothesis, greedy or sampled, whatever `config` says of beams. Raises UserError at the call, before
        anything is written, for a model that does not continue texts and for a prompt that is too long.
        """
        if self.network.decoder is None or self.network.encoder is not None:
            raise UserError(f"generate: expected a decoder-only model, got one with an encoder; {self._use()}")
        if "" in stop:
            raise UserError("stop: expected strings that are not empty, got an empty one; leave it out")
        ids = self.tokenizer.encode(prompt) or [self.tokenizer.need("bos")]
        eos = self.tokenizer.eos_id

        def text(tokens: list[int]) -> str:
            # After the prompt: some tokenizers drop the space before the first word of a text.
            return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

        def ends(tokens: list[int]) -> bool:
            return bool(stop) and first(text(tokens), stop) is not None

        events = generate(
            self.network,
            Tokens(torch.tensor([ids], device=self.device)),
            config=(config or self.generation).model_copy(update={"beams": 1, "n_best": 1}),
            stop=ends,
            eos_id=eos,
            pad_id=self.tokenizer.pad_id or 0,
        )
        steps = (int(event.tokens[0, 0]) for event in events if isinstance(event, Step))
        tokens = itertools.takewhile(lambda token: token != eos, steps)
        written = itertools.accumulate(tokens, lambda before, token: [*before, token], initial=list[int]())
        return pieces(map(text, written), stop)

    def embed(self, texts: Sequence[str], *, unit: bool = True) -> Tensor:
        """One vector a text, b d: the mean of the first stack's last states over the real positions."""
        stack = self.network.encoder or self.network.decoder
        assert stack is not None
        # With the end token where an encoder was trained to read it.
        encoded = self.tokenizer.encode_batch(_several(texts, "embed"), eos=self.is_encoder_decoder)
        if not encoded or not all(encoded):
            raise UserError("embed: expected texts of at least one token, got an empty one; leave it out")
        tokens = Tokens.pad(encoded, fill=self.tokenizer.pad_id or 0).to(self.device)
        self.network.eval()
        with torch.inference_mode():
            states, layout = stack(tokens)
            valid = torch.ones(layout.grid, device=states.device) if layout.valid is None else layout.valid.to(states)
            mean = (states * valid[..., None]).sum(1) / valid.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean, dim=-1) if unit else mean

    def summary(self) -> Summary:
        """Parameters, shapes, FLOPs and bytes by component."""
        return summarize(self.config)

    def trace(
        self, text: str, target: str | None = None, *, edit: Mapping[str, Edit] | None = None
    ) -> tuple[Trace, Tensor]:
        """Every value on the way to the logits of one text, and those logits; `edit` changes values on the way."""
        self.network.eval()
        with torch.no_grad(), trace(self.network, edit) as seen:
            logits = self.network(*self._inputs(text, target))
        return seen, logits[0]

    def tracing(self, edit: Mapping[str, Edit] | None = None) -> AbstractContextManager[Trace]:
        """A trace around whatever runs inside, such as a whole translation."""
        return trace(self.network, edit)

    def save(self, folder: str | Path) -> Path:
        """Write config.json, model.safetensors and the tokenizer to a new folder that `load` opens."""
        folder = Path(folder)
        files = checkpoints.Files(
            tensors={WEIGHTS: model_tensors(self.network)},
            json={CONFIG: model_json(self.config, self.generation)},
            raw=self.tokenizer.to_files(),
        )
        return checkpoints.write_folder(folder, files)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it reads one text and writes another."""
        return self.network.encoder is not None and self.network.decoder is not None

    def _use(self) -> str:
        if self.network.decoder is None:
            return "try embed or logits"
        return "try translate" if self.is_encoder_decoder else "try generate"

    def _inputs(self, text: str, target: str | None) -> list[Tokens]:
        if self.is_encoder_decoder == (target is None):
            needs = "a source and a target text" if self.is_encoder_decoder else "one text"
            raise UserError(f"this model reads {needs}; got {'one text' if target is None else 'two'}")
        source = self.tokenizer.encode(text, eos=self.is_encoder_decoder)
        if not source:
            raise UserError("text: expected at least one token, got an empty text")
        sequences = [source] if target is None else [source, self.tokenizer.encode(target, bos=True)]
        return [Tokens(torch.tensor([ids], device=self.device)) for ids in sequences]


def _several(texts: Sequence[str], what: str) -> Sequence[str]:
    """The texts; a lone string, which is a sequence of its characters, is surely a mistake."""
    if isinstance(texts, str):
        raise UserError(f"{what}: expected a list of texts, got one text; try {what}([text])")
    return texts


# --- folders -----------------------------------------------------------------------------------------------------


def load(name: str | Path, *, device: str = "cpu") -> Model:
    """A model from a run's folder (its best checkpoint), one checkpoint, or a folder that `Model.save` wrote.

    Raises UserError, one line, for a folder that is no model or not as it was written, and for a device that this
    machine does not have.
    """
    place = _device(device)
    folder = model_folder(Path(name))
    saved = checkpoints.load(folder)
    for file in (CONFIG, WEIGHTS):
        if file not in saved.json and file not in saved.tensors:
            raise UserError(f"{folder / file}: expected a file of the model, got none; give a folder that holds one")
    config, generation = read_config(saved.json[CONFIG], where=f"{folder}/{CONFIG}")
    network = Transformer(config)
    restore(network, saved.tensors[WEIGHTS], where=f"{folder}/{WEIGHTS}")
    tokenizer = Tokenizer.from_files(saved.raw, where=str(folder))
    return Model(network.to(place).eval(), tokenizer, generation)


def _device(name: str) -> torch.device:
    """The device of this name, such as cuda or cuda:1, if this machine has it; auto: a GPU if there is one."""
    if name == "auto":
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device: expected auto, cpu, cuda or mps, got {name!r}") from None
    n_devices = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= n_devices.get(device.type, 0):
        raise UserError(f"device: expected one that this machine has, got {name!r}; try --device cpu")
    return device


def model_folder(folder: Path) -> Path:
    """The checkpoint that a folder stands for: itself, or the best or else newest one of a run."""
    if not folder.exists():
        raise UserError(f"{folder}: expected a folder with a model, found nothing; check the path")
    if (folder / CONFIG).exists() and (folder / MANIFEST).exists():
        return folder
    if (choice := _best(folder)) is not None:
        return choice
    newest = checkpoints.latest(folder) if folder.is_dir() else None
    if newest is None:
        raise UserError(
            f"{folder}: expected a folder with a model, or a run with checkpoints, found neither;"
            " give the folder that `clearhead train` or `clearhead demo` wrote"
        )
    return newest


def _best(folder: Path) -> Path | None:
    """The checkpoint that best.json names, where there is one: that file is only a hint, and may outlive it."""
    try:
        named = json.loads((folder / BEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = named.get("checkpoint") if isinstance(named, dict) else None
    if not isinstance(name, str) or PLAIN_NAME.fullmatch(name) is None:
        return None
    return folder / name if (folder / name).is_dir() else None


def model_json(config: ModelConfig, generation: GenerationConfig) -> dict[str, JsonValue]:
    """What config.json holds."""
    return {
        "clearhead": 1,
        "model": config.model_dump(mode="json"),
        "generation": generation.model_dump(mode="json"),
    }


def read_config(content: Mapping[str, Any], *, where: str) -> tuple[ModelConfig, GenerationConfig]:
    """The inverse of `model_json`; one line for what does not fit."""
    version = content.get("clearhead") if isinstance(content, Mapping) else None
    if version != 1:
        raise UserError(f"{where}: expected a clearhead model of format 1, got {version!r}; try a newer clearhead")
    try:
        return ModelConfig.model_validate(content["model"]), GenerationConfig.model_validate(content["generation"])
    except (KeyError, ValidationError) as error:
        raise UserError(
            explain(error, where) if isinstance(error, ValidationError) else f"{where}: no {error}"
        ) from None


def architecture(choice: ModelChoice, vocab_size: int) -> ModelConfig:
    """The preset a recipe names, with its changes and the tokenizer's vocabulary."""
    tables = preset(choice.preset).model_dump(mode="json")
    for stack, changes in {"encoder": choice.encoder, "decoder": choice.decoder}.items():
        if tables[stack] is None:
            if changes:
                raise UserError(f"model.{stack}: preset {choice.preset!r} has no {stack}; try model.stacks")
            continue
        tables[stack] = merge(merge(tables[stack], choice.stacks), changes)
        reads = tables[stack]["input"]
        if isinstance(reads, dict) and reads.get("kind") == TokenInput(vocab_size=1).kind:
            reads["vocab_size"] = vocab_size
    tables["head"] = merge(tables["head"], choice.head)
    tables["init"] = merge(tables["init"], choice.init)
    try:
        return ModelConfig.model_validate(tables)
    except ValidationError as error:
        raise UserError(explain(error, "model")) from None


def named_config(name: str) -> ModelConfig:
    """The architecture of a preset, or of the model in a folder; reads no weights."""
    folder = Path(name)
    if not folder.exists():
        return preset(name)
    path = model_folder(folder) / CONFIG
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected a model's configuration as JSON, got {error}") from None
    return read_config(content, where=str(path))[0]
