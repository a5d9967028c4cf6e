"""The processes of one run: the position of this process, and how processes agree.

`torchrun --nproc-per-node 8 -m clearhead train ...` starts them. The first process, or all
processes together, decide everything that depends on a clock, a signal or a file. So no process waits for a step that
another does not take.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from clearhead.errors import Interrupted, NumericError, UserError
from clearhead.recipe.training import Training

T = TypeVar("T")

PATIENCE = timedelta(days=2)
"""The time that processes wait for one that evaluates or saves. One that dies closes its connections at once."""


class RankError(UserError):
    """An error that the first process reports for all. It has an exit code, and a message only if its own differs."""

    def __init__(self, exit_code: int, message: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ranks:
    """The processes of a run as a grid, data x tensor; by default one process, which exchanges nothing.

    Processes of one data rank read the same examples. Each computes its share of the heads and of the units.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    tensor_size: int = 1
    mesh: "dist.DeviceMesh | None" = None
    control: "dist.ProcessGroup | None" = None
    """The group for small messages between processes: on the CPU, with a long timeout."""

    @property
    def is_first(self) -> bool:
        """True if this process prints, logs and evaluates."""
        return self.rank == 0

    @property
    def data_size(self) -> int:
        """The number of shares of a batch."""
        return self.size // self.tensor_size

    @property
    def data_rank(self) -> int:
        """The share of this process."""
        return self.rank // self.tensor_size

    @property
    def counts(self) -> bool:
        """True if this process counts for its share. One process of each data rank does."""
        return self.rank % self.tensor_size == 0

    def device(self, device: torch.device) -> torch.device:
        """The device of this process: on a machine with several GPUs one for each process."""
        if self.size == 1 or device.type != "cuda":
            return device
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def arranged(self, config: Training) -> "Ranks":
        """The same processes in the grid that this configuration asks for. Raises UserError if that is impossible."""
        tensor_size = config.tensor_parallel
        self.together(lambda: self._check(config))
        if self.size == 1:
            return self
        kind = "cuda" if config.device in ("auto", "cuda") and torch.cuda.is_available() else "cpu"
        mesh = dist.init_device_mesh(kind, (self.size // tensor_size, tensor_size), mesh_dim_names=("data", "tensor"))
        return replace(self, tensor_size=tensor_size, mesh=mesh)

    def _check(self, config: Training) -> None:
        if self.size % config.tensor_parallel:
            raise UserError(
                f"training.tensor_parallel: expected a divisor of the number of processes, {self.size}, got"
                f" {config.tensor_parallel}; try another number of processes, or to resume --tensor-parallel 1"
            )
        if config.parallel == "ddp" and config.tensor_parallel > 1:
            raise UserError(
                "training.parallel: expected fsdp where training.tensor_parallel is above 1, got ddp; try auto"
            )
        if config.device in ("auto", "cuda") and 0 < torch.cuda.device_count() <= self.local_rank:
            raise UserError(
                f"torchrun: expected at most {torch.cuda.device_count()} processes on this machine, one a GPU,"
                " got more; lower --nproc-per-node"
            )

    def share(self, examples: Sequence[int]) -> Sequence[int]:
        """This process's examples of a batch, possibly none: every n-th, because neighbours have similar lengths."""
        return examples if self.data_size == 1 else examples[self.data_rank :: self.data_size]

    def sum(self, number: float) -> float:
        """The sum over the shares of a batch, in the order of the ranks, so that all processes get the same bits."""
        if self.size == 1:
            return number
        return sum(row[0] for row in self._gather([number if self.counts else 0.0]))

    def agree(self, seconds: float, signal: int | None, ready: bool) -> tuple[float, int | None, bool]:
        """The first process's clock, a signal that any process received, and whether all are ready."""
        if self.size == 1:
            return seconds, signal, ready
        rows = self._gather([seconds, float(signal or 0), float(ready)])
        return rows[0][0], int(max(row[1] for row in rows)) or None, all(row[2] for row in rows)

    def first(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def everyone(self, value: T) -> list[T]:
        """Every process's value, by rank."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def together(self, action: Callable[[], T]) -> T:
        """Runs `action` and returns its result. If any process raises UserError, all raise, and one reports why."""
        if self.size == 1:
            return action()
        result: list[T] = []
        failed: UserError | None = None
        try:
            result.append(action())
        except UserError as error:
            failed = error
        errors = self.everyone((str(failed), failed.exit_code) if failed is not None else None)
        at, found = next(((i, error) for i, error in enumerate(errors) if error is not None), (0, None))
        if found is None:
            return result[0]
        if not self.is_first:
            raise RankError(found[1])
        if failed is not None:
            raise failed
        raise UserError(f"rank {at}: {found[0]}")

    def _gather(self, numbers: list[float]) -> list[list[float]]:
        mine = torch.tensor(numbers, dtype=torch.float64)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(rows, mine, group=self.control)
        return [row.tolist() for row in rows]


ALONE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone. The first process reports errors for all."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if size == 1:
        yield ALONE
        return
    try:
        yield _join(rank, size)
    except UserError as error:
        if rank == 0:
            raise
        # The first process reports what all raise.
        agreed = isinstance(error, NumericError | Interrupted | RankError)
        raise RankError(error.exit_code, "" if agreed else f"rank {rank}: {error}") from None
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise UserError(f"rank {rank}: lost another process; see why above, then run clearhead resume") from None
    else:
        _leave()


def _join(rank: int, size: int) -> Ranks:
    # After a restart, torchrun's store still has the addresses of dead processes. So each attempt has its own prefix.
    store, _, _ = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    control = dist.new_group(backend="gloo", timeout=PATIENCE)
    assert not isinstance(control, int)  # Only processes outside the group get an int.
    return Ranks(rank, size, int(os.environ["LOCAL_RANK"]), control=control)


def _leave() -> None:
    dist.barrier()
    dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    """Returns True if an exchange failed because another process is gone."""
    signs = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe")
    return isinstance(error, dist.DistError) or any(sign in str(error).lower() for sign in signs)
