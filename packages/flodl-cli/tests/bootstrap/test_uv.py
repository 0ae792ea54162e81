"""Which uv ./fdl uses, and how it comes by one."""

import pytest


def test_uv_on_the_path_comes_first(checkout):
    uv = checkout.add_uv()
    checkout.add_uv(folder=checkout.home / ".local/bin")
    checkout.run()
    assert checkout.calls("sync")[0].startswith(str(uv))


@pytest.mark.parametrize("folder", [".local/bin", ".cargo/bin"])
def test_uv_in_the_home_folder_is_found(checkout, folder):
    uv = checkout.add_uv(folder=checkout.home / folder)
    checkout.run()
    assert checkout.calls("sync")[0].startswith(str(uv))


@pytest.mark.parametrize("version", ["0.7.22", "0.4.30"])
def test_old_uv_is_passed_over_with_a_note(checkout, version):
    checkout.add_uv(version)
    checkout.add_python()
    result = checkout.run()
    assert (
        f"fdl: passing over uv {version} at {checkout.bin}/uv: this workspace needs 0.8 or newer"
        in result.stderr
    )
    assert checkout.calls("sync")[0].startswith(f"{checkout.root}/.fdl/uv/bin/uv")


@pytest.mark.parametrize("version", ["0.8", "0.8.0", "0.10.1", "1.0.0", "0.9.0-alpha.1"])
def test_new_enough_uv_is_taken(checkout, version):
    uv = checkout.add_uv(version)
    checkout.run()
    assert checkout.calls("sync")[0].startswith(str(uv))


def test_broken_uv_is_passed_over(checkout):
    checkout.program(checkout.bin / "uv", "#!/bin/sh\nexit 3\n")
    checkout.add_python()
    checkout.run()
    assert checkout.calls("sync")[0].startswith(f"{checkout.root}/.fdl/uv/bin/uv")


def test_without_uv_a_private_one_is_installed_once(checkout):
    checkout.add_python()
    result = checkout.run()
    assert result.returncode == 0
    assert "fdl: no uv here: installing a private one into .fdl/uv" in result.stderr
    (install,) = checkout.calls("pip install")
    assert install.endswith("--no-input uv>=0.8")
    checkout.write("pyproject.toml", '[tool.uv]\nrequired-version = ">=0.9"\n')
    assert "installing" not in checkout.run().stderr
    assert len(checkout.calls("pip install")) == 1


def test_private_uv_that_is_too_old_is_replaced(checkout):
    checkout.add_python()
    checkout.add_uv("0.5.0", folder=checkout.root / ".fdl/uv/bin")
    checkout.run()
    assert len(checkout.calls("pip install")) == 1
    assert [each.name for each in (checkout.root / ".fdl").glob("uv*")] == ["uv"]


def test_half_made_private_environment_is_replaced(checkout):
    checkout.add_python()
    checkout.program(checkout.root / ".fdl/uv/bin/python", "")
    checkout.write(".fdl/uv.new.99/bin/python", "")
    assert checkout.run().returncode == 0
    assert [each.name for each in (checkout.root / ".fdl").glob("uv*")] == ["uv"]


def test_failed_install_leaves_nothing_behind(checkout):
    checkout.add_python()
    checkout.flag("pip-fails")
    result = checkout.run()
    assert result.returncode == 1
    assert "could not find a version" in result.stderr
    assert "error: installing uv failed with exit code 1" in result.stderr
    assert list((checkout.root / ".fdl").glob("uv*")) == []


def test_missing_ensurepip_names_the_package_for_that_version(checkout):
    checkout.add_python(version="3.12")
    checkout.flag("no-ensurepip")
    result = checkout.run()
    assert result.returncode == 1
    assert "lacks ensurepip" in result.stderr
    assert "apt-get install python3.12-venv, or python3-venv" in result.stderr
    assert checkout.calls("-m venv") == []


def test_old_python_is_named_with_its_version(checkout):
    checkout.add_python(version="3.9")
    result = checkout.run()
    assert result.returncode == 1
    assert "python3 is 3.9" in result.stderr
    assert "hint: install python3 (3.11 or newer)" in result.stderr


def test_newer_python_beside_an_old_one_is_used(checkout):
    checkout.add_python(version="3.9")
    checkout.add_python("python3.13", "3.13")
    assert checkout.run().returncode == 0


def test_no_python_and_no_uv_is_one_clear_error(checkout):
    result = checkout.run("test")
    assert result.returncode == 1
    assert result.stderr.splitlines()[0] == (
        "error: fdl needs uv, or Python 3.11 or newer to install it: there is no uv, and no python3"
    )


def test_pip_is_told_the_system_certificates(checkout, tmp_path):
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    checkout.add_python()
    checkout.run(SSL_CERT_FILE=str(bundle))
    assert checkout.calls("PIP_CERT") == [f"PIP_CERT={bundle}"]


def test_certificates_of_the_pip_configuration_are_kept(checkout, tmp_path):
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    checkout.add_python()
    checkout.flag("pip-has-cert")
    checkout.run(SSL_CERT_FILE=str(bundle))
    assert checkout.calls("PIP_CERT") == ["PIP_CERT="]
