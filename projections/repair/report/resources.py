"""What the cells cost."""

from collections.abc import Mapping

from projections.repair.report.phrases import arm_name, value_range
from projections.repair.results import Results
from projections.report.model import (
    Block,
    Section,
    Table,
    columns,
)
from projections.report.numbers import (
    count,
    mean,
    ratio,
    seconds,
    share,
)
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task


def resources_section(results: Results, study: RepairStudy, tasks: Mapping[str, Task]) -> Section:
    spent = Table(
        caption="What the cells spent",
        columns=columns(
            "arm",
            *("cells", "turns", "tool calls", "test runs", "prompt tokens", "completion tokens"),
            *("turns without a token count", "model time"),
            numbers=True,
        ),
        rows=tuple(
            (
                arm_name(arm),
                count(arm.resolved.of),
                mean(arm.turns, arm.resolved.of),
                mean(arm.tool_calls, arm.resolved.of),
                mean(arm.test_runs, arm.resolved.of),
                mean(arm.prompt_tokens, arm.resolved.of),
                mean(arm.completion_tokens, arm.resolved.of),
                count(arm.usage_unknown),
                seconds(arm.model_ns),
            )
            for arm in results.arms
        ),
        note="Sums over analysed cells, their last attempt only.",
    )
    cost = Table(
        caption="Cost of a resolved task, as a ratio of sums",
        columns=columns("arm", "resolved", "tokens", "model seconds", numbers=True),
        rows=tuple(
            (
                arm_name(arm),
                share(arm.resolved),
                ratio(arm.tokens_per_success),
                ratio(arm.model_s_per_success),
            )
            for arm in results.arms
        ),
    )
    switches = results.model_switches
    most_resident = (
        str(switches.most_resident)
        if study.server.residency == "checked"
        else "not demanded by this study, and no claim of it"
    )
    loads = Table(
        caption="Model loads",
        columns=columns("model", "loads", "time to load", "time to unload", numbers=True),
        rows=tuple(
            (each.model, count(each.loads), seconds(each.load_ns), seconds(each.unload_ns))
            for each in switches.models
        ),
        note=f"Loads of another model than before: {count(switches.switches)}; models lost: "
        f"{switches.lost}; most resident at once: {most_resident}.",
    )
    return Section(
        id="resources",
        title="Resources",
        blocks=(spent, cost, loads, *_repository_sizes(results, study, tasks)),
    )


def _repository_sizes(
    results: Results, study: RepairStudy, tasks: Mapping[str, Task]
) -> list[Block]:
    """Whether the whole repository would have fitted into a prompt."""
    rows = []
    for repository in study.repositories:
        sizes = [task.size for task in tasks.values() if task.repository == repository.id]
        if sizes:
            rows.append(
                (
                    repository.id,
                    count(len(sizes)),
                    value_range(size.bytes for size in sizes),
                    value_range(size.source_files for size in sizes),
                    value_range(size.source_lines for size in sizes),
                    value_range(size.estimated_tokens for size in sizes),
                )
            )
    return [
        Table(
            caption="Size of the base trees",
            columns=columns(
                "repository",
                *("tasks", "bytes", "source files", "source lines", "estimated tokens"),
                numbers=True,
            ),
            rows=tuple(rows),
            note=f"Smallest to largest. {_contexts(results)}".strip(),
        )
    ]


def _contexts(results: Results) -> str:
    """Every context that was declared; the record that made it so where there are several."""
    contexts: dict[str, list[tuple[int, str]]] = {}
    for each in results.models:
        of_model = contexts.setdefault(each.model.id, [])
        tokens = count(each.model.context_length)
        if not of_model or of_model[-1][1] != tokens:
            of_model.append((each.since, tokens))
    words = [
        f"{name} {first}" + "".join(f", from record {seq} on {tokens}" for seq, tokens in later)
        for name, ((_, first), *later) in contexts.items()
    ]
    return f"Context of the models in tokens: {'; '.join(words)}." if words else ""
