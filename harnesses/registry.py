"""The arms that ship, by id, and the digests that are part of their identity."""

import hashlib
from collections.abc import Mapping
from importlib import resources

from harnesses import (
    a001_agentless_style,
    a002_swe_agent_style,
    h000_exact_search,
    h003_dense,
    h007_hybrid,
    h011_symbols_and_graph,
    h018_oracle_files,
)
from harnesses.contract import Harness

_SHARED_SOURCES = (
    "__init__.py",
    "contract.py",
    "retrieval/__init__.py",
    "retrieval/snapshot.py",
    "tools/__init__.py",
    "tools/output.py",
    "workspace.py",
)
_COMPONENT_SOURCES = (
    *_SHARED_SOURCES,
    "answers.py",
    "conversation.py",
    "retrieval/exact.py",
    "tools/create_file.py",
    "tools/delete_file.py",
    "tools/edit_file.py",
    "tools/finish.py",
    "tools/list_files.py",
    "tools/read_file.py",
    "tools/search.py",
)
_INDEX_SOURCES = (
    "retrieval/chunks.py",
    "retrieval/dense.py",
    "retrieval/facts.py",
    "retrieval/fusion.py",
    "retrieval/graph.py",
    "retrieval/index.py",
    "retrieval/lexical.py",
    "retrieval/names.py",
    "retrieval/syntax.py",
    "retrieval/tokens.py",
    "tools/ranked.py",
)

HARNESSES: dict[str, Harness] = {
    "H000": Harness(
        id=h000_exact_search.ID,
        title=h000_exact_search.TITLE,
        run=h000_exact_search.run,
        source_files=("h000_exact_search.py", *_COMPONENT_SOURCES),
        prompt_files=h000_exact_search.PROMPT_FILES,
        tools=h000_exact_search.TOOLS,
    ),
    "H003": Harness(
        id=h003_dense.ID,
        title=h003_dense.TITLE,
        run=h003_dense.run,
        source_files=(
            "h003_dense.py",
            *_COMPONENT_SOURCES,
            *_INDEX_SOURCES,
            "retrieval/hybrid.py",
            "tools/find_meaning.py",
        ),
        prompt_files=h003_dense.PROMPT_FILES,
        tools=h003_dense.TOOLS,
        needs_index=True,
    ),
    "H007": Harness(
        id=h007_hybrid.ID,
        title=h007_hybrid.TITLE,
        run=h007_hybrid.run,
        source_files=(
            "h007_hybrid.py",
            *_COMPONENT_SOURCES,
            *_INDEX_SOURCES,
            "retrieval/hybrid.py",
            "tools/find_code.py",
        ),
        prompt_files=h007_hybrid.PROMPT_FILES,
        tools=h007_hybrid.TOOLS,
        needs_index=True,
    ),
    "H011": Harness(
        id=h011_symbols_and_graph.ID,
        title=h011_symbols_and_graph.TITLE,
        run=h011_symbols_and_graph.run,
        source_files=(
            "h011_symbols_and_graph.py",
            *_COMPONENT_SOURCES,
            *_INDEX_SOURCES,
            "tools/symbols.py",
        ),
        prompt_files=h011_symbols_and_graph.PROMPT_FILES,
        tools=h011_symbols_and_graph.TOOLS,
        needs_index=True,
    ),
    "H018": Harness(
        id=h018_oracle_files.ID,
        title=h018_oracle_files.TITLE,
        run=h018_oracle_files.run,
        source_files=("h018_oracle_files.py", *_COMPONENT_SOURCES),
        prompt_files=h018_oracle_files.PROMPT_FILES,
        tools=h018_oracle_files.TOOLS,
        needs_oracle_files=True,
    ),
    "A001": Harness(
        id=a001_agentless_style.ID,
        title=a001_agentless_style.TITLE,
        run=a001_agentless_style.run,
        source_files=(
            "a001_agentless_style.py",
            *_SHARED_SOURCES,
            "retrieval/syntax.py",
            "tools/edit_blocks.py",
            "tools/outlines.py",
        ),
        prompt_files=a001_agentless_style.PROMPT_FILES,
        tools=a001_agentless_style.TOOLS,
    ),
    "A002": Harness(
        id=a002_swe_agent_style.ID,
        title=a002_swe_agent_style.TITLE,
        run=a002_swe_agent_style.run,
        source_files=(
            "a002_swe_agent_style.py",
            *_SHARED_SOURCES,
            "answers.py",
            "retrieval/syntax.py",
            "tools/finish.py",
            "tools/window.py",
        ),
        prompt_files=a002_swe_agent_style.PROMPT_FILES,
        tools=a002_swe_agent_style.TOOLS,
    ),
}


def find_harness(harness_id: str) -> Harness:
    """Raises LookupError that names the arms there are."""
    if harness_id not in HARNESSES:
        raise LookupError(f"there is no arm {harness_id!r}; there are {', '.join(HARNESSES)}")
    return HARNESSES[harness_id]


def _read_package_file(path: str) -> bytes:
    """The only I/O of this package: one of its own files, from wherever it is installed."""
    return resources.files("harnesses").joinpath(*path.split("/")).read_bytes()


def read_prompts(harness: Harness) -> dict[str, str]:
    """The arm's prompt files by path: what ``CellInput.prompts`` must hold."""
    return {path: _read_package_file(path).decode("utf-8") for path in harness.prompt_files}


def prompt_digests(harness: Harness) -> dict[str, str]:
    """SHA-256 of each prompt file by path."""
    return {
        path: hashlib.sha256(_read_package_file(path)).hexdigest()
        for path in sorted(harness.prompt_files)
    }


def source_digest(harness: Harness) -> str:
    """One digest of everything that decides what the arm does: its sources and prompts.

    Anybody can compute it in ``harnesses/``: ``sha256sum FILES | sha256sum``, with the files of
    ``source_files`` and ``prompt_files`` in the order of ``LC_ALL=C sort``.
    """
    files = (*harness.source_files, *harness.prompt_files)
    return source_digest_of(
        {path: hashlib.sha256(_read_package_file(path)).hexdigest() for path in files}
    )


def source_digest_of(digests: Mapping[str, str]) -> str:
    """The same from the SHA-256 of every one of those files by path, as a record names them."""
    listing = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(listing.encode("ascii")).hexdigest()
