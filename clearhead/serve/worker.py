"""A thread that owns the network, with a queue of requests and news for them."""

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
    """The reason why there is no answer, for the client, and the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Ticket(Generic[Update]):
    """A waiting request's end of the queue. The request makes it in its event loop; the worker sends it news."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.updates: asyncio.Queue[Update | Failed] = asyncio.Queue()
        self.is_gone = False
        """Whether the client has hung up. The worker looks at it in every turn."""

    async def next(self) -> Update:
        """Waits for the next news. Raises Failed."""
        update = await self.updates.get()
        if isinstance(update, Failed):
            raise update
        return update


class Worker(ABC, Generic[Job, Update]):
    """Takes jobs in order and works on them turn by turn, until it is closed."""

    def __init__(self, *, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self.waiting: deque[tuple[Ticket[Update], Job]] = deque()
        self.changed = threading.Condition()
        self.is_open = True
        self.news: list[tuple[Ticket[Update], Update | Failed]] = []
        self.thread = threading.Thread(target=self.run, name="network", daemon=True)

    @abstractmethod
    def turn(self) -> None:
        """Does a short turn of work. An exception ends its jobs."""

    @property
    @abstractmethod
    def under_way(self) -> Sequence[Ticket[Update]]:
        """The tickets of jobs under way."""

    def submit(self, ticket: Ticket[Update], jobs: Sequence[Job]) -> None:
        """Queues jobs. Raises Full if there is no place for all of them."""
        with self.changed:
            self.check(len(jobs))
            self.waiting.extend((ticket, job) for job in jobs)
            self.changed.notify()

    def check(self, n_jobs: int) -> None:
        """Raises Failed if the queue can never hold this many jobs, and Full if it cannot now."""
        with self.changed:
            if not self.is_open:
                raise Failed(503, "the server is stopping")
            if n_jobs > self.most_waiting:
                raise Failed(400, f"expected at most {self.most_waiting} texts in one request, got {n_jobs}")
            self.waiting = deque(entry for entry in self.waiting if not entry[0].is_gone)
            if len(self.waiting) + n_jobs > self.most_waiting:
                raise Full

    def take(self, fits: Callable[[list[Job], Job], bool]) -> list[tuple[Ticket[Update], Job]]:
        """Takes the jobs that have waited longest, as long as they fit together."""
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
        """Collects news for a request. All news of a turn are sent together."""
        self.news.append((ticket, update))

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def end(self) -> None:
        """Ends after this turn and tells all waiting requests."""
        with self.changed:
            self.is_open = False
            self.changed.notify()

    def run(self) -> None:
        """The main loop of the thread."""
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
        """Waits for work; False if the worker is closed."""
        with self.changed:
            while self.is_open and not self.waiting and not self.under_way:
                self.changed.wait()
            return self.is_open

    def fail(self, tickets: Sequence[Ticket[Update]], why: Failed) -> None:
        """Tells these requests, each once, that they get no answer."""
        for ticket in dict.fromkeys(tickets):
            if not ticket.is_gone:
                self.tell(ticket, why)
                ticket.is_gone = True

    def post(self) -> None:
        """Sends the news, with one call into each event loop."""
        news = self.news.copy()
        self.news.clear()
        for loop in {ticket.loop for ticket, _ in news}:
            own = [(ticket, update) for ticket, update in news if ticket.loop is loop]
            with suppress(RuntimeError):  # Nobody waits in a loop that has ended.
                loop.call_soon_threadsafe(_deliver, own)


def _deliver(news: Sequence[tuple[Ticket[Update], Update | Failed]]) -> None:
    for ticket, update in news:
        ticket.updates.put_nowait(update)
