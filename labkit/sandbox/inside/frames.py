"""Byte messages over a socket: four bytes of length, then the message; nothing is trusted."""

from __future__ import annotations

import socket
import time


class Gone(Exception):
    """The other side hung up, was too slow (TimedOut), or announced more than the limit."""


class TimedOut(Gone):
    """Nothing came in time."""


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def send(channel: socket.socket, message: bytes) -> None:
    channel.sendall(framed(message))


def receive(channel: socket.socket, limit: int, seconds: float | None = None) -> bytes:
    """The next message; Gone if it is not all there within `seconds` (None: wait for ever)."""
    deadline = None if seconds is None else time.monotonic() + seconds
    size = int.from_bytes(_exactly(channel, 4, deadline), "little")
    if size > limit:
        raise Gone(f"a message of {size:,} bytes; {limit:,} is the most")
    return _exactly(channel, size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimedOut("no answer in time")
        channel.settimeout(left)
        try:
            part = channel.recv(min(size, 1 << 20))
        except TimeoutError as error:
            raise TimedOut("no answer in time") from error
        except OSError as error:  # reset, closed
            raise Gone(str(error) or type(error).__name__) from error
        if not part:
            raise Gone("it hung up")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
