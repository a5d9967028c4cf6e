"""Converts a language model of plain rotary blocks to CTranslate2, from its own weights.

CTranslate2 has layers for such a model (one up and one down matrix in the feed-forward layer, RMS norms, rotary
positions), but its converter does not know the class as which other libraries open it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from ctranslate2.converters.converter import Converter
from ctranslate2.specs import TransformerDecoderModelSpec
from ctranslate2.specs.common_spec import Activation
from torch import Tensor

from clearhead.api import Model
from clearhead.config import LanguageHead, ModelConfig, Rotary
from clearhead.model.assign import merged
from clearhead.storage.tensors import model_tensors

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
