"""What the author of a family may leave out, and what stands there then.

A family file is ``schemas.transfer.family.Family`` as YAML. Whatever is left out is filled in here
from what the file declares, by the kind of the case; nothing is read out of names or sentences, and
nothing that is written is changed. The rules are the table "What may be left out" of
``docs/corrections-and-families.md``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, get_args

from schemas.transfer.family import (
    ABSENT_KINDS,
    KIND_OF,
    NEEDS_RESOLUTION,
    NEGATIVES,
    REQUIRED_STAGES,
    STAGES,
    CaseKind,
)

WHOLE_STATE = "state"
OF_THE_FIRST_RECORD = (
    "class",
    "source_reference",
    "persistence_allowed",
    "scope",
    "valid_from",
    "prohibited_actions",
    "authoritative_outcome_check",
    "consequence",
)
"""What every record has as the family's first one does."""
OF_EVERY_RECORD = {
    "persistence_allowed": True,
    "expires_at": None,
    "lifecycle": "active",
    "supersedes": None,
}
HOLDS_THE_FIRST: frozenset[CaseKind] = frozenset(("positive", "outcome", *NEGATIVES))
"""Kinds whose store is the family's first record."""
HOLDS_NOTHING: frozenset[CaseKind] = frozenset(("baseline", "persistence", "persistence_negative"))
LIKE: Mapping[str, CaseKind] = {
    "outcome": "positive",
    "persistence": "positive",
    "expiry": "conflict",
    "not_yet_valid": "expiry",
    "persistence_negative": "expiry",
}
"""The kind whose first case says what one of this kind expects and prohibits."""


def with_defaults(written: Mapping[str, Any]) -> dict[str, Any]:
    """The whole family. What has an unexpected type is left for the form to refuse."""
    family = {key: value for key, value in written.items() if key != "session"}
    if _all_mappings(written.get("records")):
        family["records"] = records_with_defaults(written["records"])
    if isinstance(written.get("fixture"), dict):
        family["fixture"] = _fixture(written["fixture"])
    if _all_mappings(written.get("cases")):
        cases = _Cases(family, written.get("session"))
        family["cases"] = [cases.complete(*numbered) for numbered in enumerate(family["cases"], 1)]
        kinds = {case.get("kind") for case in cases.written if _is_text(case.get("kind"))}
        family.setdefault("exercises", [what for what, kind in KIND_OF.items() if kind in kinds])
    if _mappings(family.get("records")):
        family.setdefault("decision_options", sorted(set(filter(_is_text, _decisions(family)))))
    return family


