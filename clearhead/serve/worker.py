"""A thread that owns the network, and how requests wait for it and hear from it."""

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
    """There is no place left to wait in."""


class Failed(Exception):
    """Why there is no answer, as the client is told, and the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Ticket(Generic[Update]):
    """What a request holds while it waits: made in its event loop, and told of by the worker."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.updates: asyncio.Queue[Update | Failed] = asyncio.Queue()
        self.is_gone = False
        """Whether the client has hung up; the worker looks at every turn."""

    async def next(self) -> Update:
        """The next news; raises Failed."""
        update = await self.updates.get()
        if isinstance(update, Failed):
            raise update
        return update


class Worker(ABC, Generic[Job, Update]):
    """Takes jobs in the order of their coming and does a turn of work on them, again and again, until it is closed."""

    def __init__(self, *, most_waiting: int) -> None:
        self.most_waiting = most_waiting
        self.waiting: deque[tuple[Ticket[Update], Job]] = deque()
        self.changed = threading.Condition()
        self.is_open = True
        self.news: list[tuple[Ticket[Update], Update | Failed]] = []
        self.thread = threading.Thread(target=self.run, name="network", daemon=True)

    @abstractmethod
    def turn(self) -> None:
        """Some work on what waits and what is under way, soon done; a mistake in it ends what it was about."""

    @property
    @abstractmethod
    def under_way(self) -> Sequence[Ticket[Update]]:
        """The tickets that are being worked for."""

    def submit(self, ticket: Ticket[Update], jobs: Sequence[Job]) -> None:
        """Let jobs wait; raises Full where there is no place for all of them."""
        with self.changed:
            self.check(len(jobs))
            self.waiting.extend((ticket, job) for job in jobs)
            self.changed.notify()

    def check(self, n_jobs: int) -> None:
        """Raises Failed where so many jobs can never wait together, and Full where they cannot now."""
        with self.changed:
            if not self.is_open:
                raise Failed(503, "the server is stopping")
            if n_jobs > self.most_waiting:
                raise Failed(400, f"expected at most {self.most_waiting} texts in one request, got {n_jobs}")
            self.waiting = deque(entry for entry in self.waiting if not entry[0].is_gone)
            if len(self.waiting) + n_jobs > self.most_waiting:
                raise Full

    def take(self, fits: Callable[[list[Job], Job], bool]) -> list[tuple[Ticket[Update], Job]]:
        """Those that have waited longest, as long as they fit with the ones before them."""
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
        """News for a request, which leave with the others of this turn."""
        self.news.append((ticket, update))

    def start(self) -> None:
        """Begin to work."""
        self.thread.start()

    def end(self) -> None:
        """End after this turn; whoever waits is told so."""
        with self.changed:
            self.is_open = False
            self.changed.notify()

    def close(self) -> None:
        """End, and wait for it."""
        self.end()
        self.thread.join()

    def run(self) -> None:
        """The thread's life."""
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
        """Until there is work; False where there will be none."""
        with self.changed:
            while self.is_open and not self.waiting and not self.under_way:
                self.changed.wait()
            return self.is_open

    def fail(self, tickets: Sequence[Ticket[Update]], why: Failed) -> None:
        """Tell these requests, each once, that there will be no answer."""
        for ticket in dict.fromkeys(tickets):
            if not ticket.is_gone:
                self.tell(ticket, why)
                ticket.is_gone = True

    def post(self) -> None:
        """Hand over the news: one call into each event loop, however many there are."""
        news = self.news.copy()
        self.news.clear()
        for loop in {ticket.loop for ticket, _ in news}:
            own = [(ticket, update) for ticket, update in news if ticket.loop is loop]
            with suppress(RuntimeError):  # A loop that has ended has nobody left to tell.
                loop.call_soon_threadsafe(_deliver, own)


def _deliver(news: Sequence[tuple[Ticket[Update], Update | Failed]]) -> None:
    for ticket, update in news:
        ticket.updates.put_nowait(update)
