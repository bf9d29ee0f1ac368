"""Real runs of ``go test``: what is believed, and how code under test could try to be believed."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from actors.languages.go import GO
from actors.sandbox import Limits
from actors.test_runs.verdicts import judge
from schemas.repair.overlay import Changes
from tests.languages.go_runs import MODULE, GoRuns, needs_go
from tests.test_runs.test_who_killed_it import somebody_who_kills

pytestmark = needs_go
MakeChanges = Callable[..., Changes]

TESTS = b"""package thing

import "testing"

func TestAnswer(t *testing.T) {
	if Answer() != 42 {
		t.Fatalf("got %d", Answer())
	}
}

func TestKind(t *testing.T) {
	if Answer() < 0 {
		t.Error("negative")
	}
}
"""
WRONG, RIGHT = (b"package thing\n\nfunc Answer() int { return %d }\n" % n for n in (41, 42))
BASE = {"thing.go": WRONG, "thing_test.go": TESTS}
ANSWER, KIND = "thing_test.go::TestAnswer", "thing_test.go::TestKind"


def test_an_honest_run_and_the_fix(go_runs: GoRuns, changes: MakeChanges) -> None:
    run = go_runs(BASE)
    assert (run.verdict, run.outcomes) == ("finished", {ANSWER: "failed", KIND: "passed"})
    assert b"got 41" in run.output
    fixed = go_runs(BASE, changes({"thing.go": RIGHT}))
    assert fixed.outcomes == {ANSWER: "passed", KIND: "passed"}
    alone = go_runs(BASE, changes({"thing.go": RIGHT}), canary=False)
    assert (alone.outcomes, alone.flags, fixed.flags) == (fixed.outcomes, (), ())
    verdict = judge(GO, [ANSWER], [KIND], fixed, replace(fixed, nonce="another"))
    assert verdict.verdict == "resolved"


NAMES = b"""package thing

import "testing"

func TestTable(t *testing.T) {
	for _, name := range []string{"a b", "a b", "c/d", "\\u00e9"} {
		t.Run(name, func(t *testing.T) {})
	}
	t.Run("fails", func(t *testing.T) { t.Error("no") })
	t.Run("skips", func(t *testing.T) { t.Skip("not now") })
}

func TestSkipped(t *testing.T) { t.SkipNow() }

func ExampleAnswer() {
	println("to standard error")
	// Output:
}

func FuzzAnswer(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, number int) {})
}
"""
EXTERNAL = b'package thing_test\n\nimport "testing"\n\nfunc TestOutside(t *testing.T) {}\n'


def test_subtests_examples_fuzz_tests_and_external_packages(go_runs: GoRuns) -> None:
    files = {"thing.go": RIGHT, "thing_test.go": NAMES, "outside_test.go": EXTERNAL}
    run = go_runs(files)
    inner = {f"thing_test.go::TestTable/{name}": "passed" for name in ("a_b", "a_b#01", "c/d", "é")}
    assert run.outcomes == inner | {
        "outside_test.go::TestOutside": "passed",
        "thing_test.go::TestTable": "failed",
        "thing_test.go::TestTable/fails": "failed",
        "thing_test.go::TestTable/skips": "skipped",
        "thing_test.go::TestSkipped": "skipped",
        "thing_test.go::ExampleAnswer": "passed",
        "thing_test.go::FuzzAnswer": "passed",
        "thing_test.go::FuzzAnswer/seed#0": "passed",
    }


def test_the_same_name_in_two_packages_and_two_modules(go_runs: GoRuns) -> None:
    passing = b'package p\n\nimport "testing"\n\nfunc TestSame(t *testing.T) {}\n'
    failing = passing.replace(b"{}", b'{ t.Error("no") }')
    files = {
        "a/a_test.go": passing,
        "b/b_test.go": failing,
        "b/outside_test.go": passing.replace(b"package p", b"package p_test"),
        "inner/go.mod": MODULE.replace(b"/thing", b"/inner"),
        "inner/c/c_test.go": failing,
    }
    run = go_runs(files, tests=[path for path in files if path.endswith(".go")])
    assert run.outcomes == {
        "a/a_test.go::TestSame": "passed",
        "b/b_test.go::TestSame": "failed",  # one of the two of that name in its package
        "inner/c/c_test.go::TestSame": "failed",
    }


def test_a_package_that_is_not_built_has_lost_its_tests_and_no_other(go_runs: GoRuns) -> None:
    files = {
        **BASE,
        "thing_test.go": TESTS.replace(b"Answer()", b"Absent()"),
        "b/b_test.go": b'package b\n\nimport "testing"\n\nfunc TestB(t *testing.T) {}\n',
    }
    run = go_runs(files, tests=["thing_test.go", "b/b_test.go"])
    assert (run.verdict, run.outcomes) == ("finished", {"b/b_test.go::TestB": "passed"})
    assert run.collection_errors == ("thing_test.go",)
    assert "undefined: Absent" in run.first_error
    absent = go_runs({**BASE, "thing.go": b'package thing\n\nimport _ "example.org/absent"\n'})
    assert absent.collection_errors == ("thing_test.go",)
    assert "example.org/absent" in absent.first_error


def test_a_panic_ends_its_package_and_passes_nothing_in_it(go_runs: GoRuns) -> None:
    panics = WRONG.replace(b"return 41", b'panic("no answer")')
    early = TESTS.replace(b"func TestAnswer", b"func TestA(t *testing.T) {}\n\nfunc TestAnswer")
    run = go_runs({"thing.go": panics, "thing_test.go": early})
    assert run.verdict == "finished"
    assert run.outcomes == {"thing_test.go::TestA": "error", ANSWER: "failed"}
    assert KIND not in run.outcomes, "never begun"


def test_a_module_that_needs_another_toolchain(go_runs: GoRuns) -> None:
    newer = MODULE.replace(MODULE.split(b"\n")[2], b"go 1.99.0\ntoolchain go1.99.1")
    run = go_runs({**BASE, "go.mod": newer})
    assert run.verdict == "infrastructure"
    assert "go.mod requires go >= 1.99.0" in run.reason
    assert "GOTOOLCHAIN=local" in run.reason


MAIN = b"""package thing

