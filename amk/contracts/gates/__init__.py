"""One gate a file."""
