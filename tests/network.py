"""Addresses of this machine, for tests."""

import socket

import pytest


def own_address() -> str:
    """One that is not loopback, as other hosts would use; the test is skipped where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("198.51.100.1", 9))  # sends nothing: the kernel only chooses a way
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(asking.getsockname()[0])
