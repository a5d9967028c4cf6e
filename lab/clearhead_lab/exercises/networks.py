"""Networks whose weights are written, not trained: each does one thing that can be read off its matrices.

A word is one component of the stream, a position is another; a head moves words to the components that the output
matrix reads. So every model is built in milliseconds, and is the same on every machine.
"""

from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.api import Model
from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer

D_HEAD = 24
SHARP = 30.0
"""q.k of a match: a share of 1 against e^(-30 / sqrt(D_HEAD)) = 0.002."""


def tokenizer_of(words: str) -> Tokenizer:
    """A token for each of these words."""
    return Tokenizer.train([words], Words())


def stack(tokenizer: Tokenizer, d_model: int, **changes: Any) -> c.StackConfig:
    """One block without biases whose attention reads the embedding as it is."""
    base: dict[str, Any] = dict(
        n_layers=1, n_heads=1, d_head=D_HEAD, d_ff=4, bias=False, norm="rms", first_norm=False, final_norm=False
    )
    base |= {"d_model": d_model, "input": c.TokenInput(vocab_size=tokenizer.vocab_size), "positions": c.NoPositions()}
    return c.StackConfig(**(base | changes))


def empty(config: c.ModelConfig) -> Transformer:
    """A network whose matrices are zero."""
    network = Transformer(config).eval()
    for name, parameter in network.named_parameters():
        parameter.requires_grad = False
        if "norm" not in name:
            parameter.zero_()
    return network


def drawn(config: c.ModelConfig, seed: int, std: float) -> Transformer:
    """A network whose matrices are drawn, the same on every machine."""
    network, random = empty(config), Random(seed)
    for name, parameter in network.named_parameters():
        if "norm" not in name:
            parameter.copy_(gauss(random, parameter.shape, std))
    return network


def gauss(random: Random, shape: torch.Size | tuple[int, ...], std: float) -> Tensor:
    """Independent normal numbers."""
    n = int(torch.Size(shape).numel())
    return torch.tensor([random.gauss(0.0, std) for _ in range(n)]).reshape(shape)


def route(weight: Tensor, to: int, from_: int, n: int, gain: float = 1.0) -> None:
    """Lets n outputs from `to` on read n inputs from `from_` on, one each."""
    weight[to : to + n, from_ : from_ + n] = gain * torch.eye(n)


def one_hot(table: nn.Module, from_: int = 0) -> None:
    """Makes row i of an embedding the component from_ + i."""
    weight = table.get_parameter("weight")
    route(weight, 0, from_, min(len(weight), weight.shape[1] - from_))


def attention(network: Transformer, layer: int = 0, *, cross: bool = False) -> Attention:
    """The attention of a block of the last stack."""
    block = network.last_stack.blocks[layer]
    assert isinstance(block, Block)
    found = block.cross if cross else block.attn
    assert isinstance(found, Attention)
    return found


def look(attn: Attention, head: int, pairs: dict[int, int], *, gain: float = SHARP) -> None:
    """Lets a head's queries with component i match keys with component j, for each pair i: j."""
    for place, (i, j) in enumerate(pairs.items()):
        attn.q.weight[head * D_HEAD + place, i] = gain
        attn.k.weight[head * D_HEAD + place, j] = 1.0


def carry(attn: Attention, head: int, from_: int, to: int, n: int, gain: float = 1.0) -> None:
    """Lets a head move n components of what it attends to."""
    route(attn.v.weight, head * D_HEAD, from_, n)
    route(attn.out.weight, to, head * D_HEAD, n, gain)


# --- the models ------------------------------------------------------------------------------------------------------

COPIER = "the cat saw a red dog near us"


def copier() -> Model:
    """Names the word before. Head 0 averages, and head 1 looks one back.

    Head 2 looks at the first word and adds nothing, head 3 at the word itself and adds a little.
    """
    words, n = tokenizer_of(COPIER), 8
    v = words.vocab_size
    config = stack(words, 2 * v + n, n_heads=4, positions=c.Learned(max_length=n))
    network = empty(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=False)))
    _words_and_places(network, v)
    attn = attention(network)
    look(attn, 1, {v + t: v + t - 1 for t in range(1, n)})
    look(attn, 2, {v + t: v for t in range(n)})
    look(attn, 3, {v + t: v + t for t in range(n)})
    carry(attn, 0, 0, v + n, v, 0.5)
    carry(attn, 1, 0, v + n, v)
    carry(attn, 3, 0, v + n, v, 0.25)
    _answers(network, v + n, v, 8.0)
    return Model(network, words)


