"""`determined.estimator`: not here."""

from stoker.compat.refusals import UNSUPPORTED

raise ImportError(f"determined.estimator is imported. {UNSUPPORTED['determined.estimator']}.")
