from pathlib import Path

import pytest

from actors.languages.contract import Environment
from actors.languages.go import GO
from actors.sandbox import Sandbox
from actors.test_runs.task_runs import warm_cache
from actors.test_runs.templates import make_template
from tests.languages.go_runs import MODULE, GoRuns, prepare
from tests.test_runs.conftest import Repository, changes_fixture, environment, repository, sandbox

__all__ = ["changes_fixture", "environment", "repository", "sandbox"]

EVERY_IMPORT = b"""package thing

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

var _ = []any{fmt.Sprint, os.Exit, exec.Command, syscall.Exit, time.Sleep}

func TestIt(t *testing.T) {}
"""


@pytest.fixture(scope="session")
def go_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    built = prepare(tmp_path_factory.mktemp("go-environments"), **{"go.mod": MODULE.decode()})
    assert isinstance(built, Environment), built
    return built


@pytest.fixture(scope="session")
def go_cache(
    go_environment: Environment, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Builds of the standard library, as of a base tree that uses some of it."""
    place = tmp_path_factory.mktemp("go-cache")
    repository = Repository(place / "repository.git")
    tree = repository.tree({"go.mod": MODULE, "thing_test.go": EVERY_IMPORT})
    template = make_template(repository.directory, tree, place / "templates")
    cache = warm_cache(GO, sandbox, go_environment, template, place)
    assert cache is not None
    return cache


@pytest.fixture
def go_runs(
    repository: Repository,
    go_environment: Environment,
    go_cache: Path,
    sandbox: Sandbox,
    tmp_path: Path,
) -> GoRuns:
    return GoRuns(repository, go_environment, sandbox, tmp_path, go_cache)