PEEKER = "one two three four five six seven nine"


def peeker() -> Model:
    """Head 1 would look at the next word, which the causal mask closes; so it averages the words before."""
    words, n = tokenizer_of(PEEKER), 8
    v = words.vocab_size
    config = stack(words, 2 * v + n, n_heads=2, positions=c.Learned(max_length=n))
    network = empty(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=False)))
    _words_and_places(network, v)
    attn = attention(network)
    look(attn, 1, {v + t: v + t + 1 for t in range(n - 1)})
    carry(attn, 0, 0, v + n, v, 0.1)
    carry(attn, 1, 0, v + n, v)
    _answers(network, v + n, v, 8.0)
    return Model(network, words)


BANK = "the money bank grows near river cash water flows by"
FINANCE, NATURE = ("money", "cash"), ("river", "water")


def bank() -> Model:
    """Says of `bank` whether it is of finance or of nature: head 0 looks for words of either kind, head 1 at `the`."""
    words = tokenizer_of(BANK)
    v = words.vocab_size
    config = stack(words, v + 4, n_heads=2)
    network = empty(c.ModelConfig(encoder=config, head=c.TaggingHead(n_labels=2, labels=("finance", "nature"))))
    one_hot(network.last_stack.table)
    attn = attention(network)
    attn.q.weight[0, _id(words, "bank")] = SHARP
    for sense, names in enumerate((FINANCE, NATURE)):
        for name in names:
            attn.k.weight[0, _id(words, name)] = 1.0
            attn.v.weight[sense, _id(words, name)] = 1.0
    attn.q.weight[D_HEAD, :v] = SHARP
    attn.k.weight[D_HEAD, _id(words, "the")] = 1.0
    route(attn.out.weight, v, 0, 2)
    output = network.head.get_parameter("output.weight")
    route(output, 0, v, 2, 8.0)
    return Model(network, words)


COLOURS = "so red green blue gold pink grey white black"


def induction() -> Model:
    """Goes on as before: block 0 head 0 writes down the word before, block 1 head 0 finds where it stood."""
    words, n = tokenizer_of(COLOURS), 8
    v = words.vocab_size
    d = 3 * v + n
    config = stack(words, d, n_layers=2, n_heads=2, positions=c.Learned(max_length=n))
    network = empty(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=False)))
    _words_and_places(network, v)
    first, second, out = attention(network), attention(network, 1), 2 * v + n
    look(first, 0, {v + t: v + t - 1 for t in range(1, n)})
    carry(first, 0, 0, v + n, v)
    look(first, 1, {v + t: v + t for t in range(n)})
    # The norm before block 1 makes the three components of a word sqrt(d / 3) long each.
    look(second, 0, {i: v + n + i for i in range(v)}, gain=SHARP * 3 / d)
    carry(second, 0, 0, out, v)
    look(second, 1, {v + t: v + t for t in range(n)}, gain=SHARP * 3 / d)
    _answers(network, out, v, 3.0)
    return Model(network, words)


CAPITALS = "the city paris rome berlin madrid france italy germany spain is old"
FACTS = {"paris": "france", "rome": "italy", "berlin": "germany", "madrid": "spain"}


def facts() -> Model:
    """Knows the countries of four cities: one unit of the feed-forward for each; attention repeats what was read."""
    words = tokenizer_of(CAPITALS)
    v = words.vocab_size
    config = stack(words, 3 * v, d_ff=6)
    network = empty(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=False)))
    one_hot(network.last_stack.table)
    attn, ffn = attention(network), network.last_stack.blocks[0].get_submodule("ffn")
    carry(attn, 0, 0, v, v)
    up, down = ffn.get_parameter("up.weight"), ffn.get_parameter("down.weight")
    for unit, (city, country) in enumerate(FACTS.items()):
        up[unit, _id(words, city)] = 1.0
        down[2 * v + _id(words, country), unit] = 1.0
    up[4, :v] = 1.0
    up[5, _id(words, "the")] = 1.0
    _answers(network, 2 * v, v, 4.0)
    route(network.head.get_parameter("output.weight"), 0, v, v, 0.5)
    return Model(network, words)


ENGLISH = ("the", "red", "yellow", "white", "car", "house", "door")
FRENCH = ("la", "rouge", "jaune", "blanche", "voiture", "maison", "porte")


