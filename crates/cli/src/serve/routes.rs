//! Routes requests to their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::http::{Response, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::{get, put};
use headroom_report::dashboard::runs::Kind;
use headroom_report::dashboard::{Page, Subject, asset, page};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use super::bodies::{Pieces, computed};
use super::cache::Cache;
use super::catalog::{Catalog, Entry};
use super::guard::{self, Token};
use super::listen::Connection;
use super::pages::{self, Answer};
use super::{Access, changes, folder, reply};

pub struct State {
    catalog: Catalog,
    cache: Cache,
    access: Access,
    pub token: Token,
    port: u16,
    is_learning: AtomicBool,
    /// Places for answers that are being computed.
    places: Semaphore,
}

type App = Shared<Arc<State>>;
type Reply = Response<Body>;

impl State {
    pub fn new(catalog: Catalog, cache: Cache, access: Access, token: Token, port: u16) -> Arc<State> {
        let places = Semaphore::new(MOST_ANSWERS);
        Arc::new(State { catalog, cache, access, token, port, is_learning: AtomicBool::new(false), places })
    }

    /// Reads the named traces before they are requested.
    pub fn read_ahead(self: &Arc<State>) {
        for entry in self.catalog.named_traces() {
            let state = self.clone();
            tokio::task::spawn_blocking(move || {
                // A page that requests it later gets the reason if it cannot be read.
                let _ = pages::timeline(&entry, &state.cache);
                let _ = pages::overview(&entry, &state.cache);
            });
        }
    }
}

/// Answers that are computed at a time: each is in memory as a whole. More than a browser asks for.
const MOST_ANSWERS: usize = 16;

/// Larger traces are read only when opened, not for the list.
const LARGEST_TO_LEARN: u64 = 64 << 20;
const MOST_TO_LEARN: usize = 40;

impl State {
    /// Computes the figures of traces one by one in the background. Returns how many are still missing.
    fn learn(self: &Arc<State>, entries: impl Iterator<Item = Entry>) -> usize {
        let unknown = entries.filter(|entry| entry.kind == Kind::Trace && self.cache.figures(&entry.path).is_none());
        let small = |entry: &Entry| folder::bytes_of_traces(&entry.path) <= LARGEST_TO_LEARN;
        let wanted: Vec<Entry> = unknown.filter(small).take(MOST_TO_LEARN).collect();
        let count = wanted.len();
        if count > 0 && !self.is_learning.swap(true, Ordering::SeqCst) {
            let state = self.clone();
            tokio::task::spawn_blocking(move || {
                wanted.iter().for_each(|entry| state.cache.learn_figures(&entry.path));
                state.is_learning.store(false, Ordering::SeqCst);
            });
        }
        count
    }
}

pub fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(|| async { reply::html(page(Page::Runs, None)) }))
        .route("/compare/{before}/{after}", get(|| async { reply::html(page(Page::Compare, None)) }))
        .route("/assets/{name}", get(send_asset))
        .route("/runs/{id}/{page}", get(run_page))
        .route("/runs/{id}/files/{name}", get(file))
        .route("/api/runs", get(runs))
        .route("/api/runs/{id}", axum::routing::delete(delete))
        .route("/api/runs/{id}/name", put(rename))
        .route("/api/runs/{id}/timeline", get(timeline))
        .route("/api/runs/{id}/alive/{microseconds}", get(alive))
        .route("/api/runs/{id}/{page}", get(data))
        .route("/api/compare/{before}/{after}", get(compare))
        .fallback(|| async { reply::problem(StatusCode::NOT_FOUND, "there is no such page") })
        .layer(middleware::from_fn_with_state(state.clone(), guarded))
        .with_state(state)
}

async fn guarded(Shared(state): App, request: Request, next: Next) -> Reply {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    if let Err(refusal) = guard::check_shape(uri, headers, state.port) {
        return reply::refusal(refusal);
    }
    let visitor = request.extensions().get::<Connection>().cloned();
    if uri.path().strip_prefix('/').is_some_and(|given| state.token.matches(given)) {
        visitor.iter().for_each(Connection::mark_authenticated);
        return reply::welcome(&guard::set_cookie(state.port, &state.token));
    }
    match guard::check_sender(method, headers, state.port, &state.token) {
        Ok(()) => {
            visitor.iter().for_each(Connection::mark_authenticated);
            next.run(request).await
        }
        Err(refusal) => reply::refusal(refusal),
    }
}

async fn send_asset(Path(name): Path<String>) -> Reply {
    match asset(&name) {
        Some(asset) => reply::asset(asset.content_type, asset.text),
        None => reply::problem(StatusCode::NOT_FOUND, "there is no such file"),
    }
}

async fn run_page(Shared(state): App, Path((id, name)): Path<(String, String)>) -> Reply {
    let Some(wanted) = Page::of_a_run(&name) else {
        return reply::problem(StatusCode::NOT_FOUND, "there is no such page");
    };
    with_entry(state, id, move |entry, _| {
        let pages = pages::offered(entry);
        let subject = Subject { id: &entry.id, name: &entry.name, pages: &pages };
        reply::html(page(wanted, Some(&subject)))
    })
    .await
}

