//! Masks what looks like a key or a password in text that a script printed, before the text is stored or shown.
//!
//! Two sources: shapes that the usual services give their keys, and the values of this process's own environment
//! variables whose names say that they are secret. It is a net, not a proof: a secret of another shape passes.

use std::ops::Range;

const MASK: &str = "***";

/// Parts of an environment variable's name that say that its value is secret.
const NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Shorter values would mask ordinary words.
const LEAST_VALUE: usize = 8;

/// How keys begin, and the least number of characters that follow.
const SHAPES: [(&str, usize); 16] = [
    ("sk-", 16),
    ("hf_", 16),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("nvapi-", 16),
    ("eyJ", 40),
];

/// Words before a credential in a header, in lower case.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];
const LEAST_CREDENTIAL: usize = 8;

/// Keys of 40 hexadecimal digits look like commits, so a word of these must stand on the same line.
const HEX_KEY_LENGTH: usize = 40;
const HEX_KEY_WORDS: [&str; 6] = ["wandb", "key", "token", "secret", "password", "login"];

/// Values that must not be shown, longest first.
pub struct Secrets(Vec<String>);

impl Secrets {
    /// The secrets of this process's environment, which scripts inherit.
    pub fn of_environment() -> Secrets {
        let text = |value: std::ffi::OsString| value.into_string().ok();
        Secrets::of(std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    fn of(variables: impl IntoIterator<Item = (String, String)>) -> Secrets {
        let is_secret = |name: &str| NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
        let values = variables.into_iter().filter(|(name, _)| is_secret(name));
        let mut values: Vec<String> =
            values.map(|(_, value)| value.trim().to_string()).filter(|value| value.len() >= LEAST_VALUE).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Secrets(values)
    }

    /// The text with every secret replaced by `***`.
    pub fn masked(&self, text: &str) -> String {
        let mut text = text.to_string();
        for value in &self.0 {
            text = text.replace(value.as_str(), MASK);
        }
        let text = without_private_keys(&text);
        text.split_inclusive('\n').map(masked_line).collect()
    }
}

/// Replaces what is between the lines that begin and end a private key.
fn without_private_keys(text: &str) -> String {
    let mut left = text;
    let mut masked = String::new();
    while let Some(begin) = left.find("PRIVATE KEY-----") {
        let begin = begin + "PRIVATE KEY-----".len();
        let Some(length) = left[begin..].find("-----END") else {
            // Without an end, everything may be part of it.
            return masked + &left[..begin] + MASK;
        };
        let end = begin + length;
        let after = left[end..].find('\n').map_or(left.len(), |at| end + at);
        masked += &format!("{}{MASK}{}", &left[..begin], &left[end..after]);
        left = &left[after..];
    }
    masked + left
}

fn masked_line(line: &str) -> String {
    let mut spans: Vec<Range<usize>> = vec![];
    for (prefix, least) in SHAPES {
        for (at, _) in line.match_indices(prefix) {
            let length = key_length(&line[at + prefix.len()..]);
            if begins_word(line, at) && length >= least {
                spans.push(at..at + prefix.len() + length);
            }
        }
    }
    let lower = line.to_ascii_lowercase();
    for scheme in SCHEMES {
        for (at, _) in lower.match_indices(scheme) {
            let start = at + scheme.len();
            let length = line[start..].bytes().take_while(|byte| is_credential(*byte)).count();
            // `bearer` is also a word; before a colon or in a header it is not.
            if begins_word(line, at) && length >= LEAST_CREDENTIAL && (lower.contains("authorization") || length >= 20)
            {
                spans.push(start..start + length);
            }
        }
    }
    for (at, _) in line.match_indices("://") {
        spans.extend(password_in(line, at + 3));
    }
    if HEX_KEY_WORDS.iter().any(|word| lower.contains(word)) {
        spans.extend(hex_keys(line));
    }
    spans.sort_by_key(|span| span.start);
    let mut masked = String::new();
    let mut done = 0;
    for span in spans {
        if span.start >= done {
            masked += &line[done..span.start];
            masked += MASK;
        }
        done = done.max(span.end);
    }
    masked + &line[done..]
}

/// The password of `user:password@host`, which begins at `start`.
fn password_in(line: &str, start: usize) -> Option<Range<usize>> {
    let end = line[start..].find(|letter: char| letter.is_whitespace() || "/\"'<>".contains(letter));
    let place = &line[start..end.map_or(line.len(), |end| start + end)];
    let at = place.rfind('@')?;
    let colon = place[..at].find(':')?;
    (colon + 1 < at).then(|| start + colon + 1..start + at)
}

fn hex_keys(line: &str) -> Vec<Range<usize>> {
    let mut keys = vec![];
    let mut start = 0;
    for part in line.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        if part.len() == HEX_KEY_LENGTH && part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            keys.push(start..start + part.len());
        }
        let after = start + part.len();
        start = after + line[after..].chars().next().map_or(0, char::len_utf8);
    }
    keys
}