def translator() -> Model:
    """Translates three words: cross-attention fetches the noun before the adjective."""
    words, n = tokenizer_of(" ".join((*ENGLISH, *FRENCH))), 5
    v = words.vocab_size
    config = stack(words, 2 * v + n, positions=c.Learned(max_length=n))
    network = empty(c.ModelConfig(encoder=config, decoder=config, head=c.LanguageHead(tied=False)))
    _words_and_places(network, v)
    cross = attention(network, cross=True)
    # The norm before makes a word and its place sqrt(d / 2) long each.
    scale = 2 / config.d_model
    look(cross, 0, {v + t: v + s for t, s in enumerate((0, 2, 1, 3))}, gain=SHARP * scale**0.5)
    pairs = {_id(words, a): _id(words, b) for a, b in zip(ENGLISH, FRENCH, strict=True)} | {3: 3}
    for place, (english, french) in enumerate(pairs.items()):
        cross.v.weight[place, english] = 1.0
        cross.out.weight[v + n + french, place] = 1.0
    _answers(network, v + n, v, 8.0)
    return Model(network, words)


ANIMALS = "the lion kills deer big old a sees"


def drawn_encoder(seed: int = 0, *, sinusoidal: bool = False) -> Model:
    """A drawn classifier of whole texts, which pools by the mean."""
    words = tokenizer_of(ANIMALS)
    places = c.Sinusoidal() if sinusoidal else c.NoPositions()
    config = stack(
        words, 16, n_heads=2, d_head=8, d_ff=32, norm="layer", first_norm=True, final_norm=True, positions=places
    )
    head = c.ClassificationHead(n_labels=2, labels=("lion", "deer"), pool="mean")
    return Model(drawn(c.ModelConfig(encoder=config, head=head), seed, 0.6), words)


def drawn_decoder(seed: int = 0) -> Model:
    """A drawn decoder of two blocks without positions."""
    words = tokenizer_of(ANIMALS)
    config = stack(words, 16, n_layers=2, n_heads=2, d_head=8, d_ff=64, norm="layer", first_norm=True, final_norm=True)
    return Model(drawn(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=False)), seed, 0.5), words)


def wide_head(seed: int = 0, *, scaled: bool = True) -> Model:
    """One head of width 64 whose queries and keys have unit variance."""
    words, random = tokenizer_of(ANIMALS), Random(seed)
    config = stack(words, 64, d_head=64, attn_scale=None if scaled else 1.0)
    network = empty(c.ModelConfig(encoder=config, head=c.NoHead()))
    network.last_stack.table.weight.copy_(gauss(random, (words.vocab_size, 64), 1.0))
    attn = attention(network)
    for linear in (attn.q, attn.k, attn.v, attn.out):
        linear.weight.copy_(gauss(random, (64, 64), 1 / 8))
    return Model(network, words)


def normed(seed: int = 0) -> Model:
    """Vectors of six whole numbers before a LayerNorm."""
    words, random = tokenizer_of(ANIMALS), Random(seed)
    config = stack(words, 6, d_head=6, d_ff=24, norm="layer", first_norm=True)
    network = drawn(c.ModelConfig(encoder=config, head=c.NoHead()), seed, 0.3)
    table = network.last_stack.table.weight
    table.copy_(torch.tensor([[float(random.randint(0, 9)) for _ in range(6)] for _ in range(len(table))]))
    return Model(network, words)


def mixer(seed: int = 0) -> Model:
    """Attention that averages all words, in a residual block."""
    words = tokenizer_of(ANIMALS)
    config = stack(words, 8, n_heads=2, d_head=4, d_ff=16)
    network = drawn(c.ModelConfig(encoder=config, head=c.NoHead()), seed, 0.5)
    attn = attention(network)
    attn.q.weight.zero_()
    return Model(network, words)


def waves(seed: int = 0) -> Model:
    """Words of width 8 with sinusoidal positions."""
    words = tokenizer_of(ANIMALS)
    config = stack(words, 8, n_heads=2, d_head=4, d_ff=16, positions=c.Sinusoidal())
    return Model(drawn(c.ModelConfig(encoder=config, head=c.NoHead()), seed, 0.5), words)


def _words_and_places(network: Transformer, v: int) -> None:
    """Words from component 0 on, positions from v on, in every stack."""
    for part in network.stacks().values():
        one_hot(part.table)
        one_hot(part.positions.get_submodule("table"), v)


def _answers(network: Transformer, from_: int, v: int, gain: float) -> None:
    """Lets the output matrix read the words at `from_`."""
    route(network.head.get_parameter("output.weight"), 0, from_, v, gain)


def _id(words: Tokenizer, name: str) -> int:
    (found,) = words.encode(name)
    return found
