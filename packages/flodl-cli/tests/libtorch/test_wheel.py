import sys

import pytest

from flodl_cli.errors import LaunchError, LibtorchError
from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.wheel import find_prefix, find_wheel, link, search, stale_reason


@pytest.fixture
def python(tmp_path, make_libtorch, fake_program):
    """An interpreter with a torch wheel that must not be imported."""
    torch = make_libtorch(tmp_path / "site" / "torch", "2.15.0+cu132", archs=(75, 90))
    (torch / "build-version").unlink()
    (torch / "version.py").write_text("__version__ = '2.15.0+cu132'\ncuda: str = '13.2'\n")
    (torch / "__init__.py").write_text("raise SystemExit('torch was imported')")
    find = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); exec(sys.argv[1])"
    return str(fake_program("python3", f'exec "{sys.executable}" -c "{find}" "$3"'))


def test_wheel_is_found_without_importing_it(python, tmp_path):
    found = find_wheel(python)
    assert found.prefix == tmp_path / "site" / "torch"
    assert (found.version.bucket, found.kind) == ("cu132", "wheel")


def test_interpreter_without_torch_has_none(fake_program):
    assert find_wheel(str(fake_program("python3", "exit 0"))) is None
    with pytest.raises(LaunchError, match="cannot be run"):
        find_wheel("/nowhere/python")


def test_link_makes_links_and_no_copies(python, store, platform, tmp_path):
    variant = link(store, find_wheel(python), platform)
    assert variant.id == "wheel/cu132"
    assert (variant.directory / "lib").readlink() == tmp_path / "site" / "torch" / "lib"
    assert (variant.directory / "build-version").read_text() == "2.15.0+cu132\n"
    metadata = variant.metadata
    assert (metadata.archs, metadata.cuda, metadata.abi) == ("7.5 9.0", "13.2", "1")
    assert (metadata.source, metadata.python) == ("wheel", python)


def test_linking_again_replaces_what_was_linked(python, store, platform, tmp_path):
    link(store, find_wheel(python), platform)
    version = tmp_path / "site" / "torch" / "version.py"
    version.write_text(version.read_text().replace("2.15.0", "2.16.0"))
    assert stale_reason(store.variant("wheel/cu132")).endswith("is now torch 2.16.0")
    variant = link(store, find_wheel(python), platform)
    assert (variant.id, variant.metadata.torch) == ("wheel/cu132", "2.16.0")
    assert stale_reason(variant) is None


def test_wheel_that_vanished_is_stale(python, store, platform, tmp_path):
    variant = link(store, find_wheel(python), platform)
    (tmp_path / "site" / "torch" / "lib" / "libtorch.so").unlink()
    assert stale_reason(variant).endswith("is gone")


def test_windows_has_a_path_and_no_links(python, store):
    variant = link(store, find_wheel(python), Platform.WINDOWS_X86_64)
    assert variant.id == "wheel/cu132-win"
    assert sorted(path.name for path in variant.directory.iterdir()) == [".arch", "build-version"]
    assert variant.prefix.name == "torch"


def test_prefix_of_a_system_is_linked(store, platform, make_libtorch, tmp_path):
    variant = link(store, find_prefix(make_libtorch(tmp_path / "opt")), platform, name="mine")
    assert variant.id == "linked/mine"
    assert store.remove("linked/mine") == []
    assert (tmp_path / "opt" / "lib" / "libtorch.so").exists()


def test_folder_that_is_no_libtorch_is_an_error(tmp_path):
    with pytest.raises(LibtorchError, match="is no libtorch"):
        find_prefix(tmp_path)


def test_libtorch_of_unknown_version_says_how_to_tell_it(make_libtorch, tmp_path):
    make_libtorch(tmp_path)
    (tmp_path / "build-version").unlink()
    with pytest.raises(LibtorchError, match="nothing in .* tells its version") as failed:
        find_prefix(tmp_path)
    assert "build-version" in failed.value.hint


def test_search_prefers_the_active_environment_then_conda_then_python3(
    python, tmp_path, make_libtorch, fake_program
):
    assert search(tmp_path, {}).python == "python3"
    venv = tmp_path / "v" / "bin" / "python"
    venv.parent.mkdir(parents=True)
    venv.symlink_to(python)
    assert search(tmp_path, {"VIRTUAL_ENV": str(tmp_path / "v")}).python == str(venv)
    fake_program("python3", "exit 0")
    conda = make_libtorch(tmp_path / "conda")
    assert search(tmp_path, {"CONDA_PREFIX": str(conda)}).prefix == conda


def test_search_in_vain_says_where_it_looked(tmp_path, fake_program):
    fake_program("python3", "exit 0")
    with pytest.raises(LibtorchError, match="looked in: python3"):
        search(tmp_path, {})
