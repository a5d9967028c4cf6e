"""The weights that a new network begins with."""

import math
import re
from typing import TYPE_CHECKING

import torch
from torch import nn

from clearhead.config import Init
from clearhead.model.embedding import PatchEmbedding
from clearhead.model.experts import Router

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


def draw(part: nn.Module, init: Init) -> None:
    """Draws new weights: small tables, zero biases."""
    for module in part.modules():
        if isinstance(module, nn.Linear):
            if init.matrices == "xavier":
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=init.std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in part.modules():
        if isinstance(module, nn.Embedding | Router):
            nn.init.normal_(module.weight, std=init.std)
        elif isinstance(module, PatchEmbedding):
            for vectors in module.first.values():
                nn.init.normal_(vectors.detach(), std=init.std)


def initialize(network: "Transformer", init: Init) -> None:
    """Draws new weights so that the first loss is about ln V. Writers to the residual stream shrink with depth."""
    draw(network, init)
    if init.depth_scaled:
        for stack in filter(None, (network.encoder, network.decoder)):
            branches = stack.config.n_layers * (3 if stack is network.decoder and network.encoder else 2)
            for name, parameter in stack.named_parameters():
                if re.search(r"\.(attn\.out|cross\.out|ffn\.(.*\.)?down)\.weight$", name):
                    with torch.no_grad():
                        parameter /= math.sqrt(branches)
