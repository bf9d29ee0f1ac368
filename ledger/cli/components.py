"""``ledger components``."""

from pathlib import Path

import click
import msgspec

from ledger.cli.options import json_option, print_json, print_table, reading, study_option
from schemas.counted import counted, first_few


@click.command("components")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """List the components of the program that decide this study's results.

    An arm, a memory, a driver, the model adapter, the grader, an analysis, the kernel: each is the
    files that it imports and reads, and the libraries which these import. The freeze binds them;
    everything else may change while a study runs. Says of each whether it is as frozen.

    \b
        ledger components --json   # every file with its digest
    """
    from actors.study.components import differences, present_components
    from actors.study_kinds import kind_of
    from projections.amendments import Amendments
    from projections.fold import fold

    with reading(study) as context:
        amendments = fold(Amendments(context.artifacts.get), context.study_facts())
        declared = amendments.study or context.directory.read_study()[1]
        present = present_components(kind_of(declared).components(declared))
        frozen = amendments.components
        rows = []
        for name in sorted({*frozen, *present}):
            words = differences(frozen.get(name), present.get(name), context.artifacts.get)
            found = present.get(name)
            rows.append(
                {
                    "component": name,
                    "digest": found.digest if found else None,
                    "as_frozen": not words if amendments.frozen else None,
                    "differences": words if amendments.frozen else [],
                    **(msgspec.to_builtins(found) if found else {"files": {}, "libraries": {}}),
                }
            )
    if as_json:
        print_json({"frozen": amendments.frozen is not None, "rows": rows})
        return
    print_table(
        [
            {
                "component": row["component"],
                "digest": (row["digest"] or "")[:12],
                "files": len(row["files"]),
                "libraries": ", ".join(f"{n} {v}" for n, v in row["libraries"].items()),
                "state": _state(row),
            }
            for row in rows
        ]
    )
    changed = sum(row["as_frozen"] is False for row in rows)
    if changed:
        print(f"{counted(changed, 'component')} not as frozen")


def _state(row: dict[str, object]) -> str:
    if row["as_frozen"] is None:
        return "not frozen yet"
    words = row["differences"]
    assert isinstance(words, list)
    return first_few(words, 3) if words else "as frozen"
