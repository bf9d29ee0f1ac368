"""A study is data: the contents of ``study.toml``, its common parts and the kind ``repair``.

The kind ``transfer`` is in ``schemas/transfer/study.py``; ``schemas/study_file.py`` reads the file.
Study 2 and the example ship as such files; no study is special-cased in code.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import END, Digest, GitOid, Value
from schemas.credentials import carries_credentials
from schemas.identifiers import Identifier

Positive = Annotated[int, Meta(ge=1)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[int, Meta(ge=1, le=7 * 24 * 3600)]
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

Refuse = Callable[[str, str], None]
MAX_PORT = 65_535


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
        Meta(description="the Go that build constraints are evaluated for"),
    ] = "1.24"


class Layout(Value):
    """Where things lie in a repository; what its language recipe cannot know."""

    package_roots: Annotated[
        tuple[str, ...],
        Meta(description="folders whose source files are production code, from the root"),
    ] = ()
    test_roots: Annotated[
        tuple[str, ...], Meta(description="folders whose test files may be selected")
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
        Meta(
            description="recipe of file classes and test command; this version mines Python "
            "repositories only"
        ),
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


class Generation(Value):
    """Sampling parameters sent with every turn."""

    temperature: Annotated[
        float, Meta(ge=0.0, le=2.0, description="of sampling; 0: the likeliest token")
    ] = 0.0
    top_p: Annotated[
        float, Meta(gt=0.0, le=1.0, description="share of probability that is sampled from")
    ] = 1.0
    seed: Annotated[int, Meta(ge=0, description="of sampling, in cells of the main matrix")] = 0
    max_completion_tokens: Annotated[
        Positive, Meta(description="most tokens of one answer; longer ones are cut")
    ] = 8192


class Rehearsal(Value):
    """How competent a simulated agent is; only in a study that says `simulated = true`."""

    competence_per_mille: Annotated[
        int, Meta(ge=0, le=1000, description="tasks out of 1,000 whose gold edit it can make")
    ]
    seed: Annotated[str, Meta(min_length=1, description="name of its draw")]


class Model(Value):
    """One frozen model. Key, variant, quantisation, format, context and reasoning are its identity:
    any difference is fatal."""

    id: Annotated[Identifier, Meta(description="its name here: part of every cell")]
    key: Annotated[str, Meta(min_length=1, description="the server's model key")]
    variant: Annotated[str, Meta(min_length=1, description="key@variant that must be selected")]
    quantization: Annotated[str, Meta(description="as the server names it")]
    format: Annotated[Literal["gguf", "mlx", "safetensors"], Meta(description="of its weights")]
    context_length: Annotated[Positive, Meta(description="tokens that it is loaded with")]
    max_context_length: Annotated[Positive, Meta(description="tokens that it could be loaded with")]
    reasoning: Annotated[
        Literal["on", "off", "low", "medium", "high"], Meta(description="setting of every turn")
    ]
    reasoning_history: Annotated[
        Literal["omit", "tool_chain", "keep"],
        Meta(description="whether earlier reasoning goes into later prompts"),
    ] = "omit"
    generation: Generation = Generation()
    files: Annotated[
        dict[str, Digest], Meta(description="SHA-256 of each file of the model's folder")
    ] = {}
    rehearsal: Rehearsal | None = None


class Server(Value):
    """The model server of the study."""

    kind: Annotated[
        Literal["lmstudio", "stand_in", "openai", "llamacpp"],
        Meta(
            description="`stand_in` starts the simulated LM Studio, only with simulated = true; "
            "`openai`: any server of that form (Ollama, vLLM), and `llamacpp`: in this process, "
            'extra real-model; both only with kind = "transfer"'
        ),
    ] = "lmstudio"
    url: Annotated[
        str,
        Meta(
            pattern=rf"^http://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{{1,5}}{END}",
            description='host and port, like "http://127.0.0.1:1234"',
        ),
        Meta(description="where it answers; `stand_in` and `llamacpp` find a port themselves"),
    ] = "http://127.0.0.1:1234"
    weights: Annotated[
        str,
        Meta(
            description="GGUF file of `llamacpp`, a path of this machine; empty: the model that "
            "comes with the extra real-model. Its SHA-256 stands in the model's `files`"
        ),
    ] = ""
    lms: Annotated[str, Meta(description="the LM Studio command line tool")] = "lms"
    first_token_s: Annotated[
        Seconds, Meta(description="seconds without a first token until the turn timed out")
    ] = 900
    progress_s: Annotated[
        Seconds, Meta(description="seconds without progress after that until it timed out")
    ] = 120


class Treatment(Value):
    """One arm. Its code and prompts are found by id in the registry of harnesses."""

    id: Annotated[Identifier, Meta(description="id of an arm: docs/treatments.md")]
    role: Annotated[Literal["component", "system", "oracle"], Meta(description="its claim block")]


class Budgets(Value):
    """What a cell may spend (preregistration, "Treatments and execution budget")."""

    turns: Annotated[Positive, Meta(description="answers of the model in a cell")] = 12
    tool_calls: Annotated[Positive, Meta(description="tool calls in a cell")] = 12
    test_runs: Annotated[int, Meta(ge=0, description="runs of the public tests in a cell")] = 2
    patch_bytes: Annotated[int, Meta(ge=1, description="largest patch that is accepted")] = (
        1_000_000
    )
    infrastructure_attempts: Annotated[
        int, Meta(ge=1, description="how often a cell may start when nothing was observed")
    ] = 3


class Repeats(Value):
    """The reliability audit: `cells` of seed 0, chosen before outcomes, run again at `seeds`."""

    cells: Annotated[int, Meta(ge=0, description="how many are repeated; 0: none")] = 0
    seeds: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(description="seeds of the repetitions")
    ] = (1, 2)
    salt: Annotated[str, Meta(description="ranks the tasks: SHA-256(salt | task id)")] = "repeats"


class Grading(Value):
    """When hidden tests judge, and how often gold is run as a control of the test environment."""

    when: Annotated[
        Literal["end", "beside"],
        Meta(description="`end`: outcomes do not exist while cells run"),
    ] = "end"
    gold_every_cells: Annotated[
        int, Meta(ge=0, description="run gold again every N graded cells; 0: only start and end")
    ] = 0


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
    power_new_only: Annotated[
        Probability, Meta(description="assumed share of tasks that only `new` repairs")
    ] = 0.25
    power_baseline_only: Annotated[
        Probability, Meta(description="assumed share of tasks that only `baseline` repairs")
    ] = 0.05


class Stopping(Value):
    """Declared safety conditions; anything else never stops a study."""

    min_free_disk_bytes: Annotated[
        int, Meta(ge=0, description="the study stops, resumable, where less disk is free")
    ] = 1_000_000_000


class Study(Value):
    """The whole of ``study.toml`` for `kind = "repair"`."""

    format: Annotated[Literal[1], Meta(description="version of this file's form")]
    kind: Annotated[Literal["repair"], Meta(description="which study: repair of mined tasks")]
    id: Annotated[Identifier, Meta(description="the study's name, in every report")]
    title: Annotated[str, Meta(min_length=1, description="title of the report")]
    question: Annotated[str, Meta(min_length=1, description="what the study asks, one sentence")]
    simulated: Annotated[
        bool, Meta(description="true: a rehearsal with simulated agents; banners everywhere")
    ] = False
    preregistered: Annotated[
        bool, Meta(description="true: grading must wait until the last cell has ended")
    ] = True
    documents: Annotated[
        tuple[str, ...], Meta(description="files beside study.toml that the freeze binds")
    ] = ()
    platform: Platform = Platform()
    repositories: Annotated[tuple[Repository, ...], Meta(min_length=1)]
    tasks: TaskRules = TaskRules()
    server: Server = Server()
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]
    treatments: Annotated[tuple[Treatment, ...], Meta(min_length=1)]
    budgets: Budgets = Budgets()
    repeats: Repeats = Repeats()
    grading: Grading = Grading()
    contrasts: tuple[Contrast, ...] = ()
    analysis: Analysis = Analysis()
    stopping: Stopping = Stopping()
    readings: Annotated[
        dict[str, str], Meta(description="how open points are read; printed in the report")
    ] = {}

    @property
    def runs_foreign_code(self) -> bool:
        """Tests of repositories are other people's programs: they need a sandbox."""
        return True

    @property
    def bound_documents(self) -> tuple[str, ...]:
        """Files beside study.toml that the freeze binds."""
        return self.documents

    @property
    def attempts(self) -> int:
        """How often a cell may start when nothing was observed."""
        return self.budgets.infrastructure_attempts

    def model(self, model_id: str) -> Model:
        """Raises LookupError where the study declares no such model."""
        for model in self.models:
            if model.id == model_id:
                return model
        raise LookupError(f"model {model_id} is not declared")

    def repository(self, repository_id: str) -> Repository:
        """Raises LookupError where the study declares no such repository."""
        for repository in self.repositories:
            if repository.id == repository_id:
                return repository
        raise LookupError(f"repository {repository_id} is not declared")


