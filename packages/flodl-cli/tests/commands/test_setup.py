import sys

import pytest

from flodl_cli.terminal import Terminal

CPU = "/cpu/libtorch-shared-with-deps-2.12.0%2Bcpu.zip"
MIXED = """case "$1" in *driver*) echo 580.65.06;;
*) echo '0, G1, Old, 6.1, 8000'; echo '1, G2, New, 12.0, 16000';; esac"""


@pytest.fixture(autouse=True)
def _machine(project, monkeypatch, fake_program, server):
    monkeypatch.setenv("FLODL_HOME", str(project.root / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(project.root / "hardware"))
    monkeypatch.setenv("FDL_LIBTORCH_MIRROR", server.url)
    fake_program("nvidia-smi", "echo 'No devices were found'; exit 6")
    fake_program("docker", "exit 1")
    project.write("uv.lock", '[[package]]\nname = "torch"\nversion = "2.12.0"\n')


@pytest.fixture
def answers(monkeypatch):
    given = []
    monkeypatch.setattr(Terminal, "is_interactive", True)
    monkeypatch.setattr(Terminal, "ask", lambda self, question: given.pop(0))
    return given


def active(project, cuda):
    folder = project.root / "home" / "libtorch" / "precompiled" / "x"
    folder.mkdir(parents=True)
    (folder / ".arch").write_text(f"torch=2.12.0\ncuda={cuda}\n")
    project.write("home/libtorch/.active", "precompiled/x\n")


def test_outside_a_project_libtorch_is_fetched_for_the_user(project, server, make_zip):
    server.files[CPU] = make_zip("2.12.0+cpu")
    result = project.fdl("setup")
    assert result.code == 0, result.err
    assert result.out.startswith("1. ")
    assert "   no GPU\n2. libtorch\n" in result.out
    assert (project.root / "home/libtorch/.active").read_text() == "precompiled/cpu\n"
    again = project.fdl("setup", "-y")
    assert (again.code, "is installed already" in again.err) == (0, True)


def test_gpu_build_that_is_active_stays(project, server, make_zip, answers):
    active(project, "13.0")
    assert "precompiled/x (torch 2.12.0) stays" in project.fdl("setup", "-y").out
    answers.append("n")
    assert "stays" in project.fdl("setup").out
    server.files[CPU] = make_zip("2.12.0+cpu")
    answers.append("y")
    assert "precompiled/cpu (active)" in project.fdl("setup").out


def test_force_replaces_it(project, server, make_zip):
    active(project, "13.0")
    server.files[CPU] = make_zip("2.12.0+cpu")
    assert "precompiled/cpu (active)" in project.fdl("setup", "--force").out


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("", 0, "skipped"),
        ("older", 1, "/cu126/libtorch"),
        ("newest", 1, "/cu132/libtorch"),
        ("build", 1, "Docker does not answer, and this machine lacks"),
        ("other", 2, "'other' is none of"),
    ],
)
def test_cards_that_no_build_covers_together_are_a_question(
    project, fake_program, monkeypatch, answers, answer, code, said
):
    fake_program("nvidia-smi", MIXED)
    monkeypatch.setattr("flodl_cli.libtorch.build.missing_tools", lambda: ["nvcc"])
    answers.append(answer)
    result = project.fdl("setup")
    assert result.code == code
    assert "no published build covers all GPUs here (6.1;12.0)" in result.out
    assert said in result.out + result.err


def test_machine_that_can_install_nothing_is_an_error(project, monkeypatch, fake_program):
    (project.root / "fakes" / "docker").unlink()
    monkeypatch.setenv("PATH", str(project.root / "fakes"))
    result = project.fdl("setup")
    assert result.code == 1
    assert "neither uv, pip nor Docker" in result.err


@pytest.fixture
def flodl_project(project, fake_program, make_libtorch):
    fake_program("uv", f'echo "uv $@" >> {project.root}/calls; echo "uv 0.9.1"')
    project.write("pyproject.toml", '[project]\nname = "p"\ndependencies = ["flodl", "torch"]\n')
    torch = make_libtorch(project.root / "site" / "torch", "2.12.0+cpu")
    (torch / "build-version").unlink()
    (torch / "version.py").write_text("__version__ = '2.12.0+cpu'\n")
    (torch / "__init__.py").write_text("")
    find = f"import sys; sys.path.insert(0, {str(project.root / 'site')!r}); exec(sys.argv[1])"
    fake_program("python3", f'exec "{sys.executable}" -c "{find}" "$3"')
    return project


def test_project_gets_the_wheels_and_their_libtorch(flodl_project):
    result = flodl_project.fdl("setup")
    assert result.code == 0, result.err
    assert '+name = "pytorch-cpu"' in result.out
    assert "uv sync" in (flodl_project.root / "calls").read_text()
    assert "linked wheel/cpu (active)" in result.out
    assert flodl_project.fdl("setup").code == 0


def test_failed_sync_is_an_error(flodl_project, fake_program):
    fake_program("uv", 'case "$1" in sync) exit 3;; esac; echo "uv 0.9.1"')
    result = flodl_project.fdl("setup")
    assert result.code == 1
    assert "uv sync ended with 3" in result.err


def test_images_of_the_vendor_are_built(flodl_project, fake_program):
    flodl_project.write("compose.yaml", "services: {dev: {}, cuda: {}, rocm: {}}\n")
    assert "Docker does not answer" in flodl_project.fdl("setup").err
    fake_program("docker", f'echo "docker $@" >> {flodl_project.root}/calls')
    assert "3. images: dev\n" in flodl_project.fdl("setup").out
    assert "docker compose build dev\n" in (flodl_project.root / "calls").read_text()
    fake_program("docker", 'case "$2" in build) exit 5;; esac')
    result = flodl_project.fdl("setup")
    assert result.code == 1
    assert "docker compose build ended with 5" in result.err
