//! Paths from a client's URIs.

use std::path::PathBuf;

use lsp_types::Uri;

/// The file that a URI names; `None` if it is not on disk (`untitled:`, `git:`).
pub fn file_path(uri: &Uri) -> Option<PathBuf> {
    let scheme = uri.scheme()?.as_str();
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    let host = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let path = decoded(uri.path().as_str().as_bytes());
    to_path(host, path)
}

/// The last part of a URI, for documents without a file.
pub fn name(uri: &Uri) -> String {
    let path = String::from_utf8_lossy(&decoded(uri.path().as_str().as_bytes())).into_owned();
    path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or("untitled").to_string()
}

#[cfg(unix)]
fn to_path(host: &str, path: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    (host.is_empty() || host.eq_ignore_ascii_case("localhost"))
        .then(|| PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// `file:///c%3A/x.py` is `c:/x.py`, and `file://server/x.py` a file on another machine.
#[cfg(not(unix))]
fn to_path(host: &str, path: Vec<u8>) -> Option<PathBuf> {
    let path = String::from_utf8(path).ok()?;
    let has_drive = path.as_bytes().get(2) == Some(&b':');
    Some(match (host, path.strip_prefix('/')) {
        ("" | "localhost", Some(rest)) if has_drive => PathBuf::from(rest),
        ("" | "localhost", _) => PathBuf::from(path),
        (host, _) => PathBuf::from(format!("//{host}{path}")),
    })
}

/// Decodes percent escapes: `%41` becomes the byte it stands for.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let digits = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(meant) => {
                bytes.push(meant);
                at += 3;
            }
            None => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::str::FromStr;

    #[test]
    fn only_addresses_of_files_have_a_path() {
        for (uri, want) in [
            ("file:///a/b%20c.py", Some("/a/b c.py")),
            ("file://localhost/a.py", Some("/a.py")),
            ("FILE:///%C3%A9.py", Some("/é.py")),
            ("file:///100%25.py", Some("/100%.py")),
            ("file://server/a.py", None),
            ("untitled:Untitled-1", None),
            ("vscode-notebook-cell:/a.ipynb#W0", None),
        ] {
            let uri = Uri::from_str(uri).expect("an address");
            assert_eq!(file_path(&uri), want.map(PathBuf::from), "{}", uri.as_str());
        }
    }

    #[test]
    fn what_has_no_file_has_a_name() {
        for (uri, want) in [("untitled:Untitled-1", "Untitled-1"), ("git:/a/b.py?x", "b.py"), ("x:/", "untitled")] {
            assert_eq!(name(&Uri::from_str(uri).expect("an address")), want);
        }
    }
}
