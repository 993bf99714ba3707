//! Requests that must be refused, each over loopback.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::http::{request, send};
use crate::server::{Server, headroom, run};

/// A run, a secret next to it, and a server that shows the run.
fn with_a_run(arguments: &[&str], check: impl FnOnce(&std::path::Path, &Server)) {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["train", "--size", "nano", "--num-steps", "2", "--output-dir", "runs/one"]);
    fs::write(folder.path().join("secret.json"), "\"the secret\"").unwrap();
    let server = Server::start(folder.path(), arguments);
    check(folder.path(), &server);
}

#[test]
fn the_token_opens_the_door_once_and_the_cookie_from_then_on() {
    with_a_run(&[], |_, server| {
        let host = server.host();
        let door = request(server.port, "GET", &format!("/{}", server.token), &[("Host", &host)], b"");
        assert_eq!((door.status, door.header("location")), (303, Some("/")));
        let cookie = door.header("set-cookie").unwrap();
        for property in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(property), "{cookie}");
        }
        let pair = cookie.split(';').next().unwrap();
        let list = request(server.port, "GET", "/", &[("Host", &host), ("Cookie", pair)], b"");
        assert_eq!(list.status, 200);
        assert!(list.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    });
}

#[test]
fn without_the_token_or_with_another_nothing_is_shown() {
    with_a_run(&[], |_, server| {
        let id = server.id("one");
        let host = server.host();
        let mut other = server.token.clone();
        let last = if other.ends_with('0') { "1" } else { "0" };
        other.replace_range(other.len() - 1.., last);
        let paths =
            ["/", "/api/runs", "/assets/page.js", &format!("/api/runs/{id}/overview"), &format!("/{other}"), "/x"];
        for path in paths {
            let nobody = request(server.port, "GET", path, &[("Host", &host)], b"");
            assert_eq!(nobody.status, 403, "{path}");
            let wrong = format!("headroom_{}={other}", server.port);
            let stranger = request(server.port, "GET", path, &[("Host", &host), ("Cookie", &wrong)], b"");
            assert_eq!(stranger.status, 403, "{path}");
            assert!(!stranger.text().contains("one"), "{}", stranger.text());
        }
    });
}

#[test]
fn another_name_in_the_host_header_is_refused_even_with_the_token() {
    with_a_run(&[], |_, server| {
        let cookie = server.cookie();
        let port = server.port;
        let other_port = format!("127.0.0.1:{}", port ^ 1);
        let named = format!("headroom.example:{port}");
        for host in ["headroom.example", &named, "127.0.0.1", &other_port, "localhost", ""] {
            for path in ["/".to_string(), format!("/{}", server.token)] {
                let response = request(port, "GET", &path, &[("Host", host), ("Cookie", &cookie)], b"");
                assert!(response.status == 421 || response.status == 400, "{host}: {}", response.head);
                assert!(response.header("set-cookie").is_none());
            }
        }
        let none = request(port, "GET", "/", &[("Cookie", &cookie)], b"");
        assert!(none.status == 421 || none.status == 400, "{}", none.head);
        let local = format!("localhost:{port}");
        assert_eq!(request(port, "GET", "/", &[("Host", &local), ("Cookie", &cookie)], b"").status, 200);
    });
}

#[test]
fn no_path_leads_out_of_a_run_folder() {
    with_a_run(&[], |folder, server| {
        let id = server.id("one");
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder.join("secret.json"), folder.join("runs/one/link.json")).unwrap();
        fs::create_dir(folder.join("runs/one/inner")).unwrap();
        fs::write(folder.join("runs/one/inner/deep.json"), "\"the secret\"").unwrap();
        assert_eq!(server.get(&format!("/runs/{id}/files/config.json")).status, 200);
        let names = [
            "../../secret.json",
            "..%2F..%2Fsecret.json",
            "..%2f..%2fsecret.json",
            "%2e%2e%2f%2e%2e%2fsecret.json",
            "..%5c..%5csecret.json",
            "....//....//secret.json",
            "%252e%252e%252f%252e%252e%252fsecret.json",
            "config.json%00.md",
            "link.json",
            "inner%2Fdeep.json",
            "inner",
            ".",
            "..",
            "%2Fetc%2Fpasswd",
        ];
        for name in names {
            let response = server.get(&format!("/runs/{id}/files/{name}"));
            assert!((400..500).contains(&response.status), "{name}: {}", response.head);
            assert!(!response.text().contains("the secret") && !response.text().contains("root:"), "{name}");
        }
        for path in [
            "/../secret.json",
            "/assets/..%2f..%2fsecret.json",
            "/runs/..%2f../overview",
            "/runs/%2e%2e/files/secret.json",
        ] {
            let response = server.get(path);
            assert!((400..500).contains(&response.status), "{path}: {}", response.head);
        }
    });
}

