"""Files of the package that drivers are made of: prompts, and the digest of one."""

from hashlib import sha256
from importlib.resources import files

from harnesses.drivers.contract import Driver


def system_prompt(driver: Driver) -> str:
    """What stands before the first message: the driver's prompt files; empty for most."""
    package = files("harnesses")
    return "\n".join(package.joinpath(name).read_text("utf-8") for name in driver.prompt_files)


def file_digest(name: str) -> str:
    """SHA-256 of one file of the package."""
    return sha256(files("harnesses").joinpath(name).read_bytes()).hexdigest()
