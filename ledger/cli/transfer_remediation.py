"""``ledger transfer remediation``: from a failed run to a documented change of one layer."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ledger.cli.command_group import CommandGroup
from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
    writing,
)
from ledger.errors import Usage
from schemas.transfer.family import LAYERS
from schemas.validation_messages import explain

if TYPE_CHECKING:
    from schemas.commands import Command

MAX_MANIFEST = 1 << 16

manifest_option = click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file: layer \u2192 digest, of the layers that the system does not show. What a run "
    "shows counts, and a file that contradicts it is refused.",
)


@click.group("remediation", cls=CommandGroup)
def command() -> None:
    """Remedy a failed run of a transfer study: one layer, rerun with its controls, documented.

    open assigns the failure to its earliest evidenced stage and names the layer; change records
    which one differs in the new system that an amendment declared; rerun fixes the runs that show
    it; close is refused until all of them exist with unchanged prompts, fixtures and predicates.
    abandon gives a remediation up, with the reason.
    """


@command.command("open")
@click.argument("remediation", metavar="NAME")
@click.option("--run", "cell", required=True, help="The failing run: CASE/MEMORY/DRIVER/TRIAL.")
@click.option(
    "--layer",
    required=True,
    type=click.Choice((*LAYERS, "unknown")),
    help="What will be changed; `unknown` where the layers cannot be seen: recorded as such.",
)
@manifest_option
@study_option
@json_option
def open_(
    remediation: str, cell: str, layer: str, manifest: Path | None, study: Path, as_json: bool
) -> None:
    """Assign a failed run to a layer. Needs an inspection of outcomes, recorded after the run."""
    from schemas.commands import OpenRemediation

    fields = {"remediation": remediation, "cell": cell, "layer": layer, "manifest": _read(manifest)}
    _carry_out(study, _command(fields, OpenRemediation), remediation, as_json)


@command.command("change")
@click.argument("remediation", metavar="NAME")
@click.option("--memory", required=True, help="Memory of the changed system, by its id.")
@click.option("--driver", required=True, help="Driver of the changed system, by its id.")
@manifest_option
@study_option
@json_option
def change(
    remediation: str, memory: str, driver: str, manifest: Path | None, study: Path, as_json: bool
) -> None:
    """Record the change: exactly one layer differs, in a system that an amendment declared."""
    from schemas.commands import ChangeRemediation

    fields = {
        "remediation": remediation,
        "memory": memory,
        "driver": driver,
        "manifest": _read(manifest),
    }
    _carry_out(study, _command(fields, ChangeRemediation), remediation, as_json)


@command.command("rerun")
@click.argument("remediation", metavar="NAME")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Cases of other classes that run again, drawn by a seed.",
)
@study_option
@json_option
def rerun(remediation: str, sample: int, study: Path, as_json: bool) -> None:
    """Fix the runs: the failing case, its negative, supersession and expiry, and a sample.

    `ledger run` makes them.
    """
    from schemas.commands import RerunRemediation

    _carry_out(
        study,
        _command({"remediation": remediation, "sample": sample}, RerunRemediation),
        remediation,
        as_json,
    )


@command.command("close")
@click.argument("remediation", metavar="NAME")
@click.option("--limitation", required=True, help="What is left unresolved, in words.")
@study_option
@json_option
def close(remediation: str, limitation: str, study: Path, as_json: bool) -> None:
    """Close a remediation, or say what is missing."""
    from schemas.commands import CloseRemediation

    fields = {"remediation": remediation, "limitation": limitation}
    _carry_out(study, _command(fields, CloseRemediation), remediation, as_json)


@command.command("abandon")
@click.argument("remediation", metavar="NAME")
@click.option("--reason", required=True, help="Why, for everyone who reads the report.")
@study_option
@json_option
def abandon(remediation: str, reason: str, study: Path, as_json: bool) -> None:
    """Give a remediation up, at whatever step. It stays in the report, and its name stays used."""
    from schemas.commands import AbandonRemediation

    fields = {"remediation": remediation, "reason": reason}
    _carry_out(study, _command(fields, AbandonRemediation), remediation, as_json)


@command.command("list")
@study_option
@json_option
def list_(study: Path, as_json: bool) -> None:
    """List remediations with their step and how many of their runs have ended; shows no outcome."""
    from projections.fold import Follower
    from projections.progress import Progress
    from projections.transfer.remediations import Remediations

    with reading(study) as context:
        remediations, progress = Remediations(), Progress(context.artifacts.get)
        Follower(context.log, remediations, progress).catch_up()
    rows = []
    for name, remediation in remediations.remediations.items():
        cells = remediation.rerun.cells if remediation.rerun else ()
        ended = [
            cell
            for cell in cells
            if cell in progress.cells and not progress.needs_run(progress.cells[cell])
        ]
        rows.append(
            {
                "remediation": name,
                "run": remediation.opened.cell,
                "layer": remediation.opened.layer,
                "status": remediation.status,
                "system": f"{remediation.changed.new_memory} + {remediation.changed.new_driver}"
                if remediation.changed
                else "",
                "runs ended": f"{len(ended)}/{len(cells)}",
                "left": printable(remediation.left),
            }
        )
    if as_json:
        print_json({"remediations": rows})
    elif rows:
        print_table(rows)
    else:
        print("no remediation is recorded")


def _carry_out(study: Path, command: "Command", name: str, as_json: bool) -> None:
    from actors.loop import carry_out
    from actors.transfer import remediation as transfer_remediation
    from projections.fold import Follower
    from projections.transfer.remediations import Remediations

    with writing(study) as context:
        carry_out(context, command, transfer_remediation.HANDLERS)
        remediations = Remediations()
        Follower(context.log, remediations).catch_up()
    found = remediations.remediations[name]
    if as_json:
        rerun = found.rerun
        print_json(
            {**remediations.row(name).as_dict(), "cells": list(rerun.cells) if rerun else []}
        )
        return
    print(f"name       {name}: {found.status}, {found.opened.cell}")
    match found.status:
        case "opened":
            print(f"stage      {found.opened.stage}; to be changed: {found.opened.layer}")
            print("next       declare the changed system in study.toml, `ledger amend`, then")
            print(f"           ledger transfer remediation change {name} --memory ID --driver ID")
        case "changed":
            assert found.changed is not None
            known = "" if found.changed.attributed else " (unattributed: layers are unknown)"
            print(f"layer      {found.changed.layer}{known}")
            print(f"next       ledger transfer remediation rerun {name}")
        case "rerun":
            assert found.rerun is not None
            for cell in found.rerun.cells:
                print(f"  {cell}")
            print(f"next       ledger run, then ledger transfer remediation close {name}")
        case "closed":
            assert found.closed is not None
            print(f"suite      version {found.closed.suite_version}")
            print(f"limitation {printable(found.closed.limitation)}")
        case "abandoned":
            print(f"reason     {printable(found.left)}")


def _command(fields: Mapping[str, object], form: type["Command"]) -> "Command":
    """Raises Usage naming the field and what is allowed there."""
    try:
        return msgspec.convert(fields, form)
    except msgspec.ValidationError as error:
        raise Usage(explain(error, fields, form)) from None


def _read(path: Path | None) -> dict[str, str]:
    """A manifest of layers. Raises Usage for what is none."""
    if path is None:
        return {}
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None
    if len(content) > MAX_MANIFEST:
        raise Usage(f"{path}: more than {MAX_MANIFEST} bytes are no manifest")
    try:
        found = msgspec.json.decode(content, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Usage(f"{path}: a JSON object of layer \u2192 digest is needed: {error}") from None
    strange = [name for name in found if name not in LAYERS]
    if strange:
        raise Usage(f"{path}: {strange[0]!r} is no layer; there are {', '.join(LAYERS)}")
    return found
