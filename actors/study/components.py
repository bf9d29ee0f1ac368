"""Components: the parts of the program that decide results, each with an identity of its own.

A component is what its entry points import of our packages, directly or not, the package data that
it reads, and the libraries which that code imports. All else (command line, reports, rehearsals,
documents) may change during a study. What each kind of study consists of stands in its own room:
``actors/repair/components.py``, ``actors/transfer/components.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions, version

import msgspec

from actors.study.digests import ROOT
from actors.study.import_closure import closure, source_file
from ledger.artifacts import Artifacts
from projections.fold import ReadArtifact
from schemas.events.study import FrozenComponent
from schemas.study import Study

TABLES = (
    "actors.languages.registry",
    "actors.memory_systems.registry",
    "actors.servers.registry",
    "actors.study_kinds",
    "harnesses.drivers.registry",
    "harnesses.registry",
)
"""Modules that only list components by name. No closure follows them: an arm that is added to the
table of arms changes no other one, and whoever looks one up does not consist of it."""
NOT_INSTALLED = "not installed"

KERNEL = (
    "actors.loop",
    "actors.model_server",
    "actors.study.frozen_study",
    "actors.study.scheduler",
    "actors.supervisor",
    "ledger.stores",
)
"""What every kind of study is run by; each adds its own cells and order of work."""

SPEAKS_LIKE = {"stand_in": "lmstudio"}
"""Kinds of server that another one's adapter asks."""


@dataclass(frozen=True)
class Component:
    """``entry_points``: modules. ``resources``: files of our packages that it reads or starts, by
    their path. ``replayed``: whether executing a cell again computes anew what this decides."""

    name: str
    entry_points: tuple[str, ...]
    resources: tuple[str, ...] = ()
    replayed: bool = False


class Identity(msgspec.Struct, frozen=True):
    """What a component is: digest by file, version by distribution."""

    files: dict[str, str]
    libraries: dict[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the sorted lines ``<digest>  <file>`` and ``<library>==<version>``."""
        lines = sorted(
            [
                *(f"{digest}  {name}\n" for name, digest in self.files.items()),
                *(f"{name}=={number}\n" for name, number in self.libraries.items()),
            ]
        )
        return sha256("".join(lines).encode()).hexdigest()


def data_files(folder: str) -> tuple[str, ...]:
    """Every file below a folder of our packages that is no module, by its path."""
    return tuple(
        sorted(
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc", ".swp")
        )
    )


def model_adapter(study: Study) -> list[Component]:
    """The adapter of the study's model server; none where no model is asked."""
    if not study.models:
        return []
    kind = study.server.kind
    return [Component(study.server_component, (f"actors.servers.{SPEAKS_LIKE.get(kind, kind)}",))]


def modules_of(component: Component) -> frozenset[str]:
    """Its import closure, as dotted names."""
    return closure(component.entry_points, TABLES).modules


@cache
def identity(component: Component) -> Identity:
    """The component as it is installed here; read once in a process, whose code does not change."""
    found = closure(component.entry_points, TABLES)
    paths = {path for path in map(source_file, found.modules) if path is not None}
    paths |= {ROOT / name for name in component.resources}
    return Identity(
        files={
            path.relative_to(ROOT).as_posix(): sha256(path.read_bytes()).hexdigest()
            for path in sorted(paths)
        },
        libraries=_versions(found.libraries),
    )


def present_components(components: Iterable[Component]) -> dict[str, Identity]:
    """By name, in order, each as it is installed here."""
    return {
        component.name: identity(component)
        for component in sorted(components, key=lambda component: component.name)
    }


def frozen_component(name: str, found: Identity, artifacts: Artifacts) -> FrozenComponent:
    files = msgspec.json.encode(found.files, order="sorted")
    return FrozenComponent(
        name=name,
        digest=found.digest,
        files=artifacts.put(files, "application/json"),
        libraries=found.libraries,
    )


def differences(
    frozen: FrozenComponent | None, found: Identity | None, read: ReadArtifact
) -> list[str]:
    """What of a component is not as it was frozen: ``harnesses/tools/search.py differs``,
    ``pytest 9.1 -> 9.2``. Empty where nothing is."""
    if found is None:
        return ["it is no component of the study any more"]
    if frozen is None:
        return ["it is new"]
    if frozen.digest == found.digest:
        return []
    if frozen.files is None:
        return ["an earlier version froze it in another form"]
    before = msgspec.json.decode(read(frozen.files), type=dict[str, str])
    words = [
        f"{name} {'differs' if name in before and name in found.files else word}"
        for name in sorted({*before, *found.files})
        for word in ["is new" if name in found.files else "is gone"]
        if before.get(name) != found.files.get(name)
    ]
    return words + [
        f"{name} {frozen.libraries.get(name, 'unused')} -> {found.libraries.get(name, 'unused')}"
        for name in sorted({*frozen.libraries, *found.libraries})
        if frozen.libraries.get(name) != found.libraries.get(name)
    ]


def all_differences(
    frozen: Mapping[str, FrozenComponent], present: Mapping[str, Identity], read: ReadArtifact
) -> dict[str, list[str]]:
    """By component, of those that are not as they were frozen or last amended."""
    return {
        name: words
        for name in sorted({*frozen, *present})
        if (words := differences(frozen.get(name), present.get(name), read))
    }


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """Distributions by the top-level names that they install: half a second, once in a process."""
    return packages_distributions()


def _versions(libraries: Iterable[str]) -> dict[str, str]:
    """Version by distribution of the top-level names that code imports."""
    distributions = _distributions()
    found: dict[str, str] = {}
    for library in sorted(libraries):
        for name in distributions.get(library, [library]):
            try:
                found[name.lower().replace("_", "-")] = version(name)
            except PackageNotFoundError:
                found[name] = NOT_INSTALLED
    return found
