"""A server of OpenAI's form in a thread, as Ollama and vLLM answer, with faults on demand.

It is real in that it speaks HTTP; it never says that it is simulated, as real ones do not.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Reply = dict[str, Any]
"""``content`` or ``calls`` [(name, arguments)], and ``fault``; or ``raw`` (status, media type,
body), sent as it is."""
MODEL = "tiny-chat:latest"
WORD = 4
"""Bytes a token, in the usage that it reports."""


@dataclass
class OpenAIFake:
    """``answer`` makes the reply of a request; ``requests`` are the bodies in their order."""

    answer: Callable[[dict[str, Any], int], Reply] = lambda body, number: {"content": "Hello."}
    listing: Any = field(default_factory=lambda: {"object": "list", "data": [{"id": MODEL}]})
    token: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    looks: int = 0
    port: int = 0
    ended: Event = field(default_factory=Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["OpenAIFake"]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: Any) -> None:
                pass

            def do_GET(self) -> None:
                if self._admitted():
                    fake.looks += 1
                    self._json(200, fake.listing)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self._admitted():
                    fake.requests.append(body)
                    self._turn(body, fake.answer(body, len(fake.requests) - 1))

            def _admitted(self) -> bool:
                if fake.token and self.headers.get("authorization") != f"Bearer {fake.token}":
                    self._json(401, {"error": {"message": "no such key", "code": 401}})
                    return False
                return True

            def _json(self, status: int, value: Any, **headers: str) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                for name, text in headers.items():
                    self.send_header(name.replace("_", "-"), text)
                self.end_headers()
                self.wfile.write(content)

            def _turn(self, body: dict[str, Any], reply: Reply) -> None:
                fault = reply.get("fault", "")
                if "raw" in reply:
                    status, media_type, content = reply["raw"]
                    self.send_response(status)
                    self.send_header("content-type", media_type)
                    self.end_headers()
                    self.wfile.write(content)
                elif fault == "busy":
                    self._json(429, {"error": {"message": "busy"}}, retry_after="0")
                elif fault == "crash":
                    self._json(500, {"error": {"message": "the engine died"}})
                elif fault == "overflow":
                    said = "This model's maximum context length is 512 tokens"
                    self._json(400, {"error": {"message": said, "code": 400}})
                elif fault == "refused":
                    self._json(400, {"error": {"message": "no such parameter"}})
                elif fault == "silent":
                    fake.ended.wait(30)
                else:
                    self._stream(body, reply, fault)

            def _stream(self, body: dict[str, Any], reply: Reply, fault: str) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                model = "another" if fault == "another model" else body["model"]

                def send(**chunk: Any) -> None:
                    event = {"object": "chat.completion.chunk", "model": model, **chunk}
                    self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                    self.wfile.flush()

                def delta(reason: str | None = None, **what: Any) -> None:
                    send(choices=[{"index": 0, "delta": what, "finish_reason": reason}])

                delta(role="assistant", content="")
                content, calls = reply.get("content", ""), reply.get("calls", [])
                for at in range(0, len(content), 7):
                    delta(content=content[at : at + 7])
                    if fault == "half a stream":
                        return
                    if fault == "stalls":
                        fake.ended.wait(30)
                        return
                for index, (name, arguments) in enumerate(calls):
                    function = {"name": name, "arguments": json.dumps(arguments)}
                    delta(
                        tool_calls=[{"index": index, "id": f"call_{index}", "function": function}]
                    )
                delta("tool_calls" if calls else "stop")
                if fault != "no usage":
                    prompt = len(json.dumps(body["messages"])) // WORD
                    usage = {"prompt_tokens": prompt, "completion_tokens": len(content) // WORD + 1}
                    send(choices=[], usage=usage)
                self.wfile.write(b"data: [DONE]\n\n")

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            server.shutdown()
            server.server_close()
            thread.join()
