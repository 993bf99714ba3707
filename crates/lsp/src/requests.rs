//! Requests from a client, and their answers.

use lsp_server::ErrorCode;
use lsp_types::request::{
    CodeActionRequest, CodeActionResolveRequest, HoverRequest, Initialize, InlayHintRequest, Request, Shutdown,
};
use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, CodeActionParams, HoverParams, InlayHint, InlayHintLabel,
    InlayHintParams, InlayHintTooltip, Uri, WorkspaceEdit, WorkspaceFolder,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::abilities::{Client, fix_all_kind, offered};
use crate::actions::{self, FixAll};
use crate::documents::Unit;
use crate::hover;
use crate::server::{Server, Stage};
use crate::workspace::{Answerable, repaired};

type Refusal = (ErrorCode, String);

/// The result of a request, or why it was refused.
pub fn answer(server: &mut Server, method: &str, params: Value) -> Result<Value, Refusal> {
    match (server.stage, method) {
        (Stage::Before, Initialize::METHOD) => initialize(server, params),
        (Stage::Before, _) => Err((ErrorCode::ServerNotInitialized, "`initialize` comes first".to_string())),
        (Stage::Down, _) => Err((ErrorCode::InvalidRequest, "the server is shutting down".to_string())),
        (Stage::Running, Initialize::METHOD) => {
            Err((ErrorCode::InvalidRequest, "`initialize` comes only once".to_string()))
        }
        (Stage::Running, Shutdown::METHOD) => {
            server.stage = Stage::Down;
            Ok(Value::Null)
        }
        (Stage::Running, HoverRequest::METHOD) => hover_at(server, read(params)?),
        (Stage::Running, CodeActionRequest::METHOD) => code_actions(server, read(params)?),
        (Stage::Running, CodeActionResolveRequest::METHOD) => resolve(server, read(params)?),
        (Stage::Running, InlayHintRequest::METHOD) => hints(server, read(params)?),
        (Stage::Running, other) => Err((ErrorCode::MethodNotFound, format!("{other} is not offered"))),
    }
}

/// The used part of `InitializeParams`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Introduction {
    #[serde(default)]
    capabilities: Value,
    /// Where the root is, from clients before folders had names.
    root_uri: Option<Uri>,
    workspace_folders: Option<Vec<WorkspaceFolder>>,
    initialization_options: Option<Value>,
}

fn initialize(server: &mut Server, params: Value) -> Result<Value, Refusal> {
    let params: Introduction = read(params)?;
    server.client = Client::new(&params.capabilities);
    let root = params.root_uri.map(|uri| WorkspaceFolder { uri, name: "root".to_string() });
    let folders = params.workspace_folders.unwrap_or_else(|| root.into_iter().collect());
    folders.into_iter().for_each(|folder| server.settings.add_folder(folder));
    if let Some(options) = params.initialization_options {
        // An error is shown to the user; the command line's settings still apply.
        let _ = server.set_options(&options);
    }
    server.stage = Stage::Running;
    Ok(json!({
        "capabilities": offered(&server.client),
        "serverInfo": { "name": "headroom", "version": env!("CARGO_PKG_VERSION") },
    }))
}

fn hover_at(server: &mut Server, params: HoverParams) -> Result<Value, Refusal> {
    let at = params.text_document_position_params;
    let Some(unit) = unit_around(server, &at.text_document.uri) else { return Ok(Value::Null) };
    let checked = server.checked(&unit).map_err(failed)?.clone();
    let (documents, client) = (&server.documents, &server.client);
    written(hover::at(documents, &unit, &at.text_document.uri, at.position, &checked, client))
}

fn code_actions(server: &mut Server, params: CodeActionParams) -> Result<Value, Refusal> {
    let document = params.text_document.uri;
    let Some(unit) = unit_around(server, &document) else { return Ok(Value::Null) };
    let checked = server.checked(&unit).map_err(failed)?.clone();
    let only = params.context.only.as_deref();
    let mut found = Vec::new();
    if actions::is_wanted(only, &CodeActionKind::QUICKFIX) {
        let (documents, client) = (&server.documents, &server.client);
        found = actions::quick_fixes(documents, &unit, &document, params.range, &checked, client);
    }
    if actions::is_wanted(only, &fix_all_kind()) && actions::has_safe_fixes(&checked) {
        let mut action = actions::fix_all(&unit);
        if !server.client.resolves_edits {
            action.edit = edit_of_all(server, &unit)?;
        }
        if server.client.resolves_edits || action.edit.is_some() {
            found.push(action);
        }
    }
    written(found.into_iter().map(CodeActionOrCommand::CodeAction).collect::<Vec<_>>())
}

/// Computes the edit of an action that was shown earlier, for the current text.
fn resolve(server: &mut Server, mut action: CodeAction) -> Result<Value, Refusal> {
    if let Some(data) = action.data.clone() {
        let FixAll { unit } = read(data)?;
        if let Some(unit) = server.documents.unit(&unit).cloned() {
            action.edit = edit_of_all(server, &unit)?;
        }
    }
    written(action)
}

/// The edit that applies all safe fixes; `None` if nothing would change.
fn edit_of_all(server: &mut Server, unit: &Unit) -> Result<Option<WorkspaceEdit>, Refusal> {
    let choice = server.settings.of(unit.path.as_deref()).choice();
    let repaired = server.workspace.ask(&server.documents, unit, &choice, |question| match question {
        Answerable::Yes(question) => repaired(&question),
        Answerable::LeftOut => None,
    });
    let repaired = repaired.map_err(|error| failed(error.with_causes()))?;
    Ok(repaired.map(|repaired| actions::edit_of_repair(&server.documents, unit, &repaired, &server.client)))
}

fn hints(server: &mut Server, params: InlayHintParams) -> Result<Value, Refusal> {
    let document = params.text_document.uri;
    let Some(unit) = unit_around(server, &document) else { return Ok(Value::Null) };
    let checked = server.checked(&unit).map_err(failed)?.clone();
    let encoding = server.client.encoding;
    let hint = |hint: &crate::checked::Hint| {
        let (part, open) = server.documents.part(&unit.uri, hint.cell)?;
        let position = open.text.end_of_line(hint.line.saturating_sub(1), encoding);
        let is_in =
            part == &document && params.range.start.line <= position.line && position.line <= params.range.end.line;
        is_in.then(|| InlayHint {
            position,
            label: InlayHintLabel::String(hint.label.clone()),
            kind: None,
            text_edits: None,
            tooltip: Some(InlayHintTooltip::String(hint.tooltip.clone())),
            padding_left: Some(true),
            padding_right: None,
            data: None,
        })
    };
    written(checked.hints.iter().filter_map(hint).collect::<Vec<InlayHint>>())
}

/// The script or notebook that a request is about; `None` for a text that is not open or not Python.
fn unit_around(server: &Server, document: &Uri) -> Option<Unit> {
    server.documents.unit_around(document).filter(|unit| server.documents.is_checked(&unit.uri)).cloned()
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

fn written(result: impl serde::Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(result).map_err(|error| (ErrorCode::InternalError, error.to_string()))
}

fn failed(message: String) -> Refusal {
    (ErrorCode::RequestFailed, message)
}
