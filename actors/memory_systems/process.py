"""A program that is somebody else's, in the sandbox, spoken with line by line.

One process is one conversation: it gets a new HOME, a new temporary directory and a new working
directory in which only ``store`` is not empty, an environment of a few names, and no network. What
it says is bounded in bytes and time before it is looked at; whatever it does, it is gone when
:meth:`Conversation.end` returns.
"""

import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from actors.memory_systems.contract import SystemFailure
from actors.sandbox import Finished, Limits, Sandbox
from actors.sandbox.layout import interpreter_paths, launcher_interpreter
from actors.untrusted_trees import open_again, remove_tree
from ledger.errors import LedgerError, Refused
from ledger.regular_file import open_regular, read_regular

MAX_LINE = 1 << 20
MAX_SAID = 16 << 20
"""Bytes of one line, and of all lines of a conversation."""
MAX_FILES = 10_000
MAX_STORE = 64 << 20
"""Files of a store, and their bytes together."""
MAX_PATH = 512
"""Bytes of a path within a store: so deep no walk is stopped by Python or by the system."""
_CHUNK = 1 << 16
_GRACE_S = 2.0
"""How long a program may take to end after its last word."""
_NO_NETWORK = (
    "network is unreachable",
    "name resolution",
    "name or service not known",
    "could not resolve",
    "enotfound",
    "eai_again",
    "enetunreach",
    "connection refused",
    "econnrefused",
)
"""Last words of programs in a sandbox without a network, in lower case."""
_LEFT_OUT = frozenset({"node_modules", "__pycache__"})
LIMITS = Limits(memory_bytes=1 << 37, disk_bytes=256 << 20, output_bytes=8_000)
"""Node reserves tens of gigabytes of addresses that it never uses."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A command as it can be started: what stands in ``study.toml``, found on this machine."""

    command: tuple[str, ...]
    visible: tuple[Path, ...]
    """What the sandbox shows of it, read-only."""
    own: tuple[Path, ...]
    """What of that is the system's own: files and folders that arguments name."""

    def with_python(self, script: str) -> "Program":
        """The same, which also sees the interpreter that we run in, and a script of ours."""
        shown = (*interpreter_paths(launcher_interpreter()), Path(script))
        return dataclasses.replace(self, visible=(*self.visible, *shown))

    def sources(self) -> dict[str, str]:
        """Digest by name of everything of its own; not of libraries. Bounded."""
        return {
            path.relative_to(place.parent).as_posix(): file_digest(path)
            for place, path in self.files()
        }

    def files(self) -> Iterator[tuple[Path, Path]]:
        """(place, file) of everything of its own but libraries and compiled copies, which it does
        not see (:meth:`hidden`). A file that the command names is always among them."""
        for place in self.own:
            for path in sorted(regular_files(place)) if place.is_dir() else [place]:
                if _LEFT_OUT.isdisjoint(path.relative_to(place).parts):
                    yield place, path

    def hidden(self) -> list[Path]:
        """Folders of compiled copies beneath its own: Python would run one whose source says
        something else, and who looks for a change reads sources."""
        found = []
        for place in self.own:
            for parent, folders, names in os.walk(place):
                if "__pycache__" in folders:
                    found.append(Path(parent, "__pycache__"))
                installed = "pyvenv.cfg" in names  # is compiled once, and not read
                folders[:] = [] if installed else sorted(set(folders) - _LEFT_OUT)
        return found


def find_program(command: tuple[str, ...], study: Path) -> Program:
    """The program, and what it needs to see.

    ``python`` and ``python3`` are the interpreter that we run in; another one is named by a path,
    and what it needs is told from where it lies: nothing of a stranger runs outside of the sandbox.
    An argument that is an existing file, relative to the study's folder, is visible with the folder
    that it lies in (with the whole ``node_modules`` where it lies in one), but from the study's own
    folder, where the answers lie, it alone. Raises Refused where there is no such program.
    """
    study = Path(os.path.realpath(study))
    name, *arguments = command
    if name in ("python", "python3"):
        program: str | None = str(launcher_interpreter().executable)
    elif "/" in name:
        program = os.path.abspath(study / name)
    else:
        program = shutil.which(name)
    if program is None or not os.access(program, os.X_OK):
        raise Refused(
            f"{name!r} is no program here: install it, or name it by its path, relative to the "
            "study's folder"
        )
    visible: list[Path] = [Path(program), *_brought_with(Path(program))]
    own: list[Path] = []
    found = []
    for argument in arguments:
        if (path := _file_named(argument, study)) is None:
            found.append(argument)
            continue
        found.append(str(path))
        shown = _shown_with(path, study)
        visible.append(shown)
        own.append(path if shown.name == "node_modules" else shown)
    if "/" in name and not _of_the_system(Path(program), study):
        own.append(Path(program))
    return Program((program, *found), tuple(visible), tuple(own))


