import errno
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_cli.errors import LibtorchError, UsageError
from flodl_cli.libtorch import store as store_module
from flodl_cli.libtorch.store import Store, check_id, size_of


def test_variants_are_listed_by_id(store, add_variant):
    for name in ("precompiled/cpu", "builds/sm61-sm120", "wheel/cu132"):
        add_variant(name)
    (store.root / "precompiled" / "unfinished").mkdir()
    assert [each.id for each in store.variants()] == [
        "builds/sm61-sm120",
        "precompiled/cpu",
        "wheel/cu132",
    ]


def test_activate_writes_one_line(store, add_variant):
    add_variant("precompiled/cpu")
    store.activate("precompiled/cpu")
    assert (store.root / ".active").read_text() == "precompiled/cpu\n"
    assert store.active().id == "precompiled/cpu"


@pytest.mark.parametrize(
    "text", ["cpu", "other/cpu", "precompiled/../x", "precompiled/a/b", "precompiled/.x", ""]
)
def test_impossible_id_is_misuse(text):
    with pytest.raises(UsageError, match="is no variant"):
        check_id(text)


def test_unknown_variant_names_near_ones(store, add_variant):
    add_variant("precompiled/cu128")
    with pytest.raises(LibtorchError, match="variants: precompiled/cu128") as failed:
        store.activate("precompiled/cu129")
    assert failed.value.hint == "did you mean precompiled/cu128?"


def test_nothing_active_is_an_error_with_a_way_out(store, add_variant):
    with pytest.raises(LibtorchError, match="no libtorch is active") as failed:
        store.active()
    assert "fdl libtorch download" in failed.value.hint
    assert store.active_id() is None


def test_damaged_pointer_is_an_error(store, add_variant):
    add_variant("precompiled/cpu")
    (store.root / ".active").write_bytes(b"\xff\n")
    with pytest.raises(LibtorchError, match="is damaged: .*xff' is no variant") as failed:
        store.active()
    assert failed.value.hint == "fdl libtorch activate VARIANT writes it anew"
    (store.root / ".active").write_text("../../etc\n")
    with pytest.raises(LibtorchError, match="is damaged"):
        store.active()


def test_pointer_to_a_deleted_variant_lists_what_exists(store, add_variant):
    add_variant("precompiled/cpu")
    (store.root / ".active").write_text("precompiled/gone\n")
    with pytest.raises(LibtorchError, match="the active variant is gone: .*precompiled/cpu"):
        store.active()


def test_case_has_its_own_pointer_and_no_fallback(store, add_variant):
    add_variant("precompiled/cpu")
    add_variant("precompiled/cu128")
    store.activate("precompiled/cpu")
    store.activate("precompiled/cu128", case="train")
    assert Store(store.root, case="train").active().id == "precompiled/cu128"
    with pytest.raises(
        LibtorchError, match=r"FDL_LIBTORCH_CASE=other: there is no .*\.active\.other"
    ):
        Store(store.root, case="other").active_id()


def test_case_with_an_impossible_name_is_misuse(store, add_variant):
    add_variant("precompiled/cpu")
    with pytest.raises(UsageError, match="--as"):
        store.activate("precompiled/cpu", case="../x")


def test_remove_deletes_the_folder_and_every_pointer(store, add_variant):
    variant = add_variant("precompiled/cpu")
    add_variant("precompiled/cu128")
    store.activate("precompiled/cpu")
    store.activate("precompiled/cpu", case="a")
    store.activate("precompiled/cu128", case="b")
    assert store.remove("precompiled/cpu") == [".active", ".active.a"]
    assert not variant.directory.exists()
    assert Store(store.root, case="b").active().id == "precompiled/cu128"
    assert store.leftovers() == []


def test_remove_leaves_what_links_lead_to(store, add_variant, make_libtorch, tmp_path):
    real = make_libtorch(tmp_path / "real")
    variant = add_variant("linked/x")
    (variant.directory / "more").symlink_to(real)
    store.remove("linked/x")
    assert (real / "lib" / "libtorch.so").exists()


def test_prune_deletes_leftovers_only(store, add_variant):
    add_variant("precompiled/cpu")
    for name in (".downloads/a.part", ".build-cache/x/y", "precompiled/.staging-z/lib/a"):
        file = store.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    assert sorted((path.name, size) for path, size in store.leftovers()) == [
        (".build-cache", 5),
        (".downloads", 5),
        (".staging-z", 5),
    ]
    store.prune()
    assert store.leftovers() == []
    assert [each.id for each in store.variants()] == ["precompiled/cpu"]


def test_full_disk_can_still_be_pruned(store, add_variant, monkeypatch):
    add_variant("precompiled/cpu")
    part = store.root / ".downloads" / "a.part"
    part.parent.mkdir()
    part.write_text("12345")

    def full(self, *args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    store.prune()
    assert store.leftovers() == []


def test_size_counts_files_and_not_what_links_lead_to(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("123")
    (tmp_path / "big").write_text("x" * 1000)
    (tmp_path / "a" / "l").symlink_to(tmp_path / "big")
    assert size_of(tmp_path / "a") < 1000


def test_second_fdl_waits_and_then_names_the_first(store, monkeypatch):
    monkeypatch.setattr(store_module, "_LOCK_WAIT_S", 0.2)
    code = (
        "import sys; from pathlib import Path; from flodl_cli.libtorch.store import Store\n"
        "with Store(Path(sys.argv[1])).locked():\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(LibtorchError, match=rf"another fdl \(process {other.pid}\)"),
            store.locked(),
        ):
            pass
        other.stdin.close()
    with store.locked(), store.locked():
        pass


def test_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(LibtorchError, match="cannot be made"),
        Store(tmp_path / "file" / "libtorch").locked(),
    ):
        pass


def test_libraries_are_elsewhere_where_there_are_no_links(
    store, add_variant, make_libtorch, tmp_path
):
    real = make_libtorch(tmp_path / "real")
    folder = store.root / "wheel" / "cpu-win"
    folder.mkdir(parents=True)
    (folder / ".arch").write_text(f"path={real}\n")
    variant = store.variant("wheel/cpu-win")
    assert variant.lib == real / "lib"
