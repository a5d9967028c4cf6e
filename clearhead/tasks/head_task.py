"""The base of tasks that train on the loss of the network's own head."""

from collections.abc import Callable

from torch import Tensor

from clearhead.tasks.task import Batch, R, RecipeTask, head_loss


class HeadTask(RecipeTask[R]):
    """A task that trains by the loss of the network's head."""

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return head_loss(network, batch, smoothing=smoothing)
