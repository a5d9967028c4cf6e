"""One network for English and one for code, a router that reads the beginning of a text, and one network for both."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, IGNORED, decoder, encoder, learn, loss_on
from clearhead_lab.texts import N_CHARACTERS, Written, library, manual

PROMPT, LENGTH = 32, 96
"""Characters that the router reads, and those of a text."""
SUBJECTS: dict[str, Callable[[], Written]] = {"English": manual, "code": library}
Batch = tuple[Tensor, Tensor]


def reader(batch: Callable[[], Batch], steps: int) -> Transformer:
    """A network that has read so many batches."""
    network = decoder(N_CHARACTERS, positions=DISTANCES)
    learn(network, batch, steps=steps, cooled=True)
    return network


def prompts() -> Batch:
    """n t: beginnings of texts of all subjects, and the numbers of the subjects."""
    texts = [source().batch(16, PROMPT)[0] for source in SUBJECTS.values()]
    return torch.cat(texts), torch.arange(len(texts)).repeat_interleave(16)


def of_both() -> Batch:
    """n t: texts of all subjects, and the characters that follow; as many texts as a batch of one subject has."""
    parts = [source().batch(8, LENGTH) for source in SUBJECTS.values()]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


@torch.no_grad()
def chosen(router: Transformer, texts: Tensor) -> Tensor:
    """n: the number of the subject that the beginning of each text has for the router."""
    return router(texts[:, :PROMPT]).argmax(-1)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The loss on what follows the beginnings of new texts, by who answers, and the share that is sent right."""
    steps, n = (60, 32) if quick else (500, 200)
    experts = [reader(lambda source=source: source().batch(16, LENGTH), steps) for source in SUBJECTS.values()]
    router = encoder(N_CHARACTERS, d_model=16, n_layers=1, head=c.ClassificationHead(n_labels=2, pool="mean"))
    learn(router, prompts, steps=steps // 2)
    everything = reader(of_both, 2 * steps)
    for own, (subject, source) in enumerate(SUBJECTS.items()):
        texts, labels = source().valid_batch(n, LENGTH)
        labels = labels.clone()
        labels[:, :PROMPT] = IGNORED
        sent = chosen(router, texts)
        asked = {k: sent == k for k in sent.unique().tolist()}
        found = [loss_on(experts[k], texts[at], labels[at]) * at.double().mean().item() for k, at in asked.items()]
        losses = {
            "the router": sum(found),
            "its own network": loss_on(experts[own], texts, labels),
            "the other network": loss_on(experts[1 - own], texts, labels),
            "one network for both": loss_on(everything, texts, labels),
        }
        for name, loss in losses.items():
            yield Row({"answers": name, "subject": subject}, {"loss": loss})
        yield Row({"answers": "the router", "subject": subject}, {"sent right": (sent == own).double().mean().item()})
