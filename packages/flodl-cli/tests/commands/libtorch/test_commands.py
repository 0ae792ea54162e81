"""The commands as a user types them, from an empty home to a removed variant."""

import hashlib
import json
import os
import subprocess
import sys
import tomllib

import pytest

CPU = "/cpu/libtorch-shared-with-deps-2.13.0%2Bcpu.zip"
CUDA = "/cu130/libtorch-shared-with-deps-2.13.0%2Bcu130.zip"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch, fake_program):
    monkeypatch.setenv("FLODL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLODL_HW_ROOT", str(tmp_path / "hardware"))
    fake_program("nvidia-smi", "echo 'No devices were found'; exit 6")


@pytest.fixture
def prefix(tmp_path, make_libtorch):
    return make_libtorch(tmp_path / "opt" / "torch")


@pytest.fixture
def linked(project, prefix):
    result = project.fdl("libtorch", "link", "--prefix", str(prefix))
    assert result.code == 0, result.err
    return "linked/cpu"


def test_every_command_has_help(project):
    page = project.fdl("libtorch", "--help")
    assert page.code == 0
    commands = page.out.partition("Commands:\n")[2].split("\n")
    names = [line.split()[0] for line in commands if line.strip()]
    assert len(names) == 16
    for name in names:
        result = project.fdl("libtorch", name, "--help")
        assert result.code == 0
        assert f"Usage: fdl libtorch {name}" in result.out


def test_no_command_shows_the_help(project):
    assert project.fdl("libtorch") == project.fdl("libtorch", "-h")


def test_empty_home(project):
    home = project.root / "home"
    assert project.fdl("libtorch", "list").out == (
        f"Context: global ({home})\nno variants: fdl libtorch download, or fdl libtorch link\n"
    )
    for command in ("info", "which", "env", "flags", "cmake", "verify", "repair"):
        result = project.fdl("libtorch", command)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("error: no libtorch is active in ")
    assert not home.exists()


def test_link_list_info_and_which(project, linked, prefix):
    home = project.root / "home"
    variant = home / "libtorch" / "linked" / "cpu"
    assert project.fdl("libtorch", "list").out == (
        f"Context: global ({home})\n  linked/cpu (active)\n"
    )
    assert project.fdl("libtorch", "which") == (0, f"{variant}\n", "")
    assert project.fdl("libtorch", "info").out == (
        f"Context: global ({home})\n"
        "Active:  linked/cpu\n"
        "Version: 2.13.0\n"
        "Vendor:  cpu\n"
        "CUDA:    none\n"
        "Archs:   cpu\n"
        "Source:  linked\n"
        f"Path:    {variant}\n"
        "ABI:     C++11 on, C++17\n"
    )


def test_list_as_json_has_documented_keys(project, linked):
    (entry,) = json.loads(project.fdl("libtorch", "list", "--json").out)
    assert list(entry)[:2] == ["variant", "active"]
    assert entry["variant"] == "linked/cpu"
    assert entry["active"] is True
    assert (entry["torch"], entry["cuda"], entry["archs"]) == ("2.13.0", None, [])
    assert entry["covers_gpus"] is None


def test_link_without_a_torch_says_where_it_looked(project, fake_program):
    fake_program("python3", "exit 0")
    result = project.fdl("libtorch", "link")
    assert result.code == 1
    assert "looked in: python3" in result.err
    assert project.fdl("libtorch", "link", "--python", "python3").code == 1
    assert project.fdl("libtorch", "link", "--python", "a", "--prefix", "b").code == 2


def test_project_has_its_own_variants(project, prefix):
    project.manifest("description: x\n")
    result = project.fdl("libtorch", "link", "--prefix", str(prefix))
    assert result.out.startswith(f"Context: project ({project.root})\nlinked linked/cpu (active)")
    assert "no variants" in project.fdl("libtorch", "list", "--global").out
    elsewhere = project.fdl("libtorch", "list", "--root", str(project.root / "other"))
    assert elsewhere.out.startswith(f"Context: given ({project.root}/other)")


