import pytest

from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.verify import Status, load_check, static_checks


@pytest.fixture(autouse=True)
def _no_system_libraries(fake_program):
    fake_program("ldconfig", "exit 0")


def found(variant, platform=Platform.LINUX_X86_64):
    return {check.name: check for check in static_checks(variant, platform)}


def test_good_variant_passes(add_variant):
    checks = found(add_variant("precompiled/cpu"))
    assert {name: check.status for name, check in checks.items()} == {
        "files": "ok",
        "abi": "ok",
        "dependencies": "ok",
    }
    assert checks["abi"].message == "C++11 ABI on, C++17"


def test_missing_files_are_named(add_variant):
    variant = add_variant("precompiled/cpu")
    (variant.lib / "libc10.so").unlink()
    check = found(variant)["files"]
    assert (check.status, check.message) == (Status.FAIL, f"not in {variant.prefix}: c10")


def test_library_for_another_processor_fails(add_variant, make_libtorch):
    variant = add_variant("precompiled/cpu")
    make_libtorch(variant.directory, machine="aarch64")
    check = found(variant)["files"]
    assert (check.status, check.message) == (
        Status.FAIL,
        "built for aarch64, and this is x86_64",
    )


def test_missing_cmake_files_are_a_warning_with_a_way_out(add_variant):
    variant = add_variant("precompiled/cpu")
    (variant.prefix / "share/cmake/Torch/TorchConfig.cmake").unlink()
    first = static_checks(variant, Platform.LINUX_X86_64)[0]
    assert first.status == Status.WARN
    assert "fdl libtorch cmake" in first.fix


def test_declared_architectures_are_corrected_from_the_binary(add_variant, store):
    variant = add_variant("precompiled/cu130", "2.13.0+cu130", archs=(75, 90), cuda="13.0")
    check = found(variant)["architectures"]
    assert "7.5 9.0, from the libraries; cpu was declared" in check.message
    assert store.variant("precompiled/cu130").metadata.archs == "7.5 9.0"
    assert found(store.variant("precompiled/cu130"))["architectures"].message == "7.5 9.0"


def test_unreadable_architectures_are_a_warning(add_variant):
    variant = add_variant("precompiled/cu130", cuda="13.0", archs=())
    assert found(variant)["architectures"].status == Status.WARN


def test_missing_library_fails_and_names_who_needs_it(add_variant):
    check = found(add_variant("precompiled/cpu", needed=["libgomp.so.7"]))["dependencies"]
    assert check.status == Status.FAIL
    assert check.message == "not found: libgomp.so.7 (for libtorch_cpu.so)"


def test_missing_driver_is_a_warning(add_variant):
    check = found(add_variant("precompiled/cpu", needed=["libcuda.so.1"]))["dependencies"]
    assert check.status == Status.WARN


def test_stale_link_fails(add_variant, tmp_path):
    variant = add_variant("wheel/cpu", source="wheel", path=str(tmp_path / "gone"))
    assert "is gone" in found(variant)["files"].message


def test_dependencies_are_those_of_linux_only(add_variant):
    checks = found(add_variant("precompiled/cpu", needed=["libx.so"]), Platform.MACOS_ARM64)
    assert "dependencies" not in checks


def test_libraries_that_do_not_load_fail_with_the_linkers_reason(add_variant, platform):
    variant = add_variant("precompiled/cpu")
    (variant.lib / "libc10.so").write_text("no library")
    check = load_check(variant, platform)
    assert check.status == Status.FAIL
    assert "libc10.so" in check.message
