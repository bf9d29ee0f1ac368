"""How ranked results are shown: at most ten files, each with a place, a line of it and the lists
that have it. No scores: they compare nothing that a reader could use."""

from collections import Counter
from collections.abc import Sequence

from harnesses.contract import ToolResult
from harnesses.retrieval import names
from harnesses.retrieval.fusion import Fused, Hit
from harnesses.retrieval.index import CommitIndex
from harnesses.retrieval.snapshot import FILE_CLASSES, display_path
from harnesses.retrieval.tokens import count_tokens, query_words, tokens_of, words
from harnesses.tools.output import BLOCK_TOKENS, cut_line, estimate_tokens, fenced
from harnesses.workspace import ToolError, Workspace

MAX_FILES = 10
LINE_CHARACTERS = 200
RESERVED_TOKENS = 150
NEAR_NAMES = 5


def opened_index(workspace: Workspace) -> CommitIndex:
    """The index of the cell's base tree. Raises ToolError in a cell that has none."""
    if not isinstance(workspace.index, CommitIndex):
        raise ToolError("there is no index of this repository; use search")
    return workspace.index


def show_ranked(
    workspace: Workspace,
    index: CommitIndex,
    fused: Sequence[Fused],
    query: str,
    said: str,
    room: int,
) -> ToolResult:
    """``said``: in words, what the files are ranked by; it ends the first line."""
    best = fused[:MAX_FILES]
    counts = Counter(index.files[one.hit.file].file_class for one in best)
    by_class = ", ".join(f"{name} {counts[name]}" for name in FILE_CLASSES if counts[name])
    first_line = f"{len(best)} files ({by_class}), the best of each group first, by {said}"
    left = min(BLOCK_TOKENS, room) - RESERVED_TOKENS - estimate_tokens(first_line)
    lines: list[str] = []
    shown: list[str] = []
    group = ""
    for one in best:
        file = index.files[one.hit.file]
        path = display_path(file.path)
        new = [] if file.file_class == group else [f"[{file.file_class}]"]
        number, text = evidence(index, one.hit, query)
        new.append(f"{path}:{number}: {text}" if number else path)
        new.append(f"    {place(one.hit)}{_edited(workspace, file.path)}found by {_votes(one)}")
        left -= sum(estimate_tokens(line) + 1 for line in new)
        if left < 0:
            break
        lines += new
        shown.append(path)
        group = file.file_class
    rest = len(fused) - len(shown)
    last_line = "Nothing was left out."
    if rest:
        last_line = f"Left out: {rest} files that rank lower; ask with other words to see them."
    return ToolResult(
        ok=True, text=f"{first_line}\n{fenced(lines)}\n{last_line}", shown=tuple(shown)
    )


def nothing_found(index: CommitIndex, query: str, searched: str) -> ToolResult:
    """An empty result is a result: what was searched, and near names of definitions."""
    text = f"0 files. Searched {searched}."
    found: dict[str, float] = {}
    for word in query_words(query)[:8]:
        for name, similarity in names.near(index, word, NEAR_NAMES):
            found[name] = max(found.get(name, 0.0), similarity)
    best = sorted(found, key=lambda name: (-found[name], name))[:NEAR_NAMES]
    if best:
        text += f" Near names that are defined: {', '.join(best)}."
    return ToolResult(ok=True, text=text)


def evidence(index: CommitIndex, hit: Hit, query: str) -> tuple[int, str]:
    """The line of a place that has most of the query's tokens, the first of equals: (number, text);
    (0, "") for a file without a place."""
    text = index.snapshot.files[hit.file].text
    if text is None or not hit.first:
        return 0, ""
    asked = {token for word in query_words(query) for token in tokens_of(word)}
    lines = text.split(b"\n")[hit.first - 1 : hit.last]
    counted = [
        len(asked & count_tokens(words(line[:1_000].decode("utf-8", "replace"))).keys())
        for line in lines
    ]
    best = max(range(len(lines)), key=lambda at: (counted[at], bool(lines[at].strip()), -at))
    return hit.first + best, cut_line(lines[best], 0, LINE_CHARACTERS)


def place(hit: Hit) -> str:
    if not hit.first:
        return "whole file; "
    symbol = f" {hit.symbol}" if hit.symbol else ""
    return f"lines {hit.first}-{hit.last}{symbol}; "


def _votes(one: Fused) -> str:
    return ", ".join(one.votes)


def _edited(workspace: Workspace, path: str) -> str:
    """The index is of the base: what it says of a file that the cell has changed may be old."""
    return "edited since, lines are the base's; " if workspace.is_changed(path) else ""