def test_activate_needs_a_name_and_lists_them(project, linked):
    result = project.fdl("libtorch", "activate")
    assert result.code == 2
    assert "  linked/cpu\n" in result.err
    assert project.fdl("libtorch", "activate", "nonsense").code == 2
    assert project.fdl("libtorch", "activate", "linked/gone").code == 1


def test_case_is_chosen_by_a_variable(project, linked, monkeypatch):
    assert project.fdl("libtorch", "activate", linked, "--as", "train").code == 0
    monkeypatch.setenv("FDL_LIBTORCH_CASE", "train")
    assert project.fdl("libtorch", "which").code == 0
    monkeypatch.setenv("FDL_LIBTORCH_CASE", "missing")
    result = project.fdl("libtorch", "which")
    assert result.code == 1
    assert "FDL_LIBTORCH_CASE=missing" in result.err
    assert project.fdl("libtorch", "list").code == 0


def test_remove_says_that_it_was_active(project, linked, prefix):
    assert project.fdl("libtorch", "remove", linked, "linked/gone").code == 1
    assert project.fdl("libtorch", "remove", linked).out == (
        "removed linked/cpu; it was active: .active cleared\n"
    )
    assert (prefix / "lib" / "libtorch.so").exists()


def test_prune_lists_what_it_deletes(project):
    assert "nothing to delete" in project.fdl("libtorch", "prune").out
    part = project.root / "home" / "libtorch" / ".downloads" / "a.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(3 << 20))
    assert f"3.0 MiB  {part.parent}" in project.fdl("libtorch", "prune").out
    assert not part.exists()


def test_download_chooses_fetches_checks_and_activates(project, server, make_zip, monkeypatch):
    known = make_zip("2.12.0+cpu")
    server.files[CPU] = known
    server.headers["x-amz-meta-checksum-sha256"] = hashlib.sha256(known).hexdigest()
    # The catalog knows the digest of the real file, which this small one is not.
    result = project.fdl("libtorch", "download", "--mirror", server.url)
    assert result.code == 1
    assert "was published" in result.err
    monkeypatch.setenv("FDL_LIBTORCH_MIRROR", server.url)
    server.files[CPU.replace("2.13.0", "2.12.0")] = known
    result = project.fdl("libtorch", "download", "--version", "2.12.0")
    assert result.code == 0, result.err
    assert "cpu: no GPU was found" in result.err
    assert "100%" in result.err
    assert "precompiled/cpu (active): torch 2.12.0" in result.out
    again = project.fdl("libtorch", "download", "--version", "2.12.0", "--cpu", "--json")
    assert "is installed already" in again.err
    assert json.loads(again.out)["variant"] == "precompiled/cpu"


def test_download_that_is_there_is_activated_and_not_fetched(project, server, make_zip):
    server.files[CPU.replace("2.13.0", "2.12.0")] = make_zip("2.12.0+cpu")
    words = ("libtorch", "download", "--cpu", "--version", "2.12.0", "--mirror", server.url)
    assert project.fdl(*words, "--no-activate").code == 0
    assert project.fdl("libtorch", "which").code == 1
    seen = len(server.seen)
    result = project.fdl(*words)
    assert "precompiled/cpu (torch 2.12.0) is installed already" in result.err
    assert len(server.seen) == seen
    assert project.fdl("libtorch", "which").code == 0
    assert project.fdl(*words, "--force").code == 0
    assert len(server.seen) == seen + 1


def test_download_of_a_gpu_build_for_the_cards_here(project, fake_program):
    fake_program(
        "nvidia-smi",
        "case \"$1\" in *driver*) echo 580.65.06;; *) echo '0, GPU-1, RTX, 12.0, 16000';; esac",
    )
    result = project.fdl("libtorch", "download", "--dry-run", "--json")
    assert "newest CUDA build for RTX (sm_120)" in result.err
    plan = json.loads(result.out)
    assert plan["variant"] == "precompiled/cu132"
    assert plan["sha256"].startswith("79fce579")
    assert not (project.root / "home").exists()


