"""The documents are correct: programs run and print the output shown, links and paths exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def blocks(document, language):
    text = (ROOT / document).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_program_of_the_readme():
    (code,) = blocks("README.md", "python")
    *losses, at_0, at_1 = (float(n) for n in re.findall(r"-?\d+\.\d*", run("-c", code)))
    assert losses[-1] < 0.01 * losses[0]
    assert abs(at_0 - 1) < 0.2
    assert abs(at_1 - 4) < 0.2


DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "bench/*.md", "tests/*.md")
    for path in ROOT.glob(pattern)
)
FILES = [
    file.as_posix()
    for directory in ("bench", "docs", "examples", "scripts", "src", "tests")
    for file in (ROOT / directory).rglob("*.*")
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    files = [link.partition("#")[0] for link in links if "://" not in link]
    assert [file for file in files if file and not (path.parent / file).exists()] == []


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d != "CHANGELOG.md"])
def test_paths_of_source_files_exist(document):
    """A path may leave out the directories that it begins with: `ops/base/define.py`."""
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`([\w.]+/[\w./]+\.(?:py|md|json|txt))\b", text))
    assert [name for name in named if not any(f.endswith(f"/{name}") for f in FILES)] == []


def test_the_demo_reads_digits():
    output = run("examples/digits.py", "--epochs", "12")
    accuracy = float(re.search(r"Test accuracy ([\d.]+)%", output)[1])
    assert accuracy >= 96
    assert "What to try next" in output


@pytest.mark.parametrize(
    "document",
    [
        pytest.param("docs/compiler.md", marks=pytest.mark.needs_llvm),
        pytest.param("docs/control_flow.md", marks=pytest.mark.needs_llvm),
        "CONTRIBUTING.md",
        "docs/cluster.md",
        "docs/devices.md",
        "docs/estimators.md",
        "docs/porting.md",
        "docs/ragged.md",
        "docs/training_sessions.md",
    ],
)
def test_the_examples_print_what_is_shown(document):
    """The blocks are one program. Below each of those that print is what they print."""
    codes, shown = blocks(document, "python"), blocks(document, "text")
    mark = "=" * 20
    printed = run("-c", f"print('{mark}')\n".join(codes)).split(mark + "\n")
    assert [output for output in printed if output] == shown


def without_fractions(lines):
    """The lines with a mark for each number of many digits. The last ones depend on the machine,
    and so does the width of a column of them.
    """
    marked = [re.sub(r" *\d+\.\d{4,}", " #", line).rstrip() for line in lines]
    return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in marked]


def test_the_tools_for_debugging(tmp_path):
    """The first block is a program; commands look at it. The others are one program."""
    program, *codes = blocks("docs/debugging.md", "python")
    (tmp_path / "train.py").write_text(program)
    main = "import sys; sys.argv[0] = 'headrace'; from headrace._src.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    for block in blocks("docs/debugging.md", "console"):
        command, *shown = block.splitlines()
        words = shlex.split(command.removeprefix("$ headrace "))
        ran = subprocess.run([sys.executable, "-c", main, *words], **options)
        assert without_fractions(ran.stdout.splitlines()) == without_fractions(shown), ran.stderr
    mark = "=" * 20
    code = "import numpy as np\n\nimport headrace as tf\n\n" + f"print('{mark}')\n".join(codes)
    (tmp_path / "example.py").write_text(code)
    ran = subprocess.run([sys.executable, "example.py"], check=True, **options)
    assert ran.stdout.split(mark + "\n") == blocks("docs/debugging.md", "text")


def test_placing_a_step(tmp_path):
    """The page has a program, a cluster's file, a command and its output, and the drawing."""
    (program,), (cluster,) = (blocks("docs/placement.md", kind) for kind in ("python", "toml"))
    (tmp_path / "towers.py").write_text(program)
    (tmp_path / "cluster.toml").write_text(cluster)
    ((command, *shown),) = (b.splitlines() for b in blocks("docs/placement.md", "console"))
    words = shlex.split(command.removeprefix("$ headrace "))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    ran = subprocess.run([sys.executable, "-m", "headrace", *words], **options)
    assert [line.rstrip() for line in ran.stdout.splitlines()] == shown, ran.stderr
    assert (tmp_path / "out.svg").read_text() == (ROOT / "docs/placement.svg").read_text()


def without_measures(lines):
    """The lines with a mark for what depends on the machine: times, and sizes of machine code."""
    times = [re.sub(r" +[\d.]+ (?:ns|us|ms|s) ", " # ", line).rstrip() for line in lines]
    return [re.sub(r"[\d,]+ B code", "# B code", line) for line in times]


@pytest.mark.needs_llvm
def test_explaining_a_step(tmp_path):
    """Commands print the lines that are shown, in this order; "…" stands for some others."""
    (program,) = blocks("docs/explain.md", "python")
    (tmp_path / "step.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for block in blocks("docs/explain.md", "console"):
        command, *shown = block.splitlines()
        words = shlex.split(command.removeprefix("$ headrace "))
        ran = subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        printed = iter(without_measures(ran.stdout.splitlines()))
        gap = False
        for line in without_measures(shown):
            if line == "…":
                gap = True
                continue
            found = next((p for p in printed if p == line or not gap), None)
            assert found == line, ran.stdout + ran.stderr
            gap = False
        assert gap or next(printed, None) is None, ran.stdout
    (step,) = re.findall(r"\n\n((?:    .*\n|\n)*    .*session.run\(\[loss.*\n)", architecture())
    lines = [line.strip() for line in step.splitlines() if line.strip()]
    assert set(lines) <= {line.strip() for line in program.splitlines()}


def architecture():
    return (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.needs_llvm
def test_the_forms_of_the_architecture(tmp_path):
    """Its lines are what `headrace explain` prints of its program, and the passes of the loop."""
    (program,) = blocks("docs/explain.md", "python")
    (tmp_path / "step.py").write_text(program)
    explained = run("-m", "headrace", "explain", "--full", str(tmp_path / "step.py"))
    build, _, loop, *_ = blocks("docs/control_flow.md", "python")
    looping = build + loop + "\nfor form in forms.values():\n    print(form)\n"
    printed = {line.strip() for line in (explained + run("-c", looping)).splitlines()}
    texts = blocks("ARCHITECTURE.md", "text") + blocks("docs/internals.md", "text")
    shown = {line for text in texts for line in text.splitlines()}
    assert len(shown) > 20
    assert {line.strip() for line in shown if line.strip() != "…"} <= printed
