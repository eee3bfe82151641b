"""A machine elsewhere, for scripts that ask one: a process of nobody's here.

port = elsewhere.serve("answers", 2.0)    an HTTP server that takes so long for each answer
port = elsewhere.serve("takes", 0.2)      reads 64 KiB of an upload, then pauses for so long
port = elsewhere.serve("gives", 0.2)      sends 48 times 64 KiB, and pauses for so long before each
port = elsewhere.serve("silent", 0.0)     accepts, and never says a word
"""

import os
import socket
import sys
import time


def serve(how: str, seconds: float) -> int:
    """Its port. It is no child of whoever asks for it, and ends by itself."""
    server = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.set_inheritable(server.fileno(), True)
            os.execv(
                sys.executable,
                [sys.executable, "-I", __file__, str(server.fileno()), how, str(seconds)],
            )
        os._exit(0)
    os.wait()
    port = int(server.getsockname()[1])
    server.close()
    return port


def run(server: socket.socket, how: str, seconds: float) -> None:
    server.settimeout(60)
    kept = []
    until = time.monotonic() + 60
    while time.monotonic() < until:
        connection, _ = server.accept()
        if how == "silent":
            kept.append(connection)
            continue
        for _ in range(48 if how == "gives" else 0):
            time.sleep(seconds)
            connection.sendall(bytes(1 << 16))
        while how != "gives" and (chunk := connection.recv(1 << 16)):
            time.sleep(seconds)
            if how == "answers" and b"\r\n\r\n" in chunk:
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n0.5")
                break
        connection.close()


if __name__ == "__main__":
    run(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
