"""Which dialect a job file is written in: AI Platform's, Determined's, or our own."""

import importlib

from stoker.compat.dialects import aiplatform
from stoker.submission import job_file as stoker_yaml
from stoker.submission.reading import Document, Reading

_DETERMINED = frozenset({"entrypoint", "entrypoint_script", "hyperparameters", "searcher"})


def is_aiplatform(document: Document) -> bool:
    """AI Platform's Job resource, or a file that looks like none we know, which is judged as one."""
    if aiplatform.is_dialect(document):
        return True
    return not stoker_yaml.is_dialect(document) and not is_determined(document)


def is_determined(document: Document) -> bool:
    """Determined's experiment file, by the fields that every one of them has one of, and no other file has any.

    An App Engine's app.yaml has an entrypoint, too, beside its `runtime`.
    """
    return not _DETERMINED.isdisjoint(document) and not aiplatform.is_dialect(document) and "runtime" not in document


def read(document: Document, *, source: str) -> Reading:
    """Part of a JobSpec, from whichever dialect it is: Determined's, AI Platform's, or our own."""
    if is_aiplatform(document):
        return aiplatform.read(document, source=source)
    if is_determined(document):
        # Loaded when needed: its models take longer to build than all the rest of reading a file.
        determined = importlib.import_module("stoker.compat.dialects.determined")
        reading: Reading = determined.read(document, source=source)
        return reading
    return stoker_yaml.read(document, source=source)
