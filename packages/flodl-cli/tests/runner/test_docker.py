import pytest

from flodl_cli.host import system
from flodl_cli.runner.docker import Compose, pick_service

COMPOSE = """\
services:
  dev: {image: x, volumes: [".:/src", "cache:/c"]}
  cuda: {image: x, volumes: [{type: bind, source: ., target: /app}]}
  plain: {image: x}
"""


@pytest.fixture
def outside(project, monkeypatch, fake_program):
    monkeypatch.setattr(system, "_CONTAINER_MARKS", ())
    fake_program("docker", 'for word; do printf "<%s>" "$word"; done; echo "@$PWD"; exit 3')
    project.write("docker-compose.yml", COMPOSE)
    return project


def test_run_command_goes_into_its_service_from_the_compose_folder(outside, monkeypatch):
    outside.manifest("commands: {a: null}\n")
    outside.write("a/fdl.yml", "commands: {t: {run: \"echo '$X'\", docker: dev}}\n")
    result = outside.fdl("a", "t", "--", "b c")
    line = "echo '$X' 'b c'"
    assert result.code == 3
    assert result.out == f"<compose><run><--rm><dev><bash><-c><{line}>@{outside.root}\n"


@pytest.mark.parametrize(
    ("service", "root"), [("dev", "/src"), ("cuda", "/app"), ("plain", "/workspace")]
)
def test_entry_runs_in_its_folder_as_the_container_sees_it(outside, service, root):
    outside.manifest("commands: {train it: null}\n".replace(" it", ""))
    outside.write("train/fdl.yml", f"docker: {service}\nentry: python -m x\n")
    out = outside.fdl("train", "--name", "$a 'b'").out
    inner = f"cd {root}/train && exec python -m x --name '$a '\"'\"'b'\"'\"''"
    assert out == (
        f"<compose><run><--rm><-e><FDL_PROJECT_ROOT={root}><{service}><bash><-c><{inner}>"
        f"@{outside.root}\n"
    )


def test_what_manifest_and_flags_ask_for_reaches_the_container(outside):
    outside.manifest("commands: {t: {run: x, docker: dev, env: {A: '1'}}}\n")
    out = outside.fdl("t", "-v", "--gpus", "0").out
    assert "<-e><A=1><-e><FLODL_VERBOSITY=2>" in out
    assert "<-e><CUDA_VISIBLE_DEVICES=0>" in out


def test_inside_a_container_nothing_is_wrapped(outside, monkeypatch, tmp_path):
    monkeypatch.setattr(system, "_CONTAINER_MARKS", (str(tmp_path),))
    outside.manifest("commands: {t: {run: echo here, docker: dev}}\n")
    assert outside.fdl("t").out == "here\n"


def test_explain_shows_the_wrapped_command(outside):
    outside.manifest("commands: {t: {run: x, docker: dev}}\n")
    assert outside.explained("t") == "docker compose run --rm dev bash -c x"


def test_no_compose_file_is_an_error(outside):
    (outside.root / "docker-compose.yml").unlink()
    outside.manifest("commands: {t: {run: x, docker: dev}}\n")
    result = outside.fdl("t")
    assert result.code == 2
    assert "no compose file in" in result.err


def test_broken_compose_file_is_an_error(outside):
    outside.write("docker-compose.yml", "services: [")
    outside.manifest("commands: {t: {run: x, docker: dev}}\n")
    assert "docker-compose.yml cannot be read" in outside.fdl("t").err


@pytest.mark.parametrize(
    ("asked", "feature", "service", "has_remark"),
    [
        ("gpu", "cuda", "cuda", False),
        ("gpu", "", "cuda", False),
        ("gpu", "rocm", "cuda", True),
        ("dev", "rocm", "dev", False),
    ],
)
def test_gpu_stands_for_the_vendor_of_the_torch(asked, feature, service, has_remark):
    chosen, remark = pick_service(asked, Compose("/", {"cuda": "/w", "dev": "/w"}), feature)
    assert (chosen, remark is not None) == (service, has_remark)
    assert pick_service("gpu", Compose("/", {"rocm": "/w"}), "rocm") == ("rocm", None)


def test_missing_rocm_service_is_noted(outside, monkeypatch):
    torch = outside.root / ".venv/lib/python3.12/site-packages/torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '2.13.0'\nhip: str = '7.1.0'\n")
    outside.manifest("commands: {t: {run: x, docker: gpu}}\n")
    result = outside.fdl("t")
    assert "note: the compose file has no service rocm: using cuda" in result.err
    assert "<cuda>" in result.out


def test_active_libtorch_is_told_to_compose(outside, fake_program, monkeypatch):
    folder = outside.root / "libtorch" / "precompiled" / "cu130"
    folder.mkdir(parents=True)
    (folder / ".arch").write_text("cuda=13.0\ntorch=2.13.0\n")
    outside.write("libtorch/.active", "precompiled/cu130\n")
    fake_program("docker", 'echo "$LIBTORCH_HOST_PATH $CUDA_VERSION $CUDA_TAG $FDL_GPU_FEATURE"')
    outside.manifest("commands: {t: {run: x, docker: gpu}}\n")
    assert outside.fdl("t").out == f"{folder} 13.0 cu130 cuda\n"
