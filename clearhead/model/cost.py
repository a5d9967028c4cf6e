"""What each component costs on one sequence: FLOPs, numbers kept for the backward pass, numbers cached."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from clearhead import config as c
from clearhead.model.attention import EXPLICIT_UP_TO
from clearhead.model.heads import ClassificationHead, LanguageHead, TaggingHead
from clearhead.model.norm import LayerNorm, RMSNorm
from clearhead.model.transformer import Stack, Transformer


@dataclass(frozen=True)
class Cost:
    """Of one instance of a component, for one sequence."""

    flops: int = 0
    """2 for each multiply and add of a matrix product."""
    kept: int = 0
    """Numbers that the backward pass needs, in float32."""
    mixed: int = 0
    """Bytes that it needs under bfloat16 autocast, where every linear layer keeps its own copy of what it reads."""
    cached: int = 0
    """Keys and values that generating the next token needs."""


@dataclass(frozen=True)
class Part:
    """A component: `count` equal instances of one module or parameter."""

    component: str
    path: str
    """Where the instances are, `*` for the number of the block."""
    first: str
    """Where the first one is."""
    length: int
    """Positions of its stack."""
    cost: Cost = Cost()
    count: int = 1


def linear_cost(linear: nn.Linear, positions: int) -> Cost:
    """2 d_in d_out a position; keeps its input."""
    kept = linear.in_features * positions
    return Cost(flops=2 * linear.weight.numel() * positions, kept=kept, mixed=2 * kept)


def norm_kept(config: c.StackConfig, vectors: int, width: int) -> int:
    """layer: its input, mean and rstd; rms: its input, rstd and input * rstd."""
    # PyTorch has no kernel for RMSNorm on a CPU, and keeps what each step reads.
    return vectors * (width + 2 if config.norm == "layer" else 2 * width + 1)


def norm_cost(config: c.StackConfig, vectors: int) -> Cost:
    """What a norm of d_model keeps, which autocast leaves in float32."""
    kept = norm_kept(config, vectors, config.d_model)
    return Cost(kept=kept, mixed=4 * kept)


def attention_cost(
    config: c.StackConfig,
    t: int,
    s: int,
    *,
    cross: bool,
    cached: bool,
    explicit: bool | None = None,
) -> Cost:
    """Q and O at t positions, K and V at s; Q K^T and weights V, each t s d_head products a head.

    `explicit`: softmax(Q K^T) V is computed step by step; default: as on a CPU.
    """
    h, h_kv, k, d = config.n_heads, config.kv_heads, config.head_width, config.d_model
    flops = 2 * d * k * (2 * h * t + 2 * h_kv * s) + 2 * (2 * h * t * s * k)
    kept = d * t + h * k * t  # what Q reads (K and V read it too, or the memory), and what O reads
    mixed = 2 * (d * (t + 2 * s) + h * k * t)  # a copy each for Q, K and V
    if config.qk_norm:
        kept += norm_kept(config, h * t + h_kv * s, k)
        # LayerNorm keeps what it reads as it is, in 16 bits here; the steps of RMSNorm are in float32.
        mixed += 4 * norm_kept(config, h * t + h_kv * s, k) - 2 * (config.norm == "layer") * (h * t + h_kv * s) * k
    # PyTorch has no fused kernel for a bias that learns, and falls back to the same steps.
    learned_bias = isinstance(config.positions, c.RelativeBias) and not cross
    explicit = s <= EXPLICIT_UP_TO if explicit is None else explicit
    if explicit or config.soft_cap is not None or learned_bias:
        capped, drops = config.soft_cap is not None, config.attn_dropout > 0
        kept += h * k * (t + 2 * s) + (1 + capped + 2 * drops) * h * t * s
        # A bias is float32, and so is the softmax after it: its result is kept, and a copy for the product.
        biased = isinstance(config.positions, c.RelativeBias | c.ALiBi) and not cross
        square = 6 + 2 * drops if biased else 2 + 4 * drops
        mixed += 2 * h * k * (t + 2 * s) + (square + 2 * capped) * h * t * s
    else:
        kept += k * (h * t + 2 * h_kv * s) + h * t  # the fused kernel sums each row's exponentials
        mixed += 2 * k * (h * t + 2 * h_kv * s) + 4 * h * t
    if config.dropout:
        kept, mixed = kept + d * t, mixed + 2 * d * t
    return Cost(flops, kept, mixed, cached=2 * h_kv * k * s if cached else 0)


def feedforward_cost(config: c.StackConfig, t: int) -> Cost:
    """2 d_model d_ff a position and matrix; keeps what each step reads, and the factors of dropout."""
    is_relu = config.activation == "relu"  # which needs only its result, not what it read
    kept = 2 if config.ffn_dropout else 1
    kept += 0 if is_relu else 1
    if config.gated:
        kept += 2
    elif is_relu and config.ffn_dropout:
        kept += 1
    matrices = 3 if config.gated else 2
    drops = config.dropout > 0
    return Cost(
        flops=2 * matrices * config.d_model * config.d_ff * t,
        kept=t * ((1 + drops) * config.d_model + kept * config.d_ff),
        mixed=2 * t * ((matrices - 1 + drops) * config.d_model + kept * config.d_ff),
    )


def parts(network: Transformer, source: int, target: int, *, explicit: bool | None = None) -> Iterator[Part]:
    """Every component in order of computation, on a source and a target of these lengths.

    `explicit`: how attention is computed; default: as on a CPU.
    """
    config = network.config
    last = "decoder" if network.decoder else "encoder"
    if network.encoder is not None:
        yield from stack_parts("encoder", network.encoder, source, memory=0, explicit=explicit)
    if network.decoder is not None:
        yield from stack_parts("decoder", network.decoder, target, memory=source, explicit=explicit)
    length = target if network.decoder else source
    if isinstance(config.head, c.NoHead):
        kept = length * config.output.d_model
        yield Part("last states", last, "states", length, Cost(kept=kept, mixed=4 * kept))
        if config.head.pooler:
            yield Part("head pooler", "head.pooler", "head.pooler", length)
    else:
        yield from head_parts(network.head, config, length)


def stack_parts(name: str, stack: Stack, t: int, *, memory: int, explicit: bool | None = None) -> Iterator[Part]:
    """Embedding, positions, blocks and final norm; `memory` is what cross-attention reads, 0 for none."""
    config = stack.config
    yield from embedding_parts(name, stack, t)
    path = f"{name}.positions"
    yield Part(f"positions ({config.positions.kind})", path, path, t)
    n, causal = config.n_layers, stack.causal
    blocks, first = f"{name}.blocks.*", f"{name}.blocks.0"

    def in_blocks(component: str, child: str, cost: Cost) -> Part:
        return Part(component, f"{blocks}.{child}", f"{first}.{child}", t, cost, n)

    norms = [
        f"{name}.blocks.{i}.{child}"
        for i, block in enumerate(stack.blocks)
        for child, module in block.named_children()
        if _is_norm(module)
    ]
    norm = norm_cost(config, t)
    cost = attention_cost(config, t, t, cross=False, cached=causal, explicit=explicit)
    yield in_blocks("attention Q K V O", "attn", cost)
    if memory:
        cost = attention_cost(config, t, memory, cross=True, cached=True, explicit=explicit)
        yield in_blocks("cross-attention Q K V O", "cross", cost)
        yield Part("memory", "encoder", "memory", memory, Cost(kept=memory * config.d_model))
    yield in_blocks("feed-forward", "ffn", feedforward_cost(config, t))
    yield Part("norms", f"{blocks}.*_norm", norms[0], t, norm, len(norms))
    if stack.final_norm is not None:
        yield Part("final norm", f"{name}.final_norm", f"{name}.final_norm", t, norm)


def embedding_parts(name: str, stack: Stack, t: int) -> Iterator[Part]:
    """Lookups cost nothing; patches are a matrix product."""
    config, path = stack.config, f"{name}.embed"
    dropout = t * config.d_model if config.embedding_dropout else 0

    def part(component: str, child: str, cost: Cost) -> Part:
        return Part(component, f"{path}.{child}", f"{path}.{child}", t, cost)

    if isinstance(config.input, c.TokenInput):
        yield part("token embedding", "tokens", Cost(kept=dropout, mixed=4 * dropout))
        if config.input.n_types:
            yield part("type embedding", "types", Cost())
        if config.input.norm:
            yield part("embedding norm", "norm", norm_cost(config, t))
        return
    linear = stack.embed.get_submodule("patches")
    assert isinstance(linear, nn.Linear)
    cost = linear_cost(linear, config.input.n_patches)
    yield part("patch embedding", "patches", Cost(cost.flops, cost.kept + dropout, cost.mixed + 4 * dropout))
    if config.input.class_token:
        yield part("class token", "class_token", Cost())


def head_parts(head: nn.Module, config: c.ModelConfig, length: int) -> Iterator[Part]:
    """The head's layers, on all positions or, for a classifier, on one pooled vector; with its output."""
    stack = config.output
    rows = 1 if isinstance(head, ClassificationHead) else length
    drops = isinstance(head, ClassificationHead | TaggingHead) and head.dropout > 0
    for child, module in head.named_children():
        path, cost = f"head.{child}", Cost()
        if isinstance(module, nn.Linear):
            cost = linear_cost(module, rows)
            extra = wide = 0
            if child == "output":
                soft_cap = isinstance(head, LanguageHead) and head.soft_cap is not None
                extra = module.out_features * soft_cap + module.in_features * drops
                wide = module.out_features  # the loss keeps its logarithms in float32
            elif (child == "dense" and stack.activation != "relu") or (child == "pooler" and drops):
                extra = module.out_features
            cost = Cost(cost.flops, cost.kept + rows * (extra + wide), cost.mixed + rows * (2 * extra + 4 * wide))
        elif _is_norm(module):
            cost = norm_cost(stack, rows)
        yield Part(f"head {child}", path, path, length, cost)


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, LayerNorm | RMSNorm)
