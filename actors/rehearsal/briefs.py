"""Starting the stand-in for a rehearsal and telling its agents about the tasks.

The only place that hands gold to a server. An import contract keeps this module and the agent away
from every other server; the stand-in takes briefs only in a study that says ``simulated``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from actors.loop import Context
from actors.rehearsal.simulated_agent import Brief, GoldFile
from actors.rehearsal.stand_in_process import StandInProcess, port_of_last_time
from actors.rehearsal.stand_in_state import catalogue_with
from actors.repair.frozen_study import FrozenStudy
from ledger.errors import Refused
from projections.fold import fold
from projections.progress import Progress
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


@contextmanager
def start_stand_in(context: Context) -> Iterator[StandInProcess]:
    """A running stand-in whose agents know the tasks of the frozen, simulated study. A transfer
    study has none: its agents know what a session tells them."""
    study = fold(Progress(context.artifacts.get), context.study_facts()).study
    if study is None:
        raise Refused("the study is not frozen: `ledger freeze` first")
    directory = context.directory.run / "stand_in"
    port = port_of_last_time(directory)
    briefs: list[Brief] = []
    if isinstance(study, RepairStudy):
        frozen = FrozenStudy(context)
        briefs = [_brief(context, frozen, task) for task in frozen.tasks.values()]
    catalogue = directory / "catalogue.json"
    directory.mkdir(parents=True, exist_ok=True)
    catalogue.write_bytes(catalogue_with(study.models))
    with StandInProcess(
        directory, simulated_study=study.simulated, port=port, catalogue=catalogue
    ) as stand_in:
        agents = {model.key: model.rehearsal for model in study.models if model.rehearsal}
        stand_in.admin.rehearse(agents, briefs)
        yield stand_in


def _brief(context: Context, frozen: FrozenStudy, task: Task) -> Brief:
    """Statement digest and gold files of a task. Files that are not UTF-8 are left out: the agent
    speaks JSON."""
    base = frozen.base(task).snapshot
    gold: dict[str, GoldFile] = {}
    for state in task.gold.write:
        before = base.by_path.get(state.path)
        try:
            gold[state.path] = GoldFile(
                before=before.content.decode() if before else None,
                after=context.artifacts.get(state.content).decode(),
            )
        except UnicodeDecodeError:
            continue
    for path in task.gold.delete:
        if path in base.by_path:
            gold[path] = GoldFile(
                before=base.by_path[path].content.decode("utf-8", "replace"), after=None
            )
    statement = context.artifacts.get(task.statement)
    return Brief(statement=sha256(statement).hexdigest(), task=task.id, gold=gold)
