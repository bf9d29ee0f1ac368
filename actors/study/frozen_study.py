"""The frozen study in the hands of a worker: everything comes from the log and its artifacts."""

from typing import Generic

from actors.loop import Context
from ledger.errors import Refused
from projections.amendments import Amendments
from projections.fold import fold
from projections.progress import Progress
from schemas.events.study import StudyFrozen
from schemas.study import K, StudyError, of_kind


class FrozenStudy(Generic[K]):
    """Read once by every worker, and again after an amendment (a worker never lives through one).

    Raises Refused where nothing is frozen, or the study is of another kind.
    """

    def __init__(self, form: type[K], context: Context) -> None:
        self.context = context
        self.facts = list(context.study_facts())
        self.progress = fold(Progress(context.artifacts.get), self.facts)
        self.amendments = fold(Amendments(context.artifacts.get), self.facts)
        if self.progress.frozen is None or self.progress.study is None:
            raise Refused("the study is not frozen: `ledger freeze` first")
        self.event: StudyFrozen = self.progress.frozen
        try:
            self.study: K = of_kind(form, self.progress.study)
        except StudyError as error:
            raise Refused(str(error)) from None
