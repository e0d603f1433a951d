"""`determined.searcher`: not here."""

from stoker.compat.refusals import UNSUPPORTED

raise ImportError(f"determined.searcher is imported. {UNSUPPORTED['determined.searcher']}.")
