import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ledger.cli.main import cli
from projections.analyses.mcnemar import exact_p_value, mid_p_value
from projections.analyses.power import MAX_TASKS, McNemarPower, mcnemar_power, smallest_tasks

ORACLE = json.loads((Path(__file__).parents[1] / "oracles/power.public.json").read_text())

properties = settings(deadline=None, derandomize=True, max_examples=60)
probabilities = st.integers(0, 40).map(lambda k: Fraction(k, 40))
levels = st.sampled_from(["0.001", "0.01", "0.05", "0.1", "1/16", "0.5", "0.9"])


@pytest.mark.parametrize(
    "case",
    ORACLE["cases"],
    ids=lambda c: f"{c['tasks']}-{c['new_only']}-{c['baseline_only']}-{c['alpha']}",
)
def test_oracle(case):
    result = mcnemar_power(case["tasks"], case["new_only"], case["baseline_only"], case["alpha"])
    tolerance = ORACLE["tolerance"]
    assert result.power == pytest.approx(case["power"], rel=0, abs=tolerance)
    assert result.power == pytest.approx(case["power_R"], rel=0, abs=tolerance)
    assert result.power_direction_new == pytest.approx(
        case["power_direction_new"], rel=0, abs=tolerance
    )
    assert result.power_midp == pytest.approx(case["power_midp"], rel=0, abs=tolerance)


def test_the_preregistered_power():
    assert f"{mcnemar_power(60, '0.25', '0.05', '0.05').power:.6f}" == "0.797296"


@pytest.mark.parametrize(
    ("unsolvable", "printed"), [("0.30", 0.59), ("0.40", 0.50), ("0.55", 0.34)]
)
def test_power_at_the_solvable_share(unsolvable, printed):
    share = 1 - Fraction(unsolvable)
    result = mcnemar_power(60, "0.25", "0.05", "0.05", solvable_share=share)
    assert round(result.power, 2) == printed
    scaled = mcnemar_power(60, Fraction("0.25") * share, Fraction("0.05") * share, "0.05")
    assert result.power == scaled.power
    assert result.power_midp == scaled.power_midp


def power_by_definition(n, p_new, p_base, alpha, p_value):
    """Trinomial probability of each rejected table: with b > c, and with b < c."""
    by_new = by_base = Fraction(0)
    for b in range(n + 1):
        for c in range(n + 1 - b):
            if p_value(b, c) <= alpha:
                ways = math.comb(n, b) * math.comb(n - b, c)
                weight = ways * p_new**b * p_base**c * (1 - p_new - p_base) ** (n - b - c)
                by_new += weight if b > c else 0
                by_base += weight if b < c else 0
    return by_new, by_base


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 16), probabilities, probabilities, levels)
def test_power_is_the_probability_of_the_rejected_tables(n, p_new, p_base, alpha):
    assume(p_new + p_base <= 1)
    result = mcnemar_power(n, p_new, p_base, alpha)
    by_new, by_base = power_by_definition(n, p_new, p_base, Fraction(alpha), exact_p_value)
    assert result.power == float(by_new + by_base)
    assert result.power_direction_new == float(by_new)
    midp = power_by_definition(n, p_new, p_base, Fraction(alpha), mid_p_value)
    assert result.power_midp == float(sum(midp))


@properties
@given(st.integers(1, 80), probabilities, probabilities, levels)
def test_swapping_the_arms_swaps_the_directions(n, p_new, p_base, alpha):
    assume(p_new + p_base <= 1)
    one = mcnemar_power(n, p_new, p_base, alpha)
    other = mcnemar_power(n, p_base, p_new, alpha)
    assert one.power == other.power
    assert one.power - one.power_direction_new == pytest.approx(
        other.power_direction_new, abs=1e-12
    )


@properties
@given(st.integers(1, 80), probabilities, probabilities, probabilities, levels)
def test_power_in_the_new_direction_grows_with_the_effect(n, p, q, p_base, alpha):
    low, high = sorted((p, q))
    assume(high + p_base <= 1)
    weaker = mcnemar_power(n, low, p_base, alpha).power_direction_new
    stronger = mcnemar_power(n, high, p_base, alpha).power_direction_new
    assert weaker <= stronger


@properties
@given(st.integers(1, 80), probabilities, probabilities)
def test_power_grows_with_alpha_and_mid_p_never_has_less(n, p_new, p_base):
    assume(p_new + p_base <= 1)
    results = [mcnemar_power(n, p_new, p_base, a) for a in ("0.01", "0.05", "0.1", "0.5")]
    powers = [result.power for result in results]
    assert powers == sorted(powers)
    assert all(0 <= result.power <= result.power_midp <= 1 for result in results)


@properties
@given(st.integers(1, 120), probabilities, levels)
def test_the_test_keeps_its_level_where_the_arms_do_not_differ(n, p, alpha):
    assume(2 * p <= 1)
    assert mcnemar_power(n, p, p, alpha).power <= float(Fraction(alpha))


def test_no_discordance_is_never_rejected_and_certain_discordance_always():
    assert mcnemar_power(60, 0, 0).power == 0.0
    assert mcnemar_power(60, "0.25", "0.05", solvable_share=0).power == 0.0
    assert mcnemar_power(6, 0, 1).power == 1.0
    assert mcnemar_power(6, 0, 1).power_direction_new == 0.0
    # Five wins of five have p = 1/16.
    assert mcnemar_power(5, 1, 0).power == 0.0


