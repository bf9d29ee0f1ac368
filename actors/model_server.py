"""The model server's actor: the only one that loads, unloads and asks models.

One command at a time, one model resident at a time, one request in flight (``docs/residency.md``).
Whatever the server says is stored as raw bytes before it is believed; whatever is not as frozen is
recorded and stops the run with status 6 and the words a person needs.
"""

import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from actors.loop import Done, Work
from actors.model_turns import JSON, ModelRequest, RecordedAnswer, RecordedCall
from actors.servers.contract import (
    BackPressure,
    ChatAnswer,
    ChatError,
    ChatRequest,
    ForeignResident,
    ModelServer,
    ModelServerError,
    TransportFailure,
    WrongKindOfServer,
)
from actors.servers.contract import Evidence as RawEvidence
from ledger.errors import PreflightMismatch, SafetyStop
from ledger.log import Fact, NewEvent
from projections.fold import fold
from projections.residency import Residency
from schemas.commands import (
    AskModel,
    Command,
    ContinueStudy,
    EnsureResident,
)
from schemas.events.cell import (
    CellStarted,
    FailureKind,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.server import (
    Evidence,
    ModelLoaded,
    ModelLoadStarted,
    ModelLost,
    ModelUnloaded,
    ServerChecked,
    ServerMismatched,
)
from schemas.identifiers import parse_cell_id, server_stream
from schemas.study import Model, Study

MAX_BACK_PRESSURE = 20
MAX_RETRY_AFTER_S = 120
EVENT_STREAM = "text/event-stream"


ENDS_OF_AN_ATTEMPT = (TurnAnswered, TurnFailed, TurnAbandoned)


class ModelServerActor:
    """Handlers over one server. ``residency_known`` is false until this process has compared the
    log's view of the memory with the server's: a predecessor may have died in the middle.
    ``advance``: the command that takes a cell on once its model is there or has answered."""

    def __init__(
        self,
        study: Study,
        server: ModelServer,
        advance: Callable[[str], Command],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._study = study
        self._server = server
        self._advance = advance
        self._sleep = sleep
        self._stream = server_stream(study.server.kind)
        self._residency: Literal["checked", "unobserved"] = (
            "checked" if "residency_control" in server.capabilities else "unobserved"
        )
        if study.server.residency == "checked" and self._residency == "unobserved":
            raise PreflightMismatch(
                "the study demands that at most one model is in memory, and a server of kind "
                f'"{study.server.kind}" does not show it: name "lmstudio", or declare '
                '`server.residency = "unobserved"` before the freeze'
            )
        self._residency_known = False

    # ---- residency ---------------------------------------------------------------------------

    def ensure_resident(self, work: Work) -> Done:
        """Make the command's model the only resident one, then advance the cell."""
        command: EnsureResident = work.command
        if command.model not in {model.id for model in self._study.models}:
            # An amendment before the first cell took it away; who runs the cell knows.
            return Done(requests=[self._advance(command.cell)])
        model = self._study.model(command.model)
        try:
            self._reconcile(work)
            resident = self._logged(work)
            loaded_now = any(
                isinstance(fact.event, ModelLoaded) and fact.cause == work.command_id
                for fact in work.facts(self._stream)
            )
            if resident.model != model.id or (command.fresh and not loaded_now):
                self._unload(work, resident)
                self._load(work, model)
        except ModelServerError as error:
            raise self._mismatch(work, command.model, error) from error
        return Done(requests=[self._advance(command.cell)])

    def release_models(self, work: Work) -> Done:
        """Unload what is resident; the study goes on without a model."""
        try:
            self._reconcile(work)
            self._unload(work, self._logged(work))
        except ModelServerError as error:
            raise self._mismatch(work, "", error) from error
        return Done(requests=[ContinueStudy()])

    def _logged(self, work: Work) -> Residency:
        return fold(Residency(), work.facts(self._stream))

    def _reconcile(self, work: Work) -> None:
        """Once a process: is in memory what the log says? What an earlier process left behind in
        the middle of a load or an unload is settled here, by looking, never by assuming."""
        if self._residency_known:
            return
        logged = self._logged(work)
        if self._residency == "unobserved":
            # Nothing shows what is in memory: a new process looks at the listing again.
            self._unload(work, logged)
            self._residency_known = True
            return
        seen = self._server.residents()
        self._require_kind(seen.simulated, seen.evidence)
        evidence = self._keep(work, seen.evidence)
        instances = [resident.instance_id for resident in seen.instances]
        unknown = [instance for instance in instances if instance != logged.instance]
        if logged.instance and logged.instance not in instances:
            lost = ModelLost(model=logged.model, instance=logged.instance, evidence=evidence)
            work.commit([NewEvent(self._stream, lost)])
        if unknown and logged.loading and not logged.instance and len(unknown) == 1:
            # A load was sent and nobody recorded its end. The instance was never asked anything,
            # so it is unloaded, and loaded again under all checks.
            unloaded = self._server.unload(unknown[0])
            self._require_kind(unloaded.simulated, unloaded.evidence)
            gone = ModelUnloaded(
                model=logged.loading,
                instance=unknown[0],
                duration_ns=unloaded.duration_ns,
                evidence=(*evidence, *self._keep(work, unloaded.evidence)),
            )
            work.commit([NewEvent(self._stream, gone)])
        elif unknown:
            raise ForeignResident(
                f"in memory, but not loaded by this study: {', '.join(unknown)}",
                remedy="Unload it in LM Studio (`lms unload --all`), then run again.",
                evidence=seen.evidence,
            )
        self._residency_known = True

    def _load(self, work: Work, model: Model) -> None:
        checked = self._server.preflight(model)
        looked = NewEvent(
            self._stream,
            ServerChecked(
                server=self._study.server.kind,
                simulated=checked.simulated,
                evidence=self._keep(work, checked.evidence),
            ),
        )
        if checked.simulated != self._study.simulated:
            work.commit([looked])
        self._require_kind(checked.simulated, checked.evidence)
        work.commit([looked, NewEvent(self._stream, ModelLoadStarted(model=model.id))])
        loaded = self._server.load(model)
        self._require_kind(loaded.simulated, loaded.evidence)
        work.commit(
            [
                NewEvent(
                    self._stream,
                    ModelLoaded(
                        model=model.id,
                        instance=loaded.instance_id,
                        duration_ns=loaded.duration_ns,
                        simulated=loaded.simulated,
                        evidence=self._keep(work, loaded.evidence),
                        residency=self._residency,
                    ),
                )
            ]
        )

    def _unload(self, work: Work, resident: Residency) -> None:
        if not resident.instance:
            return
        unloaded = self._server.unload(resident.instance)
        self._require_kind(unloaded.simulated, unloaded.evidence)
        work.commit(
            [
                NewEvent(
                    self._stream,
                    ModelUnloaded(
                        model=resident.model,
                        instance=resident.instance,
                        duration_ns=unloaded.duration_ns,
                        evidence=self._keep(work, unloaded.evidence),
                        residency=self._residency,
                    ),
                )
            ]
        )

    def _require_kind(self, simulated: bool | None, evidence: Sequence[RawEvidence]) -> None:
        """Every answer comes from the kind of server that was frozen, or is not accepted. None:
        nothing answered. Raises WrongKindOfServer."""
        if simulated is None or simulated == self._study.simulated:
            return
        if simulated:
            raise WrongKindOfServer(
                "a stand-in answers, and this study asks real models",
                remedy="Stop it, and let LM Studio answer at the study's `server.url`.",
                evidence=evidence,
            )
        raise WrongKindOfServer(
            "a real server answers, and this study is a rehearsal",
            remedy="`ledger run` starts the stand-in itself; name no other server.",
            evidence=evidence,
        )

    def _mismatch(self, work: Work, model: str, error: ModelServerError) -> PreflightMismatch:
        self._residency_known = False
        work.commit(
            [
                NewEvent(
                    self._stream,
                    ServerMismatched(
                        model=model,
                        problem=f"{error.kind}: {error}",
                        evidence=self._keep(work, error.evidence),
                    ),
                )
            ]
        )
        return PreflightMismatch(f"model server: {error}")

    # ---- turns -------------------------------------------------------------------------------

    def ask_model(self, work: Work) -> Done:
        """Send one turn. Recorded before it is sent; sent again only as a recorded attempt.

        Attempts are those of the turn, whoever made them: the command may be the second one for
        it, where the first was refused because something was not as frozen.
        """
        command: AskModel = work.command
        stream = parse_cell_id(command.cell).stream
        facts = _of_this_attempt(work.facts(stream), command.turn)
        started = [fact.event for fact in facts if isinstance(fact.event, TurnStarted)]
        ended = [fact.event for fact in facts if isinstance(fact.event, ENDS_OF_AN_ATTEMPT)]
        if any(isinstance(end, TurnAnswered) or _is_final(end) for end in ended):
            return Done()  # the command that ended the turn has requested what follows
        retried = any(isinstance(end, TurnFailed) for end in ended)
        closed = {end.attempt for end in ended}
        abandoned = [
            NewEvent(
                stream,
                TurnAbandoned(
                    turn=command.turn,
                    attempt=turn.attempt,
                    reason="the process that waited for the answer was lost",
                ),
            )
            for turn in started
            if turn.attempt not in closed
        ]
        request = msgspec.json.decode(work.artifacts.get(command.request), type=ModelRequest)
        attempt = len(started)
        while True:
            try:
                self._reconcile(work)
                if not self._logged(work).instance:
                    # The server was restarted in the middle of the cell: load again, then ask.
                    if abandoned:
                        work.commit(abandoned)
                        abandoned = []
                    self._load(work, self._study.model(command.model))
            except ModelServerError as error:
                raise self._mismatch(work, command.model, error) from error
            instance = self._logged(work).instance
            begin = TurnStarted(
                turn=command.turn, attempt=attempt, request=command.request, instance=instance
            )
            work.commit([*abandoned, NewEvent(stream, begin)])
            abandoned = []
            try:
                answer, waits = self._chat(instance, request)
            except ChatError as error:
                # The server may be gone: whatever is done next begins with a look at it.
                self._residency_known = False
                retry = isinstance(error, TransportFailure) and not retried
                raw = b"".join(piece.content for piece in error.evidence)
                failed = TurnFailed(
                    turn=command.turn,
                    attempt=attempt,
                    kind=msgspec.convert(error.kind, FailureKind),
                    detail=str(error)[:500],
                    response=work.artifacts.put(raw, EVENT_STREAM),
                    retry=retry,
                )
                if retry:
                    work.commit([NewEvent(stream, failed)])
                    retried = True
                    attempt += 1
                    continue
                return Done([NewEvent(stream, failed)], [self._advance(command.cell)])
            except ModelServerError as error:
                raise self._mismatch(work, command.model, error) from error
            return Done(
                [NewEvent(stream, _answered(work, command.turn, attempt, answer, waits))],
                [self._advance(command.cell)],
            )

    def _chat(self, instance: str, request: ModelRequest) -> tuple[ChatAnswer, int]:
        """One request; waits where the server asks to (not a retry). Returns the waits too."""
        chat = ChatRequest(
            messages=request.messages,
            tools=request.tools,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            max_tokens=request.max_tokens,
            reasoning=request.reasoning,
            answer_schema=request.answer_schema or None,
        )
        for waits in range(MAX_BACK_PRESSURE):
            try:
                answer = self._server.chat(instance, chat)
                self._require_kind(answer.simulated, answer.evidence)
                return answer, waits
            except ChatError as error:
                self._require_kind(error.simulated, error.evidence)
                if not isinstance(error, BackPressure):
                    raise
                self._sleep(min(error.retry_after_s or 1, MAX_RETRY_AFTER_S))
        raise SafetyStop(
            f"the model server asked to wait {MAX_BACK_PRESSURE} times in a row: let it recover, "
            "then `ledger run` goes on"
        )

    def _keep(self, work: Work, evidence: Sequence[RawEvidence]) -> tuple[Evidence, ...]:
        return tuple(
            Evidence(label=piece.label, content=work.artifacts.put(piece.content, JSON))
            for piece in evidence
        )


def _of_this_attempt(facts: Sequence[Fact], turn: int) -> list[Fact]:
    """What the log holds of one turn, in the cell's attempt that is going on."""
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact.event, CellStarted):
            found = []
        elif isinstance(fact.event, (TurnStarted, *ENDS_OF_AN_ATTEMPT)) and fact.event.turn == turn:
            found.append(fact)
    return found


def _is_final(end: TurnAnswered | TurnFailed | TurnAbandoned) -> bool:
    return isinstance(end, TurnFailed) and not end.retry


def _answered(work: Work, turn: int, attempt: int, answer: ChatAnswer, waits: int) -> TurnAnswered:
    reply = answer.reply
    recorded = RecordedAnswer(
        content=reply.content,
        reasoning=reply.reasoning,
        calls=tuple(
            RecordedCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in reply.tool_calls
        ),
        finish_reason=reply.finish_reason or "",
    )
    return TurnAnswered(
        turn=turn,
        attempt=attempt,
        response=work.artifacts.put(answer.stream, EVENT_STREAM),
        answer=work.artifacts.put(msgspec.json.encode(recorded), JSON),
        finish_reason=reply.finish_reason or "",
        prompt_tokens=reply.usage.prompt_tokens if reply.usage else None,
        completion_tokens=reply.usage.completion_tokens if reply.usage else None,
        first_token_ns=answer.first_token_ns or 0,
        duration_ns=answer.total_ns,
        back_pressure=waits,
        simulated=answer.simulated,
    )