def test_bucket_that_the_version_lacks(project):
    automatic = project.fdl("libtorch", "download", "--cuda", "12.8", "--dry-run")
    assert "torch 2.13.0 has no cu128: taking 2.11.0" in automatic.err
    explicit = project.fdl(
        "libtorch", "download", "--cuda", "12.8", "--version", "2.13.0", "--dry-run"
    )
    assert explicit.code == 2
    assert "its builds: cpu, cu126, cu130" in explicit.err


@pytest.mark.parametrize(
    "words",
    [
        ("--cpu", "--cuda", "13.0"),
        ("--cuda", "1.0"),
        ("--version", "0.1"),
        ("--sha256", "xyz", "--cpu"),
        ("--cpu", "--frobnicate"),
    ],
)
def test_misuse_of_download_ends_with_2(project, words):
    assert project.fdl("libtorch", "download", *words).code == 2


def test_version_of_cargo_lock_is_wanted(project):
    project.write("Cargo.lock", '[[package]]\nname = "torch-sys"\nversion = "0.24.0"\n')
    result = project.fdl("libtorch", "download", "--cpu", "--dry-run")
    assert "torch 2.11.0, from " in result.err
    assert "libtorch-shared-with-deps-2.11.0%2Bcpu.zip" in result.out


def test_available_marks_what_covers_the_cards(project, fake_program):
    assert "no GPU was found" in project.fdl("libtorch", "available").out
    fake_program("nvidia-smi", "echo '0, GPU-1, RTX, 6.1, 16000'")
    page = project.fdl("libtorch", "available").out
    assert "2.13.0  cpu cu126* cu130 cu132 rocm7.1 rocm7.2  (default)" in page
    rows = json.loads(project.fdl("libtorch", "available", "--json").out)
    assert {row["bucket"] for row in rows if row["covers_gpus"]} >= {"cu126"}


