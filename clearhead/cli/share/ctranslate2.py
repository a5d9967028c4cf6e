"""A model for CTranslate2, by its own converter, from a folder as the Hugging Face libraries keep it."""

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import ctranslate2
import numpy as np
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from ctranslate2.converters.converter import Converter
from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec
from ctranslate2.specs.common_spec import Activation
from torch import Tensor

from clearhead.analysis.comparison import relative
from clearhead.analysis.passes import inference
from clearhead.api import CONFIG, Model
from clearhead.config import Continuous, LanguageHead, ModelConfig, NoHead, Rotary, TokenInput
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.assign import merged
from clearhead.storage.tensors import model_tensors

PAD = "<pad>"
"""If this token is the last, the converter drops it, because it takes it for one that only starts texts."""
FAILURES = (ValueError, RuntimeError, AttributeError, AssertionError, LookupError, TypeError, ImportError)
"""The errors that these libraries raise for a model that they do not support."""

TokenRows: TypeAlias = list[list[int]]


def reader(model: Model) -> Literal["Translator", "Generator", "Encoder"]:
    """The class of CTranslate2 that opens the model."""
    if model.is_encoder_decoder:
        return "Translator"
    return "Encoder" if model.network.decoder is None else "Generator"


def convert(model: Model, folder: Path, weights: str, *, name: str) -> float:
    """Writes the model with weights of this type. Returns the output's largest relative difference from ours."""
    model.network.float()
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder.parent) as temporary, hushed():
        ends = BoundaryTokens.of(model)
        try:
            if is_plain(model.config):
                converter: Any = DecoderConverter(model, ends.end)
            else:
                there = model.save(Path(temporary) / "model")
                state(model, there / CONFIG)
                converter = FolderConverter(there, ends)
            converter.convert(str(folder), quantization=weights, force=True)
            gap = difference(model, folder)
        except FAILURES as error:
            why = str(error).partition("\n")[0].partition(" (supported")[0][:160]
            raise UserError(
                f"{name}: expected a model that CTranslate2 {ctranslate2.__version__} with transformers"
                f" {transformers.__version__} converts, got {type(error).__name__}: {why}; try --to onnx"
            ) from error
    contract = {name: json.dumps(one).encode() for name, one in model.contract.files().items()}
    for file, content in (model.tokenizer_files() | contract).items():
        (folder / file).write_bytes(content)
    return gap


def refuse(model: Model, name: str) -> None:
    """Raises UserError for a model that the converter would write without one of its parts."""
    head, expected, got = model.config.head, "", ""
    if isinstance(reads := model.config.first.input, Continuous):
        expected, got = "a model that reads text", f"one that reads {reads.medium}s"
    elif not model.has_tokenizer:
        expected, got = "a tokenizer with the model, whose words CTranslate2 keeps", "none"
    elif model.network.decoder is None and not isinstance(head, NoHead):
        expected, got = "an encoder without a head, as CTranslate2 has them", f"one with a {head.kind} head"
    elif model.network.decoder is not None and not isinstance(head, LanguageHead):
        expected, got = "a language head", "no head" if isinstance(head, NoHead) else f"a {head.kind} head"
    elif model.is_encoder_decoder and None in (BoundaryTokens.of(model).start, BoundaryTokens.of(model).end):
        expected, got = "tokens that a text starts and ends with", "none"
    if expected:
        raise UserError(f"{name}: expected {expected}, got {got}; try --to onnx")


