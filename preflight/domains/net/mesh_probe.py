"""Listening and dialling between nodes: all of them at once, one thread each, every wait bounded.

A node listens on a port that the kernel chooses, tells those that will dial it over the meeting
where and with which nonce, dials those whom pairing.py gives it, and serves the others until they
are done. That TCP is accepted means nothing (a sidecar, a load balancer, another machine with the
same address): the one who answers has to prove that it is the one who was meant.

    dialler   HELLO   its number, a challenge, a proof that it was told the listener's nonce
    listener  ANSWER  its number, a proof of its own nonce for this challenge, whom it sees calling
    dialler   FRAME and so many bytes, if its check wants to; the listener acknowledges each

No socket is bound before it dials: neither Gloo nor NCCL does, the kernel chooses their source.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import resource
import socket
import struct
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from preflight.check import Context
from preflight.domains.net import pairing
from preflight.domains.net.dns import parse_ip
from preflight.domains.net.icmp import EXPIRED, REJECTS, keep_icmp, unreachable
from preflight.domains.net.interfaces import (
    LIBRARIES,
    ListenAddress,
    ListenAddresses,
    listen_addresses,
)
from preflight.domains.net.tcp import (
    READ,
    WRITE,
    ConversationLoop,
    Steps,
    connect_error,
    discard_unsent,
    errno_name,
    open_socket,
    receive,
    receive_some,
    send,
    sockaddr,
    tcp_info,
)
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.model import CannotObserve

OK, TIMED_OUT, SILENT, CLOSED = "ok", "timed out", "silent", "closed"
WRONG, NO_SOCKET, LOOP = "wrong machine", "no socket", "time to live exceeded"
"""Results of an edge beside errno's names. silent: connected, then nothing; closed: connected, then
closed without an answer; no socket: this process has no descriptors left, which says nothing; time
to live exceeded: a router has said so."""

CONNECT = 3.5
"""Seconds to connect: a SYN that is lost is sent again after 1 and after 3."""
CONNECT_AT_ONCE = 7.5
"""The same where all are opened at once: what a limit of new connections per second lets through
after the third repetition is not lost."""
ANSWERED = 3.0
PATIENCE = 4.0
"""Seconds that a node waits for the others to say where they listen."""
STRANGER = 5.0
MARGIN = 1.0
"""Seconds of an observation's budget that are left for its answer."""

WIDTH, YOUNG = 4, 0.05
"""So many dials are in the air that are younger than this many seconds. A healthy one never gets
older, so a listener has about one caller at a time; dead ones don't add up."""
BURST = 256
"""Connections that a node opens at once, at most."""
FLOWS = 16
"""Connections of one edge, each from another source port: where the hash of addresses and ports
decides over the path, a path of four that is broken shows with 99 %."""
FEW_FLOWS = 4
"""The same where not all edges are tested: each node is in 14 of those that are."""
REFUSED = ("ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH")
"""What a firewall on the way says."""
AGAIN, AGAIN_AFTER = 2, 0.3
"""A connection that is refused is tried again from the same source port, so often and so many
seconds later: where its path refuses it, always; where it was one too many, not."""
DOUBT = 0.5
"""Seconds after which the other flows of an edge are tried though its first one has no answer."""
RETRIES = 4
"""Connections of an edge that are tried again alone, when all others are closed, where some of its
connections failed or lost a packet and others passed."""
RETRIED_WITHIN, ALONE = 1.2, 3.0
"""Seconds for which each of them waits, which is one repetition of its SYN, and all together."""
APART, SETTLED = 0.15, 0.3
"""Seconds between two of them, and before the first."""
EXCHANGES = 8
"""Small messages over each: what limits connections does nothing to those that are open."""
CALLERS = 2048
FRAME_MAX, FRAMES = 1 << 20, 64

HELLO = struct.Struct("!8sI16s32s")
ANSWER = struct.Struct("!8sI32s46s")
FRAME = struct.Struct("!II")
MAGIC = b"pflight1"

Session = Callable[[socket.socket], Steps[Any]]
"""What a check does on a connection whose other end has proved itself."""


