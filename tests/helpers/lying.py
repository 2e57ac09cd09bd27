"""Servers that send scripted bytes, valid HTTP or not, and responses that never end."""

import socket
import threading
from contextlib import contextmanager, suppress


@contextmanager
def answering(*pieces, endless=b"", every=0.0):
    """Yield the address of a server that sends these bytes, then `endless` without end."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(peer,), daemon=True).start()

    def answer(peer):
        try:
            with peer:
                peer.recv(65536)
                for piece in pieces:
                    peer.sendall(piece)
                while endless and not over.wait(every):
                    peer.sendall(endless)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    finally:
        over.set()
        with suppress(OSError):  # closing alone does not end a call of accept on Linux
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def head(status, *lines):
    return "\r\n".join([f"HTTP/1.1 {status} x", *lines, "", ""]).encode()


def sent(status, data, *lines):
    return head(status, f"Content-Length: {len(data)}", "Connection: close", *lines) + data


CHUNKED = head(200, "Transfer-Encoding: chunked")
SLOW = {
    "drips": ((head(200, "Content-Length: 4000"),), b"x", 0.05),
    "header drips": ((b"HTTP/1.1 200 x\r\nA: ",), b"x", 0.05),
    "continues": ((), head(100), 0.0),
    "chunk line": ((CHUNKED,), b"1" * 4096, 0.0),
    "trailers": ((CHUNKED, b"0\r\n"), b"A: b\r\n" * 100, 0.0),
    "redirect": ((head(302, "Location: /y"),), b"x" * 4096, 0.0),
    "redirect in chunks": (
        (head(302, "Location: /y", "Transfer-Encoding: chunked"),),
        b"4\r\nabcd\r\n" * 400,
        0.0,
    ),
}

BODY = {
    "without length": (head(200, "Connection: close"), b"x" * 65536),
    "chunks": (CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"),
    "announced": (head(200, f"Content-Length: {10**15}"), b"x" * 65536),
}
