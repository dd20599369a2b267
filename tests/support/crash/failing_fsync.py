"""fsync that fails with EIO, by the kernel's own word: a seccomp(2) filter that this process puts on itself."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_LOAD_NUMBER = (0x20, 0, 0, 0)  # A = seccomp_data.nr
_RETURN = 0x06
_JUMP_IF_EQUAL = 0x15
_FAIL_WITH = 0x00050000
_ALLOW = 0x7FFF0000
_FSYNC = {"x86_64": (74, 75), "aarch64": (82, 83)}
"""The numbers of fsync and fdatasync, from the kernel's system call tables."""


def can_fail_fsync() -> bool:
    return platform.machine() in _FSYNC


def fail_fsync() -> None:
    """From now on each fsync and fdatasync of this process and its children fails with EIO, for good."""
    numbers = _FSYNC[platform.machine()]
    program = [
        _LOAD_NUMBER,
        (_JUMP_IF_EQUAL, 1, 0, numbers[0]),
        (_JUMP_IF_EQUAL, 0, 1, numbers[1]),
        (_RETURN, 0, 0, _FAIL_WITH | errno.EIO),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions, padding, and where they are.
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value, pointer in ((_PR_SET_NO_NEW_PRIVS, 1, None), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head)):
        zero = ctypes.c_ulong(0)
        if libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_char_p(pointer), zero, zero) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
