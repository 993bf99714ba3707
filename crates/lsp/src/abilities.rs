//! Capabilities of the client, and those that the server offers.

use lsp_types::CodeActionKind;
use serde_json::{Value, json};

use crate::text::Encoding;

#[derive(Clone, Debug, Default)]
pub struct Client {
    pub encoding: Encoding,
    /// Answers `workspace/configuration`.
    pub keeps_settings: bool,
    /// Watches files on request.
    pub watches_files: bool,
    pub refreshes_hints: bool,
    /// Accepts edits that name the version of the text they apply to.
    pub takes_versioned_edits: bool,
    /// Can ask for the edit of an action later.
    pub resolves_edits: bool,
    /// Shows Markdown in hovers.
    pub shows_markdown: bool,
}

impl Client {
    /// Looks only at what the server asks about: the types of the protocol know hundreds of capabilities, and reading
    /// them all takes a compiler half a minute.
    pub fn new(capabilities: &Value) -> Client {
        let says = |place: &str| capabilities.pointer(place).and_then(Value::as_bool).unwrap_or_default();
        let lists = |place: &str, word: &str| {
            let words = capabilities.pointer(place).and_then(Value::as_array);
            words.is_some_and(|words| words.iter().any(|one| one == word))
        };
        let is_utf8 = lists("/general/positionEncodings", "utf-8");
        Client {
            encoding: if is_utf8 { Encoding::Utf8 } else { Encoding::Utf16 },
            keeps_settings: says("/workspace/configuration"),
            watches_files: says("/workspace/didChangeWatchedFiles/dynamicRegistration"),
            refreshes_hints: says("/workspace/inlayHint/refreshSupport"),
            takes_versioned_edits: says("/workspace/workspaceEdit/documentChanges"),
            resolves_edits: lists("/textDocument/codeAction/resolveSupport/properties", "edit"),
            shows_markdown: lists("/textDocument/hover/contentFormat", "markdown"),
        }
    }
}

/// The action that applies all safe fixes of a text.
pub fn fix_all_kind() -> CodeActionKind {
    CodeActionKind::new("source.fixAll.headroom")
}

/// `ServerCapabilities`, as the protocol spells them.
pub fn offered(client: &Client) -> Value {
    let encoding = match client.encoding {
        Encoding::Utf8 => "utf-8",
        Encoding::Utf16 => "utf-16",
    };
    const INCREMENTAL: u8 = 2;
    json!({
        "positionEncoding": encoding,
        "textDocumentSync": { "openClose": true, "change": INCREMENTAL, "save": { "includeText": false } },
        "notebookDocumentSync": {
            "notebookSelector": [{ "notebook": "jupyter-notebook", "cells": [{ "language": "python" }] }],
            "save": true,
        },
        "hoverProvider": true,
        "codeActionProvider": {
            "codeActionKinds": [CodeActionKind::QUICKFIX, fix_all_kind()],
            "resolveProvider": true,
        },
        "inlayHintProvider": { "resolveProvider": false },
        "workspace": { "workspaceFolders": { "supported": true, "changeNotifications": true } },
    })
}
