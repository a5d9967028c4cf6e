"""Tiny random networks in float64, whose predictions are sharp enough to tell hypotheses apart."""

from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.generation import Hypothesis, complete
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig

V, BOS, EOS, PAD = 19, 1, 2, 18
SOURCES = [[5, 9, 3, 4], [7, 7], [11, 3, 16, 8, 4, 15, 6], [10]]
PROMPTS = [[BOS, 7], [BOS], [BOS, 12, 5, 5, 9], [BOS, 3, 4]]


def network(
    *,
    cross: bool = False,
    vocab_size: int = V,
    positions: c.Positions | None = None,
    seed: int = 25,
    sharp: float = 1.2,
    ending: float = 1.5,
) -> Transformer:
    """`sharp` multiplies the logits; `ending` is added to the end token's."""
    stack = c.StackConfig(
        input=c.TokenInput(vocab_size=vocab_size),
        d_model=16,
        n_layers=2,
        n_heads=2,
        d_ff=32,
        positions=positions or c.Sinusoidal(),
        dropout=0.1,
    )
    encoder = stack if cross else None
    config = c.ModelConfig(encoder=encoder, decoder=stack, head=c.LanguageHead(tied=False, scale=sharp, bias=True))
    torch.manual_seed(seed)
    built = Transformer(config).double()
    for name, parameter in built.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=1.0 if "embed" in name else parameter.shape[-1] ** -0.5)
    with torch.no_grad():
        built.head.get_parameter("output.bias")[EOS] = ending
    return built


def completions(net: Transformer, config: GenerationConfig, **settings: Any) -> list[list[Hypothesis]]:
    """The hypotheses for each source, or for each prompt."""
    if net.encoder is not None:
        settings |= {"source": SOURCES, "bos_id": BOS}
    prompts = None if net.encoder is not None else PROMPTS
    ends: dict[str, Any] = {"eos_id": EOS, "pad_id": PAD}
    return complete(net, prompts, config=config, **(ends | settings))


def tokens(hypotheses: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.tokens for hypothesis in row] for row in hypotheses]


def all_logits(net: Transformer, tokens: list[int], source: list[int] | None) -> Tensor:
    """t v: by a whole forward pass over one sequence, without cache, batch or padding."""
    inputs = [torch.tensor([x]) for x in ([tokens] if source is None else [source, tokens])]
    training = net.training
    net.eval()
    with torch.no_grad():
        logits = net(*map(Tokens, inputs))[0]
    net.train(training)
    return logits
