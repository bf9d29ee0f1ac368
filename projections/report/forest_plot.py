"""Where everything of a forest plot lies: positions for ``templates/forest_plot.svg.j2``.

Sizes are user units of the figure's view box, about one pixel at full width. Positions are printed
with one decimal, so the same numbers give the same bytes on every machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from projections.report.model import ForestPlot, ForestRow
from projections.report.numbers import MINUS

WIDTH = 520
MARGIN = 22
TOP = 26
GROUP_HEIGHT = 30
ROW_HEIGHT = 42
AXIS_HEIGHT = 52
MARKER = 6
LABEL_CHARACTERS = 42


@dataclass(frozen=True)
class Tick:
    x: str
    label: str


@dataclass(frozen=True)
class Mark:
    """A row: where its words and its signs stand."""

    row: ForestRow
    label: str
    """As much of the row's label as fits; all of it stands in the table."""
    text_y: str
    y: str
    bar_top: str
    bar_bottom: str
    x: str
    bootstrap: tuple[str, str] | None
    tango: tuple[str, str] | None
    diamond: str
    """Points of a polygon."""
    square_x: str
    square_y: str


@dataclass(frozen=True)
class Group:
    title: str
    y: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Layout:
    width: int
    height: int
    top: str
    axis_y: str
    ticks_y: str
    words_y: str
    left: str
    right: str
    zero_x: str
    smallest_x: str
    smallest_anchor: str
    ticks: tuple[Tick, ...]
    groups: tuple[Group, ...]


def lay_out(plot: ForestPlot) -> Layout:
    """Positions of every part; the scale holds all intervals, zero and the smallest effect."""
    low, high, step = _scale(plot)

    def x(value: float) -> float:
        return MARGIN + (value - low) / (high - low) * (WIDTH - 2 * MARGIN)

    groups = []
    y = float(TOP)
    for title, rows in groupby(plot.rows, key=lambda row: row.group):
        group_y = y + GROUP_HEIGHT - 10
        y += GROUP_HEIGHT
        marks = []
        for row in rows:
            marks.append(_mark(row, x, y))
            y += ROW_HEIGHT
        groups.append(Group(title, _number(group_y), tuple(marks)))
    smallest_x = x(plot.smallest_effect)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Layout(
        width=WIDTH,
        height=round(y + AXIS_HEIGHT),
        top=_number(TOP),
        axis_y=_number(y + 4),
        ticks_y=_number(y + 22),
        words_y=_number(y + 42),
        left=_number(MARGIN),
        right=_number(WIDTH - MARGIN),
        zero_x=_number(x(0.0)),
        smallest_x=_number(smallest_x),
        smallest_anchor="end" if smallest_x > WIDTH / 2 else "start",
        ticks=tuple(
            Tick(_number(x(number * step)), _label(number * step))
            for number in range(first, last + 1)
        ),
        groups=tuple(groups),
    )


def _scale(plot: ForestPlot) -> tuple[float, float, float]:
    """(lowest, highest value, distance of ticks), with whole ticks at both ends."""
    values = [0.0, plot.smallest_effect]
    for row in plot.rows:
        values += [row.estimate] if row.estimate is not None else []
        values += [*(row.bootstrap or ()), *(row.tango or ())]
    spread = max(values) - min(values)
    step = 0.1 if spread <= 0.8 else 0.2 if spread <= 1.4 else 0.5
    low = max(-1.0, math.floor(min(values) / step - 1e-9) * step)
    high = min(1.0, math.ceil(max(values) / step + 1e-9) * step)
    return low, high, step


def _mark(row: ForestRow, x: Callable[[float], float], top: float) -> Mark:
    y = top + 27
    centre = x(row.estimate) if row.estimate is not None else 0.0
    corners = ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0))
    return Mark(
        row=row,
        label=row.label
        if len(row.label) <= LABEL_CHARACTERS
        else f"{row.label[: LABEL_CHARACTERS - 1]}\u2026",
        text_y=_number(top + 13),
        y=_number(y),
        bar_top=_number(y - 5),
        bar_bottom=_number(y + 5),
        x=_number(centre),
        bootstrap=_ends(row.bootstrap, x),
        tango=_ends(row.tango, x),
        diamond=" ".join(
            f"{_number(centre + MARKER * dx)},{_number(y + MARKER * dy)}" for dx, dy in corners
        ),
        square_x=_number(centre - MARKER + 1),
        square_y=_number(y - MARKER + 1),
    )


def _ends(
    interval: tuple[float, float] | None, x: Callable[[float], float]
) -> tuple[str, str] | None:
    return None if interval is None else (_number(x(interval[0])), _number(x(interval[1])))


def _number(value: float) -> str:
    return f"{value:.1f}"


def _label(value: float) -> str:
    text = f"{value:+.1f}"
    return "0" if float(text) == 0 else text.replace("-", MINUS)
