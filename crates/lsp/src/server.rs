//! The state of a session: open documents, their findings, and what the client shows.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{LogMessage, PublishDiagnostics, ShowMessage};
use lsp_types::request::{InlayHintRefreshRequest, Request as _};
use lsp_types::{ConfigurationItem, Diagnostic, LogMessageParams, MessageType, PublishDiagnosticsParams, Uri};
use serde::Serialize;
use serde_json::Value;

use crate::abilities::Client;
use crate::checked::{Checked, Lint};
use crate::documents::{Documents, Unit};
use crate::queue::{Event, Queue};
use crate::settings::{AllSettings, Settings};
use crate::traces::{Asked, Read, Traces};
use crate::workspace::{Answerable, Workspace};
use crate::{diagnostics, panics};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The client has not sent `initialize` yet.
    Before,
    Running,
    /// The client asked for shutdown; `exit` follows.
    Down,
}

/// Everything an answer depends on, as generations: files and texts, settings, traces.
type Basis = (u64, u64, u64);

pub struct Server {
    send: Box<dyn Fn(Message) -> bool + Send>,
    pub queue: Queue,
    lint: Box<Lint>,
    pub stage: Stage,
    pub client: Client,
    pub documents: Documents,
    pub workspace: Workspace,
    pub settings: AllSettings,
    /// Counts changes to the settings.
    settings_generation: u64,
    traces: Traces,
    answers: HashMap<Uri, (Basis, Checked)>,
    /// The diagnostics that the client shows, and the version of the text they belong to.
    published: HashMap<Uri, (Option<i32>, Vec<Diagnostic>)>,
    /// Units to check and publish next, and those that can wait.
    pub soon: Vec<Uri>,
    pub later: Vec<Uri>,
    last_id: i32,
    /// Our requests for settings that the client has not answered yet.
    asked: HashMap<RequestId, Vec<ConfigurationItem>>,
    /// The message shown to the user last: it is not repeated until another one was shown.
    last_shown: Option<String>,
}

impl Server {
    pub fn new(connection: Connection, settings: Settings, lint: Box<Lint>) -> Server {
        let Connection { sender, receiver } = connection;
        Server {
            send: Box::new(move |message| sender.send(message).is_ok()),
            queue: Queue::new(move || receiver.recv().ok()),
            lint,
            stage: Stage::Before,
            client: Client::default(),
            documents: Documents::default(),
            workspace: Workspace::default(),
            settings: AllSettings::new(settings),
            settings_generation: 0,
            traces: Traces::default(),
            answers: HashMap::new(),
            published: HashMap::new(),
            soon: Vec::new(),
            later: Vec::new(),
            last_id: 0,
            asked: HashMap::new(),
            last_shown: None,
        }
    }

    /// The findings of a unit: cached if nothing changed since, otherwise new. Empty if there is nothing to report.
    pub fn checked(&mut self, unit: &Unit) -> Result<&Checked, String> {
        let words = |error: headroom_sources::configuration::ConfigurationError| error.with_causes();
        let traces = self.traces_of(unit);
        let generation = self.workspace.generation(&self.documents, unit).map_err(words)?;
        let basis = (generation, self.settings_generation, self.traces.generation);
        let is_known = self.answers.get(&unit.uri).is_some_and(|(known, _)| *known == basis);
        if !is_known {
            let choice = self.settings.of(unit.path.as_deref()).choice();
            let lint = &self.lint;
            let checked = self.workspace.ask(&self.documents, unit, &choice, |question| match question {
                Answerable::Yes(question) => Checked::new(&question, lint, traces.as_ref().map(|all| all.as_slice())),
                Answerable::LeftOut => Checked::default(),
            });
            self.answers.insert(unit.uri.clone(), (basis, checked.map_err(words)?));
        }
        match self.answers.get(&unit.uri) {
            Some((_, checked)) => Ok(checked),
            None => Err("the text is unknown".to_string()),
        }
    }

    /// Checks a unit and shows its findings.
    pub fn publish(&mut self, uri: &Uri) {
        let Some(unit) = self.documents.unit(uri).filter(|unit| self.documents.is_checked(&unit.uri)).cloned() else {
            return;
        };
        let checked = self.guarded(|server| server.checked(&unit).cloned());
        let checked = match checked {
            Ok(Ok(checked)) => {
                self.last_shown = None;
                checked
            }
            Ok(Err(message)) => {
                self.show_once(&message);
                Checked::default()
            }
            Err(panic) => {
                self.show_once(&format!("an internal error of headroom in {}: {panic}", uri.as_str()));
                Checked::default()
            }
        };
        for (document, list) in diagnostics::of_unit(&self.documents, uri, &checked, self.client.encoding) {
            self.publish_document(document, list);
        }
    }

    /// Shows the diagnostics of a document, unless they are shown already.
    fn publish_document(&mut self, uri: Uri, diagnostics: Vec<Diagnostic>) {
        let version = self.documents.get(&uri).map(|document| document.version);
        let shown = (version, diagnostics.clone());
        if self.published.get(&uri) == Some(&shown) {
            return;
        }
        self.published.insert(uri.clone(), shown);
        self.notify::<PublishDiagnostics>(PublishDiagnosticsParams { uri, diagnostics, version });
    }

