"""What simulated agents are told of the tasks of a frozen rehearsal.

The only place that hands gold to a server: the stand-in takes briefs only in a study that says
``simulated``.
"""

from hashlib import sha256

from actors.loop import Context
from actors.rehearsal.simulated_agent import Brief, GoldFile
from actors.repair.frozen_study import FrozenRepair
from schemas.repair.task import Task


def briefs(context: Context) -> list[Brief]:
    frozen = FrozenRepair(context)
    return [_brief(context, frozen, task) for task in frozen.tasks.values()]


def _brief(context: Context, frozen: FrozenRepair, task: Task) -> Brief:
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
