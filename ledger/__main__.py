"""``python -m ledger`` and the installed command ``ledger``."""

from ledger.cli.main import main

if __name__ == "__main__":
    main()
