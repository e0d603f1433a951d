"""`determined.pytorch.lightning`: not here."""

from stoker.compat.refusals import UNSUPPORTED

raise ImportError(f"determined.pytorch.lightning is imported. {UNSUPPORTED['determined.pytorch.lightning']}.")
