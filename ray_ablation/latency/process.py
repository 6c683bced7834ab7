"""One child process: started, waited for within a limit, killed with its group, recorded."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes:
        error: One line; None when its result is there.
        seconds: Wall time from its start to its end.
    """

    error: str | None
    seconds: float


def run_child(
    command: list[str], environment: dict[str, str], limit_s: float, log: Path
) -> Outcome:
    """Run a command in its own process group; kill the group after `limit_s`, or on any error here.

    Its output goes to `log`. Being in another session than a terminal's, it does not get Ctrl-C
    itself; this process does, and kills it on the way out.
    """
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        error = None
        try:
            # Waiting for the end of its output, which it does not write, sleeps in the kernel;
            # Popen.wait with a limit would poll, and wake a core while the child is timed.
            process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            error = f"killed after {limit_s:.0f} s, its limit"
        finally:
            _kill_group(process)
    if error is None and process.returncode != 0:
        error = f"{_how_it_ended(process.returncode)}: {_last_line(log)}"
    return Outcome(error, round(time.monotonic() - started, 3))


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _how_it_ended(returncode: int) -> str:
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
