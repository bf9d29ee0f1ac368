"""Credentials in addresses: what carries one is refused, and what others print is cleared of them.

An address with a password or a token in it is written into logs, error messages and the list of
processes by every program that handles it; recorded in a ledger it can never be taken back. So an
address of ours never has one: git has credential helpers, pip its configuration, a model server the
variable ``LM_API_TOKEN``. Messages of other programs may still repeat one, and are cleared.
"""

import re

REMOVED = "[removed]"

# Repetitions are bounded, so that the time is a multiple of the text's length whatever it holds.
# Up to the last @ before the path: a password may have one.
_USERINFO = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,40}://)(?P<userinfo>[^/\s?#'\"<>]*)@"
)
_SECRET_PARAMETER = re.compile(
    r"(?P<name>[?&][^=&?\s]{0,80}(?:token|key|secret|passw|sig|auth|credential)[^=&?\s]{0,80}=)"
    r"[^&#\s'\"<>]+",
    re.IGNORECASE,
)
_SSH = re.compile(r"(?:git\+)?ssh://$", re.IGNORECASE)


def carries_credentials(address: str) -> bool:
    """True for a URL with a password, a user (but for SSH, where that is a name and no secret), or
    a parameter that looks like a secret."""
    return without_credentials(address) != address


def without_credentials(text: str) -> str:
    """``text`` with what stands between scheme and host of every URL removed, and the values of
    parameters that look like secrets."""
    cleared = _USERINFO.sub(_cleared, text)
    return _SECRET_PARAMETER.sub(rf"\g<name>{REMOVED}", cleared)


def _cleared(match: re.Match[str]) -> str:
    if _SSH.match(match["scheme"]) and ":" not in match["userinfo"]:
        return match[0]
    return f"{match['scheme']}{REMOVED}@"
