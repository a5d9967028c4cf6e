import threading

from clearhead.progress import cached


class Work:
    def __init__(self, may_end: threading.Event) -> None:
        self.may_end, self.begun, self.times = may_end, threading.Event(), 0

    @cached
    def result(self) -> int:
        self.begun.set()
        assert self.may_end.wait(60)
        self.times += 1
        return self.times


def test_a_cached_property_that_pauses_holds_up_no_other_thread() -> None:
    """Two threads waited for each other: one held the class's lock and waited for its turn, which the other had."""
    paused, free = Work(threading.Event()), Work(threading.Event())
    thread = threading.Thread(target=lambda: paused.result)
    thread.start()
    assert paused.begun.wait(60)
    free.may_end.set()
    other = threading.Thread(target=lambda: free.result, daemon=True)
    other.start()
    other.join(20)
    held_up = other.is_alive()
    paused.may_end.set()
    thread.join()
    assert not held_up
    assert free.result == paused.result == 1 == paused.times
