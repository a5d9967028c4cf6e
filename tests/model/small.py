"""Small random networks with every mechanism, and what close means; shared by the model's tests."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model.meta import evaluated, masks_of, ops_of
from clearhead.model.mixers.mixer import TokenShift
from clearhead.trace import Trace, trace

VOCAB = 13

POSITIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"positions": c.Sinusoidal()},
    "concatenated": {"positions": c.Sinusoidal(layout="concatenated", base=100.0)},
    "learned": {"positions": c.Learned(max_length=24, offset=2)},
    "rotary": {"positions": c.Rotary()},
    "rotary_part": {"positions": c.Rotary(fraction=0.5, scaling=c.LinearScaling(factor=2.0))},
    "rotary_yarn": {"positions": c.Rotary(scaling=c.YarnScaling(factor=4.0, original_length=8))},
    "rotary_wavelength": {"positions": c.Rotary(scaling=c.WavelengthScaling(factor=4.0, original_length=16))},
    "relative": {"positions": c.RelativeBias(n_buckets=8, max_distance=16)},
    "alibi": {"positions": c.ALiBi()},
    "none": {"positions": c.NoPositions()},
}
NORMS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_place": "post"},
    "post_final": {"norm_place": "post", "final_norm": True},
    "sandwich_rms": {"norm_place": "sandwich", "norm": "rms"},
    "rms_no_bias": {"norm": "rms", "bias": False},
}
ATTENTION: dict[str, dict[str, Any]] = {
    "multi_head": {},
    "multi_query": {"n_kv_heads": 1},
    "grouped": {"n_kv_heads": 2},
    "qk_norm": {"qk_norm": True},
    "soft_cap": {"soft_cap": 1.5},
    "window": {"window": 3},
    "wide_heads": {"d_head": 8, "attn_scale": 0.3},
    "gated": {"gated": True, "activation": "silu"},
}


LAYERS: dict[str, dict[str, Any]] = {
    "first_layer_windowed": {"window": 3, "window_layers": (0,), "positions": c.Learned(max_length=24)},
    "last_layer_windowed": {"window": 2, "window_layers": (1,), "positions": c.RelativeBias(n_buckets=8)},
    "local_rotary": {
        "window": 3,
        "window_layers": (1,),
        "positions": c.Rotary(),
        "window_positions": c.Rotary(base=50.0, fraction=0.5),
    },
    "no_first_norm": {
        "first_norm": False,
        "input": c.TokenInput(vocab_size=VOCAB, norm=True),
        "norm": "rms",
        "positions": c.Rotary(scaling=c.YarnScaling(factor=4.0, original_length=8, attention_factor=0.7)),
    },
}

MIXERS: dict[str, dict[str, Any]] = {
    "gated_delta": {"mixer": c.GatedDelta(n_heads=4, n_key_heads=2, d_key=4, d_value=5, layers=(0,)), "norm": "rms"},
    "state_space": {"mixer": c.StateSpace(n_heads=4, d_head=6, d_state=5, n_groups=2, beside=True)},
    "selective_scan": {"mixer": c.SelectiveScan(d_inner=10, d_state=3, rank=2)},
    "short_convolution": {"mixer": c.ShortConvolution(bias=True, layers=(1,))},
    "time_mixing": {"mixer": c.TimeMixing(d_inner=10, layers=(0,))},
}

WITHIN = ("rotary", "relative", "alibi")


def pairs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Positions that act within attention with each attention, all others with two of them; the norms in turn."""
    for i, (p, positions) in enumerate(POSITIONS.items()):
        for j, (a, attention) in enumerate(ATTENTION.items()):
            n, norm = list(NORMS.items())[(i + j) % len(NORMS)]
            if p in WITHIN or (i + j) % 4 == 2:
                yield f"{p}-{n}-{a}", positions | norm | attention


PAIRS = {**dict(pairs()), **LAYERS}


def matrix(shape: tuple[int, int], *, bias: bool, by_inputs: bool) -> nn.Linear:
    """New weights; with `by_inputs` the outputs of one input lie side by side in memory, as in some checkpoints."""
    made = nn.Linear(*shape, bias=bias)
    if by_inputs:
        made.weight = nn.Parameter(made.weight.detach().T.contiguous().T)
    return made


def stack(**changes: Any) -> c.StackConfig:
    """Two blocks of four heads over 16 numbers."""
    base: dict[str, Any] = {
        "input": c.TokenInput(vocab_size=VOCAB), "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24
    }  # fmt: skip
    return c.StackConfig(**(base | changes))


