"""The kind ``transfer`` as one record."""

from actors.loop import Handlers
from actors.study.kind import StudyKind
from schemas.transfer.study import TransferStudy


def _orders() -> Handlers:
    from actors.transfer.freezing import ORDERS

    return ORDERS


TRANSFER = StudyKind(
    form=TransferStudy,
    orders=_orders,
)
