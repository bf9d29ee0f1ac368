"""What a statement must not say, what it may, and what is rejected."""

import hashlib

import pytest

from actors.languages.python import PYTHON
from actors.mining.statements import (
    GoldFacts,
    gold_facts,
    is_identifier_shaped,
    split_message,
    tokens,
    write_statement,
)

FACTS = GoldFacts(
    language=PYTHON,
    paths=frozenset({"pkg/api/client.py", "pkg/retry/__init__.py", "tests/unit/test_client.py"}),
    symbols=frozenset({"max_retries", "RetryPolicy", "_backoff"}),
    plain_names=frozenset({"restore", "docker"}),
    test_names=frozenset({"test_retries_three_times", "TestRetry"}),
    added_lines=frozenset(
        {"for attempt in range(limit):", "response = self.send(request, timeout=limit)"}
    ),
    removed_lines=frozenset({"return self.send(request)"}),
)


def redact(body: str) -> str:
    """The body's redacted form, without its title."""
    statement = write_statement(f"Retry requests that fail\n\n{body}", FACTS)
    assert statement.leaks == ()
    return statement.text.removeprefix("# Retry requests that fail\n").strip()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # paths
        ("Change pkg/api/client.py please", "Change [redacted] please"),
        ("See https://x.org/blob/main/pkg/api/client.py#L10", "See https:[redacted]#L10"),
        ("In `client.py` it fails", "In `[redacted]` it fails"),
        ("In ./api/client.py: it fails", "In [redacted]: it fails"),
        ("`pkg.api.client` and pkg.retry", "`[redacted]` and [redacted]"),
        ("tests/unit/test_client.py covers it", "[redacted] covers it"),
        # symbols
        ("Add max_retries to it", "Add [redacted] to it"),
        ("Use `RetryPolicy(_backoff=1)` here", "Use `[redacted]([redacted]=1)` here"),
        ("Call `restore` or group.restore()", "Call `[redacted]` or group.[redacted]()"),
        # test names
        ("TestRetry::test_retries_three_times fails", "[redacted]::[redacted] fails"),
        # assertions
        ("before\nassert client.get() == 3\nafter", "before\nafter"),
        ("before\n    self.assertEqual(a, b)\nafter", "before\nafter"),
        ("before\nE   AssertionError: 1 != 3\nafter", "before\nafter"),
        ("with `assert x == 3` it is", "with [redacted] it is"),
        # diff text
        ("before\n    return self.send(request)\nafter", "before\nafter"),
        ("before\n+for attempt in range(limit):\nafter", "before\nafter"),
        ("Call `self.send(request, timeout=limit)` then", "Call [redacted] then"),
        (
            "before\ndiff --git a/x b/x\nindex 1234567..89abcde 100644\n--- a/x\n+++ b/x\n"
            "@@ -1,2 +1,2 @@ def f\n context\n-old\n+new\nafter",
            "before\nafter",
        ),
        ("before\n```diff\n-x = 1\n+x = 2\n```\nafter", "before\n```diff\n```\nafter"),
        # trailers
        ("text\n\nSigned-off-by: A <a@example.org>", "text"),
        ("text\n\nCo-authored-by: A <a.long.name@exam\nple.org>\nCloses #12", "text"),
        ("text\n\nCloses #1, #2 and group/project!3", "text"),
        ("text\n\nSee merge request group/project!12", "text"),
        ("text\n\nChangelog: added", "text"),
        ("text\n\nFixes: https://example.org/issues/5", "text"),
    ],
)
def test_redactions(body: str, expected: str) -> None:
    assert redact(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "Run it in docker and restore the backup.",
        "The client retries. Docker too.",
        "The old `send` method and `self.send` stay.",
        "Pass `timeout=limit`.",
        "Some prose: with a colon.\n\nNote: more prose.",
        "Closes the connection early.",
        "Fixes a crash in the parser.",
        "We assert that it works.",
        "BREAKING CHANGE: the default differs.",
        "other_client.pyx and myclient.python are other files",
        "Items:\n\n- one\n- two",
        "```python\nclient.get()\n```",
    ],
)
def test_what_stays(body: str) -> None:
    statement = write_statement(f"Retry requests that fail\n\n{body}", FACTS)
    assert statement.text == f"# Retry requests that fail\n\n{body}\n"
    assert statement.redactions == ()
    assert statement.leaks == ()


