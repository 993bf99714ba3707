//! Tests the registry from its readers' and writers' side.

use super::*;
use serde_json::json;
use std::sync::{Arc, Barrier};
use std::thread;

pub fn start(size: &str) -> RunStart {
    RunStart {
        command: "train".into(),
        command_line: vec!["headroom".into(), "train".into()],
        directory: Some("here".into()),
        folder: Some("here/runs/1".into()),
        size: Some(size.into()),
        version: Some("v2".into()),
        configuration: json!({"hidden_dim": 64}),
        device: "cpu".into(),
        machine: "a processor".into(),
        threads: 2,
        headroom_version: "0.1.0".into(),
        started: "2026-11-15T02:10:00Z".into(),
        parent: None,
    }
}

fn registry() -> (tempfile::TempDir, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open_at(&folder.path().join("deep/er").join(REGISTRY_FILE)).unwrap();
    (folder, registry)
}

#[test]
fn a_run_is_found_again_as_it_was_written() {
    let (_folder, mut registry) = registry();
    let id = registry.begin(&start("tiny")).unwrap();
    assert_eq!(registry.find("newest").unwrap().status, RunStatus::Running);
    let figures = Headline { samples_per_sec: Some(1.0 / 3.0), steps: Some(5), measured: true, ..Headline::default() };
    registry.end(id, RunStatus::Failed, &figures, &[0.1, 0.25], Some("disk full")).unwrap();
    registry.name(id, Some("before")).unwrap();
    let found = Registry::open_at(registry.path()).unwrap().find("before").unwrap();
    assert_eq!((found.id, found.status, found.error.as_deref()), (id, RunStatus::Failed, Some("disk full")));
    assert_eq!((found.start, found.figures), (start("tiny"), figures));
    assert_eq!(registry.step_seconds(id).unwrap(), [0.1, 0.25]);
}

#[test]
fn lists_are_newest_first_and_filtered() {
    let (_folder, mut registry) = registry();
    for size in ["nano", "tiny", "nano"] {
        registry.begin(&start(size)).unwrap();
    }
    registry.end(1, RunStatus::Finished, &Headline::default(), &[], None).unwrap();
    let ids = |filter: Filter| registry.list(&filter).unwrap().iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(Filter::default()), [3, 2, 1]);
    assert_eq!(ids(Filter { size: Some("nano".into()), ..Filter::default() }), [3, 1]);
    assert_eq!(ids(Filter { status: Some(RunStatus::Running), limit: Some(1), ..Filter::default() }), [3]);
    assert!(ids(Filter { command: Some("profile".into()), ..Filter::default() }).is_empty());
}

#[test]
fn a_number_is_never_used_twice_and_steps_go_with_their_run() {
    let (_folder, mut registry) = registry();
    let first = registry.begin(&start("nano")).unwrap();
    registry.end(first, RunStatus::Finished, &Headline::default(), &[1.0], None).unwrap();
    registry.delete(first).unwrap();
    assert!(registry.step_seconds(first).unwrap().is_empty());
    assert!(registry.begin(&start("nano")).unwrap() > first);
    assert!(matches!(registry.find("1"), Err(RegistryError::NoSuchRun(_))));
}

#[test]
fn a_name_belongs_to_one_run_and_is_no_number() {
    let (_folder, registry) = registry();
    let ids = [registry.begin(&start("nano")).unwrap(), registry.begin(&start("nano")).unwrap()];
    registry.name(ids[0], Some("main")).unwrap();
    registry.name(ids[0], Some("main")).unwrap();
    assert!(matches!(registry.name(ids[1], Some("main")), Err(RegistryError::NameTaken { id, .. }) if id == ids[0]));
    for bad in ["", "  ", "12", "newest"] {
        assert!(matches!(registry.name(ids[1], Some(bad)), Err(RegistryError::BadName(_))), "{bad:?}");
    }
    registry.name(ids[0], None).unwrap();
    registry.name(ids[1], Some("main")).unwrap();
    assert_eq!(registry.find("main").unwrap().id, ids[1]);
}

