"""What each system does right and wrong."""

from projections.report.model import (
    Block,
    Column,
    Group,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import NONE
from projections.transfer.counts import (
    Behaviour,
)
from projections.transfer.report.phrases import CANNOT_SHOW
from projections.transfer.results import SystemResult, TransferResults


def what_this_shows_section(results: TransferResults) -> Section:
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
        counted = [dict(counts_of(name, each)) for each in systems]
        asked = [class_ for class_ in classes if any(class_ in found for found in counted)]
        groups += [Group(title=name, rows=len(asked))] if asked else []
        rows += [
            (class_.replace("_", " "), *(n_of_behaviour(found.get(class_)) for found in counted))
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


def counts_of(name: str, system: SystemResult) -> list[tuple[str, Behaviour]]:
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
    counted = counts_of(name, system)
    if not counted:
        return NONE
    if any(found.n for _, found in counted):
        return "yes"
    return "not shown" if any(found.unobserved for _, found in counted) else "no"


def n_of_behaviour(found: Behaviour | None) -> str:
    if found is None:
        return NONE
    return f"{found.n}/{found.of}" + (f" (+{found.unobserved})" if found.unobserved else "")


def systems_section(results: TransferResults) -> Section:
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
