"""A network that sees the next word learns to copy it and cannot write."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, encoder, final, learn
from clearhead_lab.texts import Chain

WORDS, LENGTH, FOLLOWERS = 16, 16, 4


@torch.no_grad()
def measure_one(network: Transformer, chain: Chain) -> dict[str, float]:
    """The largest change of earlier logits by future words, and the share of next words that can follow."""
    tokens = chain.text(256, LENGTH)
    other = tokens.clone()
    other[:, LENGTH // 2 :] = torch.randint(0, WORDS, (256, LENGTH // 2))
    leak = (network(tokens) - network(other)).abs()[:, : LENGTH // 2].max().item()
    begun = tokens[:, : LENGTH // 2]
    written = network(begun)[:, -1].argmax(-1)
    possible = (chain.next[begun[:, -1]] == written[:, None]).any(1).double().mean().item()
    return {"leak": leak, "written words that can follow": possible}


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Training loss, leak of the future, and the words written after half a text."""
    chain = Chain(WORDS, followers=FOLLOWERS, seed=seed)
    for name, build in (("causal", decoder), ("none", encoder)):
        network = build(WORDS, d_model=64, positions=c.Learned(max_length=LENGTH))
        losses = learn(network, lambda: chain.batch(32, LENGTH), steps=250 if quick else 500)
        values = {"training loss": final(losses), "least": chain.entropy}
        yield Row({"mask": name}, values | measure_one(network, chain))
