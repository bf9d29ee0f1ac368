"""What a report is made of: one value of plain words and tables.

``projections/repair/report/`` and ``projections/transfer/report/`` decide what is said, in
which order and in which words, and format every number once; the renderers in
``projections/report/`` only lay it out, so HTML and Markdown cannot differ in a number. Text of
others stays as it is; each renderer neutralises all text that it lays out.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from schemas.base import Value

BANNER = "simulated agent: not evidence"
MARK = "simulated"

MARKS: Mapping[str, str] = {
    "\u25cf": "resolved",
    "\u25d0": "not submitted; its files would have passed",
    "\u25cb": "not resolved",
    "\u2013": "missing",
}
"""Signs of the outcome matrix and how they are read out."""
VERDICTS: Mapping[str, str] = {"\u2713": "pass", "\u2717": "fail", "?": "unobserved"}
"""Signs that begin a cell of kind `verdict`, and how they are read out."""
RESOLVED, WOULD_HAVE_PASSED, NOT_RESOLVED, MISSING = MARKS


class Code(Value):
    """Words for a terminal, or a digest, within a sentence."""

    text: str


class Paragraph(Value):
    KIND: ClassVar[str] = "paragraph"
    spans: tuple[str | Code, ...]


class Fact(Value):
    term: str
    value: str
    is_code: bool = False


class Facts(Value):
    """Terms and their values."""

    KIND: ClassVar[str] = "facts"
    items: tuple[Fact, ...]


class Column(Value):
    title: str
    kind: Annotated[
        Literal["text", "prose", "number", "code", "mark", "verdict", "run"],
        Meta(
            description="`prose` may be long; `mark`: a sign of MARKS, or text; `verdict`: a sign "
            "of VERDICTS and a number, or text; `run`: a cell with a page of its own (RUN_PAGES)"
        ),
    ] = "text"


class Group(Value):
    """So many rows under a heading of their own."""

    title: str
    rows: int


class Table(Value):
    """The first column heads its row. Where there are ``groups``, they hold all rows in order."""

    KIND: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    groups: tuple[Group, ...] = ()
    note: str = ""


class ForestRow(Value):
    """Endpoints are risk differences; null where nothing is estimable."""

    label: str
    value: str
    group: str
    role: Literal["primary", "secondary", "estimate"]
    estimate: float | None
    bootstrap: Annotated[
        tuple[float, float] | None, Meta(description="null: no sampling variation in the data")
    ]
    tango: tuple[float, float] | None


class ForestPlot(Value):
    """A figure whose numbers stand in ``table``."""

    KIND: ClassVar[str] = "forest_plot"
    title: str
    description: str
    rows: tuple[ForestRow, ...]
    smallest_effect: float
    smallest_effect_label: str
    table: Table


class Commands(Value):
    KIND: ClassVar[str] = "commands"
    lines: tuple[str, ...]


class Folded(Value):
    """A table behind its title, open on request; printed and in Markdown it stands open."""

    KIND: ClassVar[str] = "folded"
    title: str
    table: Table


Block = Paragraph | Facts | Table | ForestPlot | Commands | Folded


class Section(Value):
    id: str
    title: str
    blocks: tuple[Block, ...]


class Report(Value):
    """``banner`` is shown once, at the top; ``mark`` goes into every caption. Both are empty where
    the study is not simulated."""

    title: str
    study_id: str
    banner: str
    mark: str
    question: str
    result_title: str
    result: str
    remarks: tuple[str, ...]
    check: tuple[str | Code, ...]
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]
    computed_from: Annotated[str, Meta(description="the head that every number cites")]
    reworded: Annotated[
        tuple[str, ...], Meta(description="frozen sentences as they were before an amendment")
    ] = ()
    overview: Annotated[
        tuple[Table, ...], Meta(description="what the first screen shows below the result")
    ] = ()


RUN_PAGES = "runs"
"""Folder beside the report with a page for every run of a transfer study."""


def run_page(cell: str) -> str:
    """Name of the page of ``CASE/MEMORY/DRIVER/TRIAL`` in RUN_PAGES: identifiers have no slash."""
    return f"{cell.replace('/', '~')}.html"


def grouped(table: Table) -> Iterator[tuple[str, tuple[tuple[str, ...], ...]]]:
    """(heading, rows) of every group; one without a heading where a table has none."""
    start = 0
    for group in table.groups or (Group(title="", rows=len(table.rows)),):
        yield group.title, table.rows[start : start + group.rows]
        start += group.rows


def paragraph(text: str) -> Paragraph:
    """One paragraph of plain words."""
    return Paragraph(spans=(text,))


def columns(
    first_title: str,
    *titles: str,
    numbers: bool = False,
    first: Literal["text", "number"] = "text",
) -> tuple[Column, ...]:
    """A row's head, then columns of text or of numbers."""
    kind: Literal["text", "number"] = "number" if numbers else "text"
    return (
        Column(title=first_title, kind=first),
        *(Column(title=title, kind=kind) for title in titles),
    )


def day(at: str) -> str:
    """``2026-07-18 09:30 UTC`` of a record's time; nothing for nothing."""
    return f"{at[:10]} {at[11:16]} UTC" if at else ""
