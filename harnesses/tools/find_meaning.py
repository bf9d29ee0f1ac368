"""``find_meaning`` and ``similar_to``: dense retrieval alone."""

from typing import Annotated

from msgspec import Meta

from harnesses.contract import ToolResult, ToolSpec
from harnesses.retrieval.fusion import Fused
from harnesses.retrieval.hybrid import by_vector, place_vector, query_vector
from harnesses.tools.output import MIN_ROOM, NO_ROOM
from harnesses.tools.ranked import MAX_FILES, nothing_found, opened_index, show_ranked
from harnesses.workspace import ToolError, Workspace, short_path
from schemas.base import Value


class FindMeaningArguments(Value):
    query: Annotated[str, Meta(description="what the code does, in a sentence")]


class SimilarToArguments(Value):
    path: Annotated[str, Meta(description="a production file, from the root of the repository")]
    line: Annotated[int, Meta(ge=1, description="a line of the passage to compare with")]


def find_meaning(workspace: Workspace, arguments: FindMeaningArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    index = opened_index(workspace)
    vector = query_vector(index, arguments.query)
    hits = [] if vector is None else by_vector(index, vector.code)
    if vector is None or not hits:
        return nothing_found(index, arguments.query, "the vectors of production code")
    fused = [Fused(hit, ("vectors",)) for hit in hits]
    return show_ranked(workspace, index, fused, arguments.query, vector.said, room)


FIND_MEANING = ToolSpec(
    name="find_meaning",
    description="Find production code by meaning (dense vectors), also where it uses other words. "
    f"Shows up to {MAX_FILES} files with the nearest place in each as path:line: text.",
    arguments=FindMeaningArguments,
    perform=find_meaning,
)


def similar_to(workspace: Workspace, arguments: SimilarToArguments, room: int) -> ToolResult:
    if room < MIN_ROOM:
        return NO_ROOM
    index = opened_index(workspace)
    file = workspace.file(arguments.path)
    vector = place_vector(index, file.path, arguments.line)
    if vector is None:
        raise ToolError(
            f"{short_path(arguments.path)}:{arguments.line} has no vector; they exist for "
            "the lines of production files as they were before your changes"
        )
    number = index.number_of[file.path]
    fused = [
        Fused(hit, ("vectors",)) for hit in by_vector(index, vector.code) if hit.file != number
    ]
    return show_ranked(workspace, index, fused, "", f"likeness to {vector.said}", room)


SIMILAR_TO = ToolSpec(
    name="similar_to",
    description="Find production code that resembles the passage around a line (dense vectors).",
    arguments=SimilarToArguments,
    perform=similar_to,
)
