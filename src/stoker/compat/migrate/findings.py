"""What looking at a directory comes to."""

from dataclasses import dataclass, field
from enum import StrEnum

from stoker.origin import Platform
from stoker.submission.reading import JobValues


class Verdict(StrEnum):
    """`runs` as it is; `needs` something that is not here; `cannot` run at all."""

    RUNS = "runs"
    NEEDS = "needs"
    CANNOT = "cannot"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in the directory: what it is, where, and what becomes of it."""

    verdict: Verdict
    what: str
    detail: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """All of them, and the job as a stoker.yaml would have it."""

    directory: str
    platform: Platform
    evidence: tuple[str, ...]
    findings: tuple[Finding, ...]
    values: JobValues = field(default_factory=JobValues)
    commands: tuple[str, ...] = ()  # what to type now
    folder: str = ""  # below the directory, of the project that the job is of

    @property
    def can_run(self) -> bool:
        return not any(finding.verdict in (Verdict.NEEDS, Verdict.CANNOT) for finding in self.findings)
