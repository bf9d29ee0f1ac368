"""Commands: imperative, plain data, one role each.

A command is requested by a person (through the command line) or by an actor that finished another
one, and is taken by exactly one process of its role. The tag is the key ``do`` of the record.
"""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from schemas.base import ArtifactRef, Value, ValueMeta
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


class _CommandMeta(ValueMeta):
    """Takes the role out of the class's options."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        role: Role | None = None,
        **options: Any,
    ) -> Any:
        made = super().__new__(mcls, name, bases, namespace, **options)
        if role is not None:
            made.ROLE = role
        return made


class Command(Value, metaclass=_CommandMeta, tag_field="do"):
    """What is asked for. Each kind of command has one role, and its tag in the record."""

    ROLE: ClassVar[Role]


# --- operator: carried out by the command line in its own process ------------------------------


class FreezeTasks(Command, tag="freeze_tasks", role="operator"):
    """Fix the split: the validated tasks in mining order."""


class PreparePlan(Command, tag="prepare_plan", role="operator"):
    """Compute the order of all cells."""


class FreezeStudy(Command, tag="freeze_study", role="operator"):
    """Bind documents, configuration, tasks, plan and code in one event of digests."""


class AmendStudy(Command, tag="amend_study", role="operator"):
    """Record a change of something frozen."""

    reason: Annotated[str, Meta(min_length=1, description="why, in the words of who amends")]
    changes_claim: Annotated[
        bool,
        Meta(description="true where the claim of the study changes, in the words of who amends"),
    ]


class RegisterStudy(Command, tag="register_study", role="operator"):
    """Record where the card of the frozen study was deposited."""

    card: Annotated[ArtifactRef, Meta(description="the card, as it was deposited")]
    where: Annotated[str, Meta(min_length=1, max_length=2000, description="registry and entry")]
    receipt: Annotated[ArtifactRef, Meta(description="what the registry gave back")]


class InspectOutcomes(Command, tag="inspect_outcomes", role="operator"):
    """Open the gate to outcome tables; recorded before anything is shown."""

    reason: Annotated[str, Meta(min_length=1, description="why outcomes are looked at now")]


class StartRun(Command, tag="start_run", role="operator"):
    """Begin or resume the execution of the frozen plan."""

    allow_unsafe_sandbox: Annotated[
        bool, Meta(description="go on where no sandbox works; recorded")
    ] = False


class StopRun(Command, tag="stop_run", role="operator"):
    """Record that a run ended and why."""

    reason: Annotated[
        Literal["complete", "interrupted", "safety", "failed"],
        Meta(description="how the run ended"),
    ]
    detail: Annotated[str, Meta(description="what exactly happened; empty: nothing to add")]


class AnalyseStudy(Command, tag="analyse_study", role="operator"):
    """Compute the declared analyses from the graded cells."""


class WriteReport(Command, tag="write_report", role="operator"):
    """Render the report and record its digests."""


class RecordReexecution(Command, tag="record_reexecution", role="operator"):
    """Record what re-executing a cell from the log found."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    identical: Annotated[bool, Meta(description="true where every result had the same bytes")]
    compared: Annotated[int, Meta(ge=0, description="results compared by digest")]
    first_difference: Annotated[
        int | None, Meta(description="seq of the first event that diverges; null: none")
    ] = None


class AnchorCheckpoint(Command, tag="anchor_checkpoint", role="operator"):
    """Record that a signed checkpoint was put where its owner cannot quietly change it."""

    size: Annotated[int, Meta(ge=1, description="number of records under the checkpoint")]
    note: Annotated[str, Meta(description="the signed note (C2SP)")]
    kind: Annotated[
        Literal["git", "time", "copy"], Meta(description="pushed commit, token or copy")
    ]
    where: Annotated[str, Meta(description="remote, authority or path")]
    receipt: Annotated[str, Meta(description="commit id, base64 token or digest")]


class OpenRemediation(Command, tag="open_remediation", role="operator"):
    """Assign a failed run of a transfer study to its earliest evidenced failing stage."""

    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    cell: Annotated[str, Meta(description="the failing run: CASE/MEMORY/DRIVER/TRIAL")]
    layer: Annotated[Layer, Meta(description="what will be changed")]
    manifest: Annotated[
        dict[str, str], Meta(description="layer → digest before; empty where layers are unknown")
    ] = {}


class ChangeRemediation(Command, tag="change_remediation", role="operator"):
    """Record that one layer was changed, by an amendment that added the system's new identity."""

    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    memory: Annotated[Identifier, Meta(description="the changed system's memory")]
    driver: Annotated[Identifier, Meta(description="the changed system's driver")]
    manifest: Annotated[dict[str, str], Meta(description="layer → digest after")] = {}


class RerunRemediation(Command, tag="rerun_remediation", role="operator"):
    """Fix which runs a remediation needs: the failing case, its controls, a sample of other
    classes."""

    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    sample: Annotated[int, Meta(ge=1, description="cases from the other classes")]


class CloseRemediation(Command, tag="close_remediation", role="operator"):
    """End a remediation whose runs exist with unchanged prompts, fixtures and predicates."""

    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    limitation: Annotated[str, Meta(min_length=1, description="what is unresolved")]


class AbandonRemediation(Command, tag="abandon_remediation", role="operator"):
    """End a remediation that will not be carried on. Its name stays used."""

    remediation: Annotated[Identifier, Meta(description="name of the remediation")]
    reason: Annotated[str, Meta(min_length=1, description="why it is given up")]


