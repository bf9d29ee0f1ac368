"""The stand-in LM Studio: an HTTP server on loopback with LM Studio's routes, for rehearsals and
tests.

    python -m actors.rehearsal.stand_in_server --port 0 --token-file FILE [--catalogue FILE]
        [--log FILE] [--simulated-study]

prints one JSON line with its port and ends when its standard input does, so it never outlives its
parent. It cannot be taken for the real server: every answer carries ``x-simulated: true``. Turns
are answered from a script where one is set, else by the simulated agent, which is told tasks only
in a server that was started with ``--simulated-study``.

Routes below ``/stand-in/`` set faults, scripts and briefs and show the server's own log. They need
the token in ``x-stand-in-token`` and a loopback peer.
"""

import argparse
import hmac
import ipaddress
import os
import select
import socket
import struct
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from actors.rehearsal.simulated_agent import NO_BRIEF, Brief, decide, find_brief
from actors.rehearsal.stand_in_chat import (
    CHAT_KEYS,
    Call,
    Completion,
    Turn,
    embed,
    error_event,
    estimate_tokens,
    event,
)
from actors.rehearsal.stand_in_state import CATALOGUE, NotFound, StandInState
from schemas.study import Rehearsal

TOKEN_HEADER = "x-stand-in-token"
_T = TypeVar("_T")
MAX_REQUEST_BYTES = 64 << 20
OVERFLOW = "Context size has been exceeded."
GARBAGE = 'Bee<|"|> extraar zerod toara/?'


class RehearsalOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /stand-in/rehearsal``: agents by model key, briefs to add."""

    agents: dict[str, Rehearsal] = {}
    briefs: list[Brief] = []


class StandInServer(ThreadingHTTPServer):
    """The server with its state. ``token`` opens the admin routes."""

    daemon_threads = True

    def __init__(
        self,
        port: int,
        token: str,
        *,
        catalogue: Path = CATALOGUE,
        log_file: Path | None = None,
        simulated_study: bool = False,
    ) -> None:
        if not token:
            raise ValueError("the stand-in needs a token for its admin routes")
        self.state = StandInState(catalogue, log_file)
        self.token = token
        self.simulated_study = simulated_study
        self.script: deque[Turn] = deque()
        self.agents: dict[str, Rehearsal] = {}
        self.briefs: dict[str, Brief] = {}
        self.repeats: Counter[bytes] = Counter()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is normal here; anything else is a defect and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @contextmanager
    def running(self) -> Iterator["StandInServer"]:
        """Serve in a thread until the block ends; hanging answers end too."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.state.closing.set()
            self.shutdown()
            thread.join()
            self.server_close()

    def answer(self, key: str, request: dict[str, Any]) -> Turn:
        """The back ends: the next scripted turn, else the agent of this model key."""
        with self.state.lock:
            if self.script:
                return self.script.popleft()
            agent = self.agents.get(key)
            brief = find_brief(request["messages"], self.briefs)
        if agent is None:
            return Turn(content=NO_BRIEF)
        reply = decide(
            request["messages"],
            request.get("tools") or [],
            brief,
            seed=agent.seed,
            competence_per_mille=agent.competence_per_mille,
        )
        return Turn(
            content=reply.content,
            reasoning=reply.reasoning,
            calls=[
                Call(name=call.name, arguments=msgspec.json.encode(call.arguments).decode())
                for call in reply.calls
            ],
        )


