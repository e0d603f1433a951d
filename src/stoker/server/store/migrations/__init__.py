"""The steps from each schema to the next, run by `store.migrate`; `versions/vNNNN_*.py` is revision NNNN."""
