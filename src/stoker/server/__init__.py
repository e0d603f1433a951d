"""The control plane: store, scheduler, REST API."""
