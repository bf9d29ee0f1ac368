"""Who acts: processes that take commands from the log, perform effects and append events.

Kernel on top: ``loop`` (claim, perform, commit), ``supervisor``, ``wakeup``, ``model_server``,
``diagnostics``. Then rooms by subject: ``study`` (what every kind does), ``repair``, ``transfer``
(the two kinds), ``mining``, ``test_runs``, ``sandbox``, ``servers``, ``memory_systems``,
``fixture``, ``families``, ``rehearsal``.
"""
