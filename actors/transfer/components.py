"""The components of a transfer study."""

from collections.abc import Mapping, Sequence

from actors.study.components import KERNEL, Component, model_adapter
from harnesses.drivers.registry import find_driver
from schemas.study import Study, of_kind
from schemas.transfer.study import TransferStudy

MEMORIES: Mapping[str, tuple[str, ...]] = {
    "store": ("actors.memory_systems.store",),
    "folder": ("actors.memory_systems.folder",),
    "command": ("actors.memory_systems.command",),
    "mcp": ("actors.memory_systems.mcp",),
    "mem0": ("actors.memory_systems.mem0", "actors.memory_systems.mem0_process"),
}
"""Entry points of every kind of memory, those of processes that it starts included."""


def components(declared: Study) -> Sequence[Component]:
    """Kernel, scorer, analysis, the model adapter, and one for every memory and driver."""
    study = of_kind(TransferStudy, declared)
    return [
        Component(
            "kernel",
            (
                *KERNEL,
                "actors.fixture.relay",
                "actors.transfer.scheduling",
                "actors.transfer.sessions",
            ),
            replayed=True,
        ),
        Component("scorer", ("projections.transfer.scores",)),
        Component("analysis", ("projections.transfer.results",)),
        Component("remediation", ("actors.transfer.remediation",)),
        *model_adapter(study),
        *(Component(f"memory {memory.id}", MEMORIES[memory.kind]) for memory in study.memories),
        *(
            Component(
                f"driver {driver.id}",
                (find_driver(driver.kind).run.__module__,),
                tuple(f"harnesses/{path}" for path in find_driver(driver.kind).prompt_files),
                replayed=True,
            )
            for driver in study.drivers
            if driver.kind != "own"  # the program of a `command`, which the suite binds
        ),
    ]
