# SPDX-License-Identifier: BSD-3-Clause
"""Memory whose pages somebody gives when he likes: a system call that touches it waits, with all the locks that it has."""

import ctypes
import fcntl
import mmap
import os
import select
import struct
import sys

SYS_USERFAULTFD = 323
UFFD_API, UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xAA, 0xC018AA3F, 0xC020AA00, 0xC020AA04
MISSING = 1
FAULT_S = 20


class Absent:
    """Memory that has no pages until somebody gives them."""

    def __init__(self, count: int) -> None:
        self.memory, self.count = mmap.mmap(-1, count), count
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
        fcntl.ioctl(self.fd, UFFDIO_API, struct.pack("QQQ", UFFD_API, 0, 0))
        fcntl.ioctl(self.fd, UFFDIO_REGISTER, struct.pack("QQQQ", self.at, count, MISSING, 0))

    def wait(self) -> None:
        if not select.select([self.fd], [], [], FAULT_S)[0]:
            sys.exit("nobody waits for a page")

    def give(self) -> None:
        fcntl.ioctl(self.fd, UFFDIO_ZEROPAGE, struct.pack("QQQq", self.at, self.count, 0, 0))
