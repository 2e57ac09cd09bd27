"""An HTTP server on this machine with scripted answers, valid or broken."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """Files by path, a script of answers for some paths, and a list of the requests.

    An answer is a status (500), "cut" (half of the announced length), "reset" (no answer at all),
    "open" (half, with no length announced), "unannounced" (all, without length), another path
    ("/there", a redirect), "ok", or a function that returns an answer. After the last answer of
    its script a path answers "ok".

    headers     further headers of the answers for a path, such as an ETag
    """

    def __init__(self, ranges=True):
        self.files, self.script, self.asked, self.ranges = {}, {}, [], ranges
        self.headers = {}
        self.peers = []  # the connection of each request
        self.released = threading.Event()

    def next_answer(self, path):
        self.asked.append(path)
        answers = self.script.get(path, [])
        answer = answers.pop(0) if answers else "ok"
        return answer() if callable(answer) else answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        site, path = self.server.site, self.path
        site.peers.append(self.client_address)
        answer = site.next_answer(path)
        if answer == "stall":
            site.released.wait(20)
            answer = "reset"
        if answer == "reset":
            self.close_connection = True
            return
        if isinstance(answer, str) and answer.startswith("/"):
            self.send_response(302)
            self.send_header("Location", answer)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path not in site.files:
            answer = 404
        if isinstance(answer, int):
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(*self._part(site.files[path]), answer)

    def _part(self, data):
        wanted = self.headers.get("Range")
        if wanted is None or not self.server.site.ranges:
            return 200, data, None
        expected = self.headers.get("If-Range")
        if expected not in (None, self.server.site.headers.get(self.path, {}).get("ETag")):
            return 200, data, None
        first, last = wanted.removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1 if last else None]
        if not part:
            return 416, b"", f"bytes */{len(data)}"
        return 206, part, f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"

    def _send(self, status, data, span, answer):
        self.send_response(status)
        for name, value in self.server.site.headers.get(self.path, {}).items():
            self.send_header(name, value)
        if span:
            self.send_header("Content-Range", span)
        if answer in ("open", "unannounced"):
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if answer in ("cut", "open"):
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)
        self.close_connection |= answer == "unannounced"

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignore clients that close the connection early."""


@contextmanager
def serving(site):
    """Serve a Site; yield its address, to which paths are appended."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.site = site
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="site", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        site.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