def test_two_thousand_tasks_and_long_decimals_keep_the_level():
    # At this size the exact test uses almost all of its level.
    assert 0.045 < mcnemar_power(2_000, 0.2, 0.2).power <= 0.05
    long = mcnemar_power(400, 0.1234567890123456, "0.1734567890123456")
    short = mcnemar_power(400, "0.1234567890123", "0.1734567890123")
    assert long.power != short.power
    assert long.power == pytest.approx(short.power, rel=0, abs=1e-9)


def test_many_tasks_agree_with_logarithms_of_factorials():
    n, p_new, p_base = 800, 0.06, 0.04
    total = []
    critical = -1
    for m in range(n + 1):
        while exact_p_value_at_most(critical + 1, m):
            critical += 1
        for k in range(critical + 1):
            for b, c in ((k, m - k), (m - k, k)):
                log = (
                    math.lgamma(n + 1)
                    - math.lgamma(b + 1)
                    - math.lgamma(c + 1)
                    - math.lgamma(n - m + 1)
                    + b * math.log(p_new)
                    + c * math.log(p_base)
                    + (n - m) * math.log(1 - p_new - p_base)
                )
                if log > -60:
                    total.append(math.exp(log))
    assert mcnemar_power(n, p_new, p_base).power == pytest.approx(math.fsum(total), abs=1e-9)


def exact_p_value_at_most(k: int, m: int) -> bool:
    return 2 * k < m and exact_p_value(k, m - k) <= Fraction(1, 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((60, -0.25, 0.05), r"new_only.*must lie between 0 and 1, not -0\.25"),
        ((60, 0.25, "-0.05"), r"baseline_only.*must lie between 0 and 1, not -0\.05"),
        ((60, 1.25, 0.0), "new_only.*must lie between 0 and 1"),
        ((60, 0.6, 0.5), r"must sum to at most 1, but 0\.6 \+ 0\.5 is more"),
        ((0, 0.25, 0.05), "tasks must be a whole number of at least 1, not 0"),
        ((-3, 0.25, 0.05), "tasks must be a whole number of at least 1, not -3"),
        ((MAX_TASKS + 1, 0.25, 0.05), "tasks must be at most 5,000"),
        ((60, 0.25, 0.05, 0), "alpha must lie strictly between 0 and 1"),
        ((60, 0.25, 0.05, 1), "alpha must lie strictly between 0 and 1"),
        ((60, 0.25, 0.05, 0.05, 1.1), "solvable_share must lie between 0 and 1"),
        ((60, float("nan"), 0.05), "new_only.*must be a number such as"),
    ],
)
def test_refusals_say_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        mcnemar_power(*arguments)


def test_probabilities_that_sum_to_exactly_one_are_allowed():
    assert mcnemar_power(10, "1/3", "2/3").power == mcnemar_power(10, "2/3", "1/3").power > 0
    assert mcnemar_power(10, 0.9, 0.1).power > 0.5


def test_the_result_survives_the_codec():
    result = mcnemar_power(60, 0.25, 0.05, solvable_share=Fraction(37, 60))
    assert msgspec.json.decode(msgspec.json.encode(result), type=McNemarPower) == result


def test_the_smallest_number_of_tasks_for_a_power():
    assert smallest_tasks("0.8", "0.25", "0.05") == 61  # 60 have 0.797
    for shares in (("0.25", "0.05"), ("0.8", "0.2")):
        found = smallest_tasks("0.5", *shares)
        powers = [mcnemar_power(n, *shares).power for n in range(1, found + 40)]
        assert powers[found - 2] < 0.5 <= min(powers[found - 1 :])
    assert max(powers[: found - 1]) >= 0.5  # all tasks discordant: a saw-tooth


def test_a_power_that_is_out_of_reach_is_refused():
    with pytest.raises(ValueError, match="do not reach a power of 0.9"):
        smallest_tasks("0.9", "0.06", "0.05")


def test_the_protocols_own_command_line_gives_the_same(tmp_path):
    study = tmp_path / "study"
    done = CliRunner().invoke(cli, ["init", str(study), "--template", "study-2"])
    assert done.exit_code == 0, done.output
    words = ["--tasks", "60", "--new-only", "0.25", "--baseline-only", "0.05", "--alpha", "0.05"]
    script = [sys.executable, "-I", "scripts/power_study2.py"]
    printed = subprocess.run([*script, *words], cwd=study, capture_output=True, text=True)
    assert (printed.returncode, printed.stdout) == (0, "0.797296\n")
    for tasks, new, baseline, alpha in (("23", "0.4", "0.1", "0.1"), ("7", "0.5", "0", "0.05")):
        given = ["--tasks", tasks, "--new-only", new, "--baseline-only", baseline, "--alpha", alpha]
        printed = subprocess.run([*script, *given], cwd=study, capture_output=True, text=True)
        expected = mcnemar_power(int(tasks), new, baseline, alpha).power
        assert printed.stdout == f"{expected:.6f}\n"
    refused = subprocess.run([*script, *words, "--tasks", "0"], cwd=study, capture_output=True)
    assert refused.returncode == 2
