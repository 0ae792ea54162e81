"""A machine made of files: a root folder for sysfs and a PATH for driver tools."""

from pathlib import Path

import pytest


class FakeMachine:
    """Builds what GPU detection reads, below ``root``."""

    def __init__(self, root):
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()

    def nvidia_smi(self, script, folder=None):
        """Installs an nvidia-smi that runs a shell script."""
        tool = (folder or self.bin) / "nvidia-smi"
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        return tool

    def nvidia_rows(self, rows):
        """Installs an nvidia-smi that answers our query, and only ours, with recorded rows."""
        query = "--query-gpu=index,uuid,name,compute_cap,memory.total --format=csv,noheader,nounits"
        return self.nvidia_smi(f'[ "$*" = "{query}" ] || exit 64\ncat <<"ROWS"\n{rows}ROWS')

    def kfd_node(self, number, properties, banks=(), name=None):
        """Adds a node of the KFD tree; ``banks`` are (heap type, bytes)."""
        node = self.root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        _write(node / "properties", properties)
        for index, (heap, size) in enumerate(banks):
            _write(
                node / f"mem_banks/{index}/properties",
                {"heap_type": heap, "size_in_bytes": size, "flags": 0, "width": 4096},
            )
        if name is not None:
            (node / "name").write_text(name + "\n")
        return node

    def kfd_device(self):
        """Adds dev/kfd."""
        (self.root / "dev").mkdir(exist_ok=True)
        (self.root / "dev/kfd").touch()

    def drm_card(self, number, vendor):
        """Adds a graphics card with a PCI vendor, and one of its connectors."""
        card = self.root / f"sys/class/drm/card{number}"
        (card / "device").mkdir(parents=True)
        (card / "device/vendor").write_text(vendor + "\n")
        (self.root / f"sys/class/drm/card{number}-DP-1/device").mkdir(parents=True)


def _write(file: Path, properties):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name} {value}\n" for name, value in properties.items()))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = FakeMachine(tmp_path)
    # the script needs a shell's own tools, but must not find a driver tool of this machine
    (made.bin / "cat").symlink_to("/bin/cat")
    (made.bin / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.setenv("FLODL_HW_ROOT", str(tmp_path))
    for mask in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(mask, raising=False)
    return made
