//! Capabilities of the client, and those that the server offers.

use lsp_types::{
    ClientCapabilities, CodeActionKind, CodeActionOptions, CodeActionProviderCapability, HoverProviderCapability,
    InlayHintOptions, InlayHintServerCapabilities, MarkupKind, Notebook, NotebookCellSelector,
    NotebookDocumentSyncOptions, NotebookSelector, OneOf, PositionEncodingKind, SaveOptions, ServerCapabilities,
    TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions, TextDocumentSyncSaveOptions,
    WorkspaceFoldersServerCapabilities, WorkspaceServerCapabilities,
};

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
    pub fn new(capabilities: &ClientCapabilities) -> Client {
        let ClientCapabilities { general, workspace, text_document, .. } = capabilities;
        let workspace = workspace.clone().unwrap_or_default();
        let texts = text_document.clone().unwrap_or_default();
        let encodings = general.as_ref().and_then(|general| general.position_encodings.clone()).unwrap_or_default();
        let hover = texts.hover.and_then(|hover| hover.content_format).unwrap_or_default();
        let resolved = texts.code_action.and_then(|action| action.resolve_support);
        let edit = workspace.workspace_edit.unwrap_or_default();
        let watching = workspace.did_change_watched_files.unwrap_or_default();
        Client {
            encoding: if encodings.contains(&PositionEncodingKind::UTF8) { Encoding::Utf8 } else { Encoding::Utf16 },
            keeps_settings: workspace.configuration.unwrap_or_default(),
            watches_files: watching.dynamic_registration.unwrap_or_default(),
            refreshes_hints: workspace.inlay_hint.and_then(|hints| hints.refresh_support).unwrap_or_default(),
            takes_versioned_edits: edit.document_changes.unwrap_or_default(),
            resolves_edits: resolved.is_some_and(|support| support.properties.iter().any(|name| name == "edit")),
            shows_markdown: hover.contains(&MarkupKind::Markdown),
        }
    }
}

/// The action that applies all safe fixes of a text.
pub fn fix_all_kind() -> CodeActionKind {
    CodeActionKind::new("source.fixAll.headroom")
}

pub fn offered(client: &Client) -> ServerCapabilities {
    let encoding = match client.encoding {
        Encoding::Utf8 => PositionEncodingKind::UTF8,
        Encoding::Utf16 => PositionEncodingKind::UTF16,
    };
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::INCREMENTAL),
        save: Some(TextDocumentSyncSaveOptions::SaveOptions(SaveOptions { include_text: Some(false) })),
        ..TextDocumentSyncOptions::default()
    };
    let notebooks = NotebookDocumentSyncOptions {
        notebook_selector: vec![NotebookSelector::ByNotebook {
            notebook: Notebook::String("jupyter-notebook".to_string()),
            cells: Some(vec![NotebookCellSelector { language: "python".to_string() }]),
        }],
        save: Some(true),
    };
    let folders =
        WorkspaceFoldersServerCapabilities { supported: Some(true), change_notifications: Some(OneOf::Left(true)) };
    ServerCapabilities {
        position_encoding: Some(encoding),
        text_document_sync: Some(TextDocumentSyncCapability::Options(sync)),
        notebook_document_sync: Some(OneOf::Left(notebooks)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
            code_action_kinds: Some(vec![CodeActionKind::QUICKFIX, fix_all_kind()]),
            resolve_provider: Some(true),
            ..CodeActionOptions::default()
        })),
        inlay_hint_provider: Some(OneOf::Right(InlayHintServerCapabilities::Options(InlayHintOptions {
            resolve_provider: Some(false),
            ..InlayHintOptions::default()
        }))),
        workspace: Some(WorkspaceServerCapabilities { workspace_folders: Some(folders), file_operations: None }),
        ..ServerCapabilities::default()
    }
}
