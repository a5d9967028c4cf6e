"""What clearhead.analysis says of a pass, as replies."""

import time
from dataclasses import asdict

from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.attribution import attribute
from clearhead.analysis.geometry import neighbours, token_table
from clearhead.analysis.heads import head_statistics, weighted_norms
from clearhead.analysis.lens import logit_lens
from clearhead.errors import UserError
from clearhead.explorer import requests
from clearhead.explorer.passes import LOCK, Pass, Passes
from clearhead.explorer.replies import Reply
from clearhead.trace import Address

AT_A_TIME = 0.1
"""Seconds of effects, about, after which other questions have their turn."""


def effects(passes: Passes, question: requests.Effects) -> Reply:
    """KL(plain || without), in nats, for each part; other questions are answered in between."""
    with LOCK:
        found = passes.get(question.run)
        ablations = Ablations(found.model.network, found.reading.inputs, position=question.position, edit=found.edit)
    waiting, several = list(dict.fromkeys(question.at)), 1
    result: dict[str, float] = {}
    while waiting:
        some, waiting = waiting[:several], waiting[several:]
        with LOCK:
            began = time.perf_counter()
            result |= ablations.effects(some)
            took = time.perf_counter() - began
        several = max(1, min(2 * len(some), int(len(some) * AT_A_TIME / max(took, 1e-6))))
        time.sleep(0.001)  # The lock goes to who waits for it, not back to here.
    return Reply({"effects": {at: result[at] for at in question.at}})


def statistics(found: Pass, question: requests.Statistics) -> Reply:
    """What each head does, and how much each key gives where asked."""
    seen, network = found.trace(), found.model.network
    heads = head_statistics(network, found.reading.inputs, seen)
    tensors: dict[str, Tensor] = {}
    for at in question.at:
        path = Address.parse(at).path
        if not path.endswith(".weights") or path not in seen:
            raise UserError(f"{at}: expected attention weights of this model, such as decoder.blocks.0.attn.weights")
        tensors[f"{path}.norms"] = weighted_norms(network, seen, path.removesuffix(".weights"))[0].float()
    return Reply({"heads": {at: {"kind": one.kind, **asdict(one)} for at, one in heads.items()}}, tensors)


def lens(found: Pass, question: requests.Lens) -> Reply:
    """What the network would say after each block."""
    seen = logit_lens(found.model.network, found.trace(), k=question.k)
    tensors = {"ids": seen.ids[:, 0].int(), "probabilities": seen.probabilities[:, 0], "lse": seen.logsumexp[:, 0]}
    return Reply({"addresses": list(seen.addresses), "words": found.words(seen.ids)}, tensors)


def attribution(found: Pass, question: requests.Attribution) -> Reply:
    """What each part adds to a logit."""
    one = attribute(
        found.model.network,
        found.reading.inputs,
        question.logit,
        minus=question.minus,
        position=question.position,
        edit=found.edit,
    )
    shares = {address: float(share[0]) for address, share in one.shares.items()}
    return Reply({"shares": shares, "logit": float(one.logit[0])})


def neighbours_of(passes: Passes, question: requests.Neighbours) -> Reply:
    """The tokens whose vectors point where a token's, or any vector, does."""
    found = passes.get(question.run)
    table = token_table(found.model.network, question.stack)
    of = question.of.id if isinstance(question.of, requests.ById) else found.recording.value(question.of.at)
    near = neighbours(table, of, k=question.k)
    model = found.model
    ids: list[int] = near.ids.tolist()
    texts = model.tokenizer.tokens(ids) if model.has_tokenizer else list(map(str, ids))
    words = {str(i): text for i, text in zip(ids, texts, strict=True)}
    return Reply({"ids": ids, "cosines": near.cosines.float().tolist(), "words": words})
