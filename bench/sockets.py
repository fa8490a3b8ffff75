#!/usr/bin/env python3
"""CPU time of bytes between two hosts through plain TCP sockets, both ways at once: what any library over TCP pays at least.

    sudo bench/netns --hosts 2 --rate 10gbit --pin --by env -- python3 bench/sockets.py [--bytes 21600000] [--rounds 12]

Rank 0 prints medians over rounds. One thread sends and another receives; nothing else is done with the bytes. The default is what a GPT of
10.8 M parameters sends in fp16.
"""

import argparse
import os
import resource
import socket
import statistics
import threading
import time

PORT_AFTER = 77  # after MASTER_PORT


def connect(rank):
    port = int(os.environ.get("MASTER_PORT", "29500")) + PORT_AFTER
    if rank == 0:
        with socket.create_server(("", port)) as server:
            server.settimeout(20)
            return server.accept()[0]
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=20)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def receive(connection, into):
    at = 0
    while at < len(into):
        n = connection.recv_into(into[at:], min(1 << 20, len(into) - at))
        if n == 0:
            raise ConnectionError("the other host has closed the connection")
        at += n


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description="CPU time of bytes through plain sockets.")
    parser.add_argument("--bytes", type=int, default=21600000, help="sent by each host in a round [21600000]")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    connection = connect(rank)
    out, into = os.urandom(options.bytes), memoryview(bytearray(options.bytes))
    cpu, wall = [], []
    for _ in range(options.rounds):
        begin, used = time.monotonic(), cpu_seconds()
        sender = threading.Thread(target=connection.sendall, args=(out,))
        sender.start()
        receive(connection, into)
        sender.join()
        cpu.append(cpu_seconds() - used)
        wall.append(time.monotonic() - begin)
    if rank == 0:
        print(f"{options.bytes:,} bytes each way: {1e3 * statistics.median(cpu):.1f} ms of CPU, {1e3 * statistics.median(wall):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
