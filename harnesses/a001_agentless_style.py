"""A001: a controlled adaptation of Agentless (Xia et al., 2024): three stages, no conversation.

    1  tree of the source files           → at most five files, three are kept
    2  outlines of these files            → definitions and lines to edit
    3  ten lines around each of them      → SEARCH/REPLACE blocks, one run of the public tests

Preserved: the fixed order, the hierarchy file → element → edit, each stage sees exactly what the
one before gave, edits only inside of what was shown, no hidden test selects, none of the H arms'
retrieval. Deviations, declared: one set of edits instead of 40 with a vote, no call for irrelevant
folders, no merge with embeddings, no reproduction tests, no retry at a higher temperature, Go
through tree-sitter outlines, and edits that must match exactly once.
"""

import re
from collections.abc import Generator
from string import Template

from harnesses.contract import (
    CallTool,
    CellInput,
    Effect,
    EffectResult,
    Harness,
    Message,
    RunPublicTests,
    Submit,
    ask,
    perform,
)
from harnesses.retrieval.snapshot import display_path
from harnesses.tools.edit_blocks import REPLACE_BLOCKS, parse_blocks
from harnesses.tools.outlines import OUTLINE, SOURCE_TREE, WINDOWS, intervals
from harnesses.workspace import ToolError, Workspace

ID = "A001"
TITLE = "controlled adaptation of Agentless"
PROMPT_FILES = (
    "prompts/a001_files.md",
    "prompts/a001_places.md",
    "prompts/a001_repair.md",
    "prompts/a001_system.md",
)
TOOLS = (SOURCE_TREE, OUTLINE, WINDOWS, REPLACE_BLOCKS)

NAMED_FILES = 5
KEPT_FILES = 3
PLACES_OF_A_FILE = 12
TREE_TOKENS = 20_000
OUTLINE_TOKENS = 6_000
WINDOW_TOKENS = 8_000

_PLACE = re.compile(r"^[-*\s]*(?:line|function|method|class|type|variable):\s*`?([\w.]+)`?", re.I)


def run(cell: CellInput) -> Generator[Effect, EffectResult, None]:
    """Three turns; ends without submitting where a stage names nothing that exists."""
    tree = yield from perform(CallTool(SOURCE_TREE.name, {}, TREE_TOKENS))
    named = yield from _stage(cell, "files", tree=tree.text)
    files = named_files(cell.workspace, named)[:KEPT_FILES]
    if not files:
        return
    outlines = []
    for path in files:
        result = yield from perform(CallTool(OUTLINE.name, {"path": path}, OUTLINE_TOKENS))
        outlines.append(result.text)
    named = yield from _stage(cell, "places", outlines="\n\n".join(outlines))
    places = named_places(files, named)
    if not places:
        return
    shown = []
    allowed = {}
    for path, names in places.items():
        arguments = {"path": path, "places": list(names)}
        allowed[path] = [list(pair) for pair in intervals(cell.workspace.file(path), names)]
        result = yield from perform(CallTool(WINDOWS.name, arguments, WINDOW_TOKENS))
        shown.append(result.text)
    answer = yield from _stage(cell, "repair", windows="\n\n".join(shown))
    blocks: dict[str, list[list[str]]] = {}
    for block in parse_blocks(answer):
        blocks.setdefault(block.path, []).append(list(block.lines))
    for path, bodies in blocks.items():
        edits = {"path": path, "blocks": bodies, "intervals": allowed.get(path, [])}
        yield from perform(CallTool(REPLACE_BLOCKS.name, edits, OUTLINE_TOKENS))
    yield from perform(RunPublicTests())
    yield Submit()


def _stage(cell: CellInput, name: str, **seen: str) -> Generator[Effect, EffectResult, str]:
    """One turn without history: the statement and what the stage before gave. An answer that was
    cut off names nothing."""
    task = Template(cell.prompts[f"prompts/a001_{name}.md"]).substitute(
        statement=cell.statement, **seen
    )
    messages = [Message("system", cell.prompts["prompts/a001_system.md"]), Message("user", task)]
    answer = yield from ask(messages)
    return "" if answer.cut else answer.content


def named_files(workspace: Workspace, answer: str) -> list[str]:
    """Existing production files that stand on lines of their own, in their order, at most five."""
    found: list[str] = []
    for line in answer.split("\n"):
        path = line.strip().lstrip("-*0123456789. ").strip("`* ")
        try:
            file = workspace.file(path) if path else None
        except ToolError:
            continue
        if file is not None and file.file_class == "production" and file.text is not None:
            name = display_path(file.path)
            if name not in found:
                found.append(name)
    return found[:NAMED_FILES]


def named_places(files: list[str], answer: str) -> dict[str, tuple[str, ...]]:
    """What to show of each file: names of definitions and line numbers below the file's path."""
    places: dict[str, list[str]] = {}
    current = ""
    for line in answer.split("\n"):
        path = line.strip().lstrip("#-* ").strip("`* :")
        if path in files:
            current = path
        elif current and (match := _PLACE.match(line)):
            names = places.setdefault(current, [])
            if match.group(1) not in names and len(names) < PLACES_OF_A_FILE:
                names.append(match.group(1))
    return {path: tuple(names) for path, names in places.items()}


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
)
