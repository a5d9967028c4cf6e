"""The thread that owns the network, its queue of jobs, and the updates that it sends to requests."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import torch

_log = logging.getLogger("clearhead")

Job = TypeVar("Job")
Update = TypeVar("Update")


class Full(Exception):
    """The queue is full."""


class Failed(Exception):
    """A request without an answer: the message for the client, and the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Ticket(Generic[Update]):
    """The handle of a waiting request, made in its event loop. The worker sends updates to it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.updates: asyncio.Queue[Update | Failed] = asyncio.Queue()
        self.is_gone = False
        """Whether the client has disconnected. The worker checks it in every turn."""

    async def next(self) -> Update:
        """The next update. Raises Failed if there will be no answer."""
        update = await self.updates.get()
        if isinstance(update, Failed):
            raise update
        return update


class Worker(ABC, Generic[Job, Update]):
    """Takes jobs in order of arrival and works on them in turns until it is closed."""

    def __init__(self, *, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self.waiting: deque[tuple[Ticket[Update], Job]] = deque()
        self.changed = threading.Condition()
        self.is_open = True
        self.news: list[tuple[Ticket[Update], Update | Failed]] = []
        self.thread = threading.Thread(target=self.run, name="network", daemon=True)

    @abstractmethod
    def turn(self) -> None:
        """One short turn of work on waiting and running jobs. An error in it ends the jobs that it concerns."""

    @property
    @abstractmethod
    def under_way(self) -> Sequence[Ticket[Update]]:
        """The tickets of running jobs."""

    def submit(self, ticket: Ticket[Update], jobs: Sequence[Job]) -> None:
        """Queue jobs. Raises Full unless there is room for all of them."""
        with self.changed:
            self.check(len(jobs))
            self.waiting.extend((ticket, job) for job in jobs)
            self.changed.notify()

    def check(self, n_jobs: int) -> None:
        """Raises Failed if so many jobs can never wait together, and Full if they cannot now."""
        with self.changed:
            if not self.is_open:
                raise Failed(503, "the server is stopping")
            if n_jobs > self.most_waiting:
                raise Failed(400, f"expected at most {self.most_waiting} texts in one request, got {n_jobs}")
            self.waiting = deque(entry for entry in self.waiting if not entry[0].is_gone)
            if len(self.waiting) + n_jobs > self.most_waiting:
                raise Full

    def take(self, fits: Callable[[list[Job], Job], bool]) -> list[tuple[Ticket[Update], Job]]:
        """Remove from the queue the oldest jobs, as long as each fits with those before it."""
        taken: list[tuple[Ticket[Update], Job]] = []
        with self.changed:
            while self.waiting:
                ticket, job = self.waiting[0]
                if not ticket.is_gone:
                    if not fits([job for _, job in taken], job):
                        break
                    taken.append((ticket, job))
                self.waiting.popleft()
        return taken

    def tell(self, ticket: Ticket[Update], update: Update | Failed) -> None:
        """Add an update, which is sent at the end of this turn."""
        self.news.append((ticket, update))

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def end(self) -> None:
        """Stop after this turn. Waiting requests get an error."""
        with self.changed:
            self.is_open = False
            self.changed.notify()

    def close(self) -> None:
        """Stop, and wait for the end of the thread."""
        self.end()
        self.thread.join()

    def run(self) -> None:
        """The loop of the thread."""
        with torch.inference_mode():
            while self.wait():
                try:
                    self.turn()
                except Exception:
                    _log.exception("The server could not go on with its requests")
                    self.fail(self.under_way, Failed(500, "a mistake of ours; the terminal that runs clearhead shows"))
                self.post()
        left = [ticket for ticket, _ in self.waiting]
        self.fail([*self.under_way, *left], Failed(503, "the server is stopping"))
        self.post()

    def wait(self) -> bool:
        """Wait for work. Returns False once the worker is closed."""
        with self.changed:
            while self.is_open and not self.waiting and not self.under_way:
                self.changed.wait()
            return self.is_open

    def fail(self, tickets: Sequence[Ticket[Update]], why: Failed) -> None:
        """Send an error to these requests, each once."""
        for ticket in dict.fromkeys(tickets):
            if not ticket.is_gone:
                self.tell(ticket, why)
                ticket.is_gone = True

    def post(self) -> None:
        """Send all updates, with one call into each event loop."""
        news = self.news.copy()
        self.news.clear()
        for loop in {ticket.loop for ticket, _ in news}:
            own = [(ticket, update) for ticket, update in news if ticket.loop is loop]
            with suppress(RuntimeError):  # A loop that has ended has no listeners.
                loop.call_soon_threadsafe(_deliver, own)


def _deliver(news: Sequence[tuple[Ticket[Update], Update | Failed]]) -> None:
    for ticket, update in news:
        ticket.updates.put_nowait(update)
