//! Patterns of paths.

/// `*` matches any part of a name, `**` any folders; a pattern without `/` matches a file's name or a folder.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let path = path.trim_start_matches("./");
    let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    if !pattern.contains('/') {
        return parts.iter().any(|part| matches_text(pattern.as_bytes(), part.as_bytes()));
    }
    // Any tail of the path may match, so that patterns work wherever the command is run from; so may its folders.
    (0..parts.len()).any(|from| {
        (from + 1..=parts.len()).any(|to| matches_text(pattern.as_bytes(), parts[from..to].join("/").as_bytes()))
    })
}

fn matches_text(pattern: &[u8], text: &[u8]) -> bool {
    // Two pointers and the last star: linear in practice, no recursion.
    let (mut at_pattern, mut at_text) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while at_text < text.len() {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                retry = Some((at_pattern, at_text));
                at_pattern += 1;
            }
            Some(byte) if *byte == text[at_text] || *byte == b'?' => {
                at_pattern += 1;
                at_text += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    at_pattern = star + 1;
                    at_text = from + 1;
                    retry = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}
