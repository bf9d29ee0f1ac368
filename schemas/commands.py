"""Commands: imperative, plain data, one role each.

A command is requested by a person (through the command line) or by an actor that finished another
one, and is taken by exactly one process of its role. The tag is the key ``do`` of the record.
"""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Value
from schemas.identifiers import Identifier
from schemas.transfer.correction import Correction, Name, Timestamp, Words
from schemas.transfer.family import Layer

Role = Literal[
    "operator",
    "scheduler",
    "model_server",
    "cell",
    "test_run",
    "grader",
    "miner",
    "indexer",
    "memory_session",
]


# --- operator: carried out by the command line in its own process ------------------------------


class FreezeTasks(Value, tag_field="do", tag="freeze_tasks"):
    """Fix the split: the validated tasks in mining order."""


class PreparePlan(Value, tag_field="do", tag="prepare_plan"):
    """Compute the order of all cells."""


class FreezeStudy(Value, tag_field="do", tag="freeze_study"):
    """Bind documents, configuration, tasks, plan and code in one event of digests."""


class AmendStudy(Value, tag_field="do", tag="amend_study"):
    """Record a change of something frozen."""

    reason: Annotated[str, Meta(min_length=1, description="why, in the words of who amends")]
    changes_claim: Annotated[
        bool,
        Meta(description="true where the claim of the study changes, in the words of who amends"),
    ]


class InspectOutcomes(Value, tag_field="do", tag="inspect_outcomes"):
    """Open the gate to outcome tables; recorded before anything is shown."""

    reason: Annotated[str, Meta(min_length=1, description="why outcomes are looked at now")]


class StartRun(Value, tag_field="do", tag="start_run"):
    """Begin or resume the execution of the frozen plan."""

    allow_unsafe_sandbox: Annotated[
        bool, Meta(description="go on where no sandbox works; recorded")
    ] = False


class StopRun(Value, tag_field="do", tag="stop_run"):
    """Record that a run ended and why."""

    reason: Annotated[
        Literal["complete", "interrupted", "safety", "failed"],
        Meta(description="how the run ended"),
    ]
    detail: Annotated[str, Meta(description="what exactly happened; empty: nothing to add")]


class AnalyseStudy(Value, tag_field="do", tag="analyse_study"):
    """Compute the declared analyses from the graded cells."""


class WriteReport(Value, tag_field="do", tag="write_report"):
    """Render the report and record its digests."""


class RecordReexecution(Value, tag_field="do", tag="record_reexecution"):
    """Record what re-executing a cell from the log found."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    identical: Annotated[bool, Meta(description="true where every result had the same bytes")]
    compared: Annotated[int, Meta(ge=0, description="results compared by digest")]
    first_difference: Annotated[
        int | None, Meta(description="seq of the first event that diverges; null: none")
    ] = None


class AnchorCheckpoint(Value, tag_field="do", tag="anchor_checkpoint"):
    """Record that a signed checkpoint was put where its owner cannot quietly change it."""

    size: Annotated[int, Meta(ge=1, description="number of records under the checkpoint")]
    note: Annotated[str, Meta(description="the signed note (C2SP)")]
    kind: Annotated[
        Literal["git", "time", "copy"], Meta(description="pushed commit, token or copy")
    ]
    where: Annotated[str, Meta(description="remote, authority or path")]
    receipt: Annotated[str, Meta(description="commit id, base64 token or digest")]


class OpenRepair(Value, tag_field="do", tag="open_repair"):
    """Assign a failed run of a transfer study to its earliest evidenced failing stage."""

    repair: Annotated[Identifier, Meta(description="name of the repair")]
    cell: Annotated[str, Meta(description="the failing run: CASE/MEMORY/DRIVER/TRIAL")]
    layer: Annotated[Layer, Meta(description="what will be changed")]
    manifest: Annotated[
        dict[str, str], Meta(description="layer → digest before; empty where layers are unknown")
    ] = {}


class ChangeRepair(Value, tag_field="do", tag="change_repair"):
    """Record that one layer was changed, by an amendment that added the system's new identity."""

    repair: Annotated[Identifier, Meta(description="name of the repair")]
    memory: Annotated[Identifier, Meta(description="the changed system's memory")]
    driver: Annotated[Identifier, Meta(description="the changed system's driver")]
    manifest: Annotated[dict[str, str], Meta(description="layer → digest after")] = {}


