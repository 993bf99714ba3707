//! Tests every page on real runs, comparing its figures with the run's own files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::browser::Browser;
use crate::server::{Server, figure, run};

const RIGHT: &str = "\u{E014}";
const ENTER: &str = "\u{E007}";

/// Two profiled runs, one of which updates five nodes per step.
pub fn two_runs(folder: &Path) {
    for (name, passes, update) in [("naive", "none", "dense"), ("fused", "all", "topk:5")] {
        let output = format!("runs/{name}");
        let size = ["profile", "--size", "nano", "--num-steps", "14", "--passes", passes, "--log-interval", "2"];
        run(folder, &[&size[..], &["--update", update, "--output-dir", &output]].concat());
    }
}

/// Converts a time in one of the dashboard's table cells back to seconds.
fn parsed_seconds(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{text} is not a time"));
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => panic!("{unit} is not a unit of time"),
    };
    number.parse::<f64>().unwrap() * scale
}

fn near(shown: f64, wanted: f64) -> bool {
    (shown - wanted).abs() <= 0.006 * wanted.abs().max(1e-9)
}

#[test]
fn every_page_of_a_run_shows_what_its_files_say() {
    let folder = tempfile::tempdir().unwrap();
    two_runs(folder.path());
    let server = Server::start(folder.path(), &[]);
    let browser = Browser::start();
    browser.enter(&server);
    list_of_runs(&browser);
    browser.click_link("naive");
    missing_passes(&browser, &folder.path().join("runs/naive"));
    browser.page(&server, "/");
    let fused = folder.path().join("runs/fused");
    browser.click_link("fused");
    overview(&browser, &fused);
    browser.click_link("Operators");
    operators(&browser, &fused);
    browser.click_link("Timeline");
    timeline(&browser, &fused);
    browser.click_link("Memory");
    memory(&browser, &fused);
    browser.click_link("Roofline");
    roofline(&browser, &fused);
    browser.page(&server, &format!("/runs/{}/live", server.id("fused")));
    live(&browser, &fused);
    browser.click_link("Attribution");
    attribution(&browser, &fused);
    browser.page(&server, "/");
    compare(&browser, folder.path());
    assert_eq!(browser.errors(), [] as [String; 0]);
}

/// A trace's rules name the passes that its run lacks, like the table of bottlenecks.
fn missing_passes(browser: &Browser, run: &Path) {
    let categories = figure(&run.join("operator_analysis.json"), "bottlenecks.categories");
    let flag = categories[0]["remedy"].as_str().unwrap();
    let findings = browser.text("ol.findings");
    // The smallest of several passes in one remedy may save too little to be listed.
    let named = flag.split('+').skip(1).any(|pass| findings.contains(pass.trim_end_matches(',')));
    assert!(flag.starts_with("--passes") && named && findings.contains("TR12"), "{flag}: {findings}");
}

fn list_of_runs(browser: &Browser) {
    let names = || browser.texts("tbody td:nth-child(2)");
    assert_eq!(names().len(), 2);
    browser.click("thead th:nth-child(2) button");
    assert_eq!(names(), ["fused", "naive"]);
    browser.click("thead th:nth-child(2) button");
    assert_eq!(names(), ["naive", "fused"]);
    assert_eq!(browser.attribute("thead th:nth-child(2)", "aria-sort"), "descending");
    browser.type_into("input[type=search]", "v1_base");
    assert_eq!(names(), ["naive"], "filtered by version");
    browser.run("const field = document.querySelector('input[type=search]'); field.value = ''; field.dispatchEvent(new Event('input'))");
    assert_eq!(names().len(), 2);
}

