"""A network that sees the next word learns to copy it and cannot write."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Check, Experiment, Plot, Row
from clearhead_lab.learning import decoder, encoder, final, learn
from clearhead_lab.texts import Chain

WORDS, LENGTH, FOLLOWERS = 16, 16, 4


@torch.no_grad()
def measure_one(network: Transformer, chain: Chain) -> dict[str, float]:
    """How far future words change earlier logits, and how often the next word is one that can follow."""
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


EXPERIMENT = Experiment(
    name="causal-mask",
    claim="The causal mask keeps a network from reading the word that it predicts; without it training is cheating.",
    source="documents 000 (19), 001, 003; Vaswani et al. 2017, 3.2.3",
    measure=measure,
    checks=(
        Check(
            "causal: change of a logit by later words",
            lambda f: f.at("leak", mask="causal"),
            at_most=0.0,
            otherwise="Later words change earlier logits in spite of the mask.",
        ),
        Check(
            "no mask: training loss over the language's entropy",
            lambda f: f.at("training loss", mask="none") / f.at("least", mask="none"),
            at_most=0.5,
            otherwise="Without a mask the network does not read the answer: its loss stays near the least that"
            " is possible without cheating.",
        ),
        Check(
            "causal: training loss over the language's entropy",
            lambda f: f.at("training loss", mask="causal") / f.at("least", mask="causal"),
            at_least=0.97,
            at_most=1.1,
            otherwise="Under the mask the loss is not the language's entropy.",
        ),
        Check(
            "causal: written words that can follow",
            lambda f: f.at("written words that can follow", mask="causal"),
            at_least=0.99,
            otherwise="The network that was trained under the mask writes words that cannot follow.",
        ),
        Check(
            "no mask: written words that can follow",
            lambda f: f.at("written words that can follow", mask="none"),
            at_most=0.9,
            role="limit",
            otherwise="The network that was trained without a mask writes words that can follow all the same.",
        ),
    ),
    plot=Plot(x="mask", y="training loss"),
)
