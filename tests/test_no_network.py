"""The guard that keeps the tests on this machine."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443), ("8.8.8.8", 53)])
def test_a_connection_out_of_this_machine_fails_the_test(address: tuple[str, int]) -> None:
    with socket.socket() as used, pytest.raises(pytest.fail.Exception, match="tests use no network"):
        used.connect(address)
    with socket.socket() as used, pytest.raises(pytest.fail.Exception, match="tests use no network"):
        used.connect_ex(address)


def test_a_server_of_the_test_itself_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as used:
        used.connect(server.getsockname())