@dataclass(frozen=True, slots=True)
class Edge:
    """How one dial to node number `to` went.

    libraries    whose way it is: `Gloo`, `NCCL` or `NCCL+Gloo`
    result       OK, errno's name, or one of the words above
    seconds      until it was connected (the kernel's round trip where it knows that), or had failed
    source       the address that the listener saw, where it is not the one that this node used
    answered     wrong machine: the number of the node that answered instead, if it is one
    retransmits  segments that were sent again, SYN included
    port         its source port, where it was connected and nobody of ours answered; else 0
    rejected_by  the address of the firewall that rejected it by ICMP; empty: none did, or the
                 kernel does not say
    """

    to: int
    libraries: str
    result: str
    seconds: float
    source: str = ""
    answered: int | None = None
    retransmits: int = 0
    port: int = 0
    rejected_by: str = ""


@dataclass(frozen=True, slots=True)
class Flows:
    """Connections to node number `to` from different source ports, where not all passed at once:
    how many were tried, died, and passed when they were tried again. `dead`: no answer to three
    SYNs, or refused three times; `refused` of these."""

    to: int
    libraries: str
    tried: int
    dead: int = 0
    again: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """Connections to node number `to` when all were opened at once, where not all passed at once:
    how many were tried, passed only when their SYN was repeated, and failed (`refused` of these);
    seconds until the last of those that passed."""

    to: int
    libraries: str
    tried: int
    late: int = 0
    dead: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Retried:
    """Connections to node number `to` that had failed or lost a packet among many others, tried
    again one at a time from the same source port, when all others were closed.

    tried, passed  how many of them
    dead, revived  those that had failed before, and how many of these passed now
    sent, again    segments with data over those that passed, and how many of them were repeated
    """

    to: int
    libraries: str
    tried: int
    passed: int = 0
    dead: int = 0
    revived: int = 0
    sent: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """One address of another node, for one or two libraries."""

    number: int
    libraries: str
    ip: str
    port: int
    nonce: bytes
    interface: str


@dataclass(frozen=True, slots=True)
class Dialled:
    """A finished dial with its target, what its session returned, and its source port."""

    target: Target
    edge: Edge
    answer: Any = None
    port: int = 0


def _proof(nonce: bytes, word: bytes, challenge: bytes) -> bytes:
    return hashlib.sha256(nonce + word + challenge).digest()


