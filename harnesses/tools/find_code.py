"""``find_code``: hybrid retrieval, all lists fused into one order."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.hybrid import hybrid, query_vector
from harnesses.tools.output import MIN_ROOM, NO_ROOM
from harnesses.tools.ranked import MAX_FILES, nothing_found, opened_index, show_ranked
from harnesses.workspace import Workspace
from schemas.base import Value


class FindCodeArguments(Value):
    query: Annotated[
        str, Meta(description="what the code is about, in words or as identifiers, or both")
    ]


def find_code(workspace: Workspace, arguments: FindCodeArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    index = opened_index(workspace)
    fused = hybrid(index, arguments.query)
    if not fused:
        return nothing_found(index, arguments.query, "words, BM25F, names and near names")
    vector = query_vector(index, arguments.query)
    said = "words, BM25F, names, near names" + (f" and {vector.said}" if vector else "")
    return show_ranked(workspace, index, fused, arguments.query, said, room)


FIND_CODE = ToolSpec(
    name="find_code",
    description="Find the files that a text is about: by words, BM25, names of definitions, near "
    f"names and meaning (vectors) together. Shows up to {MAX_FILES} files with a place in each as "
    "path:line: text, production code first, and which lists found it.",
    arguments=FindCodeArguments,
    perform=find_code,
)
