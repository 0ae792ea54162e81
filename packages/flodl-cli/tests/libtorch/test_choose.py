import pytest

from flodl_cli.errors import UnsupportedPlatformError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.choose import choose
from flodl_sys.gpu import GpuInfo, Vendor

NEW_DRIVER = "580.65.06"


def nvidia(*archs):
    return [
        GpuInfo(vendor=Vendor.NVIDIA, index=i, name=f"N{arch}", arch=arch)
        for i, arch in enumerate(archs)
    ]


def amd(*archs):
    return [
        GpuInfo(vendor=Vendor.AMD, index=i, name=f"A{arch}", arch=arch)
        for i, arch in enumerate(archs)
    ]


def chosen(gpus, version="2.13.0", driver=NEW_DRIVER, platform=Platform.LINUX_X86_64):
    choice = choose(gpus, driver, load_catalog(platform), version)
    return choice.bucket.name, "; ".join(choice.reasons)


@pytest.mark.parametrize(
    ("archs", "version", "driver", "bucket"),
    [
        (["sm_90"], "2.10.0", "525.60.13", "cu128"),
        (["sm_70"], "2.10.0", "525.60.13", "cu128"),
        (["sm_61"], "2.10.0", "525.60.13", "cu126"),
        (["sm_61", "sm_90"], "2.10.0", NEW_DRIVER, "cu126"),
        (["sm_90"], "2.10.0", NEW_DRIVER, "cu130"),
        (["sm_120"], "2.13.0", NEW_DRIVER, "cu132"),
        (["sm_120"], "2.13.0", "570.0", "cu126"),
        (["sm_120"], "2.13.0", None, "cu132"),
        (["sm_61"], "2.13.0", NEW_DRIVER, "cu126"),
        (["sm_86"], "2.15.0", "570.0", "cpu"),
    ],
)
def test_newest_build_that_covers_the_cards_and_runs_on_the_driver(archs, version, driver, bucket):
    assert chosen(nvidia(*archs), version, driver)[0] == bucket


def test_cards_that_no_build_covers_together_get_a_build_line():
    bucket, reasons = chosen(nvidia("sm_61", "sm_120", "sm_120"))
    assert bucket == "cu132"
    assert "leaves out Nsm_61" in reasons
    assert 'fdl libtorch build --archs "6.1;12.0"' in reasons


def test_old_driver_is_named_with_the_one_it_takes():
    bucket, reasons = chosen(nvidia("sm_90"), driver="530.1")
    assert bucket == "cu126"
    assert "CUDA 13.2 would take driver 580.65.06 or newer; this is 530.1" in reasons


def test_driver_too_old_for_everything_means_cpu():
    bucket, reasons = chosen(nvidia("sm_90"), driver="470.0")
    assert bucket == "cpu"
    assert "driver 470.0 is too old" in reasons


def test_both_vendors_mean_nvidia_and_a_line_for_amd():
    bucket, reasons = chosen([*nvidia("sm_90"), *amd("gfx942")])
    assert bucket == "cu132"
    assert "fdl libtorch download --rocm 7.1" in reasons


def test_amd_gets_the_oldest_rocm_build():
    assert chosen(amd("gfx942"))[0] == "rocm7.1"
    assert "leaves out gfx803" in chosen(amd("gfx942", "gfx803"))[1]


def test_amd_card_that_no_build_covers_means_cpu_and_the_covered_ones():
    bucket, reasons = chosen(amd("gfx803"))
    assert bucket == "cpu"
    assert "covered: gfx908" in reasons


def test_version_without_rocm_means_cpu():
    assert chosen(amd("gfx942"), "2.15.0") == ("cpu", "torch 2.15.0 has no ROCm build here")


def test_no_gpu_means_cpu():
    assert chosen([]) == ("cpu", "no GPU was found")


def test_nvidia_on_arm_means_cpu():
    bucket, reasons = chosen(nvidia("sm_90"), platform=Platform.LINUX_AARCH64)
    assert (bucket, reasons) == ("cpu", "no CUDA build for linux-aarch64")


def test_platform_without_builds_is_an_error():
    with pytest.raises(UnsupportedPlatformError):
        chosen([], platform=Platform.WINDOWS_ARM64)
