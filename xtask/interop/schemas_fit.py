"""docs/schemas holds the schemas of what commands print as JSON: they are those of the Rust types, and real documents are valid
under them, by the package `jsonschema`.

`python3 xtask/interop/schemas_fit.py --write` makes the files anew."""
import copy
import json
import os
import pathlib
import subprocess
import sys

from rust_types import Schema, Types, nullable

ROOT = pathlib.Path(__file__).parents[2]
SCHEMAS = ROOT / "docs/schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
STRING, INTEGER = {"type": "string"}, {"type": "integer", "minimum": 0}


def whole(root, schema, title):
    return {"$schema": DIALECT, "title": title} | root | ({"$defs": schema.defs} if schema.defs else {})


def record(properties, optional=()):
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def listed(items):
    return {"type": "array", "items": items}


def analyze(types):
    schema = Schema(types)
    root = schema.of("Analysis")
    # Figures that a trace spoils are written as null.
    measures = schema.defs["Measures"]["properties"]
    for figure in ("breakdown", "critical_path"):
        measures[figure] = nullable(measures[figure])
    # Traces of several runs are analyzed each on its own.
    several = record({"schema_version": INTEGER, "apart": STRING, "runs": listed(root)})
    return whole({"anyOf": [root, several]}, schema, "headroom analyze --format json")


def compare(types):
    schema = Schema(types)
    return whole(schema.of("compare::Comparison"), schema, "headroom compare --json")


def lint(types):
    schema = Schema(types)
    found = schema.structure(types.find("rule::SourceFinding", None))["properties"]
    keys = ["code", "name", "severity", "message", "place", "fix", "evidence", "cause", "confidence", "effort", "pedantic"]
    keys += ["function", "calls_per_step", "operators"]
    found["evidence"] = {"anyOf": [{"const": "unmeasured"}, schema.of("Measured")]}
    problem = record({"file": STRING, "line": INTEGER, "message": STRING, "cell": INTEGER}, optional=["cell"])
    root = record({
        "files": INTEGER,
        "findings": listed(record({key: found[key] for key in keys})),
        "problems": listed(problem),
        "suppressed": INTEGER,
        "held_back": INTEGER,
    })
    return whole(root, schema, "headroom lint --format json")


def runs(types):
    """A list, one run with its step times, or several with the change of the step between two."""
    schema = Schema(types)
    run = schema.of("RunRow")
    shown = copy.deepcopy(schema.defs["RunRow"])
    shown["properties"]["step_times"] = listed({"type": "number"})
    shown["required"].append("step_times")
    change = nullable(schema.of("change::Change", types.find("RunRow", None)))
    root = {"anyOf": [listed(run), shown, record({"runs": listed(run), "step_change": change})]}
    return whole(root, schema, "headroom runs list, show and compare --json")


def explain(_):
    page = record({"code": STRING, "name": STRING, "page": STRING})
    root = {"anyOf": [page, record({"rules": listed(record({"code": STRING, "name": STRING}))})]}
    return {"$schema": DIALECT, "title": "headroom explain --format json"} | root


def workshop(types):
    """A record sheet, or the marks of a folder."""
    schema = Schema(types)
    root = {"anyOf": [schema.of("RecordSheet"), schema.of("Marks")]}
    return whole(root, schema, "headroom workshop sheet and check --json")


def optimize(types):
    """Of a script, of headroom's own model, or of its precisions alone."""
    schema = Schema(types)
    root = {"anyOf": [schema.of("ScriptRecord"), schema.of("ValidationRecord"), schema.of("PrecisionsRecord")]}
    return whole(root, schema, "headroom optimize --json, and validation.json")


MADE = {
    "analyze": analyze,
    "compare": compare,
    "explain": explain,
    "lint": lint,
    "optimize": optimize,
    "runs": runs,
    "workshop": workshop,
}


def texts():
    types = Types(ROOT)
    return {name: json.dumps(make(types), indent=1, ensure_ascii=False) + "\n" for name, make in MADE.items()}


def stale():
    made = texts()
    files = {file.stem for file in SCHEMAS.glob("*.json")}
    if files != set(made):
        yield f"docs/schemas holds {sorted(files)}, not {sorted(made)}"
    for name in files & set(made):
        if (SCHEMAS / f"{name}.json").read_text() != made[name]:
            yield f"docs/schemas/{name}.json is not what the types say: python3 xtask/interop/schemas_fit.py --write"


