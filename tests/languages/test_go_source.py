"""Go sources: what changed, what is defined, which platform a file is for, what it is for."""

import pytest

from actors.languages.classifier import Classifier, classifier
from actors.languages.go import GO
from schemas.repair.study import Layout, Platform, Repository

SOURCE = b"""// Package a does.
package a

import (
	"fmt"
	"os"
)

// Do does.
func Do(x, y int) error {
	if x > y { // why
		return fmt.Errorf("no: %d", x)
	}
	call(x,
		y)
	return nil
}
"""


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (b"if x > y {", b"if x > y  {", "formatting"),
        (b"call(x,\n\t\ty)", b"call(\n\t\tx,\n\t\ty,\n\t)", "formatting"),
        (b"\treturn nil", b"\treturn nil;", "formatting"),
        (b"// Do does.", b"//   Do   does.", "formatting"),
        (b"// Do does.", b"// Do does it.", "documentation"),
        (b"// why", b"", "documentation"),
        (b"// Do does.", b"//go:noinline", "code"),
        (b"x > y", b"x >= y", "code"),
        (b'"no: %d"', b'"no:  %d"', "code"),
        (b'"no: %d"', b"`no: %d`", "code"),
        (b'\t"os"\n', b"", "code"),
        (b"return nil", b"return nil }", "code"),
    ],
)
def test_kind_of_a_change(old: bytes, new: bytes, kind: str) -> None:
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert GO.sources.change_kind(SOURCE, changed) == kind
    assert GO.sources.change_kind(changed, SOURCE) == kind


def test_a_file_that_does_not_parse_is_a_change_of_code() -> None:
    assert GO.sources.change_kind(b"package", b"package ") == "code"
    deep = b"package a\n\nvar x = " + b"(" * 100_000 + b"1" + b")" * 100_000 + b"\n"
    assert GO.sources.change_kind(deep, deep.replace(b"1", b" 1")) in ("formatting", "code")
    assert GO.sources.defined_names(b"package a\nfunc (") == frozenset()
    assert GO.sources.test_functions(b"\xff\xfe") == {}


NAMES = b"""package a

const Limit = 3

var first, second = 1, 2

type Runner[T any] struct {
	Name string
	runs, left int
}

type Worker interface{ Work(hours int) error }

func (r *Runner[T]) Run(ctx Context, args ...string) (result int, err error) {
	for key, value := range args {
		total := key
	}
	return
}

func New[T any](name string) *Runner[T] { return nil }
"""


def test_names_and_signatures() -> None:
    assert GO.sources.defined_names(NAMES) == {
        "Limit", "first", "second", "Runner", "Name", "runs", "left", "Worker", "Work",
        "hours", "r", "Run", "ctx", "args", "key", "value", "total", "New", "name", "result", "err",
    }  # fmt: skip
    assert GO.sources.signatures(NAMES) == {
        "Runner": "type Runner",
        "Worker": "type Worker",
        "Run": "func (r *Runner[T]) Run(ctx Context, args ...string) (result int, err error)",
        "New": "func New[T any](name string) *Runner[T]",
    }
    assert set(GO.sources.module_names("x/docker/run.go")) == {
        "x/docker/run",
        "docker/run",
        "x/docker",
    }
    assert set(GO.sources.module_names("x/docker.json")) == set()


SUITE = b"""package a

type suite struct{}

func (s *suite) TestInner() { one() }

func TestSuite(t *testing.T) { run(t, new(suite)) }

func TestOther(t *testing.T) { other() }

func Testing(t *testing.T) {}

func helper() {}
"""


def test_bodies_of_tests_cover_the_methods_of_their_suite() -> None:
    before = GO.sources.test_functions(SUITE)
    assert sorted(before) == ["TestOther", "TestSuite"]
    after = GO.sources.test_functions(SUITE.replace(b"one()", b"two()"))
    assert (after["TestOther"], after["TestSuite"] == before["TestSuite"]) == (
        before["TestOther"],
        False,
    )
    commented = SUITE.replace(b"{ other() }", b"{\n\t// why\n\tother()\n}")
    assert GO.sources.test_functions(commented) == before
    assert GO.tests.function_of("a/a_test.go::TestX/b/c#01") == "a/a_test.go::TestX"


