"""A capturing proxy in front of somebody's MCP server over stdio.

    python proxy.py [--journal FILE] -- COMMAND [ARGUMENT…]        (or: ledger transfer proxy -- …)

An agent starts this in place of its memory server. Bytes pass unchanged in both directions; each
line is also appended to a journal of JSON lines ``{"n", "from": "client" | "server", "message"}``
(``"text"`` for what is no JSON), which nobody else may read (mode 0600) and which ends, bounded,
with ``{"n", "truncated": true}``. Without ``--journal`` it is the file that
``LEDGER_PROXY_JOURNAL`` names. Standard library only: it runs inside the sandbox of a system under
test.

:func:`retrievals` reads out of a journal what the memory delivered. Whoever starts the proxy could
have written the journal without it: what an agent had it capture is the agent's own word.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MAX_JOURNAL = 16 << 20
MAX_LINE = 1 << 20
JOURNAL = "LEDGER_PROXY_JOURNAL"
_CHUNK = 1 << 16
USAGE = "usage: proxy [--journal FILE] -- COMMAND [ARGUMENT...]"


_BEGIN = b'{"n": '
"""Of every line that is appended."""


class Journal:
    """Appends what was said, in the order in which it passed; never more than MAX_JOURNAL bytes."""

    def __init__(self, path: str) -> None:
        """Raises OSError: no such folder, a link, not ours to write, or another program's file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        if os.pread(self._descriptor, len(_BEGIN), 0) not in (b"", _BEGIN):
            os.close(self._descriptor)
            raise OSError(f"{path} holds something else than captured messages; name a new file")
        os.fchmod(self._descriptor, 0o600)
        self._left = MAX_JOURNAL - os.fstat(self._descriptor).st_size
        self._lock = threading.Lock()
        self._number = 0

    def add(self, who: str, line: bytes) -> None:
        record: dict[str, Any] = {"n": 0, "from": who}
        try:
            record["message"] = json.loads(line)
        except (ValueError, RecursionError):
            record["text"] = line.decode("utf-8", "replace")
        with self._lock:
            if self._left <= 0:
                return
            record["n"] = self._number
            self._number += 1
            written = json.dumps(record).encode() + b"\n"
            if len(written) > self._left:
                written, self._left = b'{"n": %d, "truncated": true}\n' % record["n"], 0
            self._left -= len(written)
            os.write(self._descriptor, written)


def relay(source: int, sink: int, who: str, journal: Journal) -> None:
    """Pass every byte on unchanged, after each whole line was written to the journal."""
    rest = bytearray()
    while chunk := os.read(source, _CHUNK):
        *lines, tail = (rest + chunk).split(b"\n")
        for line in lines:
            journal.add(who, bytes(line[:MAX_LINE]))
        rest = bytearray(tail[:MAX_LINE])
        view = memoryview(chunk)
        while view:
            view = view[os.write(sink, view) :]
    if rest:
        journal.add(who, bytes(rest))


def run(command: list[str], path: str) -> int:
    """Start the server and relay until it ends; its exit status. Raises OSError."""
    journal = Journal(path)
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin is not None and server.stdout is not None
    to_server = server.stdin

    def from_client() -> None:
        try:
            relay(0, to_server.fileno(), "client", journal)
        except BrokenPipeError:
            pass  # the server has ended: its status says how
        finally:
            to_server.close()

    threading.Thread(target=from_client, daemon=True).start()
    try:
        relay(server.stdout.fileno(), 1, "server", journal)
    except BrokenPipeError:
        server.terminate()  # the agent has gone
    status = server.wait()
    return status if status >= 0 else 128 - status


def main(arguments: list[str]) -> int:
    path = os.environ.get(JOURNAL, "")
    if arguments[:1] == ["--journal"] and len(arguments) > 1:
        path, arguments = arguments[1], arguments[2:]
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    if not path:
        sys.stderr.write(f"say where to write: --journal FILE, or {JOURNAL}\n")
        return 2
    sys.stderr.write(f"capturing to {path}\n")
    try:
        return run(arguments, path)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Captured:
    """One delivery: which tool was called how, and the texts that came back, by id."""

    query: str
    items: tuple[tuple[str, str], ...]


def retrievals(content: bytes) -> list[Captured]:
    """What the server delivered to the agent, in order of its answers.

    An answer to ``tools/call`` counts, unless it is an error or the server's own list of tools says
    that the tool is not read-only. Raises ValueError where the journal is cut off or is none.
    """
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    writing: set[str] = set()
    found = []
    for record in _records(content):
        message = record.get("message")
        if not isinstance(message, dict):
            continue
        key = json.dumps(message.get("id"))
        parameters = message.get("params")
        if record["from"] == "client" and isinstance(parameters, dict):
            asked[key] = str(message.get("method")), parameters
        elif record["from"] == "client" and "method" in message:
            asked[key] = str(message["method"]), {}
        result = message.get("result")
        if record["from"] != "server" or not isinstance(result, dict) or key not in asked:
            continue
        method, parameters = asked.pop(key)
        if method == "tools/list":
            writing |= set(_tools_that_write(result))
        elif method == "tools/call" and not result.get("isError"):
            name = str(parameters.get("name"))
            if name not in writing:
                arguments = json.dumps(parameters.get("arguments") or {}, ensure_ascii=False)
                items = tuple(_items(result, record["n"]))
                found.append(Captured(f"{name} {arguments}", items))
    return found


def _records(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the journal of the proxy cannot be read: {error}") from None
        if not isinstance(record, dict) or record.get("truncated") or "from" not in record:
            raise ValueError("the journal of the proxy is not whole: more passed than it may hold")
        yield record


def _tools_that_write(result: dict[str, Any]) -> Iterator[str]:
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            hints = tool.get("annotations")
            if isinstance(hints, dict) and hints.get("readOnlyHint") is False:
                yield str(tool.get("name"))


def _items(result: dict[str, Any], number: int) -> Iterator[tuple[str, str]]:
    """Entities of a knowledge graph by name; else each block of text under the answer's number."""
    structured = result.get("structuredContent")
    entities = structured.get("entities") if isinstance(structured, dict) else None
    if isinstance(entities, list):
        for entity in entities:
            if isinstance(entity, dict):
                yield str(entity.get("name")), "\n".join(_strings(entity.get("observations")))
        return
    blocks = result.get("content")
    for index, block in enumerate(blocks if isinstance(blocks, list) else []):
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            with suppress(ValueError, RecursionError):  # not JSON: the text as it is
                text = "\n".join(_strings(json.loads(text)))
            yield f"answer-{number}.{index}", text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key in value:
            yield from _strings(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


if __name__ == "__main__":
    # Not sys.exit: a thread that waits for the agent's next line must not keep this alive.
    sys.stderr.flush()
    os._exit(main(sys.argv[1:]))
