"""Unrelated records: what else stands in a store, so that retrieval is not trivial.

Pure and the same on every machine: every choice is a digest of suite, version, case and number. A
distractor shares no project, no decision option and no topic word with the family that it stands
beside; principals and task classes are its own too, so it never applies in the case's session.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

from schemas.transfer.correction import Correction, CorrectionClass, Scope
from schemas.transfer.family import Family

Choices = tuple[str, ...]

_PROJECTS = (
    "bramble", "cobalt", "dunlin", "ember", "fathom", "gannet", "hazel", "iris", "juniper",
    "kestrel", "lantern", "marram", "nettle", "osprey", "plover", "quince", "russet", "sorrel",
    "tarn", "umber", "vetch", "wicket", "yarrow", "zephyr",
)  # fmt: skip
_SUBJECTS = (
    "invoices", "photographs", "timetables", "glossaries", "newsletters", "inventories", "surveys",
    "recipes", "itineraries", "translations", "subtitles", "blueprints", "minutes", "catalogues",
)  # fmt: skip
_PLACES = (
    "the north shelf", "the paper tray", "the west depot", "the blue binder", "the spare cabinet",
    "the reading room", "the upper floor", "the travel folder", "the visitor book",
)  # fmt: skip
_OCCASIONS = (
    "after each inventory", "on weekdays", "before the museum opens", "when a courier calls",
    "during the harvest", "twice a month", "once two people have signed",
)  # fmt: skip
_OPTIONS = ("amber", "basalt", "coral", "denim", "ebony", "flint", "garnet", "heather", "indigo")
_TASKS = ("archiving", "catering", "cataloguing", "couriering", "gardening", "lending", "printing")
_CLASSES: tuple[CorrectionClass, ...] = (
    "factual_revision", "preference", "procedure", "boundary",
)  # fmt: skip
_CHOICES: tuple[Choices, ...] = (_PROJECTS, _SUBJECTS, _PLACES, _OCCASIONS, _OPTIONS, _TASKS)


def distractors(
    suite: str, version: str, family: Family, case_id: str, number: int
) -> tuple[Correction, ...]:
    """``number`` records, each with an id of its own. Ids begin with ``U-``, digits follow."""
    avoided = _words_of(family)
    free = {choices: _without(choices, avoided) for choices in _CHOICES}
    return tuple(
        _distractor(f"{suite}\n{version}\n{case_id}\n{index}", index, free)
        for index in range(number)
    )


def _without(choices: Choices, avoided: frozenset[str]) -> Choices:
    """The choices without an avoided word; all where none would be left."""
    return tuple(choice for choice in choices if not avoided & set(words(choice))) or choices


def _distractor(stream: str, index: int, free: Mapping[Choices, Choices]) -> Correction:
    def choose(choices: Choices, purpose: str, besides: str = "") -> str:
        left = [choice for choice in free[choices] if choice != besides] or list(choices)
        return left[_number(f"{stream}\n{purpose}") % len(left)]

    project, subject = choose(_PROJECTS, "project"), choose(_SUBJECTS, "subject")
    option, place = choose(_OPTIONS, "option"), choose(_PLACES, "place")
    other = choose(_OPTIONS, "other", besides=option)
    month = 1 + _number(f"{stream}\nmonth") % 6
    return Correction(
        correction_id=f"U-{_number(stream) % 900 + 100}{index:04d}",
        class_=_CLASSES[_number(f"{stream}\nclass") % len(_CLASSES)],
        semantic_expectation=f"{subject.capitalize()} of {project} go to {place} "
        f"{choose(_OCCASIONS, 'occasion')}.",
        source_reference=f"ref:unrelated/{index}",
        persistence_allowed=True,
        scope=Scope(
            principal=f"user:{choose(_PROJECTS, 'principal')}",
            project=project,
            task_classes=(choose(_TASKS, "task"),),
        ),
        valid_from=f"2026-{month:02d}-01T00:00:00Z",
        expires_at=None,
        lifecycle="active",
        supersedes=None,
        expected_decision=option,
        expected_action=f"label the {subject} with {option}",
        prohibited_actions=(f"label the {subject} with {other}",),
        authoritative_outcome_check=f"the label of the {subject} is {option}",
        consequence="low",
    )


def _number(stream: str) -> int:
    return int.from_bytes(sha256(stream.encode()).digest()[:8], "big")


def words(text: str) -> list[str]:
    """Lower-case words and numbers of a text, split at everything else."""
    return re.findall(r"[a-z0-9]+", text.lower())


def _words_of(family: Family) -> frozenset[str]:
    """Words that a distractor keeps away from: of records, options, topic, sessions and prompts."""
    texts: Iterable[str] = (
        *family.decision_options,
        *family.topic_terms,
        *(text for record in family.records for text in _texts_of(record)),
        *(text for case in family.cases for text in (case.prompt, case.session.project)),
    )
    common = {
        "the",
        "on",
        "a",
        "to",
        "of",
        "after",
        "before",
        "each",
        "when",
        "with",
        "two",
        "once",
    }
    return frozenset(word for text in texts for word in words(text)) - common


def _texts_of(record: Correction) -> tuple[str, ...]:
    scope = record.scope
    return (
        record.semantic_expectation,
        record.expected_decision,
        record.expected_action,
        scope.principal,
        scope.project,
        *scope.task_classes,
    )
