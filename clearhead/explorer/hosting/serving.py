"""Runs the explorer's server in a thread of its own."""

import socket
from contextlib import AbstractContextManager

from clearhead.explorer.hosting.server import Answers, Desk, application
from clearhead.machine.device import keep_freed_memory
from clearhead.web.page import Server, serving_page


def serving(session: Answers, listener: socket.socket | None = None) -> AbstractContextManager[Server[Desk]]:
    """Serves the session, on the listener's port or a free one, until the end of the block."""
    keep_freed_memory()
    return serving_page(Desk(session), application, listener, name="explorer", before_end=Desk.close)
