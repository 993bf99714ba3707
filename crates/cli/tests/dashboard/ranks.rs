//! A multi-rank folder: figures in the list of runs, and each rank under its own address.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::Server;

/// Four steps of a kernel and an all-reduce that ends at the same time on both ranks; rank 1 is late.
fn write_rank(folder: &Path, rank: u32) {
    let length = if rank == 0 { 4000 } else { 1000 };
    let mut events = Vec::new();
    for step in 0..4 {
        let start = 100_000 + 10_000 * step;
        let span = |category: &str, name: &str, thread: u32, at: i32, length: i32, id: i32| {
            let process = if category == "kernel" { 0 } else { 1 };
            format!(
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},"ts":{at},"dur":{length},"args":{{"correlation":{id},"External id":{id}}}}}"#
            )
        };
        events.push(span("user_annotation", &format!("ProfilerStep#{step}"), 1, start, 9_900, 0));
        events.push(span("cuda_runtime", "cudaLaunchKernel", 1, start + 10, 10, 10 * step + 1));
        events.push(span("cuda_runtime", "cudaLaunchKernel", 1, start + 30, 10, 10 * step + 2));
        events.push(span("kernel", "gemm", 7, start + 50, 9_000 - length, 10 * step + 1));
        events.push(span(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_f32",
            20,
            start + 9_100 - length,
            length,
            10 * step + 2,
        ));
    }
    let text = format!(
        r#"{{"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":2}},"traceEvents":[{}]}}"#,
        events.join(",")
    );
    std::fs::write(folder.join(format!("rank{rank}.pt.trace.json")), text).unwrap();
}

#[test]
fn ranks_have_a_row_with_figures_and_a_page_each() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("ranks");
    std::fs::create_dir(&ranks).unwrap();
    (0..2).for_each(|rank| write_rank(&ranks, rank));
    let server = Server::start(folder.path(), &["ranks"]);
    let id = server.id("ranks");

    // Figures arrive after the first request for the list.
    let began = Instant::now();
    let row = loop {
        let list = server.json("/api/runs");
        let row = list["runs"].as_array().unwrap().iter().find(|run| run["id"] == id.as_str()).unwrap().clone();
        if !row["step_seconds"].is_null() {
            break row;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no figures came: {list}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(row["size"], "2 ranks");
    assert!(row["first_finding"].as_str().unwrap().starts_with("TR116"), "{row}");
    assert!((row["busy_share"].as_f64().unwrap() - 0.91).abs() < 0.03, "{row}");

    for rank in 0..2 {
        let overview = server.json(&format!("/api/runs/{id}-{rank}/overview"));
        assert_eq!(overview["ranks"]["shown"], rank);
        assert!(overview["subtitle"].as_str().unwrap().contains(&format!("rank {rank} of 2")), "{overview}");
        assert_eq!(overview["ranks"]["rows"].as_array().unwrap().len(), 2);
    }
    let first = server.json(&format!("/api/runs/{id}-0/overview"));
    assert!(!first["ranks"]["rows"][0]["wait"].as_array().unwrap().is_empty(), "rank 0 waits");
    assert_eq!(first["ranks"]["notes"][0], "Rank 1 is the straggler: the others wait for it.");
    assert_eq!(server.get(&format!("/runs/{id}-1/timeline")).status, 200);
    assert_eq!(server.get(&format!("/api/runs/{id}-one/overview")).status, 404);
}
