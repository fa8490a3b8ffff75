"""Messages between ranks over TCP connections of our own, one for each pair of ranks.

gloo's messages cost a millisecond or more each where its threads share cores with the computation: its event loop spins while another thread
has a connection's lock. Here the thread that waits for a message reads it, and there is no other thread. Where several threads
wait, one of them polls for all.

A message is a header (magic, tag, length) and its bytes. It goes to the oldest receive of its sender and tag. One that comes before its
receive is kept.
"""

from __future__ import annotations

import collections
import datetime
import fcntl
import os
import secrets
import select
import socket
import struct
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

Memory = Union[memoryview, bytes]

_HEADER, _MAGIC = struct.Struct("<IIQ"), 0x534D4754
_HELLO = struct.Struct("<I16s")  # who connects, and the token of the rank that it connects to
_CONNECT_SECONDS = 10.0
_SIOCGIFADDR = 0x8915


class Work:
    """A message under way; at most one thread may wait for it."""

    __slots__ = ("memory", "peer", "until", "is_done", "error", "_mesh")

    def __init__(self, mesh: Mesh, peer: int, memory: Memory, until: float) -> None:
        self._mesh, self.peer, self.memory, self.until = mesh, peer, memory, until
        self.is_done = False
        self.error: Optional[str] = None

    def end(self, error: Optional[str] = None) -> None:
        self.is_done, self.error = True, error

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> None:
        """Raises OSError if the other rank is lost, or if it takes too long."""
        self._mesh.wait(self, self.until if timeout is None else time.monotonic() + timeout.total_seconds())
        if self.error is not None:
            raise OSError(self.error)


