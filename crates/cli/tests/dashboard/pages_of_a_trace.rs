//! Tests every page on a trace of PyTorch's profiler, comparing its figures with `headroom analyze --format json`.

use serde_json::Value;

use crate::browser::Browser;
use crate::server::{Server, at, headroom, torch_trace};

#[test]
fn every_page_of_a_pytorch_trace_shows_what_analyze_says() {
    let folder = tempfile::tempdir().unwrap();
    let trace = torch_trace("slow.pt.trace.json.gz");
    let trace = trace.to_str().unwrap();
    let output = headroom(folder.path()).args(["analyze", trace, "--format", "json"]).output().unwrap();
    let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let server = Server::start(folder.path(), &[trace]);
    let browser = Browser::start();
    browser.enter(&server);
    browser.click_link("slow.pt.trace.json.gz");
    overview(&browser, &analysis);
    browser.click_link("Operators");
    operators(&browser, &analysis);
    browser.click_link("Timeline");
    timeline(&browser, &analysis);
    browser.click_link("Memory");
    memory(&browser, &analysis);
    browser.click_link("Roofline");
    let rows = browser.texts("tbody tr");
    let timed = at(&analysis, "measures.roofline.rows").as_array().unwrap().iter();
    assert_eq!(
        rows.len(),
        timed.filter(|row| row["seconds"].as_f64() > Some(0.0) && row["bytes"].as_f64() > Some(0.0)).count()
    );
    let other = torch_trace("fixed.pt.trace.json.gz");
    let both = Server::start(folder.path(), &[trace, other.to_str().unwrap()]);
    browser.enter(&both);
    compare(&browser, &both);
    assert_eq!(browser.errors(), [] as [String; 0]);
}

fn overview(browser: &Browser, analysis: &Value) {
    let script = "return [...document.querySelectorAll('[data-key]')].map((one) => [one.dataset.key, Number(one.dataset.number)])";
    let figures = browser.run(script);
    assert!(figures.as_array().unwrap().len() >= 4, "{figures}");
    for shown in figures.as_array().unwrap() {
        let wanted = at(analysis, shown[0].as_str().unwrap());
        assert_eq!(shown[1].as_f64(), wanted.as_f64(), "{shown}");
    }
    let findings = analysis["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    assert_eq!(browser.texts("ol.findings > li").len(), findings.len());
    for finding in findings {
        assert!(browser.text("ol.findings").contains(finding["message"].as_str().unwrap()), "{finding}");
    }
    let roadmap = at(analysis, "roadmap.items").as_array().unwrap();
    let rows = browser.texts("[aria-labelledby=roadmap] tbody tr");
    assert_eq!(rows.len(), roadmap.len());
    for (row, item) in rows.iter().zip(roadmap) {
        assert!(row.contains(item["code"].as_str().unwrap()), "{row}");
        let keys = ["expected_share", "alone_share", "additional_share"];
        for (key, share) in keys.into_iter().filter_map(|key| Some((key, item[key].as_f64()?))) {
            let share = 100.0 * share;
            let share = if share < 1.0 && share != 0.0 { format!("{share:.2}%") } else { format!("{share:.1}%") };
            assert!(row.contains(&share), "{row} {key} {share}");
        }
    }
    let first_note = at(analysis, "trust.notes")[0].as_str().unwrap();
    assert!(browser.text(".reserve").contains(first_note));
}

fn operators(browser: &Browser, analysis: &Value) {
    let kernels = at(analysis, "measures.kernels.rows").as_array().unwrap();
    assert_eq!(browser.texts("[aria-label=Kernels] tbody tr").len(), kernels.len().min(301));
    let wanted = at(analysis, "measures.operators.rows")[0]["name"].as_str().unwrap().to_string();
    browser.type_into("input[type=search]", &wanted);
    let names = browser.texts("[aria-label=Operators] tbody th");
    assert!(!names.is_empty() && names.iter().all(|name| name.contains(&wanted)), "{names:?}");
    let tally = browser.text(".bar .note");
    assert!(tally.contains("operators") && tally.contains("kernels"), "{tally}");
}

fn timeline(browser: &Browser, analysis: &Value) {
    browser.wait_for("the first frame", "return document.querySelector('.view')?.dataset.firstPaint !== undefined");
    let kernel = at(analysis, "measures.kernels.rows")[0]["name"].as_str().unwrap();
    let word = kernel.split(|letter: char| !letter.is_alphanumeric()).find(|word| word.len() > 4).unwrap();
    browser.type_into("input[type=search]", word);
    browser.type_into("input[type=search]", "\u{E007}");
    browser.wait_for("the chosen event", "return document.querySelector('#chosen') !== null");
    let chosen = browser.text("[aria-label='Chosen event']");
    assert!(chosen.to_lowercase().contains(&word.to_lowercase()), "{chosen}");
}

fn memory(browser: &Browser, analysis: &Value) {
    let peak = at(analysis, "measures.memory.peak_bytes").as_f64().unwrap() / 1024.0 / 1024.0;
    assert!(browser.text("h2").contains(&format!("peak {peak:.1} MiB")), "{}", browser.text("h2"));
    browser.wait_for("what is alive", "return document.querySelectorAll('[aria-live] tbody tr').length > 1");
    let rows = browser.texts("[aria-live] tbody th");
    assert!(rows.iter().any(|name| name.starts_with("aten::")), "{rows:?}");
}

fn compare(browser: &Browser, server: &Server) {
    for name in ["slow", "fixed"] {
        browser.click(&format!("[aria-label='Compare {name}.pt.trace.json.gz']"));
    }
    browser.click("button.primary");
    browser.wait_for("the comparison", "return location.pathname.startsWith('/compare/')");
    browser.wait_until_filled();
    let path = format!("/api/compare/{}/{}", server.id("slow.pt.trace.json.gz"), server.id("fixed.pt.trace.json.gz"));
    let (data, shown) = (server.json(&path), browser.text("main"));
    let (gone, grown) = (data["findings_gone"].as_array().unwrap(), data["findings_grown"].as_array().unwrap());
    assert!(!gone.is_empty() && !grown.is_empty(), "{data}");
    for finding in gone.iter().chain(grown) {
        assert!(shown.contains(finding.as_str().unwrap()), "{finding}");
    }
    // The gradient norms of all parameters are one call now.
    let changes = data["changes"].as_array().unwrap();
    let norms = changes.iter().find(|row| row["name"] == "aten::_foreach_norm").expect("is new");
    assert_eq!((norms["status"].as_str(), norms["place"].as_str()), (Some("new"), Some("train.py(51): train")));
    let row = browser.text("tr[data-site='aten::_foreach_norm']");
    assert!(row.contains("train.py(51): train") && row.contains("new"), "{row}");
    assert_eq!(browser.texts("tr[data-site] th").len(), changes.len());
}