/// A file of the run, by a name listed for its folder.
async fn file(Shared(state): App, Path((id, name)): Path<(String, String)>) -> Reply {
    with_entry(state, id, move |entry, _| {
        if !folder::shown_files(&entry.path).contains(&name) {
            return reply::problem(StatusCode::NOT_FOUND, "there is no such file in this run");
        }
        let opened = folder::open_plain_file(&entry.path.join(&name)).and_then(Pieces::of).map(Body::new);
        match (opened, folder::content_type(&name)) {
            (Ok(bytes), Some(content_type)) => reply::file(content_type, bytes),
            (Ok(bytes), None) => reply::report(bytes),
            (Err(error), _) => reply::problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    })
    .await
}

async fn runs(Shared(state): App) -> Reply {
    blocking(state.clone(), move || {
        let listing = state.catalog.list();
        let rows: Vec<_> = listing.entries.values().map(|entry| pages::row(entry, &state.cache)).collect();
        let may_change = state.access == Access::Changes;
        let learning = state.learn(listing.entries.into_values());
        reply::json(&json!({ "runs": rows, "notes": listing.notes, "may_change": may_change, "learning": learning }))
    })
    .await
}

async fn data(Shared(state): App, Path((id, name)): Path<(String, String)>) -> Reply {
    with_entry(state, id, move |entry, state| {
        match Page::of_a_run(&name).and_then(|page| pages::data(page, entry, &state.cache)) {
            Some(Ok(text)) => reply::file("application/json", computed(text)),
            Some(Err(reason)) => reply::problem(StatusCode::UNPROCESSABLE_ENTITY, &reason),
            None => reply::problem(StatusCode::NOT_FOUND, "there is no such data"),
        }
    })
    .await
}

async fn timeline(Shared(state): App, Path(id): Path<String>) -> Reply {
    with_entry(state, id, |entry, state| match pages::timeline(entry, &state.cache) {
        Ok(bytes) => reply::bytes(bytes.into()),
        Err(reason) => reply::problem(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    })
    .await
}

async fn alive(Shared(state): App, Path((id, microseconds)): Path<(String, String)>) -> Reply {
    let Some(microseconds) = microseconds.parse::<f64>().ok().filter(|time| time.is_finite()) else {
        return reply::problem(StatusCode::BAD_REQUEST, "the moment is not a number of microseconds");
    };
    with_entry(state, id, move |entry, state| answer(pages::alive(entry, &state.cache, microseconds / 1e6))).await
}

async fn compare(Shared(state): App, Path((before, after)): Path<(String, String)>) -> Reply {
    blocking(state.clone(), move || {
        let mut entries = state.catalog.list().entries;
        // Both may be the same run.
        let (Some(left), Some(right)) = (entries.get(&before).cloned(), entries.remove(&after)) else {
            return reply::problem(StatusCode::NOT_FOUND, "one of the two runs is gone");
        };
        answer(pages::compare(&left, &right, &state.cache))
    })
    .await
}

async fn delete(Shared(state): App, Path(id): Path<String>) -> Reply {
    change(state, id, changes::delete).await
}

/// The body is the name itself; an empty one removes the name.
async fn rename(Shared(state): App, Path(id): Path<String>, name: String) -> Reply {
    change(state, id, move |entry| changes::name(entry, name.trim())).await
}

async fn change(
    state: Arc<State>,
    id: String,
    work: impl FnOnce(&Entry) -> anyhow::Result<()> + Send + 'static,
) -> Reply {
    if state.access == Access::ReadOnly {
        return reply::problem(StatusCode::FORBIDDEN, "this dashboard is read-only: start it with --allow-changes");
    }
    with_entry(state, id, |entry, _| match work(entry) {
        Ok(()) => reply::json(&json!({ "changed": entry.id })),
        Err(error) => reply::problem(StatusCode::CONFLICT, &format!("{error:#}")),
    })
    .await
}

fn answer(found: Answer<impl Serialize>) -> Reply {
    match found {
        Ok(found) => reply::json(&found),
        Err(reason) => reply::problem(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    }
}

async fn with_entry(
    state: Arc<State>,
    id: String,
    work: impl FnOnce(&Entry, &State) -> Reply + Send + 'static,
) -> Reply {
    blocking(state.clone(), move || match state.catalog.find(&id) {
        Some(entry) => work(&entry, &state),
        None => reply::problem(StatusCode::NOT_FOUND, "there is no such run: it may have been deleted"),
    })
    .await
}

/// Files and measures take time; the socket does not wait for them.
async fn blocking(state: Arc<State>, work: impl FnOnce() -> Reply + Send + 'static) -> Reply {
    let failed = || reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "the server failed on this request");
    let Ok(_place) = state.places.acquire().await else { return failed() };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| failed())
}
