"""Where data lies, as `paths` in a grid says it.

    ./folder, /folder, $BEIR/scifact        a folder or file of this machine
    https://host/name.zip                   an archive, or the place that files lie under
    hf://datasets/owner/name                a data set of the hub; @revision and /path may follow

The text alone decides which: nothing is looked up here.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ray_ablation.problems import UserError

FORMS = "a folder of this machine, https://host/name.zip or hf://datasets/owner/name"
HUB = re.compile(
    r"^hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+(/pr/\d+)?))?(/(?P<path>.+?))?/?$"
)
SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True)
class Url:
    """A file behind http or https, or the place that files lie under."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Hub:
    """A data set of the hub: owner/name, a revision (None: as it stands now), a folder in it."""

    repo: str
    revision: str | None = None
    path: str = ""

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf://datasets/{self.repo}{revision}{'/' if self.path else ''}{self.path}"


Source = Path | Url | Hub


def parse_source(text: str) -> Source:
    """The source that a text names; $VARIABLES were expanded before.

    Raises:
        UserError: It has the form of none.
    """
    if text.startswith(("https://", "http://")) and text.partition("://")[2].strip("/"):
        return Url(text.rstrip("/"))
    if found := HUB.match(text):
        return Hub(found["repo"], found["revision"], found["path"] or "")
    if SCHEME.match(text):
        raise UserError(f"{text!r} is none of {FORMS} (@revision and /path may follow)")
    if not text.strip():
        raise UserError(f"{text!r} names nothing; give {FORMS}")
    return Path(text).expanduser()


def local(source: Source | None) -> Path | None:
    """The folder or file, where it is one of this machine."""
    return source if isinstance(source, Path) else None
