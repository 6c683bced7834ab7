"""A try, and another one after a while, for what a server or a wire may do better next time."""

import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from ray_ablation.data.files import DataError

# Before the second, third and fourth try: a busy server is back in seconds, one that is down not
# in minutes.
WAITS_S = (1.0, 4.0, 10.0)

T = TypeVar("T")


class AgainError(Exception):
    """A try that failed in a way that the next one may not."""


def raise_status(status: int, reason: str, remedy: Callable[[str], str]) -> NoReturn:
    """Try again where the server is at fault, give up where the request is.

    Raises:
        AgainError: The server failed, or is busy.
        DataError: There is no such thing, or it is not given away.
    """
    if status >= 500 or status in (408, 429):
        raise AgainError(reason) from None
    raise DataError(remedy(reason)) from None


def patiently(
    call: Callable[[], T],
    waits: Sequence[float] | None,
    remedy: Callable[[str], str],
    say: Callable[[str], object],
) -> T:
    """The call's result; tried again after each wait."""
    for wait in [*(WAITS_S if waits is None else waits), None]:
        try:
            return call()
        except AgainError as error:
            if wait is None:
                raise DataError(remedy(str(error))) from None
            say(f"{error}; trying again in {wait:g} s")
            time.sleep(wait)
    raise AssertionError("the last wait is None")
