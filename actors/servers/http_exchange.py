"""One HTTP exchange on a fresh connection, with a deadline that can move and a bounded size.

A connection is never reused: a server that closes an idle one just then would look like a transport
failure of the model. Proxies, netrc and other settings of the environment are ignored.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import httpx

CONNECT_SECONDS = 10.0


class TooLong(Exception):
    """The body exceeds its bound; reading stopped there."""


class Deadline:
    """Shuts a connection down when its deadline passes; the deadline can be moved meanwhile.

    A read time-out of the HTTP library restarts with every byte and cannot change during a
    response. A model server that sends keep-alives but no tokens needs both, so a thread watches
    the clock and shuts the socket down, which ends the blocked read.
    """

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._at = time.monotonic() + seconds
        self._done = False
        self._socket: socket.socket | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def move(self, seconds: float) -> None:
        """Expire ``seconds`` from now instead."""
        with self._changed:
            self._at = time.monotonic() + seconds
            self._changed.notify()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore's trace hook: learns the socket of the connection."""
        if event == "connection.connect_tcp.complete":
            with self._changed:
                self._socket = info["return_value"].get_extra_info("socket")
                if self.expired:
                    self._shut_down()

    def __enter__(self) -> "Deadline":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._done = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._done:
                left = self._at - time.monotonic()
                if left <= 0:
                    self.expired = True
                    self._shut_down()
                    return
                self._changed.wait(left)

    def _shut_down(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # already closed by the other side
                self._socket.shutdown(socket.SHUT_RDWR)


def new_client() -> httpx.Client:
    """A client that opens a connection per request and takes nothing from the environment."""
    return httpx.Client(
        trust_env=False,
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_keepalive_connections=0),
        follow_redirects=False,
    )


@contextlib.contextmanager
def exchange(
    client: httpx.Client,
    method: str,
    url: str,
    *,
    deadline: Deadline,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[httpx.Response]:
    """Send one request and hand out the response before its body is read.

    Raises httpx.HTTPError. Where ``deadline.expired`` is true by then, that is the reason.
    """
    sent = {"accept-encoding": "identity", "connection": "close"} | dict(headers or {})
    if body is not None:
        sent["content-type"] = "application/json"
    with client.stream(
        method, url, content=body, headers=sent, extensions={"trace": deadline.trace}
    ) as response:
        yield response


def read_body(response: httpx.Response, limit: int) -> bytes:
    """The raw body. Raises TooLong beyond ``limit`` bytes, or httpx.HTTPError."""
    body = bytearray()
    for block in response.iter_raw():
        body += block
        if len(body) > limit:
            raise TooLong(f"the answer is longer than {limit} bytes")
    return bytes(body)
