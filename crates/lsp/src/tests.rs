//! An in-memory client for tests, and checks of what it receives.

mod answers;
mod documents;
mod endings;
mod faults;
mod files;
mod notebooks;
mod speed;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_lint::SourceReport;
use lsp_server::{Connection, Message, Notification, Request, RequestId, Response, ResponseError};
use lsp_types::{Diagnostic, PublishDiagnosticsParams, Uri};
use serde_json::{Value, json};

use crate::server::Server;
use crate::settings::Settings;
use crate::workspace::Question;
use crate::{Ending, lint_within, session};

/// A loop with findings whose fixes may change results, and one with a safe fix.
pub const SCRIPT: &str = "import torch\n\n\ndef train(model, loader, optimizer, criterion):\n    total = 0.0\n    for step, (x, y) in enumerate(loader):\n        loss = criterion(model(x.cuda()), y.cuda())\n        optimizer.zero_grad(set_to_none=False); mask = torch.zeros(8).to(\"cuda\")\n        loss.backward()\n        optimizer.step()\n        total += loss.item()\n        if step % 10 == 0:\n            print(total)\n";

/// Far longer than any wait here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Editor {
    connection: Connection,
    server: JoinHandle<Ending>,
    last_id: i32,
    /// Messages that arrived while waiting for another one.
    seen: Vec<Message>,
    /// Answers to `workspace/configuration`, by the folder that is asked about; `""` for everywhere.
    pub settings: HashMap<String, Value>,
}

pub fn check(question: &Question) -> SourceReport {
    lint_within(question.inputs, question.projects, &question.selection)
}

/// Capabilities of a client that supports everything.
pub fn able() -> Value {
    json!({
        "general": {"positionEncodings": ["utf-16"]},
        "workspace": {
            "configuration": true,
            "workspaceEdit": {"documentChanges": true},
            "didChangeWatchedFiles": {"dynamicRegistration": true},
            "inlayHint": {"refreshSupport": true},
        },
        "textDocument": {
            "hover": {"contentFormat": ["markdown"]},
            "codeAction": {"resolveSupport": {"properties": ["edit"]}},
        },
    })
}

impl Editor {
    /// Starts a server that no client has spoken to yet.
    pub fn silent(settings: Settings, lint: impl Fn(&Question) -> SourceReport + Send + 'static) -> Editor {
        let (ours, theirs) = Connection::memory();
        let server = std::thread::spawn(move || session::run(Server::new(theirs, settings, Box::new(lint))));
        Editor { connection: ours, server, last_id: 0, seen: Vec::new(), settings: HashMap::new() }
    }

    /// Starts a server and introduces a client with these capabilities, folders and options.
    pub fn start(capabilities: Value, folders: &[&Path], options: Value) -> Editor {
        let mut editor = Editor::silent(Settings::default(), check);
        editor.introduce(capabilities, folders, options);
        editor
    }

    pub fn introduce(&mut self, capabilities: Value, folders: &[&Path], options: Value) -> Value {
        let folder = |path: &&Path| json!({"uri": uri(path), "name": "folder"});
        let folders: Vec<Value> = folders.iter().map(folder).collect();
        let params = json!({
            "capabilities": capabilities, "workspaceFolders": folders, "initializationOptions": options, "processId": null,
        });
        let result = self.request("initialize", params).expect("an introduction");
        self.notify("initialized", json!({}));
        result
    }

    pub fn notify(&self, method: &str, params: Value) {
        let sent = self.connection.sender.send(Notification::new(method.to_string(), params).into());
        sent.expect("the server listens");
    }

    /// Waits until the server has received everything that was sent, whether or not it has worked on it.
    pub fn until_taken_in(&self) {
        // The last message changes nothing: once it is taken from the channel, all earlier ones are in the queue.
        self.notify("$/cancelRequest", json!({"id": "nobody asked"}));
        let begin = Instant::now();
        while !self.connection.sender.is_empty() {
            assert!(begin.elapsed() < PATIENCE, "the server does not take messages in");
            std::thread::yield_now();
        }
    }

    pub fn ask(&mut self, method: &str, params: Value) -> RequestId {
        self.last_id += 1;
        let id = RequestId::from(self.last_id);
        let request = Request { id: id.clone(), method: method.to_string(), params };
        self.connection.sender.send(request.into()).expect("the server listens");
        id
    }

    pub fn request(&mut self, method: &str, params: Value) -> Result<Value, ResponseError> {
        let id = self.ask(method, params);
        self.response(&id)
    }

    pub fn response(&mut self, id: &RequestId) -> Result<Value, ResponseError> {
        let response = self.wait(&format!("an answer to {id}"), |message| match message {
            Message::Response(response) if response.id == *id => Some(response.clone()),
            _ => None,
        });
        response.response_result
    }

    /// The parameters of the next notification with this method.
    pub fn notification(&mut self, method: &str) -> Value {
        self.wait(method, |message| match message {
            Message::Notification(notification) if notification.method == method => Some(notification.params.clone()),
            _ => None,
        })
    }