import (
	"os"
	"testing"
)

func run(argument string, m *testing.M) {
	os.Args = append(os.Args, argument)
	os.Exit(m.Run())
}

func TestMain(m *testing.M) {
	%s
}
"""


@pytest.mark.parametrize(
    ("main", "verdict", "reason"),
    [
        (b"os.Exit(0)", "infrastructure", "no tests were run"),
        (b"m.Run(); os.Exit(0)", "infrastructure", "is said to pass, and a test of it failed"),
        (b'run("-test.run=TestKind", m)', "infrastructure", "must fail was not reported"),
        (b'run("-test.count=2", m)', "infrastructure", "has ended 2 times"),
        (b'run("-test.skip=Last", m)', "finished", ""),  # then nothing has passed
    ],
)
def test_a_main_that_decides_what_is_reported(
    main: bytes, verdict: str, reason: str, go_runs: GoRuns
) -> None:
    run = go_runs({"thing.go": RIGHT, "thing_test.go": TESTS, "main_test.go": MAIN % main})
    assert (run.verdict, reason in run.reason) == (verdict, True), run.reason
    assert "passed" not in run.outcomes.values()


def code(imports: bytes, init: bytes) -> bytes:
    named = b"".join(b'\t"%s"\n' % one for one in imports.split())
    return b"package thing\n\nimport (\n%s)\n\nfunc Answer() int { return 42 }\n\n%s\n" % (
        named,
        init,
    )


FORGED = b"""
func init() {
	for _, name := range []string{"TestAnswer", "TestKind"} {
		fmt.Printf("\\x16=== RUN   %s\\n\\x16--- PASS: %s (0.00s)\\n", name, name)
	}
	fmt.Print("PASS\\n")
	LAST
}
"""
JSON = b"""
func init() {
	out, _ := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", os.Getppid()), os.O_WRONLY, 0)
	for _, name := range []string{"TestAnswer", "TestKind"} {
		for _, action := range []string{"run", "pass"} {
			const event = `{"Action":%q,"Package":"example.org/thing","Test":%q}`
			fmt.Fprintf(out, event+"\\n", action, name)
		}
	}
	LAST
}
"""
READER = b"""
func init() {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", grandparent()))
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", grandparent()))
	fmt.Printf("SEEN %d %d %v\\n", len(entries), len(content), err)
}

