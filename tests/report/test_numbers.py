"""How numbers are printed."""

import pytest

from projections.report.numbers import (
    count,
    difference,
    interval,
    level,
    mean,
    p_value,
    ratio,
    seconds,
    share,
)
from projections.results import Share


@pytest.mark.parametrize(
    ("n", "of", "text"),
    [
        (0, 0, "not estimable (0/0)"),
        (3, 8, "3/8"),
        (9, 9, "9/9"),
        (5, 10, "5/10 (50 %)"),
        (16, 60, "16/60 (27 %)"),
        (1, 3000, "1/3000 (0.0 %)"),
    ],
)
def test_counts_come_first_and_percentages_from_ten_on(n: int, of: int, text: str) -> None:
    assert share(Share(n=n, of=of)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (-0.0001, "0.000"),
        (0.0001, "0.000"),
        (1 / 6, "+0.167"),
        (-1 / 6, "\u22120.167"),
        (None, "not estimable"),
    ],
)
def test_differences_carry_their_sign(value: float | None, text: str) -> None:
    assert difference(value) == text


def test_an_interval_is_two_differences() -> None:
    assert interval((-0.05, 0.25)) == "\u22120.050 to +0.250"
    assert interval(None) == "not estimable"


@pytest.mark.parametrize(
    ("p", "alpha", "text"),
    [
        (0.5, 0.05, "0.5000"),
        (1.0, 0.05, "1.0000"),
        (0.0, 0.05, "0.0000"),
        (0.05, 0.05, "0.0500"),
        (0.05000001, 0.05, "0.05000001"),
        (0.0500041, 0.05, "0.050004"),
        (0.04999999, 0.05, "0.0500"),
        (1.234e-7, 0.05, "1.2e\u221207"),
        (None, 0.05, "not estimable"),
    ],
)
def test_a_p_value_stands_on_its_side_of_alpha(p: float | None, alpha: float, text: str) -> None:
    assert p_value(p, alpha) == text


def test_other_numbers() -> None:
    assert level(0.95) == "95 %"
    assert level(1 - 0.001) == "99.9 %"
    assert count(1234567) == "1,234,567"
    assert mean(240, 60) == "240 (4.0 each)"
    assert mean(600_000, 60) == "600,000 (10,000 each)"
    assert mean(0, 0) == "0"
    assert seconds(12_340_000_000) == "12.3 s"
    assert seconds(1_234_560_000_000) == "1,235 s"
    assert ratio(440.0) == "440"
    assert ratio(None) == "not estimable"
