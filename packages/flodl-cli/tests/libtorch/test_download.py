import contextlib
import errno
import hashlib

import pytest

from flodl_cli.errors import ChecksumError, DownloadError, FdlError, LibtorchError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.download import Options, install, installed, plan, refuse_small_disk
from flodl_cli.libtorch.store import Store
from flodl_cli.net import archive
from flodl_cli.net.http import Fetcher, open_client

ARCHIVE = "/cpu/libtorch-shared-with-deps-2.12.0%2Bcpu.zip"


@pytest.fixture
def told():
    return []


@pytest.fixture
def get(server, store, platform, told, fake_program):
    """Download torch 2.12.0 for the CPU, of which the catalog knows no checksum."""
    fake_program("ldconfig", "exit 0")

    def run(bucket="cpu", version="2.12.0", sleep=lambda s: None, **options):
        catalog = load_catalog(platform)
        chosen = Options(**{"base": server.url, **options})
        planned = plan(catalog, store, catalog.bucket(bucket, version), version, chosen)
        with open_client() as client:
            return install(planned, store, Fetcher(client, sleep=sleep), told.append)

    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_archive_becomes_a_variant(get, server, store, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    variant = get()
    assert variant.id == "precompiled/cpu"
    assert (variant.lib / "libtorch.so").is_file()
    metadata = variant.metadata
    assert (metadata.torch, metadata.cuda, metadata.archs) == ("2.12.0", "none", "cpu")
    assert metadata.url == server.url + ARCHIVE
    assert names(store.root / "precompiled") == ["cpu"]
    assert names(store.root / ".downloads") == []


def test_archive_without_a_checksum_is_loudly_unverified(get, server, make_zip, told):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    metadata = get().metadata
    digest = hashlib.sha256(server.files[ARCHIVE]).hexdigest()
    assert (metadata.verified, metadata.sha256) == ("no", digest)
    assert any("unverified" in line and digest in line for line in told)


@pytest.mark.parametrize("source", ["given", "header"])
def test_checksum_that_fits_makes_it_verified(get, server, make_zip, source, told):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    digest = hashlib.sha256(server.files[ARCHIVE]).hexdigest()
    if source == "header":
        server.headers["x-amz-meta-checksum-sha256"] = digest
    assert get(sha256=digest.upper() if source == "given" else None).metadata.verified == "yes"
    assert not any("unverified" in line for line in told)


def test_wrong_checksum_deletes_the_part_and_names_both(get, server, store, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    digest = hashlib.sha256(server.files[ARCHIVE]).hexdigest()
    with pytest.raises(ChecksumError, match=f"{digest}, and {'0' * 64} was published"):
        get(sha256="0" * 64)
    assert names(store.root / ".downloads") == []
    assert store.variants() == []


def test_checksum_of_the_catalog_beats_the_given_one(server, store, platform):
    catalog = load_catalog(platform)
    planned = plan(
        catalog, store, catalog.bucket("cpu", "2.13.0"), "2.13.0", Options(sha256="0" * 64)
    )
    assert planned.sha256.startswith("edbf4cbe")
    assert planned.url.startswith("https://download.pytorch.org/libtorch/cpu/")


def test_cut_connection_is_resumed(get, server, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    server.cut = [500]
    assert get().id == "precompiled/cpu"
    assert server.seen[-1][1]["Range"] == "bytes=500-"


def test_file_that_is_not_published_names_the_alternatives(get):
    with pytest.raises(DownloadError, match="not published") as failed:
        get()
    assert failed.value.hint == "builds of 2.12.0: cpu, cu126, cu130, cu132, rocm7.1, rocm7.2"


@pytest.mark.parametrize("drop", ["lib/libtorch.so", "lib/libc10.so"])
def test_archive_without_a_libtorch_leaves_the_old_variant(get, server, store, make_zip, drop):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    get()
    store.activate("precompiled/cpu")
    server.files[ARCHIVE] = make_zip("2.12.0+cpu", drop=[drop])
    with pytest.raises(LibtorchError):
        get()
    assert store.active().metadata.torch == "2.12.0"
    assert (store.active().lib / "libc10.so").exists()
    assert names(store.root / "precompiled") == ["cpu"]


def test_hostile_archive_leaves_nothing(get, server, store, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu", extra={"libtorch/../../evil": "x"})
    with pytest.raises(ChecksumError, match="leads out of it"):
        get()
    assert store.variants() == []
    assert not (store.root.parent / "evil").exists()
    assert not [*store.root.rglob(".staging*")]


def test_archive_for_another_processor_is_refused(get, server, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu", machine="aarch64")
    with pytest.raises(LibtorchError, match="built for aarch64, and this is x86_64"):
        get()


def test_archive_of_another_version_is_refused(get, server, make_zip):
    server.files[ARCHIVE] = make_zip("2.11.0+cpu")
    with pytest.raises(LibtorchError, match=r"holds torch 2\.11\.0, and 2\.12\.0 was asked for"):
        get()


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_what_stops_unpacking_leaves_no_staging_and_needs_no_second_fetch(
    get, server, store, make_zip, monkeypatch, failure
):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")

    def stop(*args):
        raise failure

    told = "cannot be made: No space left" if isinstance(failure, OSError) else None
    with (
        monkeypatch.context() as patch,
        pytest.raises((KeyboardInterrupt, LibtorchError), match=told),
    ):
        patch.setattr(archive.shutil, "copyfileobj", stop)
        get()
    assert not [*store.root.rglob(".staging*")]
    part = "libtorch-shared-with-deps-2.12.0+cpu.zip.part"
    assert names(store.root / ".downloads") == [part, f"{part}.json"]
    assert get().id == "precompiled/cpu"
    assert len(server.seen) == 1
    assert names(store.root / ".downloads") == []


@pytest.mark.parametrize("content", [b"<html>log in</html>", None])
def test_what_is_no_libtorch_is_fetched_anew_the_next_time(get, server, store, make_zip, content):
    server.files[ARCHIVE] = content or make_zip("2.11.0+cpu")
    with pytest.raises(FdlError):
        get()
    assert names(store.root / ".downloads") == []
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    assert get().id == "precompiled/cpu"


def test_what_another_fdl_installs_meanwhile_is_not_fetched_again(
    get, server, store, make_zip, monkeypatch
):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    locked = Store.locked

    @contextlib.contextmanager
    def after_the_other(self):
        monkeypatch.setattr(Store, "locked", locked)
        get()
        with locked(self):
            yield

    monkeypatch.setattr(Store, "locked", after_the_other)
    assert get().id == "precompiled/cpu"
    assert len(server.seen) == 1
    assert get().id == "precompiled/cpu"  # as with --force: it was there before
    assert len(server.seen) == 2


def test_another_version_is_kept_beside_the_first(get, server, store, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    get()
    server.files[ARCHIVE.replace("2.12.0", "2.15.0")] = make_zip("2.15.0+cpu")
    assert get(version="2.15.0").id == "precompiled/cpu-2.15.0"
    assert get(version="2.15.0", force=True).id == "precompiled/cpu"
    assert [each.metadata.torch for each in store.variants()] == ["2.15.0", "2.15.0"]


def test_installed_variant_is_recognized_only_while_whole(get, server, store, platform, make_zip):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    variant = get()
    catalog = load_catalog(platform)
    planned = plan(catalog, store, catalog.bucket("cpu", "2.12.0"), "2.12.0", Options())
    assert installed(planned, store).id == variant.id
    (variant.lib / "libtorch.so").unlink()
    assert installed(planned, store) is None


def test_path_installs_there_and_registers_a_link(get, server, store, make_zip, tmp_path):
    server.files[ARCHIVE] = make_zip("2.12.0+cpu")
    variant = get(path=tmp_path / "opt" / "torch")
    assert variant.id == "linked/cpu"
    assert (tmp_path / "opt" / "torch" / "lib" / "libtorch.so").is_file()
    assert (tmp_path / "opt" / "torch" / ".arch").is_file()
    assert variant.metadata.path == str(tmp_path / "opt" / "torch")


def test_gpu_archive_gets_its_architectures_from_the_binary(get, server, make_zip):
    path = ARCHIVE.replace("cpu", "cu130")
    server.files[path] = make_zip("2.12.0+cu130", archs=(75, 90))
    metadata = get("cu130").metadata
    assert (metadata.archs, metadata.cuda, metadata.vendor) == ("7.5 9.0", "13.0", "nvidia")


def test_too_small_a_disk_is_said_before_the_download(tmp_path):
    with pytest.raises(LibtorchError, match="MiB are needed"):
        refuse_small_disk(tmp_path, 1 << 60)


def test_mac_and_windows_archives_are_planned(store):
    mac = load_catalog(Platform.MACOS_ARM64)
    planned = plan(mac, store, mac.bucket("cpu", "2.13.0"), "2.13.0", Options())
    assert planned.variant_id == "precompiled/cpu-macos"
    windows = load_catalog(Platform.WINDOWS_X86_64)
    planned = plan(windows, store, windows.bucket("cu130", "2.13.0"), "2.13.0", Options())
    assert planned.url.endswith("/cu130/libtorch-win-shared-with-deps-2.13.0%2Bcu130.zip")


def test_linux_on_arm_takes_the_wheel_apart(
    store, fake_program, make_libtorch, elf, tmp_path, told
):
    fake_program("ldconfig", "exit 0")
    wheel = make_libtorch(tmp_path / "wheel" / "torch", machine="aarch64", needed=["libgomp-1.so"])
    (wheel / "build-version").unlink()
    libs = tmp_path / "wheel" / "torch.libs"
    libs.mkdir()
    (libs / "libgomp-1.so").write_bytes(elf(machine="aarch64"))
    fake_program(
        "uv",
        f"""if [ "$2" = compile ]; then echo 'torch==2.13.0 --hash=sha256:aa'; exit; fi
while [ "$1" != --target ]; do shift; done
mkdir -p "$2"; cp -r {tmp_path}/wheel/* "$2" """,
    )
    catalog = load_catalog(Platform.LINUX_AARCH64)
    planned = plan(catalog, store, catalog.bucket("cpu", "2.13.0"), "2.13.0", Options())
    with open_client() as client:
        variant = install(planned, store, Fetcher(client), told.append)
    assert variant.id == "precompiled/cpu-aarch64"
    assert (variant.lib / "libgomp-1.so").is_file()
    assert (variant.directory / "build-version").read_text() == "2.13.0+cpu\n"
    assert names(store.root / "precompiled") == ["cpu-aarch64"]
