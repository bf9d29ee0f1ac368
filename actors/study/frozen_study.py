"""The frozen study in the hands of a worker: everything comes from the log and its artifacts."""

from collections.abc import Callable, Sequence
from typing import Generic

from actors.loop import Context
from actors.study.components import Component, all_differences, present_components
from actors.study.declarations import Changes, differs
from ledger.errors import Refused
from projections.amendments import Amendments
from projections.fold import fold
from projections.progress import Progress
from schemas.events.study import FrozenComponent, StudyFrozen
from schemas.identifiers import CellId
from schemas.study import K, Study, StudyError, of_kind


class FrozenStudy(Generic[K]):
    """Read once by every worker, and again after an amendment (a worker never lives through one).

    Raises Refused where nothing is frozen, or the study is of another kind.
    """

    def __init__(
        self, form: type[K], context: Context, components: Callable[[Study], Sequence[Component]]
    ) -> None:
        self.context = context
        self._components = components
        self._seq: int | None = None
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

    def component(self, name: str) -> FrozenComponent:
        """As it was frozen or last amended. Raises Refused for one that was not frozen."""
        found = self.amendments.components_at(self._seq).get(name)
        if found is None:
            raise Refused(f"{name} was not frozen: a cell of it cannot run")
        return found

    def require_as_frozen(self, cell: CellId) -> None:
        """Raises Refused where a component of the cell's own is not the frozen one here."""
        own = self.study.cell_components(cell)
        here = [each for each in self._components(self.study) if each.name in own]
        frozen = {name: self.component(name) for name in own if self._is_ours(name, here)}
        read = self.context.artifacts.get
        changed = all_differences(frozen, present_components(here), read)
        if changed:
            raise Refused(differs(Changes(components=changed), self.study))

    def _is_ours(self, name: str, here: Sequence[Component]) -> bool:
        """What runs as somebody else's program is no component of ours."""
        return name in self.amendments.components or any(each.name == name for each in here)
