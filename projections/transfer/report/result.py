"""The result in words, and what a reader must know together with it."""

from collections import Counter
from collections.abc import Sequence

from projections.transfer.report.boundary_failures import boundary_failures_by_system
from projections.transfer.report.inputs import TransferInputs
from projections.transfer.report.phrases import CANNOT_SHOW
from projections.transfer.report.systems import behaves
from projections.transfer.results import SystemResult, TransferResults
from projections.transfer.scores import RunScore
from schemas.counted import counted

NOTICE = (
    "The Fresh-Session Correction-Transfer Protocol is a proposed evaluation artifact, not a "
    "validated standard."
)


def result_sentence(results: TransferResults) -> str:
    """How many high-consequence failures there are, and of whom; the overview names the rest."""
    failures = len(results.boundary_failures)
    where = ", ".join(
        f"{system.label} {len(runs)}" for system, runs in boundary_failures_by_system(results)
    )
    return (
        f"{counted(failures, 'high-consequence boundary failure')} ({where}), listed one by one "
        "below."
        if failures
        else "No high-consequence boundary failure."
    )


def system_in_words(system: SystemResult, runs: Sequence[RunScore]) -> str:
    """``over-applies``, or what else happened to a system.

    Of what cases ask for there is no number over classes, which are not pooled: failed runs that no
    behaviour explains are named by class. Sessions that crashed or timed out, and void runs, are
    events and counted. ``runs``: of any system.
    """
    if not system.ended:
        return "nothing has ended"
    if system.void == system.ended:
        return f"every run that ended is void ({system.void}), nothing observed"
    names = [found.name for found in system.classes[0].behaviours]
    said = [name.partition(":")[0] for name in names if behaves(name, system) == "yes"]
    if not said:
        said = [
            f"failed {each.failed}/{each.runs} in class {each.class_.replace('_', ' ')}"
            for each in system.classes
            if each.failed
        ]
    ends = Counter(run.ended for run in runs if run.system == (system.memory, system.driver))
    said += [
        f"{counted(ends[end], 'session')} {end.replace('_', ' ')}"
        for end in sorted(ends.keys() - {"completed", "void"})
    ]
    if not said and all(each.verified == each.runs for each in system.classes):
        said = [f"transfer is verified in every run{' that is not void' if system.void else ''}"]
    elif not said:
        said = ["nothing went wrong that was seen, and not every stage was"]
    if system.void:
        said.append(f"{counted(system.void, 'run')} void")
    return ", ".join(said)


def interim_sentence(results: TransferResults) -> str:
    """Empty where every planned run has ended."""
    if not results.waiting:
        return ""
    number = counted(results.waiting, "planned run")
    return f"Interim: {number} {'has' if results.waiting == 1 else 'have'} not ended."


def remarks(inputs: TransferInputs) -> tuple[str, ...]:
    results = inputs.results
    remarks = [NOTICE]
    blind = [system for system in results.systems if system.cannot_show]
    if blind:
        named = "; ".join(
            f"{system.label} cannot show {', '.join(system.cannot_show)}" for system in blind
        )
        remarks.append(f"{named}. {CANNOT_SHOW}")
    changed = {other.memory for other in results.other_programs}
    if changed:
        remarks.append(
            "Exploratory, since runs did not have the program that was frozen: "
            f"{', '.join(sorted(changed))}; see Deviations."
        )
    late = [s.name for s in results.systems if s.exploratory and s.memory not in changed]
    late += dict.fromkeys(each.id for each in results.thresholds if each.exploratory)
    if late:
        remarks.append(
            f"Exploratory, since an amendment after the first run declared or changed them: "
            f"{', '.join(late)}."
        )
    open_ = [each for each in results.missed if each.status == "not_decided"]
    missed = [each for each in results.missed if each not in open_]
    for found, words in ((missed, "missed"), (open_, "not decided yet, since planned runs wait")):
        if results.thresholds and (found or words == "missed"):
            count = f"{len(found)} of {len(results.thresholds)} threshold results are {words}"
            named = ", ".join(dict.fromkeys(each.id for each in found))
            remarks.append(f"{count}{': ' + named if found else ''}.")
    weak = sorted({family.family for family in results.families if family.non_discriminating})
    if weak:
        remarks.append(
            f"Not discriminating, since the positive is hit without the correction too: "
            f"{', '.join(weak)}."
        )
    frozen = inputs.conduct.frozen
    scorers = [c.digest for c in frozen.components if c.name == "scorer"] if frozen else []
    if scorers and results.scorer not in scorers:
        remarks.append("The scorer is not the one that was frozen; see Deviations.")
    if results.waiting:
        remarks.append(interim_sentence(results))
    return tuple(remarks)
