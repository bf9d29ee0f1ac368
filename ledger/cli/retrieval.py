"""``ledger retrieval``: how well the arms' engines find what real changes touched."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ledger.cli.command_group import CommandGroup
from ledger.cli.options import json_option, print_json, print_table, printable, reading
from ledger.errors import Refused, Usage
from ledger.regular_file import read_regular

if TYPE_CHECKING:
    from actors.indexing.evaluation import RetrievalTask, Vectors
    from schemas.repair.study import Repository

F = TypeVar("F", bound=Callable[..., Any])

MAX_LIST_BYTES = 64 << 20


def repository_options(function: F) -> F:
    for option in (
        click.option("--vectors", is_flag=True, help="With vectors of the embedded model (slow)."),
        click.option(
            "--package-root",
            "package_roots",
            multiple=True,
            help="Folder of production code; may be given again. Without: derived from the tree.",
        ),
        click.option(
            "--language",
            type=click.Choice(["python", "go"]),
            default="python",
            show_default=True,
            help="Language whose rules tell production from tests.",
        ),
        click.option(
            "--repo",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            required=True,
            help="A clone of the repository on this machine.",
        ),
    ):
        function = option(function)
    return function


@click.group("retrieval", cls=CommandGroup)
def command() -> None:
    """Measure and explain the retrieval engines of the arms, without any model in a cell.

    Whoever wants to know what to give their own agent evaluates on changes of their repository.
    """


@command.command("evaluate")
@click.argument("tasks", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@repository_options
@click.option(
    "--study",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="A study whose tasks must not be in the list: constants may not be fitted to them.",
)
@click.option("--after-freeze", is_flag=True, help="Go on although they are: a regression number.")
@json_option
def evaluate_command(
    tasks: Path,
    repo: Path,
    language: str,
    package_roots: tuple[str, ...],
    vectors: bool,
    study: Path | None,
    after_freeze: bool,
    as_json: bool,
) -> int:
    """Print recall@1, 5, 10 and 20 and MRR of every list and of each arm's ranking.

    TASKS has a JSON object a line: `base` (a commit), `gold` (production files that the change
    touched) and `query` (its text); other keys are ignored.

    \b
        ledger retrieval evaluate changes.jsonl --repo ../python-gitlab --package-root gitlab
    """
    from actors.indexing import evaluation

    listed = evaluation.read_tasks(read_regular(tasks, MAX_LIST_BYTES))
    if study is not None and not after_freeze:
        refuse_tasks_of(study, listed)
    repository = _repository(language, package_roots)
    cache = _vectors() if vectors else None

    def open_task(task: "RetrievalTask") -> Any:
        tree = evaluation.read_tree(repository, repo, task.base)
        return evaluation.open_index(tree, task.query, cache)

    def progress(done: int) -> None:
        if done % 10 == 0 or done == len(listed):
            click.echo(f"{done} of {len(listed)} tasks", err=True)

    scores, hop = evaluation.evaluate(listed, open_task, progress)
    if as_json:
        print_json(
            {
                "tasks": len(listed),
                "rankings": [
                    {
                        "name": score.name,
                        **{f"recall@{depth}": value for depth, value in score.recall.items()},
                        "mrr": score.mrr,
                        "recall@10 - bm25f": [score.difference, score.low, score.high],
                    }
                    for score in scores
                ],
                "one_hop": hop,
            }
        )
        return 0
    print_table(
        [
            {
                "ranking": score.name,
                **{f"recall@{depth}": f"{value:.3f}" for depth, value in score.recall.items()},
                "MRR": f"{score.mrr:.3f}",
                "recall@10 − bm25f (95 %)": f"{score.difference:+.3f} "
                f"({score.low:+.3f} to {score.high:+.3f})",
            }
            for score in scores
        ]
    )
    print(f"{len(listed)} tasks; {hop:.3f} of the files are among H007's ten best or one hop away")
    return 0


@command.command("explain")
@click.argument("query")
@repository_options
@click.option("--at", metavar="REV", default="HEAD", show_default=True, help="Commit to look at.")
@json_option
def explain_command(
    query: str,
    repo: Path,
    language: str,
    package_roots: tuple[str, ...],
    vectors: bool,
    at: str,
    as_json: bool,
) -> int:
    """Show what each list returns for QUERY, and the fused order with its votes.

    \b
        ledger retrieval explain "parse the response header" --repo . --at HEAD
    """
    from actors.indexing import evaluation
    from actors.test_runs.git import Git, GitError
    from harnesses.retrieval import hybrid

    try:
        commit = Git(repo).text("rev-parse", "--verify", "--end-of-options", f"{at}^{{commit}}")
    except GitError:
        raise Usage(f"{repo} has no commit {at!r}") from None
    tree = evaluation.read_tree(_repository(language, package_roots), repo, commit)
    index = evaluation.open_index(tree, query, _vectors() if vectors else None)
    lists = {
        name: [
            (index.files[hit.file].path, hit.first, hit.last, hit.symbol) for hit in ranking[:10]
        ]
        for name, ranking in hybrid.rankings(index, query).items()
    }
    fused = [
        {"path": index.files[one.hit.file].path, "votes": list(one.votes)}
        for one in hybrid.hybrid(index, query)[:10]
    ]
    if as_json:
        print_json({"commit": commit, "lists": lists, "fused": fused})
        return 0
    for name, found in lists.items():
        print(f"{name}{'' if found else ': nothing'}")
        for rank, (path, first, last, symbol) in enumerate(found, start=1):
            where = f":{first}-{last} {symbol}".rstrip() if first else ""
            print(printable(f"  {rank:>2}  {path}{where}"))
    print("fused" if fused else "fused: nothing")
    for rank, one in enumerate(fused, start=1):
        print(printable(f"  {rank:>2}  {one['path']}  by {', '.join(one['votes'])}"))
    return 0


def refuse_tasks_of(study: Path, listed: "list[RetrievalTask]") -> None:
    """Raises Refused where the list shares a commit or a base tree with the study's tasks."""
    from projections.fold import fold
    from projections.progress import Progress

    with reading(study) as context:
        frozen = fold(Progress(context.artifacts.get), context.study_facts()).tasks.values()
    commits = {task.commit for task in frozen}
    trees = {task.base_tree for task in frozen}
    shared = [task for task in listed if task.commit in commits or task.base_tree in trees]
    if shared:
        raise Refused(
            f"{len(shared)} of the list's changes are tasks of {study}: constants chosen on them "
            "would be fitted to the outcome; take them out, or say --after-freeze for a number "
            "after the constants are fixed"
        )


def _repository(language: str, package_roots: tuple[str, ...]) -> "Repository":
    import msgspec

    from schemas.repair.study import Repository

    return msgspec.convert(
        {
            "id": "R000",
            "url": ".",
            "head": "0" * 40,
            "language": language,
            "layout": {"package_roots": list(package_roots)},
        },
        Repository,
    )


def _vectors() -> "Vectors":
    from actors.indexing.evaluation import Vectors
    from actors.indexing.minilm import MiniLM

    return Vectors(MiniLM())
