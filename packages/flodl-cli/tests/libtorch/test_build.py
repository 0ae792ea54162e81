import pytest

from flodl_cli.errors import BuildError, UsageError
from flodl_cli.libtorch import build as module
from flodl_cli.libtorch.build import (
    BuildPlan,
    build,
    check_plan,
    docker_works,
    dockerfile,
    missing_tools,
    native_commands,
    sorted_archs,
)


def planned(archs="6.1;12.0", **changes):
    return BuildPlan(
        **{
            "archs": sorted_archs(archs),
            "jobs": 4,
            "version": "2.13.0",
            "cuda": "12.8",
            "docker": True,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("text", "archs", "variant_id"),
    [
        ("12.0;6.1", ("6.1", "12.0"), "builds/sm61-sm120"),
        ("8.6, 8.6 9.0+PTX", ("8.6", "9.0+PTX"), "builds/sm86-sm90"),
        ("10.0a", ("10.0a",), "builds/sm100"),
    ],
)
def test_architectures_are_sorted_by_number_and_name_the_variant(text, archs, variant_id):
    assert sorted_archs(text) == archs
    assert planned(text).variant_id == variant_id


@pytest.mark.parametrize("text", ["", "sm_90", "9", "8.6;x"])
def test_impossible_architecture_is_misuse(text):
    with pytest.raises(UsageError, match="is no architecture"):
        sorted_archs(text)


def test_cuda_13_refuses_old_cards():
    with pytest.raises(UsageError, match=r"CUDA 13\.0 compiles for 7\.5 and newer, and 6\.1"):
        check_plan(planned(cuda="13.0"))
    check_plan(planned("7.5", cuda="13.0"))
    with pytest.raises(UsageError, match="--jobs 0"):
        check_plan(planned(jobs=0))


def test_dockerfile_builds_the_tag_with_its_settings():
    text = dockerfile(planned())
    assert "FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04" in text
    assert "TORCH_CUDA_ARCH_LIST='6.1;12.0' USE_CUDA=1" in text
    assert "--branch v2.13.0" in text
    assert "--mount=type=cache,id=pytorch-2.13.0" in text


def test_native_commands_use_what_is_there(tmp_path):
    source = tmp_path / "pytorch-v2.13.0"
    first = native_commands(planned(docker=False), source)
    assert first[0][:2] == ["git", "clone"]
    assert first[-1][-1].endswith("tools/build_libtorch.py")
    (source / ".git").mkdir(parents=True)
    python = tmp_path / "pytorch-v2.13.0-venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    again = native_commands(planned(docker=False), source)
    assert again == [first[1], *first[3:]]


def test_docker_build_becomes_a_variant(store, fake_program, make_libtorch, tmp_path):
    result = make_libtorch(tmp_path / "result", archs=(61, 120))
    calls = tmp_path / "calls"
    fake_program(
        "docker",
        f'echo "$1 $2" >> {calls}; if [ "$1" = cp ]; then cp -r {result}/. "$3"; fi',
    )
    variant = build(planned(), store, {"PATH": f"{tmp_path}/fakes:/usr/bin:/bin"})
    assert variant.id == "builds/sm61-sm120"
    metadata = variant.metadata
    assert (metadata.source, metadata.cuda, metadata.archs) == ("compiled", "12.8", "6.1 12.0")
    assert [line.split()[0] for line in calls.read_text().splitlines()] == [
        "build",
        "create",
        "cp",
        "rm",
    ]


def test_failed_docker_build_names_the_step_and_leaves_nothing(store, fake_program, tmp_path):
    fake_program("docker", '[ "$1" != build ]')
    with pytest.raises(BuildError, match="docker build .* ended with 1"):
        build(planned(), store, {"PATH": f"{tmp_path}/fakes:/usr/bin:/bin"})
    assert store.variants() == []
    assert not [*store.root.rglob(".staging*")]


def test_stopped_build_is_no_error_of_its_own(store, fake_program, tmp_path):
    fake_program("docker", '[ "$1" != build ] || exit 130')
    with pytest.raises(KeyboardInterrupt):
        build(planned(), store, {"PATH": f"{tmp_path}/fakes:/usr/bin:/bin"})


def test_native_build_copies_the_result_and_notes_the_toolkit(
    store, fake_program, make_libtorch, tmp_path
):
    for name in ("cmake", "g++"):
        fake_program(name, "exit 0")
    fake_program("nvcc", 'echo "Cuda compilation tools, release 12.9, V12.9.1"')
    source = module.source_folder(planned(), store)
    fake_program("git", f'case "$1" in clone) mkdir -p {source}/.git;; esac')
    make_libtorch(source / "torch", archs=(61, 120))
    (source / ".git").mkdir()
    venv = source.parent / f"{source.name}-venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(
        fake_program("venv-python", f'echo "$TORCH_CUDA_ARCH_LIST $1" >> {tmp_path}/calls')
    )
    env = {"PATH": f"{tmp_path}/fakes:/usr/bin:/bin"}
    variant = build(planned(docker=False), store, env)
    assert variant.metadata.cuda == "12.9"
    assert (variant.lib / "libtorch.so").is_file()
    assert "6.1;12.0 -m" in (tmp_path / "calls").read_text()


def test_missing_tools_are_named_with_lines_to_install_them(store, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        missing_tools()[1] == "cmake (apt-get install cmake, dnf install cmake, brew install cmake)"
    )
    with pytest.raises(BuildError, match="not on PATH: nvcc"):
        build(planned(docker=False), store, {})


def test_docker_that_does_not_answer_does_not_work(fake_program):
    fake_program("docker", "exit 1")
    assert not docker_works()
    fake_program("docker", "exit 0")
    assert docker_works()
