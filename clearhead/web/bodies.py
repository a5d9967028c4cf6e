"""Reads the JSON bodies of requests, within limits of memory."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

SMALL = 1 << 16
"""Bytes of a body that are always accepted."""
TOTAL = 64_000_000
"""The limit for the further bytes of all bodies that are being read or parsed."""
MOST_PARTS = 100_000
"""The most lists, objects and fields in a body. A million take seconds and gigabytes and block all other threads."""
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def parsed(body: bytes | bytearray) -> JsonValue:
    """The JSON value in a body. Raises ValueError if there is none, or if it has too many parts or is too deep."""
    if _parts(body) > MOST_PARTS and _parts(STRING.sub(b"", body)) > MOST_PARTS:
        raise ValueError(f"expected at most {MOST_PARTS:,} lists, objects and fields, got more")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"expected JSON; {error}") from None


def _parts(body: bytes | bytearray) -> int:
    return body.count(b"[") + body.count(b"{") + body.count(b":")


@dataclass
class Bodies:
    """Reads the bodies of one server's requests."""

    most: int
    """The most bytes of a body."""
    seconds: float
    """Seconds within which a body must arrive."""
    what: str
    """The name of a body in errors."""
    held: int = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request. It counts against the limits until the end of the block.

        Raises HTTPException if its type is not JSON, if it is too large or too slow, or if others take all the room.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "content-type: expected application/json")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.most:
            raise self._too_large()
        body, counted = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(self.seconds):
                    async for chunk in request.stream():
                        if len(body) + len(chunk) > self.most:
                            raise self._too_large()
                        body += chunk
                        counted += self._take(max(0, len(body) - SMALL) - counted)
            except TimeoutError:
                raise HTTPException(408, f"{self.what}: expected all of it within {self.seconds:.0f} s") from None
            yield body
        finally:
            self.held -= counted

    def _take(self, n_bytes: int) -> int:
        if self.held + n_bytes > TOTAL:
            raise HTTPException(503, "too many large requests are being read; try again in a moment")
        self.held += n_bytes
        return n_bytes

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"{self.what}: expected at most {self.most:,} bytes, got more")