class _Peer:
    """The connection to a rank."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        self.rank, self.socket, self.fd = rank, connection, connection.fileno()
        self.header = memoryview(bytearray(_HEADER.size))
        self.got = 0                             # bytes of the header or of the message
        self.tag: Optional[int] = None           # of the message that is being received
        self.work: Optional[Work] = None         # that waits for it
        self.memory: Any = None                  # where it goes
        self.outbox: Deque[Tuple[Work, List[memoryview]]] = collections.deque()
        self.lost: Optional[str] = None


def _close(sockets: List[socket.socket]) -> None:
    for each in sockets:
        each.close()


class Mesh:
    """The connections of a rank. Its functions may be called by any thread."""

    def __init__(self, sockets: Dict[int, socket.socket], seconds: float) -> None:
        self._seconds = seconds
        self._peers = {rank: _Peer(rank, connection) for rank, connection in sockets.items()}
        self._by_fd = {peer.fd: peer for peer in self._peers.values()}
        self._expected: Dict[Tuple[int, int], Deque[Work]] = collections.defaultdict(collections.deque)
        self._early: Dict[Tuple[int, int], Deque[bytearray]] = collections.defaultdict(collections.deque)
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._polls = False  # some thread does
        self._waker, self._woken = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        for connection in (self._waker, self._woken, *sockets.values()):
            connection.setblocking(False)
        weakref.finalize(self, _close, [self._waker, self._woken, *sockets.values()]).atexit = False
        for peer in self._peers.values():
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(peer.fd, select.POLLIN)

    # ---- messages ------------------------------------------------------------------------------------------------------

    def recv(self, memory: Memory, rank: int, tag: int) -> Work:
        """Starts to receive a message of exactly this length."""
        work, peer = Work(self, rank, memory, time.monotonic() + self._seconds), self._peers[rank]
        with self._lock:
            early = self._early.get((rank, tag))
            if early:
                self._deliver(peer, work, early.popleft())
            elif peer.lost is not None:
                work.end(peer.lost)
            else:
                self._expected[rank, tag].append(work)
        return work

    def send(self, memory: Memory, rank: int, tag: int) -> Work:
        work, peer = Work(self, rank, memory, time.monotonic() + self._seconds), self._peers[rank]
        with self._lock:
            if peer.lost is not None:
                work.end(peer.lost)
            else:
                peer.outbox.append((work, [memoryview(_HEADER.pack(_MAGIC, tag, len(memory))), memoryview(memory)]))
                if len(peer.outbox) == 1:
                    self._flush(peer)
                    if peer.outbox:
                        self._poll.modify(peer.fd, select.POLLIN | select.POLLOUT)
                        self._wake()
        return work

    def wait(self, work: Work, until: float) -> None:
        """Until a work is done. It fails if that takes longer than until a time."""
        with self._lock:
            while not work.is_done:
                left = until - time.monotonic()
                if left <= 0:
                    work.end(f"timed out waiting for rank {work.peer}")
                elif self._polls:
                    self._news.wait(left)
                else:
                    self._polls = True
                    try:
                        self._progress(left)
                    finally:
                        self._polls = False
                        self._news.notify_all()

    def abort(self) -> None:
        """Closes all connections: everyone who waits for this rank learns of it, and everything under way ends."""
        with self._lock:
            for peer in self._peers.values():
                self._lose(peer, "the link was given up")
            self._wake()
            self._news.notify_all()

    # ---- progress; with the lock held ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._polls:
            try:
                self._waker.send(b"!")
            except OSError:
                pass  # full of earlier ones

    def _progress(self, seconds: float) -> None:
        """Waits until something happens on a connection, and does what can be done then."""
        self._lock.release()
        try:
            events = self._poll.poll(max(1, int(1000 * min(seconds, 3600))))
        finally:
            self._lock.acquire()
        for fd, what in events:
            peer = self._by_fd.get(fd)
            if peer is None:
                self._woken.recv(4096)
            elif peer.lost is None:
                if what & select.POLLOUT:
                    self._flush(peer)
                    if not peer.outbox and peer.lost is None:
                        self._poll.modify(peer.fd, select.POLLIN)
                if what & ~select.POLLOUT and peer.lost is None:
                    self._receive(peer)

    def _flush(self, peer: _Peer) -> None:
        """Sends as much as goes out at once."""
        try:
            while peer.outbox:
                work, parts = peer.outbox[0]
                sent = peer.socket.sendmsg(parts)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if parts:
                    parts[0] = parts[0][sent:]
                else:
                    peer.outbox.popleft()
                    work.end()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lose(peer, error.strerror or str(error))

    def _receive(self, peer: _Peer) -> None:
        """Receives what is there of one message."""
        try:
            while True:
                room = peer.header if peer.tag is None else peer.memory
                if peer.got < len(room):
                    got = peer.socket.recv_into(room[peer.got:])
                    if got == 0:
                        self._lose(peer, "the connection was closed by the other rank")
                        return
                    peer.got += got
                if peer.got < len(room):
                    continue
                peer.got = 0
                if peer.tag is not None:
                    self._finish(peer, peer.tag)
                    return
                if not self._place(peer):
                    return
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lose(peer, error.strerror or str(error))

    def _place(self, peer: _Peer) -> bool:
        """After a header: where the message goes."""
        magic, tag, length = _HEADER.unpack(peer.header)
        expected = self._expected.get((peer.rank, tag))
        work = expected[0] if expected else None
        if magic != _MAGIC or (work is not None and len(work.memory) != length):
            self._lose(peer, f"a message of {length} bytes came where {0 if work is None else len(work.memory)} were expected")
            return False
        if expected and work is not None:
            expected.popleft()
            peer.work, peer.memory = work, work.memory
        else:
            peer.work, peer.memory = None, memoryview(bytearray(length))
        peer.tag = tag
        return True

    def _finish(self, peer: _Peer, tag: int) -> None:
        work, memory = peer.work, peer.memory
        peer.tag, peer.work, peer.memory = None, None, None
        if work is not None:
            work.end()
        elif self._expected.get((peer.rank, tag)):
            self._deliver(peer, self._expected[peer.rank, tag].popleft(), memory.obj)
        else:
            self._early[peer.rank, tag].append(memory.obj)

    def _deliver(self, peer: _Peer, work: Work, message: bytearray) -> None:
        if len(message) == len(work.memory):
            memoryview(work.memory)[:] = message
            work.end()
        else:
            work.end(f"a message of {len(message)} bytes came where {len(work.memory)} were expected")
            self._lose(peer, str(work.error))

    def _lose(self, peer: _Peer, why: str) -> None:
        if peer.lost is not None:
            return
        peer.lost = why
        self._poll.unregister(peer.fd)
        try:
            peer.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        waiting = [work for (rank, _), works in self._expected.items() if rank == peer.rank for work in works]
        for work in waiting + [work for work, _ in peer.outbox] + ([peer.work] if peer.work is not None else []):
            work.end(why)
        for (rank, _), works in self._expected.items():
            if rank == peer.rank:
                works.clear()
        peer.outbox.clear()
        peer.work = None


# ---- making one ----------------------------------------------------------------------------------------------------------------


def _own_address() -> str:
    """The address that gloo would listen on: of GLOO_SOCKET_IFNAME, else of the host's name, else loopback."""
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            return socket.inet_ntoa(found[20:24])
    try:
        for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                probe.bind((address[0], 0))
            return str(address[0])
    except OSError:
        pass
    return "127.0.0.1"


