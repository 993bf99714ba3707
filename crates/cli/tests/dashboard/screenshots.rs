//! The README's pictures, from real runs. `cargo xtask screenshots` puts them under docs/.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::server::{Server, headroom, run, torch_trace};

/// The folder for the pictures; a temporary folder unless set.
const FOLDER: &str = "HEADROOM_SCREENSHOTS";

#[test]
fn pictures_of_the_three_ways_in_can_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = std::env::var_os(FOLDER).map_or_else(|| folder.path().join("pictures"), PathBuf::from);
    fs::create_dir_all(&pictures).unwrap();
    // Next to the run, so that the pictures do not show local paths.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow_train/train.py");
    fs::copy(script, folder.path().join("train.py")).unwrap();
    run(folder.path(), &["profile", "--size", "tiny", "--num-steps", "12", "--output-dir", "runs/tiny"]);
    let trace = torch_trace("slow.pt.trace.json.gz");
    let server = Server::start(folder.path(), &[trace.to_str().unwrap(), "--source", "train.py"]);
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
    let longest = "return document.querySelector('[aria-label=\"Longest in view\"]').innerText";
    browser.wait_for("the table", &format!("{longest} !== ''"));
    let before = browser.run(longest);
    browser.click("[aria-label='Show one step']");
    browser.wait_for("the step's table", &format!("{longest} !== {before}"));
    shoot(&browser, &pictures, "serve-timeline.png");
    browser.resize(1200, 620);
    browser.command_line_page(folder.path(), &lint_output(folder.path()));
    shoot(&browser, &pictures, "lint.png");
    for entry in fs::read_dir(&pictures).unwrap().flatten() {
        let bytes = fs::read(entry.path()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") || entry.path().extension().is_none_or(|kind| kind != "png"));
    }
}

/// The first findings, as many as fit into a picture.
fn lint_output(folder: &Path) -> String {
    let output = headroom(folder).args(["lint", "train.py"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("TP107"), "{text}");
    format!("$ headroom lint train.py\n{text}")
}

fn shoot(browser: &Browser, folder: &Path, name: &str) {
    browser.screenshot(&folder.join(name));
    let size = fs::metadata(folder.join(name)).unwrap().len();
    assert!((5_000..200_000).contains(&size), "{name} has {size} bytes");
}
