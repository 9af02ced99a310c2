"""amk against the HuggingFace oracle: token by token (``compare``), and on a small twin of any model (``twin``)."""
