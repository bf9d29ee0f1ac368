"""What may be said: the vocabulary of the ledger. No I/O and no clock anywhere in this package.

``envelope`` is the record that every event is wrapped in, ``events/`` what can be recorded (one
file a subject), ``commands`` what can be asked for, ``study``, ``task`` and ``plan`` what a study
declares and freezes.
"""
