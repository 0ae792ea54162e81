import json
import subprocess

import pytest

from flodl_cli.errors import UsageError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.environment import (
    append_github,
    dotenv_text,
    json_text,
    loader_environment,
    loader_folders,
    shell_lines,
    unset_lines,
)


@pytest.fixture
def variant(add_variant):
    return add_variant("precompiled/cpu")


def in_sh(script, **env):
    done = subprocess.run(
        ["sh", "-euc", script], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_lines_for_sh_name_the_variant_and_extend_the_loaders_path(variant, platform):
    lines = shell_lines(variant, platform, {}, "sh")
    show = lines + 'echo "$LIBTORCH|$LIBTORCH_CXX11_ABI|$CMAKE_PREFIX_PATH|$LD_LIBRARY_PATH"'
    prefix = variant.prefix
    assert in_sh(show) == f"{prefix}|1|{prefix}|{prefix}/lib\n"
    assert in_sh(show, LD_LIBRARY_PATH="/a").endswith(f"{prefix}/lib:/a\n")
    assert in_sh(show, LD_LIBRARY_PATH="").endswith(f"|{prefix}/lib\n")


def test_include_and_lib_roots_are_not_exported(variant, platform):
    text = shell_lines(variant, platform, {}, "sh")
    assert "LIBTORCH_INCLUDE" not in text
    assert "LIBTORCH_LIB" not in text


def test_path_with_blanks_and_quotes_survives(store, add_variant, platform, tmp_path):
    variant = add_variant("precompiled/cpu")
    odd = tmp_path / "it's a $HOME"
    variant.directory.rename(odd)
    variant = type(variant)(id=variant.id, directory=odd, metadata=variant.metadata)
    lines = shell_lines(variant, platform, {}, "sh")
    assert in_sh(lines + 'printf %s "$LIBTORCH"', HOME="/h") == str(odd)


def test_bypass_is_only_there_on_request(variant, platform):
    name = "LIBTORCH_BYPASS_VERSION_CHECK"
    assert name not in shell_lines(variant, platform, {}, "sh")
    assert f"export {name}=1" in shell_lines(variant, platform, {}, "sh", bypass=True)


def test_unset_takes_back_what_was_added(variant, platform):
    lib = str(variant.lib)
    lines = unset_lines(variant, platform, {"LD_LIBRARY_PATH": f"{lib}:/a:{lib}"}, "sh")
    script = lines + 'echo "${LIBTORCH:-none} $LD_LIBRARY_PATH"'
    assert in_sh(script, LIBTORCH="x", LD_LIBRARY_PATH=f"{lib}:/a") == "none /a\n"
    assert unset_lines(variant, platform, {}, "fish").endswith("set -e LD_LIBRARY_PATH\n")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("fish", "set -gx --path LD_LIBRARY_PATH '{lib}' $LD_LIBRARY_PATH"),
        ("powershell", "$env:LIBTORCH = '{prefix}'"),
        ("cmd", 'set "LIBTORCH={prefix}"'),
    ],
)
def test_other_shells_have_their_own_spelling(variant, platform, shell, line):
    lines = shell_lines(variant, platform, {}, shell).splitlines()
    assert line.format(lib=variant.lib, prefix=variant.prefix) in lines


@pytest.mark.parametrize(
    ("platform_name", "name"),
    [("macos-arm64", "DYLD_LIBRARY_PATH"), ("windows-x86_64", "PATH")],
)
def test_loaders_variable_is_that_of_the_system(variant, platform_name, name):
    env = loader_environment(variant, Platform(platform_name), {name: "before"})
    assert env[name].startswith(str(variant.lib))
    assert env[name].endswith("before")


def test_system_rocm_comes_before_libtorch(add_variant):
    variant = add_variant("precompiled/rocm71", rocm="7.1")
    assert loader_folders(variant, {}) == ["/opt/rocm/lib", str(variant.lib)]
    assert loader_folders(variant, {"ROCM_PATH": "/r", "HIP_PATH": "/h"})[0] == "/r/lib"


def test_json_lists_the_folders_to_prepend(variant, platform):
    data = json.loads(json_text(variant, platform, {}, bypass=False))
    assert data["LIBTORCH"] == str(variant.prefix)
    assert data["LD_LIBRARY_PATH"] == [str(variant.lib)]


def test_dotenv_has_whole_values(variant, platform):
    text = dotenv_text(variant, platform, {"LD_LIBRARY_PATH": "/a b"}, bypass=True)
    assert f'LD_LIBRARY_PATH="{variant.lib}:/a b"\n' in text
    assert "LIBTORCH_BYPASS_VERSION_CHECK=1\n" in text


def test_github_file_is_appended_to(variant, platform, tmp_path):
    file = tmp_path / "env"
    file.write_text("A=1\n")
    assert append_github(variant, platform, {"GITHUB_ENV": str(file)}, bypass=False) == file
    assert file.read_text().startswith(f"A=1\nLIBTORCH={variant.prefix}\n")
    with pytest.raises(UsageError, match="GITHUB_ENV is not set"):
        append_github(variant, platform, {}, bypass=False)
