import os
import stat
import zipfile

import pytest

from flodl_cli.errors import ChecksumError
from flodl_cli.net import archive
from flodl_cli.net.archive import extract


@pytest.fixture
def unpack(tmp_path):
    target = tmp_path / "out"
    target.mkdir()

    def run(members, place=lambda name: name):
        file = tmp_path / "a.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, content, mode in members:
                info = zipfile.ZipInfo(name)
                info.external_attr = mode << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                opened.writestr(info, content)
        extract(file, target, place)
        return target

    return run


FILE, LINK = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777


def test_files_links_and_permissions_are_kept(unpack):
    out = unpack(
        [
            ("lib/a.so.1", b"x", FILE),
            ("lib/a.so", b"a.so.1", LINK),
            ("bin/tool", b"y", stat.S_IFREG | 0o755),
            ("empty/", b"", stat.S_IFDIR | 0o755),
        ]
    )
    assert (out / "lib/a.so").readlink().name == "a.so.1"
    assert (out / "lib/a.so").read_bytes() == b"x"
    assert os.access(out / "bin/tool", os.X_OK)
    assert not os.access(out / "lib/a.so.1", os.X_OK)
    assert (out / "empty").is_dir()


def test_place_renames_and_leaves_out(unpack):
    def place(name):
        return name.removeprefix("top/") if name.startswith("top/") else None

    out = unpack([("top/a", b"1", FILE), ("other/b", b"2", FILE)], place)
    assert [path.name for path in out.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "C:x", "a\\..\\..\\x"])
def test_member_that_leads_out_is_refused_before_anything_is_written(unpack, tmp_path, name):
    with pytest.raises(ChecksumError, match="leads out of it"):
        unpack([("fine", b"1", FILE), (name, b"2", FILE)])
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("leads_to", ["/etc/passwd", "../../x", "a/../../.."])
def test_link_that_leads_out_is_refused(unpack, leads_to):
    with pytest.raises(ChecksumError, match="the link 'l' to"):
        unpack([("l", leads_to, LINK)])


def test_links_that_lead_out_only_together_are_refused(unpack):
    members = [("d/e/a", "b/../..", LINK), ("d/e/b", "../..", LINK)]
    with pytest.raises(ChecksumError, match="leads out of it"):
        unpack(members)


def test_nothing_is_written_through_a_link(unpack, tmp_path):
    with pytest.raises(ChecksumError, match="both as a file and as a folder"):
        unpack([("l", "/tmp", LINK), ("l/x", b"1", FILE)])


def test_link_below_a_link_is_refused(unpack):
    with pytest.raises(ChecksumError, match="both as a file and as a folder"):
        unpack([("d/", b"", stat.S_IFDIR | 0o755), ("l", "d", LINK), ("l/x", "..", LINK)])


def test_same_name_twice_is_refused(unpack):
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        pytest.raises(ChecksumError, match="'a' twice"),
    ):
        unpack([("a", b"1", FILE), ("a", b"2", FILE)])


def test_bomb_is_refused(unpack, monkeypatch):
    monkeypatch.setattr(archive, "_SMALL_BYTES", 1000)
    with pytest.raises(ChecksumError, match="over 200 times its size"):
        unpack([("a", bytes(1_000_000), FILE)])


def test_damage_is_one_error(tmp_path):
    file = tmp_path / "a.zip"
    file.write_bytes(b"PK not really")
    with pytest.raises(ChecksumError, match=r"a\.zip is damaged"):
        extract(file, tmp_path, lambda name: name)


def test_damaged_member_is_one_error(unpack, tmp_path):
    unpack([("a", os.urandom(5000), FILE)])
    file = tmp_path / "a.zip"
    data = bytearray(file.read_bytes())
    data[2000] ^= 0xFF
    file.write_bytes(data)
    (tmp_path / "out" / "a").unlink()
    with pytest.raises(ChecksumError, match="is damaged"):
        extract(file, tmp_path / "out", lambda name: name)
