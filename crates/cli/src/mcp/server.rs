//! The server: lists the tools, and turns a call's arguments into its answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::allowed::Allowed;
use super::bounds::Answer;
use super::command::{Done, Failure, Starter};
use super::folders::Folders;
use super::kept::{Kept, Stamp};
use super::runs_here::runs_here;
use super::tools::{OFFERS, Offer, Prepared};

/// The number of expensive commands that run at a time; others wait for a slot, light ones do not.
const HEAVY: usize = 2;
const LIGHT: usize = 16;

/// The most bytes of an error's text.
const MOST_ERROR: usize = 8_000;

/// How long commands may take to end after the client has left.
const FAREWELL: Duration = Duration::from_secs(8);

const INSTRUCTIONS: &str = "Headroom reports how far a training run is from what the hardware allows, why, and what to change. \
    Begin with `lint` on a script or `analyze` on a trace; `explain` has the page of every rule code. Answers are bounded: `cut` \
    names lists that were shortened, and `at`, `from` and `max_bytes` ask for more. Paths must lie in the server's folders; \
    relative paths start at the first.";

#[derive(Clone)]
pub struct Server(Arc<Parts>);

struct Parts {
    folders: Folders,
    allowed: Allowed,
    starter: Starter,
    kept: Kept,
    heavy: Semaphore,
    light: Semaphore,
}

impl Server {
    pub fn new(folders: Folders, allowed: Allowed, program: std::path::PathBuf) -> Server {
        let starter = Starter { program, folder: folders.first().to_path_buf() };
        let (heavy, light) = (Semaphore::new(HEAVY), Semaphore::new(LIGHT));
        Server(Arc::new(Parts { folders, allowed, starter, kept: Kept::default(), heavy, light }))
    }

    #[cfg(test)]
    pub fn folders(&self) -> &Folders {
        &self.0.folders
    }

    /// Waits until no command is running; cancelled ones end on their own.
    pub async fn rest(&self) {
        let all = async {
            let _heavy = self.0.heavy.acquire_many(HEAVY as u32).await;
            let _light = self.0.light.acquire_many(LIGHT as u32).await;
        };
        let _ = tokio::time::timeout(FAREWELL, all).await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = Implementation::new("headroom", env!("CARGO_PKG_VERSION")).with_title("Headroom");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(OFFERS.iter().map(|offer| offer.tool(&self.0.allowed)).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        Offer::named(name).map(|offer| offer.tool(&self.0.allowed))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(offer) = Offer::named(&request.name) else {
            let names: Vec<&str> = OFFERS.iter().map(|offer| offer.name).collect();
            let told = format!("there is no tool `{}`: choose from {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(told, None));
        };
        let result = match self.answer(offer, request.arguments.unwrap_or_default(), &context).await {
            Ok(answer) => structured(&answer),
            Err(Failure::Told(why)) => told(&why),
            Err(Failure::Cancelled) => told("cancelled"),
        };
        Ok(result.into())
    }
}

fn structured(answer: &Answer) -> CallToolResult {
    match serde_json::to_value(answer) {
        Ok(value) => CallToolResult::structured(value),
        Err(error) => told(&format!("the answer cannot be written: {error}")),
    }
}

/// An error of the tool, which the client's model reads.
fn told(why: &str) -> CallToolResult {
    let end = (0..=MOST_ERROR.min(why.len())).rev().find(|&at| why.is_char_boundary(at)).unwrap_or(0);
    CallToolResult::error(vec![ContentBlock::text(&why[..end])])
}

/// The error as the command line words it.
fn failure(error: anyhow::Error) -> Failure {
    Failure::Told(crate::failure::message(&error))
}

impl Server {
    async fn answer(
        &self,
        offer: &Offer,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, Failure> {
        let prepared = offer.prepared(&self.0.folders, &self.0.allowed, arguments).map_err(failure)?;
        let done = self.done(offer, &prepared, context).await?;
        let folders = self.0.folders.clone();
        let Prepared { page, of_these_folders, .. } = prepared;
        // Cutting a large document takes a moment: other calls are answered meanwhile.
        let cut = tokio::task::spawn_blocking(move || {
            let (mut document, mut notes) = (done.document.clone(), done.notes.clone());
            if of_these_folders {
                let (here, left) = runs_here(document, &folders)?;
                (document, notes) = (here, [notes, left].concat());
            }
            page.of(document, notes, done.exit_code)
        });
        let cut = cut.await.map_err(|error| Failure::Told(format!("the answer cannot be cut: {error}")))?;
        cut.map_err(failure)
    }

    /// The cached result, or a new one.
    async fn done(
        &self,
        offer: &Offer,
        prepared: &Prepared,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<Done>, Failure> {
        let stamp = if prepared.reads.is_empty() { None } else { Stamp::of(&prepared.reads) };
        if let Some(known) = stamp.as_ref().and_then(|stamp| self.0.kept.find(&prepared.words, stamp)) {
            return Ok(known);
        }
        let places = if offer.is_heavy { &self.0.heavy } else { &self.0.light };
        let _place = tokio::select! {
            place = places.acquire() => place.map_err(|_| Failure::Cancelled)?,
            () = context.ct.cancelled() => return Err(Failure::Cancelled),
        };
        let (tell, lines) = unbounded_channel();
        let work = self.0.starter.run(&prepared.words, context.ct.cancelled(), tell);
        let (done, ()) = tokio::join!(work, progress(lines, context));
        let done = Arc::new(done?);
        if let Some(stamp) = stamp {
            self.0.kept.keep(prepared.words.clone(), stamp, &done);
        }
        Ok(done)
    }
}

/// Forwards lines as they come to a client that asked for progress.
async fn progress(mut lines: UnboundedReceiver<String>, context: &RequestContext<RoleServer>) {
    let token = context.meta.get_progress_token();
    let mut count = 0.0;
    while let Some(line) = lines.recv().await {
        let Some(token) = token.clone() else { continue };
        count += 1.0;
        // A client that has left loses nothing.
        let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, count).with_message(line)).await;
    }
}
