import tomllib

import pytest

from flodl_cli.errors import LibtorchError
from flodl_cli.libtorch.cargo import config_in, config_text, write_config


def test_new_file_has_the_variables_and_the_linkers_flags(add_variant, platform):
    variant = add_variant("precompiled/cu130", archs=(90,))
    data = tomllib.loads(config_text(variant, platform))
    assert data["env"]["LIBTORCH"] == str(variant.prefix)
    flags = data["build"]["rustflags"]
    assert flags[::2] == ["-C"] * (len(flags) // 2)
    assert "link-arg=-ltorch_cuda" in flags
    assert f"link-arg=-Wl,-rpath,{variant.lib}" in flags


def test_other_keys_and_comments_stay(add_variant, platform):
    before = '# mine\n[env]\nOTHER = "1" # kept\n\n[build]\njobs = 2\nrustflags = ["-g"]\n'
    after = config_text(add_variant("precompiled/cpu"), platform, before)
    assert after.startswith('# mine\n[env]\nOTHER = "1" # kept\n')
    assert tomllib.loads(after)["build"]["jobs"] == 2
    assert tomllib.loads(after)["build"]["rustflags"][0] == "-g"


def test_another_variant_replaces_the_one_before(add_variant, platform):
    first = config_text(add_variant("precompiled/cu130", archs=(90,)), platform)
    second = config_text(add_variant("precompiled/cpu"), platform, first)
    assert second == config_text(add_variant("precompiled/cpu"), platform)
    assert config_text(add_variant("precompiled/cpu"), platform, second) == second


def test_flags_written_as_text_are_kept(add_variant, platform):
    after = config_text(add_variant("precompiled/cpu"), platform, '[build]\nrustflags = "-g -O"\n')
    assert tomllib.loads(after)["build"]["rustflags"][:2] == ["-g", "-O"]


@pytest.mark.parametrize("before", ["[env", "env = 1\n", "[build]\nrustflags = 7\n"])
def test_file_that_cannot_be_changed_is_an_error(add_variant, platform, before):
    with pytest.raises(LibtorchError, match="cannot be changed"):
        config_text(add_variant("precompiled/cpu"), platform, before)


def test_file_is_written_below_the_directory(tmp_path):
    assert config_in(tmp_path) == ""
    file = write_config(tmp_path, "[env]\n")
    assert file == tmp_path / ".cargo" / "config.toml"
    assert config_in(tmp_path) == "[env]\n"