# --- corrections: carried out by the command line too ---------------------------------------------

_Who = Annotated[Name, Meta(description="who it is, as colleagues know them")]
_MaybeWho = Annotated[
    str,
    Meta(max_length=200, description="who it is; needed where consequence is high"),
]
_Reason = Annotated[Words, Meta(description="why")]


class AddCorrections(Command, tag="add_corrections", role="operator"):
    """Propose records: all of them, or none."""

    records: Annotated[tuple[Correction, ...], Meta(min_length=1, description="as written")]
    proposer: _Who


class ApproveCorrection(Command, tag="approve_correction", role="operator"):
    """Let a proposed record be used."""

    correction_id: Identifier
    approver: _Who
    condition: Annotated[
        str, Meta(max_length=2000, description="under which it may be kept; empty: none")
    ] = ""
    keep_residual_scope: Annotated[
        bool, Meta(description="what it replaces goes on outside its narrower scope")
    ] = False


class SupersedeCorrection(Command, tag="supersede_correction", role="operator"):
    """Put an approved record in the place of another one."""

    correction_id: Identifier
    by: Annotated[Identifier, Meta(description="the record that replaces it")]
    reason: _Reason
    approver: _MaybeWho = ""


class ExpireCorrection(Command, tag="expire_correction", role="operator"):
    """End the validity of an approved record."""

    correction_id: Identifier
    at: Annotated[Timestamp, Meta(description="first instant at which it no longer holds")]
    reason: _Reason
    approver: _MaybeWho = ""


class DisputeCorrection(Command, tag="dispute_correction", role="operator"):
    """Record that two approved records contradict each other."""

    correction_id: Identifier
    against: Annotated[Identifier, Meta(description="the other record")]
    reason: _Reason


class ResolveDispute(Command, tag="resolve_dispute", role="operator"):
    """Decide a dispute: the winner stays, the losers become superseded."""

    winner: Annotated[Identifier, Meta(description="record that stays active")]
    losers: Annotated[
        tuple[Identifier, ...], Meta(min_length=1, description="records that become superseded")
    ]
    approver: _Who
    reason: _Reason


class WithdrawCorrection(Command, tag="withdraw_correction", role="operator"):
    """Take a record back for ever."""

    correction_id: Identifier
    reason: _Reason
    approver: _MaybeWho = ""


# --- miner ---------------------------------------------------------------------------------------


class MineRepository(Command, tag="mine_repository", role="miner"):
    """Walk one repository's history and evaluate every static criterion."""

    repository: Identifier


class ValidateCandidates(Command, tag="validate_candidates", role="miner"):
    """Run the three arms on candidates, newest first, until enough tasks are valid."""

    repository: Identifier
    allow_unsafe_sandbox: Annotated[
        bool, Meta(description="go on where no sandbox works; recorded")
    ] = False


# --- scheduler -----------------------------------------------------------------------------------


class ContinueStudy(Command, tag="continue_study", role="scheduler"):
    """Look at what has happened and request what is next."""


# --- model server --------------------------------------------------------------------------------


class EnsureResident(Command, tag="ensure_resident", role="model_server"):
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


class AskModel(Command, tag="ask_model", role="model_server"):
    """One turn: send the request to the resident model and record every byte that comes back."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    turn: Annotated[int, Meta(ge=0, description="turn of the cell, from 0")]
    model: Identifier
    request: Annotated[ArtifactRef, Meta(description="JSON of the request")]


class ReleaseModels(Command, tag="release_models", role="model_server"):
    """Unload whatever is resident: the study needs no model any more."""


# --- cell ----------------------------------------------------------------------------------------


class AdvanceCell(Command, tag="advance_cell", role="cell"):
    """Drive the cell's harness from what the log holds to its next outside effect or its end."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]


# --- memory sessions -----------------------------------------------------------------------------


class AdvanceSession(Command, tag="advance_session", role="memory_session"):
    """Drive a case of a transfer study to its end, or to the next answer that a model must give."""

    cell: Annotated[str, Meta(description="CASE/MEMORY/DRIVER/TRIAL")]


# --- test runs and grading -----------------------------------------------------------------------


class RunPublicTests(Command, tag="run_public_tests", role="test_run"):
    """Run a task's public tests on a candidate, for the agent that asked."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]
    number: Annotated[int, Meta(ge=0, description="which public test run of the cell, from 0")]
    candidate: Annotated[ArtifactRef, Meta(description="overlay on the base tree, JSON")]


class GradeCell(Command, tag="grade_cell", role="grader"):
    """Run the hidden tests on a finished cell's patch, twice, and judge."""

    cell: Annotated[str, Meta(description="UNIT/ARM/AGENT/REPEAT")]


class CheckGold(Command, tag="check_gold", role="grader"):
    """Run the gold patch of a task again: has the test environment drifted?"""

    task: Identifier
    number: Annotated[int, Meta(ge=0, description="0 at the start; counts up through the study")]


ALL_COMMANDS: tuple[type[Command], ...] = tuple(
    value for value in list(vars().values()) if isinstance(value, type) and hasattr(value, "ROLE")
)
if TYPE_CHECKING:
    AnyCommand = Command
else:
    # What a record may hold; its tag says which.
    AnyCommand = functools.reduce(operator.or_, ALL_COMMANDS)