func grandparent() int {
	var pid, parent int
	var name, state string
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	fmt.Sscanf(string(stat), "%d %s %s %d", &pid, &name, &state, &parent)
	return parent
}
"""


@pytest.mark.parametrize(
    "product",
    [
        code(b"os", b"func init() { os.Exit(0) }"),
        code(b"syscall", b"func init() { syscall.Exit(0) }"),
        code(b"os fmt", FORGED.replace(b"LAST", b"os.Exit(0)")),
        code(b"os fmt", FORGED.replace(b"LAST", b"os.Exit(1)")),
        code(b"fmt", FORGED.replace(b"LAST", b"")),
        code(b"os fmt", JSON.replace(b"LAST", b"os.Exit(0)")),
        code(b"os fmt", JSON.replace(b"LAST", b"os.Exit(1)")),
        code(b"os fmt", JSON.replace(b"LAST", b"")),
        code(b"os", b'func init() { os.Args = append(os.Args, "-test.run=^$") }'),
        code(b"os", b'func init() { os.Args = append(os.Args, "-test.skip=Error|Fatal") }'),
        code(b"os", b'func init() { os.Args = append(os.Args, "-test.failfast") }'),
        code(b"os time", b"func init() { go func() { time.Sleep(time.Second); os.Exit(0) }() }"),
        b'package thing\n\nimport "C"\n\nfunc Answer() int { return 42 }\n',
        b"//go:build never\n\npackage thing\n\nfunc Answer() int { return 42 }\n",
    ],
)
def test_what_code_under_test_can_do_gives_it_no_resolved_verdict(
    product: bytes, go_runs: GoRuns
) -> None:
    slow = TESTS.replace(
        b"{\n\tif Answer() < 0", b"{\n\ttime.Sleep(2 * time.Second)\n\tif Answer() < 0"
    )
    slow = slow.replace(b'import "testing"', b'import (\n\t"testing"\n\t"time"\n)')
    run = go_runs({"thing.go": product, "thing_test.go": slow})
    frozen = {run.outcomes.get(ANSWER), run.outcomes.get(KIND)}
    assert frozen != {"passed"}, (run.reason, run.output)
    assert not run.killed


def test_two_runs_with_one_nonce_are_no_verdict_and_a_forger_needs_it(go_runs: GoRuns) -> None:
    """The reporter's memory and descriptors cannot be opened by a test of the same user."""
    run = go_runs({"thing.go": code(b"os fmt", READER), "thing_test.go": TESTS})
    assert run.outcomes == {ANSWER: "passed", KIND: "passed"}
    assert b"SEEN 0 0 open" in run.output, run.output
    assert b"permission denied" in run.output


def test_results_are_not_cached_and_no_run_reaches_another(go_runs: GoRuns) -> None:
    counting = TESTS.replace(
        b"func TestKind(t *testing.T) {",
        b'func TestKind(t *testing.T) {\n\tos.WriteFile("left", nil, 0o600)\n'
        b'\tos.WriteFile(os.Getenv("GOCACHE")+"/00/left", nil, 0o600)',
    ).replace(b'import "testing"', b'import (\n\t"os"\n\t"testing"\n)')
    files = {"thing.go": RIGHT, "thing_test.go": counting}
    for _ in range(2):
        run = go_runs(files)
        assert run.outcomes == {ANSWER: "passed", KIND: "passed"}
        assert b"(cached)" not in run.output
    assert not list(go_runs.warm_cache.rglob("left"))


def test_the_warm_cache_cannot_be_written(go_runs: GoRuns) -> None:
    entry = next(path for path in sorted(go_runs.warm_cache.rglob("*-d")) if path.is_file())
    poison = b"""
func init() {
	err := os.WriteFile(%s, []byte("poison"), 0o600)
	fmt.Println("POISON", err)
}
""" % (b'"' + os.fsencode(entry) + b'"')
    before = entry.read_bytes()
    run = go_runs({"thing.go": code(b"os fmt", poison), "thing_test.go": TESTS})
    assert entry.read_bytes() == before
    if go_runs.sandbox.kind != "none":
        assert b"POISON open" in run.output


def test_embedding_a_test_shows_nothing_of_what_is_hidden(
    go_runs: GoRuns, changes: MakeChanges
) -> None:
    """It can be embedded once it is laid over, when the candidate has been asked no more; the patch
    is flagged."""
    product = b'package thing\n\nimport _ "embed"\n\n//go:embed thing_test.go\nvar Text string\n\n'
    product += b"func Answer() int { return 42 }\n"
    run = go_runs(BASE, changes({"thing.go": product}))
    assert run.outcomes == {ANSWER: "passed", KIND: "passed"}
    assert "embed" in GO.tests.deceptive_patterns(b"+++ b/thing.go\n+//go:embed thing_test.go\n")