fn overview(browser: &Browser, run: &Path) {
    let script = "return [...document.querySelectorAll('[data-key]')].map((one) => [one.dataset.file, one.dataset.key, \
        Number(one.dataset.number), one.innerText])";
    let figures = browser.run(script);
    let figures = figures.as_array().unwrap();
    assert!(figures.len() >= 6, "{figures:?}");
    for shown in figures {
        let (file, key) = (shown[0].as_str().unwrap(), shown[1].as_str().unwrap());
        let wanted = figure(&run.join(file), key);
        assert_eq!(shown[2].as_f64(), wanted.as_f64(), "{file} {key}");
    }
    let mfu = figure(&run.join("flops_profile.json"), "efficiency_metrics.mfu_percent").as_f64().unwrap();
    assert!(browser.texts(".figures .value").contains(&format!("{mfu:.1}%")), "{:?}", browser.texts(".figures .value"));
    assert!(browser.texts(".origin").iter().any(|origin| origin == "measured"));
    let breakdown = figure(&run.join("operator_analysis.json"), "step_breakdown");
    let parts = browser.texts(".legend li");
    let forward = parts.iter().find(|part| part.starts_with("forward operators")).unwrap();
    let shown = parsed_seconds(forward.trim_start_matches("forward operators").split(',').next().unwrap().trim());
    assert!(near(shown, breakdown["forward_operators"].as_f64().unwrap()), "{forward}");
    assert!(browser.texts("main a").contains(&"report.html".to_string()));
}

fn operators(browser: &Browser, run: &Path) {
    let places = figure(&run.join("operator_analysis.json"), "by_place");
    let places = places.as_array().unwrap();
    assert_eq!(browser.texts("tbody tr").len(), places.len());
    let slowest =
        places.iter().max_by(|left, right| left["time"].as_f64().unwrap().total_cmp(&right["time"].as_f64().unwrap()));
    let cells = browser.texts("tbody tr:first-child > *");
    let slowest = slowest.unwrap();
    assert_eq!(
        (cells[0].as_str(), cells[1].as_str()),
        (slowest["name"].as_str().unwrap(), slowest["module"].as_str().unwrap())
    );
    assert!(near(parsed_seconds(&cells[4]), slowest["time"].as_f64().unwrap()), "{cells:?} {slowest}");
    let sought = slowest["module"].as_str().unwrap();
    browser.type_into("input[type=search]", sought);
    let label = |place: &Value| format!("{} {} {}", place["name"], place["module"], place["phase"]);
    let wanted = places.iter().filter(|place| label(place).contains(sought)).count();
    assert!(wanted > 0);
    assert_eq!(browser.texts("tbody tr").len(), wanted);
    browser.run("const field = document.querySelector('input[type=search]'); field.value = ''; field.dispatchEvent(new Event('input'))");
    browser.click("#group");
    let modules: std::collections::BTreeSet<&str> =
        places.iter().map(|place| place["module"].as_str().unwrap()).collect();
    assert_eq!(browser.texts("tr.group").len(), modules.len());
}

fn timeline(browser: &Browser, run: &Path) {
    browser.wait_for("the first frame", "return document.querySelector('.view')?.dataset.firstPaint !== undefined");
    let file =
        fs::read_dir(run).unwrap().flatten().find(|one| one.file_name().to_string_lossy().starts_with("trace_step_"));
    let events = figure(&file.unwrap().path(), "traceEvents");
    let spans: Vec<&Value> = events.as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(browser.text(".bar .note"), format!("{} events", grouped(spans.len())));
    // Down to one operator: search for it, select it by keyboard, zoom in.
    browser.type_into("input[type=search]", "embedding");
    browser.type_into("input[type=search]", ENTER);
    let found = spans.iter().filter(|span| span["name"].as_str().unwrap().contains("embedding")).count();
    assert!(browser.text(".bar .note").starts_with(&format!("{found} of")), "{}", browser.text(".bar .note"));
    assert!(browser.text("#chosen").contains("embedding"));
    browser.run("document.querySelector('.view').focus()");
    browser.hold("z", std::time::Duration::from_millis(30));
    let window = || -> Vec<f64> {
        let text = browser.attribute(".view", "data-window");
        text.split(' ').map(|time| time.parse().unwrap()).collect()
    };
    let length = |window: &[f64]| window[1] - window[0];
    browser.wait_for(
        "the zoom",
        "const [from, to] = document.querySelector('.view').dataset.window.split(' '); return to - from < 2e7",
    );
    let first = spans.iter().find(|span| span["name"] == "embedding").unwrap();
    let facts = browser.text("dl.plain");
    let takes = facts.lines().skip_while(|line| *line != "takes").nth(1).unwrap().to_string();
    assert!(near(parsed_seconds(&takes), first["dur"].as_f64().unwrap() / 1e6), "{takes} {first}");
    let before = window();
    browser.hold("d", std::time::Duration::from_millis(150));
    assert!(window()[0] > before[0], "panned to the right");
    browser.hold("s", std::time::Duration::from_millis(150));
    assert!(length(&window()) > length(&before), "zoomed out");
    browser.wait_for(
        "the table",
        "return document.querySelectorAll('[aria-label=\"Longest in view\"] tbody tr').length > 0",
    );
}

