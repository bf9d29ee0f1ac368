"""A study of kind ``repair``: does one treatment repair real changes better than another?

Tasks are mined from repositories; a cell is a task under a treatment and a model.
"""

import datetime
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from schemas.base import END, GitOid, Value
from schemas.credentials import carries_credentials
from schemas.identifiers import CellId, Identifier
from schemas.repair.task import repository_of
from schemas.study import (
    Model,
    Positive,
    Refuse,
    Study,
    check_server,
    declared,
    is_inside,
    missing_ids,
    needed_by_cells,
    other_models,
    other_residency,
)

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Date = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{END}",
        description='a day as "YYYY-MM-DD" in quotes, UTC',
    ),
]

Fallback = Annotated[
    str,
    Meta(pattern=rf"^(head|without [A-Za-z0-9._-]+){END}", description="`head` or `without NAME`"),
]


class Platform(Value):
    """The declared platform of the benchmark; build constraints are evaluated for it, not for the
    host."""

    goos: Annotated[
        Literal["linux", "darwin", "windows"],
        Meta(description="operating system that build constraints are evaluated for"),
    ] = "linux"
    goarch: Annotated[
        Literal["amd64", "arm64"],
        Meta(description="processor that build constraints are evaluated for"),
    ] = "amd64"
    python: Annotated[
        str,
        Meta(pattern=rf"^3\.[0-9]{{1,2}}{END}", description='a version like "3.11" in quotes'),
        Meta(description="the Python that tests run in; it must be installed here"),
    ] = "3.11"
    go: Annotated[
        str,
        Meta(pattern=rf"^1\.[0-9]{{1,2}}{END}", description='a version like "1.24" in quotes'),
        Meta(
            description="the Go that build constraints are evaluated for and tests run in; it must "
            "be installed here where a repository is in Go"
        ),
    ] = "1.24"


class Layout(Value):
    """Where things lie in a repository; what its language cannot know."""

    package_roots: Annotated[
        tuple[str, ...],
        Meta(description="folders whose source files are production code, from the root"),
    ] = ()
    test_roots: Annotated[
        tuple[str, ...],
        Meta(
            description="folders whose test files may be selected; empty: all, in a language whose "
            "tests lie beside sources (Go)"
        ),
    ] = ("tests",)
    version_files: Annotated[
        tuple[str, ...], Meta(description="generated version files: never production code")
    ] = ()
    requirements: Annotated[
        tuple[str, ...],
        Meta(description="requirement files that the test environment is built from, in order"),
    ] = ()


class Repository(Value):
    """One repository whose history is mined."""

    id: Annotated[Identifier, Meta(description="its name here; the ids of its tasks begin with it")]
    url: Annotated[
        str,
        Meta(
            min_length=1,
            description="path of a clone, from the study's folder or absolute; nothing is fetched",
        ),
    ]
    head: Annotated[GitOid, Meta(description="the commit at which the walk begins")]
    language: Annotated[
        Literal["python", "go"],
        Meta(description="decides what its files are for, what tests run in, and how they are run"),
    ]
    layout: Layout = Layout()
    tasks: Annotated[int, Meta(ge=1, description="how many valid tasks are selected")] = 20
    fallback_requirements: Annotated[
        tuple[Fallback, ...],
        Meta(
            description="declared fall-backs of the environment, tried in order: `head` builds "
            "with the head's requirement files, `without NAME` lifts one pin"
        ),
    ] = ()


