"""Attacks over the network: every way to send a secret out or to fetch help. Each
system call of sockets is tried by its number in test_sandbox.py."""

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


@attack("calls a service of the machine by a unix socket", by="kernel")
def unix(aim):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(aim.unix)
        line.sendall(aim.name.encode())


@attack("calls a service over the socket of its own worker", by="split")
def own_socket(aim):
    for number in range(3, 64):
        try:
            line = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        try:
            line.connect(aim.unix)
            line.sendall(aim.name.encode())
        except OSError:
            continue
