"""``mem0ai`` in a process of its own: JSON lines on standard input and output.

    python mem0_process.py FOLDER        {"do": "add" | "search" | "list", …} → {"items": […]}

Texts are kept as they are (``infer=False``: no model rewrites them) and found by an embedder of our
own, so that nothing is downloaded and the same texts have the same vectors. Telemetry is off; the
sandbox has no network either. Imports nothing of ours: it runs inside the sandbox.
"""

import json
import logging
import math
import os
import re
import sys
from hashlib import sha256
from typing import Any

DIMENSIONS = 512
USER = "everybody"
"""mem0 files every memory under a user, an agent or a run; whom a record is for stands in it."""


def embed(text: str) -> list[float]:
    """A hashed bag of words: each word adds one, with its digest's sign, at its digest's place;
    normalised to length 1 (feature hashing, Weinberger et al. 2009)."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        digest = sha256(word.encode()).digest()
        place = int.from_bytes(digest[:4], "big") % DIMENSIONS
        vector[place] += 1.0 if digest[4] & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


class Embedder:
    """What mem0 asks for vectors."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return embed(text)

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [embed(text) for text in texts]


def open_memory(folder: str) -> Any:
    """A memory over the files in ``folder``: vectors in an embedded qdrant, history in SQLite."""
    from mem0 import Memory  # type: ignore[import-not-found,import-untyped,unused-ignore]

    unused = {"provider": "openai", "config": {"api_key": "unused"}}
    memory = Memory.from_config(
        {
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": os.path.join(folder, "vectors"),
                    "on_disk": True,
                    "collection_name": "corrections",
                    "embedding_model_dims": DIMENSIONS,
                },
            },
            "embedder": unused,
            "llm": unused,
            "history_db_path": os.path.join(folder, "history.db"),
        }
    )
    memory.embedding_model = Embedder()
    return memory


def answer(memory: Any, message: dict[str, Any]) -> list[dict[str, str]]:
    scope = {"user_id": USER}
    if message["do"] == "add":
        done = memory.add(
            message["text"], user_id=USER, infer=False, expiration_date=message.get("expires")
        )
    elif message["do"] == "search":
        done = memory.search(
            message["query"], filters=scope, top_k=message["results"], threshold=0.0
        )
    else:
        done = memory.get_all(
            filters=scope, top_k=message["results"], show_expired=message["lapsed"]
        )
    return [{"id": str(item["id"]), "text": str(item["memory"])} for item in done["results"]]


def main(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    # Whatever a library prints must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    memory = open_memory(folder)
    for line in sys.stdin:
        found = answer(memory, json.loads(line))
        answers.write(json.dumps({"items": found}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
