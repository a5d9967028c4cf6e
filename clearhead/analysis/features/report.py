"""What features keep of a network's work, and what one stands for: likelier words, and the texts that activate it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.features.dictionary import Features
from clearhead.analysis.features.training import Inputs
from clearhead.analysis.passes import inference, rows_at, sizes_of
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import ClassificationHead, LanguageHead, TaggingHead
from clearhead.model.linear import effective_weight
from clearhead.model.loss import IGNORED
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
        """(zero - reconstructed) / (zero - plain): 1 if nothing is lost, 0 if 0 in place of the value is as good."""
        return _share(self.zero, self.reconstructed, self.plain)

    @property
    def recovered_from_mean(self) -> float:
        """The same with the mean in place of the value, which is harder to improve on."""
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
    """Edits that replace the value that features write by their reconstruction."""
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
        self.has_answers = network.config.has_logits
        self.plain = None if labels is not None else [self.answers(batch) for batch in inputs]

    def of(self, edit: dict[str, Edit]) -> float:
        """The loss with these edits."""
        total, count = 0.0, 0
        with inference(self.network), edited(self.network, edit):
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
        with inference(self.network):
            found = self.network(*batch)
        if found.ndim == 3:
            found = batch[-1].padded().real(found)
        elif found.ndim == 2 and batch[-1].rows is not None:
            found = found[: len(batch[-1].rows)]
        return found.float().log_softmax(-1) if self.has_answers else found.float()


def _share(worst: float, found: float, best: float) -> float:
    return (worst - found) / (worst - best) if worst != best else float("nan")


@dataclass(frozen=True)
class Example:
    """A position of a text that activates a feature."""

    __repr__ = brief

    batch: int
    """The number of the batch."""
    row: int
    """The row of the batch."""
    position: int
    """Among the real positions of the row."""
    activation: float


def top_examples(
    network: Transformer, inputs: Inputs, features: Features, feature: int, *, k: int = 8
) -> list[Example]:
    """The k rows of the texts that activate a feature most, each with its strongest position, strongest first.

    Raises UserError for a feature that does not exist.
    """
    if not 0 <= feature < features.n:
        raise UserError(f"feature {feature}: expected a number below {features.n}")
    found: list[Example] = []
    stack = list(network.stacks()).index(features.reads.split(".")[0])
    for number, batch in enumerate(inputs):
        active = features.encode(rows_at(network, batch, {features.reads})[features.reads])[:, feature]
        for row, own in enumerate(active.split(sizes_of(batch[stack], len(active)))):
            found.append(Example(number, row, int(own.argmax()), float(own.max())))
    return sorted(found, key=lambda one: -one.activation)[:k]


def effect_on_logits(network: Transformer, features: Features, feature: int) -> Tensor:
    """v: the direct effect of a unit of a feature on each logit, up to the scale of the final norm.

    head.W (gain * (w - mean(w))), w the feature's row of W_dec, as `attribute` splits a logit (Elhage et al. 2021).
    Raises UserError if the features do not write to the stream of the last stack, or if the way is not linear.
    """
    head, stack = network.head, network.last_stack
    if not features.writes.startswith(f"{list(network.stacks())[-1]}."):
        raise UserError(f"{features.writes}: expected features of the last stack, whose states the head reads")
    if not isinstance(head, LanguageHead | TaggingHead | ClassificationHead) or head.dense is not None:
        raise UserError("features: expected a linear head, whose logits their directions change, got another")
    direction = features.w_dec[feature].to(effective_weight(head.output))
    if len(direction) != stack.config.d_model:
        raise UserError(f"{features.writes}: expected features of the residual stream, got another width")
    norm = stack.final_norm
    with torch.no_grad():
        return effective_weight(head.output) @ (direction if norm is None else norm.centred(direction) * norm.gain)


def strongest(active: Tensor, *, k: int = 10) -> list[tuple[int, float]]:
    """f: the numbers of the k most active features with their activations, strongest first, without those at 0."""
    values, at = active.topk(min(k, len(active)))
    return [(i, value) for i, value in zip(at.tolist(), values.tolist(), strict=True) if value > 0]
