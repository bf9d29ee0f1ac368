"""Secret-shaped texts are found, harmless ones are not, and no finding repeats what it found."""

from base64 import b64encode
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actors.families
from actors.families.load import load_family
from schemas.secret_shapes import secret_kinds, secrets_in

FAMILIES = [
    *sorted((Path(__file__).parents[2] / "actors" / "families" / "examples").glob("F10[1-6].yaml")),
    *sorted((Path(actors.families.__file__).parent / "examples").glob("*.yaml")),
]
# Put together here, so that no scanner of repositories takes this file for a leak.
SECRETS = {
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub fine-grained": "github_pat_" + "11ABCDE0Y0" * 3,
    "GitLab": "glpat-" + "x1y2z3w4" * 3,
    "Slack": "xoxb-" + "123456789012-abcdef",
    "API key": "sk-proj-" + "Ab3" * 10,
    "plain API key": "sk-" + "Ab3d" * 8,
    "Stripe": "sk_live_" + "4eC39HqLyjWD" * 2,
    "Google": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "npm": "npm_" + "Ab1" * 12,
    "PyPI": "pypi-AgE" + "IcHlwaS5vcmc" * 3,
    "Hugging Face": "hf_" + "AbCdEfGhIj" * 3,
    "JWT": "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".SflKxwRJSM",
    "URL password": "https://reader:" + "opensesame@example.org/x",
    "URL parameter": "https://example.org/?access_token=" + "abcdef123",
    "header": "Authorization: Bearer " + "abcdef0123456789",
    "password": "the password is: " + "hunter2",
    "password assignment": "DB_PASSWORD=x PASSWORD=" + "tr0ub4dor",
    "assignment": "api_key = '" + "x7Fq29Lmz" + "'",
    "spoken": "the password is " + "hunter2",
    "German": "Passwort: " + "hunter22",
    "German, spoken": "das Passwort lautet " + "hunter2",
    "Cyrillic letters": "p\u0430ssw\u043erd: " + "hunter22",
    "fullwidth letters": "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44\uff1a" + "hunter22",
    "unseen characters": "gh\u200bp_" + "a1B2" * 9,
    "base64 of a password": b64encode(b"password=" + b"hunter2 for staging").decode(),
    "short base64 key": "keep " + "q8Rt4Vb7Nw3Yp6Hs1Dg5" + "Fw==",
    "random": "keep " + "Zx9Kq2Lm8Rt4Vb7Nw3Yp6Hs1Dg5Fj0Ac" + "Ue",
}
HARMLESS = (
    "Code edits for halyard are made in the staging tree; nothing else is touched.",
    "ref:review-log/CT-101",
    "sha256:" + "0f" * 32,
    "5f0c" * 10,
    "The token ring is documented in the network guide.",
    "Ask for the password before the release.",
    "secret: none",
    "https://example.org/path?page=2&sort=name",
    "user:operator-3",
    "surface report: status equals the ledger's value and source_ref starts with the ledger's id",
    "anthropics/claude-code#43393",
    "The password is needed for the release.",
    "The password is well-known; the passcode is (of course) not.",
    "Its password was changed on Monday; the passphrase is kept elsewhere.",
    "F101-02-scope_negative.d0/everything/reader/0",
    "TransferStudyRecord2026Again",
    "https://example.org/Docs/v2/Started/Ch10",
    "\u0414\u0435\u043b\u043e \u0432 \u043e\u0442\u0447\u0451\u0442\u0435",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_and_not_repeated(name: str) -> None:
    secret = SECRETS[name]
    kinds = secret_kinds(f"In the notes: {secret} was used.")
    assert kinds
    found = list(secrets_in({"records": [{"semantic_expectation": secret}]}))
    assert {key for key, _ in found} == {"records[0].semantic_expectation"}
    assert all(word not in " ".join(kinds) for word in secret.split() if len(word) > 8)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_text_passes(text: str) -> None:
    assert secret_kinds(text) == ()


@pytest.mark.parametrize(
    "parts",
    [
        [SECRETS["GitHub"][:9], SECRETS["GitHub"][9:]],
        ["the password is", "hunter2"],
        ["DB_", "PASSWORD=", "hunter22"],
    ],
)
def test_a_secret_that_is_split_over_a_list(parts: list[str]) -> None:
    found = list(secrets_in({"records": parts}))
    assert found and {key for key, _ in found} == {"records"}


def test_lists_of_harmless_texts_pass() -> None:
    assert list(secrets_in([text for text in HARMLESS if "password" not in text])) == []


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_no_family_holds_a_secret(path: Path) -> None:
    family = load_family(path.read_bytes(), path.name)
    assert list(secrets_in(msgspec.to_builtins(family))) == []
    assert secret_kinds(path.read_text()) == ()


def test_a_mapping_is_read_as_assignments_and_its_keys_as_texts() -> None:
    assert list(secrets_in({"password": "hunter22"})) == [("password", "a password")]
    token = SECRETS["GitHub"]
    [(key, kind)] = secrets_in({"a": {token: 1}})
    assert (key, kind) == ("a.[key]", "a GitHub token")


@given(st.text(max_size=200))
def test_no_text_makes_it_raise(text: str) -> None:
    assert secret_kinds(text) == secret_kinds(text)
