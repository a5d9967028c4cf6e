"""Records of shapes, widths and counts of weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.checkpoints.families import preset
from clearhead.model import Layout, Tokens, Transformer, cost
from clearhead.model.attention import Attention, by_heads
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import LayerNorm
from clearhead.trace import trace
from clearhead_lab.examples.parts import (
    Compute,
    attend,
    count,
    encoding,
    f64,
    heads_of,
    on_meta,
    small_decoder,
    stack,
)
from clearhead_lab.examples.records import Inputs


def shapes(*values: Tensor) -> list[int]:
    """The sizes of all axes, value after value."""
    return [size for value in values for size in value.shape]


def encoder(**changes: Any) -> Transformer:
    """An encoder of width 512 without a head."""
    return Transformer(c.ModelConfig(encoder=stack(512, **changes), head=c.NoHead()))


def one_head() -> dict[str, Tensor]:
    """Every step of one head of width 64 over three words of width 512."""
    seen = attend(torch.zeros(3, 512, dtype=torch.float64), d_k=64)
    return {name: seen[name] for name in seen}


def _s0_02(_: Inputs) -> Any:
    network = on_meta(lambda: encoder(input=c.TokenInput(vocab_size=50_000)))
    return shapes(network.get_parameter("encoder.embed.tokens.weight"))


def _s0_03(i: Inputs) -> Any:
    with trace(network := encoder(input=c.TokenInput(vocab_size=5000))) as seen:
        network(torch.tensor([i["ids"]]))
    return shapes(seen["encoder.embed.tokens[b=0]"])


def _s0_35(_: Inputs) -> Any:
    tokens = torch.tensor([[1, 2, 3]])
    with trace(network := encoder(positions=c.Sinusoidal())) as seen:
        network(tokens)
    return shapes(tokens, seen["encoder.embed.tokens"], seen["encoder.embed.sum"])


def _s0_38(_: Inputs) -> Any:
    seen = heads_of(3, 512, 8)
    z = seen["z"][0].transpose(0, 1)
    return shapes(z, z.flatten(1), seen["out"], seen["weights"])


def _s0_53(_: Inputs) -> Any:
    network = encoder(n_layers=6, n_heads=8, bias=True, norm_place="post")
    with trace(network) as seen, torch.no_grad():
        out = network(torch.tensor([[1, 2, 3]]))
    maps = [seen[name].mean(1) for name in seen if name.endswith("attn.weights")]
    blocks = network.last_stack.blocks
    return [shapes(out.transpose(0, 1)), len(maps), shapes(maps[0]), count(blocks), count(blocks[0])]


def _s0_57(_: Inputs) -> Any:
    seen = one_head()
    return [3, seen["out"].shape[-1], *shapes(seen["q"][0, 0], seen["weights"][0, 0], seen["z"][0, 0])]


def _s1_03(i: Inputs) -> Any:
    torch.manual_seed(i["seed"])
    embedding = TokenEmbedding(stack(4), c.TokenInput(vocab_size=10))
    torch.manual_seed(i["seed"])
    embedding.tokens.get_parameter("weight").data = torch.nn.Embedding(10, 4).weight.data
    tokens = Tokens(torch.tensor([[2, 5, 7]]))
    return embedding.vectors(tokens, Layout.of(tokens))[0, 0]


def _s1_15(i: Inputs) -> Any:
    """Applications of a mask until the last position has seen the first: one step back each, or all at once."""
    return [_steps(i["length"], window=2), _steps(i["length"], window=None)]


def _steps(length: int, *, window: int | None) -> int:
    layout = Layout.of(Tokens(torch.zeros(1, length, dtype=torch.long)))
    mask = AttentionBias.between(layout, layout, causal=True, window=window, dtype=torch.float64).mask
    assert mask is not None
    reaches = (mask.reshape(length, length) == 0).double()
    seen, steps = reaches, 1
    while seen[-1, 0] == 0:
        seen, steps = ((seen @ reaches) > 0).double(), steps + 1
    return steps


def _s1_16(_: Inputs) -> Any:
    seen = heads_of(4, 8, 2, b=2)
    joined = seen["z"].transpose(1, 2).flatten(2)
    return shapes(seen["q"], seen["weights"], seen["z"], joined, seen["out"])


def _s1_27(i: Inputs) -> Any:
    both = stack(512, n_heads=8)
    network = Transformer(c.ModelConfig(encoder=both, decoder=both, head=c.NoHead()))
    with trace(network) as seen, torch.no_grad():
        network(torch.zeros(2, i["T_enc"], dtype=torch.long), torch.zeros(2, i["T_dec"], dtype=torch.long))
    at = "decoder.blocks.0.cross."
    steps = [seen[at + name] for name in ("q", "k", "v", "scores", "z")]
    joined = seen[at + "z"].transpose(1, 2).flatten(2)
    return shapes(seen["decoder.embed.sum"], seen["encoder.blocks.0.resid_post"], *steps, joined, seen[at + "out"])


def _s2_01(i: Inputs) -> Any:
    """The scores that the backward pass keeps."""
    network = on_meta(lambda: Transformer(c.ModelConfig(encoder=stack(2), head=c.NoHead())))
    return [cost.largest_kept(network, n, 0, explicit=True) for n in i["n"]]


def _s3_08(_: Inputs) -> Any:
    seen = heads_of(2, 512, 8)
    return shapes(seen["z"][0, 0], seen["z"][0].transpose(0, 1).flatten(1), seen["out"][0])


def side_by_side(*widths: int) -> list[int]:
    """Widths of an embedding and its position, joined."""
    return [torch.cat([encoding([1], d), encoding([1], d)], -1).shape[-1] for d in widths]


# --- counts of weights -----------------------------------------------------------------------------------------------


def base_attention(**changes: Any) -> Attention:
    """An attention of width 512."""
    return on_meta(lambda: Attention(stack(512, **({"n_heads": 8} | changes))))


def feed_forward(i: Inputs, **changes: Any) -> FeedForward:
    """The feed-forward of the record."""
    return on_meta(lambda: FeedForward(stack(i["d"], d_ff=i["ff"], **changes)))


def in_blocks(*kinds: str) -> list[int]:
    """Weights of these kinds of sublayers in the six blocks of the second document's decoder."""
    blocks = small_decoder().last_stack.blocks
    return [sum(count(block.get_submodule(kind)) for block in blocks) for kind in kinds]


