"""`determined.tensorpack`: not here."""

from stoker.compat.eras.refusals import UNSUPPORTED

raise ImportError(f"determined.tensorpack is imported. {UNSUPPORTED['determined.tensorpack']}.")
