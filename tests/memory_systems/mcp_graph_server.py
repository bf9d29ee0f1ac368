"""A memory server over MCP: a graph of entities in a file of JSON lines. Standard library only."""

import json
import os
import sys
from typing import Any


def entities() -> list[Any]:
    path = os.environ["MEMORY_FILE_PATH"]
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def create(arguments: Any) -> Any:
    with open(os.environ["MEMORY_FILE_PATH"], "a") as file:
        for entity in arguments["entities"]:
            print(json.dumps({"type": "entity", **entity}), file=file)
    return arguments["entities"]


def search(arguments: Any) -> Any:
    return [e for e in entities() if arguments["query"].lower() in json.dumps(e).lower()]


TOOLS = {"create_entities": create, "search_nodes": search, "read_graph": lambda _: entities()}


def answer(message: Any) -> Any:
    parameters = message.get("params", {})
    if message["method"] == "initialize":
        return {
            "protocolVersion": parameters["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "graph", "version": "1"},
        }
    if message["method"] == "tools/list":
        return {
            "tools": [
                {
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": name != "create_entities"},
                }
                for name in TOOLS
            ]
        }
    found = TOOLS[parameters["name"]](parameters["arguments"])  # type: ignore[no-untyped-call]
    return {"content": [], "structuredContent": {"entities": found, "relations": []}}


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    serve()
