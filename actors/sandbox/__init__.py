"""Test runs are untrusted code. This package runs them where they can reach nothing else.

``contract.py``  what goes in and comes out: limits, the finished run, the isolation matrix
``layout.py``    the allow-list root: which paths a run can see, and where
``launcher.py``  the part that runs inside: namespaces, Landlock, seccomp, limits, process 1
``run.py``       :class:`Sandbox`: starts the launcher, drains its pipes, never hangs
``ladder.py``    which rung works here, found out by trying

The ladder is ``bubblewrap``, ``namespaces``, ``landlock``; ``none`` is what is left where none of
them holds, and must be opened by name. A rung that does not contain network, host loopback, Unix
sockets, outside files or survivors is not offered, whatever the documentation of the system says.
"""

from actors.sandbox.contract import Finished, Limits, SandboxError, SandboxReport
from actors.sandbox.ladder import open_sandbox, probe
from actors.sandbox.run import Sandbox

__all__ = [
    "Finished",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxReport",
    "open_sandbox",
    "probe",
]
