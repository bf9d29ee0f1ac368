"""What the selection of tasks rests on: the keys of ``study.toml`` under which a repository was
mined and its candidates were validated. The number of tasks is not among them: it decides how many
are taken, not which come first.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from schemas.base import Value
from schemas.repair.study import RepairStudy, Repository

TEXTS = "content of tasks.texts"
"""The one setting that is no key: the digest of the file that ``tasks.texts`` names."""


def selection_settings(
    study: RepairStudy, repository: Repository, texts: str = ""
) -> dict[str, str]:
    """JSON of every setting by key. ``texts``: digest of the file that ``tasks.texts`` names.

    Where a repository lies is not a setting: its head says what is in it.
    """
    settings = {
        "repositories.head": repository.head,
        "repositories.language": repository.language,
        "repositories.fallback_requirements": repository.fallback_requirements,
        TEXTS: texts,
    }
    for prefix, part in (
        ("repositories.layout", repository.layout),
        ("platform", study.platform),
        ("tasks", study.tasks),
    ):
        settings |= {f"{prefix}.{key}": value for key, value in msgspec.to_builtins(part).items()}
    return {key: msgspec.json.encode(value).decode() for key, value in sorted(settings.items())}


def settings_digest(settings: Mapping[str, str]) -> str:
    """What a verdict names its settings by; empty where none were recorded."""
    if not settings:
        return ""
    return sha256(msgspec.json.encode(settings, order="sorted")).hexdigest()


NOT_RECORDED = "not recorded"


class ChangedSetting(Value):
    """A setting that is not what tasks were selected under; a side that has none says so."""

    repository: str
    key: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.key} of {self.repository} was {self.then} and is {self.now}"


def changed_settings(
    repository: str, then: Mapping[str, str], now: Mapping[str, str]
) -> list[ChangedSetting]:
    """Every key whose value differs, sorted."""
    return [
        ChangedSetting(
            repository=repository,
            key=key,
            then=then.get(key, NOT_RECORDED),
            now=now.get(key, NOT_RECORDED),
        )
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]