fn memory(browser: &Browser, run: &Path) {
    let peak = figure(&run.join("memory_analysis.json"), "peak_memory_mb").as_f64().unwrap();
    let shown = format!("peak {peak:.1} MiB");
    assert!(browser.text("h2").contains(&shown), "{} has no {shown}", browser.text("h2"));
    let category =
        |name: &str| figure(&run.join("memory_analysis.json"), &format!("by_category.{name}")).as_f64().unwrap();
    let legend = browser.texts(".legend li");
    let activations = legend.iter().find(|one| one.starts_with("activations")).unwrap();
    assert!(activations.contains(&format!("{:.1} MiB", category("activations"))), "{activations}");
    browser.wait_for("what is alive", "return document.querySelectorAll('[aria-live] tbody tr').length > 1");
    let at_the_peak = browser.text("#alive");
    browser.run("document.querySelector('svg.chart').focus()");
    browser.hold(RIGHT, std::time::Duration::from_millis(20));
    browser.wait_for(
        "another moment",
        &format!("return document.querySelector('#alive').innerText !== {}", serde_json::json!(at_the_peak)),
    );
}

fn roofline(browser: &Browser, run: &Path) {
    let points = figure(&run.join("roofline_data.json"), "points");
    let points = points.as_array().unwrap();
    assert_eq!(browser.texts("tbody tr").len(), points.len());
    assert_eq!(browser.run("return document.querySelectorAll('svg a circle').length"), points.len());
    let named = points[0]["name"].as_str().unwrap();
    let row = format!("tr[data-point='{named}'] td:nth-child(5)");
    assert!(
        browser
            .text(&row)
            .starts_with(&format!("{:.1}", points[0]["percent_of_roof"].as_f64().unwrap()).replace(".0", "")),
        "{}",
        browser.text(&row)
    );
    browser.run("document.querySelector('svg a').focus()");
    assert!(browser.text("#tip").contains("FLOPs per byte"), "a point says what it is");
    browser.hold(ENTER, std::time::Duration::from_millis(10));
    browser.wait_for(
        "its row",
        "return document.body.dataset.page === 'operators' && document.body.dataset.ready === 'yes'",
    );
    assert_eq!(browser.texts("tr.found").len(), 1, "the operator's row is marked");
}

fn live(browser: &Browser, run: &Path) {
    let summary = figure(&run.join("performance_summary.json"), "performance_summary");
    assert!(
        browser.text("#progress").starts_with("The run has finished: step 14 of 14"),
        "{}",
        browser.text("#progress")
    );
    let loss = summary["final_loss"].as_f64().unwrap();
    let cell = browser.text("tr[data-step='14'] td:nth-child(2)");
    assert!((cell.parse::<f64>().unwrap() - loss).abs() < 1e-4, "{cell} {loss}");
    assert_eq!(browser.run("return document.querySelectorAll('.two svg path.line').length"), 4);
    assert!(browser.text("pre.log").contains("Final loss"));
}

fn attribution(browser: &Browser, run: &Path) {
    let file = run.join("attribution.json");
    for (node, name) in figure(&file, "nodes").as_array().unwrap().iter().enumerate() {
        let row = format!("tr[data-node='{}']", name.as_str().unwrap());
        assert_eq!(browser.text(&format!("{row} td:nth-child(3)")), figure(&file, "updates")[node].to_string());
    }
    assert!(browser.text("h2 small").contains("23.8%"), "5 of 21 updates: {}", browser.text("h2 small"));
    let answer = figure(&file, "working_on_now");
    assert!(browser.text("p.answer").ends_with(answer.as_str().unwrap()), "{}", browser.text("p.answer"));
}

