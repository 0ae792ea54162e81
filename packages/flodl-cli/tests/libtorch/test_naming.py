import pytest

from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.naming import build_name, free_id


@pytest.mark.parametrize(
    ("bucket", "platform", "name"),
    [
        ("cu130", "linux-x86_64", "cu130"),
        ("rocm7.2", "linux-x86_64", "rocm72"),
        ("cpu", "linux-aarch64", "cpu-aarch64"),
        ("cpu", "macos-arm64", "cpu-macos"),
        ("cu126", "windows-x86_64", "cu126-win"),
    ],
)
def test_builds_are_named_after_bucket_and_platform(bucket, platform, name):
    assert build_name(bucket, Platform(platform)) == name


def test_another_version_gets_its_version_into_the_name(store, add_variant):
    def same(metadata):
        return metadata.torch == "2.11.0"

    assert free_id(store, "precompiled", "cu128", "2.11.0", same) == "precompiled/cu128"
    add_variant("precompiled/cu128", "2.10.0+cu128")
    assert free_id(store, "precompiled", "cu128", "2.11.0", same) == "precompiled/cu128-2.11.0"
    add_variant("precompiled/cu128", "2.11.0+cu128")
    assert free_id(store, "precompiled", "cu128", "2.11.0", same) == "precompiled/cu128"
