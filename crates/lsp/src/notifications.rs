//! Notifications from a client: changed texts, files, folders and settings.

use lsp_server::Notification;
use lsp_types::notification::{
    DidChangeConfiguration, DidChangeNotebookDocument, DidChangeTextDocument, DidChangeWatchedFiles,
    DidChangeWorkspaceFolders, DidCloseNotebookDocument, DidCloseTextDocument, DidOpenNotebookDocument,
    DidOpenTextDocument, DidSaveNotebookDocument, DidSaveTextDocument, Initialized, Notification as _,
};
use lsp_types::request::{RegisterCapability, Request as _};
use lsp_types::{
    DidChangeWatchedFilesRegistrationOptions, FileSystemWatcher, GlobPattern, Registration, RegistrationParams,
};
use serde_json::Value;

use crate::cells;
use crate::notebook::Notebook;
use crate::server::{Server, Stage};

/// Files whose change may change an answer.
const WATCHED: &[&str] = &["**/*.py", "**/*.ipynb", "**/pyproject.toml", "**/headroom.toml", "**/setup.cfg"];

/// Handles one notification, or returns why it could not.
pub fn take(server: &mut Server, notification: Notification) -> Result<(), String> {
    if server.stage != Stage::Running {
        return Ok(());
    }
    let Notification { method, params } = notification;
    match method.as_str() {
        Initialized::METHOD => {
            if server.client.keeps_settings {
                server.ask_settings();
            }
            if server.client.watches_files {
                server.request(RegisterCapability::METHOD, &RegistrationParams { registrations: registrations() });
            }
        }
        DidOpenTextDocument::METHOD => {
            let item = read::<DidOpenTextDocument>(params)?.text_document;
            let uri = item.uri.clone();
            server.documents.open(item);
            server.changed(&uri);
        }
        DidChangeTextDocument::METHOD => {
            let params = read::<DidChangeTextDocument>(params)?;
            let encoding = server.client.encoding;
            let changed = server.documents.change(&params.text_document, params.content_changes, encoding);
            changed.map_err(|error| error.to_string())?;
            server.changed(&params.text_document.uri);
        }
        DidCloseTextDocument::METHOD => {
            let uri = read::<DidCloseTextDocument>(params)?.text_document.uri;
            server.documents.close(&uri);
            server.clear(&uri);
            server.all_changed();
        }
        DidOpenNotebookDocument::METHOD => {
            let params = read::<DidOpenNotebookDocument>(params)?;
            let uri = params.notebook_document.uri.clone();
            let notebook = Notebook::new(params.notebook_document);
            server.documents.open_notebook(uri.clone(), notebook, params.cell_text_documents);
            server.changed(&uri);
        }
        DidChangeNotebookDocument::METHOD => {
            let params = read::<DidChangeNotebookDocument>(params)?;
            let uri = params.notebook_document.uri.clone();
            let encoding = server.client.encoding;
            let gone = cells::change(&mut server.documents, params, encoding).map_err(|error| error.to_string())?;
            gone.iter().for_each(|cell| server.clear(cell));
            server.changed(&uri);
        }
        DidCloseNotebookDocument::METHOD => {
            let uri = read::<DidCloseNotebookDocument>(params)?.notebook_document.uri;
            let cells = server.documents.parts(&uri);
            server.documents.close_notebook(&uri);
            cells.iter().chain([&uri]).for_each(|document| server.clear(document));
            server.all_changed();
        }
        DidSaveTextDocument::METHOD | DidSaveNotebookDocument::METHOD | DidChangeWatchedFiles::METHOD => {
            server.all_changed();
        }
        DidChangeConfiguration::METHOD => {
            let settings = read::<DidChangeConfiguration>(params)?.settings;
            if server.client.keeps_settings {
                server.ask_settings();
            } else {
                server.set_settings(&settings)?;
                server.settings_changed();
            }
        }
        DidChangeWorkspaceFolders::METHOD => {
            let event = read::<DidChangeWorkspaceFolders>(params)?.event;
            event.removed.iter().for_each(|folder| server.settings.remove_folder(&folder.uri));
            event.added.into_iter().for_each(|folder| server.settings.add_folder(folder));
            if server.client.keeps_settings {
                server.ask_settings();
            }
            server.settings_changed();
        }
        // Notifications that start with `$/` may be ignored; so may all other unknown ones.
        _ => {}
    }
    Ok(())
}

fn read<N: lsp_types::notification::Notification>(params: Value) -> Result<N::Params, String> {
    serde_json::from_value(params).map_err(|error| error.to_string())
}

fn registrations() -> Vec<Registration> {
    let watcher =
        |pattern: &&str| FileSystemWatcher { glob_pattern: GlobPattern::String(pattern.to_string()), kind: None };
    let options = DidChangeWatchedFilesRegistrationOptions { watchers: WATCHED.iter().map(watcher).collect() };
    vec![Registration {
        id: "headroom-files".to_string(),
        method: DidChangeWatchedFiles::METHOD.to_string(),
        register_options: serde_json::to_value(options).ok(),
    }]
}
