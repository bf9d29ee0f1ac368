"""``ledger transfer``: families of the correction-transfer protocol, before a suite is frozen, and
remediations of systems that failed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ledger.cli import transfer_proxy, transfer_remediation
from ledger.cli.command_group import CommandGroup
from ledger.cli.options import json_option, print_json, printable, reading, study_option
from ledger.errors import Refused, Usage
from ledger.study_directory import StudyDirectory
from schemas.counted import counted
from schemas.transfer.family import Exercise

if TYPE_CHECKING:
    from actors.families.load import LoadedFamily
    from actors.families.problems import Problem
    from projections.transfer.corrections import Corrections
    from schemas.transfer.correction import Correction


@click.group("transfer", cls=CommandGroup)
def command() -> None:
    """Write and review the families of a transfer study; everything else is as in every study.

    In this order: `new` makes a family to fill in from a correction, study.toml names it,
    `validate` reviews it; then `ledger freeze`, `run`, `analyze` and `report` as in every study.
    `remediation` documents what is changed after a failure, `proxy` captures what a memory server
    delivers. How to write a family: docs/corrections-and-families.md.
    """


@command.command("new")
@study_option
@json_option
@click.option("--out", type=click.Path(path_type=Path), help="File to write; F-ID.yaml by default.")
@click.option(
    "--exercise",
    "exercises",
    multiple=True,
    type=click.Choice(get_args(Exercise)),
    help="Also scaffold what tests this; may be given several times.",
)
@click.argument("correction")
def new(
    study: Path, as_json: bool, out: Path | None, exercises: tuple[Any, ...], correction: str
) -> None:
    """Make a family to fill in from a CORRECTION, an id in the ledger or a file of one record.

    Writes every case kind that the record needs. What only you know stands as `FILL: …`; the list
    of these places is printed, and `ledger transfer validate FILE` reviews the filled family.
    """
    from actors.families.load import unfilled
    from actors.families.scaffold import CannotScaffold, scaffold
    from actors.families.yaml_file import read_yaml

    record = _record(study, correction)
    try:
        text = scaffold(record, exercises)
    except CannotScaffold as error:
        raise Refused(str(error)) from None
    target = out or Path(f"F-{record.correction_id}.yaml")
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"{target} is there already; name another file (--out)") from None
    except FileNotFoundError:
        raise Usage(f"there is no folder {target.parent}") from None
    places = unfilled(read_yaml(text.encode(), str(target)))
    if as_json:
        print_json(
            {
                "file": str(target),
                "fill": [{"line": line, "key": key, "with": what} for line, key, what in places],
            }
        )
        return
    print(f"wrote {target}; fill in {counted(len(places), 'place')}:")
    for line, key, what in places:
        print(f"  line {line:>4}  {printable(key)}: {printable(what)}")
    print(f"next: `ledger transfer validate {target}`")


@command.command("validate")
@study_option
@json_option
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def validate(study: Path, as_json: bool, files: tuple[Path, ...]) -> None:
    """Review families: completeness, record rules, leakage lint, and every case played once.

    Without FILES those that study.toml names, and whether a system's command would show it the
    expected answers. Each problem is printed with its line and with what to do; beside them the
    topic terms and what is waived. Ends with status 1 where a problem is not waived.
    """
    from actors.families.problems import said_once
    from actors.families.review import review_suite, unwaived
    from actors.transfer.suite import check_commands
    from schemas.transfer.study import TransferStudy

    loaded, unread = _load(study, files)
    corrections = _corrections(study)
    reviewed = review_suite([item.family for item in loaded.values()], corrections)
    found = {name: said_once(problems) for name, problems in reviewed.items()}
    of_suite = found.pop("")
    if as_json:
        print_json(
            {
                "families": [
                    _as_json(name, item, found[item.family.family_id])
                    for name, item in loaded.items()
                ],
                "suite": [_problem(problem, {}) for problem in of_suite],
                "unreadable": unread,
            }
        )
    else:
        for name, item in loaded.items():
            _print_family(name, item, found[item.family.family_id])
        for problem in of_suite:
            print(f"suite: {printable(problem)}")
    wrong = sum(len(unwaived(problems)) for problems in found.values()) + len(unwaived(of_suite))
    if unread:
        raise Refused("\n".join(unread))
    if wrong:
        raise Refused(
            f"{counted(wrong, 'problem')}: change the family, or waive a rule with "
            "its reason (`waivers`)"
        )
    if not files:
        directory = StudyDirectory(study)
        _, declared = directory.read_study_of(TransferStudy)
        check_commands(directory, declared)


command.add_command(transfer_remediation.command)
command.add_command(transfer_proxy.command)


def _load(study: Path, files: Sequence[Path]) -> tuple[dict[str, "LoadedFamily"], list[str]]:
    """Families by file name, and what could not be read."""
    from actors.families.load import FamilyError, load
    from schemas.transfer.study import TransferStudy

    contents: dict[str, bytes] = {}
    if files:
        for path in files:
            try:
                contents[str(path)] = path.read_bytes()
            except FileNotFoundError:
                raise Usage(f"there is no file {path}") from None
            except IsADirectoryError:
                raise Usage(f"{path} is a folder; name its files") from None
    else:
        directory = StudyDirectory(study)
        _, declared = directory.read_study_of(TransferStudy)
        contents = {name: directory.document(name) for name in declared.suite.families}
    loaded: dict[str, LoadedFamily] = {}
    unread: list[str] = []
    for name, content in contents.items():
        try:
            loaded[name] = load(content, name)
        except FamilyError as error:
            unread.append(str(error))
    ids = [item.family.family_id for item in loaded.values()]
    unread += [
        f"{name} stands in two files" for name in sorted({i for i in ids if ids.count(i) > 1})
    ]
    return loaded, unread


def _corrections(study: Path) -> "Corrections":
    """What the study's ledger knows; nothing where there is no ledger."""
    from projections.transfer.corrections import Corrections, corrections_at

    if not StudyDirectory(study).ledger.exists():
        return Corrections()
    with reading(study) as context:
        return corrections_at(context.log_facts())


