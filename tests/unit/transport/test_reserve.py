"""Reserved ports: only a server that names one can have it."""

from headrace._src.transport.connect import listen
from headrace._src.transport.reserve import reserve


def test_a_server_listens_on_a_reserved_port_and_comes_back_to_it():
    held = reserve(3)
    try:
        assert len({each.address for each in held}) == 3
        for _ in range(2):
            listener = listen(held[0].address)
            assert listener.address == held[0].address
            listener.close()
    finally:
        for each in held:
            each.close()


def test_nobody_else_gets_a_reserved_port():
    held = reserve(20)
    listeners = [listen("127.0.0.1:0") for _ in range(20)]
    try:
        assert {each.address for each in held}.isdisjoint(each.address for each in listeners)
    finally:
        for each in [*held, *listeners]:
            each.close()
