"""Small well-formed files of every format, as bytes."""

from __future__ import annotations

import struct

import pytest


@pytest.fixture
def idx_images() -> bytes:
    """Three images of 2 x 2 pixels."""
    return struct.pack(">4I", 2051, 3, 2, 2) + bytes(range(0, 240, 20))


@pytest.fixture
def idx_labels() -> bytes:
    """Their labels."""
    return struct.pack(">2I", 2049, 3) + bytes([7, 0, 9])


@pytest.fixture
def records() -> bytes:
    """Two CIFAR-10 records: labels 3 and 9, planes of the constants 1, 2, 3 and 4, 5, 6."""
    first = bytes([3]) + b"\x01" * 1024 + b"\x02" * 1024 + b"\x03" * 1024
    second = bytes([9]) + b"\x04" * 1024 + b"\x05" * 1024 + b"\x06" * 1024
    return first + second
