"""How many threads torch uses while the machine runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside, as many as before after.

    A task's products are short: a second thread gains nothing on an idle machine, and on a busy one each product waits
    for a thread that is not running.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
