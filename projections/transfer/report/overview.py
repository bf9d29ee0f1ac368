"""The first screen: what thresholds came to, and every system's seven stages as signs."""

from collections.abc import Sequence

from projections.report.model import VERDICTS, Column, Table, columns
from projections.report.numbers import NONE
from projections.transfer.report.result import system_in_words
from projections.transfer.results import SystemResult, TransferResults
from projections.transfer.scores import RunScore
from schemas.transfer.family import STAGES, Stage

SIGNS = {word: sign for sign, word in VERDICTS.items()}
_STATUS = {
    "met": SIGNS["pass"],
    "missed": SIGNS["fail"],
    "not_shown": SIGNS["unobserved"],
    "not_decided": SIGNS["unobserved"],
}


def overview(results: TransferResults) -> tuple[Table, ...]:
    """A row a threshold; then a row a system, a column a stage."""
    table = Table(
        caption="Systems and their seven stages",
        columns=(
            Column(title="system"),
            *(Column(title=stage, kind="verdict") for stage in STAGES),
            Column(title="boundary failures", kind="number"),
            Column(title="in words", kind="prose"),
        ),
        rows=tuple(_system_row(system, results) for system in results.systems),
        note="\u2713 n/n: every run that the stage is asked of passes. \u2717 n/m: n of m fail. "
        "? n/m: none is seen to fail, n of m were not observed. A dash: asked of no run. Void runs "
        "are left out.",
    )
    return (*_thresholds(results), table)


def _system_row(system: SystemResult, results: TransferResults) -> tuple[str, ...]:
    own = [run for run in results.runs if run.system == (system.memory, system.driver)]
    seen = [run for run in own if run.result != "void"]
    return (
        system.label,
        *(stage_sign(stage, seen) for stage in STAGES),
        str(sum(bool(run.boundary_failure) for run in own)),
        system_in_words(system, results.runs),
    )


def stage_sign(stage: Stage, runs: Sequence[RunScore]) -> str:
    """``✗ 3/12``: the worst verdict of a stage in these runs, and in how many of them."""
    verdicts = [run.stages[stage].verdict for run in runs]
    asked = len(verdicts) - verdicts.count("not_required")
    for verdict in ("fail", "unobserved", "pass"):
        if n := sum(found == verdict for found in verdicts):
            return f"{SIGNS[verdict]} {n}/{asked}"
    return NONE


def _thresholds(results: TransferResults) -> list[Table]:
    rows = []
    for name in dict.fromkeys(found.id for found in results.thresholds):
        own = [found for found in results.thresholds if found.id == name]
        cells = []
        for status, sign in _STATUS.items():
            which = [found for found in own if found.status == status]
            cells.append(f"{sign} {len(which)}" if which else NONE)
        missed = [
            results.label(found.memory, found.driver) for found in own if found.status == "missed"
        ]
        rows.append((name, own[0].limit, *cells, ", ".join(dict.fromkeys(missed)) or NONE))
    if not rows:
        return []
    return [
        Table(
            caption="Thresholds: in how many systems and classes each is met",
            columns=(
                *columns("threshold"),
                Column(title="limit", kind="number"),
                *(Column(title=status.replace("_", " "), kind="verdict") for status in _STATUS),
                Column(title="missed by", kind="prose"),
            ),
            rows=tuple(rows),
        )
    ]
