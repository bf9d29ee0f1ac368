"""The components of a repair study."""

from collections.abc import Mapping, Sequence

from actors.study.components import KERNEL, Component, data_files, model_adapter
from harnesses import registry
from schemas.repair.study import RepairStudy
from schemas.study import Study, of_kind

IN_A_TEST_PROCESS: Mapping[str, tuple[str, ...]] = {
    "python": ("actors.languages.python.reporter",),
}
"""Modules of a language that other processes load."""


def language(name: str) -> Component:
    """The package of a language, with every file in it that is no module."""
    package = f"actors/languages/{name}"
    entry_points = (package.replace("/", "."), *IN_A_TEST_PROCESS.get(name, ()))
    return Component(f"language {name}", entry_points, data_files(package))


def components(declared: Study) -> Sequence[Component]:
    """Kernel, grader, miner, analysis, the model adapter, and an arm for every treatment."""
    study = of_kind(RepairStudy, declared)
    declares = [treatment.id for treatment in study.treatments]
    arms = [registry.HARNESSES[name] for name in declares if name in registry.HARNESSES]
    return [
        Component(
            "kernel",
            (*KERNEL, "actors.repair.cells", "actors.repair.scheduling"),
            replayed=True,
        ),
        Component("grader", ("actors.repair.grading",)),
        *(language(name) for name in study.languages),
        Component("miner", ("actors.mining.handlers",)),
        Component("analysis", ("projections.repair.declared_analyses",)),
        *model_adapter(study),
        *(
            Component(
                f"arm {arm.id}",
                (arm.run.__module__,),
                tuple(f"harnesses/{path}" for path in arm.prompt_files),
                replayed=True,
            )
            for arm in arms
        ),
    ]
