"""The steps after the network that make one vector of a text, listed as ops beside those of the network."""

from torch import Tensor, nn

from clearhead.api.sentences import Sentences
from clearhead.config import ModelConfig, NoHead, VectorHead
from clearhead.model.ops import Op, Steps
from clearhead.model.record import ops_of
from clearhead.model.sentences import Dense, Dropout, Mode, Pooling, Step, Unit, VectorLayerNorm

POOLS: dict[Mode, str] = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""The ways to pool that are one op."""
ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Sigmoid": "sigmoid"}


def vector_ops(config: ModelConfig, sentences: Sentences) -> tuple[Op, ...]:
    """The ops from the states of a network without logits, or from its vector, to `head.unit`, of length 1.

    None for a network with logits, and for a sentence encoder with a step that no op describes.
    """
    if not isinstance(config.head, NoHead | VectorHead) or len(config.stacks) > 1:
        return ()
    to, x = Steps(), ops_of(config)[-1].out
    if isinstance(config.head, NoHead):
        for i, step in enumerate(sentences.steps):
            found = _listed(to, i, step, x)
            if found is None:
                return ()
            x = found
    to.do("head.unit", "unit", x)
    return tuple(to.ops)


def vector_weights(sentences: Sentences) -> dict[str, Tensor]:
    """The parameters of those steps, by the names that the ops use."""
    found: dict[str, Tensor] = {}
    for i, module in enumerate(sentences.modules):
        found |= {f"head.{i}.{name}": tensor for name, tensor in module.weights().items()}
    return found


def _listed(to: Steps, i: int, step: Step, x: str) -> str | None:
    """Lists the ops of one step on x; returns the address of its result, None if no op describes it."""
    path = f"head.{i}"
    match step:
        case Pooling((mode,), includes_prompt=True) if mode in POOLS:
            return to.do("head.pool", "pool", x, how=POOLS[mode])
        case Dense(residual=False) if step.activation in (*ACTIVATIONS, nn.Identity.__name__):
            names = (f"{path}.linear.weight", *[f"{path}.linear.bias"] * (step.bias is not None))
            x = to.do(f"head.dense.{i}", "linear", x, weights=names)
            how = ACTIVATIONS.get(step.activation)
            return x if how is None else to.do(f"head.act.{i}", "activation", x, how=how)
        case VectorLayerNorm():
            mean = to.do(f"{path}.norm.mean", "mean", x)
            rstd = to.do(f"{path}.norm.rstd", "rstd", x, mean, by={"eps": 1e-5})
            weights = (f"{path}.norm.weight", f"{path}.norm.bias")
            return to.do(f"{path}.norm.out", "norm", x, mean, rstd, weights=weights)
        case Unit() | Dropout():
            return x  # The last op makes it of length 1.
        case _:
            return None