fn compare(browser: &Browser, folder: &Path) {
    for name in ["naive", "fused"] {
        browser.click(&format!("[aria-label='Compare {name}']"));
    }
    browser.click("button.primary");
    browser.wait_for("the comparison", "return location.pathname.startsWith('/compare/')");
    browser.wait_until_filled();
    assert!(browser.text("h1").contains("naive → fused"), "{}", browser.text("h1"));
    for (figure_name, file, key) in [
        ("kernels per step", "operator_analysis.json", "patterns.kernels_per_step"),
        ("step, median", "performance_summary.json", "statistics.median"),
    ] {
        for (column, run) in [(2, "naive"), (3, "fused")] {
            let shown = browser.text(&format!("tr[data-figure='{figure_name}'] td:nth-child({column})"));
            let wanted = figure(&folder.join("runs").join(run).join(file), key).as_f64().unwrap();
            let number = if key.ends_with("median") { parsed_seconds(&shown) } else { shown.parse().unwrap() };
            assert!(near(number, wanted), "{figure_name} of {run}: {shown}, {wanted}");
        }
    }
    assert!(browser.texts("tbody th").iter().any(|name| name == "version"), "what differs is listed");
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let parts: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect::<Vec<_>>().join(",")
}

#[test]
fn pages_work_in_the_dark_on_a_narrow_screen_and_without_a_pointer() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["profile", "--size", "nano", "--num-steps", "10", "--output-dir", "runs/one"]);
    let server = Server::start(folder.path(), &[]);
    let browser = Browser::start();
    browser.dark();
    browser.enter(&server);
    let background = || browser.run("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(background(), "rgb(20, 24, 28)");
    browser.click("#theme");
    assert_eq!(background(), "rgb(255, 255, 255)", "the button goes against the system");
    let id = server.id("one");
    let pages =
        ["overview", "operators", "timeline", "memory", "roofline", "live"].map(|page| format!("/runs/{id}/{page}"));
    // A small laptop and a telephone.
    for (width, height) in [(1024, 640), (390, 800)] {
        browser.resize(width, height);
        for page in pages.iter().map(String::as_str).chain(["/"]) {
            browser.page(&server, page);
            fits_and_is_named(&browser, &format!("{page} at {width}"));
        }
    }
    browser.resize(1024, 640);
    // The first Tab reaches the skip link, and Enter follows it.
    browser.page(&server, &format!("/runs/{id}/overview"));
    browser.hold("\u{E004}", std::time::Duration::from_millis(10));
    assert_eq!(browser.run("return document.activeElement.className"), "skip");
    browser.hold(ENTER, std::time::Duration::from_millis(10));
    browser.wait_for("the content's focus", "return document.activeElement.id === 'main'");
}

/// Checks that nothing is wider than the screen, there is one `h1`, and every control has a name.
fn fits_and_is_named(browser: &Browser, page: &str) {
    let wider = browser.run("return document.documentElement.scrollWidth - innerWidth");
    assert!(wider.as_i64().unwrap() <= 0, "{page} is {wider} pixels wider than the screen");
    let headings = browser.texts("h1");
    assert_eq!(headings.len(), 1, "{page}: one heading of the first order");
    let script = "return [...document.querySelectorAll('input, button, svg[role], canvas, [tabindex=\"0\"]')]
        .filter((one) => one.offsetParent !== null || one instanceof SVGElement)
        .filter((one) => !(one.getAttribute('aria-label') || one.getAttribute('aria-hidden') || one.innerText || one.labels?.length
            || one.closest('th, label')))
        .map((one) => one.outerHTML.slice(0, 90))";
    assert_eq!(browser.run(script), serde_json::json!([]), "{page}: things without a name");
    let tables = browser.run(
        "return [...document.querySelectorAll('table')].filter((one) => !one.querySelector('thead \
        th[scope=col]')).length",
    );
    assert_eq!(tables, 0, "{page}: tables without headings");
}