def program_files(
    commands: Mapping[str, tuple[str, ...]], study: Path
) -> dict[str, dict[str, str]]:
    """By the name of each command the digests of what it brings (:meth:`Program.sources`). One that
    cannot be read is left out: the run says what is wrong there."""
    found = {}
    for name, command in commands.items():
        with contextlib.suppress(LedgerError, SystemFailure, OSError):
            found[name] = find_program(command, study).sources()
    return found


def unbound_files(command: tuple[str, ...], study: Path, documents: Iterable[str]) -> list[str]:
    """Files that the command sees and the freeze of a study with these documents does not bind, by
    their path from the study's folder; sorted. Raises Refused as :func:`find_program`, and
    SystemFailure for more files than are looked at."""
    root = os.path.realpath(study)
    bound = {os.path.realpath(os.path.join(root, name)) for name in documents}
    found = set()
    for _, path in find_program(command, study).files():
        if "node_modules" not in path.parts and os.path.realpath(path) not in bound:
            found.add(os.path.relpath(path, root))
    return sorted(found)


def words_that_reach(
    command: tuple[str, ...], study: Path, kept: Sequence[Path]
) -> list[tuple[str, Path]]:
    """Words of the command that are, contain or lie in one of the places ``kept``, or with which
    the sandbox shows what does; each with the first such place. Links are followed."""
    study = Path(os.path.realpath(study))
    reached = []
    for index, word in enumerate(command):
        place = Path(os.path.abspath(study / word))
        if word.startswith("-") or (not index and "/" not in word) or not os.path.exists(place):
            continue
        places = [place]
        if not index:
            places += _brought_with(place)
        elif (path := _file_named(word, study)) is not None:
            places.append(_shown_with(path, study))
        real = [Path(os.path.realpath(each)) for each in places]
        for one in (Path(os.path.realpath(each)) for each in kept):
            if any(each.is_relative_to(one) or one.is_relative_to(each) for each in real):
                reached.append((word, one))
                break
    return reached


def _file_named(argument: str, study: Path) -> Path | None:
    path = Path(os.path.abspath(study / argument))
    return None if argument.startswith("-") or not os.path.isfile(path) else path


def _brought_with(program: Path) -> list[Path]:
    """What a Python needs beside its program: the folder that it is installed in, known by its
    landmark (``lib/python3.11/os.py``), and its virtual environment. Of other programs nothing."""
    if not program.name.startswith("python"):
        return []
    brought = []
    prefix = Path(os.path.realpath(program)).parent.parent
    if prefix not in map(Path, ("/", "/usr")) and any(prefix.glob("lib*/python3*/os.py")):
        brought.append(prefix)
    if (program.parent.parent / "pyvenv.cfg").is_file():
        brought.append(program.parent.parent)
    return brought


def _shown_with(path: Path, study: Path) -> Path:
    """What the sandbox shows for a file that a command names: see :func:`find_program`."""
    packages = [parent for parent in path.parents if parent.name == "node_modules"]
    if packages:
        return packages[-1]
    return path if study.is_relative_to(path.parent) else path.parent


def _of_the_system(program: Path, study: Path) -> bool:
    """Whether it is installed: below /usr, or a Python that lies elsewhere than in the study."""
    if program.is_relative_to("/usr") or program.is_relative_to("/bin"):
        return True
    real = Path(os.path.realpath(program))
    return bool(_brought_with(program)) and not real.is_relative_to(study)


