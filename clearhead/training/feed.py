"""The batches of a run, update after update."""

from collections.abc import Sequence

from clearhead.tasks.task import Batch
from clearhead.training.run import Run


class Feed:
    """The batches of each update, epoch after epoch, from the run's position in the data."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = run.task.plan(seed=run.config.seed, epoch=run.progress.epoch)

    def first(self, *, half: bool = False) -> Batch:
        """This process's share of a batch, or of half a batch, for trials. The position does not change."""
        examples = self.plan[0]
        return self._share(examples[: (len(examples) + 1) // 2] if half else examples)[0]

    def next(self) -> list[tuple[Batch, bool]]:
        """This process's share of each batch of one update.

        False marks a zero-weight placeholder on a rank that has no examples.
        """
        run, at = self.run, self.run.progress
        batches: list[tuple[Batch, bool]] = []
        while len(batches) < run.config.accumulate:
            if at.batch >= len(self.plan):
                at.epoch, at.batch = at.epoch + 1, 0
                self.plan = run.task.plan(seed=run.config.seed, epoch=at.epoch)
            batches.append(self._share(self.plan[at.batch]))
            at.batch += 1
        return batches

    def _share(self, examples: Sequence[int]) -> tuple[Batch, bool]:
        mine = self.run.ranks.share(examples)
        return self.run.task.collate(mine or examples[:1]).to(self.run.device), len(mine) > 0
