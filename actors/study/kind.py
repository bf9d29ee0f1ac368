"""What a kind of study is: one record. The kinds there are stand in ``actors/study_kinds.py``."""

from collections.abc import Callable
from dataclasses import dataclass

from actors.loop import Handlers
from schemas.study import Study


@dataclass(frozen=True)
class StudyKind:
    """One kind of study. Functions import what they need when they are called, so that a command
    loads no more than it uses."""

    form: type[Study]
    """What its ``study.toml`` may hold."""
    orders: Callable[[], Handlers]
    """Handlers of what a person orders in this kind's own way: plan, freeze, amend, start a run."""
