"""Test runs are untrusted code. This package runs them where they can reach nothing else.

``contract.py``  what goes in and comes out: limits, the finished run, the isolation matrix
``layout.py``    the allow-list root: which paths a run can see, and where
``launcher.py``  the part that runs inside: namespaces, Landlock, seccomp, limits, process 1
``run.py``       :class:`Sandbox`: starts the launcher, drains its pipes, never hangs
``probe.py``     which rung of the ladder works here, found out by trying

The ladder is ``bubblewrap``, ``namespaces``, ``landlock``; ``none`` exists for hosts that have none
of them and must be asked for by name. A rung whose network, host loopback, outside files or
survivors are not contained is not offered, whatever the documentation of the system says.
"""
