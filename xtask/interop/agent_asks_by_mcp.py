"""An agent's client (the package `mcp`) asks `headroom mcp` over standard input and output: the documents of the command
line, bounded, in its own words where something is wrong, and nothing from outside of the folder.

The client itself holds every answer against the tool's output schema."""
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys

from mcp import Client, StdioServerParameters

DATA = pathlib.Path(__file__).parents[2] / "crates"
SLOW = DATA / "trace/tests/data/slow.pt.trace.json.gz"
FIXED = DATA / "trace/tests/data/fixed.pt.trace.json.gz"
SCRIPT = DATA / "cli/tests/data/slow_train/train.py"


class Wrong(Exception):
    pass


def expect(is_so, what):
    if not is_so:
        raise Wrong(what)


def command_line(binary, project, *words):
    return subprocess.run([binary, *words], cwd=project, capture_output=True, text=True)


def printed(binary, project, *words):
    return json.loads(command_line(binary, project, *words).stdout)


def text(result):
    return result.content[0].text


async def answer(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    expect(not result.is_error, f"{tool} {arguments}: {text(result)}")
    expect(json.loads(text(result)) == result.structured_content, f"{tool}: text and structured content differ")
    most = arguments.get("max_bytes", 32_000)
    expect(len(text(result).encode()) <= most, f"{tool}: {len(text(result).encode())} bytes of {most}")
    return result.structured_content


async def refusal(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    expect(result.is_error, f"{tool} {arguments} was answered: {text(result)[:200]}")
    return text(result)


async def documents(client, binary, project):
    """The same as the command line's, whole where there is room."""
    whole = printed(binary, project, "analyze", "--format", "json", "slow.pt.trace.json.gz")
    analysis = await answer(client, "analyze", traces=["slow.pt.trace.json.gz"], max_bytes=1_000_000)
    expect(analysis["document"] == whole and analysis["cut"] == [], "analyze: not the command line's document")
    usual = await answer(client, "analyze", traces=["slow.pt.trace.json.gz"])
    expect(usual["document"]["schema_version"] == whole["schema_version"], "analyze: no document")
    for cut in usual["cut"]:
        rest = await answer(client, "analyze", traces=["slow.pt.trace.json.gz"], at=cut["at"], **{"from": cut["shown"]})
        expect(rest["part"], f"analyze: nothing is left at {cut}")
    part = await answer(client, "analyze", traces=["slow.pt.trace.json.gz"], at="/findings/0/code")
    expect(part["part"] == whole["findings"][0]["code"], f"analyze: {part}")

    whole = printed(binary, project, "compare", "--json", "slow.pt.trace.json.gz", "fixed.pt.trace.json.gz")
    both = {"before": "slow.pt.trace.json.gz", "after": "fixed.pt.trace.json.gz", "max_bytes": 1_000_000}
    expect((await answer(client, "compare", **both))["document"] == whole, "compare: not the command line's document")

    whole = printed(binary, project, "lint", "--format", "json", "train.py")
    lint = await answer(client, "lint", paths=["train.py"], max_bytes=1_000_000)
    expect(lint["document"] == whole and whole["findings"], "lint: not the command line's document")
    expect(lint["exit_code"] == 1, f"lint: exit code {lint['exit_code']}")

    page = (await answer(client, "explain", code="TP101"))["document"]["page"]
    expect(page == command_line(binary, project, "explain", "TP101").stdout, "explain: not the command line's page")
    rules = (await answer(client, "explain"))["document"]["rules"]
    expect({"code": "TP101", "name": "item-per-step"} in rules, f"explain: {rules[:3]}")


async def errors(client, binary, project):
    """Errors of the tool, in the command line's words; nothing from elsewhere."""
    said = command_line(binary, project, "analyze", "train.py").stderr
    told = await refusal(client, "analyze", traces=["train.py"])
    expect(said == f"error: {told}\n", f"analyze: {told!r} is not {said!r}")
    said = command_line(binary, project, "explain", "TP999").stderr
    expect(said == f"error: {await refusal(client, 'explain', code='TP999')}\n", "explain: not the command line's words")
    outside = str(project.parent / "outside/secret.pt.trace.json.gz")
    for path in [outside, "../outside/secret.pt.trace.json.gz", "link.pt.trace.json.gz", "/etc/passwd", ".."]:
        for tool, arguments in [("analyze", {"traces": [path]}), ("lint", {"paths": [path]})]:
            told = await refusal(client, tool, **arguments)
            expect("is outside the folders that this server may read" in told, f"{tool} {path}: {told}")
    told = await refusal(client, "optimize", command=["touch", "made"])
    expect("--allow-run" in told and not (project / "made").exists(), f"optimize: {told}")


async def runs(client):
    """Those of the folder, not those of others."""
    listed = await answer(client, "runs")
    expect([run["name"] for run in listed["document"]] == ["mine"], f"runs: {listed}")
    expect("1 runs outside" in listed["notes"][-1], f"runs: {listed['notes']}")
    shown = await answer(client, "runs", show="mine")
    expect(len(shown["document"]["step_times"]) > 0, f"runs: {shown}")
    expect("outside the folders" in await refusal(client, "runs", show="theirs"), "runs: a run of others was shown")


async def at_once(client):
    """Many calls, one connection."""
    calls = [answer(client, "explain", code="TP101") for _ in range(8)]
    calls += [answer(client, "lint", paths=["train.py"]) for _ in range(3)]
    await asyncio.gather(*calls)


async def ask(binary, folder):
    project, outside = folder / "project", folder / "outside"
    for place in (project, outside):
        place.mkdir()
    shutil.copy(SLOW, project)
    shutil.copy(FIXED, project)
    shutil.copy(SCRIPT, project)
    shutil.copy(SLOW, outside / "secret.pt.trace.json.gz")
    (project / "link.pt.trace.json.gz").symlink_to(outside / "secret.pt.trace.json.gz")
    for place, name in ((project, "mine"), (outside, "theirs")):
        done = command_line(binary, place, "train", "--size", "nano", "--num-steps", "3", "--name", name, "--output-dir", "run")
        expect(done.returncode == 0, done.stderr)
    before = sorted(path.name for path in project.rglob("*"))
    server = StdioServerParameters(command=binary, args=["mcp", str(project)], env=dict(os.environ), cwd=str(folder))
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        names = [tool.name for tool in tools]
        expect(names == ["analyze", "compare", "explain", "lint", "optimize", "runs"], f"tools: {names}")
        expect(all(tool.output_schema and tool.annotations.read_only_hint for tool in tools), "a tool that may change things")
        await documents(client, binary, project)
        await errors(client, binary, project)
        await runs(client)
        await at_once(client)
    after = sorted(path.name for path in project.rglob("*"))
    expect(before == after, f"files were made: {set(after) - set(before)}")


def flat(group):
    """The errors themselves: groups lie in groups."""
    for error in group.exceptions:
        yield from flat(error) if isinstance(error, ExceptionGroup) else [error]


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    os.environ["HEADROOM_HOME"] = str(folder / "home")
    try:
        asyncio.run(asyncio.wait_for(ask(binary, folder), 120))
    except* Wrong as group:
        sys.exit("\n".join(map(str, flat(group))))


main()
