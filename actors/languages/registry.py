"""The languages that can be mined and graded, by the name that ``study.toml`` gives them."""

from actors.languages.go import GO
from actors.languages.python import PYTHON

LANGUAGES = {language.id: language for language in (PYTHON, GO)}