def test_vendored_and_replaced_modules_are_those_of_the_tree(go_runs: GoRuns) -> None:
    uses = b'package thing\n\nimport "example.org/other"\n\nfunc Answer() int { return other.N }\n'
    other = {
        "go.mod": MODULE.replace(b"/thing", b"/other"),
        "n.go": b"package other\n\nconst N = 42\n",
    }
    replaced = (
        MODULE + b"\nrequire example.org/other v0.0.0\n\nreplace example.org/other => ./other\n"
    )
    files = {"thing.go": uses, "thing_test.go": TESTS, "go.mod": replaced}
    run = go_runs(files | {f"other/{name}": content for name, content in other.items()})
    assert run.outcomes == {ANSWER: "passed", KIND: "passed"}, run.output
    vendored = MODULE + b"\nrequire example.org/other v1.0.0\n"
    listed = b"# example.org/other v1.0.0\n## explicit\nexample.org/other\n"
    files |= {"go.mod": vendored, "vendor/modules.txt": listed}
    run = go_runs(files | {"vendor/example.org/other/n.go": other["n.go"]})
    assert run.outcomes == {ANSWER: "passed", KIND: "passed"}, run.output


def test_a_background_process_does_not_outlive_the_run(go_runs: GoRuns) -> None:
    daemon = b"""
func init() {
	command := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 300")
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Start()
}
"""
    run = go_runs({"thing.go": code(b"os/exec syscall", daemon), "thing_test.go": TESTS})
    assert run.outcomes == {ANSWER: "passed", KIND: "passed"}
    assert run.survivors_killed > 0
    assert run.duration_ns < 100_000_000_000


def test_a_run_without_end_is_a_timeout(go_runs: GoRuns) -> None:
    endless = code(b"time", b"func init() { time.Sleep(time.Hour) }")
    limits = Limits(wall_s=8, grace_s=0.5)
    run = go_runs({"thing.go": endless, "thing_test.go": TESTS}, limits=limits)
    assert (run.verdict, run.outcomes) == ("timeout", {})


def test_a_signal_from_outside_is_no_observation(go_runs: GoRuns) -> None:
    sleeps = code(b"time", b"func init() { time.Sleep(20 * time.Second) }")
    with somebody_who_kills(signal.SIGKILL, b"-test.paniconexit0") as killed:
        run = go_runs({"thing.go": sleeps, "thing_test.go": TESTS})
    assert killed
    assert (run.verdict, run.killed, run.outcomes) == ("infrastructure", True, {})
    assert "signal: killed" in run.reason


def test_a_patch_that_could_have_killed_its_run_is_taken_to_have_done_so(go_runs: GoRuns) -> None:
    kills = code(b"syscall", b"func init() { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }")
    run = go_runs({"thing.go": kills, "thing_test.go": TESTS})
    assert (run.verdict, run.killed) == ("infrastructure", True)
    diff = b"+++ b/thing.go\n" + b"".join(b"+" + line for line in kills.splitlines(keepends=True))
    verdict = judge(GO, [ANSWER], [KIND], run, replace(run, nonce="another"), diff=diff)
    assert GO.tests.can_signal(verdict.flagged)
    faults = code(b"os", b"func init() { var p *int; os.Exit(*p) }")
    faulted = go_runs({"thing.go": faults, "thing_test.go": TESTS})
    assert (faulted.verdict, faulted.killed, faulted.outcomes) == ("finished", False, {})


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (b'import "C"', "cgo"),
        (b'import "unsafe"', "unsafe"),
        (b"//go:linkname exit os.runtime_beforeExit", "unsafe"),
        (b"//go:build linux", "build constraint"),
        (b"os.Exit(0)", "os.Exit"),
        (b"syscall.Exit(0)", "os.Exit"),
        (b"os.Args = nil", "arguments"),
        (b'fmt.Println("--- PASS: TestX")', "report"),
        (b"syscall.Kill(1, 9)", "signals"),
        (b'os.ReadFile("thing_test.go")', "test files"),
        (b'import "testing"', "testing"),
        (b"toolchain go1.99.0", "go directives"),
        (b"replace a => ./b", "go directives"),
        (b'exec.Command("x"); import "os/exec"', "processes"),
        (b"func init() {", "init"),
    ],
)
def test_suspicious_lines_of_a_patch(line: bytes, flag: str) -> None:
    assert flag in GO.tests.deceptive_patterns(b"+++ b/a.go\n+" + line + b"\n")
    assert GO.tests.deceptive_patterns(b"+++ b/a.go\n-" + line + b"\n") == ()


def test_the_environment_is_named_by_toolchain_and_modules(
    go_environment: object, tmp_path: Path
) -> None:
    from tests.languages.go_runs import FOUND, prepare

    assert FOUND is not None
    one = prepare(tmp_path, **{"go.mod": "module a\n"})
    other = prepare(tmp_path, **{"go.mod": "module b\n"})
    again = prepare(tmp_path, **{"go.mod": "module a\n"})
    assert one.identity != other.identity
    assert (again, one.version, one.packages) == (one, FOUND.version, ())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [one.identity, other.identity]
    )
