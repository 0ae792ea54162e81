import pytest

from flodl_cli.config.resolve import resolve
from flodl_cli.config.tree import PathCommand, Preset, RunCommand
from flodl_cli.errors import ConfigErrors


@pytest.fixture
def tree(project):
    """Resolve the manifest of the project."""

    def of(text):
        return resolve(str(project.manifest(text))).level

    return of


@pytest.fixture
def faults(project):
    def of(text):
        with pytest.raises(ConfigErrors) as caught:
            resolve(str(project.manifest(text)))
        return [(each.line, each.key_path, each.message) for each in caught.value.errors]

    return of


def test_run_command(tree, project):
    command = tree(
        "env: {A: '1', B: '2'}\n"
        "commands:\n  t: {description: Tests, run: pytest, append: -q, env: {B: '3'}}\n"
    ).commands["t"]
    assert isinstance(command, RunCommand)
    assert (command.run, command.append, command.description) == ("pytest", "-q", "Tests")
    assert command.env == {"A": "1", "B": "3"}
    assert command.directory == str(project.root)
    assert (command.place.line, command.place.key_path) == (3, "commands.t")
    assert command.missing == ()


@pytest.mark.parametrize("spec", ["null", "{path: ./bench}", "{description: x}"])
def test_path_command_loads_the_manifest_it_leads_to(tree, project, spec):
    project.write("bench/fdl.yml", "description: Benchmarks\nentry: python -m bench\n")
    command = tree(f"commands:\n  bench: {spec}\n").commands["bench"]
    assert isinstance(command, PathCommand)
    assert command.problems == ()
    assert command.level is not None
    assert command.level.program is not None
    assert command.level.program.entry == "python -m bench"
    assert command.level.directory == str(project.root / "bench")
    assert command.description == ("x" if "description" in spec else "Benchmarks")


def test_settings_of_a_path_command_are_laid_over_the_manifest_below(tree, project):
    project.write(
        "bench/fdl.yml",
        "entry: python -m bench\ntraining: {epochs: 3, seed: 1}\nenv: {A: child, B: child}\n"
        "commands:\n  quick: {training: {epochs: 1}, args: [--fast], env: {B: quick}}\n",
    )
    level = (
        tree(
            "env: {A: root, C: root}\n"
            "commands:\n  bench:\n    entry: python -m other\n    training: {seed: 7}\n"
            "    options: {model: mlp}\n    args: [--pin]\n    env: {A: over}\n"
        )
        .commands["bench"]
        .level
    )
    program = level.program
    assert program.entry == "python -m other"
    assert program.flags == ("--epochs", "3", "--seed", "7", "--model", "mlp")
    assert program.args == ("--pin",)
    assert program.env == {"A": "over", "B": "child", "C": "root"}
    quick = level.commands["quick"].program
    assert quick.entry == "python -m other"
    assert quick.flags == ("--epochs", "1", "--seed", "7", "--model", "mlp")
    assert quick.args == ("--pin", "--fast")
    assert quick.env == {"A": "over", "B": "quick", "C": "root"}


def test_preset_merges_over_the_defaults(tree):
    level = tree(
        "entry: python train.py\ntraining: {epochs: 10, lr: 0.1}\n"
        "commands:\n  quick:\n    training: {epochs: 1, lr: null}\n  plain: null\n"
        "  other: {entry: python other.py}\n"
    )
    quick, plain, other = (level.commands[name] for name in ("quick", "plain", "other"))
    assert isinstance(quick, Preset)
    assert quick.program.flags == ("--epochs", "1")
    assert quick.program.settings == {"training.epochs": "1"}
    assert isinstance(plain, Preset)
    assert plain.program.flags == ("--epochs", "10", "--lr", "0.1")
    assert isinstance(other, Preset)
    assert other.program.entry == "python other.py"


def test_manifests_nest_without_limit(tree, project):
    project.write("a/fdl.yml", "commands: {b: null}\n")
    project.write("a/b/fdl.yml", "commands: {c: {path: deep/er}}\n")
    project.write("a/b/deep/er/fdl.yml", "commands: {run-it: {run: 'true'}}\n")
    level = tree("commands: {a: null}\n")
    for name in "abc":
        level = level.commands[name].level
    assert list(level.commands) == ["run-it"]


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ("{run: x, path: y}", "commands.t.path", "run and path exclude each other"),
        ("{run: x, args: [y]}", "commands.t.args", "args has no effect on a run command"),
        ("{run: x, training: {}}", "commands.t.training", "training has no effect on a run"),
        ("{path: y, append: z}", "commands.t.append", "append belongs to a run command"),
        ("{path: y, docker: z}", "commands.t.docker", "docker belongs to a run command"),
    ],
)
def test_key_without_use_for_its_kind_is_a_fault(faults, project, spec, path, message):
    project.write("y/fdl.yml", "entry: x\n")
    ((line, key, said),) = faults(f"commands:\n  t: {spec}\n")
    assert (line, key) == (2, path)
    assert said.startswith(message)


def test_docker_of_a_preset_is_a_fault(faults):
    ((_, key, said),) = faults("entry: x\ncommands:\n  t: {docker: dev, args: [y]}\n")
    assert key == "commands.t.docker"
    assert "this is a preset command" in said


def test_contradicting_settings_are_a_fault_of_the_preset(faults):
    ((line, key, said),) = faults(
        "entry: x\nddp: {policy: sync}\ncommands:\n  t:\n    ddp: {mode: cpu-sync}\n"
    )
    assert (line, key) == (5, "commands.t.ddp")
    assert "already says policy" in said


def only_problem(level, name):
    (problem,) = level.commands[name].problems
    return problem


