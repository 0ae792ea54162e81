"""Use of the installed wheel, with no torch and no compiler around: a project, its commands."""

import subprocess
import sys
from pathlib import Path

FDL = Path(sys.executable).with_name("fdl")
MANIFEST = """
description: A project
commands:
  greet:
    description: Say hello
    run: echo hello
    append: -- world
"""


def fdl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FDL, *arguments], capture_output=True, text=True, check=False)


Path("fdl.yml").write_text(MANIFEST)
assert fdl("--version").stdout.startswith("flodl-cli "), fdl("--version")
assert "greet" in fdl("--help").stdout, fdl("--help")
done = fdl("greet")
assert (done.returncode, done.stdout) == (0, "hello -- world\n"), done
done = fdl("great")
assert done.returncode == 2, done
assert "greet" in done.stderr, done
assert fdl("config", "check").returncode == 0, fdl("config", "check")
for command in ("libtorch", "torch", "init", "diagnose", "probe", "schema", "completions"):
    assert fdl(command, "--help").returncode == 0, command
assert fdl("libtorch", "available").returncode == 0, fdl("libtorch", "available")
assert "_fdl" in fdl("completions", "bash").stdout
assert fdl("init", "fresh", "--native", "--no-git").returncode == 0
assert fdl("diagnose", "--json").returncode == 0, fdl("diagnose", "--json")
print("flodl-cli works alone")
