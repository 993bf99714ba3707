//! The pictures of the README, from real runs. `cargo xtask screenshots` puts them under docs/.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::server::{Server, headroom, run, torch_trace};

/// Where the pictures go; a temporary folder unless this is set.
const FOLDER: &str = "HEADROOM_SCREENSHOTS";

#[test]
fn pictures_of_the_three_ways_in_can_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = std::env::var_os(FOLDER).map_or_else(|| folder.path().join("pictures"), PathBuf::from);
    fs::create_dir_all(&pictures).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow_train");
    run(folder.path(), &["profile", "--size", "tiny", "--num-steps", "12", "--output-dir", "runs/tiny"]);
    let trace = torch_trace("slow.pt.trace.json.gz");
    let server = Server::start(folder.path(), &[trace.to_str().unwrap(), "--source", script.to_str().unwrap()]);
    let browser = Browser::start();
    browser.resize(1200, 760);
    browser.enter(&server);
    let tiny = server.id("tiny");
    browser.page(&server, &format!("/runs/{tiny}/overview"));
    shoot(&browser, &pictures, "serve-overview.png");
    browser.page(&server, &format!("/runs/{tiny}/roofline"));
    shoot(&browser, &pictures, "serve-roofline.png");
    let slow = server.id("slow.pt.trace.json.gz");
    browser.page(&server, &format!("/runs/{slow}/overview"));
    shoot(&browser, &pictures, "serve-trace.png");
    browser.page(&server, &format!("/runs/{slow}/timeline"));
    browser.wait_for("the first frame", "return document.querySelector('.view')?.dataset.firstPaint !== undefined");
    browser.type_into("input[type=search]", "gemm");
    browser.type_into("input[type=search]", "\u{E007}");
    browser.click("[aria-label='Show one step']");
    browser.wait_for(
        "the table",
        "return document.querySelectorAll('[aria-label=\"Longest in view\"] tbody tr').length > 0",
    );
    shoot(&browser, &pictures, "serve-timeline.png");
    // The report that a profile leaves, and what lint prints, as a page.
    browser.resize(1200, 900);
    browser.command_line_page(folder.path(), &lint_output(&script));
    shoot(&browser, &pictures, "lint.png");
    for entry in fs::read_dir(&pictures).unwrap().flatten() {
        let bytes = fs::read(entry.path()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") || entry.path().extension().is_none_or(|kind| kind != "png"));
    }
}

fn lint_output(script: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(script.join("train.py"), folder.path().join("train.py")).unwrap();
    let output = headroom(folder.path()).args(["lint", "train.py"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("TP107"), "{text}");
    let shown: Vec<&str> = text.lines().take(46).collect();
    format!("$ headroom lint train.py\n{}\n…", shown.join("\n"))
}

fn shoot(browser: &Browser, folder: &Path, name: &str) {
    browser.screenshot(&folder.join(name));
    let size = fs::metadata(folder.join(name)).unwrap().len();
    assert!((5_000..200_000).contains(&size), "{name} has {size} bytes");
}
