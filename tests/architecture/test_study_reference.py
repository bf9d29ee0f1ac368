"""docs/study-toml.md says of every key what it is for; `ledger docs --check` compares it."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files

import msgspec
import pytest

from ledger.cli.docs import _default, _fields, _purpose, _sections, _struct_in, study_reference
from schemas.base import Digest
from schemas.identifiers import IDENTIFIER_RULE
from schemas.study_file import FORMS


def keys() -> Iterator[tuple[str, object, object]]:
    for kind, form in FORMS.items():
        for heading, struct, _ in _sections(form):
            for field, hint in _fields(struct):
                if _struct_in(hint) is None:
                    yield f"{kind} {heading} {field.encode_name}", field, hint


@pytest.mark.parametrize(("key", "field", "hint"), list(keys()))
def test_every_key_says_what_it_is_for(key: str, field: object, hint: object) -> None:
    purpose = _purpose(hint)
    rules = {IDENTIFIER_RULE, Digest.__metadata__[0].description}
    assert purpose and purpose not in rules, f"{key}: describe it in its schema"
    assert _default(field)


def test_every_table_is_explained_and_every_key_of_a_template_is_in_it() -> None:
    text = study_reference()
    for form in FORMS.values():
        for heading, struct, _ in _sections(form):
            assert f"### {heading or 'top of the file'}" in text
            assert struct.__doc__ and not struct.__doc__.startswith(f"{struct.__name__}(")
    for name in ("repair", "study-2", "demo", "demo-transfer"):
        template = (files("actors.rehearsal") / "templates" / f"{name}.toml").read_text()
        document = tomllib.loads(template)
        for key, value in document.items():
            table = value[0] if isinstance(value, list) and isinstance(value[0], dict) else value
            inner = table if isinstance(table, dict) and key != "readings" else {key: value}
            for one in inner:
                assert f"| `{one}` |" in text or f"`[{key}.{one}]`" in text, (name, key, one)


def test_bounds_and_defaults_stand_in_the_tables() -> None:
    text = study_reference()
    assert '| `when` | `"end"`, `"beside"` | `"end"` |' in text
    assert "| `temperature` | number, at least 0.0, at most 2.0 | `0.0` |" in text
    assert '| `test_roots` | list of: string | `["tests"]` |' in text
    assert "| `url` | string, not empty | required |" in text
    assert msgspec.json.encode(text)
