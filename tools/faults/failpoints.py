"""Failpoints (base/failpoint.h): places in the code at which one process is to be killed."""
import mmap
import re
import struct

NAME_BYTES = 120
_LITERAL = re.compile(r'MW_FAILPOINT\("([a-z.-]+)"\)')
_DOING = re.compile(r'"(executor\.[a-z]+)"')


def names(root):
    """Of all places in the code, those of the controller last."""
    found = set()
    for room in ("checkpoint", "controller", "worker"):
        for path in (root / room).rglob("*.cc"):
            text = path.read_text(encoding="utf-8")
            found.update(_LITERAL.findall(text))
            if "kPoints =" in text:
                found.update(_DOING.findall(text))
    return sorted(found, key=lambda name: (name.startswith("controller"), name))


class Failpoints:
    """The file that processes with MESHWRIGHT_FAILPOINTS map."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(8 + NAME_BYTES))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 8 + NAME_BYTES)

    def arm(self, name, passes=1):
        self.memory[:8] = bytes(8)
        self.memory[8:] = name.encode().ljust(NAME_BYTES, b"\0")
        self.memory[:8] = struct.pack("<q", passes)

    def done(self):
        return struct.unpack("<q", self.memory[:8])[0] == 0

    def disarm(self):
        self.memory[:8] = bytes(8)
