"""Drop-in use from other libraries."""
