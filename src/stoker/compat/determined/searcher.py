"""`determined.searcher`: not here."""

from stoker.compat.eras.refusals import UNSUPPORTED

raise ImportError(f"determined.searcher is imported. {UNSUPPORTED['determined.searcher']}.")
