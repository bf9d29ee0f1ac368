"""The adapters of model servers, by the `kind` of a study's `[server]`: the literal dictionary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.servers.contract import ModelServer
from actors.servers.http_model_server import Limits


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server is, and how long to wait for it."""

    url: str
    lms: str
    """The LM Studio command line tool."""
    weights: Path | None
    """File of weights for a server in this process; None: those of the extra ``real-model``."""
    limits: Limits
    token: str | None


def _lmstudio(address: Address) -> ModelServer:
    from actors.servers.lmstudio import LMStudio

    return LMStudio(address.url, [address.lms], address.limits, address.token)


def _openai(address: Address) -> ModelServer:
    from actors.servers.openai import OpenAICompatible

    return OpenAICompatible(address.url, address.limits, address.token)


def _llamacpp(address: Address) -> ModelServer:
    from actors.servers.llamacpp import LlamaCpp

    return LlamaCpp(address.weights, address.limits)


SERVERS: Mapping[str, Callable[[Address], ModelServer]] = {
    "lmstudio": _lmstudio,
    "stand_in": _lmstudio,  # it speaks as LM Studio does
    "openai": _openai,
    "llamacpp": _llamacpp,
}
