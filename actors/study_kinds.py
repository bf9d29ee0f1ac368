"""The kinds of study there are: the literal dictionary, and where a study's own is found in it."""

from collections.abc import Collection, Mapping

from actors.loop import Context, Handlers
from actors.repair.kind import REPAIR
from actors.study import orders
from actors.study.kind import StudyKind
from actors.transfer.kind import TRANSFER
from projections.fold import fold
from projections.progress import Progress
from schemas.study import Study

KINDS: Mapping[str, StudyKind] = {"repair": REPAIR, "transfer": TRANSFER}


def kind_of(study: Study) -> StudyKind:
    return KINDS[study.kind]


def kind_in(context: Context) -> StudyKind:
    """The kind of the frozen study, or of the declared one before the freeze."""
    frozen = fold(Progress(context.artifacts.get), context.study_facts()).study
    return kind_of(frozen if frozen is not None else context.directory.read_study()[1])


def kind_by_types(types: Collection[str]) -> StudyKind | None:
    """The kind whose units were frozen, told from the types of the study's records alone: damage to
    their content changes nothing. None where nothing was frozen yet."""
    return next((kind for kind in KINDS.values() if kind.units_frozen.TYPE in types), None)


def orders_in(context: Context) -> Handlers:
    """Handlers of everything that a person orders of the study."""
    return {**orders.HANDLERS, **kind_in(context).orders()}
