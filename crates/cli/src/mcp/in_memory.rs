//! A server without a client's process: what one would send goes in as bytes, and what it would receive comes out.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rmcp::service::ServiceExt;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use super::allowed::Allowed;
use super::folders::Folders;
use super::lines::BoundedLines;
use super::server::Server;

/// How long one session may take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server whose commands cannot start: what is left is the protocol.
pub struct InMemory {
    runtime: Runtime,
    server: Server,
    _folder: TempDir,
}

impl InMemory {
    pub fn new() -> Result<InMemory> {
        let folder = tempfile::tempdir()?;
        let folders = Folders::new(&[folder.path().to_path_buf()])?;
        let server = Server::new(folders, Allowed::default(), PathBuf::from("/nonexistent/headroom"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(InMemory { runtime, server, _folder: folder })
    }

    /// A whole session: the client sends these bytes and leaves. Returns what it was sent.
    pub fn session(&self, sent: Vec<u8>) -> Result<Vec<u8>> {
        self.runtime.block_on(async {
            let (mut ours, theirs) = tokio::io::duplex(1 << 20);
            let server = self.server.clone();
            let talk = async move {
                // A client that does not begin correctly is refused.
                let input = BoundedLines::new(std::io::Cursor::new(sent), |_| {});
                if let Ok(talking) = server.serve((input, theirs)).await {
                    let _ = talking.waiting().await;
                }
            };
            let mut answers = Vec::new();
            let both = async { tokio::join!(talk, ours.read_to_end(&mut answers)).1 };
            let ended = tokio::time::timeout(PATIENCE, both).await;
            ensure!(ended.is_ok(), "the session did not end within {} s", PATIENCE.as_secs());
            ended?.context("the answers cannot be read")?;
            Ok(answers)
        })
    }
}
