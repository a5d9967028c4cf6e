"""The processes of one run: this one's place among them, and how they agree.

`torchrun --nproc-per-node 8 -m clearhead train ...` starts them. Everything that a clock, a signal or a file decides is
decided by the first process, or by all together, so that none ever waits for a step that another does not take.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch

from clearhead.errors import Interrupted, NumericError, UserError
from clearhead.recipe.training import Training

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")

PATIENCE = timedelta(days=2)
"""How long processes wait for one that evaluates or saves; one that dies closes its connections, and is missed."""


class Told(UserError):
    """An error that the first process tells for all: here an exit code, and words only where they are not the same."""

    def __init__(self, exit_code: int, message: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ranks:
    """The processes of a run as a grid, data x tensor; by default one process, which exchanges nothing.

    Processes of one data rank read the same examples, and each computes its share of the heads and of the units.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    tensor_size: int = 1
    mesh: "DeviceMesh | None" = None
    control: "ProcessGroup | None" = None
    """For what processes tell each other: small, on the CPU, patient."""

    @property
    def is_first(self) -> bool:
        """Whether this process prints, logs and evaluates."""
        return self.rank == 0

    @property
    def data_size(self) -> int:
        """Shares in which a batch is divided."""
        return self.size // self.tensor_size

    @property
    def data_rank(self) -> int:
        """Which share is this process's."""
        return self.rank // self.tensor_size

    @property
    def counts(self) -> bool:
        """Whether this process speaks for its share: one of those that read the same examples does."""
        return self.rank % self.tensor_size == 0

    def device(self, device: torch.device) -> torch.device:
        """The device of this process, of those of its machine."""
        if self.size == 1 or device.type != "cuda":
            return device
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def arranged(self, config: Training) -> "Ranks":
        """The same processes as the grid that this configuration asks for; UserError where that cannot be."""
        tensor_size = config.tensor_parallel
        self.together(lambda: self._check(config))
        if self.size == 1:
            return self
        from torch.distributed.device_mesh import init_device_mesh

        kind = "cuda" if config.device in ("auto", "cuda") and torch.cuda.is_available() else "cpu"
        mesh = init_device_mesh(kind, (self.size // tensor_size, tensor_size), mesh_dim_names=("data", "tensor"))
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
        """This process's examples of a batch, maybe none: dealt in turn, because neighbours are of like lengths."""
        return examples if self.data_size == 1 else examples[self.data_rank :: self.data_size]

    def sum(self, number: float) -> float:
        """Over the shares of a batch; in the order of the ranks, so that all get the same to the bit."""
        if self.size == 1:
            return number
        return sum(row[0] for row in self._gather([number if self.counts else 0.0]))

    def agree(self, seconds: float, signal: int | None, ready: bool) -> tuple[float, int | None, bool]:
        """The first process's clock, a signal that any has got, and whether all are ready."""
        if self.size == 1:
            return seconds, signal, ready
        rows = self._gather([seconds, float(signal or 0), float(ready)])
        return rows[0][0], int(max(row[1] for row in rows)) or None, all(row[2] for row in rows)

    def first(self, value: T) -> T:
        """The first process's value."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def everyone(self, value: T) -> list[T]:
        """Every process's value, by rank."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def together(self, action: Callable[[], T]) -> T:
        """What `action` gives here; where it fails in any process with a UserError, all raise, and one tells why."""
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
            raise Told(found[1])
        if failed is not None:
            raise failed
        raise UserError(f"rank {at}: {found[0]}")

    def _gather(self, numbers: list[float]) -> list[list[float]]:
        import torch.distributed as dist

        mine = torch.tensor(numbers, dtype=torch.float64)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(rows, mine, group=self.control)
        return [row.tolist() for row in rows]


ALONE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone; an error of all is told once, by the first."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if size == 1:
        yield ALONE
        return
    try:
        yield _join(rank, size)
    except UserError as error:
        if rank == 0:
            raise
        # The first process tells what all raise.
        agreed = isinstance(error, NumericError | Interrupted | Told)
        raise Told(error.exit_code, "" if agreed else f"rank {rank}: {error}") from None
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise UserError(f"rank {rank}: lost another process; see above why, then go on with clearhead resume") from None
    else:
        _leave()


def _join(rank: int, size: int) -> Ranks:
    import torch.distributed as dist

    # After a restart torchrun's store still has the addresses of those who died, so each attempt has its own corner.
    store, _, _ = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    control = dist.new_group(backend="gloo", timeout=PATIENCE)
    assert not isinstance(control, int)  # Which it is in processes outside the group: this one has all.
    return Ranks(rank, size, int(os.environ["LOCAL_RANK"]), control=control)


def _leave() -> None:
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


def _is_lost(error: RuntimeError) -> bool:
    """Whether an exchange failed because another process is gone."""
    from torch.distributed import DistError

    signs = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe")
    return isinstance(error, DistError) or any(sign in str(error).lower() for sign in signs)
