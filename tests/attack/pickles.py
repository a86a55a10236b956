"""Hostile and mutated ``gnd_*.pkl`` files, read in a process of their own with little time and memory.

``python -m tests.attack.pickles [COUNT] [SEED]`` tries 20,000 by default and says what became of them. Each must be
read or refused in a sentence: a crash, another error, or a file that takes too long ends with status 1.
"""

import os
import pickle
import pickletools
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MEMORY = 2**31
"""Bytes that the process may take; NumPy and SciPy alone reserve most of a gigabyte."""
SECONDS_A_FILE = 10.0


def ground_truth() -> dict[str, Any]:
    """Return what gnd_roxford5k.pkl holds, a little of it."""
    numbers = np.arange(12)
    return {
        "imlist": [f"photo_{i}" for i in numbers],
        "qimlist": ["asked_0", "asked_1"],
        "gnd": [
            {"bbx": [1.0, 2.0, 30.0, 40.0], "easy": [0, 1], "hard": numbers[2:4], "junk": [4]},
            {"bbx": np.array([1.0, 2.0, 3.0, 4.0], np.float32), "easy": numbers[:1], "hard": [], "junk": numbers[5:7]},
        ],
    }


def written() -> list[bytes]:
    """Return the ground truth in every protocol, and as NumPy 1 wrote it."""
    plain = [pickle.dumps(ground_truth(), protocol=version) for version in range(6)]
    return plain + [renamed(data) for data in plain[:4]]


def renamed(data: bytes) -> bytes:
    """Return a pickle with the names that NumPy had before version 2, where names stand in lines of their own."""
    return data.replace(b"cnumpy._core.", b"cnumpy.core.")