def shaken(network: Transformer) -> Transformer:
    """The network with weights that leave no bias at 0 and no norm at 1, and without dropout."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            is_scale = parameter.ndim == 1 and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.3, generator=generator)
    return network.eval()


def decoder(**changes: Any) -> Transformer:
    return shaken(Transformer(c.ModelConfig(decoder=stack(**changes))))


def encoder(**changes: Any) -> Transformer:
    return shaken(Transformer(c.ModelConfig(encoder=stack(**changes))))


def with_head(head: c.Head, **changes: Any) -> Transformer:
    """An encoder under this head."""
    return shaken(Transformer(c.ModelConfig(encoder=stack(**changes), head=head)))


def encoder_decoder(**changes: Any) -> Transformer:
    both = stack(**changes)
    return shaken(Transformer(c.ModelConfig(encoder=both, decoder=both, share_embeddings=True)))


def ids(b: int, t: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (b, t), generator=torch.Generator().manual_seed(seed))


def sequences(*lengths: int) -> list[list[int]]:
    return [ids(1, length, seed=i)[0].tolist() for i, length in enumerate(lengths)]


def difference(actual: Tensor, reference: Tensor) -> float:
    """The largest difference as a share of what `close` allows: at most 1."""
    assert actual.shape == reference.shape, f"{tuple(actual.shape)} is not {tuple(reference.shape)}"
    bound = 1e-5 * max(1.0, reference.abs().max().item())
    return (actual - reference).abs().max().item() / bound


def assert_close(actual: Tensor, reference: Tensor) -> None:
    """|difference| <= 1e-5 max(1, max |reference|), the project's meaning of close."""
    worst = difference(actual, reference)
    assert worst <= 1, f"{worst:.2f} times the allowed difference"


@torch.no_grad()
def assert_values_follow(network: Transformer, *given: Tensor) -> None:
    """Every value of a pass over one input for each stack is what its op makes of the values before it."""
    with trace(network) as seen:
        network(*given)
    # -inf - -inf is no number: masked scores are seen by their softmax.
    values = {address: seen[address][0] for address in seen if not address.endswith(".masked")}
    known: dict[str, Tensor] = {}
    for (name, each), x in zip(network.stacks().items(), given, strict=True):
        reads = each.config.input
        known[f"{name}.embed.{reads.values}" if isinstance(reads, c.Continuous) else f"{name}.ids"] = x[0]
        known[f"{name}.positions"] = torch.arange(len(values[f"{name}.embed.sum"]))
        known[f"{name}.types"] = torch.zeros(len(x[0]), dtype=torch.long)
    ops, masks = ops_of(network.config), masks_of(network.config)
    assert {op.out for op in ops} >= values.keys()
    for op in ops:
        result = evaluated(op, [known[name] for name in op.inputs], network, masks.get(op.how))
        if op.out in values:
            assert_close(values[op.out], result)
        known[op.out] = values.get(op.out, result)


def gradients(network: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The loss, and by name the gradient of each weight that has one."""
    network.zero_grad()
    loss.backward()
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()} | found


def kept_bytes(network: Transformer, given: list[Tensor]) -> int:
    """Storage that autograd saves in a forward pass beside the weights, and that of the output.

    Left out: indices and masks (not float), and what all sequences share: rotations, masks, gains of norms,
    d 1 2 of token shifts.
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    kept: dict[int, Tensor] = {}
    shifts = any(isinstance(module, TokenShift) for module in network.modules())

    def pack(x: Tensor) -> Tensor:
        is_shared = shifts and x.shape[1:] == (1, 2)
        if x.is_floating_point() and x.ndim > 1 and x.shape[0] > 1 and not is_shared:
            kept[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        pack(network(*given))
    return sum(x.untyped_storage().nbytes() for address, x in kept.items() if address not in weights)


def rows(tokens: Tokens, logits: Tensor) -> list[Tensor]:
    """Each sequence's own logits, from a padded or a packed batch."""
    assert tokens.valid is not None
    flat = logits if tokens.rows is not None else tokens.real(logits)
    return list(flat.split(tokens.valid.sum(1).tolist()))


def assign(module: nn.Module, **values: Tensor) -> None:
    """Put these values in the module's parameters of those names (q_weight is q.weight)."""
    with torch.no_grad():
        for name, value in values.items():
            parameter = module.get_parameter(name.replace("__", "."))
            assert parameter.shape == value.shape, name
            parameter.copy_(value)


def visits(seen: Trace, address: str) -> list[Tensor]:
    """Every value that a trace keeps of an address, in order: one for each forward pass."""
    where, values = seen._find(address)
    return [where.of(value, seen.axes[where.path]) for value in values]
