"""Declared bounds on speed and quality, the gates that check them, and their verdicts."""