def check_study(study: Study, refuse: Refuse) -> None:
    """Cross-field rules that a type cannot state; ``refuse(key, why)`` raises."""

    for key, ids in (
        ("repositories", [item.id for item in study.repositories]),
        ("models", [item.id for item in study.models]),
        ("treatments", [item.id for item in study.treatments]),
        ("contrasts", [item.id for item in study.contrasts]),
    ):
        for index, item in enumerate(ids):
            if item in ids[:index]:
                refuse(f"{key}[{index}].id", f"{item!r} stands twice; every id is used once")
    models = [model.id for model in study.models]
    arms = [arm.id for arm in study.treatments]
    for index, contrast in enumerate(study.contrasts):
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
    if sum(contrast.primary for contrast in study.contrasts) > 1:
        refuse("contrasts", "at most one contrast is primary")
    check_server(study.server, study.models, study.simulated, refuse)
    if study.server.kind in ("openai", "llamacpp"):
        refuse(
            "server.kind",
            f"{study.server.kind!r}: a study of repairs compares models one at a time, by native "
            'tool calls, on a server that shows what is in its memory: "lmstudio"',
        )
    if study.preregistered and study.grading.when != "end":
        refuse("grading.when", 'a preregistered study grades at the "end"')
    _check_paths(study, refuse)
    try:
        datetime.date.fromisoformat(study.tasks.not_before)
    except ValueError as error:
        refuse("tasks.not_before", f"{study.tasks.not_before!r} is no day: {error}")
    if study.analysis.power_new_only + study.analysis.power_baseline_only > 1:
        refuse("analysis.power_new_only", "more than 1 together with power_baseline_only")
    if len(set(study.repeats.seeds)) != len(study.repeats.seeds):
        refuse("repeats.seeds", "a seed stands twice; every one makes a cell of its own")