def test_a_redaction_records_kind_and_digest_and_not_the_text() -> None:
    statement = write_statement("Add max_retries to the client", FACTS)
    (redaction,) = statement.redactions
    assert redaction.kind == "symbol"
    assert (redaction.start, redaction.length) == (len("# Add "), len("max_retries"))
    assert redaction.digest == hashlib.sha256(b"max_retries").hexdigest()
    assert "max_retries" not in repr(statement)


@pytest.mark.parametrize(
    "body",
    [
        "Add max&#95;retries here",
        "Add max%5Fretries here",
        "Add max\\_retries here",
        "Add max\u200b_retries here",
        "Add \uff4dax_retries here",
        "Add MAX_RETRIES here",
        "Edit Pkg/API/Client.PY here",
        "Edit pkg\u2024api\u2024client here",
    ],
)
def test_what_a_reader_could_restore_is_a_leak(body: str) -> None:
    statement = write_statement(f"Retry requests that fail\n\n{body}", FACTS)
    assert statement.leaks
    assert all("max" not in leak and "client" not in leak for leak in statement.leaks)


@pytest.mark.parametrize("text", ["", "\n\n", "feat(api): add max_retries", "fix: `docker`"])
def test_a_statement_that_says_nothing_is_rejected(text: str) -> None:
    statement = write_statement(text, FACTS)
    assert any("words are left" in leak for leak in statement.leaks)


def test_long_hostile_texts_take_linear_work() -> None:
    body = (
        "x"
        + " " * 100_000
        + "a/" * 100_000
        + "`" * 100_000
        + "(" * 100_000
        + "max_" * 50_000
        + "client.p" * 20_000
    )
    statement = write_statement(f"Retry requests that fail\n\n{body}", FACTS)
    assert len(statement.text) > 500_000


@pytest.mark.parametrize(
    ("message", "title", "body"),
    [
        ("fix: a\n\nb\nc\n", "fix: a", "b\nc"),
        ("Merge branch 'x' into 'main'\n\nTitle\n\nBody", "Title", "Body"),
        ("Merge pull request #1 from a/b\n\nTitle", "Title", ""),
        ("merge the two parsers", "merge the two parsers", ""),
        ("", "", ""),
    ],
)
def test_title_and_body(message: str, title: str, body: str) -> None:
    assert split_message(message) == (title, body)


@pytest.mark.parametrize(
    "token", ["snake_case", "camelCase", "PascalCase", "_private", "HTTPServer", "utf8", "__all__"]
)
def test_identifier_shaped(token: str) -> None:
    assert is_identifier_shaped(token)


@pytest.mark.parametrize("token", ["docker", "Docker", "API", "URLs", "v4", "x", "_", "SHA256"])
def test_plain_words_are_no_symbols(token: str) -> None:
    assert not is_identifier_shaped(token)


def test_facts_of_a_change() -> None:
    gold = b"def restore(self, retry_limit):\n    # docker is only a comment\n    return old_name\n"
    test = b"class TestX:\n    def test_restore(self):\n        group.restore(retry_limit=1)\n"
    patch = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-    x = [1, 2]\n+    y = [3, 4]\n+# note (this)\n"
    facts = gold_facts(
        PYTHON,
        production=[("pkg/a.py", gold)],
        hidden=[("tests/test_a.py", test)],
        deleted=["pkg/b.py"],
        patches=[patch],
        base_tokens=tokens(b"def return self old_name is only a comment"),
    )
    assert facts.symbols == {"retry_limit"}
    assert facts.plain_names == {"restore"}
    assert facts.test_names == {"test_restore", "TestX"}
    assert facts.paths == {"pkg/a.py", "pkg/b.py", "tests/test_a.py"}
    assert facts.added_lines == {"y = [3, 4]"}
    assert facts.removed_lines == {"x = [1, 2]"}


def test_binary_files_have_no_tokens() -> None:
    assert tokens(b"name\0other") == frozenset()
    assert tokens("na\u00efve \xff x1".encode("latin-1")) == {"na", "ve", "x1"}
