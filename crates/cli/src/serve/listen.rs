//! The socket: loopback only, small headers, few connections, and short timeouts for clients that do not send or read.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

/// The most bytes of request line and headers; hyper answers longer ones with 431.
const MOST_HEAD_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
/// For a complete header, and for a connection that stays silent after its last answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A client that takes fewer bytes than this within that time is not reading; others wait no longer for its slot.
const LEAST_READ_BYTES: usize = 64 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Far more than browsers open, and far fewer than a process's file limit, so that traces can always be read.
const MOST_CONNECTIONS: usize = 128;
/// A listener that keeps failing must not spin.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

pub async fn bind(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{port}\n  help: leave --port out for a free one"))
}

/// Serves until the process is ended.
pub async fn serve(listener: TcpListener, router: Router) -> Result<ExitCode> {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let strangers = Arc::new(UnauthenticatedConnections::default());
    for number in 0.. {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            continue;
        };
        // Authenticated clients never wait for unauthenticated ones.
        if places.available_permits() == 0 {
            strangers.send_the_oldest_away();
        }
        let place = places.clone().acquire_owned().await.context("the server's places are gone")?;
        let visitor = Connection { number, strangers: strangers.clone() };
        let service = TowerToHyperService::new(router.clone().layer(Extension(visitor.clone())));
        let leaving = ForgetOnDrop(visitor);
        let task = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .max_buf_size(MOST_HEAD_BYTES)
                .max_headers(MOST_HEADERS)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(Read { stream, taken: 0, deadline: None }), service);
            // A client that left, or did not send HTTP, harms only itself.
            let _ = connection.await;
            drop((leaving, place));
        });
        strangers.lock().insert(number, task.abort_handle());
    }
    Ok(ExitCode::SUCCESS)
}

/// Connections that have not shown the token yet, in order of arrival.
#[derive(Default)]
struct UnauthenticatedConnections(Mutex<BTreeMap<u64, AbortHandle>>);

impl UnauthenticatedConnections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_the_oldest_away(&self) {
        let oldest = self.lock().pop_first();
        if let Some((_, task)) = oldest {
            task.abort();
        }
    }
}

/// A connection, as seen by its requests.
#[derive(Clone)]
pub struct Connection {
    number: u64,
    strangers: Arc<UnauthenticatedConnections>,
}

impl Connection {
    /// The connection has shown the token and keeps its slot.
    pub fn mark_authenticated(&self) {
        self.strangers.lock().remove(&self.number);
    }
}

/// Forgets a connection that has ended, however it ended.
struct ForgetOnDrop(Connection);

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        self.0.mark_authenticated();
    }
}

/// A stream whose peer must read what it is sent.
struct Read<S> {
    stream: S,
    /// Bytes taken since the last flush, or since the last `LEAST_READ_BYTES`.
    taken: usize,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Read<S> {
    fn judge(&mut self, context: &mut TaskContext<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.taken += bytes;
                if self.taken >= LEAST_READ_BYTES {
                    self.begin_anew();
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(READ_TIMEOUT)));
                deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
            failed => failed,
        }
    }

    fn begin_anew(&mut self) {
        (self.taken, self.deadline) = (0, None);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Read<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Read<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when all of an answer has been taken.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.begin_anew();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
