"""One computation at a time: what a reader looks at comes first; a sweep gives way and ends when its reader leaves."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from pydantic import JsonValue

from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import Reply
from clearhead.explorer.turns import LEFT, GivenUp, Turns, ranking
from tests.explorer.asking import session_of

RUN: dict[str, JsonValue] = {"text": "one two three", "target": None, "edits": []}
OTHER = {**RUN, "text": "one four three"}
HEADS: list[JsonValue] = [f"decoder.blocks.{i}.attn.z[h={h}]" for i in range(2) for h in range(2)]
SWEEPS: dict[str, dict[str, JsonValue]] = {
    "effects": {"run": RUN, "at": HEADS},
    "statistics": {"run": RUN, "at": []},
    "lens": {"run": RUN},
    "generate": {"run": RUN, "settings": {"max_new_tokens": 4}},
    "circuits": {"run": RUN, "corrupt": OTHER},
    "edges": {"run": RUN, "corrupt": OTHER, "steps": 2},
    "faithfulness": {"run": RUN, "corrupt": OTHER, "share": 0.5},
    "edge": {"run": RUN, "corrupt": OTHER, "writer": "decoder.embed.tokens", "reader": "head.logits"},
    "patching": {"clean": RUN, "corrupt": OTHER, "answer": 1, "minus": 2, "at": ["decoder.blocks.0.attn.z"]},
}


def waits(turns: Turns, n: int = 1) -> None:
    """Returns once n threads wait."""
    until = time.monotonic() + 10
    while len(turns._waiting) < n:
        assert time.monotonic() < until
        time.sleep(0.001)


def started(of: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=of)
    thread.start()
    return thread


def test_lower_ranks_come_first_and_what_began_ends_before_others_of_its_rank():
    turns, order = Turns(), list[str]()
    threads = list[threading.Thread]()

    def work(name: str, rank: int, pieces: int) -> None:
        with ranking(rank), turns, turns:
            for i in range(pieces):
                order.append(f"{name}{i}")
                if name == "a" and i == 0:
                    for later, other, n in (("b", 2, 1), ("c", 1, 2), ("d", 0, 1), ("e", 0, 1)):
                        threads.append(started(partial(work, later, other, n)))
                        waits(turns, len(threads))
                turns.give_way()

    work("a", 2, 3)
    for thread in threads:
        thread.join()
    assert order == ["a0", "d0", "e0", "c0", "c1", "a1", "a2", "b0"]


@pytest.mark.parametrize("ask", SWEEPS)
def test_what_is_asked_twice_is_computed_once(ask: str, monkeypatch):
    session, made, replies = session_of.__wrapped__("decoder_pre_learned"), list[int](), list[bytes]()
    encode = Reply.encode
    monkeypatch.setattr(Reply, "encode", lambda reply: made.append(1) or encode(reply))
    threads = [started(lambda: replies.append(session.answer({"ask": ask, **SWEEPS[ask]}))) for _ in range(3)]
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(replies) == 3
    assert len({*replies}) == 1


def test_who_has_left_gets_no_turn_and_leaves_the_lock_free():
    turns, left = Turns(), threading.Event()
    token = LEFT.set(left)
    try:
        with turns:
            left.set()
            with pytest.raises(GivenUp):
                turns.give_way()
        with pytest.raises(GivenUp), turns:
            pass
    finally:
        LEFT.reset(token)
    with turns:
        pass


@pytest.mark.parametrize("ask", SWEEPS)
def test_a_sweep_gives_way_to_what_the_reader_looks_at(ask: str, monkeypatch):
    session, give_way, order, looks = session_of("decoder_pre_learned"), LOCK.give_way, [], list[threading.Thread]()

    def look() -> None:
        with LOCK:
            order.append("look")

    def way() -> None:
        if not looks:
            looks.append(started(look))
            waits(LOCK)
        give_way()

    monkeypatch.setattr(LOCK, "give_way", way)
    session.answer({"ask": ask, **SWEEPS[ask]})
    order.append(ask)
    looks[0].join()
    assert order == ["look", ask]


@pytest.mark.parametrize("ask", SWEEPS)
def test_a_sweep_is_given_up_between_two_pieces(ask: str, monkeypatch):
    session, give_way, left = session_of.__wrapped__("decoder_pre_learned"), LOCK.give_way, threading.Event()
    monkeypatch.setattr(LOCK, "give_way", lambda: (left.set(), give_way()))
    token = LEFT.set(left)
    try:
        with pytest.raises(GivenUp):
            session.answer({"ask": ask, **SWEEPS[ask]})
    finally:
        LEFT.reset(token)
    assert session.answer({"ask": "run", "run": RUN}), "the lock is free"


class Slow(Turns):
    """Waits a while before it waits for its turn."""

    def _take(self, check: Callable[[], None], mine: tuple[int, int]) -> None:
        time.sleep(0.05)
        super()._take(check, mine)


def test_whoever_gives_way_is_not_overtaken() -> None:
    """Work that has begun ends before the next of its rank: what it holds meanwhile, the next may need."""
    turns, order = Slow(), list[str]()

    def second() -> None:
        with turns:
            order.append("second")

    with turns:
        after = started(second)
        waits(turns)
        turns.give_way()
        order.append("first")
    after.join()
    assert order == ["first", "second"]
