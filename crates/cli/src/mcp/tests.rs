//! Tests the protocol over an in-memory transport: tools, answers, errors, progress, cancellation. The commands behind
//! them are a script that reports its arguments.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::task::JoinHandle;

use super::*;

/// Prints its arguments as a document. File names decide what happens.
const PROGRAM: &str = r#"#!/bin/sh
echo called >> calls
case "$*" in
  *slow.json*)
    trap 'echo ended > ended; exit 143' TERM
    echo "[ 0.1 s] reading slow.json" >&2
    sleep 60 & wait $! ;;
  *bad.json*)
    echo "a note first" >&2
    printf 'error: bad.json is not a trace\n  help: name a trace\n' >&2
    exit 2 ;;
  *killed.json*) kill -9 $$ ;;
  *limit*) echo 'beyond step>5%: +7.1%' >&2; code=1 ;;
esac
printf '{"words": ['
for word in "$@"; do printf '"%s",' "$word"; done
printf '"end"]}'
exit ${code:-0}
"#;

fn one_script() -> Allowed {
    Allowed::new(&["python train.py --apply".to_string()]).unwrap()
}

struct Client {
    _place: TempDir,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    server: Server,
    talking: JoinHandle<()>,
}

impl Client {
    async fn new(allowed: Allowed) -> Client {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = place.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        for name in ["a.json", "b.json", "slow.json", "bad.json", "killed.json", "--fix"] {
            std::fs::write(folder.join(name), "{}").unwrap();
        }
        std::fs::File::create(folder.join("huge.json")).unwrap().set_len(9 << 30).unwrap();
        let server = Server::new(Folders::new(&[folder]).unwrap(), allowed, program);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let serving = server.clone();
        let talking = tokio::spawn(async move {
            let running = serving.serve(split(theirs)).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (reader, writer) = split(ours);
        let mut client = Client { _place: place, lines: BufReader::new(reader).lines(), writer, server, talking };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" }
        });
        let welcome = client.ask(0, "initialize", hello).await;
        assert_eq!(welcome["result"]["serverInfo"]["name"], "headroom");
        client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next_line()).await;
        serde_json::from_str(&line.expect("an answer in time").unwrap().expect("the server is there")).unwrap()
    }

    async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(7, "tools/call", json!({ "name": tool, "arguments": arguments })).await["result"].clone()
    }

    /// The arguments of the command that a call started, after those that name the folder.
    async fn words(&mut self, tool: &str, arguments: Value) -> Vec<String> {
        let result = self.call(tool, arguments).await;
        let words = &result["structuredContent"]["document"]["words"];
        let words: Vec<String> = serde_json::from_value(words.clone()).unwrap_or_else(|_| panic!("{result}"));
        assert_eq!(words[..2], ["--within".to_string(), self.folder().display().to_string()]);
        words[2..words.len() - 1].to_vec()
    }

    fn folder(&self) -> &Path {
        self.server.folders().first()
    }

    async fn appears(&self, name: &str) {
        let started = Instant::now();
        while !self.folder().join(name).exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "{name} did not appear");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn is_error(result: &Value) -> bool {
    result["isError"] == true
}

#[tokio::test]
async fn tools_are_listed_with_their_schemas_and_change_nothing() {
    for (allowed, optimize_reads_only) in [(Allowed::default(), true), (one_script(), false)] {
        let mut client = Client::new(allowed).await;
        let listed = client.ask(1, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["analyze", "compare", "explain", "lint", "optimize", "runs"]);
        for tool in tools {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
            for key in ["at", "from", "max_bytes"] {
                assert!(tool["inputSchema"]["properties"][key]["description"].is_string(), "{key} of {tool}");
            }
            let reads_only = tool["name"] != "optimize" || optimize_reads_only;
            assert_eq!(tool["annotations"]["readOnlyHint"], reads_only, "{tool}");
        }
    }
}

#[tokio::test]
async fn a_call_is_a_command_and_no_argument_becomes_a_flag() {
    let mut client = Client::new(Allowed::default()).await;
    let words = client.words("lint", json!({ "paths": ["--fix", "./a.json"], "select": ["--fix"] })).await;
    assert_eq!(words, ["lint", "--format=json", "--select=--fix", "--", "--fix", "a.json"]);
    let words = client.words("lint", json!({})).await;
    assert_eq!(words, ["lint", "--format=json", "--", "."]);
    let analyze = json!({ "traces": ["a.json"], "rank": 1, "source": ["."], "threshold": ["TR104=5%"] });
    let words = client.words("analyze", analyze).await;
    assert_eq!(words, ["analyze", "--format=json", "--rank=1", "--threshold=TR104=5%", "--source=.", "--", "a.json"]);
    let words = client.words("explain", json!({ "code": "--help" })).await;
    assert_eq!(words, ["explain", "--format=json", "--", "--help"]);
}

#[tokio::test]
async fn an_answer_is_structured_and_the_same_as_text() {
    let mut client = Client::new(Allowed::default()).await;
    let result = client.call("compare", json!({ "before": "a.json", "after": "b.json", "fail_if": ["limit"] })).await;
    let structured = &result["structuredContent"];
    assert_eq!(structured["exit_code"], 1);
    assert_eq!(structured["notes"], json!(["beyond step>5%: +7.1%"]));
    assert_eq!(structured["cut"], json!([]));
    assert_eq!(*structured, serde_json::from_str::<Value>(text(&result)).unwrap());
    assert!(!is_error(&result), "a limit that is passed is an answer");
}