def check_server(server: Server, models: Sequence[Model], simulated: bool, refuse: Refuse) -> None:
    """Rules between the server, the models and whether the study is a rehearsal."""
    for index, model in enumerate(models):
        if model.context_length > model.max_context_length:
            refuse(f"models[{index}].context_length", "larger than max_context_length")
        if simulated and model.rehearsal is None:
            refuse(f"models[{index}].rehearsal", "a simulated study declares it for every model")
        if model.rehearsal is not None and not simulated:
            refuse(f"models[{index}].rehearsal", "only allowed where `simulated = true`")
    if simulated != (server.kind == "stand_in"):
        refuse("server.kind", '"stand_in" goes with `simulated = true`, and only with it')
    if int(server.url.rpartition(":")[2]) > MAX_PORT:
        refuse("server.url", f"{server.url}: a port is at most {MAX_PORT}")
    if server.weights and server.kind != "llamacpp":
        refuse("server.weights", 'goes with `kind = "llamacpp"`, and only with it')
    if server.kind == "llamacpp":
        if len(models) != 1:
            refuse("models", '"llamacpp" serves one file of weights: declare one model')
        if len(models[0].files) != 1 or models[0].format != "gguf":
            refuse(
                "models[0].files",
                'names the one GGUF file and its SHA-256, like { "model.gguf" = "…" }: that is the '
                'identity of a model of "llamacpp"',
            )


def _check_paths(study: Study, refuse: Refuse) -> None:
    """Paths stay inside the folder that they are of: the study's, or the repository's."""
    named = [(f"documents[{i}]", path) for i, path in enumerate(study.documents)]
    if study.tasks.texts:
        named.append(("tasks.texts", study.tasks.texts))
    for key, path in named:
        if not is_inside(path):
            refuse(key, f"{path!r} must be a path inside the study's folder")
    for index, document in enumerate(study.documents):
        if document in study.documents[:index]:
            refuse(f"documents[{index}]", f"{document!r} stands twice")
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


def is_inside(path: str) -> bool:
    parts = path.rstrip("/").split("/")
    return not {"", ".."} & set(parts) and parts != ["."] and not set(path) & {"\\", "\0"}