#[test]
fn oversized_requests_are_refused_and_the_server_goes_on() {
    with_a_run(&[], |_, server| {
        let (host, cookie) = (server.host(), server.cookie());
        let long = format!("/{}", "a".repeat(4000));
        let answered = |response: crate::http::Response| response.status;
        assert_eq!(answered(server.get(&long)), 414);
        assert_eq!(answered(server.get(&format!("/{}", "a".repeat(100_000)))), 431);
        let large = "b".repeat(20_000);
        let headers = [("Host", host.as_str()), ("Cookie", cookie.as_str()), ("X-Large", large.as_str())];
        assert_eq!(answered(request(server.port, "GET", "/", &headers, b"")), 431);
        let many: Vec<(String, String)> = (0..200).map(|at| (format!("X-{at}"), "1".into())).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(answered(request(server.port, "GET", "/", &[&headers[..2], &many].concat(), b"")), 431);
        for method in ["GET", "DELETE", "POST"] {
            let body = request(server.port, method, "/api/runs", &headers[..2], &[b'x'; 5000]);
            assert_eq!(body.status, 413, "{method}");
            // Announced but not sent: the answer comes before the body would.
            let announced = [&headers[..2], &[("Content-Length", "10000000000")]].concat();
            assert_eq!(request(server.port, method, "/api/runs", &announced, b"").status, 413, "{method}");
        }
        let claimed = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nContent-Length: 99999999999999999999\r\n\r\n"
        );
        assert_eq!(answered(send(server.port, claimed.as_bytes())), 400);
        let chunked = format!(
            "POST /api/runs HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n"
        );
        assert_eq!(answered(send(server.port, chunked.as_bytes())), 411);
        assert_eq!(answered(send(server.port, b"\x16\x03\x01 nonsense\r\n\r\n")), 400);
        assert_eq!(answered(server.get("/api/runs")), 200);
    });
}

#[test]
fn silent_and_dripping_senders_are_sent_away_and_keep_nobody_out() {
    /// More than the server has slots for.
    const SENDERS: usize = 200;
    with_a_run(&[], |_, server| {
        let idle = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.host());
        let mut senders: Vec<TcpStream> =
            (0..SENDERS).map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap()).collect();
        for (number, sender) in senders.iter_mut().enumerate() {
            // Nothing at all; headers that never end; a whole request, and then nothing.
            let said = ["", "GET / HTTP/1.1\r\nX-Slow: ", &idle][number % 3];
            let _ = sender.write_all(said.as_bytes());
        }
        let began = Instant::now();
        let dripping = AtomicBool::new(true);
        let status = thread::scope(|scope| {
            scope.spawn(|| {
                while dripping.load(Ordering::Relaxed) {
                    for mut sender in senders.iter().skip(1).step_by(3) {
                        let _ = sender.write_all(b"x");
                    }
                    thread::sleep(Duration::from_millis(300));
                }
            });
            let status = server.get("/api/runs").status;
            dripping.store(false, Ordering::Relaxed);
            status
        });
        assert_eq!(status, 200);
        assert!(began.elapsed() < Duration::from_secs(15), "answered after {:?}", began.elapsed());
        for (number, mut sender) in senders.into_iter().take(60).enumerate() {
            sender.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            // Reads to the end: the server must have closed or reset the connection.
            let ended = sender.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
            assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "sender {number}: {ended:?}");
        }
    });
}

