"""A client that does as little as possible, so that the server is what is measured: HTTP/1.1 over asyncio's sockets."""

import asyncio
import json
import socket
import struct


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """What came as server-sent events."""
        return [e[6:] for e in self.body.decode().split("\n\n") if e.startswith("data: ")]


def request(path, body=None, headers=(), method=None, version="1.1"):
    """The bytes of a request; `body`: bytes, or what is written as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Connection:
    """One connection, kept alive."""

    def __init__(self, server, receive=None):
        self.server, self.receive, self.reader, self.writer = server, receive, None, None

    async def open(self):
        s = socket.socket()
        s.setblocking(False)
        if self.receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive)
        await asyncio.get_running_loop().sock_connect(s, (self.server.host, self.server.port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader, self.writer = await asyncio.open_connection(sock=s, limit=1 << 22)
        return self

    def send(self, data):
        self.writer.write(data)

    def reset(self):
        """Leaves without a word."""
        if self.writer:
            s = self.writer.get_extra_info("socket")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        if self.writer:
            self.writer.transport.abort() if self.writer.transport.is_closing() else self.writer.close()
        self.reader = self.writer = None

    async def head(self):
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
        return status, headers

    async def chunks(self):
        """The body's chunks as they come."""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            chunk = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield chunk[:-2]

    async def answer(self, method="POST"):
        status, headers = await self.head()
        while status == 100:
            status, headers = await self.head()
        if method == "HEAD":
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join([c async for c in self.chunks()])
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
            headers["connection"] = "close"
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, headers, body)

    async def ask(self, path, body=None, headers=(), method=None):
        if self.writer is None:
            await self.open()
        self.send(request(path, body, headers, method))
        return await self.answer(method or "")