    /// Removes the diagnostics of a document.
    pub fn clear(&mut self, document: &Uri) {
        self.answers.remove(document);
        if self.published.remove(document).is_some_and(|(_, shown)| !shown.is_empty()) {
            let (uri, diagnostics) = (document.clone(), Vec::new());
            self.notify::<PublishDiagnostics>(PublishDiagnosticsParams { uri, diagnostics, version: None });
        }
    }

    /// Notes that a unit changed: it is checked next, and other units of its project once no more messages come.
    pub fn changed(&mut self, uri: &Uri) {
        if !self.soon.contains(uri) {
            self.soon.push(uri.clone());
        }
        let others = self.documents.units().iter().map(|unit| &unit.uri).filter(|other| *other != uri);
        for other in others {
            if !self.later.contains(other) {
                self.later.push(other.clone());
            }
        }
    }

    /// Notes that anything may have changed.
    pub fn all_changed(&mut self) {
        self.workspace.look_again();
        self.soon = self.documents.units().iter().map(|unit| unit.uri.clone()).collect();
    }

    /// Takes settings that a client sends unasked; an error, which the user is shown, if they are not understood.
    pub fn set_settings(&mut self, value: &Value) -> Result<(), String> {
        let settings = self.read_settings(value)?;
        self.settings.set_everywhere(settings);
        Ok(())
    }

    /// Takes the options of the client's `initialize` request.
    pub fn set_options(&mut self, value: &Value) -> Result<(), String> {
        let options = self.read_settings(value)?;
        self.settings.set_options(&options);
        Ok(())
    }

    fn read_settings(&mut self, value: &Value) -> Result<Settings, String> {
        Settings::read(value).map_err(|error| {
            let message = format!("headroom's settings are not valid: {error}");
            self.show_once(&message);
            message
        })
    }

    pub fn settings_changed(&mut self) {
        self.settings_generation += 1;
        self.all_changed();
    }

    fn traces_of(&mut self, unit: &Unit) -> Option<std::sync::Arc<Vec<headroom_diagnosis::trace_rules::TraceFinding>>> {
        let path = unit.path.as_deref();
        let asked = Asked { paths: self.settings.traces_of(path), base: self.settings.base_of(path) };
        let events = self.queue.sender();
        self.traces.findings(&asked, move |read| {
            // A server that has ended does not need the trace.
            let _ = events.send(Event::Trace(Box::new(read)));
        })
    }

    pub fn take_trace(&mut self, read: Read) {
        if let Some(failure) = read.failure() {
            let message = format!("the trace is not used: {failure}");
            self.show_once(&message);
        }
        self.traces.take(read);
        self.soon = self.documents.units().iter().map(|unit| unit.uri.clone()).collect();
        if self.client.refreshes_hints {
            self.request(InlayHintRefreshRequest::METHOD, &Value::Null);
        }
    }

    /// Asks the client for the settings of every folder.
    pub fn ask_settings(&mut self) {
        let items = self.settings.questions();
        let id = self.request(
            lsp_types::request::WorkspaceConfiguration::METHOD,
            &lsp_types::ConfigurationParams { items: items.clone() },
        );
        self.asked.insert(id, items);
    }

    pub fn take_response(&mut self, response: Response) {
        let Response { id, response_result } = response;
        let questions = self.asked.remove(&id);
        match (questions, response_result) {
            (Some(questions), Ok(Value::Array(answers))) => {
                if let Err(error) = self.settings.take_answers(&questions, &answers) {
                    self.show_once(&format!("headroom's settings are not valid: {error}"));
                }
                self.settings_changed();
            }
            (_, Err(error)) => self.log(MessageType::WARNING, &format!("the client refused: {}", error.message)),
            _ => {}
        }
    }

    /// Runs work that may panic. After a panic, cached state is discarded, so that nothing builds on half-finished
    /// work.
    pub fn guarded<T>(&mut self, work: impl FnOnce(&mut Server) -> T) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(|| work(self))).map_err(|panic| {
            self.workspace = Workspace::default();
            self.answers.clear();
            panics::words(&*panic)
        })
    }

    pub fn request(&mut self, method: &str, params: &impl Serialize) -> RequestId {
        self.last_id += 1;
        let id = RequestId::from(self.last_id);
        let params = serde_json::to_value(params).unwrap_or_default();
        self.put(Request { id: id.clone(), method: method.to_string(), params }.into());
        id
    }

    pub fn notify<N: lsp_types::notification::Notification>(&mut self, params: N::Params) {
        self.put(Notification::new(N::METHOD.to_string(), params).into());
    }

    /// Writes a line to the client's log.
    pub fn log(&mut self, typ: MessageType, message: &str) {
        self.notify::<LogMessage>(LogMessageParams { typ, message: format!("headroom: {message}") });
    }

    /// Shows the user a message, unless it is the one that was shown last.
    pub fn show_once(&mut self, message: &str) {
        if self.last_shown.as_deref() != Some(message) {
            self.last_shown = Some(message.to_string());
            let (typ, message) = (MessageType::ERROR, format!("headroom: {message}"));
            self.notify::<ShowMessage>(lsp_types::ShowMessageParams { typ, message });
        }
    }

    pub fn answer(&mut self, response: Response) {
        self.put(response.into());
    }

    pub fn answer_error(&mut self, id: RequestId, code: ErrorCode, message: &str) {
        self.answer(Response::new_err(id, code as i32, message.to_string()));
    }

    /// Sends a message. A client that no longer listens has disconnected; the receiving side will notice.
    fn put(&mut self, message: Message) {
        (self.send)(message);
    }
}