#[test]
fn nobody_waits_long_for_those_who_never_read() {
    /// As many as the server has slots, and more that wait.
    const READERS: usize = 160;
    with_a_run(&[], |_, server| {
        // More answers than the sockets can buffer; none of them is read.
        let (host, cookie) = (server.host(), server.cookie());
        let asked =
            format!("GET /assets/timeline.js HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").repeat(2_000);
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut reader = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
                reader.set_nonblocking(true).unwrap();
                let _ = reader.write(asked.as_bytes());
                reader
            })
            .collect();
        // They have their slots now.
        thread::sleep(Duration::from_millis(300));
        for _ in 0..2 {
            let began = Instant::now();
            assert_eq!(server.get("/api/runs").status, 200);
            assert!(began.elapsed() < Duration::from_secs(15), "answered after {:?}", began.elapsed());
        }
        drop(readers);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_given_back_after_clients_that_do_not_read() {
    const READERS: usize = 120;
    const MOST_MEBIBYTES: u64 = 200;
    with_a_run(&[], |folder, server| {
        // A size that an allocator keeps for itself once it was freed.
        fs::write(folder.join("runs/one/report.html"), vec![b'x'; 8 << 20]).unwrap();
        let (host, cookie, id) = (server.host(), server.cookie(), server.id("one"));
        let whole = server.get(&format!("/runs/{id}/files/report.html"));
        assert_eq!((whole.status, whole.text().len()), (200, 8 << 20));
        let asked = format!("GET /runs/{id}/files/report.html HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n");
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut reader = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
                reader.write_all(asked.as_bytes()).unwrap();
                reader
            })
            .collect();
        let mut most = 0;
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            most = most.max(server.resident_mebibytes());
        }
        assert!(most < MOST_MEBIBYTES, "{most} MiB while {READERS} do not read");
        drop(readers);
    });
}

