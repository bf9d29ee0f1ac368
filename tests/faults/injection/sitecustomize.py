"""Imported by every Python process of a study that has this folder on its PYTHONPATH.

The product has no switches for tests. What it is made to suffer is put around its functions here,
at the moment in which their module is imported:

LEDGER_FAULTS         JSON list of faults, each at one append of a stream (``_meets``, ``_suffer``)
LEDGER_LEASE_SECONDS  length of the leases of commands
LEDGER_KILLED_TOOL    marker of the first ``lms ps`` of all, in whose place something kills itself
LEDGER_SESSIONS       file that gets a line for every case of a memory system that really begins
"""

import importlib.abc
import importlib.util
import json
import os
import signal
import sys


def _patch_log(module):
    faults = json.loads(os.environ.get("LEDGER_FAULTS", "[]"))
    append = module.SqliteLog.append

    def append_and_suffer(log, batch):
        due = [fault for fault in faults if _meets(log, batch, fault)]
        for fault in due:
            if fault["when"] == "before":
                _suffer(fault)
        stored = append(log, batch)
        for fault in due:
            if fault["when"] == "after":
                _suffer(fault)
        return stored

    if faults:
        module.SqliteLog.append = append_and_suffer


def _meets(log, batch, fault):
    """True for the append that writes, into the fault's stream, the event with the fault's version
    or one of the fault's type."""
    new = [event for event in batch.events if event.stream == fault["stream"]]
    if "type" in fault:
        return any(fault["type"] == event.event.TYPE for event in new)
    first = log.stream_version(fault["stream"]) if new else 0
    return first <= fault["version"] < first + len(new)


def _first_of_all(marker):
    """True once, of all processes: for the one that makes the file, which then holds its id."""
    try:
        descriptor = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(descriptor, b"%d" % os.getpid())
    os.close(descriptor)
    return True


def _suffer(fault):
    """Once, of all processes: ``kill`` this process, ``kill-set`` also its supervisor (the pipes
    take the rest along), ``stop`` this process until somebody lets it go on, ``interrupt`` it."""
    if not _first_of_all(fault["marker"]):
        return
    if fault["how"] in ("stop", "interrupt"):
        os.kill(os.getpid(), signal.SIGSTOP if fault["how"] == "stop" else signal.SIGTERM)
        return
    if fault["how"] == "kill-set":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _patch_loop(module):
    module.LEASE_SECONDS = float(os.environ.get("LEDGER_LEASE_SECONDS", module.LEASE_SECONDS))


def _patch_memory_case(module):
    witness = os.environ.get("LEDGER_SESSIONS")
    steps = module.CaseRun.steps

    def steps_and_tell(run):
        with open(witness, "ab", buffering=0) as file:
            file.write(f"{run.cell} {run.attempt}\n".encode())
        return steps(run)

    if witness:
        module.CaseRun.steps = steps_and_tell


def _patch_lmstudio(module):
    marker = os.environ.get("LEDGER_KILLED_TOOL")
    run = module.LMStudio._run_lms

    def run_and_suffer(server, *words, **options):
        if words[0] != "ps" or not _first_of_all(marker):
            return run(server, *words, **options)
        lms, server._lms = server._lms, ("sh", "-c", "kill -9 $$")
        try:
            return run(server, *words, **options)
        finally:
            server._lms = lms

    if marker:
        module.LMStudio._run_lms = run_and_suffer


_PATCHES = {
    "actors.servers.lmstudio": _patch_lmstudio,
    "ledger.sqlite.log": _patch_log,
    "actors.loop": _patch_loop,
    "actors.transfer.case_run": _patch_memory_case,
}


class _Patcher(importlib.abc.MetaPathFinder):
    """Finds the modules like everybody else, and patches them when they have been executed."""

    def find_spec(self, name, path, target=None):
        patch = _PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Patcher())
