"""The languages that can be mined and graded, by the name that ``study.toml`` gives them."""

from actors.languages.contract import Language
from actors.languages.python import PYTHON
from ledger.errors import Usage

LANGUAGES = {language.id: language for language in (PYTHON,)}


def language_of(name: str) -> Language:
    """Raises Usage for a language that is not there yet."""
    if name not in LANGUAGES:
        raise Usage(
            f"this version mines repositories in {', '.join(LANGUAGES)} only, not in {name}: "
            "take that repository out of study.toml (its [[repositories]] table), or wait for a "
            "version that has its language"
        )
    return LANGUAGES[name]
