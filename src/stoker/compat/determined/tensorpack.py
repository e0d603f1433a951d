"""`determined.tensorpack`: not here."""

from stoker.compat.refusals import UNSUPPORTED

raise ImportError(f"determined.tensorpack is imported. {UNSUPPORTED['determined.tensorpack']}.")