class Refusal(Exception):
    """An error answer with the form of LM Studio's."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"type": kind, "message": message, "param": param, "code": code}


class Handler(BaseHTTPRequestHandler):
    """One connection. Node and Express, which LM Studio uses, keep connections alive for 5 s."""

    server: StandInServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Requests stand in the state's own log."""

    def do_GET(self) -> None:
        self._handle({})

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        if length > MAX_REQUEST_BYTES:
            self.close_connection = True
            return self._json(413, {"error": {"type": "invalid_request", "message": "too large"}})
        content = self.rfile.read(length)
        try:
            body = msgspec.json.decode(content) if content else {}
        except msgspec.DecodeError as error:
            body = error
        self._handle(body)

    def _handle(self, body: Any) -> None:
        state = self.server.state
        path = self.path.partition("?")[0]
        try:
            if path.startswith("/stand-in/"):
                return self._json(200, self._admin(f"{self.command} {path}", body))
            if not state.started:
                self.close_connection = True  # as if nobody listened
                return None
            state.record("request", method=self.command, path=path)
            auth = state.fault("auth_on")
            if auth is not None and self.headers.get("authorization") != f"Bearer {auth['token']}":
                raise Refusal(401, "invalid_request", "An API token is required", code="auth")
            if self.command == "POST" and not isinstance(body, dict):
                raise Refusal(400, "invalid_request", f"The body is not a JSON object: {body}")
            if f"{self.command} {path}" == "POST /v1/chat/completions":
                return self._chat(body)
            return self._json(200, self._route(f"{self.command} {path}", body))
        except Refusal as refusal:
            return self._json(refusal.status, {"error": refusal.error})

    def _route(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        state = self.server.state
        method, path = route.split(" ", 1)
        unknown = {"error": f"Unexpected endpoint or method. ({method} {path})"}
        if path.startswith("/api/v1/") and state.fault("old_server") is not None:
            return unknown
        match route:
            case "GET /lmstudio-greeting":
                return {"lmstudio": True}
            case "GET /api/v1/models":
                if state.fault("undocumented_listing") is not None:
                    return {"models": [{"key": key} for key in state.models]}
                return state.v1_models()
            case "GET /api/v0/models":
                return state.v0_models()
            case "GET /v1/models":
                return state.openai_models()
            case "POST /api/v1/models/load":
                return self._load(body)
            case "POST /api/v1/models/unload":
                return self._unload(body)
            case "POST /v1/embeddings":
                return self._embeddings(body)
            case _:
                return unknown

    # ---- residency ---------------------------------------------------------------------------

    def _load(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.server.state
        _check(
            body,
            {"model": str},
            {
                "context_length": int,
                "eval_batch_size": int,
                "flash_attention": bool,
                "num_experts": int,
                "offload_kv_cache_to_gpu": bool,
                "echo_load_config": bool,
            },
        )
        if state.fault("load_hangs") is not None:
            self._hang()
        if state.fault("load_500") is not None:
            raise Refusal(500, "model_load_failed", "Failed to load model: insufficient memory")
        if state.fault("load_404") is not None:
            raise _not_found(f"Model {body['model']} not found in downloaded models")
        before = state.virtual_ms
        try:
            instance = state.load(body["model"], body.get("context_length"))
        except NotFound as error:
            raise _not_found(str(error)) from None
        answer = {
            "type": state.models[instance.key].type,
            "instance_id": instance.id,
            "load_time_seconds": (state.virtual_ms - before) / 1000,
            "status": "loaded",
        }
        if body.get("echo_load_config"):
            answer["load_config"] = state.load_config(instance)
        return answer

    def _unload(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.server.state
        _check(body, {"instance_id": str}, {})
        if state.fault("unload_500") is not None:
            raise Refusal(500, "model_unload_failed", "Failed to unload model")
        try:
            state.unload(body["instance_id"])
        except NotFound as error:
            raise _not_found(str(error)) from None
        return {"instance_id": body["instance_id"]}

    # ---- generation --------------------------------------------------------------------------

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.server.state
        _check(body, {"model": str, "input": list | str}, {"encoding_format": str})
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        instance = state.instances.get(body["model"])
        if instance is None or state.models[instance.key].type != "embedding":
            raise _not_found(f"No embedding model {body['model']} is loaded")
        tokens = estimate_tokens(*texts)
        state.begin(instance, "\n".join(texts).encode(), tokens)
        state.end(instance, 0)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "embedding": embed(text), "index": index}
                for index, text in enumerate(texts)
            ],
            "model": instance.id,
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }

    def _chat(self, body: dict[str, Any]) -> None:
        state = self.server.state
        _check(body, {"model": str, "messages": list}, dict.fromkeys(CHAT_KEYS, object))
        if not all(isinstance(message, dict) for message in body["messages"]):
            raise Refusal(400, "invalid_request_error", "messages must be objects", "messages")
        if body.get("reasoning_effort", "low") not in ("none", "low", "medium", "high"):
            raise Refusal(400, "invalid_request_error", "no such effort", "reasoning_effort")
        if state.fault("error_body_200") is not None:
            return self._json(
                200, {"error": "The model has crashed without additional information."}
            )
        if state.fault("chat_500") is not None:
            raise Refusal(500, "internal_error", "Internal server error")
        for name, status in (("back_pressure_429", 429), ("back_pressure_503", 503)):
            busy = state.fault(name)
            if busy is not None:
                error = {"error": {"type": "rate_limit", "message": "Too many requests"}}
                wait = busy.get("retry_after", 1)
                headers = {} if wait is None else {"retry-after": str(wait)}
                return self._json(status, error, headers)
        if state.fault("connection_reset_before_first_token") is not None:
            return self._reset()

        try:
            instance = state.addressed(body["model"])
        except NotFound as error:
            raise Refusal(404, "invalid_request_error", str(error), "model") from None
        model = state.models[instance.key]
        if model.type != "llm":
            raise Refusal(400, "invalid_request_error", f"{instance.id} cannot chat", "model")
        prompt = msgspec.json.encode([body.get("tools") or [], body["messages"]])
        prompt_tokens = len(prompt) // 4 + 1
        stream = body.get("stream", False)

        turn: Turn | None = None
        if prompt_tokens >= instance.context_length:
            if state.fault("overflow_400") is not None:
                raise Refusal(
                    400, "invalid_request_error", OVERFLOW, code="context_length_exceeded"
                )
            if state.fault("overflow_crash") is not None:
                state.remove(instance.id, "crashed")
                raise Refusal(500, "internal_error", "The model has crashed. (Exit code: 6)")
            if state.fault("overflow_garbage") is not None:
                turn = Turn(content=GARBAGE)
            elif state.fault("overflow_silent") is not None:
                turn = Turn()
            elif stream:
                return self._stream([error_event(OVERFLOW)])
            else:
                return self._json(200, {"error": OVERFLOW})

        state.begin(instance, prompt, prompt_tokens)
        completion_tokens = 0
        try:
            turn = turn or self.server.answer(instance.key, body)
            differs = state.fault("repeat_differs")
            if differs is not None:
                self.server.repeats[prompt] += 1
                if self.server.repeats[prompt] == differs.get("nth", 2):
                    turn = msgspec.structs.replace(turn, content=f"{turn.content} (Differently.)")
            completion = Completion(state, model, instance.id, body, turn, prompt_tokens)
            completion_tokens = completion.completion_tokens
            if not stream:
                return self._json(200, completion.as_json())
            options = body.get("stream_options") or {}
            self._stream_with_faults(
                completion.as_events(bool(options.get("include_usage"))), instance.id
            )
        finally:
            state.end(instance, completion_tokens)

    def _stream_with_faults(self, events: list[bytes], instance_id: str) -> None:
        state = self.server.state
        half = max(1, len(events) // 2)
        if state.fault("hang_before_first_token") is not None:
            first = event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
            return self._stream([first, b": keep-alive\n\n"], hang=True)
        if state.fault("hang_after_first_token") is not None:
            return self._stream(events[:1], hang=True)
        if state.fault("half_sse_stream") is not None:
            # In the middle of an event, not between two.
            return self._stream([*events[:half], events[half][: len(events[half]) // 2]], cut=True)
        if state.fault("evicted_while_generating") is not None:
            state.remove(instance_id, "evicted")
            return self._stream([*events[:half], error_event("Model is unloaded.")])
        wrong = state.fault("error_event")
        if wrong is not None:
            message = wrong.get("message", "The model has crashed.")
            return self._stream([*events[: wrong.get("after", 0)], error_event(message)])
        if state.fault("garbage_event") is not None:
            return self._stream([*events[:1], b"data: {not JSON\n\n", *events[1:]])
        return self._stream(events)

    # ---- answers -----------------------------------------------------------------------------

    def end_headers(self) -> None:
        self.send_header("x-simulated", "true")
        super().end_headers()

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=utf-8")
        self.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: list[bytes], *, hang: bool = False, cut: bool = False) -> None:
        """Server-sent events in the chunked coding, so that a missing end can be noticed."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        slow = self.server.state.fault("slow_stream")
        for data in events:
            if slow is not None:
                self.server.state.closing.wait(float(slow.get("seconds", 1)))
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
        if hang:
            self._hang()
        if cut:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _hang(self) -> None:
        """Say nothing more until the client has gone or the server closes."""
        while not self.server.state.closing.wait(0.02):
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                break
        raise ConnectionAbortedError("the client went away")

    def _reset(self) -> None:
        """Close so that the peer gets RST instead of FIN."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        # The usual end of a handler says goodbye (FIN) first; without its descriptor it cannot.
        os.close(self.connection.detach())

    # ---- admin routes ------------------------------------------------------------------------

    def _admin(self, route: str, body: Any) -> Any:
        server, state = self.server, self.server.state
        token = self.headers.get(TOKEN_HEADER) or ""
        is_loopback = ipaddress.ip_address(self.client_address[0]).is_loopback
        if not is_loopback or not hmac.compare_digest(token.encode(), server.token.encode()):
            raise Refusal(403, "forbidden", "the admin routes need their token, from loopback")
        match route:
            case "GET /stand-in/state":
                return {
                    "virtual_ms": state.virtual_ms,
                    "resident": sorted(state.instances),
                    "max_resident_ever": state.max_resident_ever,
                    "max_in_flight_ever": state.max_in_flight_ever,
                    "switches": state.switches,
                    "log": state.log,
                }
            case "POST /stand-in/faults":
                try:
                    state.set_faults(msgspec.convert(body, dict[str, dict[str, Any]]))
                except (ValueError, msgspec.ValidationError) as error:
                    raise Refusal(400, "invalid_request", str(error)) from None
            case "POST /stand-in/script":
                server.script = deque(_convert(body.get("turns"), list[Turn]))
            case "POST /stand-in/rehearsal":
                if not server.simulated_study:
                    raise Refusal(
                        403,
                        "not_simulated",
                        "this server was not started with --simulated-study, so no simulated "
                        "agent may be told a task",
                    )
                order = _convert(body, RehearsalOrder)
                server.agents |= order.agents
                server.briefs |= {brief.statement: brief for brief in order.briefs}
            case "GET /stand-in/lms/status":
                return state.lms_status(server.port)
            case "GET /stand-in/lms/ps":
                return state.lms_ps()
            case "GET /stand-in/lms/ls":
                return state.lms_ls()
            case "POST /stand-in/lms/start":
                with state.lock:
                    state.started = True
                    state.faults.pop("server_stopped", None)
                return {"exit": 0}
            case _:
                raise Refusal(404, "not_found", f"no admin route {route}")
        return {"ok": True}


def _check(body: dict[str, Any], required: dict[str, Any], optional: dict[str, Any]) -> None:
    """Strict bodies: unknown keys, missing keys and wrong types are refused."""
    unknown = [key for key in body if key not in required and key not in optional]
    if unknown:
        shown = ", ".join(f"'{key}'" for key in unknown)
        raise Refusal(
            400,
            "invalid_request",
            f"Unrecognized key(s) in object: {shown}",
            code="unrecognized_keys",
        )
    for key, kind in (required | optional).items():
        if key in required and key not in body:
            raise Refusal(400, "invalid_request", f"'{key}' is required", key, "missing_key")
        if key in body and not isinstance(body[key], kind):
            raise Refusal(400, "invalid_request", f"'{key}' has a wrong type", key, "invalid_type")


def _convert(body: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid_request", str(error)) from None


def _not_found(message: str) -> Refusal:
    return Refusal(404, "model_not_found", message)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="stand_in_server", description="A stand-in LM Studio.")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--token-file", type=Path, required=True, help="holds the admin token")
    parser.add_argument("--catalogue", type=Path, default=CATALOGUE)
    parser.add_argument("--log", type=Path, default=None, help="JSON lines of the server's own log")
    parser.add_argument("--simulated-study", action="store_true", help="allow the simulated agent")
    options = parser.parse_args(arguments)
    server = StandInServer(
        options.port,
        options.token_file.read_text().strip(),
        catalogue=options.catalogue,
        log_file=options.log,
        simulated_study=options.simulated_study,
    )
    with server.running():
        ready = {"port": server.port, "simulated": True}
        # Who started it may have been killed meanwhile; then its input has ended too.
        with suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), msgspec.json.encode(ready) + b"\n")
        while sys.stdin.buffer.read(4096):
            pass


if __name__ == "__main__":
    main()
