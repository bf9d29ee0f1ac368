"""The prompt files of arms and drivers: the only files that this package reads."""

from importlib import resources

from harnesses.contract import Harness


def read_prompts(harness: Harness) -> dict[str, str]:
    """The arm's prompt files by path: what ``CellInput.prompts`` must hold."""
    return {path: read_prompt(path) for path in harness.prompt_files}


def read_prompt(path: str) -> str:
    """One file of this package, from wherever it is installed."""
    return resources.files("harnesses").joinpath(*path.split("/")).read_text("utf-8")
