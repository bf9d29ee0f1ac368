"""A client of an MCP server that is somebody else's program, in the sandbox, over stdio.

The client of the library ``mcp`` over a :class:`~actors.memory_systems.process.Conversation`: one
process and one client a session. Every call passes here, so what a memory delivers is captured. A
server that hangs, ends, floods or says what is no answer is a ``SystemFailure``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from actors.memory_systems.contract import SystemFailure
from actors.memory_systems.process import Conversation
from ledger.errors import LedgerError


class ToolClient:
    """Calls the tools of a server. ``seconds``: how long one answer may take."""

    def __init__(self, talk: Conversation, seconds: float) -> None:
        """Connect and initialise. Raises SystemFailure."""
        self._talk = talk
        self._seconds = seconds
        self._fault: Exception | None = None
        self._stack = ExitStack()
        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        try:
            manager = self._portal.wrap_async_context_manager(self._session())
            self._client = self._stack.enter_context(manager)
            about = self._portal.call(self._within, self._client.initialize)
            self.server = {"name": about.server_info.name, "version": about.server_info.version}
            listed = self._portal.call(self._within, self._client.list_tools)
            self.tools = {tool.name: tool.input_schema for tool in listed.tools}
        except BaseException as error:
            self._give_up(error)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The structured content of a tool's result. Raises SystemFailure, also for an error."""
        try:
            result = self._portal.call(self._within, self._client.call_tool, tool, dict(arguments))
        except BaseException as error:
            self._give_up(error)
        if not isinstance(result, types.CallToolResult) or result.structured_content is None:
            raise SystemFailure("malformed", f"{tool}: a result without structured content")
        if result.is_error:
            raise SystemFailure("malformed", f"{tool}: refused {str(result.content)[:500]}")
        return result.structured_content

    def close(self) -> None:
        """End client and process. May be repeated."""
        self._talk.stop()
        try:
            self._stack.close()
        except BaseExceptionGroup as errors:
            if errors.split((SystemFailure, LedgerError))[1] is not None:
                raise
        finally:
            self._talk.end()

    def _give_up(self, error: BaseException) -> None:
        """End everything and say whose fault it was: the server's, where it is one of these."""
        known = isinstance(error, (MCPError, ValidationError, TimeoutError, SystemFailure))
        self.close()
        if self._fault is not None:
            raise self._fault from None
        if isinstance(error, TimeoutError):
            raise SystemFailure("timed_out", "no answer over MCP in time") from None
        if known:
            raise SystemFailure("malformed", f"over MCP: {str(error)[:500]}") from None
        raise error

    async def _within(self, function: Any, *arguments: Any) -> Any:
        with anyio.fail_after(self._seconds):
            return await function(*arguments)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        """Lines of the process ↔ messages of the client, until one of them ends."""
        heard, to_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_client_in, from_client = anyio.create_memory_object_stream[SessionMessage](0)

        async def hear() -> None:
            async with heard:
                while True:
                    try:
                        line = await anyio.to_thread.run_sync(self._talk.receive)
                        message = types.jsonrpc_message_adapter.validate_json(line)
                    except ValidationError as error:
                        self._fault = SystemFailure("malformed", f"over MCP: {str(error)[:500]}")
                        return
                    except (SystemFailure, LedgerError) as failure:
                        self._fault = failure
                        return
                    try:
                        await heard.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return

        async def tell() -> None:
            async with from_client:
                async for told in from_client:
                    text = told.message.model_dump_json(by_alias=True, exclude_unset=True)
                    try:
                        await anyio.to_thread.run_sync(self._talk.send, text.encode())
                    except (SystemFailure, LedgerError) as failure:
                        self._fault = failure
                        await heard.aclose()
                        return

        async with anyio.create_task_group() as tasks, to_client, from_client_in:
            tasks.start_soon(hear)
            tasks.start_soon(tell)
            async with ClientSession(to_client, from_client_in) as client:
                yield client
            # Nobody waits in a thread for a line that never comes.
            await anyio.to_thread.run_sync(self._talk.stop)
            tasks.cancel_scope.cancel()
