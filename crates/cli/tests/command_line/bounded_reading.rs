//! Input that would make a reader wait for ever or fill the memory is refused by name, at once.
#![cfg(unix)]

use crate::place::{Done, Place, SMALL};
use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Far less than reading takes, and far more than refusing.
const PATIENCE: Duration = Duration::from_secs(20);

fn with_fifo(name: &str) -> Place {
    let place = Place::new();
    assert_eq!(place.shell(&format!("mkdir -p $(dirname {name}) && mkfifo {name}")).code, Some(0));
    place
}

/// Runs the line; a reader that waits is ended, and fails the test.
fn at_once(place: &Place, line: &str) -> Done {
    let began = Instant::now();
    let done = place.shell(&format!("timeout 60 $HEADROOM {line}"));
    assert!(began.elapsed() < PATIENCE, "{line} took {:?}: {}", began.elapsed(), done.stderr);
    done
}

#[test]
fn a_script_of_gigabytes_is_refused_without_being_read() {
    let place = Place::new();
    File::create(place.path("x.py")).unwrap().set_len(3_000_000_000).unwrap();
    let done = at_once(&place, "lint x.py");
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let told = format!("{}{}", done.stdout, done.stderr);
    assert!(told.contains("it has 3000000000 bytes (2.7 GiB), and at most 8 MiB of such a file are read"), "{told}");
    // Found in a folder, it is an error of the run too, and the other scripts are read.
    place.write("y.py", "x = 1\n");
    let done = at_once(&place, "lint . --format json");
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stdout.contains("at most 8 MiB") && !done.stdout.contains("y.py\""), "{}", done.stdout);
}

#[test]
fn endless_standard_input_is_refused() {
    let place = Place::new();
    let done = place.shell("yes | timeout 60 $HEADROOM lint -");
    done.is_error(2, "lint -", &["cannot read standard input", "more than 8 MiB"]);
}

#[test]
fn a_fifo_named_as_a_script_is_not_waited_for() {
    let place = with_fifo("x.py");
    let done = at_once(&place, "lint x.py");
    assert_eq!(done.code, Some(2));
    assert!(format!("{}{}", done.stdout, done.stderr).contains("it is a FIFO, not a file"), "{}", done.stderr);
    place.write("y.py", "x = 1\n");
    // In a folder, only plain files are scripts.
    assert_eq!(at_once(&place, "lint .").code, Some(0));
    assert_eq!(at_once(&place, "lint y.py").code, Some(0));
}

#[test]
fn settings_that_are_fifos_devices_or_folders_are_refused_by_name() {
    let place = with_fifo("headroom.toml");
    place.write("y.py", "x = 1\n");
    at_once(&place, "lint y.py").is_error(2, "headroom.toml", &["headroom.toml", "it is a FIFO, not a file"]);
    let place = with_fifo("run.toml");
    at_once(&place, "train --config run.toml").is_error(2, "run.toml", &["run.toml", "it is a FIFO, not a file"]);
    at_once(&place, "train --config /dev/zero").is_error(2, "zero", &["/dev/zero", "it is a device, not a file"]);
    at_once(&place, "train --config .").is_error(2, "folder", &["it is a folder, not a file"]);
    File::create(place.path("large.toml")).unwrap().set_len(1 << 30).unwrap();
    at_once(&place, "train --config large.toml").is_error(2, "large", &["(1 GiB), and at most 4 MiB"]);
    // A pipe that the user names is read.
    let line = format!("printf 'num-steps = 2\\n' | $HEADROOM train {SMALL} --config /dev/stdin --output-dir a");
    let piped = place.shell(&line);
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
}

#[test]
fn a_fifo_among_traces_is_left_out_and_one_alone_is_refused() {
    let place = with_fifo("traces/rank1.json");
    at_once(&place, "analyze traces/rank1.json").is_error(2, "alone", &["rank1.json", "it is a FIFO, not a file"]);
    at_once(&place, "analyze traces").is_error(2, "folder", &["rank1.json", "it is a FIFO, not a file"]);
    place.write(
        "traces/rank0.json",
        r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":5}]}"#,
    );
    let done = at_once(&place, "analyze traces --json");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(format!("{}{}", done.stdout, done.stderr).contains("it is a FIFO, not a file"), "{}", done.stdout);
}

#[test]
fn a_checkpoint_whose_json_is_a_fifo_or_too_large_is_refused() {
    let place = with_fifo("model/config.json");
    let line = format!("train {SMALL} --resume model --output-dir a");
    at_once(&place, &line).is_error(2, "fifo", &["config.json", "it is a FIFO, not a file"]);
    std::fs::remove_file(place.path("model/config.json")).unwrap();
    File::create(place.path("model/config.json")).unwrap().set_len(5 << 30).unwrap();
    at_once(&place, &line).is_error(2, "large", &["config.json", "(5 GiB), and at most 256 MiB"]);
}

#[test]
fn frames_beyond_the_limit_end_the_editors_connection_with_a_reason() {
    let place = Place::new();
    for (sent, reason) in [
        ("Content-Length: 18446744073709551615\r\n\r\n", "18446744073709551615 bytes is announced"),
        ("Content-Length: 99999999999999999999\r\n\r\n", "not a number of bytes"),
        ("A: b\r\n".repeat(100_000).as_str(), "does not end within 8192 bytes"),
        ("Content-Length: 2\r\n\r\n{}", "not JSON-RPC"),
    ] {
        let mut command = place.command("lsp");
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The server may leave before it has read all.
        let _ = server.stdin.take().unwrap().write_all(sent.as_bytes());
        let output = server.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("does not follow the Language Server Protocol") && told.contains(reason), "{told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn commands_for_agents_are_listed_word_by_word() {
    let place = Place::new();
    for line in ["mcp --allow-run", "mcp --allow-run .", "mcp . --allow-run"] {
        place.refuses(line, &["--allow-run needs the command", "--allow-run \"python train.py\""]);
    }
    place.shell("$HEADROOM mcp --allow-run \"python 'x\"").is_error(2, "quote", &["a quote is not closed"]);
    assert_eq!(place.shell("$HEADROOM mcp . --allow-run 'python train.py' --allow-run 'python b.py'").code, Some(0));
}

#[test]
fn a_line_to_mcp_beyond_the_limit_is_answered_with_an_error() {
    let place = Place::new();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    place.write("hello", format!("{hello}\n{}\n", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    let begin = r#"{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"a":""#;
    place.write("begin", begin);
    place.write("ping", format!("{}\n", r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#));
    for megabytes in [17, 300] {
        let long =
            format!("{{ cat hello begin; head -c {megabytes}M /dev/zero | tr '\\0' a; echo '\"}}}}}}'; cat ping; }}");
        // The address space has no room for the message and its copy.
        let done = place.shell(&format!("{long} | (ulimit -v 700000; timeout 200 $HEADROOM mcp .)"));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let answers = done.objects();
        let ids: Vec<&serde_json::Value> = answers.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(answers.len(), 3, "{}", done.stdout);
        assert!(ids.contains(&&1.into()) && ids.contains(&&3.into()), "the server lives on: {}", done.stdout);
        let error = answers.iter().find(|answer| answer["error"].is_object()).expect("an error");
        assert!(error["error"]["code"] == -32600 && error["id"].is_null(), "{error}");
        assert!(done.stderr.contains("a message of more than 16 MiB was dropped"), "{}", done.stderr);
    }
}