def _listen() -> Tuple[Optional[socket.socket], str]:
    """A socket that listens, and what others must know; nothing, if gloo is all there is to be."""
    if os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP") != "TCP" or os.environ.get("TERSEGRAD_TORCH_LINK") == "gloo":
        return None, "none"
    try:
        address = _own_address()
        own = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        own.bind((address, 0))
        own.listen(4096)
    except OSError:
        return None, "none"
    port = own.getsockname()[1]
    return own, f"{address} {port} {secrets.token_hex(16)}"


def _read_hello(connection: socket.socket, token: bytes, until: float) -> Optional[int]:
    """The rank that has connected; None if it is none of ours."""
    connection.settimeout(max(0.01, min(1.0, until - time.monotonic())))
    said = b""
    try:
        while len(said) < _HELLO.size:
            part = connection.recv(_HELLO.size - len(said))
            if not part:
                return None
            said += part
    except OSError:
        return None
    rank, given = _HELLO.unpack(said)
    return int(rank) if secrets.compare_digest(given, token) else None


def _join(own: socket.socket, rank: int, told: List[str]) -> Dict[int, socket.socket]:
    """Connects to all lower ranks, and accepts all higher ones. Raises OSError if some cannot be reached."""
    out: Dict[int, socket.socket] = {}
    until = time.monotonic() + _CONNECT_SECONDS
    for peer in range(rank):
        address, port, token = told[peer].split()
        out[peer] = socket.create_connection((address, int(port)), timeout=max(0.1, until - time.monotonic()))
        out[peer].sendall(_HELLO.pack(rank, bytes.fromhex(token)))
    secret = bytes.fromhex(told[rank].split()[2])
    while len(out) < len(told) - 1:
        own.settimeout(max(0.01, until - time.monotonic()))
        connection, _ = own.accept()
        other = _read_hello(connection, secret, until)
        if other is not None and rank < other < len(told) and other not in out:
            out[other] = connection
        else:
            connection.close()
    return out


def connect(rank: int, gather: Callable[[bytes], List[str]], seconds: float) -> Optional[Mesh]:
    """Connections between all ranks, on all of which this is called; None on all of them if some cannot be made. `gather` returns what
    all ranks have given to it. A message may take so many seconds."""
    own, text = _listen()
    try:
        told = gather(text.encode())
        if len(told) == 1 or "none" in told:
            return None
        assert own is not None
        try:
            sockets: Optional[Dict[int, socket.socket]] = _join(own, rank, told)
        except OSError:
            sockets = None
        agreed = gather(b"no" if sockets is None else b"yes")
    finally:
        if own is not None:
            own.close()
    return Mesh(sockets, seconds) if sockets is not None and "no" not in agreed else None
