"""The kind ``repair`` as one record."""

from actors.loop import Handlers
from actors.study.kind import StudyKind
from schemas.repair.study import RepairStudy


def _orders() -> Handlers:
    from actors.repair.freezing import ORDERS

    return ORDERS


REPAIR = StudyKind(
    form=RepairStudy,
    orders=_orders,
)
