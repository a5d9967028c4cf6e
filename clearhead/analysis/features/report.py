"""How much of a network's work features keep: its loss with what they reconstruct in place of the value itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.features.buffer import Inputs
from clearhead.analysis.features.dictionary import Features
from clearhead.analysis.values import rows_at
from clearhead.brief import brief
from clearhead.config import NoHead, VectorHead
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.model.mode import Evaluating
from clearhead.trace import Edit, edited


@dataclass(frozen=True)
class Report:
    """What features keep on some texts.

    Losses are those of the network's head, such as nats a token; without labels the KL divergence of its answers from
    the plain ones, or for a network that ends in states their squared distance from the plain ones by their length.
    """

    __repr__ = brief

    plain: float
    reconstructed: float
    """With what the features reconstruct in place of the value that they write."""
    zero: float
    """With 0 in its place."""
    mean: float
    """With its mean over the texts in its place."""
    explained: float
    """1 - |y - y'|^2 / |y - mean|^2, y' what the features reconstruct."""
    active: float
    """L0: active features of a position, in the mean."""
    dead: float
    """Share of the features that no position of the texts activates."""
    n_positions: int

    @property
    def recovered(self) -> float:
        """(zero - reconstructed) / (zero - plain): 1 loses nothing, 0 is as bad as 0 in its place."""
        return _share(self.zero, self.reconstructed, self.plain)

    @property
    def recovered_from_mean(self) -> float:
        """The same against the mean in its place, which is harder."""
        return _share(self.mean, self.reconstructed, self.plain)

    def __str__(self) -> str:
        """The figures in two lines."""
        return (
            f"loss recovered {self.recovered:.1%} (against the mean in its place {self.recovered_from_mean:.1%}):"
            f" {self.plain:.4f} plain, {self.reconstructed:.4f} by features,"
            f" {self.zero:.4f} zero, {self.mean:.4f} mean\n"
            f"variance explained {self.explained:.1%}, {self.active:.1f} features active,"
            f" {self.dead:.1%} dead on {self.n_positions:,} positions"
        )


def report(network: Transformer, inputs: Inputs, features: Features, labels: Sequence[Tensor] | None = None) -> Report:
    """Measures features on batches of texts, with the labels of each batch if the network's head has a loss.

    Labels are those of a task's batches: for a language model the token after each real position. Raises UserError for
    no texts.
    """
    if not inputs:
        raise UserError("features: expected texts to measure on, got none")
    site = features.site
    seen = [rows_at(network, batch, {site.reads, site.writes}) for batch in inputs]
    written = torch.cat([rows[site.writes] for rows in seen])
    mean = written.mean(0)
    missing, active, counts = 0.0, 0, torch.zeros(features.n, dtype=torch.long)
    for rows in seen:
        missing += float((features.reconstructed(rows[site.reads]) - rows[site.writes]).square().sum())
        found = features.encode(rows[site.reads]) > 0
        active += int(found.sum())
        counts += found.sum(0).cpu()
    losses = _Losses(network, inputs, labels)
    return Report(
        plain=losses.of({}),
        reconstructed=losses.of(replacing(features)),
        zero=losses.of({site.writes: 0.0}),
        mean=losses.of({site.writes: mean}),
        explained=1 - missing / float((written - mean).square().sum()),
        active=active / len(written),
        dead=float((counts == 0).float().mean()),
        n_positions=len(written),
    )


def replacing(features: Features) -> dict[str, Edit]:
    """Edits that put what the features reconstruct in place of the value that they write."""
    read: list[Tensor] = []

    def look(value: Tensor) -> Tensor:
        read[:] = [value]
        return value

    def replace(value: Tensor) -> Tensor:
        return features.reconstructed(value if features.site.kind == "sae" else read[0])

    return {features.reads: look, features.writes: replace}


class _Losses:
    """The mean loss of a network over some batches, under edits."""

    def __init__(self, network: Transformer, inputs: Inputs, labels: Sequence[Tensor] | None) -> None:
        self.network, self.inputs, self.labels = network, inputs, labels
        self.has_answers = not isinstance(network.config.head, NoHead | VectorHead)
        self.plain = None if labels is not None else [self.answers(batch) for batch in inputs]

    def of(self, edit: dict[str, Edit]) -> float:
        """The loss with these edits."""
        total, count = 0.0, 0
        with Evaluating(self.network), torch.no_grad(), edited(self.network, edit):
            for i, batch in enumerate(self.inputs):
                if self.labels is not None:
                    total += float(self.network(*batch, labels=self.labels[i]))
                    count += int((self.labels[i] != IGNORED).sum())
                    continue
                assert self.plain is not None
                found, plain = self.answers(batch), self.plain[i]
                if self.has_answers:
                    total += float(F.kl_div(found, plain, log_target=True, reduction="sum"))
                else:
                    total += float(((found - plain).square().sum(-1) / plain.square().sum(-1)).sum())
                count += plain[..., 0].numel()
        return total / count

    def answers(self, batch: Sequence[Tokens]) -> Tensor:
        """Log probabilities, or the last states, of the real positions where each position has an answer."""
        with Evaluating(self.network), torch.no_grad():
            found = self.network(*batch)
        if found.ndim == 3:
            found = batch[-1].padded().real(found)
        elif found.ndim == 2 and batch[-1].rows is not None:
            found = found[: len(batch[-1].rows)]
        return found.float().log_softmax(-1) if self.has_answers else found.float()


def _share(worst: float, found: float, best: float) -> float:
    return (worst - found) / (worst - best) if worst != best else float("nan")
