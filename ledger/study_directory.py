"""A study directory: a folder with ``study.toml``, and everything that it keeps in ``var/``.

study.toml, documents     what people write; the freeze binds it
var/ledger.db             the log; losing it loses the study (ledger backup)
var/checkpoints.log       signed roots; losing it loses the proof against truncation
var/artifacts/            content named by records; a missing file is a finding
var/projections/          derived; delete it, `ledger replay` makes it again
var/templates/            base trees for workspaces; made again from the frozen packs
var/environments/         test environments; built again when missing
var/reports/              what `ledger report` wrote
var/run/                  locks of running processes and the address of the stand-in server
"""

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ledger.errors import Refused, Unfinished, Usage
from ledger.regular_file import open_lock
from schemas.study import K, Study, StudyError, of_kind
from schemas.study_file import parse_study

MAX_STUDY_BYTES = 1 << 20
LOOKS_AT_A_LOCK = 3
SECONDS_BETWEEN_LOOKS = 0.05
IMPORTED_MARK = "imported"
"""A file of this name beside a database says that it came from elsewhere and is never written."""


OWN_FOLDERS = (
    "artifacts",
    "projections",
    "templates",
    "environments",
    "reports",
    "run",
    "scratch",
    "diagnostics",
)
"""In ``var/``."""


def refuse_links(folder: Path, names: Iterable[str] = OWN_FOLDERS) -> None:
    """Raises Refused where one of these in a folder is a link, or no folder: what is read would be
    another study's, and what is removed or written too."""
    for name in names:
        path = folder / name
        if path.is_symlink():
            raise Refused(
                f"{path} is a link, and a study's own folders never are: put the folder itself "
                "there, or name the study that it leads to"
            )
        if path.exists() and not path.is_dir():
            raise Refused(f"{path} is no folder: move it away, the study keeps a folder there")


class StudyDirectory:
    """Paths of one study. Nothing is created before something is written."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.toml = self.root / "study.toml"
        self.var = self.root / "var"
        self.ledger = self.var / "ledger.db"
        self.checkpoints = self.var / "checkpoints.log"
        self.artifacts = self.var / "artifacts"
        self.projections = self.var / "projections"
        self.templates = self.var / "templates"
        self.environments = self.var / "environments"
        self.reports = self.var / "reports"
        self.run = self.var / "run"

    @property
    def is_imported(self) -> bool:
        """Whether the ledger is a copy that is read and never written."""
        return self.ledger.with_name(IMPORTED_MARK).exists()

    def read_study(self) -> tuple[bytes, Study]:
        """``study.toml`` as it stands on disk. Raises Usage with what to do."""
        try:
            about = self.toml.stat()
            if not stat.S_ISREG(about.st_mode):
                raise Usage(f"{self.toml} is not a file: put a study file there")
            if about.st_size > MAX_STUDY_BYTES:
                raise Usage(
                    f"{self.toml}: {about.st_size} bytes; a study file has at most "
                    f"{MAX_STUDY_BYTES}, long texts go into documents"
                )
            content = self.toml.read_bytes()
        except FileNotFoundError:
            if self.is_imported:
                raise Usage(
                    f"{self.root} holds an imported ledger, and no study.toml: what was frozen is "
                    "in its records. `ledger status`, `show`, `query`, `audit`, `report`, `replay` "
                    "and `verify-chain` read it; a family from elsewhere is reviewed by its file's "
                    "name (`ledger transfer validate FILE`)"
                ) from None
            raise Usage(
                f"{self.root} has no study.toml; `ledger init DIR` makes a new study in the folder "
                "DIR, or name the study's folder with --study"
            ) from None
        except OSError as error:
            raise Unfinished(f"{self.toml}: {error.strerror}") from None
        try:
            return content, parse_study(content, str(self.toml))
        except StudyError as error:
            raise Usage(str(error)) from None

    def read_study_of(self, form: type[K]) -> tuple[bytes, K]:
        """``study.toml`` of a study of one kind. Raises Usage for another kind."""
        content, study = self.read_study()
        try:
            return content, of_kind(form, study)
        except StudyError as error:
            raise Usage(f"{self.toml}: {error}") from None

    def repository_path(self, url: str) -> Path:
        """Where a repository of the study lies: a path from the study's folder, or absolute."""
        if "://" in url:
            raise Usage(
                f"study.toml: repository {url!r} is an address; clone it (`git clone {url}`) and "
                "write where the clone lies"
            )
        try:
            return Path(os.path.realpath(self.root / Path(url).expanduser()))
        except RuntimeError as error:
            raise Usage(f"study.toml: repository {url!r}: {error}") from None

    def document(self, name: str) -> bytes:
        """A document that the study names. It must lie inside the study's folder."""
        path = Path(os.path.realpath(self.root / name))
        if not path.is_relative_to(self.root):
            raise Usage(f"study.toml: document {name!r} lies outside the study's folder")
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Usage(f"study.toml: document {name!r} is not a file")
            return path.read_bytes()
        except OSError as error:
            raise Usage(f"study.toml: document {name!r}: {error.strerror}") from None

    @contextmanager
    def exclusive(self, name: str, busy: str) -> Iterator[None]:
        """Hold the lock ``var/run/<name>.lock``; raises Refused with ``busy`` when it is held.

        The lock goes with the process, so a killed one never leaves it behind.
        """
        self.run.mkdir(parents=True, exist_ok=True)
        with open_lock(self.run / f"{name}.lock") as file:
            for looks_left in reversed(range(LOOKS_AT_A_LOCK)):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not looks_left:
                        raise Refused(busy) from None
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            yield

    def is_held(self, name: str) -> bool:
        """Does a living process of this machine hold the lock exclusively? Changes nothing on disk.

        Looking holds it for a moment, which is why ``exclusive`` looks more than once.
        """
        try:
            with open_lock(self.run / f"{name}.lock", create=False) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def shared(self, name: str) -> Iterator[None]:
        """Hold the lock together with others; waits for an exclusive holder."""
        self.run.mkdir(parents=True, exist_ok=True)
        with open_lock(self.run / f"{name}.lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    @property
    def sockets(self) -> Path:
        """Folder for wake-up sockets. Their names are limited to about 100 bytes, so they do not
        lie in the study, whose path may be longer."""
        name = sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"ledger-{os.getuid()}-{name}"
