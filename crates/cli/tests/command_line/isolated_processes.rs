//! Whatever a script starts and detaches ends with the command, also when that is killed, and no folder is left.

use crate::isolation::{WAYS, Yard, allowed};
use crate::place::Running;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Processes whose command line holds this text.
fn processes_with(text: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(text)).count()
}

fn are_gone(text: &str) -> bool {
    let begin = Instant::now();
    while processes_with(text) > 0 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    processes_with(text) == 0
}

/// Starts a script that detaches processes in several ways, all of which sleep for a time that nobody else sleeps.
fn detaching(yard: &Yard, options: &str, sleeps: &str) -> Running {
    let script = format!(
        "setsid sleep {sleeps} & (setsid sh -c 'sleep {sleeps}; true' &) ; nohup sleep {sleeps} >/dev/null 2>&1 & sleep {sleeps}"
    );
    yard.0.write("work/script.sh", format!("#!/bin/sh\n{script}\n"));
    let line =
        format!("{} exec $HEADROOM record {options} --output-dir ../recorded -- sh script.sh", yard.surroundings());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("HEADROOM", env!("CARGO_BIN_EXE_headroom"));
    command.current_dir(yard.0.path(".")).env("HEADROOM_HOME", yard.0.path("home")).stdin(Stdio::null());
    let run = Running::of(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    run.waits_until(|| processes_with(&format!("sleep {sleeps}")) >= 4);
    run
}

#[test]
fn nothing_outlives_a_command_that_was_killed() {
    for (number, options) in
        allowed(&WAYS).iter().map(|way| format!("--isolated --isolation {way}")).chain([String::new()]).enumerate()
    {
        let options = options.as_str();
        let yard = Yard::new();
        let sleeps = format!("4{number}1.{}", std::process::id());
        detaching(&yard, options, &sleeps).kill();
        assert!(are_gone(&format!("sleep {sleeps}")), "{options}: processes are left");
        assert!(!yard.scratch_is_empty(), "{options}: the kill left its folder");
        let done = yard.run("copy", "", "true");
        assert!(yard.scratch_is_empty(), "{options}: the next run removes it\n{}", done.stderr);
    }
}

#[test]
fn nothing_outlives_a_script_that_has_ended() {
    for (number, way) in allowed(&WAYS).into_iter().enumerate() {
        let yard = Yard::new();
        let sleeps = format!("6{number}1.{}", std::process::id());
        // One ignores what can be ignored, and one writes a moment later.
        let script = format!(
            "setsid sh -c 'trap \"\" TERM HUP INT; sleep {sleeps}' >/dev/null 2>&1 &\n\
             (setsid nohup sleep {sleeps} >/dev/null 2>&1 &)\n\
             setsid sh -c 'sleep 3; echo late >> small.txt; echo late > ../sibling/late.txt; sleep {sleeps}' &\n\
             while [ \"$(pgrep -fc \"^sleep {sleeps}\")\" -lt 2 ]; do sleep 0.05; done\n"
        );
        let done = yard.run(way, "", &script);
        assert_eq!(processes_with(&format!("sleep {sleeps}")), 0, "{way}: processes are left\n{}", done.stderr);
        std::thread::sleep(Duration::from_millis(3200));
        assert_eq!(yard.0.read("work/small.txt"), b"work/small.txt", "{way}");
        assert!(!yard.0.path("sibling/late.txt").exists() && yard.scratch_is_empty(), "{way}\n{}", done.stderr);
    }
}

#[test]
fn a_hangup_ends_a_script_as_a_request_to_terminate_does() {
    for (number, way) in allowed(&WAYS).into_iter().enumerate() {
        let options = &format!("--isolated --isolation {way}");
        let yard = Yard::new();
        let sleeps = format!("5{number}1.{}", std::process::id());
        let done = detaching(&yard, options, &sleeps).signal("HUP");
        assert_eq!(done.code, Some(129), "{options}\n{}", done.stderr);
        assert!(done.stderr.contains("interrupted") && done.stderr.contains("was changed"), "{}", done.stderr);
        assert!(are_gone(&format!("sleep {sleeps}")), "{options}: processes are left");
        assert!(yard.scratch_is_empty(), "{options}");
    }
}

#[test]
fn a_run_that_ignores_hangups_goes_on() {
    let yard = Yard::new();
    yard.0.write("work/script.sh", "touch started; while [ ! -e on ]; do sleep 0.05; done; touch ended");
    let line = format!(
        "{} nohup $HEADROOM record --output-dir ../recorded -- sh script.sh & own=$!; \
         while [ ! -e started ]; do sleep 0.05; done; kill -HUP $own; sleep 0.3; touch on; wait $own; ls ended",
        yard.surroundings()
    );
    let done = yard.0.shell(&line);
    assert!(done.stdout.contains("ended"), "{}", done.stderr);
}