def test_preset_without_an_entry_names_both_cures(tree):
    problem = only_problem(tree("commands:\n  t:\n    training: {epochs: 1}\n"), "t")
    assert problem.line == 2
    assert problem.message.startswith("training makes this a preset, but the manifest has no entry")
    assert problem.hint == "give this manifest an entry, or make ./t/fdl.yml"


@pytest.mark.parametrize(
    ("spec", "key"), [("null", "commands.t"), ("{path: gone}", "commands.t.path")]
)
def test_path_that_leads_nowhere_is_a_problem_of_that_command_only(tree, spec, key):
    level = tree(f"commands:\n  t: {spec}\n  ok: {{run: 'true'}}\n")
    problem = only_problem(level, "t")
    assert problem.key_path == key
    assert problem.message.startswith("there is no fdl.yml or fdl.yaml or fdl.json in ")
    assert isinstance(level.commands["ok"], RunCommand)


def test_circle_of_paths_is_found(tree, project):
    project.write("a/fdl.yml", "commands: {back: {path: ..}}\n")
    level = tree("commands: {a: null, self: {path: .}}\n")
    assert "leads back to" in only_problem(level, "self").message
    assert "leads back to" in only_problem(level.commands["a"].level, "back").message


def test_two_manifests_in_a_directory_below_are_a_problem_of_that_command(tree, project):
    project.write("a/fdl.yml", "")
    project.write("a/fdl.json", "{}")
    problem = only_problem(tree("commands: {a: null}\n"), "a")
    assert problem.message == "fdl.yml and fdl.json stand in one directory"


@pytest.mark.parametrize("key", ["join", "publish", "cluster"])
def test_keys_of_the_root_are_refused_below(tree, project, key):
    project.write("a/fdl.yml", f"entry: x\n{key}: {{host: x}}\n")
    problem = only_problem(tree(f"{key}: {{host: x}}\ncommands: {{a: null}}\n"), "a")
    assert problem.key_path == key
    assert "belongs to the manifest at the project's root" in problem.message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("cluster: true\n", "cluster"),
    ],
)
def test_what_this_version_lacks_stops_every_command_of_the_manifest(tree, text, key):
    level = tree(f"{text}entry: x\ncommands: {{t: {{run: y}}, p: {{args: [z]}}}}\n")
    assert level.program is not None
    for missing in (
        level.program.missing,
        level.commands["t"].missing,
        level.commands["p"].program.missing,
    ):
        assert [each.place.key_path for each in missing] == [key]


def test_ways_to_know_the_arguments_stay_with_the_entry(tree):
    level = tree("schema: {options: {a: {}}}\nschema-from: a.b:Args\nentry: x\ncompile: true\n")
    program = level.program
    assert program.schema == {"options": {"a": {}}}
    assert (program.schema_from, program.probe) == ("a.b:Args", "always")
    assert tree("entry: x\n").program.probe == "auto"


def test_impossible_schema_is_a_fault(faults):
    ((line, key, said),) = faults("entry: x\nschema: {options: {gpus: {}}}\n")
    assert (line, key) == (2, "schema")
    assert said.startswith("gpus: fdl has an option --gpus")


def test_docker_of_a_manifest_is_for_its_entry_and_of_a_command_for_its_line(tree):
    level = tree("docker: dev\nentry: e\ncommands: {t: {run: x, docker: ci}, ok: {run: x}}\n")
    assert level.program.docker == "dev"
    assert [level.commands[name].docker for name in ("t", "ok")] == ["ci", None]


@pytest.mark.parametrize("text", ["probe: auto\n", "probe: never\n", "cluster: {hosts: []}\n"])
def test_keys_that_ask_for_nothing_stop_nothing(tree, text):
    level = tree(f"{text}entry: x\n")
    assert level.program is not None
    assert level.program.missing == ()


def test_nearest_cluster_value_counts(tree, project):
    project.write("a/fdl.yml", "entry: x\ncommands: {p: {cluster: false}, q: {args: [y]}}\n")
    level = tree("cluster: false\ncommands: {a: {cluster: true}}\n").commands["a"].level
    assert level.commands["p"].program.missing == ()
    assert [each.place.key_path for each in level.commands["q"].program.missing] == [
        "commands.a.cluster"
    ]


def test_files_and_absent_files_cover_every_directory(project):
    project.write("a/fdl.yaml", "entry: x\n")
    resolution = resolve(str(project.manifest("commands: {a: null}\n")))
    root = project.root
    assert resolution.files == (f"{root}/fdl.yml", f"{root}/a/fdl.yaml")
    assert set(resolution.absent) == {
        f"{root}/fdl.yaml",
        f"{root}/fdl.json",
        f"{root}/a/fdl.yml",
        f"{root}/a/fdl.json",
    }


def test_fault_of_the_settings_is_said_where_it_stands_only(faults):
    both = (
        "entry: run\nddp: {policy: async, backend: nccl}\ncommands: {a: {training: {epochs: 1}}}\n"
    )
    assert [path for _, path, _ in faults(both)] == ["ddp"]
    own = "entry: run\nddp: {policy: async}\ncommands: {a: {ddp: {backend: nccl}}}\n"
    assert [path for _, path, _ in faults(own)] == ["commands.a.ddp"]


def test_entry_that_is_no_command_line_is_said_with_its_line(faults):
    assert faults("entry: 'run \"x'\ncommands:\n  a: {entry: ' '}\n") == [
        (1, "entry", "'run \"x' cannot be split into words: No closing quotation"),
        (3, "commands.a.entry", "names no program"),
    ]


def test_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(tree, project, monkeypatch):
    (project.root / "shut").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("shut"))
    command = tree("commands:\n  shut:\n").commands["shut"]
    assert [(each.line, each.message) for each in command.problems] == [
        (2, f"{project.root}/shut cannot be read")
    ]
