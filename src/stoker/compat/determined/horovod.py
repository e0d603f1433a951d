"""`determined.horovod`: `hvd` for a trial on one slot. On several, torch's ranks do Horovod's work."""

from stoker.compat.determined.one_horovod import hvd

__all__ = ["hvd"]
