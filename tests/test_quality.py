"""Lint, types, layers, packaging and documentation are part of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-m", "mypy"),
        ("-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"),
    ],
    ids=["ruff check", "ruff format", "mypy", "import-linter"],
)
def test_the_code_passes(words: tuple[str, ...]) -> None:
    run(sys.executable, *words)


def test_the_guest_is_python_3_8_and_imports_only_the_standard_library() -> None:
    import ast

    for path in (ROOT / "runners/nightly_runners/guest").glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        imported = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
        }
        assert imported <= sys.stdlib_module_names, path


def test_our_folders_shadow_nothing_from_the_root() -> None:
    code = (
        "import random, bisect, docker; "
        "assert bisect.bisect_left([1, 2], 2) == 1 and docker.DockerClient, (bisect, docker)"
    )
    run(sys.executable, "-c", code)


def test_no_folder_of_ours_is_a_package() -> None:
    for name in ("bisect", "runners", "docker", "configs", "tests"):
        assert (ROOT / name).is_dir()
        assert not (ROOT / name / "__init__.py").exists()


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    for path in (*ROOT.glob("bisect/*/**/*.py"), *ROOT.glob("runners/*/**/*.py"), *ROOT.glob("tests/*.py")):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        assert name not in sys.stdlib_module_names or name == "__main__", path


@pytest.mark.slow
def test_an_installed_wheel_has_the_profiles_and_shadows_nothing(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT))
    run(*words)
    wheel = next(tmp_path.glob("nightly_bisect-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "nightly_bisect/configs/torch.toml" in names
    assert "nightly_runners/guest/guest.py" in names
    assert not [name for name in names if name.startswith(("bisect/", "docker/", "tests/"))]
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin/python")
    run(python, "-m", "pip", "install", "-q", str(wheel), "docker")
    code = "import random, bisect, docker; assert bisect.insort and docker.DockerClient"
    run(python, "-c", code)
    assert "first bad" in run(str(environment / "bin/nightly-bisect"), "demo", cwd=tmp_path).stdout


def test_the_written_docs_are_what_the_code_writes() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import write  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    assert (ROOT / "docs/commands.md").read_text() == write.commands(), "run docs/write.py"
    readme = (ROOT / "README.md").read_text()
    assert readme == write.readme(readme, write.demo()), "run docs/write.py"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    last = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert f"```sh\n{last}\n```" in (ROOT / "README.md").read_text()


def test_no_registry_host_is_named_in_the_project() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted.org"]
    tracked = run("git", "ls-files").stdout.splitlines()
    for name in tracked:
        text = (ROOT / name).read_text(errors="replace")
        assert not any(host in text for host in hosts), name