class RerunRepair(Value, tag_field="do", tag="rerun_repair"):
    """Fix which runs a repair needs: the failing case, its controls, a sample of other classes."""

    repair: Annotated[Identifier, Meta(description="name of the repair")]
    sample: Annotated[int, Meta(ge=1, description="cases from the other classes")]


class CloseRepair(Value, tag_field="do", tag="close_repair"):
    """End a repair whose runs exist with unchanged prompts, fixtures and predicates."""

    repair: Annotated[Identifier, Meta(description="name of the repair")]
    limitation: Annotated[str, Meta(min_length=1, description="what is unresolved")]


class AbandonRepair(Value, tag_field="do", tag="abandon_repair"):
    """End a repair that will not be carried on. Its name stays used."""

    repair: Annotated[Identifier, Meta(description="name of the repair")]
    reason: Annotated[str, Meta(min_length=1, description="why it is given up")]


# --- corrections: carried out by the command line too ---------------------------------------------

_Who = Annotated[Name, Meta(description="who it is, as colleagues know them")]
_MaybeWho = Annotated[
    str,
    Meta(max_length=200, description="who it is; needed where consequence is high"),
]
_Reason = Annotated[Words, Meta(description="why")]


class AddCorrections(Value, tag_field="do", tag="add_corrections"):
    """Propose records: all of them, or none."""

    records: Annotated[tuple[Correction, ...], Meta(min_length=1, description="as written")]
    proposer: _Who


class ApproveCorrection(Value, tag_field="do", tag="approve_correction"):
    """Let a proposed record be used."""

    correction_id: Identifier
    approver: _Who
    condition: Annotated[
        str, Meta(max_length=2000, description="under which it may be kept; empty: none")
    ] = ""
    keep_residual_scope: Annotated[
        bool, Meta(description="what it replaces goes on outside its narrower scope")
    ] = False


class SupersedeCorrection(Value, tag_field="do", tag="supersede_correction"):
    """Put an approved record in the place of another one."""

    correction_id: Identifier
    by: Annotated[Identifier, Meta(description="the record that replaces it")]
    reason: _Reason
    approver: _MaybeWho = ""


class ExpireCorrection(Value, tag_field="do", tag="expire_correction"):
    """End the validity of an approved record."""

    correction_id: Identifier
    at: Annotated[Timestamp, Meta(description="first instant at which it no longer holds")]
    reason: _Reason
    approver: _MaybeWho = ""


class DisputeCorrection(Value, tag_field="do", tag="dispute_correction"):
    """Record that two approved records contradict each other."""

    correction_id: Identifier
    against: Annotated[Identifier, Meta(description="the other record")]
    reason: _Reason


class ResolveDispute(Value, tag_field="do", tag="resolve_dispute"):
    """Decide a dispute: the winner stays, the losers become superseded."""

    winner: Annotated[Identifier, Meta(description="record that stays active")]
    losers: Annotated[
        tuple[Identifier, ...], Meta(min_length=1, description="records that become superseded")
    ]
    approver: _Who
    reason: _Reason


class WithdrawCorrection(Value, tag_field="do", tag="withdraw_correction"):
    """Take a record back for ever."""

    correction_id: Identifier
    reason: _Reason
    approver: _MaybeWho = ""


# --- miner ---------------------------------------------------------------------------------------


class MineRepository(Value, tag_field="do", tag="mine_repository"):
    """Walk one repository's history and evaluate every static criterion."""

    repository: Identifier


class ValidateCandidates(Value, tag_field="do", tag="validate_candidates"):
    """Run the three arms on candidates, newest first, until enough tasks are valid."""

    repository: Identifier
    allow_unsafe_sandbox: Annotated[
        bool, Meta(description="go on where no sandbox works; recorded")
    ] = False


# --- scheduler -----------------------------------------------------------------------------------


class ContinueStudy(Value, tag_field="do", tag="continue_study"):
    """Look at what has happened and request what is next."""


# --- model server --------------------------------------------------------------------------------


