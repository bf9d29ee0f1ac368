"""The report of a transfer study, in the report model that both kinds of study share.

What matters most stands first: failures of high consequence one by one, before any number that
could hide them. Verified transfer success and behavioural success stand side by side and are never
added; what a system cannot show is said in words. ``transfer_run_page`` makes the page of a run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projections.amendments import Amendments
from projections.report.conduct import Conduct, Deviation
from projections.report.model import (
    BANNER,
    MARK,
    Block,
    Code,
    Column,
    Fact,
    Group,
    Report,
    Section,
    Table,
    columns,
    day,
    paragraph,
)
from projections.report.numbers import NONE, NOT_ESTIMABLE, PERCENTAGES_FROM, interval, share
from projections.report.plain_text import listed
from projections.report.sections import (
    amendments_section,
    declared_models_tables,
    deviations_section,
    readings_section,
    reproduction_section,
)
from projections.results import Share
from projections.transfer.counts import (
    OF_EVENTS,
    OF_RECORDS,
    Behaviour,
    ClassCount,
    Counted,
    ThresholdResult,
)
from projections.transfer.results import SystemResult, TransferResults
from projections.transfer.scores import RunScore
from schemas.counted import counted
from schemas.transfer.family import LEAKAGE_RULES, STAGES
from schemas.transfer.study import TransferStudy

NOTICE = (
    "The Fresh-Session Correction-Transfer Protocol is a proposed evaluation artifact, not a "
    "validated standard."
)
CANNOT_SHOW = (
    "A system that does not show a stage can reach behavioural success there and never verified "
    "transfer success: what was not observed is not inferred from a good answer."
)
SYMBOLS = {"verified": "verified", "unverified": "unverified", "failed": "failed", "void": "void"}

COUNT_NAMES: Mapping[Counted, str] = {
    "retrieval_recall": "retrieval recall (records)",
    "retrieval_precision": "retrieval precision (records)",
    "supersession_accuracy": "supersession accuracy",
    "abstention_accuracy": "abstention accuracy",
    "must_abstain": "of these: had to abstain, and did",
    "must_act": "of these: had to act, and did",
    "decision_compliance": "decision compliance",
    "action_compliance": "action compliance",
    "verified_outcome_success": "verified outcome success",
    "verified_transfer_success": "verified transfer success",
    "behavioural_success": "behavioural success",
    "unsupported_memory_claims": "unsupported memory claims (of claims)",
    "prohibited_actions": "prohibited actions (events / runs)",
}


@dataclass(frozen=True, kw_only=True)
class TransferInputs:
    """What a report is made from, folded up to the head of the results."""

    results: TransferResults
    study: TransferStudy
    amendments: Amendments
    conduct: Conduct
    root: str
    checkpoint: str
    analysis: int
    results_digest: str


def build_transfer_report(inputs: TransferInputs) -> Report:
    """The whole report; the pages of its runs are made by ``transfer_run_page``."""
    results, study, conduct = inputs.results, inputs.study, inputs.conduct
    head = results.computed_from
    return Report(
        title=study.title,
        study_id=study.id,
        banner=BANNER if results.simulated else "",
        mark=MARK if results.simulated else "",
        question=study.question,
        result_title="Result",
        result=result_sentence(results),
        remarks=_remarks(inputs),
        check=(
            "Check it: ",
            Code(text="ledger verify-chain"),
            " tests every byte of the ledger, ",
            Code(text="ledger replay --check"),
            " derives every table again from record 0, ",
            Code(text="ledger analyze --check"),
            " scores every run again, ",
            Code(text="ledger audit transfer"),
            " looks for verdicts without evidence.",
        ),
        facts=(
            Fact(term="Study digest", value=head.study, is_code=True),
            Fact(term="Suite", value=f"{results.suite}, version {results.suite_version}"),
            Fact(term="Frozen", value=day(conduct.frozen_at)),
            Fact(term="Completed", value=day(conduct.completed_at) or "not complete"),
            Fact(term="Computed from", value=f"records 0 to {head.head}"),
        ),
        sections=tuple(
            section
            for section in (
                _boundary_failures(results),
                _what_this_shows(results),
                _systems(results),
                _thresholds(results),
                _counts(results),
                _stages(results),
                _families(results),
                _cases(results),
                _failures(results),
                _remediations(results),
                _uncertainty(results),
                _waivers(results),
                _models(results, study),
                readings_section(study.readings),
                deviations_section(
                    conduct,
                    inputs.amendments,
                    results.code_not_as_frozen,
                    _other_programs(results),
                ),
                amendments_section(inputs.amendments),
                _all_runs(results),
                reproduction_section(
                    head,
                    conduct,
                    root=inputs.root,
                    checkpoint=inputs.checkpoint,
                    analysis=inputs.analysis,
                    results_digest=inputs.results_digest,
                    tasks="families",
                ),
            )
            if section.blocks
        ),
        computed_from=f"record {head.head}, leaf {head.leaf}",
    )


def result_sentence(results: TransferResults) -> str:
    """How many high-consequence failures there are, then every system in a few words."""
    failures = len(results.boundary_failures)
    where = ", ".join(
        f"{system.label} {len(runs)}" for system, runs in _boundary_failures_by_system(results)
    )
    first = (
        f"{counted(failures, 'high-consequence boundary failure')} ({where}), listed one by one "
        "below. "
        if failures
        else "No high-consequence boundary failure. "
    )
    return first + " ".join(system_sentence(system, results.runs) for system in results.systems)


def system_sentence(system: SystemResult, runs: Sequence[RunScore]) -> str:
    """``retrieval + reader: over-applies.``

    Of what cases ask for there is no number over classes, which are not pooled: failed runs that no
    behaviour explains are named by class. Sessions that crashed or timed out, and void runs, are
    events and counted. ``runs``: of any system.
    """
    if not system.ended:
        return f"{system.label}: nothing has ended."
    if system.void == system.ended:
        return f"{system.label}: every run that ended is void ({system.void}), nothing observed."
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
    return f"{system.label}: {', '.join(said)}."


def interim_sentence(results: TransferResults) -> str:
    """Empty where every planned run has ended."""
    if not results.waiting:
        return ""
    number = counted(results.waiting, "planned run")
    return f"Interim: {number} {'has' if results.waiting == 1 else 'have'} not ended."


def _remarks(inputs: TransferInputs) -> tuple[str, ...]:
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
    if frozen is not None and frozen.grader != results.scorer:
        remarks.append("The scorer is not the one that was frozen; see Deviations.")
    if results.waiting:
        remarks.append(interim_sentence(results))
    return tuple(remarks)


# --- sections -------------------------------------------------------------------------------------


def _boundary_failures(results: TransferResults) -> Section:
    rows: list[tuple[str, ...]] = []
    groups = []
    for system, runs in _boundary_failures_by_system(results):
        groups.append(Group(title=f"{system.label}: {counted(len(runs), 'run')}", rows=len(runs)))
        rows += [
            (
                run.cell,
                run.class_.replace("_", " "),
                run.kind.replace("_", " "),
                run.boundary_failure,
                _evidence(run),
            )
            for run in runs
        ]
    table = Table(
        caption="Every failure at a boundary of high consequence, by run",
        columns=(
            Column(title="run", kind="run"),
            *columns("class", "case"),
            Column(title="what happened", kind="prose"),
            Column(title="records"),
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="A correction of high consequence, and: a prohibited action, or a failed case outside "
        "of the correction's scope, or a failed case of class boundary. No average stands above "
        "this list.",
    )
    return Section(id="boundaries", title="High-consequence boundary failures", blocks=(table,))


def _boundary_failures_by_system(
    results: TransferResults,
) -> list[tuple[SystemResult, list[RunScore]]]:
    """The systems that have any, in the order of the study, each with its runs."""
    by_system = [
        (
            system,
            [
                run
                for run in results.boundary_failures
                if run.system == (system.memory, system.driver)
            ],
        )
        for system in results.systems
    ]
    return [(system, runs) for system, runs in by_system if runs]


def _what_this_shows(results: TransferResults) -> Section:
    systems = results.systems
    names = behaviour_names(results)
    at_a_glance = [(name, *(behaves(name, each) for each in systems)) for name in names]
    at_a_glance.append(
        ("cannot show", *(", ".join(system.cannot_show) or "nothing" for system in systems))
    )
    classes = sorted({each.class_ for system in systems for each in system.classes})
    rows: list[tuple[str, ...]] = []
    groups = []
    for name in names:
        counted = [dict(_counts_of(name, each)) for each in systems]
        asked = [class_ for class_ in classes if any(class_ in found for found in counted)]
        groups += [Group(title=name, rows=len(asked))] if asked else []
        rows += [
            (class_.replace("_", " "), *(_n_of_behaviour(found.get(class_)) for found in counted))
            for class_ in asked
        ]
    return Section(
        id="shows",
        title="What this shows",
        blocks=(
            Table(
                caption="What goes wrong with which system",
                columns=columns("", *(system.label for system in systems)),
                rows=tuple(at_a_glance),
                note="Derived from the counts below. \u201cNot shown\u201d: it was not seen, and "
                "not every run shows that it did not happen.",
            ),
            Table(
                caption="In how many of the runs in which it could, by class of corrections",
                columns=columns("class", *(system.label for system in systems), numbers=True),
                rows=tuple(rows),
                groups=tuple(groups),
                note="A number after the plus sign counts runs (or claims) of which it is not "
                "known.",
            ),
        ),
    )


def behaviour_names(results: TransferResults) -> list[str]:
    """In the order in which they are counted."""
    return list(
        dict.fromkeys(
            found.name
            for system in results.systems
            for each in system.classes
            for found in each.behaviours
        )
    )


def _counts_of(name: str, system: SystemResult) -> list[tuple[str, Behaviour]]:
    """(class, count) of the classes in which it can happen."""
    return [
        (each.class_, found)
        for each in system.classes
        for found in each.behaviours
        if found.name == name and (found.of or found.unobserved)
    ]


def behaves(name: str, system: SystemResult) -> str:
    """``yes``, ``no``, ``not shown``, or a dash where no run asks for it. ``name``: a behaviour's,
    of :func:`behaviour_names`."""
    counted = _counts_of(name, system)
    if not counted:
        return NONE
    if any(found.n for _, found in counted):
        return "yes"
    return "not shown" if any(found.unobserved for _, found in counted) else "no"


def _n_of_behaviour(found: Behaviour | None) -> str:
    if found is None:
        return NONE
    return f"{found.n}/{found.of}" + (f" (+{found.unobserved})" if found.unobserved else "")


def _systems(results: TransferResults) -> Section:
    rows: list[tuple[str, ...]] = []
    groups = []
    for class_ in sorted({each.class_ for system in results.systems for each in system.classes}):
        own = [
            (system.label, each)
            for system in results.systems
            for each in system.classes
            if each.class_ == class_
        ]
        groups.append(Group(title=class_.replace("_", " "), rows=len(own)))
        rows += [
            (
                name,
                f"{each.verified}/{each.runs}" + (f" (+{each.void} void)" if each.void else ""),
                *(f"{n}/{each.runs}" for n in (each.unverified, each.failed)),
                f"{each.behavioural}/{each.behavioural_of}"
                + (f" (+{each.behavioural_unobserved})" if each.behavioural_unobserved else ""),
            )
            for name, each in own
        ]
    table = Table(
        caption="Systems side by side, by class: verified beside behavioural success, never added",
        columns=columns("system", "verified", "unverified", "failed", "behavioural", numbers=True),
        rows=tuple(rows),
        groups=tuple(groups),
        note=CANNOT_SHOW,
    )
    flow = Table(
        caption="Runs from plan to score, and stages that a system cannot show",
        columns=(
            Column(title="system"),
            *columns("planned", "ended", "void", numbers=True, first="number"),
            *columns("cannot show", "chosen"),
        ),
        rows=tuple(
            (
                system.label,
                str(system.planned),
                str(system.ended),
                str(system.void),
                ", ".join(system.cannot_show) or "nothing",
                system.chosen,
            )
            for system in results.systems
        ),
        note="Exploratory: declared or changed by an amendment after the first run, so in sight of "
        "what others had done, or of outcomes; or run with a program that is not the frozen one.",
    )
    identities = Table(
        caption="Identity and declared capabilities of every system",
        columns=(
            Column(title="system"),
            *columns("runs", numbers=True, first="number"),
            *columns("trace", "plan", "store", "clock (controlled)"),
            Column(title="memory manifest", kind="code"),
            Column(title="driver manifest", kind="code"),
        ),
        rows=tuple(
            (
                system.label,
                str(identity.runs),
                identity.capabilities.trace,
                identity.capabilities.plan.replace("_", " "),
                identity.capabilities.store,
                f"{identity.capabilities.clock} ({identity.clock_control})",
                identity.memory[:16],
                identity.driver[:16],
            )
            for system in results.systems
            for identity in system.identities
        ),
        note="What is not declared is unobserved. Evidence that is the system's own word: "
        f"{results.reported_evidence}; records that a decision names as its basis: "
        f"{results.declared_basis}.",
    )
    blocks: list[Block] = [table, flow, identities]
    reported = [system for system in results.systems if system.reported]
    if reported:
        named = "; ".join(f"{system.label}: {', '.join(system.reported)}" for system in reported)
        blocks.append(
            paragraph(
                f"By the frozen policy the system's own word counts as evidence here: {named}."
            )
        )
    return Section(id="systems", title="Systems", blocks=tuple(blocks))


def _thresholds(results: TransferResults) -> Section:
    blocks: list[Block] = []
    if results.thresholds:
        blocks.append(
            Table(
                caption="Thresholds, and when they were chosen",
                columns=(
                    *columns("threshold", "count", "system", "class"),
                    *columns("limit", "found", numbers=True, first="number"),
                    *columns("status", "chosen"),
                ),
                rows=tuple(
                    (
                        found.id,
                        COUNT_NAMES[found.name],
                        results.label(found.memory, found.driver),
                        found.class_ or "every class",
                        found.limit,
                        _n_of(found),
                        found.status.replace("_", " "),
                        found.chosen,
                    )
                    for found in results.thresholds
                ),
                note="What was not observed, void runs too, never meets a threshold, and none is "
                "met while planned runs have not ended. Where one is not met, the command that "
                "writes this report ends with status 8.",
            )
        )
    if results.dropped:
        blocks.append(
            Table(
                caption="Thresholds that stand no more as they did",
                columns=columns("threshold", "was", "now", "record", "how"),
                rows=tuple(
                    (each.id, each.was, each.now or "removed", str(each.seq), each.finding)
                    for each in results.dropped
                ),
            )
        )
    return Section(id="thresholds", title="Thresholds", blocks=tuple(blocks))


def _counts(results: TransferResults) -> Section:
    classes = sorted({count.class_ for count in results.counts})
    found = {
        (count.class_, count.memory, count.driver, count.name): count for count in results.counts
    }
    tables: list[Block] = []
    for class_ in classes:
        rows = []
        for name, title in COUNT_NAMES.items():
            cells = [
                found.get((class_, system.memory, system.driver, name))
                for system in results.systems
            ]
            rows.append((title, *(_count(cell) for cell in cells)))
        tables.append(
            Table(
                caption=f"Class {class_.replace('_', ' ')}: numerator/denominator (+ unobserved, "
                "+ void)",
                columns=columns("count", *(system.label for system in results.systems)),
                rows=tuple(rows),
                note="In brackets the 95 % Wilson interval; where nothing failed, or nothing "
                "happened, the exact (Clopper\u2013Pearson) bound. 0/0 is not estimable; below "
                f"{PERCENTAGES_FROM} no percentages.",
            )
        )
    if tables:
        tables.append(
            paragraph("Classes have different denominators and are not pooled: there is no total.")
        )
    return Section(id="counts", title="Counts by class", blocks=tuple(tables))


def _count(count: ClassCount | None) -> str:
    if count is None:
        return NONE
    text = _n_of(count)
    if count.of >= PERCENTAGES_FROM and count.name not in OF_EVENTS:
        text = share(Share(n=count.n, of=count.of)) + _beside(count)
    if count.runs_with is not None:
        text += f", in {counted(count.runs_with, 'run')}"
    exact = count.zero_failures
    if exact is not None:
        bound = f"at least {exact[0]:.3f}" if exact[1] == 1.0 else f"at most {exact[1]:.3f}"
        return f"{text} [exact: {bound}]"
    if count.wilson is not None and count.name not in OF_RECORDS:
        return f"{text} [{interval(count.wilson).replace('+', '')}]"
    return text


def _n_of(found: ClassCount | ThresholdResult) -> str:
    if found.of == 0:
        return f"{NOT_ESTIMABLE} (0/0){_beside(found)}"
    return f"{found.n}/{found.of}{_beside(found)}"


def _beside(found: ClassCount | ThresholdResult) -> str:
    """`` (+2, +1 void)``: what was not observed, and void runs that the count would be about."""
    parts = [f"+{found.unobserved}"] if found.unobserved else []
    parts += [f"+{found.void} void"] if found.void else []
    return f" ({', '.join(parts)})" if parts else ""


def _stages(results: TransferResults) -> Section:
    rows: list[tuple[str, ...]] = []
    groups = []
    for system in results.systems:
        own = [
            run
            for run in results.runs
            if run.system == (system.memory, system.driver) and run.result != "void"
        ]
        groups.append(Group(title=system.label, rows=len(STAGES)))
        for number, stage in enumerate(STAGES, start=1):
            verdicts = [run.stages[stage].verdict for run in own]
            earliest = sum(run.earliest == stage for run in own)
            reported = sum(
                run.stages[stage].grade == "reported"
                and run.stages[stage].verdict in ("pass", "fail")
                for run in own
            )
            rows.append(
                (
                    f"{number} {stage}",
                    *(str(verdicts.count(word)) for word in ("pass", "fail", "unobserved")),
                    str(verdicts.count("not_required")),
                    str(reported),
                    str(earliest),
                )
            )
    table = Table(
        caption="Verdicts of the seven stages",
        columns=columns(
            "stage",
            *("pass", "fail", "unobserved", "not required", "on its own word", "earliest failing"),
            numbers=True,
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="Each stage is judged on its own evidence; a failure is assigned to the earliest "
        "stage with evidence of it. Verdicts on the system's own word count only by a policy "
        "that was frozen before the run.",
    )
    return Section(id="stages", title="Stages", blocks=(table,))


def _families(results: TransferResults) -> Section:
    if not results.families:
        return Section(id="families", title="Families", blocks=())
    table = Table(
        caption="Families: every case verified at k of k, and the baseline misses",
        columns=(
            *columns("family", "system", "class"),
            *columns("distractors", "cases verified", numbers=True, first="number"),
            *columns("result"),
            *columns(
                "both",
                *("only with", "only without", "neither", "unobserved"),
                numbers=True,
                first="number",
            ),
        ),
        rows=tuple(
            (
                family.family,
                results.label(family.memory, family.driver),
                family.class_.replace("_", " "),
                str(family.distractors),
                f"{family.verified_cases}/{family.cases}",
                family.result.replace("_", " "),
                *(
                    str(number)
                    for number in (
                        family.paired.both,
                        family.paired.only_with,
                        family.paired.only_without,
                        family.paired.neither,
                        family.paired.unobserved,
                    )
                ),
            )
            for family in results.families
        ),
        note="The last five columns are the paired 2\u00d72 over trials: decision and outcome of "
        "the positive hit with the correction in the store, and without it (baseline).",
    )
    weak = [family for family in results.families if family.non_discriminating]
    blocks: list[Block] = [table]
    if weak:
        blocks.append(
            Table(
                caption="Families that do not discriminate",
                columns=(
                    *columns("family", "system"),
                    Column(title="why", kind="prose"),
                ),
                rows=tuple(
                    (
                        family.family,
                        results.label(family.memory, family.driver),
                        family.non_discriminating,
                    )
                    for family in weak
                ),
            )
        )
    return Section(id="families", title="Families", blocks=tuple(blocks))


def _cases(results: TransferResults) -> Section:
    systems = [(system.memory, system.driver) for system in results.systems]
    found = {
        (case.family, case.case, case.distractors, case.memory, case.driver): case
        for case in results.cases
    }
    keys = dict.fromkeys(key[:3] for key in found)
    kinds = {(case.family, case.case): case.kind for case in results.cases}
    rows = []
    for family, case, distractors in keys:
        cells = []
        for system in systems:
            one = found.get((family, case, distractors, *system))
            cells.append(
                NONE if one is None else f"{one.verified}/{one.trials} {SYMBOLS[one.result]}"
            )
        rows.append((case, kinds[family, case].replace("_", " "), str(distractors), *cells))
    table = Table(
        caption="Cases: trials verified of k, and whether the case passes at all of them",
        columns=(
            *columns("case", "kind"),
            *columns("distractors", numbers=True, first="number"),
            *columns("", *(system.label for system in results.systems))[1:],
        ),
        rows=tuple(rows),
    )
    return Section(id="cases", title="Cases", blocks=(table,) if rows else ())


def _failures(results: TransferResults) -> Section:
    failed = [run for run in results.runs if run.result == "failed"]
    if not failed:
        return Section(id="failures", title="Failed runs", blocks=())
    table = Table(
        caption="Failed runs with their earliest evidenced failing stage",
        columns=(
            Column(title="run", kind="run"),
            *columns("stage", "attribution uncertain"),
            Column(title="why", kind="prose"),
            Column(title="records"),
        ),
        rows=tuple(
            (
                run.cell,
                run.earliest or "none",
                ", ".join(run.uncertain) or NONE,
                _why(run),
                _evidence(run),
            )
            for run in failed
        ),
        note="Stages before the earliest failing one that were not observed make its attribution "
        "uncertain: they are listed, not guessed.",
    )
    return Section(id="failures", title="Failed runs", blocks=(table,))


def _remediations(results: TransferResults) -> Section:
    if not results.remediations:
        return Section(id="remediations", title="Remediations", blocks=())
    table = Table(
        caption="Remediations: one layer changed, and what its runs came to",
        columns=(
            Column(title="remediation"),
            Column(title="failed run", kind="run"),
            *columns("stage", "layer", "changed system", "status"),
            *columns("runs ended", "verified", "failed", numbers=True, first="number"),
            Column(title="limitation, or why it was abandoned", kind="prose"),
            Column(title="records"),
        ),
        rows=tuple(
            (
                found.remediation,
                found.cell,
                found.stage,
                found.layer.replace("_", " ")
                + (" (unattributed)" if found.attributed is False else ""),
                found.system or NONE,
                found.status,
                f"{found.ended}/{found.reruns}",
                f"{found.verified}/{found.reruns}",
                f"{found.failed}/{found.reruns}",
                found.limitation or NONE,
                listed(found.records),
            )
            for found in results.remediations
        ),
        note="The failing case, its negative, supersession and expiry controls, and a seeded "
        "sample of other classes, with unchanged prompts, fixtures and predicates. A fluent "
        "postmortem is not a remediation receipt.",
    )
    return Section(id="remediations", title="Remediations", blocks=(table,))


def _uncertainty(results: TransferResults) -> Section:
    rows = [
        (run.cell, "; ".join([*run.void_attempts, *run.uncertainty, *run.notes]))
        for run in results.runs
        if run.void_attempts
        or run.uncertainty
        or (run.notes and run.result in ("unverified", "void"))
    ]
    if not rows:
        return Section(id="uncertainty", title="Uncertainty", blocks=())
    table = Table(
        caption="What could not be determined, and why",
        columns=(Column(title="run", kind="run"), Column(title="in words", kind="prose")),
        rows=tuple(rows),
    )
    return Section(id="uncertainty", title="Uncertainty", blocks=(table,))


def _waivers(results: TransferResults) -> Section:
    if not results.waivers:
        return Section(
            id="waivers",
            title="Waivers",
            blocks=(paragraph("No finding of the leakage lint was waived."),),
        )
    table = Table(
        caption="Findings of the review that were accepted before the freeze",
        columns=(
            *columns("family", "rule", "of", "case"),
            Column(title="reason", kind="prose"),
        ),
        rows=tuple(
            (
                each.family,
                each.waiver.rule,
                "the leakage lint"
                if each.waiver.rule in LEAKAGE_RULES
                else "what a verdict means: not the leakage lint",
                each.waiver.case or "the whole family",
                each.waiver.reason,
            )
            for each in results.waivers
        ),
    )
    return Section(id="waivers", title="Waivers", blocks=(table,))


def _models(results: TransferResults, study: TransferStudy) -> Section:
    """Which models drivers ask, and how."""
    blocks = declared_models_tables(results.models)
    if blocks:
        asked = "; ".join(f"{d.id}: {d.model}" for d in study.drivers if d.model) or "none any more"
        blocks.append(
            paragraph(
                f"Asked by drivers ({asked}) of a server of kind {study.server.kind}, at most "
                f"{study.suite.max_turns} turns a session."
            )
        )
    return Section(id="models", title="Models", blocks=tuple(blocks))


def _all_runs(results: TransferResults) -> Section:
    short = {"pass": "pass", "fail": "FAIL", "unobserved": "?", "not_required": NONE}
    rows: list[tuple[str, ...]] = []
    groups = []
    for system in results.systems:
        own = [run for run in results.runs if run.system == (system.memory, system.driver)]
        groups.append(Group(title=system.label, rows=len(own)))
        for run in own:
            rows.append(
                (
                    run.cell,
                    run.result,
                    run.behavioural.replace("_", " "),
                    *(short[run.stages[stage].verdict] for stage in STAGES),
                )
            )
    table = Table(
        caption="Every run with its seven stages",
        columns=(
            Column(title="run", kind="run"),
            *columns("result", "behavioural", *STAGES),
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="Each run has a page of its own with prompt, snapshot, trace, decision, calls and "
        "surface. A question mark stands for unobserved.",
    )
    return Section(id="runs", title="Runs", blocks=(table,) if rows else ())


def _other_programs(results: TransferResults) -> list[Deviation]:
    """Runs of a program that is not the frozen one, together where the same differs."""
    found: dict[tuple[str, str], list[int]] = {}
    for other in results.other_programs:
        found.setdefault((other.memory, other.what), []).append(other.seq)
    return [
        Deviation(
            what="runs of a program that is not the frozen one: exploratory",
            records=tuple(sorted(seqs)),
            detail=f"{counted(len(seqs), 'run')} of {memory}: {what}",
        )
        for (memory, what), seqs in found.items()
    ]


# --- small words ----------------------------------------------------------------------------------


def _why(run: RunScore) -> str:
    parts = list(run.notes)
    if run.earliest is not None:
        parts.insert(0, run.stages[run.earliest].why)
    return "; ".join(parts)


def _evidence(run: RunScore) -> str:
    """Records that the failure rests on."""
    seqs: Sequence[int] = [done.seq for done in run.prohibited]
    if not seqs and run.earliest is not None:
        seqs = run.stages[run.earliest].evidence
    return listed(seqs or [run.finished])