class Conversation:
    """One run of a program. Raises SystemFailure for what the program does wrong."""

    def __init__(
        self,
        sandbox: Sandbox,
        program: Program,
        place: Path,
        store: Path,
        seconds: float,
        environment: Callable[[str], Mapping[str, str]] = lambda directory: {},
        collect: str = "",
    ) -> None:
        """``place``: a folder that is not there yet, and is gone afterwards. ``store``: becomes
        the folder ``store`` in the working directory, and is put back by :meth:`end`.
        ``environment``: what it needs beyond ours, given its working directory as it sees it.
        ``collect``: a file in its working directory that is ours to read at the end."""
        self.collected: bytes | None = None
        self._collect = collect
        self._place = place
        self._store = store
        self._workspace = place / "workspace"
        self._workspace.mkdir(parents=True)
        os.rename(store, self._workspace / "store")
        self._sandbox = dataclasses.replace(sandbox, cancelled=threading.Event())
        self._deadline = time.monotonic() + seconds
        self._said = 0
        self._buffer = bytearray()
        self._finished: Finished | None = None
        self._fault: LedgerError | None = None
        self._ended = False
        input_read, self._input = os.pipe()
        self._output, output_write = os.pipe()
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)
        self._thread = threading.Thread(
            target=self._run,
            args=(program, input_read, output_write, seconds, dict(environment(self.directory))),
            daemon=True,
        )
        self._thread.start()

    @property
    def directory(self) -> str:
        """The working directory as the program sees it."""
        return self._sandbox.inside(self._workspace)

    def _run(
        self,
        program: Program,
        standard_input: int,
        standard_output: int,
        seconds: float,
        environment: dict[str, str],
    ) -> None:
        try:
            self._finished = self._sandbox.run(
                program.command,
                workspace=self._workspace,
                read_only=program.visible,
                hidden=program.hidden(),
                environment={
                    "PATH": "/usr/bin:/bin",
                    "LC_ALL": "C.UTF-8",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONUNBUFFERED": "1",
                    **environment,
                },
                limits=dataclasses.replace(LIMITS, wall_s=seconds + 5),
                standard_input=standard_input,
                standard_output=standard_output,
            )
        except LedgerError as error:
            if not self._sandbox.cancelled.is_set():
                self._fault = error
        finally:
            os.close(standard_input)
            os.close(standard_output)

    def send(self, line: bytes) -> None:
        """Write one line. Raises SystemFailure: it does not read, or has ended."""
        left = memoryview(line + b"\n")
        while left:
            self._wait(self._input, selectors.EVENT_WRITE, "does not read what it is told")
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._gone() from None

    def receive(self, doing: str = "said nothing") -> bytes:
        """The next line, without its end. Raises SystemFailure: too long, silent, or ended."""
        line = self._next_line(doing)
        if line is None:
            raise self._gone()
        return line

    def rest(self) -> bytes:
        """What it says after its last word, bounded: nothing, if it keeps to the protocol."""
        with contextlib.suppress(OSError):
            os.close(self._input)
            self._input = -1
        self._deadline = min(self._deadline, time.monotonic() + _GRACE_S)
        with contextlib.suppress(SystemFailure):
            return self._next_line("") or b""
        return bytes(self._buffer[:200])

    def end(self) -> None:
        """End the process with all that it started, and put the store back. May be repeated."""
        if self._ended:
            return
        self._ended = True
        self.stop()
        os.close(self._output)
        with contextlib.suppress(OSError):  # there is none, or something else in its place
            self.collected = read_regular(self._workspace / self._collect, MAX_STORE)
        left = self._workspace / "store"
        if left.is_dir() and not left.is_symlink():
            os.rename(left, self._store)
            open_again(self._store)  # what it closed to us would not be seen, and still be there
        else:
            self._store.mkdir()  # it removed its store, or put something else there
        remove_tree(self._place)

    def stop(self) -> None:
        """End the process: whoever waits for a line of it (another thread) finds its end."""
        descriptor, self._input = self._input, -1
        if descriptor >= 0:
            os.close(descriptor)
        patience = min(self._deadline, time.monotonic() + _GRACE_S) - time.monotonic()
        self._thread.join(max(patience, 0.0))
        self._sandbox.cancelled.set()
        self._thread.join()

    def _next_line(self, doing: str) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE:
                raise SystemFailure("flooded", f"a line of more than {MAX_LINE} bytes")
            self._wait(self._output, selectors.EVENT_READ, doing)
            try:
                chunk = os.read(self._output, _CHUNK)
            except BlockingIOError:
                continue
            if not chunk:
                return None
            self._said += len(chunk)
            if self._said > MAX_SAID:
                raise SystemFailure("flooded", f"more than {MAX_SAID} bytes in one conversation")
            self._buffer += chunk
        if end > MAX_LINE:
            raise SystemFailure("flooded", f"a line of more than {MAX_LINE} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _wait(self, descriptor: int, event: int, doing: str) -> None:
        if descriptor < 0:
            raise self._gone()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            left = self._deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise SystemFailure("timed_out", f"{doing} until its time was over")

    def _gone(self) -> Exception:
        """Why there is nobody any more: our sandbox failed, or the program ended."""
        self._thread.join(_GRACE_S)
        if self._fault is not None:
            return self._fault
        done = self._finished
        if done is None:
            return SystemFailure("crashed", "it closed its output and goes on")
        said = done.output.decode("utf-8", "replace").strip()[-1500:]
        how = f"signal {done.signal}" if done.signal else f"status {done.exit_status}"
        if done.disk_exceeded:
            return SystemFailure("flooded", "its files took up more than they may")
        if any(words in said.casefold() for words in _NO_NETWORK):
            how += " (the sandbox has no network: what it needs must lie beside the command)"
        return SystemFailure("crashed", f"it ended with {how}" + (f": {said}" if said else ""))


# --- what a program leaves ------------------------------------------------------------------------


def regular_files(folder: Path) -> Iterator[Path]:
    """Every regular file beneath; no link is followed. Raises SystemFailure above MAX_FILES, and
    for paths above MAX_PATH."""
    for number, path in enumerate(_entries(folder)):
        if number >= MAX_FILES:
            raise SystemFailure("flooded", f"more than {MAX_FILES} files in {folder.name}")
        if stat.S_ISREG(path.lstat().st_mode):
            yield path


def odd_files(folder: Path) -> tuple[str, ...]:
    """Links, pipes, sockets and devices beneath, by name: nothing that belongs into a store."""
    found = []
    try:
        for path in _entries(folder):
            if not stat.S_ISREG(path.lstat().st_mode):
                found.append(path.relative_to(folder).as_posix())
    except SystemFailure as failure:
        found.append(str(failure))
    return tuple(sorted(found)[:100])


def _entries(folder: Path) -> Iterator[Path]:
    """Everything beneath that is no folder. Raises SystemFailure for folders nested too deep."""
    for parent, folders, names in os.walk(folder):
        if len(os.fsencode(parent)) - len(os.fsencode(folder)) > MAX_PATH:
            raise SystemFailure("flooded", f"paths of more than {MAX_PATH} bytes in {folder.name}")
        for name in (*names, *(name for name in folders if os.path.islink(f"{parent}/{name}"))):
            yield Path(parent, name)


def empty_folders(folder: Path) -> Iterator[Path]:
    """Every folder beneath in which nothing lies."""
    for parent, folders, names in os.walk(folder):
        if not folders and not names and Path(parent) != folder:
            yield Path(parent)


def contents(folder: Path) -> Iterator[Path]:
    """Everything beneath that can be told apart: files, what is no file, and empty folders. Raises
    SystemFailure for folders nested too deep."""
    yield from _entries(folder)
    yield from empty_folders(folder)


def repeats_a_key(line: bytes) -> bool:
    """Whether an object of one line says a key twice: what is said first is not read."""
    keys = [key for key, _ in json.loads(line, object_pairs_hook=list)]
    return len(keys) != len(set(keys))


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file. Raises OSError where something else stands there."""
    digest = sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def tree_digest(folder: Path) -> str:
    """SHA-256 over lines ``<digest>  <path>``, sorted by path, and behind them ``<path>/`` of every
    empty folder and ``<path> -> <target>`` of every link and what else is no file. Raises
    SystemFailure above MAX_STORE bytes."""
    files = sorted(regular_files(folder), key=lambda path: path.relative_to(folder).as_posix())
    if sum(path.lstat().st_size for path in files) > MAX_STORE:
        raise SystemFailure("flooded", f"a store of more than {MAX_STORE} bytes")
    lines = [f"{file_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    lines += sorted(f"{path.relative_to(folder).as_posix()}/\n" for path in empty_folders(folder))
    for path in sorted(set(_entries(folder)).difference(files)):
        target = os.readlink(path) if path.is_symlink() else ""
        lines.append(f"{path.relative_to(folder).as_posix()} -> {target}\n")
    return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def copy_tree(source: Path, destination: Path) -> None:
    """Copy the regular files and the folders, and nothing else."""
    destination.mkdir()
    for path in empty_folders(source):
        (destination / path.relative_to(source)).mkdir(parents=True, exist_ok=True)
    for path in regular_files(source):
        copy = destination / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(read_regular(path, MAX_STORE))
