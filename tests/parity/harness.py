"""A tiny random model of the reference library beside ours, opened from the folder that it saved."""

import atexit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.analysis.comparison import LOGITS, differences, modules, reference_states, states, without_padding
from clearhead.api import Model, load
from clearhead.config import ClassificationHead, ShortConvolution, TimeMixing, VectorHead, WaveInput
from clearhead.model import Tokens, Transformer, attention
from clearhead.model.mode import Evaluating
from clearhead.storage.tensors import model_tensors
from clearhead.trace import trace

READ_AND_NOT = {f"{head}decoder.bias": f"{head}bias" for head in ("cls.predictions.", "predictions.", "lm_head.")}
"""Where the output is not tied, the reference keeps a second bias that it adds nowhere."""
LENGTHS = (7, 4, 5)
ALIKE = (7, 7, 7)
TARGET_LENGTHS = (5, 6, 3)
SAMPLES = (151, 97, 60)
ENDED = ("clip_text_model", "metaclip_2_text_model", "clipseg_text_model")
"""Models that read the state of the first end token."""
FILLED = ("siglip_text_model", "siglip2_text_model")
"""Models that read the last state, even of padding."""
COUNT_NO_PADDING = ("esm", "roberta", "xlm-roberta", "camembert", "data2vec-text", "mpnet", "m2m_100")
COUNT_NO_PADDING += ("roberta-prelayernorm", "xlm-roberta-xl")
"""Models that count their positions by themselves, and leave padding out."""
LEFT_OUT = "contact_head."
"""A second head, which a warning names when a model with it is opened."""


@dataclass(frozen=True)
class Case:
    """One configuration of one class of the reference library."""

    family: str
    variant: str
    architecture: str
    """The class there, such as GPT2LMHeadModel."""
    config: Mapping[str, Any] = field(hash=False)
    """Fields of its config class that are not at their defaults."""
    pad: int = 0
    """The id that stands in padded cells; no real token has it."""
    slow: bool | None = None
    """Whether the normal suite leaves it out; None for every second variant."""

    def __str__(self) -> str:
        return f"{self.family}-{self.variant}-{self.architecture}"