class TaskRules(Value):
    """The static and executed criteria of the miner (preregistration, "Experimental units")."""

    not_before: Annotated[Date, Meta(description="oldest committer date of a task")] = "2023-01-01"
    max_production_files: Annotated[
        Positive, Meta(description="most production files that a change may touch")
    ] = 8
    max_test_files: Annotated[
        Positive, Meta(description="most test and infrastructure files that it may touch")
    ] = 8
    max_production_lines: Annotated[
        Positive, Meta(description="most added and deleted lines of production code")
    ] = 400
    older_commits_in_a_row: Annotated[
        int, Meta(ge=1, description="the walk ends after so many commits older than not_before")
    ] = 200
    revert_window: Annotated[
        int, Meta(ge=1, description="ancestors searched for a pre-image that a revert restores")
    ] = 200
    whole_suite_s: Annotated[
        int,
        Meta(
            ge=0,
            le=24 * 3600,
            description="pass-to-pass tests are the whole suite where it runs at the base within "
            "so many seconds, else a part of it; 0: always a part",
        ),
    ] = 60
    part_of_suite: Annotated[
        Literal["folder", "file"],
        Meta(
            description="that part: the test files beside those that the change touches, or "
            "these alone"
        ),
    ] = "folder"
    texts: Annotated[
        str, Meta(description="JSONL file of issue or merge-request texts; empty: commit messages")
    ] = ""
    interface_line: Annotated[
        bool, Meta(description="add one fixed line with the signatures that hidden tests use")
    ] = False


class Treatment(Value):
    """One arm. Its code and prompts are found by id in the registry of harnesses."""

    id: Annotated[Identifier, Meta(description="id of an arm: docs/treatments.md")]
    role: Annotated[Literal["component", "system", "oracle"], Meta(description="its claim block")]


FIXED_STAGES = frozenset({"A001"})
"""Arms whose answers are fixed stages; every other arm is interactive."""


class Budgets(Value):
    """What a cell may spend (preregistration, "Treatments and execution budget")."""

    turns: Annotated[Positive, Meta(description="answers of the model in a cell")] = 12
    tool_calls: Annotated[Positive, Meta(description="tool calls in a cell")] = 12
    test_runs: Annotated[int, Meta(ge=0, description="runs of the public tests in a cell")] = 2
    stages: Annotated[
        Positive, Meta(description="answers of the model in a cell of an arm with fixed stages")
    ] = 3
    stage_calls: Annotated[
        Positive, Meta(description="what such an arm may look up and edit between its stages")
    ] = 48
    validation_runs: Annotated[
        int, Meta(ge=0, description="runs of the public tests in a cell of such an arm")
    ] = 1
    patch_bytes: Annotated[int, Meta(ge=1, description="largest patch that is accepted")] = (
        1_000_000
    )
    infrastructure_attempts: Annotated[
        int, Meta(ge=1, description="how often a cell may start when nothing was observed")
    ] = 3

    def of(self, arm: str) -> "Budgets":
        """What a cell of an arm may spend: `turns`, `tool_calls` and `test_runs` of its kind."""
        if arm not in FIXED_STAGES:
            return self
        return msgspec.structs.replace(
            self,
            turns=self.stages,
            tool_calls=self.stage_calls,
            test_runs=self.validation_runs,
        )


class Order(Value):
    """In which order the treatments of a task run."""

    design: Annotated[
        Literal["cyclic", "williams"],
        Meta(
            description="`cyclic`: rotated from task to task, positions balanced; `williams`: "
            "Williams (1949), which balances the order within every pair too"
        ),
    ] = "cyclic"


class Repeats(Value):
    """The reliability audit: `cells` of seed 0, chosen before outcomes, run again at `seeds`."""

    cells: Annotated[int, Meta(ge=0, description="how many are repeated; 0: none")] = 0
    seeds: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(description="seeds of the repetitions")
    ] = (1, 2)
    salt: Annotated[str, Meta(description="ranks the tasks: SHA-256(salt | task id)")] = "repeats"


class Contrast(Value):
    """A declared comparison: `new` against `baseline` on the paired tasks of one model."""

    id: Annotated[Identifier, Meta(description="its name in the report")]
    new: Annotated[Identifier, Meta(description="treatment that should be better")]
    baseline: Annotated[Identifier, Meta(description="treatment that it is compared with")]
    model: Annotated[Identifier, Meta(description="model in whose cells it is compared")]
    claim: Annotated[
        Literal["component", "system", "generalisation", "estimate"],
        Meta(description="claim block that it belongs to"),
    ]
    primary: Annotated[
        bool, Meta(description="true: the confirmatory comparison; at most one, in no family")
    ] = False
    family: Annotated[
        str, Meta(description="Holm family; empty: an estimate outside every family")
    ] = ""


