from flodl_cli.host.nccl import find_nccl, nccl_version

ERRORS = b"Mismatched NCCL version detected : %d.%d.%d\0"


def test_version_is_that_of_the_version_text(tmp_path):
    file = tmp_path / "libnccl.so.2"
    file.write_bytes(ERRORS + b"NCCL version 2.30.7+cuda13.0\0")
    assert nccl_version(file) == "2.30.7"
    file.write_bytes(ERRORS)
    assert nccl_version(file) is None
    file.write_bytes(b"")
    assert nccl_version(file) is None
    assert nccl_version(tmp_path / "gone") is None


def test_package_beside_torch_comes_before_torch_itself(tmp_path):
    torch = tmp_path / "torch"
    inside = torch / "lib" / "libtorch_cuda.so"
    inside.parent.mkdir(parents=True)
    assert find_nccl(torch) is None
    inside.write_bytes(b"NCCL version 2.21.5+cuda12.4\0")
    assert find_nccl(torch) == inside
    beside = tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"NCCL version 2.30.7+cuda13.0\0")
    assert find_nccl(torch) == beside


def test_package_beside_a_linked_wheel_is_found(tmp_path):
    wheel = tmp_path / "site-packages"
    (wheel / "torch" / "lib").mkdir(parents=True)
    (wheel / "nvidia" / "nccl" / "lib").mkdir(parents=True)
    beside = wheel / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    beside.write_bytes(b"NCCL version 2.30.7+cuda13.0\0")
    linked = tmp_path / "libtorch" / "wheel" / "cu130"
    linked.mkdir(parents=True)
    (linked / "lib").symlink_to(wheel / "torch" / "lib")
    assert find_nccl(linked) == beside
