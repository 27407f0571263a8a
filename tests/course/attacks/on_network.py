"""Against the network: everything by which a secret could leave, or help could come."""

import os
import socket
import struct

from . import attack


@attack("calls a machine by TCP without Python's socket", by="kernel")
def tcp_by_libc(aim):
    number = aim.libc.socket(2, 1, 0)
    place = struct.pack("=HHI8x", 2, socket.htons(aim.tcp), socket.htonl(0x7F000001))
    if aim.libc.connect(number, place, len(place)) == 0:
        os.write(number, aim.name.encode())


@attack("sends a datagram by UDP", by="kernel")
def udp(aim):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(aim.name.encode(), ("127.0.0.1", aim.udp))


@attack("calls a service of the machine by a unix socket", by="kernel")
def unix(aim):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(aim.unix)
        line.sendall(aim.name.encode())


@attack("calls a service by a unix socket that has no file", by="kernel")
def abstract(aim):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(aim.abstract)
        line.sendall(aim.name.encode())


@attack("calls a service over the socket of its own worker", by="split",
        unbared="only this course has such a socket")  # fmt: skip
def own_socket(aim):
    for number in range(3, 64):
        try:
            line = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        for place in (aim.unix, aim.abstract):
            try:
                line.connect(place)
                line.sendall(aim.name.encode())
            except OSError:
                continue


@attack("opens a port", by="kernel")
def listens(aim):
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"it listens at {server.getsockname()[1]}"


@attack("opens a netlink socket to the kernel", by="kernel")
def netlink(aim):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as line:
        line.bind((0, 0))
        return "a line to the kernel"