def hostile() -> dict[str, bytes]:
    """Return files that broke a reader once, or would break a careless one, by what they try."""
    reconstruct = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    dtype = b"cnumpy\ndtype\n(S'%s'\nI0\nI1\ntR"
    order = b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"

    def array(kind: bytes, shape: bytes, raw: bytes, state: bytes = order) -> bytes:
        head = reconstruct + b"(I1\n(" + shape + b"t" + dtype % kind
        return head + state + b"I0\nC" + bytes([len(raw)]) + raw + b"tb."

    def scalar(kind: bytes, raw: bytes, state: bytes = order) -> bytes:
        head = b"cnumpy._core.multiarray\nscalar\n("
        return head + dtype % kind + state + b"C" + bytes([len(raw)]) + raw + b"tR."

    pointer = struct.pack("<Q", 0x4141414141414141)
    tens = [(b"h" + bytes([i])) * 10 for i in range(40)]
    laughs = b"]q\x00" + b"".join(b"](" + ten + b"eq" + bytes([i]) for i, ten in enumerate(tens, start=1))
    often = b"]X" + struct.pack("<I", 10**6) + b"a" * 10**6 + b"q\x00(" + b"h\x00" * 10**5 + b"e."
    collide = b"}(" + b"".join(b"L%dL\nN" % (i * (2**61 - 1)) for i in range(50_000)) + b"u."
    return {
        "a pointer as an object": array(b"O8", b"I1\n", pointer),
        "a pointer as a number of object type": scalar(b"O8", pointer),
        "an array larger than its bytes": array(b"i8", b"I1000000\n", pointer),
        "sides whose product overflows": array(b"i8", b"I4294967296\nI4294967296\n", pointer),
        "a negative side": array(b"i8", b"I-1\n", pointer),
        "sides of an empty array without end": array(b"i8", b"I0\n" + b"I2147483647\n" * 3, b""),
        "a type with fields": array(b"V8", b"I1\n", pointer),
        "a type of a chosen size": array(b"i8", b"I1\n", pointer, b"(I3\nS'<'\n(S'i8'\nI9999999\ntNNI-1\nI-1\nI0\ntb"),
        "a type whose state has fields": array(
            b"i8", b"I1\n", pointer, b"(I3\nS'<'\nN(S'a'\nt(dS'a'\n(S'O'\nI0\ntsI8\nI8\nI0\ntb"
        ),
        "a type whose state is a number": array(b"i8", b"I1\n", pointer, b"I7\nb"),
        "an array as its own state": reconstruct + b"p0\ng0\nb.",
        "text as a buffer": b"cnumpy._core.numeric\n_frombuffer\n(S'abc'\nS'i8'\n(I1\ntS'C'\ntR.",
        "bytes by their number": b"cbuiltins\nbytes\n(L99999999999L\ntR.",
        "a number without end": b"\x8b" + struct.pack("<i", 2**20) + b"\x7f" * 2**20 + b".",
        "digits without end": b"I" + b"9" * 10**6 + b"\n.",
        "lists of the same lists": b"\x80\x02" + laughs + b".",
        "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
        "lists as deep as the file": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
        "keys that collide": collide,
        "a memo far out": b"I1\np99999999999999999999\n.",
        "a long text referred to often": b"\x80\x02" + often,
        "half a character": b"\x80\x02X\x03\x00\x00\x00\xed\xa0\x80.",
        "an extension": b"\x80\x02\x82\x01.",
        "an object outside": b"\x80\x02K\x01Q.",
        "a class": b"\x80\x02cos\nsystem\n)\x81.",
        "marks alone": b"(" * 10**5 + b"t.",
        "a buffer out of band": b"\x80\x05\x97.",
    }


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a pickle with some of its bytes or opcodes changed, doubled, moved or taken away."""
    changed = bytearray(data)
    codes = [opcode.code.encode("latin1") for opcode in pickletools.opcodes]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place, length = rng.randrange(len(changed)), rng.randrange(1, 12)
        match rng.randrange(6):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                changed[place : place + 1] = rng.choice(codes)
            case 2:
                del changed[place : place + length]
            case 3:
                changed[place:place] = rng.choice(codes) + rng.randbytes(rng.randrange(5))
            case 4:
                start = rng.randrange(len(changed))
                changed[place:place] = changed[start : start + length]
            case _:
                changed[place : place + 4] = struct.pack("<I", rng.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1)))
        if not changed:
            return b"."
    return bytes(changed)


def read_all(count: int, seed: int) -> dict[str, int]:
    """Read the hostile files and so many mutated ones; return how many were read, and how many refused."""
    from manifind.errors import InvalidInputError
    from manifind.evaluation import read_truth

    rng, whole = random.Random(seed), written()  # noqa: S311 (repeatable, not secret)
    files = list(hostile().values())
    outcomes = {"read": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gnd_roxford5k.pkl"
        for number in range(len(files) + count):
            data = files[number] if number < len(files) else mutated(rng.choice(whole), rng)
            path.write_bytes(data)
            print(f"number {number} of seed {seed}", flush=True)  # the last of these lines names what ended the process
            began = time.process_time()
            try:
                read_truth(path)
                outcomes["read"] += 1
            except InvalidInputError:
                outcomes["refused"] += 1
            if time.process_time() - began > SECONDS_A_FILE:
                raise TimeoutError(f"number {number} of seed {seed} took {time.process_time() - began:.1f} s")
    return outcomes


def attack(count: int, seed: int = 0) -> str:
    """Read hostile and mutated files in a process with limits; return what it said, or raise `AssertionError`."""
    limits = {"MANIFIND_ATTACK": f"{count} {seed}", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack.pickles"],
        env={**os.environ, **limits},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120 + count,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode:
        last = lines[-1] if lines else "nothing was read"
        raise AssertionError(f"status {done.returncode} at {last}: {done.stderr[-2000:]}")
    return lines[-1]


if __name__ == "__main__":
    if "MANIFIND_ATTACK" in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        print(read_all(*map(int, os.environ["MANIFIND_ATTACK"].split())))
    else:
        given = [int(word) for word in sys.argv[1:]]
        print(attack(*(given or [20_000])))
