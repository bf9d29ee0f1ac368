"""What every kind of study does: declared, frozen, scheduled, analysed."""
