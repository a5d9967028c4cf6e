"""Training on the answers of another network, the teacher, to the same inputs (Hinton et al. 2015)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model import Tokens, Transformer
from clearhead.model.heads import ClassificationHead, OutputHead
from clearhead.model.loss import IGNORED
from clearhead.recipe.training import Teacher
from clearhead.tasks.task import Batch, Task


class Distillation:
    """(1 - w) loss + w T^2 sum_i KL(p_i || q_i), with p = softmax(teacher / T), q = softmax(student / T)

    Summed over the labels that count, in nats (Hinton et al. 2015, "Distilling the knowledge in a neural network", 2).
    """

    def __init__(self, student: Transformer, teacher: Transformer, config: Teacher) -> None:
        self.student, self.config = student, config
        self.teacher = teacher.eval().requires_grad_(False)

    def loss(self, task: Task, batch: Batch, *, smoothing: float) -> tuple[Tensor, int]:
        """The sum over a batch, and the number of labels that it is the sum of. The student is run once."""
        seen: list[Tensor] = []

        def student(*inputs: Tokens, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
            states, layout = self.student.states(*inputs)
            head = self.student.head
            assert isinstance(head, OutputHead)
            logits = head(states, layout)
            seen.append(rows_of(head, logits, layout.real))
            return logits if labels is None else head.loss(states, layout, labels, smoothing=smoothing)

        total, count = task.loss(student, batch, smoothing=smoothing)
        with torch.no_grad():
            states, layout = self.teacher.states(*batch.inputs)
            wanted = rows_of(self.teacher.head, self.teacher.head(states, layout), layout.real)
        counts = batch.labels != IGNORED
        t, w = self.config.temperature, self.config.weight
        return (1 - w) * total + w * t**2 * divergence(seen[0] / t, wanted / t, counts), count


def rows_of(head: torch.nn.Module, logits: Tensor, real: Callable[[Tensor], Tensor]) -> Tensor:
    """n v: the logits for each label, in their order."""
    return logits if isinstance(head, ClassificationHead) or logits.ndim == 2 else real(logits)


def divergence(student: Tensor, teacher: Tensor, counts: Tensor) -> Tensor:
    """sum_i KL(softmax(teacher_i) || softmax(student_i)), in nats and at least float32; n v, n v, n."""
    q, p = (x if x.dtype == torch.float64 else x.float() for x in (student, teacher))
    each = F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    return each.where(counts, 0.0).sum()
