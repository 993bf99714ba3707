//! The socket: loopback only, small heads, few at a time, no patience for slow ones.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The most that request line and headers may take; hyper answers longer ones with 431.
const MOST_HEAD_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
/// For a whole head, and for one that stays silent after its last answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Far more than browsers open, far fewer than the files that a process may have open: traces can always be read.
const MOST_CONNECTIONS: usize = 128;
/// A listener that fails at once again and again must not spin.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

pub async fn bind(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{port}\n  help: leave --port out for a free one"))
}

/// Answers until the process is ended.
pub async fn serve(listener: TcpListener, router: Router) -> Result<ExitCode> {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Whoever finds all places taken waits in the system's queue until a silent one has been sent away.
        let place = places.clone().acquire_owned().await.context("the server's places are gone")?;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .max_buf_size(MOST_HEAD_BYTES)
                .max_headers(MOST_HEADERS)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A browser that went away, or that sent what is no HTTP: its loss alone.
            let _ = connection.await;
            drop(place);
        });
    }
}
