"""Runs the steps of a composite action as a runner does: inputs in variables, scripts by bash, files for paths and outputs.

    python run_action.py ACTION FOLDER WHEEL

There is no runner on a developer's machine; what is not emulated is `uses:` (the upload), which is only checked to be asked for.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml


def value(text, inputs):
    """`${{ inputs.name }}` replaced; other expressions are not the action's to use inside of `env`."""
    found = re.sub(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}", lambda match: inputs[match[1]], text)
    assert "${{" not in found, found
    return found


def holds(condition, inputs, failed):
    """The few conditions that the action has: comparisons of inputs, joined by `&&`, and `always()`."""
    parts = [part.strip() for part in (condition or "").split("&&") if part.strip()]
    if failed and "always()" not in parts:
        return False
    for part in parts:
        if part == "always()":
            continue
        name, operator, wanted = re.fullmatch(r"inputs\.([\w-]+) (==|!=) '(.*)'", part).groups()
        if (inputs[name] == wanted) != (operator == "=="):
            return False
    return True


def run(action, folder, **given):
    """The action's exit code, all that its scripts printed, its outputs and the actions that it used."""
    inputs = {name: given.get(name.replace("-", "_"), about["default"]) for name, about in action["inputs"].items()}
    temporary = folder / "runner"
    temporary.mkdir(exist_ok=True)
    path, outputs = temporary / "path", temporary / "outputs"
    path.write_text("")
    outputs.write_text("")
    said, used, failed = "", [], 0
    for step in action["runs"]["steps"]:
        if not holds(step.get("if"), inputs, failed):
            continue
        if "uses" in step:
            used.append((step["uses"], {key: value(text, inputs) for key, text in step["with"].items()}))
            continue
        assert step["shell"] == "bash", step["name"]
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([*reversed(path.read_text().split()), os.environ["PATH"]]),
            "RUNNER_TEMP": str(temporary),
            "GITHUB_PATH": str(path),
            "GITHUB_OUTPUT": str(outputs),
            "HEADROOM_HOME": str(folder / "home"),
            **{name: value(text, inputs) for name, text in step.get("env", {}).items()},
        }
        script = temporary / "step.sh"
        script.write_text(step["run"])
        # The command line that GitHub documents for `shell: bash`.
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        said += done.stdout + done.stderr
        failed = failed or done.returncode
    return failed, said, dict(line.split("=", 1) for line in outputs.read_text().splitlines()), used


def main():
    action = yaml.safe_load(Path(sys.argv[1]).read_text())
    folder, wheel = Path(sys.argv[2]), sys.argv[3]
    code, said, outputs, used = run(action, folder, package=wheel, paths="slow.py plain.py", upload_sarif="true")
    assert code == 1, (code, said)
    assert "::error file=slow.py,line=9," in said, said
    assert int(outputs["findings"]) >= 1, outputs
    sarif = (folder / "headroom.sarif").read_text()
    assert '"TP107"' in sarif and '"version": "2.1.0"' in sarif
    assert [name.split("@")[0] for name, _ in used] == ["github/codeql-action/upload-sarif"], used
    assert used[0][1]["sarif_file"] == "headroom.sarif", used
    print("hooks: the action annotates, fails and hands over SARIF")

    code, said, outputs, used = run(action, folder, package=wheel, paths="plain.py")
    assert (code, outputs, used) == (0, {"findings": "0"}, []), (code, said)
    code, said, outputs, used = run(action, folder, package=wheel, paths="slow.py", fail_on="never")
    assert code == 0 and "::error" in said, (code, said)
    print("hooks: the action passes where nothing is found, or nothing may fail")

    code, said, outputs, used = run(action, folder, package=wheel, paths="", baseline="kept")
    assert code == 2 and "kept" in said and outputs == {}, (code, said)
    headroom = folder / "runner/headroom-venv/bin/headroom"
    for name in ("kept", "next"):
        words = [headroom, "train", "--size", "nano", "--num-steps", "12", "--name", name, "--output-dir", name]
        environment = {**os.environ, "HEADROOM_HOME": str(folder / "home")}
        subprocess.run(words, cwd=folder, check=True, capture_output=True, env=environment)
    more = "--threshold 10000"
    code, said, outputs, used = run(action, folder, package=wheel, paths="", baseline="kept", regress_arguments=more)
    assert code == 0 and "kept" in said, (code, said)
    print("hooks: the action holds the newest run against a kept one")


if __name__ == "__main__":
    main()
