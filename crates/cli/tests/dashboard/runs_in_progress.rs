//! A run that is watched while it is running.

use std::process::{Child, Stdio};

use crate::browser::Browser;
use crate::server::{Server, headroom};

/// A process that is ended with the test, however that ends.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_run_is_followed_while_it_goes_on_and_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let run = headroom(folder.path())
        .args(["train", "--size", "nano", "--num-steps", "100000", "--log-interval", "5", "--output-dir", "runs/going"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut run = Ended(run);
    let server = Server::start(folder.path(), &[]);
    let browser = Browser::start();
    browser.enter(&server);
    for _ in 0..500 {
        if !browser.texts("a.running").is_empty() {
            break;
        }
        browser.page(&server, "/");
    }
    browser.click("a.running");
    browser.wait_until_filled();
    browser.wait_for("some steps", "return document.querySelectorAll('tr[data-step]').length >= 3");
    let newest =
        || browser.run("return Number(document.querySelector('tr[data-step]').dataset.step)").as_i64().unwrap();
    let before = newest();
    browser.wait_for(
        "later steps",
        &format!("return Number(document.querySelector('tr[data-step]').dataset.step) > {before}"),
    );
    assert!(browser.text("#progress").starts_with("The run is in progress: step"), "{}", browser.text("#progress"));
    let memory = browser.text("tr[data-step] td:nth-child(5)");
    assert!(memory.ends_with("iB"), "the process's memory: {memory}");
    run.end();
    browser
        .wait_for("the end", "return document.querySelector('#progress').innerText.startsWith('The run was stopped')");
    browser.page(&server, "/");
    assert_eq!(browser.texts("tbody .stopped"), ["stopped"]);
    assert_eq!(browser.errors(), [] as [String; 0]);
}
