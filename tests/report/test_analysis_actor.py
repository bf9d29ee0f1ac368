"""When an analysis and a report may be made, what they record, and that they can be made again."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from actors.loop import carry_out
from actors.repair.analysis import ANALYSIS
from actors.study.analysis import compute, handlers, last_analysis, report_files
from actors.study.components import Component, Identity, identity
from ledger.checkpoint import Checkpoint, sign_checkpoint
from ledger.errors import Integrity, Refused
from ledger.log import decode
from ledger.merkle import tree_root
from ledger.signing_keys import load_or_create_signing_key
from projections.repair.results import Results
from projections.results import encode_results
from schemas.base import Event
from schemas.commands import AnalyseStudy, WriteReport
from schemas.events.command import CommandCompleted, CommandRefused, CommandRequested
from schemas.events.study import AnalysisCompleted, ReportWritten
from tests.report.conftest import Make, context_of, reported
from tests.report.small_study import RAN, TOML, SmallStudy


def order(study: SmallStudy, command: AnalyseStudy | WriteReport) -> list[Event]:
    """Carry out one command; the events after its request."""
    before = len(study.facts())
    carry_out(context_of(study), command, handlers(ANALYSIS))
    return [fact.event for fact in study.facts()[before + 1 :]]


def refusal(study: SmallStudy, command: AnalyseStudy | WriteReport) -> str:
    """Why the command was refused; the refusal is its only record."""
    before = len(study.facts())
    with pytest.raises(Refused) as refused:
        carry_out(context_of(study), command, handlers(ANALYSIS))
    request, end = (fact.event for fact in study.facts()[before:])
    assert isinstance(request, CommandRequested)
    assert isinstance(end, CommandRefused) and end.exit_status == 1
    assert end.reason == str(refused.value)
    return end.reason


def test_an_analysis_names_the_last_record_that_it_read(make: Make) -> None:
    study = make()
    study.write_complete()
    analysed, completed = order(study, AnalyseStudy())
    assert isinstance(analysed, AnalysisCompleted) and isinstance(completed, CommandCompleted)
    records = list(study.log.read())
    assert analysed.head == len(records) - 3  # the request itself was the head
    assert analysed.leaf == records[analysed.head].leaf.hex()
    content = study.artifacts.get(analysed.results)
    results = msgspec.json.decode(content, type=Results)
    assert results.computed_from.head == analysed.head
    assert results.computed_from.leaf == analysed.leaf
    assert results.computed_from.study == study.frozen.digest
    assert encode_results(compute(context_of(study), ANALYSIS, analysed.head)) == content


def test_a_report_names_the_head_of_its_analysis_and_its_bytes(make: Make) -> None:
    study = make()
    study.write_complete()
    order(study, AnalyseStudy())
    written, _ = order(study, WriteReport())
    assert isinstance(written, ReportWritten)
    _, analysis = last_analysis(context_of(study))
    head, files = report_files(context_of(study), ANALYSIS)
    assert written.head == head == analysis.head
    assert study.artifacts.get(written.html) == files["report.html"]
    assert study.artifacts.get(written.markdown) == files["report.md"]
    assert sha256(files["results.json"]).hexdigest() == analysis.results.digest
    assert set(files) == {
        "report.html",
        "report.md",
        "cells.csv",
        "results.json",
        "PROTOCOL_AMENDMENTS.md",
    }


def test_a_report_can_be_made_again_byte_for_byte(make: Make) -> None:
    study = make()
    study.write_complete()
    first = reported(study)
    study.inspect("somebody looked once more")  # changes nothing that the report says
    order(study, WriteReport())
    assert report_files(context_of(study), ANALYSIS)[1] == first


def test_only_declared_events_are_emitted(make: Make) -> None:
    study = make()
    study.write_complete()
    made = [*order(study, AnalyseStudy()), *order(study, WriteReport())]
    emitted = {type(event) for event in made} - {CommandCompleted}
    assert emitted == {AnalysisCompleted, ReportWritten}


# --- refusals ------------------------------------------------------------------------------------


def test_nothing_is_analysed_before_the_freeze(make: Make) -> None:
    study = make()
    study.create()
    study.mine_all()
    assert "not frozen" in refusal(study, AnalyseStudy())


def test_a_study_that_grades_at_the_end_must_be_complete(make: Make) -> None:
    study = make()
    study.create()
    study.write_run()
    study.inspect()
    reason = refusal(study, AnalyseStudy())
    assert "12 of 12 cells ended, 0 graded" in reason
    assert "`ledger run` goes on" in reason


def test_an_analysis_needs_an_inspection_before_it(make: Make) -> None:
    study = make()
    study.create()
    study.write_run()
    study.grade_everything()
    assert "--reason" in refusal(study, AnalyseStudy())
    study.inspect()
    assert isinstance(order(study, AnalyseStudy())[0], AnalysisCompleted)


def test_a_study_that_grades_beside_may_be_analysed_on_the_way(make: Make) -> None:
    beside = TOML.replace("simulated = true", "simulated = true\npreregistered = false")
    beside = beside.replace("[analysis]", '[grading]\nwhen = "beside"\n\n[analysis]')
    ran = {
        name: replace(one, graded=False) if name.startswith("R002") else one
        for name, one in RAN.items()
    }
    study = make(toml=beside, ran=ran)
    study.write_complete()
    report = reported(study)["report.md"].decode()
    results = compute(context_of(study), ANALYSIS)
    assert results.interim
    assert results.flow[0].without_verdict == 3  # the fourth ended by infrastructure
    assert "Interim: 3 planned cells without a verdict yet." in report


def test_a_report_needs_an_analysis(make: Make) -> None:
    study = make()
    study.write_complete()
    assert "`ledger analyze" in refusal(study, WriteReport())


def test_a_report_of_an_outdated_analysis_is_refused(make: Make) -> None:
    study = make()
    study.write_complete()
    order(study, AnalyseStudy())
    study.amend_to(TOML, "after_inspection")
    reason = refusal(study, WriteReport())
    assert "amendment.recorded.v2" in reason and "again" in reason
    order(study, AnalyseStudy())
    assert isinstance(order(study, WriteReport())[0], ReportWritten)


def test_results_of_another_version_are_refused(make: Make) -> None:
    study = make()
    study.write_complete()
    head = study.log.head()
    assert head is not None
    old = study.artifacts.put(b'{"format":0}', "application/json")
    study.append("study", AnalysisCompleted(head=head.seq, leaf=head.leaf.hex(), results=old))
    assert "another version" in refusal(study, WriteReport())


# --- what else goes in ---------------------------------------------------------------------------


def test_code_that_is_not_as_frozen_is_named(make: Make) -> None:
    here = identity(Component("analysis", ("projections.repair.declared_analyses",)))
    files = {**here.files, "projections/gone.py": "0" * 64}
    files["projections/analyses/mcnemar.py"] = "0" * 64
    del files["projections/fold.py"]  # new since then
    study = make(changed={"analysis": Identity(files, {**here.libraries, "numpy": "1.0"})})
    study.write_complete()
    (said,) = compute(context_of(study), ANALYSIS).code_not_as_frozen
    assert said == (
        "analysis: projections/analyses/mcnemar.py differs, projections/fold.py is new, "
        "projections/gone.py is gone and 1 more"
    )
    page = reported(study)["report.md"].decode()
    assert "not as frozen: analysis: projections/analyses/mcnemar.py differs" in page
    as_frozen = make()
    as_frozen.write_complete()
    assert compute(context_of(as_frozen), ANALYSIS).code_not_as_frozen == ()


def signed(study: SmallStudy, size: int, root: bytes, home: Path) -> bytes:
    home.mkdir(mode=0o700, exist_ok=True)
    checkpoint = Checkpoint("small/tiny", size, root)
    return sign_checkpoint(checkpoint, load_or_create_signing_key(home)) + b"\n"


def test_the_first_checkpoint_that_covers_the_head_is_cited(make: Make, tmp_path: Path) -> None:
    study = make()
    study.write_complete()
    order(study, AnalyseStudy())
    leaves = [stored.leaf for stored in study.log.read()]
    _, analysis = last_analysis(context_of(study))
    home = tmp_path / "home"
    sizes = (5, len(leaves) - 1, len(leaves))
    study.directory.checkpoints.write_bytes(
        b"".join(signed(study, size, tree_root(leaves[:size]), home) for size in sizes)
    )
    page = report_files(context_of(study), ANALYSIS)[1]["report.md"].decode()
    assert f"Root of {analysis.head + 1} records" in page
    assert tree_root(leaves[: analysis.head + 1]).hex() in page
    cited = f"{len(leaves) - 1} records of small/tiny, root "
    assert cited + tree_root(leaves[: len(leaves) - 1]).hex() in page


def test_a_checkpoint_with_another_root_stops_the_report(make: Make, tmp_path: Path) -> None:
    study = make()
    study.write_complete()
    order(study, AnalyseStudy())
    size = sum(1 for _ in study.log.read())
    study.directory.checkpoints.write_bytes(signed(study, size, b"\0" * 32, tmp_path / "home"))
    with pytest.raises(Integrity, match="verify-chain"):
        report_files(context_of(study), ANALYSIS)


def test_the_analysis_reads_nothing_after_its_head(make: Make) -> None:
    study = make()
    study.write_complete()
    head = study.log.head()
    assert head is not None
    before = encode_results(compute(context_of(study), ANALYSIS, head.seq))
    study.amend_to(TOML.replace("[analysis]", "[analysis]\nalpha = 0.5"), "after_inspection")
    assert encode_results(compute(context_of(study), ANALYSIS, head.seq)) == before
    assert encode_results(compute(context_of(study), ANALYSIS)) != before
    assert decode(next(study.log.read(head.seq))).seq == head.seq
