"""pytest-lsp, a real client, edits a script with `headroom lsp` behind it: called with the binary and an empty folder."""
import asyncio
import json
import os
import pathlib
import subprocess
import sys

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

BINARY, FOLDER = os.environ.get("HEADROOM", ""), pathlib.Path(os.environ.get("HEADROOM_FOLDER", ".")).resolve()
SCRIPT = """import torch


def train(model, loader, optimizer, criterion):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad(set_to_none=False); mask = torch.zeros(8).to("cuda")
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 10 == 0:
            print(total)
"""
FILE = FOLDER / "train.py"


CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"
SLOW = (CRATES / "cli/tests/data/slow_train/train.py").read_text()
TRACE = str(CRATES / "trace/tests/data/slow.pt.trace.json.gz")


async def begin(client, text):
    """Opens the script, saved with this text, in a project of its own."""
    (FOLDER / "headroom.toml").write_text("")
    # An editor watches files for the server; this client has no answer of its own to the request.
    client.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: None)
    FILE.write_text(text)
    folders = [types.WorkspaceFolder(uri=FOLDER.as_uri(), name="folder")]
    params = types.InitializeParams(capabilities=client_capabilities("visual-studio-code"), workspace_folders=folders)
    await client.initialize_session(params)
    item = types.TextDocumentItem(uri=FILE.as_uri(), language_id="python", version=1, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[BINARY, "lsp"]))
async def client(lsp_client: LanguageClient):
    await begin(lsp_client, SCRIPT)
    yield
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[BINARY, "lsp", "--pedantic", "--trace", TRACE]))
async def client_with_trace(lsp_client: LanguageClient):
    await begin(lsp_client, SLOW)
    yield
    await lsp_client.shutdown_session()


async def diagnostics(client, fits):
    """The diagnostics of the script, once they fit."""
    for _ in range(600):
        if fits(client.diagnostics.get(FILE.as_uri(), [])):
            return client.diagnostics[FILE.as_uri()]
        await asyncio.sleep(0.05)
    pytest.fail(f"diagnostics stay {client.diagnostics}")


def codes(found):
    return sorted(one.code for one in found)


def line(number):
    return types.Range(start=types.Position(line=number, character=0), end=types.Position(line=number, character=99))


@pytest.mark.asyncio
async def test_findings_are_those_of_the_command(client: LanguageClient):
    found = await diagnostics(client, bool)
    done = subprocess.run([BINARY, "lint", FILE, "--format", "json"], capture_output=True, text=True)
    of_command = json.loads(done.stdout)["findings"]
    places = [(one["code"], one["place"]["line"] - 1, one["place"]["column"] - 1) for one in of_command]
    assert sorted(places) == sorted((one.code, one.range.start.line, one.range.start.character) for one in found)
    assert {"TP101", "TP501"} <= set(codes(found))


@pytest.mark.asyncio
async def test_findings_follow_the_text(client: LanguageClient):
    await diagnostics(client, lambda found: "TP101" in codes(found))
    part = types.Range(start=types.Position(line=10, character=22), end=types.Position(line=10, character=26))
    change = types.TextDocumentContentChangePartial(range=part, text="detach")
    document = types.VersionedTextDocumentIdentifier(uri=FILE.as_uri(), version=2)
    params = types.DidChangeTextDocumentParams(text_document=document, content_changes=[change])
    client.text_document_did_change(params)
    found = await diagnostics(client, lambda found: "TP101" not in codes(found))
    assert "TP501" in codes(found)


@pytest.mark.asyncio
async def test_hover_is_the_page_of_the_rule(client: LanguageClient):
    document = types.TextDocumentIdentifier(uri=FILE.as_uri())
    position = types.Position(line=10, character=20)
    hover = await client.text_document_hover_async(types.HoverParams(text_document=document, position=position))
    page = subprocess.run([BINARY, "explain", "TP101"], capture_output=True, text=True).stdout
    assert page.strip() in hover.contents.value


@pytest.mark.asyncio
async def test_fixes_make_what_the_command_writes(client: LanguageClient):
    await diagnostics(client, bool)
    document = types.TextDocumentIdentifier(uri=FILE.as_uri())
    only = lambda kind: types.CodeActionContext(diagnostics=[], only=[kind])
    params = types.CodeActionParams(text_document=document, range=line(7), context=only(types.CodeActionKind.QuickFix))
    fixes = await client.text_document_code_action_async(params)
    assert {"TP202", "TP501"} <= {fix.title.split(":")[0] for fix in fixes}
    params = types.CodeActionParams(text_document=document, range=line(0), context=only("source.fixAll"))
    (action,) = await client.text_document_code_action_async(params)
    if action.edit is None:
        action = await client.code_action_resolve_async(action)
    lines = SCRIPT.splitlines(keepends=True)
    for edit in sorted(action.edit.document_changes[0].edits, key=lambda edit: -edit.range.start.line):
        assert edit.range.start.character == edit.range.end.character == 0
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    command = [BINARY, "lint", FILE, "--fix", "--exit-zero"]
    subprocess.run(command, capture_output=True, check=True)
    assert "".join(lines) == FILE.read_text() != SCRIPT


@pytest.mark.asyncio
async def test_hints_are_empty_without_a_trace(client: LanguageClient):
    document = types.TextDocumentIdentifier(uri=FILE.as_uri())
    params = types.InlayHintParams(text_document=document, range=line(10))
    assert not await client.text_document_inlay_hint_async(params)


@pytest.mark.asyncio
async def test_costs_stand_beside_their_lines(client_with_trace: LanguageClient):
    client = client_with_trace
    await diagnostics(client, lambda found: any("2.1% of the step (measured, TR101)" in one.message for one in found))
    document = types.TextDocumentIdentifier(uri=FILE.as_uri())
    hints = await client.text_document_inlay_hint_async(types.InlayHintParams(text_document=document, range=line(42)))
    assert "2.1% of the step, measured" in [hint.label for hint in hints]


def end_of(messages, *arguments):
    """The exit code after messages of the protocol, and what was said on standard error."""
    framed = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(text), text) for text in map(str.encode, messages))
    done = subprocess.run([BINARY, "lsp", *arguments], input=framed, capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode()


def test_exit_codes_are_those_of_the_protocol():
    begin = '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}'
    end = '{"jsonrpc": "2.0", "id": 2, "method": "shutdown"}'
    leave = '{"jsonrpc": "2.0", "method": "exit"}'
    assert end_of([begin, end, leave]) == (0, "")
    assert end_of([begin, end, leave], "--stdio") == (0, "")
    assert end_of([begin, leave])[0] == 1
    assert end_of([begin])[0] == 1
    assert end_of([leave])[0] == 1
    code, said = end_of(["not JSON"])
    assert code == 2 and "standard input does not follow the Language Server Protocol" in said
    code, said = end_of([], "--select", "TP9")
    assert code == 2 and "no rule TP9" in said


if __name__ == "__main__":
    os.environ["HEADROOM"], os.environ["HEADROOM_FOLDER"] = sys.argv[1], sys.argv[2]
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", sys.argv[2], "-c", os.devnull]
    sys.exit(pytest.main([__file__, *options]))
