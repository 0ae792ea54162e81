import socket

from flodl_cli.host.mounts import filesystem_of, port_is_free


def test_deepest_mount_holds_the_path(tmp_path):
    table = tmp_path / "mounts"
    spaced = str(tmp_path / "a b").replace(" ", "\\040")
    table.write_text(
        f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path} nfs4 rw 0 0\nz {spaced} xfs rw\nbad\n"
    )
    (tmp_path / "a b").mkdir()
    assert filesystem_of(tmp_path / "data", table) == "nfs4"
    assert filesystem_of(tmp_path / "a b" / "c", table) == "xfs"
    assert filesystem_of(tmp_path, tmp_path / "gone") is None


def test_port_in_use_is_not_free():
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        assert not port_is_free(server.getsockname()[1])
    assert port_is_free(0)
