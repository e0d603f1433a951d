"""`determined.estimator`: not here."""

from stoker.compat.eras.refusals import UNSUPPORTED

raise ImportError(f"determined.estimator is imported. {UNSUPPORTED['determined.estimator']}.")