#[test]
fn those_who_come_again_and_again_without_the_token_keep_nobody_out() {
    with_a_run(&[], |_, server| {
        let coming = AtomicBool::new(true);
        let refused = format!("GET /api/runs HTTP/1.1\r\nHost: {}\r\n\r\n", server.host());
        thread::scope(|scope| {
            for thread in 0..4 {
                let (coming, refused) = (&coming, &refused);
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    while coming.load(Ordering::Relaxed) {
                        let Ok(mut one) = TcpStream::connect(("127.0.0.1", server.port)) else { continue };
                        // Silent connections, and connections that send a request.
                        let _ = if thread % 2 == 0 { Ok(0) } else { one.write(refused.as_bytes()) };
                        kept.push_back(one);
                        if kept.len() > 100 {
                            kept.pop_front();
                        }
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            thread::sleep(Duration::from_millis(500));
            let asked: Vec<(u16, Duration)> = (0..5)
                .map(|_| {
                    let began = Instant::now();
                    (server.get("/api/runs").status, began.elapsed())
                })
                .collect();
            coming.store(false, Ordering::Relaxed);
            for (status, took) in asked {
                assert_eq!(status, 200);
                assert!(took < Duration::from_secs(5), "answered after {took:?}");
            }
        });
    });
}

#[test]
fn nothing_is_deleted_without_being_asked_for_and_by_no_other_page() {
    with_a_run(&[], |folder, server| {
        let delete = |server: &Server, origin: Option<String>| {
            let (host, cookie) = (server.host(), server.cookie());
            let mut headers = vec![("Host", host.as_str()), ("Cookie", cookie.as_str())];
            headers.extend(origin.as_deref().map(|origin| ("Origin", origin)));
            request(server.port, "DELETE", &format!("/api/runs/{}", server.id("one")), &headers, b"").status
        };
        let own = |server: &Server| Some(format!("http://127.0.0.1:{}", server.port));
        assert_eq!(delete(server, own(server)), 403, "read-only");
        let open = Server::start(folder, &["--allow-changes"]);
        assert_eq!(delete(&open, None), 403);
        assert_eq!(delete(&open, Some("http://headroom.example".into())), 403);
        assert!(folder.join("runs/one/config.json").is_file());
        let (host, cookie, origin) = (open.host(), open.cookie(), own(&open).unwrap());
        let headers = [("Host", host.as_str()), ("Cookie", cookie.as_str()), ("Origin", origin.as_str())];
        let name = format!("/api/runs/{}/name", open.id("one"));
        assert_eq!(request(open.port, "PUT", &name, &headers[..2], b"mine").status, 403);
        assert_eq!(request(open.port, "PUT", &name, &headers, b"baseline").status, 200);
        assert_eq!(open.id("baseline"), server.id("baseline"), "the registry has its name");
        assert_eq!(request(open.port, "PUT", &name, &headers, b"").status, 200);
        fs::write(folder.join("runs/one/notes.txt"), "mine").unwrap();
        assert_eq!(delete(&open, own(&open)), 200);
        let left: Vec<_> =
            fs::read_dir(folder.join("runs/one")).unwrap().flatten().map(|one| one.file_name()).collect();
        assert_eq!(left, ["notes.txt"], "what is not the run's stays");
    });
}

#[test]
fn only_loopback_is_listened_on() {
    with_a_run(&[], |_, server| {
        let reached = |address: &str| TcpStream::connect((address, server.port)).is_ok();
        assert!(reached("127.0.0.1"));
        // Another address of the loopback network: a server on all interfaces would answer there.
        assert!(!reached("127.0.0.2"), "the server listens on more than 127.0.0.1");
    });
}

#[test]
fn what_cannot_be_served_is_said_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let output = headroom(folder.path()).args(["serve", "missing.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("missing.json: there is no such file or folder"), "{text}");
    let first = Server::start(folder.path(), &[]);
    let output = headroom(folder.path()).args(["serve", "--port", &first.port.to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "the port is taken");
    let text = String::from_utf8_lossy(&output.stderr);
    for words in ["cannot listen on 127.0.0.1", "in use", "help: leave --port out"] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
}

#[test]
fn a_trace_that_cannot_be_read_says_so_on_its_page_and_nothing_falls() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.json"), "{\"traceEvents\": 7").unwrap();
    let server = Server::start(folder.path(), &["broken.json"]);
    let id = server.id("broken.json");
    for page in ["overview", "operators", "timeline", "memory", "roofline"] {
        let response = server.get(&format!("/api/runs/{id}/{page}"));
        assert_eq!(response.status, 422, "{page}: {}", response.text());
        assert!(response.text().contains("broken.json"), "{}", response.text());
    }
    assert_eq!(server.get(&format!("/api/runs/{id}/alive/abc")).status, 400);
    assert_eq!(server.get("/api/runs/0000000000000000/overview").status, 404);
}

#[test]
#[cfg(unix)]
fn a_trace_behind_a_link_that_leads_out_of_the_folder_is_not_read() {
    use std::os::unix::fs::symlink;
    with_a_run(&[], |folder, server| {
        let secret = r#"[{"ph":"X","cat":"cpu_op","name":"the secret","pid":1,"tid":1,"ts":1,"dur":9}]"#;
        fs::write(folder.join("secret.json"), secret).unwrap();
        symlink(folder.join("secret.json"), folder.join("runs/one/trace_step_1.json")).unwrap();
        let id = server.id("one");
        assert!(!server.get(&format!("/api/runs/{id}/operators")).text().contains("the secret"));

        fs::create_dir(folder.join("runs/linked")).unwrap();
        symlink(folder.join("secret.json"), folder.join("runs/linked/a.pt.trace.json")).unwrap();
        let list = server.json("/api/runs").to_string();
        assert!(!list.contains("linked"), "{list}");

        // Next to a trace of the folder's own, and a link that stays inside.
        let own = secret.replace("the secret", "its own");
        fs::write(folder.join("runs/linked/b.pt.trace.json"), own).unwrap();
        symlink("b.pt.trace.json", folder.join("runs/linked/c.pt.trace.json")).unwrap();
        let id = server.id("linked");
        for page in ["overview", "operators"] {
            let shown = server.get(&format!("/api/runs/{id}/{page}"));
            assert!(!shown.text().contains("the secret"), "{page}: {}", shown.text());
        }
        assert!(server.get(&format!("/api/runs/{id}/operators")).text().contains("its own"));
    });
}

#[test]
fn a_folder_with_a_trace_of_any_name_is_listed_and_one_with_other_json_is_not() {
    with_a_run(&[], |folder, server| {
        let trace = r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":9}]}"#;
        for (name, file, text) in [("exported", "trace_cold.json", trace), ("samples", "list.json", r#"[{"id":1}]"#)] {
            fs::create_dir_all(folder.join("runs").join(name)).unwrap();
            fs::write(folder.join("runs").join(name).join(file), text).unwrap();
        }
        let id = server.id("exported");
        assert!(server.get(&format!("/api/runs/{id}/operators")).text().contains("\"a\""));
        assert!(!server.get("/api/runs").text().contains("samples"));
    });
}

#[test]
fn a_stray_trace_hides_no_run() {
    with_a_run(&[], |folder, server| {
        let trace = r#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":9}]"#;
        fs::write(folder.join("runs/stray.pt.trace.json"), trace).unwrap();
        server.id("one");
        server.id("runs");
    });
}