class MeshPeer:
    """This node among those that test each other. Entering it listens and says where; leaving it
    tells the others that it is done with them, and serves them until they are done, too. `ends` is
    when all of it is over, whatever happens."""

    def __init__(self, ctx: Context, ways: Sequence[ListenAddress]) -> None:
        self.number = ctx.rank
        self.dials = pairing.dials(ctx.rank, ctx.world_size)
        self.callers = pairing.dialled_by(ctx.rank, ctx.world_size)
        self.heard: set[int] = set()
        self.accepted: set[str] = set()
        """Addresses of all that the listeners accepted."""
        self.ports: set[int] = set()
        self.flows: list[tuple[Target, str, int]] = []
        """Of each connection of meet() beyond the first of an edge: result, SYNs sent again."""
        self.further: list[Dialled] = []
        """The same where each of them had a session."""
        self.doubtful: dict[Target, list[tuple[bool, int]]] = {}
        """Connections that failed, or passed only when their SYN was repeated: whether they failed,
        and their source port."""
        self._ctx = ctx
        self._ways = ways
        self.ends = time.monotonic() + max(0.5, ctx.seconds - MARGIN)
        self._nonce = os.urandom(16)
        self._known = {ctx.rank: self._nonce}
        self._loop = ConversationLoop()
        self._kept: list[socket.socket] = []
        self._inside = 0
        self._pause = 0.002

    def __enter__(self) -> MeshPeer:
        ports: dict[str, int] = {}
        for way in self._ways:
            try:
                if way.ip not in ports:
                    ports[way.ip] = self._listen(way)
            except OSError as error:
                self.decline()
                raise CannotObserve(f"nothing can listen at {way.ip}: {error}") from None
        where = [[w.library, w.ip, ports[w.ip]] for w in self._ways]
        self._ctx.mark("listen")
        self._say("listen", {"nonce": self._nonce.hex(), "ways": where}, self.callers)
        return self

    def decline(self) -> None:
        """Tell the others not to wait: there is nothing here that they could dial."""
        self._say("listen", {"nonce": "", "ways": []}, self.callers)
        self._say("met", None, self.dials)
        self._say("opened", None, self.dials)
        self._say("done", None, self.dials)
        self._loop.close()

    def __exit__(self, *raised: object) -> None:
        self._ctx.mark("wait until the others are done")
        self._await("done", self.ends)
        for sock in self._kept:
            sock.close()
        self._loop.close()

    def meet(
        self,
        session: Session | None = None,
        flows: int = 1,
        each: Session | None = None,
        enough: Callable[[Dialled], bool] = lambda dialled: False,
    ) -> list[Dialled]:
        """Dial each node as soon as it has said where it listens, a few at a time; and then so many
        more `flows` to each, with a session for `each` of these or without, unless the first one
        was `enough`."""
        self._ctx.mark("hear where the others listen")
        patience = min(time.monotonic() + PATIENCE, self.ends)
        over: list[Dialled] = []
        flying: dict[Target, float] = {}
        begun: dict[object, float] = {}  # further flows in the air
        fanned: set[Target] = set()
        fan: list[Target] = []

        def land(dialled: Dialled) -> None:
            del flying[dialled.target]
            over.append(dialled)
            if dialled.edge.result in (OK, *REFUSED) and not enough(dialled):
                spread(dialled.target)

        def spread(target: Target) -> None:
            if target not in fanned:
                fanned.add(target)
                fan.extend([target] * (flows - 1))

        known: set[int] = set()
        queue: list[Target] = []
        while time.monotonic() < self.ends:
            if len(known) < len(self.dials):
                told = self._heard("listen", len(self.dials))
                for number in [n for n in self.dials if n in told and n not in known]:
                    known.add(number)
                    queue += self._targets(number, told[number])
            now = time.monotonic()
            if each is None:  # who sends data may only be slow
                for target in [t for t, began in flying.items() if now - began > DOUBT]:
                    spread(target)
            room = WIDTH - sum(now - t < YOUNG for t in (*flying.values(), *begun.values()))
            while queue and room > 0:
                target = queue.pop(0)
                flying[target] = now
                self._loop.add(self._dial(target, session, land))
                room -= 1
            # the first of each edge come first: what limits connections would keep them out
            young = any(now - began <= DOUBT for began in flying.values())
            while fan and not queue and not young and room > 0:
                token = object()
                begun[token] = now
                over_there = partial(begun.pop, token)
                self._loop.add(
                    self._flow(fan.pop(0), over_there)
                    if each is None
                    else self._dial(fan.pop(0), each, partial(self._keep_further, over_there))
                )
                room -= 1
            waiting = len(known) < len(self.dials) and now < patience
            if not (flying or queue or fan or begun or waiting):
                break
            self._serve()
        return over

    def _keep_further(self, over: Callable[[], object], dialled: Dialled) -> None:
        self.further.append(dialled)
        over()

    def _flow(self, target: Target, over: Callable[[], object]) -> Steps[None]:
        """One more connection to where another one was tried: it says nothing and is reset, so that
        no port stays taken."""
        began = time.monotonic()
        result, again, port = yield from self._open_flow(target, 0)
        # where nobody has the address ARP takes seconds to say so
        at_once = time.monotonic() - began < AGAIN_AFTER
        for _ in range(AGAIN if result in REFUSED and port and at_once else 0):
            yield from self._pause_of(AGAIN_AFTER)
            result, _, _ = yield from self._open_flow(target, port)
            if result not in REFUSED:
                again = 1
                break
        self.flows.append((target, result, again))
        self._doubt(target, result, again, port)
        over()

    def _doubt(self, target: Target, result: str, again: int, port: int) -> None:
        failed = result in (TIMED_OUT, *REFUSED)
        if port and (failed or (result == OK and again)):
            self.doubtful.setdefault(target, []).append((failed, port))

    def _pause_of(self, seconds: float) -> Steps[None]:
        near, far = socket.socketpair()
        with near, far:
            try:
                yield near, READ, seconds
            except TimeoutError:
                return

    def _open_flow(self, target: Target, port: int) -> Steps[tuple[str, int, int]]:
        """How a connection went, from this source port or from one that the kernel chooses: result,
        SYNs sent again, the port."""
        result, again = OK, 0
        try:
            with open_socket(target.ip) as sock:
                if port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sock.bind(("", port))
                code = sock.connect_ex(sockaddr(target.ip, target.port, target.interface))
                port = sock.getsockname()[1]
                if code == errno.EINPROGRESS:
                    yield sock, WRITE, CONNECT
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
                info = tcp_info(sock)
                again = info.retransmits if info is not None else 0
                discard_unsent(sock)
        except TimeoutError:
            result = TIMED_OUT
        except OSError as error:
            result = errno_name(error)
        return result, again, port

    def unheard(self, seconds: float) -> frozenset[int]:
        """Who has to dial this node and has not reached it within `seconds`."""
        until = min(time.monotonic() + seconds, self.ends)
        while not self.heard.issuperset(self.callers) and time.monotonic() < until:
            self._serve()
        return frozenset(self.callers) - self.heard

    def burst(self, targets: Sequence[Target], times: int) -> list[Dialled]:
        """Open `times` connections to each target, all of them at once, and keep them until the
        others are done, too, as the libraries do. Not before the others have met whom they dial:
        where a limit is the trouble, it would keep these out."""
        self._ctx.mark("wait until the others have met")
        self._await("met", min(time.monotonic() + CONNECT + ANSWERED, self.ends))
        self._ctx.mark("open all connections at once")
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # as many come in as go out
        most = BURST if files < 0 else min(BURST, max(0, files - 64) // 3)
        wanted = [t for _ in range(times) for t in targets][:most]
        over: list[Dialled] = []

        def keep(sock: socket.socket) -> Steps[None]:
            self._kept.append(sock.dup())
            yield from ()

        left = self.ends - time.monotonic() - MARGIN - ALONE
        patience = max(1.0, min(CONNECT_AT_ONCE, left))
        for target in wanted:
            self._loop.add(self._dial(target, keep, over.append, patience))
        while len(over) < len(wanted) and time.monotonic() < self.ends:
            self._serve()
        for dialled in over:
            edge = dialled.edge
            self._doubt(dialled.target, edge.result, edge.retransmits, dialled.port)
        return over

    def retry(self, targets: Collection[Target]) -> list[Retried]:
        """Try what was doubtful on the way to these targets again, alone: when all others have
        closed theirs, one at a time for each target, from the same source ports."""
        self._ctx.mark("wait until the others have closed theirs")
        self._await("opened", min(time.monotonic() + CONNECT_AT_ONCE, self.ends - ALONE))
        for sock in self._kept:
            discard_unsent(sock)  # else the kernel keeps their ports for a minute
            sock.close()
        self._kept.clear()
        wanted = {t: sorted(self.doubtful[t], reverse=True) for t in self.doubtful if t in targets}
        if not wanted:
            return []
        self._ctx.mark("try again what failed")
        until = min(time.monotonic() + SETTLED + ALONE, self.ends)
        done: list[Retried] = []
        for target, ports in wanted.items():
            self._loop.add(self._retry(target, ports[:RETRIES], until, done.append))
        while len(done) < len(wanted) and time.monotonic() < min(until + ANSWERED, self.ends):
            self._serve()
        return done

    def _retry(
        self,
        target: Target,
        ports: Sequence[tuple[bool, int]],
        until: float,
        over: Callable[[Retried], object],
    ) -> Steps[None]:
        tried = passed = dead = revived = sent = again = 0
        yield from self._pause_of(SETTLED)
        for failed, port in ports:
            ended: list[Dialled] = []
            if time.monotonic() >= until:
                break
            session = partial(_exchange, until=until)
            yield from self._dial(target, session, ended.append, RETRIED_WITHIN, port)
            edge, counts = ended[0].edge, ended[0].answer
            if edge.result in (OK, SILENT, TIMED_OUT, *REFUSED):
                tried += 1
                passed += edge.result == OK
                dead += failed
                revived += failed and edge.result == OK
            if counts is not None:
                sent += counts[0]
                again += max(0, counts[1] - edge.retransmits)
            yield from self._pause_of(APART)
        over(Retried(target.number, target.libraries, tried, passed, dead, revived, sent, again))

    def _await(self, topic: str, until: float) -> None:
        """Say that this node is as far, and serve until all who dial it are."""
        self._say(topic, None, self.dials)
        count = len(self.callers)
        while time.monotonic() < until and len(self._heard(topic, count)) < count:
            self._serve()

    def _say(self, topic: str, value: Any, to: Sequence[int]) -> None:
        if to:
            self._ctx.peers.say(topic, value, to=to)

    def _heard(self, topic: str, count: int) -> dict[int, Any]:
        """Who has said it so far; waits a moment, since only a waiting ear hears."""
        return dict(self._ctx.peers.hear(topic, count, self._pause))

    def _serve(self) -> None:
        """One turn. The pauses grow while nothing happens: there may be many of us."""
        busy = self._loop.turn(self._pause)
        self._pause = 0.002 if busy else min(self._pause * 1.5, 0.03)

    def _targets(self, number: int, told: Any) -> list[Target]:
        """The addresses of another node that this one has to dial: each pair of addresses once,
        for all libraries that would use it. Its message is untrusted input."""
        theirs: dict[str, tuple[str, int]] = {}
        nonce = b""
        try:
            nonce = bytes.fromhex(told["nonce"])
            for library, ip, port in told["ways"][: len(LIBRARIES)]:
                if library in LIBRARIES and parse_ip(ip) and 0 < int(port) < 65536:
                    theirs[library] = str(parse_ip(ip)), int(port)
        except (TypeError, ValueError, KeyError, AttributeError):
            return []
        if len(nonce) != len(self._nonce):
            return []
        self._known[number] = nonce
        pairs_of: dict[tuple[str, str, int], list[ListenAddress]] = {}
        for way in self._ways:
            if way.library in theirs:
                pairs_of.setdefault((way.ip, *theirs[way.library]), []).append(way)
        return [
            Target(number, "+".join(w.library for w in ways), ip, port, nonce, ways[0].interface)
            for (_, ip, port), ways in pairs_of.items()
        ]

    # --- the listener ---

    def _listen(self, way: ListenAddress) -> int:
        """The port on which this node listens from now on."""
        sock = open_socket(way.ip)
        try:
            sock.bind(sockaddr(way.ip, 0, way.interface))
            sock.listen(1024)
        except OSError:
            sock.close()
            raise
        self._loop.add(self._accept(sock))
        port = int(sock.getsockname()[1])
        self.ports.add(port)
        return port

    def _accept(self, listener: socket.socket) -> Steps[None]:
        with listener:
            while True:
                try:
                    yield listener, READ, 3600.0
                    conn, caller = listener.accept()
                except (TimeoutError, BlockingIOError):
                    continue
                except OSError:  # it went away before it was accepted, or there are no descriptors
                    time.sleep(0.001)
                    continue
                if len(self.accepted) < CALLERS:
                    self.accepted.add(str(caller[0]).partition("%")[0])
                if self._inside >= CALLERS:
                    conn.close()
                    continue
                conn.setblocking(False)
                self._inside += 1
                self._loop.add(self._answer(conn, str(caller[0])))

    def _answer(self, conn: socket.socket, caller: str) -> Steps[None]:
        try:
            with conn:
                hello = yield from receive(conn, HELLO.size, STRANGER)
                magic, number, challenge, proof = HELLO.unpack(hello)
                if magic != MAGIC:
                    return
                if hmac.compare_digest(proof, _proof(self._nonce, b"hello", challenge)):
                    self.heard.add(number)
                # who meant somebody else has to learn who answers here
                own = _proof(self._nonce, b"answer", challenge)
                source = caller.partition("%")[0].encode()
                yield from send(conn, ANSWER.pack(MAGIC, self.number, own, source), STRANGER)
                for _ in range(FRAMES):
                    frame = yield from receive(conn, FRAME.size, self._ctx.seconds)
                    length, _ = FRAME.unpack(frame)
                    if length > FRAME_MAX:
                        return
                    left, checksum = length, 0
                    while left:
                        chunk = yield from receive_some(conn, left, self._ctx.seconds)
                        left -= len(chunk)
                        checksum = zlib.crc32(chunk, checksum)
                    yield from send(conn, FRAME.pack(length, checksum), STRANGER)
        except (OSError, EOFError):
            return  # the other end is gone; what that means is the dialler's to say
        finally:
            self._inside -= 1

    # --- the dialler ---

    def _dial(
        self,
        target: Target,
        session: Session | None,
        land: Callable[[Dialled], None],
        patience: float = CONNECT,
        port: int = 0,
    ) -> Steps[None]:
        """`port`: the source port; 0: the kernel chooses it."""
        began = time.monotonic()
        result, stage = OK, TIMED_OUT
        source, rejected_by, answered, again, answer = "", "", None, 0, None
        connected: float | None = None
        try:
            sock = open_socket(target.ip)
        except OSError as error:
            none_left = error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
            land(Dialled(target, _edge(target, NO_SOCKET if none_left else errno_name(error), 0.0)))
            return
        with sock:
            try:
                if port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sock.bind(("", port))
                keep_icmp(sock)
                code = sock.connect_ex(sockaddr(target.ip, target.port, target.interface))
                port = sock.getsockname()[1]
                if code == errno.EINPROGRESS:
                    yield sock, WRITE, patience
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
                keep_icmp(sock, wanted=False)
                connected, stage = time.monotonic() - began, SILENT
                info = tcp_info(sock)
                if info is not None:
                    again = info.retransmits
                    # our own delay in noticing it is not the network's
                    connected = info.rtt if info.rtt and not again else connected
                challenge = os.urandom(16)
                proof = _proof(target.nonce, b"hello", challenge)
                hello = HELLO.pack(MAGIC, self.number, challenge, proof)
                yield from send(sock, hello, ANSWERED)
                reply = yield from receive(sock, ANSWER.size, ANSWERED)
                result, answered, source = self._judge(target, challenge, reply)
                if source == sock.getsockname()[0].partition("%")[0]:
                    source = ""
                if result == OK and session is not None:
                    answer = yield from session(sock)
            except TimeoutError:
                result = stage
            except EOFError:
                result = CLOSED
            except OSError as error:
                result = connect_error(error, target.ip)
                said = unreachable(sock)
                result = LOOP if said.what == EXPIRED else result
                rejected_by = said.by if said.what in REJECTS else ""
        seconds = connected if connected is not None else time.monotonic() - began
        taken = port if connected is not None and result != OK else 0
        edge = _edge(target, result, seconds, source, answered, again, taken, rejected_by)
        land(Dialled(target, edge, answer, port))

    def _judge(self, target: Target, challenge: bytes, reply: bytes) -> tuple[str, int | None, str]:
        """Who has answered: the result, another node's number, the source address that it sees."""
        magic, number, proof, seen = ANSWER.unpack(reply)
        nonce = self._known.get(number)
        proved = nonce is not None and hmac.compare_digest(
            proof, _proof(nonce, b"answer", challenge)
        )
        if magic != MAGIC or not proved:
            return WRONG, None, ""
        if number != target.number:
            return WRONG, number, ""
        source = parse_ip(seen.rstrip(b"\0").decode("ascii", "replace"))
        return OK, None, str(source or "")


def flows_of_an_edge(nodes: int) -> int:
    """How many connections each edge of a job of so many nodes is tried with."""
    count = len(pairing.dials(0, nodes))
    return FEW_FLOWS if nodes > pairing.ALL else min(FLOWS, BURST // count) if count else 1


def joined(host: Host, ctx: Context) -> tuple[ListenAddresses, MeshPeer]:
    """This node's addresses, and the peer through which it takes part. CannotObserve where it has
    no address; the others learn that too and don't wait."""
    ways = listen_addresses(host, ctx)
    peer = MeshPeer(ctx, ways.found)
    if not ways.found:
        peer.decline()
        raise CannotObserve("Gloo and NCCL find no address here (net.interface, net.name)")
    return ways, peer


def _exchange(sock: socket.socket, until: float) -> Steps[tuple[int, int] | None]:
    """Say something small a few times and wait for each answer: segments with data that were sent,
    and all that were repeated, SYN included."""
    try:
        for _ in range(EXCHANGES):
            if time.monotonic() > until:
                break
            yield from send(sock, FRAME.pack(0, 0), ANSWERED)
            yield from receive(sock, FRAME.size, ANSWERED)
    except (OSError, EOFError):  # what was counted until then still counts
        pass
    info = tcp_info(sock)
    discard_unsent(sock)
    return (info.sent, info.retransmits) if info is not None else None


def _edge(target: Target, result: str, seconds: float, *more: Any) -> Edge:
    return Edge(target.number, target.libraries, result, round(seconds, 6), *more)