#[test]
fn an_older_layout_is_migrated_with_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(REGISTRY_FILE);
    let older = schema::make_older(&path, 1);
    older
        .execute_batch(
            "INSERT INTO runs (command, status, started, device, machine, threads, headroom_version, command_line,
                configuration, figures)
             VALUES ('train', 'finished', '2026-01-01T00:00:00Z', 'cpu', 'm', 2, '0.0.9', '[\"headroom\"]', '{}', '{\"steps\": 7}')",
        )
        .unwrap();
    drop(older);
    let registry = Registry::open_at(&path).unwrap();
    let run = registry.find("1").unwrap();
    assert_eq!((run.figures.steps, run.start.parent, run.start.headroom_version.as_str()), (Some(7), None, "0.0.9"));
    assert_eq!(registry.begin(&start("nano")).unwrap(), 2);
    assert!(registry.step_seconds(1).unwrap().is_empty());
}

#[test]
fn a_newer_layout_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(REGISTRY_FILE);
    let newer = schema::make_older(&path, 1);
    newer.pragma_update(None, "user_version", schema::NEWEST + 1).unwrap();
    drop(newer);
    let before = fs::read(&path).unwrap();
    let error = Registry::open_at(&path).err().unwrap();
    assert!(error.to_string().contains("written by a newer headroom"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_no_database_is_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(REGISTRY_FILE);
    fs::write(&path, "runs: none".repeat(1000)).unwrap();
    let error = Registry::open_at(&path).err().unwrap();
    assert!(error.to_string().contains("it is damaged: move it away"), "{error}");
    assert!(matches!(Registry::open_at(&path.join("below")), Err(RegistryError::Folder { .. })));
}

#[test]
fn a_row_that_does_not_read_is_in_nobodys_way_and_can_be_forgotten() {
    let (_folder, registry) = registry();
    let ids = [registry.begin(&start("nano")).unwrap(), registry.begin(&start("tiny")).unwrap()];
    registry.connection.execute("UPDATE runs SET figures = '{' WHERE id = ?1", [ids[0]]).unwrap();
    assert_eq!(registry.find("newest").unwrap().id, ids[1]);
    assert!(matches!(registry.find("1"), Err(RegistryError::Row { id: 1, .. })));
    let error = registry.list(&Filter::default()).unwrap_err().to_string();
    assert!(
        error.contains("run 1 of the registry cannot be read") && error.contains("headroom runs delete 1"),
        "{error}"
    );
    registry.delete(ids[0]).unwrap();
    assert_eq!(registry.list(&Filter::default()).unwrap().len(), 1);
}

#[test]
fn many_writers_at_once_lose_nothing() {
    const WRITERS: usize = 8;
    const RUNS: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let path = Arc::new(folder.path().join(REGISTRY_FILE));
    let together = Arc::new(Barrier::new(WRITERS));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (path, together) = (Arc::clone(&path), Arc::clone(&together));
            thread::spawn(move || {
                together.wait();
                // Each thread opens a database that does not exist yet.
                let mut registry = Registry::open_at(&path).unwrap();
                for run in 0..RUNS {
                    let id = registry.begin(&start("nano")).unwrap();
                    let steps = [writer as f64, run as f64];
                    registry.end(id, RunStatus::Finished, &Headline::default(), &steps, None).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let registry = Registry::open_at(&path).unwrap();
    let runs = registry.list(&Filter::default()).unwrap();
    assert_eq!(runs.len(), WRITERS * RUNS);
    assert!(runs.iter().all(|run| run.status == RunStatus::Finished));
    let mut steps: Vec<_> = runs.iter().map(|run| registry.step_seconds(run.id).unwrap()).collect();
    steps.sort_by(|left, right| left.partial_cmp(right).unwrap());
    steps.dedup();
    assert_eq!(steps.len(), WRITERS * RUNS);
}

#[test]
fn a_run_whose_process_went_away_was_interrupted() {
    let (_folder, registry) = registry();
    let id = registry.begin(&start("nano")).unwrap();
    assert_eq!(registry.find("newest").unwrap().status, RunStatus::Running);
    // The same process number, started at another moment.
    let process = format!("{}:1", std::process::id());
    registry.connection.execute("UPDATE runs SET process = ?2 WHERE id = ?1", (id, process)).unwrap();
    assert_eq!(registry.find("newest").unwrap().status, RunStatus::Interrupted);
    // Nothing is known about a run on another host.
    registry.connection.execute("UPDATE runs SET status = 'running', host = 'elsewhere' WHERE id = ?1", [id]).unwrap();
    assert_eq!(registry.find("newest").unwrap().status, RunStatus::Running);
}
