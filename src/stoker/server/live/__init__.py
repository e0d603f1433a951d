"""Live updates: wake-ups, fan-out and topics."""