def records_with_defaults(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of a family, each as the first one where it says nothing else."""
    first = written[0] if written else {}
    shared = {key: first[key] for key in OF_THE_FIRST_RECORD if key in first}
    records = [{**OF_EVERY_RECORD, **shared, **record} for record in written]
    for record in records:
        if isinstance(record.get("scope"), dict) and isinstance(shared.get("scope"), dict):
            record["scope"] = {**shared["scope"], **record["scope"]}
    return records


def _fixture(written: dict[str, Any]) -> dict[str, Any]:
    surfaces = written.get("surfaces", {})
    if not isinstance(surfaces, dict):
        return written
    return {**written, "surfaces": {**surfaces, WHOLE_STATE: surfaces.get(WHOLE_STATE, "")}}


def _decisions(family: Mapping[str, Any]) -> Iterator[Any]:
    yield NEEDS_RESOLUTION
    yield family.get("twin_decision")
    for record in _mappings(family.get("records")):
        yield record.get("expected_decision")
    for case in _mappings(family.get("cases")):
        expected = case.get("expected")
        accepted = expected.get("decision_accept") if isinstance(expected, dict) else None
        yield from accepted if isinstance(accepted, list) else ()


class _Cases:
    """The cases of a family, completed one by one."""

    def __init__(self, family: Mapping[str, Any], session: Any) -> None:
        self.family, self.session = family, session
        self.records = _mappings(family.get("records"))
        self.written: list[dict[str, Any]] = family["cases"]
        self.first: dict[Any, dict[str, Any]] = {}
        for case in self.written:
            if _is_text(case.get("kind")):
                self.first.setdefault(case["kind"], case)

    def complete(self, number: int, written: Mapping[str, Any]) -> dict[str, Any]:
        known = written.get("kind") in get_args(CaseKind)
        kind: CaseKind = written["kind"] if known else "positive"  # the form refuses the others
        case = {
            "case_id": f"{self.family.get('family_id')}-{number:02}-{kind}",
            "required": [stage for stage in STAGES if stage in REQUIRED_STAGES[kind]],
            "absent": kind in ABSENT_KINDS,
            "excluded": kind in NEGATIVES,
            **written,
        }
        if kind in HOLDS_THE_FIRST | HOLDS_NOTHING:
            case.setdefault("store", self._main() if kind in HOLDS_THE_FIRST else [])
        if "prompt" in self.first.get("positive", {}):
            case.setdefault("prompt", self.first["positive"]["prompt"])
        if isinstance(self.session, dict) and isinstance(case.get("session", {}), dict):
            case["session"] = {**self.session, **case.get("session", {})}
        teaching = case.get("write_session")
        if kind == "persistence" and isinstance(teaching, dict):
            case["write_session"] = teaching = {"teaches": self._main(), **teaching}
        taught = teaching.get("teaches") if isinstance(teaching, dict) else []
        case.setdefault("eligible", self._eligible(kind, case.get("store"), taught))
        like_expected, like_prohibited = self._of_kind(kind)
        case["prohibited"] = _calls(case.get("prohibited", like_prohibited))
        if isinstance(case.get("expected", {}), dict):
            expected = {**like_expected, **case.get("expected", {})}
            case["expected"] = self._expected(kind, expected, case["eligible"])
        return case

    def _main(self) -> list[Any]:
        return [record["correction_id"] for record in self.records[:1] if "correction_id" in record]

    def _eligible(self, kind: str, store: Any, taught: Any) -> Any:
        """Records that apply, as far as the kind says it; the review compares with the records."""
        match kind:
            case "positive" | "outcome" | "conflict":
                return store
            case "persistence":
                return taught
            case "supersession" if isinstance(store, list):
                replaced = [
                    record.get("supersedes")
                    for record in self.records
                    if record.get("correction_id") in store
                ]
                return [name for name in store if name not in replaced]
            case _:
                return []

    def _of_kind(self, kind: str) -> tuple[dict[str, Any], Any]:
        """What a case of this kind expects and prohibits where it says nothing itself."""
        if kind == "conflict":
            return self._abstaining()
        if kind not in LIKE:
            return {"abstain": False}, []
        like = LIKE[kind]
        expected, prohibited = self._of_kind(like)
        example = self.first.get(like, {})
        prohibited = example.get("prohibited", prohibited)
        said = example.get("expected")
        return {**expected, **(said if isinstance(said, dict) else {})}, prohibited

    def _abstaining(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Somebody who can decide is asked, once and before any write, and nothing is changed."""
        fixture = self.family.get("fixture")
        tools = _mappings(fixture.get("tools") if isinstance(fixture, dict) else None)
        expected = {
            "abstain": True,
            "action": [
                [{"tool": tool["name"], "times": 1, "before": "write"}]
                for tool in tools
                if tool.get("effect") == "resolve" and "name" in tool
            ],
            "outcome": [{"surface": WHOLE_STATE, "op": "unchanged"}],
        }
        writing = [tool for tool in tools if tool.get("effect") == "write" and "name" in tool]
        return expected, [{"tool": tool["name"]} for tool in writing]

    def _expected(self, kind: str, expected: dict[str, Any], eligible: Any) -> dict[str, Any]:
        if "decision_accept" not in expected and kind != "baseline":
            if expected.get("abstain") is True:
                expected["decision_accept"] = [NEEDS_RESOLUTION]
            elif expected.get("abstain") is False and isinstance(eligible, list):
                expected["decision_accept"] = [
                    record["expected_decision"]
                    for record in self.records
                    if record.get("correction_id") in eligible and "expected_decision" in record
                ]
        action = expected.get("action", [])
        if isinstance(action, list):
            alternatives = (
                [action] if action and all(isinstance(c, dict) for c in action) else action
            )
            expected["action"] = [_calls(calls) for calls in alternatives]
        outcome = expected.get("outcome", [])
        if _all_mappings(outcome):
            expected["outcome"] = [{"path": "", "op": "equals", **check} for check in outcome]
        return expected


def _calls(written: Any) -> Any:
    """Calls with every plain value of an argument as the test that it equals that value."""
    if not _all_mappings(written):
        return written
    calls = []
    for call in written:
        arguments = call.get("arguments", {})
        if isinstance(arguments, dict):
            call = {**call, "arguments": {name: _test(arguments[name]) for name in arguments}}
        calls.append(call)
    return calls


def _test(value: Any) -> Any:
    return value if isinstance(value, dict) else {"op": "equals", "value": value}


def _mappings(value: Any) -> list[dict[str, Any]]:
    return value if _all_mappings(value) else []


def _all_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)