class EnsureResident(Value, tag_field="do", tag="ensure_resident"):
    """Make this model the only resident one; `cell` is advanced afterwards."""

    model: Annotated[Identifier, Meta(description="model of the study, by its id")]
    cell: Annotated[str, Meta(description="cell that waits for it: UNIT/ARM/AGENT/REPEAT")]
    fresh: Annotated[
        bool,
        Meta(
            description="load it anew even where it is resident: the model that starts a task is "
            "reloaded, so that every block begins alike (interpretations 12)"
        ),
    ] = False


class AskModel(Value, tag_field="do", tag="ask_model"):
    """One turn: send the request to the resident model and record every byte that comes back."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    turn: Annotated[int, Meta(ge=0, description="turn of the cell, from 0")]
    model: Identifier
    request: Annotated[ArtifactRef, Meta(description="JSON of the request")]


class ReleaseModels(Value, tag_field="do", tag="release_models"):
    """Unload whatever is resident: the study needs no model any more."""


# --- cell ----------------------------------------------------------------------------------------


class AdvanceCell(Value, tag_field="do", tag="advance_cell"):
    """Drive the cell's harness from what the log holds to its next outside effect or its end."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]


# --- memory sessions -----------------------------------------------------------------------------


class AdvanceSession(Value, tag_field="do", tag="advance_session"):
    """Drive a case of a transfer study to its end, or to the next answer that a model must give."""

    cell: Annotated[str, Meta(description="CASE/MEMORY/DRIVER/TRIAL")]


# --- test runs and grading -----------------------------------------------------------------------


class RunPublicTests(Value, tag_field="do", tag="run_public_tests"):
    """Run a task's public tests on a candidate, for the agent that asked."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    number: Annotated[int, Meta(ge=0, description="which public test run of the cell, from 0")]
    candidate: Annotated[ArtifactRef, Meta(description="overlay on the base tree, JSON")]


class GradeCell(Value, tag_field="do", tag="grade_cell"):
    """Run the hidden tests on a finished cell's patch, twice, and judge."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]


class CheckGold(Value, tag_field="do", tag="check_gold"):
    """Run the gold patch of a task again: has the test environment drifted?"""

    task: Identifier
    number: Annotated[int, Meta(ge=0, description="0 at the start; counts up through the study")]


Command = (
    FreezeTasks
    | PreparePlan
    | FreezeStudy
    | AmendStudy
    | InspectOutcomes
    | StartRun
    | StopRun
    | AnalyseStudy
    | WriteReport
    | RecordReexecution
    | AnchorCheckpoint
    | OpenRepair
    | ChangeRepair
    | RerunRepair
    | CloseRepair
    | AbandonRepair
    | AddCorrections
    | ApproveCorrection
    | SupersedeCorrection
    | ExpireCorrection
    | DisputeCorrection
    | ResolveDispute
    | WithdrawCorrection
    | MineRepository
    | ValidateCandidates
    | ContinueStudy
    | EnsureResident
    | AskModel
    | ReleaseModels
    | AdvanceCell
    | AdvanceSession
    | RunPublicTests
    | GradeCell
    | CheckGold
)

ROLE_OF: dict[type[Command], Role] = {
    FreezeTasks: "operator",
    PreparePlan: "operator",
    FreezeStudy: "operator",
    AmendStudy: "operator",
    InspectOutcomes: "operator",
    StartRun: "operator",
    StopRun: "operator",
    AnalyseStudy: "operator",
    WriteReport: "operator",
    RecordReexecution: "operator",
    AnchorCheckpoint: "operator",
    OpenRepair: "operator",
    ChangeRepair: "operator",
    RerunRepair: "operator",
    CloseRepair: "operator",
    AbandonRepair: "operator",
    AddCorrections: "operator",
    ApproveCorrection: "operator",
    SupersedeCorrection: "operator",
    ExpireCorrection: "operator",
    DisputeCorrection: "operator",
    ResolveDispute: "operator",
    WithdrawCorrection: "operator",
    MineRepository: "miner",
    ValidateCandidates: "miner",
    ContinueStudy: "scheduler",
    EnsureResident: "model_server",
    AskModel: "model_server",
    ReleaseModels: "model_server",
    AdvanceCell: "cell",
    AdvanceSession: "memory_session",
    RunPublicTests: "test_run",
    GradeCell: "grader",
    CheckGold: "grader",
}
