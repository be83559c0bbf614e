"""As much of a MongoDB driver as a failover run needs: BSON, OP_MSG, SCRAM-SHA-256."""
import base64
import hashlib
import hmac
import os
import socket
import struct
import uuid


def encode(document):
    out = b""
    for name, value in document.items():
        key = name.encode() + b"\0"
        if isinstance(value, bool):
            out += b"\x08" + key + bytes([value])
        elif isinstance(value, int):
            out += b"\x12" + key + struct.pack("<q", value)
        elif isinstance(value, float):
            out += b"\x01" + key + struct.pack("<d", value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            out += b"\x02" + key + struct.pack("<i", len(text)) + text
        elif isinstance(value, uuid.UUID):
            out += b"\x05" + key + struct.pack("<iB", 16, 4) + value.bytes
        elif isinstance(value, bytes):
            out += b"\x05" + key + struct.pack("<iB", len(value), 0) + value
        elif isinstance(value, dict):
            out += b"\x03" + key + encode(value)
        elif isinstance(value, list):
            out += b"\x04" + key + encode({str(i): one for i, one in enumerate(value)})
        else:
            raise TypeError(type(value))
    return struct.pack("<i", len(out) + 5) + out + b"\0"


def decode(data, at=0):
    end = at + struct.unpack_from("<i", data, at)[0] - 1
    at, document = at + 4, {}
    while at < end:
        kind, stop = data[at], data.index(0, at + 1)
        name, at = data[at + 1:stop].decode(), stop + 1
        size = struct.unpack_from("<i", data, at)[0] if kind in (2, 3, 4, 5) else 0
        if kind == 2:
            value, at = data[at + 4:at + 3 + size].decode(), at + 4 + size
        elif kind in (3, 4):
            value = decode(data, at)
            value, at = list(value.values()) if kind == 4 else value, at + size
        elif kind == 5:
            value, at = data[at + 5:at + 5 + size], at + 5 + size
        elif kind == 10:
            value = None
        else:
            form = {1: "<d", 7: "12s", 8: "?", 9: "<q", 16: "<i", 17: "<Q", 18: "<q"}[kind]
            value, = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
        document[name] = value
    return document


class Connection:
    """One connection, logged in. Raises OSError when there is no answer."""

    def __init__(self, host, port, key, timeout):
        self.socket = socket.create_connection((host, port), timeout)
        self.log_in(key)

    def close(self):
        self.socket.close()

    def ask(self, database, command):
        body = b"\0\0\0\0\0" + encode({**command, "$db": database})
        self.socket.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)
        size, = struct.unpack("<i", self.read(4))
        return decode(self.read(size - 4), 12 + 5)

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the connection was closed")
            data += part
        return data

    def log_in(self, key):
        nonce = base64.b64encode(os.urandom(18)).decode()
        first = f"n=run,r={nonce}"
        answer = self.ask("admin", {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,," + first.encode()})
        challenge = answer["payload"].decode()
        parts = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", key.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        client = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={parts['r']}"
        signed = hmac.digest(hashlib.sha256(client).digest(), f"{first},{challenge},{last}".encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client, signed))).decode()
        answer = self.ask("admin", {"saslContinue": 1, "conversationId": answer["conversationId"], "payload": f"{last},p={proof}".encode()})
        while answer.get("ok") and not answer["done"]:
            answer = self.ask("admin", {"saslContinue": 1, "conversationId": answer["conversationId"], "payload": b""})
        if not answer.get("ok"):
            raise SystemExit(f"cluster: the log-in was refused: {answer}")