def _record(study: Path, correction: str) -> "Correction":
    from actors.families.yaml_file import BadFile
    from actors.transfer.corrections import read_records

    path = Path(correction)
    if path.is_file():
        try:
            records = read_records(path.read_bytes(), str(path))
        except BadFile as error:
            raise Refused(str(error)) from None
        if len(records) != 1:
            raise Refused(f"{path} holds {len(records)} records; a family is made from one")
        return records[0]
    known = _corrections(study).standings
    if correction not in known:
        there = f"in the ledger are {', '.join(sorted(known))}" if known else "the ledger has none"
        raise Usage(f"{correction!r} is no file and no correction: {there}")
    return known[correction].record


def _problem(problem: "Problem", lines: Mapping[str, int]) -> dict[str, Any]:
    places = problem.place.split(", ") if problem.place else []
    return {
        "rule": problem.rule,
        "place": problem.place,
        "places": places,
        "lines": [lines[place] for place in places if place in lines],
        "message": problem.message,
        "waived": problem.waived,
    }


def _as_json(name: str, item: "LoadedFamily", problems: Sequence["Problem"]) -> dict[str, Any]:
    return {
        "file": name,
        "family_id": item.family.family_id,
        "title": item.family.title,
        "cases": [{"case_id": c.case_id, "kind": c.kind} for c in item.family.cases],
        "topic_terms": list(item.family.topic_terms),
        "problems": [_problem(problem, item.lines) for problem in problems],
    }


def _print_family(name: str, item: "LoadedFamily", problems: Sequence["Problem"]) -> None:
    family = item.family
    unwaived = [problem for problem in problems if not problem.waived]
    verdict = counted(len(unwaived), "problem") if unwaived else "ready to freeze"
    print(
        f"{printable(family.family_id)}  {printable(family.title)} ({printable(name)}): {verdict}"
    )
    kinds = [case.kind for case in family.cases]
    print(f"  cases        {len(kinds)}: {', '.join(dict.fromkeys(kinds))}")
    print(f"  topic terms  {printable(', '.join(family.topic_terms))}")
    for problem in problems:
        label = "waived" if problem.waived else "problem"
        lines = [str(item.lines[p]) for p in problem.place.split(", ") if p in item.lines]
        where = f"{name}:{','.join(lines)}: " if lines else ""
        print(f"  {label:<13}{printable(where)}{printable(problem)}")
