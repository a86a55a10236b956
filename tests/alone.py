"""Run a command with no network but a resolver that writes down who is looked up: ``python -m tests.alone COMMAND …``.

It must be root of a network and a mount namespace of its own (``unshare --map-root-user --net --mount``). The names
that were looked up are printed last, one a line after ``looked up:``.
"""

import fcntl
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

UNSHARE = ("unshare", "--map-root-user", "--net", "--mount")
SET_FLAGS, UP = 0x8914, 0x1


def possible() -> bool:
    """Whether this machine lets us have namespaces of our own."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0  # noqa: S603
    except OSError:
        return False


def _bring_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh14x", name.encode(), UP))


def _answer(server: socket.socket, looked_up: list[str]) -> None:
    """Write down the name in each question, and answer that there is none."""
    while True:
        question, sender = server.recvfrom(4096)
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace"))
            at += question[at] + 1
        looked_up.append(".".join(labels))
        server.sendto(question[:2] + b"\x81\x83" + question[4:6] + bytes(6) + question[12 : at + 5], sender)


def main(command: list[str]) -> int:
    """Run the command, and print what was looked up."""
    _bring_up("lo")
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    looked_up: list[str] = []
    threading.Thread(target=_answer, args=(server, looked_up), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        resolver = Path(folder, "resolv.conf")
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
        subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)  # noqa: S603, S607
        code = subprocess.run(command, check=False).returncode  # noqa: S603
        subprocess.run(["umount", "/etc/resolv.conf"], check=True)  # noqa: S607
    print("looked up:", *looked_up, sep="\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
