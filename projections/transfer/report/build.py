"""The report of a transfer study, in the report model that both kinds of study share.

What matters most stands first: a sign for every system and stage, then failures of high consequence
one by one, before any number that could hide them. Verified transfer success and behavioural
success stand side by side and are never added; what a system cannot show is said in words.
``transfer_run_page`` makes the page of a run.
"""

from projections.report.model import (
    BANNER,
    MARK,
    Code,
    Fact,
    Report,
    day,
)
from projections.report.sections import (
    amendments_section,
    deviations_section,
    readings_section,
    reproduction_section,
)
from projections.transfer.report.boundary_failures import boundary_failures_section
from projections.transfer.report.cases import (
    cases_section,
    failures_section,
    families_section,
    runs_section,
)
from projections.transfer.report.counts import counts_section, stages_section, thresholds_section
from projections.transfer.report.inputs import TransferInputs
from projections.transfer.report.overview import overview
from projections.transfer.report.result import remarks, result_sentence
from projections.transfer.report.setting import (
    models_section,
    other_programs,
    remediations_section,
    uncertainty_section,
    waivers_section,
)
from projections.transfer.report.systems import systems_section, what_this_shows_section


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
        reworded=tuple(str(each) for each in inputs.amendments.reworded),
        result_title="Result",
        result=result_sentence(results),
        overview=overview(results),
        remarks=remarks(inputs),
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
                boundary_failures_section(results),
                what_this_shows_section(results),
                systems_section(results),
                thresholds_section(results),
                counts_section(results),
                stages_section(results),
                families_section(results),
                cases_section(results),
                failures_section(results),
                remediations_section(results),
                uncertainty_section(results),
                waivers_section(results),
                models_section(results, study),
                readings_section(study.readings),
                deviations_section(
                    conduct,
                    inputs.amendments,
                    results.code_not_as_frozen,
                    other_programs(results),
                ),
                amendments_section(inputs.amendments),
                runs_section(results),
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
