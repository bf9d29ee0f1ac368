"""What every projection must keep to, so that its tables can be asked and compared."""

import sqlite3

import msgspec
import pytest

from ledger.log import Fact
from projections.fold import Projection, Row, columns_of, fold
from projections.registry import PROJECTIONS, declared_tables
from projections.store import BuiltFrom, create_table_sql
from schemas.events.grading import CellGraded
from tests.projections.tiny_study import TinyStudy, graded

TABLES = (*declared_tables(False), *declared_tables(True))


def test_names_are_unique() -> None:
    names = [table.TABLE for table in TABLES]
    assert len(set(names)) == len(names)
    assert BuiltFrom.TABLE not in names
    assert len({projection.NAME for projection in PROJECTIONS}) == len(PROJECTIONS)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.NAME)
def test_rows_are_as_declared(
    projection: type[Projection], whole: TinyStudy, whole_facts: list[Fact]
) -> None:
    rows = list(fold(PROJECTIONS[projection](whole.artifacts.get), whole_facts).rows())
    assert {type(row) for row in rows} <= set(projection.TABLES)
    keys = [(row.TABLE, *(row.as_dict()[column] for column in row.KEY)) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        msgspec.convert(row.as_dict(), type(row))  # raises for a value that is not of its column


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.TABLE)
def test_every_column_can_be_written_without_quotes(table: type[Row]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(create_table_sql(table))
    columns = ", ".join(columns_of(table))
    assert connection.execute(f"SELECT {columns} FROM {table.TABLE}") is not None
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
        shown = fold(make(whole.artifacts.get), whole_facts)
        flipped = fold(make(whole.artifacts.get), others)
        if list(shown.rows()) != list(flipped.rows()):
            differing.append(projection.NAME)
            assert projection.GUARDED, projection.NAME
    assert differing == ["outcomes"]  # a transfer study has its outcomes elsewhere
