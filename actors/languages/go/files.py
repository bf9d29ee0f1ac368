"""What the files of a Go repository are for."""

import re

from actors.languages.file_classes import FileClasses

FILES = FileClasses(
    source_suffixes=(".go",),
    package_marker="",
    tests_beside_sources=True,
    test_names=("*_test.go",),
    test_components=frozenset(
        {
            "test", "tests", "testdata", "fixtures", "testutil", "testutils", "testhelpers",
            "mock", "mocks",
        }
    ),
    infrastructure_names=("mock_*.go", "*_mock.go", "*_mocks.go", ".mockery.y*ml"),
    dependency_names=("go.mod", "go.sum", "go.work", "go.work.sum", "*.lock"),
    dependency_components=frozenset({"vendor"}),
    runner_names=(),
    docs_components=frozenset(
        {"doc", "docs", "documentation", "example", "examples", "sample", "samples"}
    ),
    docs_names=(
        "*.md", "*.rst", "*.adoc", "readme*", "changelog*", "changes", "changes.txt", "history*",
        "news*", "authors*", "contributors*", "license*", "licence*", "copying*", "notice*",
        "security*", "codeowners", "code_of_conduct*", "contributing*",
    ),
    other_components=frozenset({"script", "scripts", "tool", "tools", "hack", "magefiles"}),
    config_names=(
        ".*", "*.toml", "*.cfg", "*.ini", "*.yml", "*.yaml", "*.json", "*.conf", "Dockerfile*",
        "Makefile*", "justfile", "Jenkinsfile", "VERSION",
    ),
    version_names=(),
    generated_names=("*.pb.go", "zz_generated*.go"),
    # https://go.dev/s/generatedcode: a line of its own, before the package clause
    generated_header=re.compile(
        rb"\A(?:(?!^package\b)[^\n]*\n)*?^// Code generated .* DO NOT EDIT\.\r?$", re.MULTILINE
    ),
    other_header=re.compile(
        rb"\A(?:(?!^package\b)[^\n]*\n)*?^//\s*(?:go:build|\+build)\b[^\n]*\b(?:mage|ignore|tools)\b",
        re.MULTILINE,
    ),
)  # fmt: skip