fn begins_word(line: &str, at: usize) -> bool {
    !line[..at].chars().next_back().is_some_and(|before| before.is_ascii_alphanumeric())
}

fn key_length(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte)).count()
}

fn is_credential(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~+/=-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let variables =
            [("MY_API_KEY", "correct horse"), ("db_password", "hunter22"), ("TOKEN", "short"), ("LANG", "en_US.UTF-8")];
        Secrets::of(variables.map(|(name, value)| (name.to_string(), value.to_string()))).masked(text)
    }

    /// Made of two parts, so that no scanner of repositories takes the examples for keys.
    fn key(begin: &str, rest: &str) -> String {
        format!("{begin}{rest}")
    }

    #[test]
    fn keys_of_known_shapes_are_masked() {
        let long = "Ab1".repeat(12);
        for begin in
            ["sk-", "sk-proj-", "hf_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA", "nvapi-", "AIza"]
        {
            let text = format!("key='{}', then", key(begin, &long));
            assert_eq!(masked(&text), "key='***', then", "{text}");
        }
        assert_eq!(masked("Authorization: Bearer abcd1234\n"), "Authorization: Bearer ***\n");
        assert_eq!(masked("authorization: basic dXNlcjpwYXNz"), "authorization: basic ***");
        assert_eq!(masked(&format!("header Bearer {long}")), "header Bearer ***");
        let hex = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(masked(&format!("wandb: api_key {hex}.")), "wandb: api_key ***.");
        assert_eq!(masked(&format!("WANDB_API_KEY={hex}")), "WANDB_API_KEY=***");
    }

    #[test]
    fn passwords_in_addresses_and_private_keys_are_masked() {
        assert_eq!(masked("get https://me:pa:s@s@host/x?y"), "get https://me:***@host/x?y");
        assert_eq!(masked("http://host:80/a@b http://me@host"), "http://host:80/a@b http://me@host");
        let text = key("-----BEGIN RSA PRIV", "ATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----\nafter");
        assert_eq!(masked(&text), "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nafter");
        let cut = key("x -----BEGIN PRIV", "ATE KEY-----\nabc");
        assert_eq!(masked(&cut), "x -----BEGIN PRIVATE KEY-----***");
    }

    #[test]
    fn values_of_secret_variables_are_masked_wherever_they_stand() {
        assert_eq!(masked("a=correct horse;hunter22hunter22"), "a=***;******");
        assert_eq!(masked("short en_US.UTF-8"), "short en_US.UTF-8");
    }

    #[test]
    fn ordinary_output_stays_as_it_is() {
        let commit = "commit 0123456789abcdef0123456789abcdef01234567";
        let lines = [
            "task-based risk-adjusted",
            "sk-short",
            "loss 3.2 ü",
            commit,
            "bearer of news",
            "shf_x",
            "AKIA",
            "",
            "://",
            "@",
        ];
        for line in lines {
            assert_eq!(masked(line), line);
        }
        assert_eq!(masked(&lines.join("\n")), lines.join("\n"));
    }
}