    /// The parameters of the server's next request with this method.
    pub fn request_of_server(&mut self, method: &str) -> Value {
        self.wait(method, |message| match message {
            Message::Request(request) if request.method == method => Some(request.params.clone()),
            _ => None,
        })
    }

    /// The next diagnostics of a document for which `fits` holds.
    pub fn diagnostics_where(
        &mut self,
        uri: &str,
        fits: impl Fn(&PublishDiagnosticsParams) -> bool,
    ) -> Vec<Diagnostic> {
        let found = self.wait(&format!("diagnostics of {uri}"), |message| match message {
            Message::Notification(one) if one.method == "textDocument/publishDiagnostics" => {
                let params: PublishDiagnosticsParams = serde_json::from_value(one.params.clone()).expect("diagnostics");
                (params.uri.as_str() == uri && fits(&params)).then_some(params)
            }
            _ => None,
        });
        found.diagnostics
    }

    pub fn diagnostics(&mut self, uri: &str, version: i32) -> Vec<Diagnostic> {
        self.diagnostics_where(uri, |params| params.version == Some(version))
    }

    pub fn open(&mut self, uri: &str, text: &str) {
        let item = json!({"uri": uri, "languageId": "python", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": item}));
    }

    /// Replaces the whole text.
    pub fn change(&mut self, uri: &str, version: i32, text: &str) {
        self.change_by(uri, version, json!([{"text": text}]));
    }

    pub fn change_by(&mut self, uri: &str, version: i32, changes: Value) {
        let document = json!({"uri": uri, "version": version});
        self.notify("textDocument/didChange", json!({"textDocument": document, "contentChanges": changes}));
    }

    /// All messages up to the answer to a request that the server can answer at once.
    pub fn everything_so_far(&mut self) -> Vec<Message> {
        let id = self.ask("headroom/nothing", Value::Null);
        let mut all = std::mem::take(&mut self.seen);
        loop {
            let message = self.receive("an answer");
            match message {
                Message::Response(response) if response.id == id => return all,
                message => all.push(message),
            }
        }
    }

    pub fn end(mut self) {
        self.request("shutdown", Value::Null).expect("an end");
        self.notify("exit", Value::Null);
        assert_eq!(self.ending(), Ending::Asked);
    }

    /// How the server ends once the client has disconnected.
    pub fn ending(self) -> Ending {
        drop(self.connection);
        self.server.join().expect("the server ends by itself")
    }

    fn wait<T>(&mut self, what: &str, fits: impl Fn(&Message) -> Option<T>) -> T {
        if let Some((at, found)) = self.seen.iter().enumerate().find_map(|(at, message)| Some((at, fits(message)?))) {
            self.seen.remove(at);
            return found;
        }
        loop {
            let message = self.receive(what);
            match fits(&message) {
                Some(found) => return found,
                None => self.seen.push(message),
            }
        }
    }

    /// The next message; requests from the server are answered along the way.
    fn receive(&mut self, what: &str) -> Message {
        let message = self.connection.receiver.recv_timeout(PATIENCE);
        let message = message.unwrap_or_else(|_| panic!("waited for {what} in vain; so far came {:?}", self.seen));
        if let Message::Request(request) = &message {
            let answer = match request.method.as_str() {
                "workspace/configuration" => {
                    let items = request.params["items"].as_array().expect("questions");
                    let of = |item: &Value| self.settings.get(item["scopeUri"].as_str().unwrap_or_default()).cloned();
                    items.iter().map(|item| of(item).unwrap_or_default()).collect()
                }
                _ => Value::Null,
            };
            self.connection.sender.send(Response::new_ok(request.id.clone(), answer).into()).expect("it listens");
        }
        message
    }
}

pub fn uri(path: &Path) -> String {
    let text = format!("file://{}", path.display());
    Uri::from_str(&text).expect("a plain path").as_str().to_string()
}

/// A folder that is a project of its own, with these files.
pub fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a folder");
    let root = std::fs::canonicalize(place.path()).expect("its path");
    for (path, text) in [("headroom.toml", "")].iter().chain(files) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    (place, root)
}

pub fn codes(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|one| match &one.code {
            Some(lsp_types::NumberOrString::String(code)) => code.clone(),
            other => format!("{other:?}"),
        })
        .collect()
}

pub fn has(diagnostics: &[Diagnostic], code: &str) -> bool {
    codes(diagnostics).iter().any(|known| known == code)
}

/// The text with the protocol's edits applied, columns counted in UTF-16.
pub fn edited(text: &str, edits: &Value) -> String {
    let mut text = crate::text::Text::new(text.to_string());
    let mut edits: Vec<lsp_types::TextEdit> = serde_json::from_value(edits.clone()).expect("edits");
    edits.sort_by_key(|edit| std::cmp::Reverse((edit.range.start, edit.range.end)));
    for edit in edits {
        let change = lsp_types::TextDocumentContentChangeEvent {
            range: Some(edit.range),
            range_length: None,
            text: edit.new_text,
        };
        text.change(change, crate::text::Encoding::Utf16);
    }
    text.as_str().to_string()
}
