"""Every driver by its kind. A literal dictionary: what is not here does not exist."""

from collections.abc import Mapping

from harnesses.drivers import (
    chat,
    early_acknowledger,
    ignorer,
    liar,
    null,
    over_applier,
    reader,
)
from harnesses.drivers.contract import Driver

DRIVERS: Mapping[str, Driver] = {
    "reader": reader.DRIVER,
    "null": null.DRIVER,
    "over_applier": over_applier.DRIVER,
    "ignorer": ignorer.DRIVER,
    "liar": liar.DRIVER,
    "early_acknowledger": early_acknowledger.DRIVER,
    "chat": chat.DRIVER,
}


def find_driver(kind: str) -> Driver:
    """Raises LookupError that names the known ones."""
    if kind not in DRIVERS:
        raise LookupError(f"there is no driver {kind!r}; there are: {', '.join(sorted(DRIVERS))}")
    return DRIVERS[kind]
