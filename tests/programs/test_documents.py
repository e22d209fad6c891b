"""What the documents show is true: README's program runs, the demo learns, forms print as shown."""

import re
import subprocess
import sys
from pathlib import Path

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
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d*", run("-c", code))]
    assert abs(numbers[0] - 3) < 0.2
    assert abs(numbers[1] - 1) < 0.2


def test_the_demo_reads_digits():
    output = run("examples/digits.py", "--epochs", "12")
    accuracy = float(re.search(r"Test accuracy ([\d.]+)%", output)[1])
    assert accuracy >= 96
    assert "What to try next" in output


def test_the_examples_of_the_compiler():
    codes, shown = blocks("docs/compiler.md", "python"), blocks("docs/compiler.md", "text")
    mark = "=" * 20
    printed = run("-c", f"print('{mark}')\n".join(codes)).split(mark + "\n")
    assert printed == shown


def test_the_forms_of_the_architecture():
    first, groups, calls, *_ = blocks("docs/compiler.md", "python")
    every_form = "\nfor form in forms.values():\n    print(form)\n"
    printed = set(run("-c", first + groups + calls + every_form).splitlines())
    shown = {line for text in blocks("ARCHITECTURE.md", "text") for line in text.splitlines()}
    assert len(shown) > 20
    assert shown - {"…"} <= printed
