"""``ledger doctor``."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from ledger.cli.options import json_option, print_json, printable
from ledger.errors import PreflightMismatch

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2_000_000_000


@click.command("doctor")
@json_option
@click.option(
    "--url",
    metavar="URL",
    default="http://127.0.0.1:1234",
    show_default=True,
    help="Where LM Studio should answer.",
)
def command(as_json: bool, url: str) -> None:
    """Say what this host has — Python, git, sandbox, Go, LM Studio, disk — and what to install for
    what. Status 6 when something is missing that every study needs."""
    import tempfile

    from actors.sandbox import probe

    with tempfile.TemporaryDirectory(prefix="ledger-doctor-") as scratch:
        sandbox = probe(Path(scratch))
    rows = [
        _python(),
        _program(
            "git",
            ["git", "--version"],
            "every study",
            "apt-get install git, or brew install git",
            needed=True,
        ),
        {
            "what": "sandbox",
            "found": "" if sandbox.kind == "none" else sandbox.kind,
            "ok": sandbox.kind != "none",
            "needed": False,
            "for": "running tests; without one only --unsafe-no-sandbox does",
            "remedy": sandbox.remedy,
        },
        _program(
            "go",
            ["go", "version"],
            "Go repositories, which this version does not mine yet",
            "see go.dev/doc/install",
        ),
        _program(
            "lms",
            ["lms", "version"],
            "studies with real models (LM Studio)",
            "install LM Studio 0.4 or later, then `npx lmstudio install-cli`",
        ),
        _lmstudio(url),
        _disk(),
    ]
    if as_json:
        isolation = [
            {"name": row.name, "state": row.state, "how": row.how} for row in sandbox.isolation
        ]
        print_json({"checks": rows, "isolation": isolation})
    else:
        for row in rows:
            mark = "ok     " if row["ok"] else "MISSING" if row["needed"] else "absent "
            print(f"{mark} {row['what']:<10} {printable(row['found']) or '-'}")
            if row["remedy"]:
                print(f"                   for {row['for']}: {row['remedy']}")
        if sandbox.isolation:
            print("        what the sandbox keeps a test run from:")
        for line in sandbox.isolation:
            print(f"        {line.name:<14} {line.state}")
    if not all(row["ok"] for row in rows if row["needed"]):
        raise PreflightMismatch("something that every study needs is missing; see above")


def _python() -> dict[str, Any]:
    ok = sys.version_info[:2] >= MIN_PYTHON
    return {
        "what": "python",
        "found": ".".join(map(str, sys.version_info[:3])),
        "ok": ok,
        "needed": True,
        "for": "every study",
        "remedy": "" if ok else "install Python 3.11 or later",
    }


def _program(
    what: str, command: list[str], purpose: str, remedy: str, *, needed: bool = False
) -> dict[str, Any]:
    found = ""
    if shutil.which(command[0]):
        try:
            done = subprocess.run(command, capture_output=True, timeout=20, check=False)
            found = done.stdout.decode("utf-8", "replace").strip().partition("\n")[0]
        except (OSError, subprocess.TimeoutExpired) as error:
            found, remedy = "", f"{remedy} (it does not answer: {error})"
    return {
        "what": what,
        "found": found,
        "ok": bool(found),
        "needed": needed,
        "for": purpose,
        "remedy": "" if found else remedy,
    }


def _lmstudio(url: str) -> dict[str, Any]:
    import httpx

    found = ""
    try:
        answer = httpx.get(f"{url}/lmstudio-greeting", timeout=2.0, trust_env=False)
        if answer.json() == {"lmstudio": True}:
            found = "simulated stand-in" if "x-simulated" in answer.headers else url
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        found = ""
    return {
        "what": "LM Studio",
        "found": found,
        "ok": bool(found),
        "needed": False,
        "for": "studies with real models",
        "remedy": "" if found else "`lms server start`; rehearsals need no LM Studio",
    }


def _disk() -> dict[str, Any]:
    free = shutil.disk_usage(Path.cwd()).free
    return {
        "what": "disk",
        "found": f"{free / 1e9:.1f} GB free",
        "ok": free >= MIN_FREE_BYTES,
        "needed": True,
        "for": "artifacts and test environments",
        "remedy": "" if free >= MIN_FREE_BYTES else "free at least 2 GB",
    }
