import re

import pytest

from flodl_cli.errors import UnsupportedPlatformError, UsageError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.catalog import load_catalog, version_key


def path(platform, bucket, version):
    return load_catalog(platform).archive(bucket, version).path


@pytest.mark.parametrize(
    ("platform", "bucket", "version", "expected"),
    [
        ("linux-x86_64", "cu130", "2.13.0", "cu130/libtorch-shared-with-deps-2.13.0%2Bcu130.zip"),
        ("linux-x86_64", "cpu", "2.7.1", "cpu/libtorch-cxx11-abi-shared-with-deps-2.7.1%2Bcpu.zip"),
        ("linux-x86_64", "cpu", "2.8.0", "cpu/libtorch-shared-with-deps-2.8.0%2Bcpu.zip"),
        (
            "linux-x86_64",
            "rocm7.1",
            "2.13.0",
            "rocm7.1/libtorch-shared-with-deps-2.13.0%2Brocm7.1.zip",
        ),
        ("windows-x86_64", "cpu", "2.13.0", "cpu/libtorch-win-shared-with-deps-2.13.0%2Bcpu.zip"),
        ("macos-arm64", "cpu", "2.14.0", "cpu/libtorch-macos-arm64-2.14.0.zip"),
    ],
)
def test_archives_are_named_as_the_host_names_them(platform, bucket, version, expected):
    assert path(Platform(platform), bucket, version) == expected


def test_local_file_has_the_plus_sign_back(platform):
    archive = load_catalog(platform).archive("cpu", "2.13.0")
    assert archive.file_name == "libtorch-shared-with-deps-2.13.0+cpu.zip"
    assert archive.size_bytes == 126385248
    assert archive.sha256.startswith("edbf4cbe")


def test_every_recorded_file_is_one_that_the_catalog_can_ask_for():
    reachable = {
        catalog.archive(bucket.name, version).path
        for catalog in map(load_catalog, Platform)
        if catalog.versions and catalog.platform is not Platform.LINUX_AARCH64
        for version in catalog.versions
        for bucket in catalog.buckets(version)
    }
    files = load_catalog(Platform.LINUX_X86_64)._data["files"]
    assert set(files) <= reachable
    assert all(re.fullmatch("[0-9a-f]{64}", each["sha256"]) for each in files.values())


def test_every_bucket_of_a_release_is_described(platform):
    data = load_catalog(platform)._data
    named = {name for names in data["releases"].values() for name in names}
    assert named == set(data["buckets"])
    assert list(data["releases"]) == sorted(data["releases"], key=version_key)


def test_architectures_may_differ_by_version(platform):
    catalog = load_catalog(platform)
    assert catalog.bucket("cu128", "2.10.0").archs[0] == "7.0"
    assert catalog.bucket("cu128", "2.11.0").archs[0] == "7.5"


def test_platforms_without_archives_say_why():
    with pytest.raises(UnsupportedPlatformError, match=r"Intel with 2\.2"):
        path(Platform.MACOS_X86_64, "cpu", "2.2.2")
    with pytest.raises(UnsupportedPlatformError, match="Windows on ARM"):
        path(Platform.WINDOWS_ARM64, "cpu", "2.13.0")
    assert load_catalog(Platform.MACOS_X86_64).versions == []
    assert load_catalog(Platform.LINUX_AARCH64).buckets("2.13.0")[0].name == "cpu"


def test_mac_has_archives_since_2_2():
    assert load_catalog(Platform.MACOS_ARM64).versions[-1] == "2.2.2"


def test_windows_has_no_rocm_and_says_so():
    catalog = load_catalog(Platform.WINDOWS_X86_64)
    assert all(bucket.rocm is None for bucket in catalog.buckets("2.13.0"))
    with pytest.raises(UnsupportedPlatformError, match="for linux-x86_64 only"):
        catalog.bucket_name("rocm", "7.2")


def test_mac_has_no_cuda_and_says_so():
    with pytest.raises(UnsupportedPlatformError, match="no CUDA on macOS"):
        load_catalog(Platform.MACOS_ARM64).bucket_name("cuda", "13.0")


@pytest.mark.parametrize(
    ("cuda", "bucket"), [("12.6", "cu126"), ("12.8", "cu128"), ("13.2", "cu132")]
)
def test_cuda_version_names_a_bucket(platform, cuda, bucket):
    assert load_catalog(platform).bucket_name("cuda", cuda) == bucket


def test_unknown_cuda_version_lists_those_there_are(platform):
    with pytest.raises(UsageError, match=r"--cuda 9\.9: .*13\.2"):
        load_catalog(platform).bucket_name("cuda", "9.9")


@pytest.mark.parametrize("version", ["1.9.0", "9.0.0", "latest", "2"])
def test_unknown_version_lists_those_there_are(platform, version):
    with pytest.raises(UsageError, match=r"not in the catalog; versions: .*2\.13\.0"):
        load_catalog(platform).buckets(version)


def test_patch_version_has_the_builds_of_its_minor(platform):
    catalog = load_catalog(platform)
    assert catalog.buckets("2.14.1") == catalog.buckets("2.14.0")
    assert "2.14.1%2Bcpu" in catalog.archive("cpu", "2.14.1").path


def test_newest_version_with_a_build(platform):
    assert load_catalog(platform).newest_with("cu128") == "2.11.0"
    assert load_catalog(platform).newest_with("cu999") is None


def test_archives_lack_cuda_since_2_12(platform):
    catalog = load_catalog(platform)
    assert [catalog.bundles_cuda(v) for v in ("2.11.0", "2.12.0")] == [True, False]


@pytest.mark.parametrize(
    ("tch", "torch"),
    [("0.13.0", "2.0.0"), ("0.18.0", "2.5.0"), ("0.18.1", "2.5.1"), ("0.24.2", "2.11.0")],
)
def test_tch_versions_insist_on_torch_versions(platform, tch, torch):
    assert load_catalog(platform).torch_for_tch(tch) == torch


def test_unknown_tch_version_insists_on_nothing(platform):
    assert load_catalog(platform).torch_for_tch("9.9.9") is None
