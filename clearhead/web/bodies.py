"""Bodies of requests: JSON, and no more of it in memory than there is room for."""

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
"""Bytes of a body that are always taken."""
TOTAL = 64_000_000
"""Bytes beyond these of all bodies that are being read or understood."""
MOST_PARTS = 100_000
"""Lists, objects and fields in a body: a million take seconds and gigabytes, and all other threads wait."""
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def parsed(body: bytes | bytearray) -> JsonValue:
    """The JSON value in a body; ValueError for none, for one of too many parts, and for one that is too deep."""
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
    """Bytes of one."""
    seconds: float
    """For one to arrive in."""
    what: str
    """Its name in errors."""
    held: int = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request that says it is JSON, which counts until the end of the block.

        Raises HTTPException for one that is not JSON, too large or too slow, and where others take all the room.
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