def state(model: Model, path: Path) -> None:
    """Adds fields of older versions to config.json, which the converter needs."""
    stack = model.config.first
    assert isinstance(stack.input, TokenInput)
    older = {
        "position_embedding_type": "absolute",
        "normalize_before": stack.norm_place == "pre",
        "normalize_embedding": stack.input.norm,
    }
    path.write_text(json.dumps(older | json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


@dataclass(frozen=True)
class BoundaryTokens:
    """The first and the last token of a decoder's text; None if unknown."""

    start: int | None
    end: int | None

    @classmethod
    def of(cls, model: Model) -> Self:
        """The tokens with which this model generates by default."""
        if model.network.decoder is None:
            return cls(None, None)
        settings = model.settings()
        return cls(settings.start_id, next(iter(settings.end_ids), None))


class FolderConverter(TransformersConverter):
    """The converter with the tokens with which a decoder starts and ends.

    It assumes that some models start without a token, with a last one, PAD, whose vector is 0.
    """

    def __init__(self, folder: Path, ends: BoundaryTokens) -> None:
        super().__init__(str(folder))
        self.ends = ends
        self.model: Any = None
        self.tokenizer: Any = None

    def load_model(self, *arguments: Any, **options: Any) -> Any:
        self.model = super().load_model(*arguments, **options)
        return self.model

    def load_tokenizer(self, *arguments: Any, **options: Any) -> Any:
        self.tokenizer = super().load_tokenizer(*arguments, **options)
        return self.tokenizer

    def _load(self) -> Any:
        spec: Any = super()._load()
        config: Any = spec.config
        has_encoder = isinstance(spec, TransformerSpec)
        start, end = (
            None if i is None else self.tokenizer.convert_ids_to_tokens(i) for i in (self.ends.start, self.ends.end)
        )
        if end is not None:
            config.eos_token = end
        if has_encoder and start is not None:
            if not spec.decoder.start_from_zero_embedding:
                config.decoder_start_token = start
                return spec
            if self.model.get_decoder().get_input_embeddings().weight[self.ends.start].any():
                spec.decoder.start_from_zero_embedding = False
                config.decoder_start_token = start
            self.restore(spec)
        return spec

    def restore(self, spec: Any) -> None:
        """Restores the vectors of the last token if it is an ordinary word."""
        encoder, decoder = self.model.get_encoder(), self.model.get_decoder()
        table = decoder.get_input_embeddings().weight
        if self.tokenizer.convert_ids_to_tokens(len(table) - 1) == PAD:
            return
        spec.encoder.embeddings[0].weight = encoder.get_input_embeddings().weight
        spec.decoder.embeddings.weight = table
        spec.decoder.projection.weight = self.model.get_output_embeddings().weight
        if spec.decoder.projection.has_bias():
            spec.decoder.projection.bias = self.model.final_logits_bias.squeeze()


# --- the check -----------------------------------------------------------------------------------------------------


def difference(model: Model, folder: Path) -> float:
    """max |theirs - ours| / max |ours| of logits or states, on random tokens.

    Of log-probabilities for an encoder-decoder, whose logits CTranslate2 does not return.
    """
    settings: dict[str, Any] = {"compute_type": "float32", "intra_threads": torch.get_num_threads()}
    known = words(folder, "source")
    source = drawn(model, known, (9, 5), seed=0)
    if model.is_encoder_decoder:
        told = words(folder, "target")
        target = drawn(model, told, (6, 8), seed=1)
        pairs = [[[known[i] for i in row] for row in source], [[told[i] for i in row] for row in target]]
        scored = ctranslate2.Translator(str(folder), **settings).score_batch(*pairs)
        theirs = torch.cat([torch.tensor(one.log_probs) for one in scored])
        return relative(log_probabilities(model, source, target, n_words=len(told)), theirs)
    answer: Any = getattr(ctranslate2, reader(model))(str(folder), **settings).forward_batch(source)
    found = answer.last_hidden_state if model.network.decoder is None else answer
    batch = Tokens.pad(source)
    with inference(model.network):
        ours = model.network(batch)
    return relative(batch.real(ours), batch.real(torch.from_numpy(np.array(found))))


def log_probabilities(model: Model, source: TokenRows, target: TokenRows, *, n_words: int) -> Tensor:
    """Log-probabilities of all targets' tokens and ends, in order. Words from `n_words` on are excluded."""
    ends = BoundaryTokens.of(model)
    assert ends.start is not None
    assert ends.end is not None
    with inference(model.network):
        logits = model.network(Tokens.pad(source), Tokens.pad([[ends.start, *row] for row in target]))
    logits[..., n_words:] = -torch.inf
    rows = zip(logits.log_softmax(-1), ([*row, ends.end] for row in target), strict=True)
    return torch.cat([row[torch.arange(len(ids)), ids] for row, ids in rows])


def drawn(model: Model, known: Sequence[str], lengths: Sequence[int], *, seed: int) -> TokenRows:
    """Random tokens that CTranslate2 has and that are not special, as many as positions allow."""
    generator = torch.Generator().manual_seed(seed)
    ids, ends = model.tokenizer, BoundaryTokens.of(model)
    marks = {ids.pad_id, ids.bos_id, ids.eos_id, ids.unk_id, ends.start, ends.end}
    plain = [i for i in range(len(known)) if i not in marks] or [*range(len(known))]
    limits = [s.max_length - 1 for s in model.config.stacks.values() if s.max_length]
    shortened = [max(1, min(length, *limits)) if limits else length for length in lengths]
    return [[plain[i] for i in torch.randint(len(plain), (n,), generator=generator).tolist()] for n in shortened]


def words(folder: Path, side: Literal["source", "target"]) -> list[str]:
    """The vocabulary in the written folder."""
    names = ("vocabulary.json", "shared_vocabulary.json", f"{side}_vocabulary.json")
    return json.loads(next(folder / n for n in names if (folder / n).is_file()).read_text(encoding="utf-8"))


@contextmanager
def hushed() -> Iterator[None]:
    """Hides progress bars and warnings that these libraries do not send through `logging` and `warnings`."""
    level = ctranslate2.get_log_level()
    ctranslate2.set_log_level(logging.ERROR)
    bars = transformers.utils.logging
    shows = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        ctranslate2.set_log_level(level)
        if shows:
            bars.enable_progress_bar()


ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_tanh": Activation.GELUTanh,
    "silu": Activation.SWISH,
}


def is_plain(config: ModelConfig) -> bool:
    """Whether a config is of such a model. The comparison of logits shows any other difference."""
    stack = config.decoder
    if stack is None or config.encoder is not None or stack.gated or stack.norm != "rms":
        return False
    if stack.norm_gain != "weight" or stack.norm_place != "pre" or stack.qk_norm or stack.rotary_layers:
        return False
    positions = stack.positions
    return isinstance(positions, Rotary) and positions.scaling is None and positions.fraction == 1.0


class DecoderConverter(Converter):
    """Writes the layers and their weights as the library's other converters do."""

    def __init__(self, model: Model, end: int | None) -> None:
        self.model, self.end = model, end

    def _load(self) -> Any:
        config = self.model.config
        stack, head = config.output, config.head
        assert isinstance(stack.positions, Rotary)
        assert isinstance(head, LanguageHead)
        spec: Any = TransformerDecoderModelSpec.from_config(
            stack.n_layers,
            stack.n_heads,
            activation=ACTIVATIONS[stack.activation],
            pre_norm=stack.norm_place == "pre",
            rms_norm=True,
            rotary_dim=0,
            rotary_interleave=False,
            rotary_base=stack.positions.base,
            num_heads_kv=None if stack.kv_heads == stack.n_heads else stack.kv_heads,
            head_dim=stack.head_width,
            sliding_window=stack.window,
        )
        tensors = {name: tensor.float() for name, tensor in model_tensors(merged(self.model.network)).items()}
        table = tensors["decoder.embed.tokens.weight"]
        spec.decoder.scale_embeddings = False
        spec.decoder.embeddings.weight = table.numpy()
        spec.decoder.layer_norm.gamma = tensors["decoder.final_norm.weight"].numpy()
        spec.decoder.projection.weight = tensors.get("head.output.weight", table).numpy()
        for number, layer in enumerate(spec.decoder.layer):
            fill(layer, tensors, f"decoder.blocks.{number}")
        spec.register_vocabulary([*self.words(len(table))])
        spec.config.layer_norm_epsilon = stack.norm_eps
        known = self.model.tokenizer
        for role, number in (("bos", known.bos_id), ("eos", self.end), ("unk", known.unk_id)):
            setattr(spec.config, f"{role}_token", "" if number is None else known.library.id_to_token(number) or "")
        return spec

    def words(self, n_rows: int) -> Iterator[str]:
        """The tokens by id. A row without a token gets a name that no text contains."""
        for number in range(n_rows):
            yield self.model.tokenizer.library.id_to_token(number) or f"<row {number}>"


def fill(layer: Any, tensors: Mapping[str, Tensor], name: str) -> None:
    """One block's matrices and norms."""

    def put(place: Any, *parts: str) -> None:
        place.weight = torch.cat([tensors[f"{name}.{part}.weight"] for part in parts]).numpy()
        if f"{name}.{parts[0]}.bias" in tensors:
            place.bias = torch.cat([tensors[f"{name}.{part}.bias"] for part in parts]).numpy()

    attention, ffn = layer.self_attention, layer.ffn
    attention.layer_norm.gamma = tensors[f"{name}.attn_norm.weight"].numpy()
    ffn.layer_norm.gamma = tensors[f"{name}.ffn_norm.weight"].numpy()
    put(attention.linear[0], "attn.q", "attn.k", "attn.v")
    put(attention.linear[1], "attn.out")
    put(ffn.linear_0, "ffn.up")
    put(ffn.linear_1, "ffn.down")