def test_env_is_evaluated_by_a_shell(project, linked):
    lines = project.fdl("libtorch", "env").out
    done = subprocess.run(
        ["sh", "-uc", lines + "echo $LIBTORCH"], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == project.fdl("libtorch", "which").out
    assert "unset LIBTORCH" in project.fdl("libtorch", "env", "--unset").out
    assert project.fdl("libtorch", "env", "--shell", "csh").code == 2
    assert project.fdl("libtorch", "env", "--format", "json", "--shell", "sh").code == 2
    assert project.fdl("libtorch", "env", "--write").code == 2


def test_tch_that_expects_another_version_is_told(project, linked):
    project.write("Cargo.lock", '[[package]]\nname = "torch-sys"\nversion = "0.24.0"\n')
    result = project.fdl("libtorch", "env")
    assert result.code == 0
    assert "tch 0.24.0 of Cargo.lock expects torch 2.11.0" in result.err
    assert "fdl libtorch download --version 2.11.0" in result.err
    assert "LIBTORCH_BYPASS" not in result.out
    bypassed = project.fdl("libtorch", "env", "--bypass-version-check")
    assert (bypassed.err, "LIBTORCH_BYPASS_VERSION_CHECK=1" in bypassed.out) == ("", True)


def test_cargo_config_is_written_and_changed_only_when_agreed(project, linked):
    words = ("libtorch", "env", "--format", "cargo")
    assert "[build]" in project.fdl(*words).out
    assert project.fdl(*words, "--write").code == 0
    assert "says so already" in project.fdl(*words, "--write").err
    config = project.root / ".cargo" / "config.toml"
    config.write_text('[env]\nLIBTORCH = "/other"\n')
    refused = project.fdl(*words, "--write")
    assert refused.code == 2
    assert '-LIBTORCH = "/other"' in refused.err
    assert project.fdl(*words, "--write", "-y").code == 0
    assert tomllib.loads(config.read_text())["env"]["LIBTORCH"].endswith("linked/cpu")


def test_github_environment_is_appended_to(project, linked, monkeypatch):
    file = project.write("github", "")
    monkeypatch.setenv("GITHUB_ENV", str(file))
    assert project.fdl("libtorch", "env", "--format", "github").code == 0
    assert file.read_text().startswith("LIBTORCH=")


def test_flags_and_cmake(project, linked):
    assert "-ltorch_cpu" in project.fdl("libtorch", "flags").out
    assert "-l" not in project.fdl("libtorch", "flags", "--cflags").out.split("include")[-1]
    written = project.fdl("libtorch", "cmake", "--out", "libtorch.cmake")
    assert (written.code, written.out) == (0, "")
    assert "find_package(Torch REQUIRED)" in written.err
    text = (project.root / "libtorch.cmake").read_text()
    assert text == project.fdl("libtorch", "cmake").out
    assert "find_package" in project.fdl("libtorch", "cmake", "--find-package").out


def test_run_gives_one_program_the_variables(project, linked):
    script = 'echo "$LIBTORCH $1"; exit 5'
    result = project.fdl("libtorch", "run", "--", "sh", "-c", script, "x", "--flag")
    assert result.code == 5
    assert result.out == f"{project.root}/home/libtorch/linked/cpu --flag\n"
    named = project.fdl("libtorch", "run", linked, "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert named.out.endswith("linked/cpu/lib\n")
    assert project.fdl("libtorch", "run").code == 2
    assert project.fdl("libtorch", "run", "a", "b", "--", "c").code == 2
    assert project.fdl("libtorch", "run", "linked/gone", "--", "c").code == 1


def test_verify_reports_and_ends_with_1_when_something_fails(project, linked, prefix):
    (prefix / "lib" / "libc10.so").unlink()
    result = project.fdl("libtorch", "verify")
    assert result.code == 1
    assert "  fail files: not in" in result.out
    assert "       fix: " in result.out
    data = json.loads(project.fdl("libtorch", "verify", "--json").out)
    assert (data["ok"], data["checks"][0]["status"]) == (False, "fail")


def test_repair_leaves_what_is_linked_alone(project, linked):
    result = project.fdl("libtorch", "repair")
    assert result.code == 2
    assert "which fdl does not change" in result.err


def test_repair_of_a_downloaded_variant(project, server, make_zip):
    server.files[CPU.replace("2.13.0", "2.12.0")] = make_zip("2.12.0+cpu")
    project.fdl("libtorch", "download", "--cpu", "--version", "2.12.0", "--mirror", server.url)
    assert "nothing to repair" in project.fdl("libtorch", "repair").out


def test_build_prints_what_it_would_do(project, fake_program):
    words = ("libtorch", "build", "--dry-run")
    assert "name the GPUs" in project.fdl(*words).err
    native = project.fdl(*words, "--archs", "12.0;6.1", "--native")
    assert "TORCH_CUDA_ARCH_LIST='6.1;12.0'" in native.out
    docker = project.fdl(*words, "--archs", "9.0", "--docker", "--version", "2.12.0")
    assert "FROM nvidia/cuda:13.0.1" in docker.out
    assert "docker build --tag flodl-libtorch:2.12.0-sm90" in docker.out
    assert project.fdl(*words, "--archs", "9.0", "--docker", "--native").code == 2
    assert project.fdl(*words, "--archs", "6.1", "--docker", "--cuda", "13.0").code == 2
    assert project.fdl(*words, "--archs", "9.0", "--docker", "--jobs", "0").code == 2


def test_build_without_docker_and_tools_says_what_is_missing(project, fake_program, monkeypatch):
    fake_program("docker", "exit 1")
    monkeypatch.setenv("PATH", str(project.root / "fakes"))
    result = project.fdl("libtorch", "build", "--archs", "9.0")
    assert result.code == 1
    assert "Docker does not answer, and this machine lacks nvcc" in result.err


def test_interrupted_download_says_how_to_resume(project, server, make_zip, monkeypatch):
    from flodl_cli.net import http

    def stop(self, *args):
        raise KeyboardInterrupt

    server.files[CPU] = make_zip()
    monkeypatch.setattr(http.Fetcher, "_write", stop)
    result = project.fdl("libtorch", "download", "--cpu", "--mirror", server.url)
    assert result.code == 130
    assert "resume with the same command" in result.err


def test_no_libtorch_is_imported_and_httpx_only_to_download(project, linked):
    code = (
        "import sys\nfrom flodl_cli.__main__ import main\nmain(['libtorch', 'list'])\n"
        "print(sorted({'torch', 'httpx', 'rich', 'tomlkit', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.splitlines()[-1] == "[]"
