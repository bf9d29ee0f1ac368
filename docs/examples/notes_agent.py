"""An agent with a memory of its own, as a system under test: JSON lines on stdin and stdout.

It keeps what it is told in store/notes.jsonl, goes by the note that shares most words with the
prompt, and decides what its "Decision: X" says. Put your own agent into `decide`.
"""

import json
import re
import sys
from pathlib import Path

STORE = Path("store/notes.jsonl")


def say(**message):
    print(json.dumps(message), flush=True)


def notes():
    return [json.loads(line) for line in STORE.open()] if STORE.exists() else []


def keep(identity, text):
    with STORE.open("a") as file:
        file.write(json.dumps({"id": identity, "text": text}) + "\n")


def call(name, **arguments):
    say(type="tool_call", id=name, name=name, arguments=arguments)
    return json.loads(sys.stdin.readline())  # the tool_result


def decide(prompt):
    words = set(re.findall(r"\w{4,}", prompt))
    ranked = sorted(notes(), key=lambda n: -sum(word in n["text"] for word in words))[:1]
    say(type="retrieval", query=prompt, items=[note | {"admitted": True} for note in ranked])
    for note in ranked:
        if found := re.search(r"Decision: (\S+)", note["text"]):
            call("declare_decision", option=found[1], basis=[note["id"]])


for line in sys.stdin:
    kind = (message := json.loads(line))["type"]
    if kind == "hello":
        say(type="hello", name="notes", trace="admitted", plan="before_action", store="readable",
            clock="none", write_path=True, deterministic=True)  # fmt: skip
    elif kind == "seed":
        for record in message["records"]:
            keep(record["id"], record["text"])
        say(type="seeded", ids={record["id"]: [record["id"]] for record in message["records"]})
    elif kind == "snapshot":
        say(type="snapshot", path="notes.jsonl")
    elif kind == "open":
        purpose = message["session"]["purpose"]
    elif kind == "prompt" and purpose == "write":
        keep(f"note-{len(notes())}", message["text"])
        say(type="final", text="Noted.", claims=[{"kind": "saved"}])
    elif kind == "prompt":
        decide(message["text"])
        say(type="final", text="Done.")