def reference(case: Case, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """The reference model, every weight drawn at random: no bias is 0 and no norm is 1."""
    import transformers

    architecture = getattr(transformers, case.architecture)
    model = architecture(architecture.config_class(**deepcopy(case.config)))  # It writes into tables of the config.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad and not name.endswith("expert_bias"):
                continue  # Sinusoids are what they are.
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(noise * (0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5))
        for name, buffer in model.named_buffers():
            if name.endswith(("final_logits_bias", "e_score_correction_bias", ".expert_bias")):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("rotary_embeddings.inv_freq"):
                buffer.copy_(buffer.half())  # as published checkpoints of that type have them
        parameters = dict(model.named_parameters())
        for read, unread in READ_AND_NOT.items():
            if read in parameters and unread in parameters:
                parameters[unread].copy_(parameters[read])
    if dtype == torch.float64 and model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # Its grouped product has no float64.
    return model.to(dtype).eval()


def both(case: Case, folder: Path, *, dtype: torch.dtype = torch.float32) -> tuple[Any, Model]:
    """The reference, and ours read from the folder that the reference wrote."""
    theirs = reference(case, dtype=dtype)
    theirs.save_pretrained(folder)
    return theirs, load(folder)


@cache
def kept(case: Case) -> tuple[Any, Model, Path]:
    """The same, made once for all tests of a process, and the folder. Whoever changes one of them changes it back."""
    folder = Path(mkdtemp(prefix="clearhead-parity-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return *both(case, folder), folder


# --- inputs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """The same batch for both: keyword arguments there, one `Tokens` a stack here, and the real cells of the output."""

    theirs: dict[str, Any]
    ours: tuple[Tokens, ...]


def inputs(case: Case, theirs: Any, *, left: bool = False, packed: bool = False, seed: int = 1) -> Inputs:
    """A batch of unequal lengths, padded on one side; images or sounds for a model that reads them."""
    generator = torch.Generator().manual_seed(seed)
    config, packed = theirs.config, packed and case.family not in FILLED
    if theirs.main_input_name == "pixel_values":
        size = config.image_size
        pixels = torch.randn(2, config.num_channels, size, size, generator=generator, dtype=theirs.dtype)
        return Inputs({"pixel_values": pixels}, (Tokens(pixels),))

    def draw(lengths: Sequence[int], low: int, high: int) -> list[list[int]]:
        return [torch.randint(low, high, (n,), generator=generator).tolist() for n in lengths]

    def batch(rows: Sequence[Sequence[int]], *, left: bool = left) -> tuple[Tokens, Tensor]:
        tokens = Tokens.pad(rows, fill=case.pad, left=left, packed=packed)
        if left and config.is_encoder_decoder and config.model_type not in COUNT_NO_PADDING:
            # The reference counts padding as positions; told so, ours does the same.
            grid = torch.arange(tokens.grid[1])[None].expand(tokens.grid).contiguous()
            tokens = Tokens(tokens.ids, tokens.valid, positions=grid)
        return tokens, torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long()

    low = case.pad + 1
    if theirs.main_input_name == "input_values":
        waves = [torch.randn(n, 1, generator=generator, dtype=theirs.dtype) for n in SAMPLES]
        tokens = Tokens.waves(waves)
        assert tokens.valid is not None
        return Inputs({"input_values": tokens.ids[..., 0], "attention_mask": tokens.valid.long()}, (tokens,))
    if theirs.main_input_name == "input_features":
        shape = len(TARGET_LENGTHS), config.num_mel_bins, 2 * config.max_source_positions
        sounds = torch.randn(shape, generator=generator, dtype=theirs.dtype)
        target, mask = batch(draw(TARGET_LENGTHS, low, config.vocab_size), left=False)
        arguments = {"input_features": sounds, "decoder_input_ids": target.ids, "decoder_attention_mask": mask}
        return Inputs(arguments, (Tokens(sounds.mT.contiguous()), target))
    if config.is_encoder_decoder and not case.architecture.endswith("ForTokenClassification"):  # Read by the encoder.
        if case.architecture.endswith("ForSequenceClassification"):
            # Each text ends with the one end token, where the decoder, which reads it shifted, is asked.
            end = config.eos_token_id
            source = [[*row[1:], end] for row in draw(LENGTHS, max(low, end + 1), config.vocab_size)]
            tokens, mask = batch(source)
            target, target_mask = batch([[end, *row[:-1]] for row in source])
        else:
            tokens, mask = batch(draw(LENGTHS, low, config.vocab_size))
            n_words = case.config.get("decoder_vocab_size", config.vocab_size)
            target, target_mask = batch(draw(TARGET_LENGTHS, low, n_words), left=False)
        arguments = {"input_ids": tokens.ids, "attention_mask": mask}
        return Inputs(
            arguments | {"decoder_input_ids": target.ids, "decoder_attention_mask": target_mask}, (tokens, target)
        )
    n_words = getattr(config, "text_config", config).vocab_size
    rows = draw(ALIKE if case.family in FILLED else LENGTHS, low, n_words)
    if case.family in ENDED:
        rows = [[*(one for one in row[1:] if one != config.eos_token_id), config.eos_token_id] for row in rows]
    tokens, mask = batch(rows)
    arguments = {"input_ids": tokens.ids, "attention_mask": mask}
    if takes_positions(theirs):
        arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return Inputs(arguments, (tokens,))


def takes_positions(theirs: Any) -> bool:
    """Whether the reference's forward is told positions; a model that counts them by itself is left to it."""
    import inspect

    names = inspect.signature(type(theirs).forward).parameters
    return "position_ids" in names and theirs.config.model_type not in COUNT_NO_PADDING


def sides(ours: Model) -> tuple[bool, ...]:
    """Padding on the left or not: only not, where the reference reads the first cell even if it is padding."""
    head = ours.config.head
    if isinstance(ours.config.first.input, WaveInput):
        return (False,)
    if isinstance(ours.config.output.mixer, TimeMixing):
        return (False,)  # The reference does not know which cells are padding.
    if isinstance(head, VectorHead) and ours.generation.pad_id in ours.generation.end_ids:
        return (False,)  # The reference takes the first padding for the end of the text.
    if isinstance(mixer := ours.config.first.mixer, ShortConvolution) and mixer.bias:
        return (False,)  # In the reference the bias of padding reaches the first tokens (docs/checkpoints.md).
    return (False,) if isinstance(head, ClassificationHead) and head.pool == "first" else (False, True)


# --- outputs -------------------------------------------------------------------------------------------------------


@contextmanager
def fused() -> Iterator[None]:
    """Ours by the fused kernel even for short texts."""
    kept = attention.EXPLICIT_UP_TO
    attention.EXPLICIT_UP_TO = 0
    try:
        yield
    finally:
        attention.EXPLICIT_UP_TO = kept


@dataclass(frozen=True)
class Gap:
    """The largest differences of real positions, and the largest as a share of max(1, max |reference|)."""

    logits: float
    hidden: float
    relative: float

    @classmethod
    def between(cls, theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], tokens: Sequence[Tokens]) -> Self:
        """How far ours is from the reference, where there are tokens."""
        found = {one.address: one for one in differences(ours, theirs, tokens)}
        assert all(one.largest == one.largest for one in found.values()), "not a number"
        hidden = max(one.largest for address, one in found.items() if address != LOGITS)
        return cls(found[LOGITS].largest, hidden, max(one.relative for one in found.values()))

    def __or__(self, other: Self) -> Self:
        """The larger of each."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(max(a, b) for a, b in pairs))


def traced_states(network: Transformer, tokens: Sequence[Tokens]) -> dict[str, Tensor]:
    """The values of `states`, as a trace sees them."""
    with Evaluating(network), torch.no_grad(), trace(network) as seen:
        logits = network(*tokens)
    found = {address: seen[address] for address in modules(network)} | {LOGITS: logits}
    return without_padding(found, network, tokens)


def gaps(case: Case, theirs: Any, ours: Model) -> Iterator[tuple[str, Gap]]:
    """Every way of the reference against every way of ours, each with its name."""
    for left in sides(ours):
        batch = inputs(case, theirs, left=left)
        found = {
            "explicit": states(ours.network, batch.ours),
            "traced": traced_states(ours.network, batch.ours),
        }
        with fused():
            found["fused"] = states(ours.network, batch.ours)
        fused_too = all(getattr(module, "_supports_sdpa", True) for module in theirs.modules())
        for kernel in ("eager", "sdpa") if fused_too else ("eager",):
            theirs.set_attn_implementation(kernel)
            expected = reference_states(theirs, batch.theirs, ours.network)
            for way, values in found.items():
                yield f"{kernel}, {'left' if left else 'right'}, {way}", Gap.between(expected, values, batch.ours)
    batch = inputs(case, theirs, packed=True)
    expected = reference_states(theirs, batch.theirs, ours.network)
    yield "packed", Gap.between(expected, states(ours.network, batch.ours), batch.ours)


def round_trip(theirs: Any, ours: Model, folder: Path) -> None:
    """In -> out -> in: equal to the bit, and the reference finds every key and no other."""
    ours.save(folder)
    back, report = type(theirs).from_pretrained(folder, output_loading_info=True)
    assert not [name for name in report["missing_keys"] if LEFT_OUT not in name], report
    assert not any(report[key] for key in ("unexpected_keys", "mismatched_keys")), report
    if theirs.config.model_type == "rwkv":  # A pass for evaluation divides its weights in place.
        theirs.train().base_model._rescale_layers()
    kept = theirs.state_dict()
    assert back.state_dict().keys() == kept.keys()
    for name, tensor in back.state_dict().items():
        assert LEFT_OUT in name or torch.equal(tensor, kept[name]), name
    again = load(folder)
    assert again.config == ours.config
    tensors = model_tensors(again.network)
    for name, tensor in model_tensors(ours.network).items():
        assert torch.equal(tensors[name], tensor), name