#[tokio::test]
async fn errors_are_the_tools_and_in_the_commands_words() {
    let mut client = Client::new(Allowed::default()).await;
    let result = client.call("analyze", json!({ "traces": ["bad.json"] })).await;
    assert!(is_error(&result));
    assert_eq!(text(&result), "bad.json is not a trace\n  help: name a trace");
    let result = client.call("analyze", json!({ "traces": ["killed.json"] })).await;
    assert!(is_error(&result) && text(&result).contains("killed from outside"), "{result}");
    for (tool, arguments, part) in [
        ("analyze", json!({ "traces": ["../program"] }), "is outside the folders"),
        ("analyze", json!({ "traces": [] }), "`traces` is empty"),
        ("analyze", json!({ "traces": vec!["a.json"; 65] }), "65 traces are named, and one call reads at most 64"),
        ("lint", json!({ "trace": vec!["a.json"; 1000] }), "1000 traces are named"),
        (
            "analyze",
            json!({ "traces": ["a.json", "huge.json"] }),
            "have 9.0 GiB together, and one call reads at most 8 GiB",
        ),
        ("analyze", json!({ "trace": ["a.json"] }), "unknown field `trace`"),
        ("analyze", json!({ "traces": "a.json" }), "invalid type"),
        ("analyze", json!({ "traces": ["a.json"], "source": ["/etc"] }), "is outside the folders"),
        ("compare", json!({ "before": "a.json", "after": "/etc/passwd" }), "is outside the folders"),
        ("lint", json!({ "paths": ["/etc/passwd"] }), "is outside the folders"),
        ("lint", json!({ "paths": ["-"] }), "`-` is not a file"),
        ("lint", json!({ "trace": ["../program"] }), "is outside the folders"),
        ("lint", json!({ "max_bytes": 1 }), "max_bytes is 1"),
        ("runs", json!({ "show": "1", "compare": ["1", "2"] }), "cannot be combined"),
        ("optimize", json!({ "command": ["python", "train.py"] }), "may not run commands"),
        ("optimize", json!({ "command": [] }), "`command` is empty"),
        ("explain", json!({ "at": "/wrods" }), "there are words"),
    ] {
        let result = client.call(tool, arguments.clone()).await;
        assert!(is_error(&result), "{tool} {arguments}: {result}");
        assert!(text(&result).contains(part), "{tool} {arguments}: {}", text(&result));
    }
    let unknown = client.ask(9, "tools/call", json!({ "name": "train", "arguments": {} })).await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("there is no tool `train`"));
}

#[tokio::test]
async fn scripts_run_only_where_that_was_allowed_and_leave_nothing() {
    let mut client = Client::new(one_script()).await;
    let words = client.words("optimize", json!({ "command": ["python", "train.py", "--apply"], "steps": 4 })).await;
    assert_eq!(words[..4], ["optimize", "--dry-run", "--json", "--steps=4"]);
    assert_eq!(words[5..], ["--", "python", "train.py", "--apply"]);
    let results = words[4].strip_prefix("--output-dir=").unwrap();
    assert!(!Path::new(results).exists() && !Path::new(results).parent().unwrap().exists());
    for other in
        [json!(["python", "train.py"]), json!(["python", "-c", "1"]), json!(["python", "train.py", "--apply", ""])]
    {
        let result = client.call("optimize", json!({ "command": other })).await;
        assert!(is_error(&result) && text(&result).contains("this server may not run"), "{result}");
    }
}

#[tokio::test]
async fn a_long_call_tells_its_progress_blocks_nobody_and_ends_when_cancelled() {
    let mut client = Client::new(Allowed::default()).await;
    let slow =
        json!({ "name": "analyze", "arguments": { "traces": ["slow.json"] }, "_meta": { "progressToken": "t" } });
    client.send(json!({ "jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": slow })).await;
    let told = client.receive().await;
    assert_eq!(told["method"], "notifications/progress");
    assert_eq!(
        told["params"],
        json!({ "progressToken": "t", "progress": 1.0, "message": "[ 0.1 s] reading slow.json" })
    );
    // Heavy and light commands are answered while it runs.
    client.words("explain", json!({})).await;
    client.words("lint", json!({})).await;
    client.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 50 } })).await;
    client.appears("ended").await;
    client.words("analyze", json!({ "traces": ["a.json"] })).await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_commands() {
    let mut client = Client::new(Allowed::default()).await;
    let slow = json!({ "name": "analyze", "arguments": { "traces": ["slow.json"] }, "_meta": { "progressToken": 1 } });
    client.send(json!({ "jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": slow })).await;
    client.receive().await;
    client.writer.shutdown().await.unwrap();
    (&mut client.talking).await.unwrap();
    client.server.rest().await;
    assert!(client.folder().join("ended").exists(), "asked to end, and waited for");
}

#[tokio::test]
async fn the_next_page_is_not_computed_again_until_the_file_changes() {
    let mut client = Client::new(Allowed::default()).await;
    let calls = |client: &Client| std::fs::read_to_string(client.folder().join("calls")).unwrap().lines().count();
    let first = client.call("analyze", json!({ "traces": ["a.json"] })).await;
    let page = client.call("analyze", json!({ "traces": ["a.json"], "at": "/words/2" })).await;
    assert_eq!(first["structuredContent"]["document"]["words"][2], page["structuredContent"]["part"]);
    assert_eq!(calls(&client), 1);
    client.call("analyze", json!({ "traces": ["b.json"] })).await;
    assert_eq!(calls(&client), 2);
    std::fs::write(client.folder().join("a.json"), "{ }").unwrap();
    client.call("analyze", json!({ "traces": ["a.json"], "at": "/words/2" })).await;
    assert_eq!(calls(&client), 3);
}
