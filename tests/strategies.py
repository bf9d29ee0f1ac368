"""Hypothesis strategies for what goes into a log."""

from hypothesis import strategies as st

from schemas.base import ArtifactRef, Event
from schemas.events.cell import BudgetCharged, ProtocolViolated, ToolCalled
from schemas.events.mining import SandboxProbed

texts = st.text(st.characters(codec="utf-8"), max_size=40)
"""Any text that UTF-8 can carry, control characters and astral planes included."""

counts = st.integers(min_value=0, max_value=2**53 - 1)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
artifact_refs = st.builds(
    ArtifactRef, digest=digests, length=counts, media_type=texts, erasable=st.booleans()
)
path_lists = st.lists(texts, max_size=3).map(tuple)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(ProtocolViolated, turn=counts, kind=texts, detail=texts),
    st.builds(
        BudgetCharged,
        kind=st.sampled_from(["turn", "tool_call", "test_run"]),
        used=st.integers(min_value=1, max_value=2**53 - 1),
        limit=counts,
    ),
    st.builds(
        ToolCalled,
        turn=counts,
        number=counts,
        tool=texts,
        arguments=artifact_refs,
        result=artifact_refs,
        ok=st.booleans(),
        shown=path_lists,
        opened=path_lists,
        edited=path_lists,
    ),
    st.builds(
        SandboxProbed,
        kind=texts,
        enforced=st.dictionaries(texts, texts, max_size=4),
        accepted_unsafe=st.booleans(),
    ),
)
"""Events that are about nothing else in the log, of every shape: flat, nested, lists, mappings."""