class Analysis(Value):
    """What is computed and at which level; all of it declared before outcomes exist."""

    alpha: Annotated[
        float, Meta(gt=0.0, lt=1.0, description="level of tests and of intervals (1 - alpha)")
    ] = 0.05
    smallest_effect: Annotated[
        float, Meta(gt=0.0, le=1.0, description="smallest effect of interest, risk difference")
    ] = 0.20
    bootstrap_resamples: Annotated[
        int, Meta(ge=100, le=1_000_000, description="resamples of the paired bootstrap")
    ] = 10_000
    hierarchical_model: Annotated[
        bool,
        Meta(
            description="fit success ~ treatment * model + repository with an intercept a task to "
            "all cells of the matrix; where it has no finite or stable estimate, GEE, then the "
            "stratified bootstrap alone"
        ),
    ] = False
    power_new_only: Annotated[
        Probability, Meta(description="assumed share of tasks that only `new` repairs")
    ] = 0.25
    power_baseline_only: Annotated[
        Probability, Meta(description="assumed share of tasks that only `baseline` repairs")
    ] = 0.05


class RepairStudy(Study):
    """The whole of ``study.toml`` for `kind = "repair"`."""

    KIND: ClassVar[str] = "repair"
    GRADED: ClassVar[bool] = True
    OPEN_TO_AMENDMENTS: ClassVar[str] = (
        "The tasks and how they were selected are open to no amendment; treatments and models of "
        "planned cells can be corrected until the first cell has begun."
    )
    kind: Annotated[Literal["repair"], Meta(description="which study: repair of mined tasks")]
    preregistered: Annotated[
        bool, Meta(description="true: grading must wait until the last cell has ended")
    ] = True
    platform: Platform = Platform()
    repositories: Annotated[tuple[Repository, ...], Meta(min_length=1)]
    tasks: TaskRules = TaskRules()
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]
    treatments: Annotated[tuple[Treatment, ...], Meta(min_length=1)]
    budgets: Budgets = Budgets()
    order: Order = Order()
    repeats: Repeats = Repeats()
    contrasts: tuple[Contrast, ...] = ()
    analysis: Analysis = Analysis()

    @property
    def compared(self) -> tuple[tuple[str, str, str, str], ...]:
        """(contrast, new, baseline, model) of every declared contrast."""
        return tuple((each.id, each.new, each.baseline, each.model) for each in self.contrasts)

    @property
    def runs_foreign_code(self) -> bool:
        """Tests of repositories are other people's programs."""
        return True

    @property
    def max_attempts(self) -> int:
        return self.budgets.infrastructure_attempts

    def model_of(self, agent: str) -> str:
        return agent

    @property
    def languages(self) -> tuple[str, ...]:
        """Of its repositories, sorted."""
        return tuple(sorted({repository.language for repository in self.repositories}))

    @property
    def shared_components(self) -> tuple[str, ...]:
        return (*super().shared_components, *(f"language {name}" for name in self.languages))

    def cell_components(self, cell: CellId) -> tuple[str, ...]:
        return (f"arm {cell.arm}",)

    def repository(self, repository_id: str) -> Repository:
        """Raises LookupError where the study declares no such repository."""
        return declared("repository", self.repositories, repository_id)

    def undeclared(self, cells: Sequence[CellId]) -> list[str]:
        return missing_ids(
            {
                "repositories": (
                    (repository_of(cell.unit) for cell in cells),
                    (repository.id for repository in self.repositories),
                ),
                "treatments": (
                    (cell.arm for cell in cells),
                    (treatment.id for treatment in self.treatments),
                ),
                "models": ((cell.agent for cell in cells), (model.id for model in self.models)),
                "repeats.seeds": (
                    (str(cell.repeat) for cell in cells),
                    ("0", *map(str, self.repeats.seeds)),
                ),
            }
        )

    def not_amendable(self, before: Self, cells: Sequence[CellId], begun: bool) -> list[str]:
        """Treatments and models of planned cells can be corrected until the first has begun; all
        that is planned stays declared, and residency demanded or not."""
        roles = {treatment.id: treatment.role for treatment in self.treatments}
        other_roles = [
            f"treatment {treatment.id} was of role {treatment.role} and is "
            f"{roles[treatment.id]}, and cells have begun: keep it as it was"
            for treatment in before.treatments
            if roles.get(treatment.id, treatment.role) != treatment.role
        ]
        always = [
            *other_residency(before.server, self.server),
            *needed_by_cells(self.undeclared(cells)),
        ]
        if not begun:
            return always
        return [*other_models(before.models, self.models), *always, *other_roles]

    def check(self, refuse: Refuse) -> None:
        for key, ids in (
            ("repositories", [item.id for item in self.repositories]),
            ("models", [item.id for item in self.models]),
            ("treatments", [item.id for item in self.treatments]),
            ("contrasts", [item.id for item in self.contrasts]),
        ):
            for index, item in enumerate(ids):
                if item in ids[:index]:
                    refuse(f"{key}[{index}].id", f"duplicate id {item!r}")
        models = [model.id for model in self.models]
        arms = [arm.id for arm in self.treatments]
        for index, contrast in enumerate(self.contrasts):
            for field, value, known in (
                ("new", contrast.new, arms),
                ("baseline", contrast.baseline, arms),
                ("model", contrast.model, models),
            ):
                if value not in known:
                    refuse(
                        f"contrasts[{index}].{field}",
                        f"{value!r} is not declared; declared are {', '.join(known)}",
                    )
            if contrast.new == contrast.baseline:
                refuse(f"contrasts[{index}]", "an arm cannot be compared with itself")
            if contrast.primary and contrast.family:
                refuse(f"contrasts[{index}].family", "the primary contrast is never in a family")
        if sum(contrast.primary for contrast in self.contrasts) > 1:
            refuse("contrasts", "at most one contrast is primary")
        check_server(self.server, self.models, self.simulated, refuse)
        if self.preregistered and self.grading.when != "end":
            refuse("grading.when", 'a preregistered study grades at the "end"')
        _check_paths(self, refuse)
        try:
            datetime.date.fromisoformat(self.tasks.not_before)
        except ValueError as error:
            refuse("tasks.not_before", f"{self.tasks.not_before!r} is no day: {error}")
        if self.analysis.power_new_only + self.analysis.power_baseline_only > 1:
            refuse("analysis.power_new_only", "more than 1 together with power_baseline_only")
        if len(set(self.repeats.seeds)) != len(self.repeats.seeds):
            refuse("repeats.seeds", "duplicate seed: each seed makes a cell of its own")


def _check_paths(study: RepairStudy, refuse: Refuse) -> None:
    """Paths stay inside the folder that they are of: the study's, or the repository's."""
    named = [(f"documents[{i}]", path) for i, path in enumerate(study.documents)]
    if study.tasks.texts:
        named.append(("tasks.texts", study.tasks.texts))
    for key, path in named:
        if not is_inside(path):
            refuse(key, f"{path!r} must be a path inside the study's folder")
    for index, document in enumerate(study.documents):
        if document in study.documents[:index]:
            refuse(f"documents[{index}]", f"duplicate document {document!r}")
    for index, repository in enumerate(study.repositories):
        key = f"repositories[{index}]"
        if "\0" in repository.url:
            refuse(f"{key}.url", "a path or URL has no NUL")
        if carries_credentials(repository.url):
            refuse(
                f"{key}.url",
                "carries a password or a token, and this file is recorded; clone the repository "
                "with git's own credentials and write where the clone lies",
            )
        for field in ("package_roots", "test_roots", "version_files", "requirements"):
            for number, path in enumerate(getattr(repository.layout, field)):
                if not is_inside(path):
                    where = f"{key}.layout.{field}[{number}]"
                    refuse(where, f"{path!r} must be a path inside the repository")
