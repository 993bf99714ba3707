//! A trace of half a million events: how soon it is on screen, and how smoothly it moves.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::server::Server;

/// The dashboard's targets on a quiet machine.
const OPENS_WITHIN: Duration = Duration::from_secs(2);
const FRAMES_PER_SECOND: f64 = 30.0;
/// Unoptimized builds and busy machines take longer; `cargo xtask bench dashboard` checks the targets.
const SLACK: f64 = 4.0;
/// The file that the benchmark wants the figures in.
const FIGURES: &str = "HEADROOM_DASHBOARD_FIGURES";

const EVENTS: usize = 500_000;

/// Ten steps of operators with runtime calls inside, and the resulting kernels on two streams.
fn write_trace(path: &Path) {
    const STEPS: usize = 10;
    let operators = (EVENTS - STEPS) / 4 / STEPS;
    let mut text = String::from("{\"schemaVersion\": 1, \"traceEvents\": [\n");
    let mut event = |name: &str, category: &str, (pid, tid): (u32, u32), start: f64, length: f64, extra: &str| {
        let _ = writeln!(
            text,
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {start:.3}, "dur": {length:.3}{extra}}},"#
        );
    };
    let mut time = 1000.0;
    let mut number = 0;
    for step in 0..STEPS {
        let begin = time;
        for index in 0..operators {
            number += 1;
            let kind = index % 37;
            let length = 8.0 + (index * 7919 % 23) as f64;
            let arguments = format!(r#", "args": {{"External id": {number}, "correlation": {number}}}"#);
            event(&format!("aten::operator_{kind}"), "cpu_op", (1, 1), time, length, &arguments);
            event(&format!("aten::inner_{}", kind % 11), "cpu_op", (1, 1), time + 1.0, length - 3.0, "");
            event("cudaLaunchKernel", "cuda_runtime", (1, 1), time + 2.0, 3.0, &arguments);
            event(
                &format!("kernel_{kind}"),
                "kernel",
                (0, 7 + (index % 2) as u32),
                time + 6.0,
                length - 1.5,
                &arguments,
            );
            time += length + 0.5;
        }
        event(&format!("ProfilerStep#{step}"), "user_annotation", (1, 1), begin, time - begin, "");
        time += 20.0;
    }
    text += "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": \"python\"}}]}\n";
    std::fs::write(path, text).unwrap();
}

#[test]
fn half_a_million_events_open_at_once_and_pan_smoothly() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("large.pt.trace.json");
    write_trace(&trace);
    let browser = Browser::start();
    let begin = Instant::now();
    let server = Server::start(folder.path(), &["large.pt.trace.json"]);
    browser.enter(&server);
    let timeline = format!("/runs/{}/timeline", server.id("large.pt.trace.json"));
    browser.page(&server, &timeline);
    browser.wait_for("the first frame", "return document.querySelector('.view')?.dataset.firstPaint !== undefined");
    let from_the_command = begin.elapsed();
    let events = browser.text(".bar .note");
    assert!(events.starts_with("499,") || events.starts_with("500,"), "{events}");

    browser.page(&server, &timeline);
    browser.wait_for("the first frame", "return document.querySelector('.view')?.dataset.firstPaint !== undefined");
    let first_paint = browser.attribute(".view", "data-first-paint").parse::<f64>().unwrap() / 1e3;

    // Nearly the whole trace, with almost every event in view; one step; and close up, where boxes have names.
    let pans = [("whole run", 1.2), ("a step", 10.0), ("near", 1000.0)].map(|(name, zoom)| (name, pan(&browser, zoom)));
    if let Some(path) = std::env::var_os(FIGURES) {
        let pans = pans.iter().map(|(name, pan)| {
            json!({ "view": name, "frames_per_second": pan.frames_per_second, "longest_paint_ms": pan.longest_paint,
                "longest_frame_ms": pan.longest_frame })
        });
        let figures = json!({
            "events": EVENTS, "json_mb": std::fs::metadata(&trace).unwrap().len() as f64 / 1e6,
            "from_the_command_seconds": from_the_command.as_secs_f64(), "page_seconds": first_paint,
            "panning": pans.collect::<Vec<_>>(),
        });
        std::fs::write(path, figures.to_string()).unwrap();
    }
    assert!(from_the_command < OPENS_WITHIN.mul_f64(SLACK), "opened after {from_the_command:?}");
    assert!(first_paint < OPENS_WITHIN.as_secs_f64() * SLACK, "first frame after {first_paint} s");
    for (name, pan) in pans {
        assert!(pan.frames_per_second > FRAMES_PER_SECOND / SLACK, "{name}: {} frames a second", pan.frames_per_second);
    }
}

/// Frames while the key for "right" is held for a second; times in milliseconds.
struct Pan {
    frames_per_second: f64,
    longest_paint: f64,
    /// From one frame to the next.
    longest_frame: f64,
}

fn pan(browser: &Browser, zoom: f64) -> Pan {
    let script = format!(
        "const done = arguments[arguments.length - 1];
         const view = document.querySelector('.view');
         view.focus();
         const key = (kind, name) => view.dispatchEvent(new KeyboardEvent(kind, {{ key: name, bubbles: true }}));
         key('keydown', '0');
         const length = () => {{ const [from, to] = view.dataset.window.split(' ').map(Number); return to - from; }};
         let whole = 0, frames = 0, began = 0, last = 0, paint = 0, frame = 0, painted = 0;
         const measure = (now) => {{
           paint = Math.max(paint, Number(view.dataset.paintMilliseconds));
           frame = Math.max(frame, now - last);
           last = now;
           frames += 1;
           if (now - began < 1000) return requestAnimationFrame(measure);
           key('keyup', 'd');
           done([Math.min(frames, Number(view.dataset.frames) - painted) * 1000 / (now - began), paint, frame]);
         }};
         const approach = () => {{
           if (whole / length() < {zoom}) return requestAnimationFrame(approach);
           key('keyup', 'w');
           requestAnimationFrame((now) => {{
             began = last = now; painted = Number(view.dataset.frames); key('keydown', 'd'); requestAnimationFrame(measure);
           }});
         }};
         requestAnimationFrame(() => requestAnimationFrame(() => {{
           whole = length();
           key('keydown', 'w');
           approach();
         }}));"
    );
    let answer = browser.run_until_told(&script);
    let [frames_per_second, longest_paint, longest_frame] = [0, 1, 2].map(|at| answer[at].as_f64().unwrap());
    Pan { frames_per_second, longest_paint, longest_frame }
}