LINUX = Platform(goos="linux", goarch="amd64", go="1.24")


@pytest.mark.parametrize(
    ("path", "header", "built"),
    [
        ("a.go", "", True),
        ("linux.go", "", True),
        ("a_linux.go", "", True),
        ("a_linux_test.go", "", True),
        ("a_windows.go", "", False),
        ("a_windows_test.go", "", False),
        ("a_arm64.go", "", False),
        ("a_linux_arm64.go", "", False),
        ("a_unix.go", "", True),  # no suffix of that name
        ("x/windows/a.go", "", True),
        ("a.go", "//go:build linux && !arm64", True),
        ("a.go", "// a comment\n\n//go:build unix", True),
        ("a.go", "/* a\ncomment */\n//go:build windows", False),
        ("a.go", "//go:build (darwin || linux) && go1.24 // why", True),
        ("a.go", "//go:build go1.25", False),
        ("a.go", "//go:build cgo", False),
        ("a.go", "//go:build integration", False),
        ("a.go", "//go:build !integration", True),
        ("a.go", "//go:build linux &&", False),
        ("a.go", "//go:build linux)", False),
        ("a.go", "//go:build " + "(" * 1000 + "linux" + ")" * 1000, False),
        ("a.go", "// +build linux,amd64 darwin", True),
        ("a.go", "// +build linux\n// +build arm64", False),
        ("a.go", "//go:build linux\n// +build windows", True),
        ("a.go", "package a\n\n//go:build windows", True),
    ],
)
def test_build_constraints_are_evaluated_for_the_declared_platform(
    path: str, header: str, built: bool
) -> None:
    content = f"{header}\n\npackage a\n".encode()
    assert GO.sources.built_for(path, content, LINUX) is built


def classify_with(**layout: tuple[str, ...]) -> Classifier:
    fields = {"test_roots": ()} | layout
    repository = Repository(
        id="R001", url="x", head="a" * 40, language="go", layout=Layout(**fields)
    )
    return classifier(repository, ["main.go"])


GENERATED = b"// Code generated by x. DO NOT EDIT.\n\npackage a\n"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("main.go", b"", "production"),
        ("latest/contest.go", b"", "production"),
        ("a/b/run_windows.go", b"", "production"),
        ("a/run_test.go", b"", "test"),
        ("a/testdata/x.go", b"", "infrastructure"),
        ("a/testdata/x_test.go", b"", "test"),
        ("a/mock_runner.go", b"", "infrastructure"),
        ("helpers/testhelpers/x.go", b"", "infrastructure"),
        ("go.mod", b"", "dependency"),
        ("tools/go.sum", b"", "dependency"),
        ("vendor/x/y/z.go", b"", "dependency"),
        ("vendor/x/y/z_test.go", b"", "dependency"),
        ("a/x.pb.go", b"", "generated"),
        ("a/x.go", GENERATED, "generated"),
        ("a/x.go", b"// Licence\n\n" + GENERATED, "generated"),
        ("a/x.go", b"package a\n\n" + GENERATED, "production"),
        (
            "a/x.go",
            b"package a\n\nconst s = `\n// Code generated by x. DO NOT EDIT.\n`\n",
            "production",
        ),
        ("magefile.go", b"//go:build mage\n\npackage main\n", "other"),
        ("a/gen.go", b"// +build ignore\n\npackage main\n", "other"),
        ("scripts/x.go", b"", "other"),
        ("docs/x.go", b"", "docs"),
        ("README.md", b"", "docs"),
        (".gitlab/ci/test.gitlab-ci.yml", b"", "config"),
        ("a/template.tmpl", b"", "other"),
    ],
)
def test_classes(path: str, content: bytes, expected: str) -> None:
    assert classify_with().classify(path, content) == expected


def test_declared_roots() -> None:
    rooted = classify_with(package_roots=("a",), test_roots=("a/unit",))
    assert rooted.classify("a/template.tmpl") == "production"
    assert rooted.classify("b/x.go") == "other"
    assert rooted.classify("a/unit/helper.go") == "production", "tests lie beside sources"
    assert (rooted.is_selectable("a/unit/x_test.go"), rooted.is_selectable("a/x_test.go")) == (
        True,
        False,
    )
    assert classify_with().is_selectable("x_test.go")
