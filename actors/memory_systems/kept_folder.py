"""The one copy of a store that is a folder of files: hashed, kept by digest, put back by it."""

import re
from pathlib import Path

from actors.memory_systems.contract import DIGEST
from actors.memory_systems.process import contents, copy_tree, tree_digest
from actors.untrusted_trees import remove_tree


class KeptFolder:
    """``live`` is the store; beside it lie the snapshots, out of the system's reach."""

    def __init__(self, place: Path) -> None:
        self.live = place / "live"
        self._copies = place / "snapshots"
        self._copies.mkdir(exist_ok=True)
        if self.live.exists():
            # Opened anew: what its files say carries over, and no time, mode or attribute of them.
            before = place / "before"
            self.live.rename(before)
            copy_tree(before, self.live)
            remove_tree(before)
        else:
            self.live.mkdir()

    def keep(self, known_as: str = "") -> str:
        """The digest of the store as it is; a copy is kept. Raises SystemFailure: too large.

        ``known_as``: another digest for it, where bytes change that mean nothing."""
        digest = known_as or tree_digest(self.live)
        copy = self._copies / digest
        if not copy.exists():
            copy_tree(self.live, copy)
        return digest

    def holds_only(self, name: str) -> bool:
        """Whether nothing but this file lies in the store, not even an empty folder: a name can
        say something too. Raises SystemFailure: too deep."""
        return all(path == self.live / name for path in contents(self.live))

    def restore(self, digest: str) -> None:
        """Raises LookupError for a digest that was never taken."""
        copy = self._copies / digest
        if not re.fullmatch(DIGEST, digest) or not copy.is_dir():
            raise LookupError(f"no snapshot {digest} of this store was taken")
        remove_tree(self.live)
        copy_tree(copy, self.live)
