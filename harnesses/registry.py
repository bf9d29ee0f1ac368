"""The arms that ship, by id."""

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

HARNESSES: dict[str, Harness] = {
    "H000": h000_exact_search.HARNESS,
    "H003": h003_dense.HARNESS,
    "H007": h007_hybrid.HARNESS,
    "H011": h011_symbols_and_graph.HARNESS,
    "H018": h018_oracle_files.HARNESS,
    "A001": a001_agentless_style.HARNESS,
    "A002": a002_swe_agent_style.HARNESS,
}


def find_harness(harness_id: str) -> Harness:
    """Raises LookupError that names the arms there are."""
    if harness_id not in HARNESSES:
        raise LookupError(f"there is no arm {harness_id!r}; there are {', '.join(HARNESSES)}")
    return HARNESSES[harness_id]