def documents(binary, folder):
    """Real ones, by the schema that they belong to."""

    def printed(*words):
        done = subprocess.run([binary, *map(str, words)], cwd=folder, capture_output=True, text=True)
        if not done.stdout:
            sys.exit(f"headroom {' '.join(map(str, words))} printed nothing: {done.stderr}")
        return json.loads(done.stdout)

    traces = sorted((ROOT / "crates/trace/tests/data").glob("*.pt.trace.json.gz"))
    traces += sorted((ROOT / "crates/diagnosis/tests/data/runs").glob("*/trace*.json.gz"))
    script = ROOT / "crates/cli/tests/data/slow_train/train.py"
    for trace in traces:
        yield "analyze", trace.name, printed("analyze", "--format", "json", trace)
    slow, fixed = (ROOT / f"crates/trace/tests/data/{name}.pt.trace.json.gz" for name in ("slow", "fixed"))
    yield "analyze", "with its source", printed("analyze", "--format", "json", "--source", script, slow)
    yield "analyze", "two runs", printed("analyze", "--format", "json", slow, fixed)
    yield "compare", "slow and fixed", printed("compare", "--json", "--fail-if", "step>5%", slow, fixed)
    yield "compare", "the same", printed("compare", "--json", slow, slow)
    (folder / "broken.py").write_text("def broken(:\n")
    yield "lint", "scripts", printed("lint", "--format", "json", "--pedantic", script, folder / "broken.py")
    yield "lint", "with a trace", printed("lint", "--format", "json", "--trace", slow, script)
    yield "lint", "an example of every page", printed("lint", "--format", "json", "--pedantic", examples(folder))
    yield "explain", "TP101", printed("explain", "--format", "json", "TP101")
    yield "explain", "the list", printed("explain", "--format", "json")
    for name in ("one", "two"):
        size = ["--size", "nano", "--num-steps", 4, "--name", name, "--output-dir", folder / name]
        subprocess.run([binary, *map(str, ["train", *size])], cwd=folder, capture_output=True, check=True)
    small = ["--size", "nano", "--batch-size", 2, "--seq-len", 16, "--rounds", 4, "--time-limit", 1, "--curve-steps", 2]
    yield "optimize", "own model", printed("optimize", *small, "--json", "--output-dir", folder / "own")
    yield "optimize", "precisions", printed("optimize", *small, "--passes", "v2", "--json", "--output-dir", folder / "own")
    yield "runs", "the list", printed("runs", "list", "--json")
    yield "runs", "one", printed("runs", "show", "--json", "one")
    yield "runs", "two", printed("runs", "compare", "--json", "one", "two")
    yield "workshop", "a sheet", printed("workshop", "sheet", "--json", "1")
    yield "workshop", "a filled sheet", printed("workshop", "sheet", "--json", "1", "--from", ".")
    yield "workshop", "marks", printed("workshop", "check", "--json", "one")


def examples(folder):
    """The Python blocks of all pages of source rules, a file each."""
    place = folder / "examples"
    place.mkdir()
    for page in sorted((ROOT / "crates/lint/src/rules").glob("*.md")):
        for number, block in enumerate(page.read_text().split("```python\n")[1:]):
            (place / f"{page.stem}_{number}.py").write_text(block.split("```")[0])
    return place


def invalid(binary, folder):
    from jsonschema import Draft202012Validator

    validators = {}
    for file in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(file.read_text())
        Draft202012Validator.check_schema(schema)
        validators[file.stem] = Draft202012Validator(schema)
    checked = 0
    for name, which, document in documents(binary, folder):
        checked += 1
        for error in list(validators[name].iter_errors(document))[:5]:
            yield f"{name}, {which}: {error.json_path}: {error.message[:300]}"
    if checked < 20:
        yield f"only {checked} documents were looked at"
    if validators["explain"].is_valid({"code": "TP101"}) or validators["analyze"].is_valid({}):
        yield "a schema lets everything through"


def main():
    if sys.argv[1:] == ["--write"]:
        SCHEMAS.mkdir(exist_ok=True)
        for name, text in texts().items():
            (SCHEMAS / f"{name}.json").write_text(text)
        return
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    os.environ["HEADROOM_HOME"] = str(folder / "home")
    problems = [*stale(), *invalid(binary, folder)]
    if problems:
        sys.exit("\n".join(problems))


main()
