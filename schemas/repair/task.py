"""A mined and validated task: what ``ledger tasks freeze`` freezes (preregistration, "Experimental
units"; the miner's rules are in ``docs/mining.md``)."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Count, GitOid, Nanoseconds, Value
from schemas.identifiers import Identifier


class FileState(Value):
    """A whole file of a tree: candidates may have written the same path, so tests and gold are
    laid over a workspace as full files, never as diffs."""

    path: Annotated[str, Meta(description="path from the tree's root, UTF-8, `/` between parts")]
    mode: Annotated[Literal["100644", "100755"], Meta(description="git file mode")]
    content: Annotated[ArtifactRef, Meta(description="the file's bytes")]


class Overlay(Value):
    """Full files to write and paths to delete on top of a base tree."""

    write: Annotated[tuple[FileState, ...], Meta(description="files written, sorted by path")] = ()
    delete: Annotated[tuple[str, ...], Meta(description="paths removed, sorted")] = ()


class FailToPass(Value):
    """One held-out test: passes with the gold patch, does not pass without it."""

    id: Annotated[str, Meta(description="the test's id as the recipe's reporter prints it")]
    how: Annotated[
        Literal["assertion", "collection", "build"],
        Meta(description="how it did not pass at base + hidden tests"),
    ]


class Size(Value):
    """How large the base tree is, to check that full-repository prompting exceeds the context."""

    bytes: Annotated[int, Meta(ge=0, description="bytes of tracked text files")]
    source_files: Count
    source_lines: Count
    estimated_tokens: Annotated[int, Meta(ge=0, description="bytes / 4, rounded up")]


class EnvironmentInputs(Value):
    """Everything that a test environment is built from, so that it can be built again."""

    language: Annotated[str, Meta(description="whose way of building it is")] = "python"
    go: Annotated[str, Meta(description="declared version, such as 1.26; empty: not asked")] = ""
    python: Annotated[str, Meta(description="declared version, such as 3.11")]
    requirements: Annotated[
        dict[str, str], Meta(description="requirement files of the base by path, in pip's order")
    ]
    head_requirements: Annotated[
        dict[str, str], Meta(description="the same at the head, for the fall-back `head`")
    ]
    fallbacks: Annotated[tuple[str, ...], Meta(description="declared fall-backs, in order")]


class Task(Value):
    """One frozen task. Everything here exists before any agent has run."""

    id: Annotated[Identifier, Meta(description="<repository>-<three digits>, in mining order")]
    repository: Identifier
    commit: Annotated[GitOid, Meta(description="the gold commit (first parent = base)")]
    base: Annotated[GitOid, Meta(description="the commit the task starts from")]
    base_tree: Annotated[GitOid, Meta(description="tree of base")]
    gold_tree: Annotated[GitOid, Meta(description="tree of commit")]
    committed: Annotated[str, Meta(description="committer date of commit, RFC 3339 in UTC")]
    statement: Annotated[ArtifactRef, Meta(description="redacted task statement, Markdown")]
    statement_words: Annotated[int, Meta(ge=0, description="descriptor: short statements are hard")]
    redactions: Annotated[int, Meta(ge=0, description="how many spans the redactor removed")]
    production_paths: Annotated[
        tuple[str, ...], Meta(description="gold production files, sorted; what H018 is told")
    ]
    test_paths: Annotated[tuple[str, ...], Meta(description="files of the hidden patch, sorted")]
    changed_production_lines: Annotated[int, Meta(ge=0, description="added + deleted")]
    gold: Annotated[Overlay, Meta(description="production files of the gold tree")]
    gold_patch: Annotated[
        ArtifactRef, Meta(description="gold production diff, binary and full index")
    ]
    hidden: Annotated[
        Overlay, Meta(description="test and test-infrastructure files of the gold tree")
    ]
    hidden_patch: Annotated[ArtifactRef, Meta(description="the same as a diff, for the audit")]
    protected_paths: Annotated[
        ArtifactRef,
        Meta(
            description="JSON list: every test, test-infrastructure and dependency path of base or "
            "gold; restored before grading and closed to edits"
        ),
    ]
    fail_to_pass: Annotated[tuple[FailToPass, ...], Meta(min_length=1)]
    pass_to_pass: Annotated[ArtifactRef, Meta(description="JSON list of test ids, sorted")]
    pass_to_pass_count: Count
    public_tests: Annotated[
        ArtifactRef, Meta(description="JSON list: the pass-to-pass ids that exist at the base")
    ]
    public_test_files: Annotated[
        tuple[str, ...], Meta(description="test files that hold the public tests, sorted")
    ]
    grading_test_files: Annotated[
        tuple[str, ...], Meta(description="test files run when grading, sorted")
    ]
    environment: Annotated[str, Meta(description="identity of the test environment")]
    time_limit_ns: Annotated[
        Nanoseconds, Meta(description="5 x the measured base time in whole minutes, from 1 to 5")
    ]
    needs_gold_symbol: Annotated[
        int, Meta(ge=0, description="symbols that gold introduces and hidden tests use (counted)")
    ]
    size: Size


def repository_of(task_id: str) -> str:
    """The repository in a task's id."""
    return task_id.rpartition("-")[0]
