"""The report of a repair study: which sections, in which order.

Every number is formatted once, in its section. The numbers are those of the results (and the
declared power); no clock is read: the same records give the same report."""

from projections.repair.report.contrasts import contrasts_section, effects_section
from projections.repair.report.hierarchical import hierarchical_section
from projections.repair.report.inputs import ReportInputs
from projections.repair.report.order import order_section
from projections.repair.report.outcomes import (
    gold_symbol_section,
    mechanism_section,
    secondary_outcomes_section,
)
from projections.repair.report.primary import primary_section
from projections.repair.report.reliability import reliability_section
from projections.repair.report.resources import resources_section
from projections.repair.report.result import primary_sentence, remarks
from projections.repair.report.robustness import robustness_section
from projections.repair.report.selection import (
    flow_section,
    outcome_matrix_section,
    task_funnel_section,
)
from projections.repair.report.setting import isolation_section, models_section, reproduction
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
)


def build_report(inputs: ReportInputs) -> Report:
    """The whole report. The order of its sections is that of ``docs/statistics.md``."""
    results, study, conduct = inputs.results, inputs.study, inputs.conduct
    head = results.computed_from
    primary = results.contrast(results.primary) if results.primary else None
    return Report(
        title=study.title,
        study_id=study.id,
        banner=BANNER if results.simulated else "",
        mark=MARK if results.simulated else "",
        question=study.question,
        reworded=tuple(str(each) for each in inputs.amendments.reworded),
        result_title="Primary result" if primary else "Result",
        result=primary_sentence(results),
        remarks=remarks(inputs),
        check=(
            "Check it: ",
            Code(text="ledger verify-chain"),
            " tests every byte of the ledger, ",
            Code(text="ledger replay --check"),
            " derives every table again from record 0, ",
            Code(text="ledger analyze --check"),
            " computes every number again.",
        ),
        facts=(
            Fact(term="Study digest", value=head.study, is_code=True),
            Fact(term="Frozen", value=day(conduct.frozen_at)),
            Fact(term="Completed", value=day(conduct.completed_at) or "not complete"),
            Fact(term="Computed from", value=f"records 0 to {head.head}"),
        ),
        sections=tuple(
            section
            for section in (
                deviations_section(conduct, inputs.amendments, results.code_not_as_frozen),
                flow_section(results),
                primary_section(results, study, inputs.tasks),
                outcome_matrix_section(results, study, inputs.tasks),
                contrasts_section(results),
                effects_section(results),
                secondary_outcomes_section(results),
                resources_section(results, study, inputs.tasks),
                hierarchical_section(results),
                reliability_section(results, study),
                mechanism_section(results),
                gold_symbol_section(results),
                robustness_section(results),
                order_section(inputs.plan, study, inputs.tasks),
                models_section(results),
                isolation_section(conduct),
                task_funnel_section(inputs.mined, inputs.tasks, study),
                readings_section(study.readings),
                amendments_section(inputs.amendments),
                reproduction(inputs),
            )
            if section.blocks
        ),
        computed_from=f"record {head.head}, leaf {head.leaf}",
    )
