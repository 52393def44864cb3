"""A server with injected failures: for each path it answers 503 a few times, then 200.

    python3 examples/flaky.py [PORT] [FAILURES]
"""

import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
failures = int(sys.argv[2]) if len(sys.argv) > 2 else 3
calls = Counter()


class Flaky(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        calls[self.path] += 1
        status = 503 if calls[self.path] <= failures else 200
        body = b"not now\n" if status == 503 else b"done\n"
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer


ThreadingHTTPServer(("127.0.0.1", port), Flaky).serve_forever()
