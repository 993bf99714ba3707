"""`headroom mcp --allow-run COMMAND` on a real script: an agent asks which remedies apply. `cargo xtask interop` has a real client; here
three messages of the protocol are written by hand."""
import json
import os
import shutil
import subprocess

from harness import HERE, unchanged


def asked(place, work, *flags, **arguments):
    """The answer to one call of the tool `optimize`."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "checks", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "optimize", "arguments": arguments}},
    ]
    variables = {**os.environ, "HEADROOM_HOME": str(place.folder / "agent-home"), "OMP_NUM_THREADS": "1"}
    words = [place.headroom, "mcp", *flags, work]
    server = subprocess.Popen(words, cwd=work, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        for line in server.stdout:
            message = json.loads(line)
            if message.get("id") == 2:
                return message["result"]
        raise AssertionError("the server ended without an answer")
    finally:
        server.stdin.close()
        assert server.wait(30) == 0


def check_an_agent_foresees_remedies_of_a_real_script_only_where_that_is_allowed(place):
    work = place.folder / "agent-work"
    shutil.copytree(HERE / "scripts", work, ignore=shutil.ignore_patterns("__pycache__"))
    command = [place.python, "plain.py", "--steps", "400", "--collate-seconds", "0.05"]
    question = {"command": command, "steps": 10, "warmup_steps": 2, "time_limit": 180}
    refused = asked(place, work, **question)
    assert refused["isError"] and "--allow-run" in refused["content"][0]["text"], refused
    other = asked(place, work, "--allow-run", "python another.py", **question)
    assert other["isError"] and "may not run" in other["content"][0]["text"], other
    answer = asked(place, work, "--allow-run", " ".join(f"'{word}'" for word in map(str, command)), **question)
    assert not answer.get("isError"), answer
    record = answer["structuredContent"]["document"]
    assert record["dry_run"] and record["kept"] == [], record
    rows = {row["name"]: row for row in record["remedies"]}
    assert rows["loader-workers"]["predicted_saving_percent"] > 20, rows
    assert unchanged(work), "the agent's question left something behind"
