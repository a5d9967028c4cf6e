"""What a user holds: `Model`, a network with its tokenizer; and `load`, which makes one from a folder."""

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
from clearhead.model import Tokens, Transformer
from clearhead.model.summary import Summary, summarize
from clearhead.recipe import ModelChoice, explain, merge
from clearhead.recipe_generation import GenerationConfig
from clearhead.trace import Edit, Trace, trace
from clearhead.training import checkpoints
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
        if self.network.encoder is None or self.network.decoder is None:
            raise UserError("translate: expected an encoder-decoder, got a single stack; try generate")
        encoded = self.tokenizer.encode_batch(texts, eos=True)
        return complete(
            self.network,
            source=encoded,
            config=config or self.generation,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id or 0,
        )

    def generate(self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()) -> str:
        """The prompt's continuation, up to the first of the stop strings."""
        text = "".join(self.stream(prompt, config, stop=stop))
        ends = [at for word in stop if (at := text.find(word)) >= 0]
        return text[: min(ends)] if ends else text

    def stream(
        self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        """The continuation piece by piece, as it is written; beams are followed greedily only, one hypothesis."""
        if self.network.encoder is not None:
            raise UserError("generate: expected a decoder-only model, got one with an encoder; try translate")
        config = (config or self.generation).model_copy(update={"beams": 1, "n_best": 1})
        ids = self.tokenizer.encode(prompt) or [self.tokenizer.need("bos")]
        limit = self.config.output.max_length
        if limit is not None and len(ids) >= limit:
            raise UserError(f"prompt: expected fewer than {limit} tokens, got {len(ids)}; cut the prompt")
        written: list[int] = []
        shown = ""

        def ends(tokens: list[int]) -> bool:
            return bool(stop) and any(word in self.tokenizer.decode(tokens) for word in stop)

        tokens = Tokens(torch.tensor([ids], device=self.device))
        eos, pad = self.tokenizer.eos_id, self.tokenizer.pad_id or 0
        for event in generate(self.network, tokens, config=config, stop=ends, eos_id=eos, pad_id=pad):
            if isinstance(event, Step):
                token = int(event.tokens[0, 0])
                if token == eos:
                    break
                written.append(token)
                text = self.tokenizer.decode(written)
                if not text.endswith("\N{REPLACEMENT CHARACTER}"):
                    yield text[len(shown) :]
                    shown = text

    def embed(self, texts: Sequence[str], *, unit: bool = True) -> Tensor:
        """One vector a text, b d: the mean of the first stack's last states over the real positions."""
        stack = self.network.encoder or self.network.decoder
        assert stack is not None
        tokens = Tokens.pad(self.tokenizer.encode_batch(texts), fill=self.tokenizer.pad_id or 0).to(self.device)
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

    def _inputs(self, text: str, target: str | None) -> list[Tokens]:
        encoder_decoder = self.network.encoder is not None and self.network.decoder is not None
        if encoder_decoder == (target is None):
            needs = "a source and a target text" if encoder_decoder else "one text"
            raise UserError(f"this model reads {needs}; got {'one text' if target is None else 'two'}")
        source = self.tokenizer.encode(text, eos=encoder_decoder)
        sequences = [source] if target is None else [source, self.tokenizer.encode(target, bos=True)]
        return [Tokens(torch.tensor([ids], device=self.device)) for ids in sequences]


def load(name: str | Path, *, device: str = "cpu") -> Model:
    """A model from a run's folder (its best checkpoint), one checkpoint, or a folder that `Model.save` wrote."""
    folder = model_folder(Path(name))
    saved = checkpoints.load(folder)
    config, generation = read_config(saved.json[CONFIG], where=f"{folder}/{CONFIG}")
    network = Transformer(config)
    restore(network, saved.tensors[WEIGHTS], where=f"{folder}/{WEIGHTS}")
    tokenizer = Tokenizer.from_files(saved.raw, where=str(folder))
    return Model(network.to(device).eval(), tokenizer, generation)


def model_folder(folder: Path) -> Path:
    """The checkpoint that a folder stands for: itself, or the best or else newest one of a run."""
    if not folder.exists():
        raise UserError(f"{folder}: expected a folder with a model, found nothing; check the path")
    if (folder / CONFIG).exists():
        return folder
    best = folder / BEST
    if best.exists():
        choice = folder / str(json.loads(best.read_text(encoding="utf-8")).get("checkpoint"))
        if choice.is_dir():
            return choice
    newest = checkpoints.latest(folder) if folder.is_dir() else None
    if newest is None:
        raise UserError(
            f"{folder}: expected a model ({CONFIG} and {WEIGHTS}) or a run with checkpoints, found neither;"
            " give the folder that `clearhead train --out` wrote"
        )
    return newest


def model_json(config: ModelConfig, generation: GenerationConfig) -> dict[str, JsonValue]:
    """What config.json holds."""
    return {
        "clearhead": 1,
        "model": config.model_dump(mode="json"),
        "generation": generation.model_dump(mode="json"),
    }


def read_config(content: Mapping[str, Any], *, where: str) -> tuple[ModelConfig, GenerationConfig]:
    """The inverse of `model_json`; one line for what does not fit."""
    if content.get("clearhead") != 1:
        raise UserError(f"{where}: expected a clearhead model of format 1, got {content.get('clearhead')!r}")
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
        if tables[stack]["input"]["kind"] == TokenInput(vocab_size=1).kind:
            tables[stack]["input"]["vocab_size"] = vocab_size
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
    return read_config(json.loads(path.read_text(encoding="utf-8")), where=str(path))[0]