def in_block(*kinds: str, **changes: Any) -> list[int]:
    """Weights of these sublayers in one of its blocks."""
    block = small_decoder(**changes).last_stack.blocks[0]
    return [count(block.get_submodule(kind)) for kind in kinds]


def _s0_42(i: Inputs) -> Any:
    """Heads of presets."""
    return [preset(name).output.n_heads for name in i["presets"]]


def _s0_42b(i: Inputs) -> Any:
    """Heads by the widths of Brown et al. 2020 (table 2.1) and Touvron et al. 2023."""
    return [d // head for d, head in zip(i["d_model"], i["d_head"], strict=True)]


def _s0_51(_: Inputs) -> Any:
    ffn, attention = in_block("ffn", "attn", bias=False)
    return ffn / (ffn + attention)


def _s0_58(_: Inputs) -> Any:
    config = preset("transformer-base").output
    return config.d_ff / config.d_model


def _s1_01(i: Inputs) -> Any:
    config = stack(i["d"], n_heads=i["h"], d_ff=i["ff"])
    return [config.head_width, config.d_ff / config.d_model]


def _s1_05(_: Inputs) -> Any:
    attention = base_attention(bias=True)
    return [count(attention, "q.weight"), count(attention, "bias"), count(attention)]


def _s1_10(_: Inputs) -> Any:
    attention, ffn, first, second = in_blocks("attn", "ffn", "attn_norm", "ffn_norm")
    return [attention, ffn, first + second]


def _s1_26(i: Inputs) -> Any:
    config = preset(i["preset"])
    assert config.decoder is not None
    decoder = config.decoder.model_copy(update={"positions": c.Learned(max_length=512)})
    variants: Sequence[dict[str, Any]] = ({}, {"head": c.LanguageHead(tied=False)}, {"decoder": decoder})
    tied, untied, shorter = (on_meta(lambda v=v: Transformer(config.model_copy(update=v))) for v in variants)
    return [count(tied), count(untied), count(shorter), count(tied.last_stack.blocks[0]), count(tied)]


def _s3_09a(_: Inputs) -> Any:
    one, eighth = (count(on_meta(lambda d=d: Attention(stack(d))), "q.weight") for d in (512, 64))
    return [one, eighth, 8 * eighth, one / (8 * eighth)]


COMPUTED: dict[str, Compute] = {
    "s0-02": _s0_02,
    "s0-03": _s0_03,
    "s0-05": lambda _: shapes(one_head()["q"][0, 0]),
    "s0-06": lambda _: shapes(one_head()["scores"][0, 0]),
    "s0-23a": lambda _: [1, 3, 512, *shapes(one_head()["z"][:, 0], one_head()["weights"][:, 0])],
    "s0-35": _s0_35,
    "s0-36": lambda i: side_by_side(i["a"]),
    "s0-37": lambda i: [(s := stack(i["d_model"], n_heads=i["h"])).head_width, s.n_heads * s.head_width],
    "s0-38": _s0_38,
    "s0-42": _s0_42,
    "s0-42b": _s0_42b,
    "s0-50": lambda i: [count(feed_forward(i)), count(base_attention())],
    "s0-51": _s0_51,
    "s0-53": _s0_53,
    "s0-57": _s0_57,
    "s0-58": _s0_58,
    "s1-01": _s1_01,
    "s1-02": lambda i: count(small_decoder(input=c.TokenInput(vocab_size=i["V"])), "tokens.weight"),
    "s1-03": _s1_03,
    "s1-04": lambda i: count(small_decoder(positions=c.Learned(max_length=i["T"])), "positions.table.weight"),
    "s1-05": _s1_05,
    "s1-06": lambda i: [
        count(feed_forward(i, bias=True), name) for name in ("up.weight", "up.bias", "down.weight", "down.bias", "")
    ],
    "s1-08": lambda _: [in_block("attn_norm")[0], sum(in_block("attn_norm", "ffn_norm"))],
    "s1-10": _s1_10,
    "s1-11": lambda _: [count(small_decoder(tied=tied, final_norm=False)) / 1e6 for tied in (False, True)],
    "s1-12": lambda _: sum(isinstance(m, LayerNorm) for m in small_decoder().modules()),
    "s1-15": _s1_15,
    "s1-16": _s1_16,
    "s1-17": lambda _: by_heads(f64(range(32)).view(1, 4, 8) / 10, 2)[0, :, 0],
    "s1-23": lambda _: (count(small_decoder(tied=False)) - count(small_decoder())) / 1e6,
    "s1-24": lambda _: in_blocks("ffn")[0] / in_blocks("attn")[0],
    "s1-26": _s1_26,
    "s1-27": _s1_27,
    "s1-33": lambda _: [*in_block("attn", "ffn"), count(small_decoder().last_stack.blocks[0])],
    "s1-36": lambda _: [count(base_attention(n_heads=h)) for h in (1, 2, 4, 8, 16)],
    "s2-01": _s2_01,
    "s2-02": lambda _: heads_of(20, 8, 2)["scores"].numel() / heads_of(10, 8, 2)["scores"].numel(),
    "s2-03": lambda i: stack(i["d"], n_heads=i["h"]).head_width,
    "s3-08": _s3_08,
    "s3-09a": _s3_09a,
    "s3-13": lambda _: shapes(encoding(range(50), 128)),
    "s3-15": lambda _: side_by_side(6, 512),
    "s4-01": lambda i: stack(512, n_heads=i["h"]).head_width,
    "s4-02": lambda _: shapes(
        small_decoder(input=c.TokenInput(vocab_size=10_000)).get_parameter("head.output.weight").mT
    ),
    "s4-31": lambda _: sum(isinstance(m, torch.nn.Linear) for m in FeedForward(stack(4)).modules()),
    "s4-32": lambda i: stack(i["d"], n_heads=i["h"]).head_width,
}
