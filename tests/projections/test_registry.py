"""What every projection must keep to, so that its tables can be asked and compared."""

import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ledger.log import Fact
from projections.fold import Projection, Table, fold
from projections.registry import PROJECTIONS, table_declarations
from projections.store import create_table_sql
from schemas.events.grading import CellGraded
from tests.projections.tiny_study import TinyStudy, graded

TABLES: Mapping[str, Table] = {**table_declarations(False), **table_declarations(True)}


def test_names_are_unique() -> None:
    names = [name for projection in PROJECTIONS for name in projection.TABLES]
    assert len(set(names)) == len(names)
    assert "built_from" not in names
    assert len({projection.NAME for projection in PROJECTIONS}) == len(PROJECTIONS)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.NAME)
def test_rows_are_as_declared(
    projection: type[Projection], whole: TinyStudy, whole_facts: list[Fact]
) -> None:
    state = fold(PROJECTIONS[projection](whole.artifacts.get), whole_facts)
    tables = state.tables()
    assert tables.keys() == projection.TABLES.keys()
    for name, table in projection.TABLES.items():
        assert set(table.key) <= set(table.columns)
        keys = [tuple(row[column] for column in table.key) for row in tables[name]]
        assert len(set(keys)) == len(keys), name
        for row in tables[name]:
            assert list(row) == list(table.columns), name
            for column, kind in table.columns.items():
                assert type(row[column]) in types_of(kind), (name, column)


def types_of(kind: Any) -> set[type]:
    return set(getattr(kind, "__args__", (kind,)))


@pytest.mark.parametrize("name", TABLES)
def test_every_column_can_be_written_without_quotes(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(create_table_sql(name, TABLES[name]))
    assert connection.execute(f"SELECT {', '.join(TABLES[name].columns)} FROM {name}") is not None
    connection.close()


def test_tables_in_front_of_the_gate_show_no_outcome(
    whole: TinyStudy, whole_facts: list[Fact]
) -> None:
    others = [
        msgspec.structs.replace(fact, event=graded(fact.event.cell, not fact.event.resolved))
        if isinstance(fact.event, CellGraded)
        else fact
        for fact in whole_facts
    ]
    differing = []
    for projection, make in PROJECTIONS.items():
        shown = fold(make(whole.artifacts.get), whole_facts).tables()
        flipped = fold(make(whole.artifacts.get), others).tables()
        if shown != flipped:
            differing.append(projection.NAME)
            assert projection.GUARDED, projection.NAME
    assert differing == ["outcomes"]  # a transfer study has its outcomes elsewhere
