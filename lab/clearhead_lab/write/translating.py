"""The learner's functions with the weights of a translator, and the learner's attention inside the library."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from clearhead import Model
from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead_lab.write.functions import names

NEEDED = {
    "positions.kind": "sinusoidal", "positions.layout": "interleaved", "input.scale": True, "norm": "layer",
    "norm_place": "post", "norm_eps": 1e-5, "activation": "relu", "gated": False, "bias": True, "n_kv_heads": None,
}  # fmt: skip
"""What both stacks of a network must have, so that the functions of the course compute it."""


def check_model(model: Model, where: str) -> None:
    """Raises UserError unless the functions of the course compute this network."""
    remedy = "try a run of `clearhead demo`"
    if not model.is_encoder_decoder:
        raise UserError(f"{where}: expected an encoder-decoder, got one stack; {remedy}")
    for stack in ("encoder", "decoder"):
        document = model.config.model_dump()[stack]
        for field, value in NEEDED.items():
            first, _, second = field.partition(".")
            got = document[first].get(second) if second else document[first]
            if got != value:
                raise UserError(f"{where}: expected {stack}.{field}={value}, got {got}; {remedy}")


def translate(mine: ModuleType, model: Model, text: str) -> list[int]:
    """The tokens that the learner's functions write, with the weights of the model, the likeliest at each step."""
    w, part = model.network.state_dict(), names()["part"]
    config = model.settings(model.generation)
    ids = torch.tensor([read(mine, model, text)])

    def run(stack: str, ids: Tensor, layer: Callable[[Tensor, dict[str, Tensor], int], Tensor]) -> Tensor:
        settings = getattr(model.config, stack)
        x = mine.embed(ids, w[f"{stack}.embed.tokens.weight"])
        x = x + mine.positions(*x.shape[1:])
        for i in range(settings.n_layers):
            x = layer(x, part(w, f"{stack}.blocks.{i}"), settings.n_heads)
        return x

    mask = mine.padding_mask(ids, -1 if config.pad_id is None else config.pad_id)
    memory = run("encoder", ids, lambda x, w, n: mine.encoder_layer(x, w, n, mask))

    def step(written: list[int]) -> Tensor:
        causal = mine.causal_mask(len(written))
        x = run("decoder", torch.tensor([written]), lambda x, w, n: mine.decoder_layer(x, memory, w, n, causal, mask))
        return mine.logits(x, w["head.output.weight"])[0, -1]

    return mine.greedy(step, config.start_id, config.end_ids[0], config.max_new_tokens)


def read(mine: ModuleType, model: Model, text: str) -> list[int]:
    """The ids of a text: by the learner's `encode` if the tokenizer is byte-pair encoding, else by the library."""
    ids, library = model.reader.ids([text])[0], model.tokenizer.library
    whole: Any = parse(library.to_str(), "tokenizer")
    document = whole["model"]
    if document["type"] != "BPE":
        return ids
    plain = library.normalizer.normalize_str(text) if library.normalizer else text
    pieces = library.pre_tokenizer.pre_tokenize_str(plain) if library.pre_tokenizer else [(plain, (0, 0))]
    merges = [tuple(pair) for pair in document["merges"]]
    own = [
        document["vocab"].get(token, model.tokenizer.unk_id)
        for word, _ in pieces
        for token in mine.encode(word, merges)
    ]
    return [*own, *ids[len(model.tokenizer.encode(text)) :]]


def put_inside(mine: ModuleType, model: Model) -> list[int]:
    """Puts the learner's attention into every attention of the model's network, in place.

    Returns a list that gets a number, the keys read, for each call.
    """
    calls: list[int] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, attn_bias: AttentionBias, _: int) -> Tensor:
        calls.append(k.shape[2])
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool) if attn_bias.mask is None else attn_bias.mask == 0
        return mine.attention(q, k, v, mask)

    for module in model.network.modules():
        if isinstance(module, Attention):
            module.kernel = "explicit"
            module.explicit = attend  # pyrefly: ignore
    return calls
