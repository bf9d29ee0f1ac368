from fractions import Fraction

import numpy as np
import pytest

from projections.analyses.admissible_values import (
    admit_count,
    admit_level,
    admit_probability,
    admit_rational,
)


@pytest.mark.parametrize(
    "written",
    ["0.05", ".05", "1/20", 0.05, Fraction(1, 20), "5e-2", np.float64(0.05)],
    ids=repr,
)
def test_a_written_decimal_is_taken_exactly(written):
    assert admit_rational(written, "alpha") == Fraction(1, 20)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "five",
        "0.05 ",
        "1/0",
        "1e999999999",
        "9" * 31,
        "٠.٥",
        float("nan"),
        float("inf"),
        True,
        None,
        b"0.05",
    ],
    ids=repr,
)
def test_what_is_no_number_is_refused_with_an_example(written):
    with pytest.raises(ValueError, match=r"alpha must be a number such as 0\.05 or 1/20"):
        admit_rational(written, "alpha")


def test_a_long_refused_text_is_not_echoed_whole():
    with pytest.raises(ValueError) as refusal:
        admit_rational("x" * 10_000, "alpha")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("value", [-1, 3.0, "3", True, None, np.float64(3)], ids=repr)
def test_counts_are_whole_numbers_from_zero(value):
    with pytest.raises(ValueError, match="pairs must be a whole number of at least 0"):
        admit_count(value, "pairs")


def test_numpy_counts_become_python_ints():
    count = admit_count(np.int64(7), "pairs")
    assert count == 7
    assert type(count) is int


@pytest.mark.parametrize("value", ["-0.01", "1.01", -1, 2])
def test_probabilities_lie_between_0_and_1(value):
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        admit_probability(value, "new_only")


def test_probabilities_include_0_and_1_but_levels_do_not():
    assert admit_probability(0, "p") == 0
    assert admit_probability("1.0", "p") == 1
    for value in (0, 1):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            admit_level(value, "alpha")
