import shlex

import pytest

from flodl_cli.errors import BuildError, UsageError
from flodl_cli.libtorch import compiler


def test_flags_name_both_include_folders_and_keep_the_gpu_libraries(add_variant):
    variant = add_variant("precompiled/cu130", archs=(90,), cxx="20")
    words = shlex.split(compiler.flags_line(variant, cflags=False, libs=False))
    include = variant.prefix / "include"
    assert words == [
        f"-I{include}",
        f"-I{include}/torch/csrc/api/include",
        "-std=c++20",
        f"-L{variant.lib}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-ltorch_cuda",
        "-lc10_cuda",
        f"-Wl,-rpath,{variant.lib}",
    ]


def test_halves_of_the_flags(add_variant):
    variant = add_variant("precompiled/cpu", abi="0")
    cflags = compiler.flags_line(variant, cflags=True, libs=False)
    libs = compiler.flags_line(variant, cflags=False, libs=True)
    assert cflags.endswith("-D_GLIBCXX_USE_CXX11_ABI=0")
    assert "-ltorch_cuda" not in libs
    assert compiler.flags_line(variant, cflags=True, libs=True) == f"{cflags} {libs}"


def test_cmake_file_names_whole_paths_and_no_cuda_toolkit(add_variant):
    variant = add_variant("precompiled/cu130", archs=(90,), cxx="20")
    text = compiler.cmake_text(variant)
    assert f'"{variant.lib}/libtorch_cuda.so"' in text
    assert "cxx_std_20" in text
    assert "find_package" not in text
    assert "CXX_STANDARD 20" in compiler.find_package_snippet(variant)


def test_cmake_file_of_a_broken_variant_is_an_error(add_variant):
    variant = add_variant("precompiled/cpu")
    (variant.lib / "libc10.so").unlink()
    with pytest.raises(BuildError, match="lacks c10"):
        compiler.cmake_text(variant)


def test_windows_is_sent_to_cmake():
    with pytest.raises(UsageError, match="Windows"):
        compiler.refuse_windows_flags("windows")
    compiler.refuse_windows_flags("linux")
