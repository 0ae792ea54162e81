import compileall
import os
import shutil
import subprocess
import sys
import tomllib

import pytest
from ruamel.yaml import YAML

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.project.scaffold import Form, Scaffold, check_target, contents, write


@pytest.fixture(params=list(Form))
def made(request, tmp_path):
    target = tmp_path / "My-Proj"
    write(Scaffold(target=target, form=request.param, with_hf=True))
    return target, request.param


def test_every_form_has_valid_files_without_open_slots(made):
    target, form = made
    for file in target.rglob("*"):
        if file.is_file():
            assert "@@" not in file.read_text()
    data = tomllib.loads((target / "pyproject.toml").read_text())
    assert data["project"]["name"] == "My-Proj"
    assert any(each.startswith("flodl-hf[full]>=") for each in data["project"]["dependencies"])
    assert compileall.compile_dir(target / "src", quiet=1)
    assert (target / "src" / "my_proj" / "train.py").is_file()
    assert os.access(target / "fdl", os.X_OK)
    assert (target / "docker-compose.yml").exists() is (form is not Form.NATIVE)


def test_manifest_of_every_form_passes_the_check(made, project, monkeypatch):
    target, form = made
    monkeypatch.chdir(target)
    assert project.fdl("config", "check", "--all-envs").code == 0
    page = project.fdl("--help").out
    assert "gpu-run" in page if form is not Form.NATIVE else "gpu-run" not in page
    assert "  shell " in page
    assert "Environments" not in page
    first = (target / "fdl.yml.example").read_text().partition("\n")[0]
    assert first == "# yaml-language-server: $schema=./fdl.schema.json"
    assert (target / "fdl.schema.json").read_text() == project.fdl("config", "schema").out


def test_compose_file_has_the_three_services(tmp_path):
    for form in (Form.MOUNTED, Form.DOCKER):
        made = contents(Scaffold(target=tmp_path / "a", form=form))
        compose = YAML(typ="safe", pure=True).load(made["docker-compose.yml"])
        assert list(compose["services"]) == ["dev", "cuda", "rocm"]
        for service in compose["services"].values():
            assert service["build"]["dockerfile"] in made
        assert ("volumes" in compose) is (form is Form.MOUNTED)
        assert ("RUN uv sync" in made["Dockerfile"]) is (form is Form.DOCKER)


def test_code_of_the_project_is_in_order(made):
    target, _ = made
    subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(target)], check=True)
    shellcheck = shutil.which("shellcheck")
    if shellcheck is not None:
        subprocess.run([shellcheck, str(target / "fdl")], check=True)


def test_project_passes_its_own_tests(tmp_path):
    target = tmp_path / "proj"
    write(Scaffold(target=target, form=Form.NATIVE))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(target / "src"), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=target,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["1st", "a b", "", "../x", "-x", "é"])
def test_impossible_name_is_misuse(tmp_path, name):
    with pytest.raises(UsageError, match="is no name for a project"):
        check_target(name, tmp_path)


def test_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    assert check_target("a", tmp_path) == tmp_path / "a"
    (tmp_path / "a" / "x").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        check_target("a", tmp_path)


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
    from pathlib import Path

    def fail(self, mode):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(FdlError, match="No space left"):
        write(Scaffold(target=tmp_path / "a", form=Form.NATIVE))
    assert not (tmp_path / "a").exists()


class TestBootstrap:
    """The ``./fdl`` of a new project, with a PATH of fakes."""

    @pytest.fixture
    def run(self, tmp_path):
        target = tmp_path / "pro j"
        target.mkdir()
        script = contents(Scaffold(target=target, form=Form.NATIVE))["fdl"]
        (target / "fdl").write_text(script)
        (target / "fdl").chmod(0o755)
        fakes = tmp_path / "bin"
        fakes.mkdir()
        for tool in ("sh", "dirname", "rm", "mkdir", "cat", "chmod"):
            (fakes / tool).symlink_to(shutil.which(tool))

        def program(path, body):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)

        def call(*words, fakes_of=(), **env):
            for name, body in fakes_of:
                program(fakes / name, body)
            return subprocess.run(
                [str(target / "fdl"), *words],
                env={"PATH": str(fakes), "HOME": str(tmp_path), **env},
                capture_output=True,
                text=True,
                check=False,
            )

        call.target, call.fakes, call.program = target, fakes, program
        return call

    def test_order_of_what_is_taken(self, run, tmp_path):
        say = 'echo "{} $*"; exit 7'
        nothing = run("x")
        assert nothing.returncode == 1
        assert "needs uv or Python" in nothing.stderr
        make = (
            'case "$1" in -c) exit 0;; esac; mkdir -p "$3/bin"; '
            'printf "#!/bin/sh\\necho own \\"\\$*\\"" > "$3/bin/fdl"; '
            'printf "#!/bin/sh\\nexit 0" > "$3/bin/python"; chmod +x "$3/bin/fdl" "$3/bin/python"'
        )
        assert run("x", "a b", fakes_of=[("python3", make)]).stdout == "own x a b\n"
        assert (tmp_path / ".flodl" / "cli").is_dir()
        pipx = run("x", fakes_of=[("pipx", say.format("pipx"))])
        assert pipx.stdout.startswith("pipx run --spec flodl-cli==")
        uvx = run("x", fakes_of=[("uvx", say.format("uvx"))], FDL_VERSION="9.9")
        assert (uvx.returncode, uvx.stdout) == (7, "uvx --from flodl-cli==9.9 fdl x\n")
        assert run("x", fakes_of=[("fdl", say.format("path"))]).stdout == "path x\n"
        run.program(run.target / ".venv" / "bin" / "fdl", say.format("venv"))
        assert run("x").stdout == "venv x\n"
        run.program(tmp_path / "named", say.format("named"))
        assert run("x", FDL_BIN=str(tmp_path / "named")).stdout == "named x\n"

    def test_itself_on_path_is_not_taken(self, run):
        done = run("x", PATH=f"{run.target}:{run.fakes}")
        assert (done.returncode, "needs uv or Python" in done.stderr) == (1, True)

    def test_old_python_is_not_enough(self, run):
        assert run("x", fakes_of=[("python3", "exit 1")]).returncode == 1
