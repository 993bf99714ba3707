//! Access control: only with the token, only under our own host name, only small requests.

use anyhow::{Result, anyhow};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};

/// 32 random bytes as text; compared in constant time.
pub struct Token(String);

/// The longest address; our own pages need a tenth of it.
const MOST_ADDRESS_BYTES: usize = 2048;
/// The longest body: the only one is a short JSON object.
pub const MOST_BODY_BYTES: u64 = 4096;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub StatusCode, pub &'static str);

impl Token {
    pub fn random() -> Result<Token> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| anyhow!("the system gives no random numbers: {error}"))?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares every byte regardless of the first ones, so that its time reveals nothing.
    pub fn matches(&self, given: &str) -> bool {
        let same_length = given.len() == self.0.len();
        let difference = self.0.bytes().zip(given.bytes().chain(std::iter::repeat(0)));
        let difference = difference.fold(0, |sum, (left, right)| sum | (left ^ right));
        same_length && std::hint::black_box(difference) == 0
    }
}

/// Cookies are shared by all ports of a host, so each server has its own cookie name.
pub fn cookie_name(port: u16) -> String {
    format!("headroom_{port}")
}

pub fn set_cookie(port: u16, token: &Token) -> String {
    format!("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name(port), token.text())
}

/// Checks that apply to every request, whoever sends it.
pub fn check_shape(uri: &Uri, headers: &HeaderMap, port: u16) -> Result<(), Refusal> {
    // A page of another site that resolves its name to this machine sends that name (DNS rebinding).
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{port}"))) {
        return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 and localhost only"));
    }
    if uri.to_string().len() > MOST_ADDRESS_BYTES {
        return Err(Refusal(StatusCode::URI_TOO_LONG, "the address is too long"));
    }
    let length = headers.get(header::CONTENT_LENGTH).map(|length| length.to_str().unwrap_or("").parse::<u64>());
    match length {
        Some(Err(_)) => Err(Refusal(StatusCode::BAD_REQUEST, "the length of the body is not a number")),
        Some(Ok(bytes)) if bytes > MOST_BODY_BYTES => {
            Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"))
        }
        _ if headers.contains_key(header::TRANSFER_ENCODING) => {
            Err(Refusal(StatusCode::LENGTH_REQUIRED, "a body must say its length"))
        }
        _ => Ok(()),
    }
}

/// Whether the sender is authenticated. A request that changes something must also come from one of our own pages.
pub fn check_sender(method: &Method, headers: &HeaderMap, port: u16, token: &Token) -> Result<(), Refusal> {
    let name = cookie_name(port);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    if !pairs.any(|(key, value)| key == name && token.matches(value)) {
        return Err(Refusal(StatusCode::FORBIDDEN, "open the address that `headroom serve` printed"));
    }
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let ours = |origin: &str| ["127.0.0.1", "localhost"].iter().any(|name| origin == format!("http://{name}:{port}"));
    match origin {
        Some(origin) if ours(origin) => Ok(()),
        _ => Err(Refusal(StatusCode::FORBIDDEN, "changes are taken from the dashboard's own pages only")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_itself_and_nothing_shorter_longer_or_other() {
        let token = Token("0123456789abcdef".into());
        assert!(token.matches("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "x123456789abcdef"] {
            assert!(!token.matches(other), "{other}");
        }
    }

    #[test]
    fn two_tokens_differ_and_have_256_bits() {
        let [left, right] = [Token::random().unwrap(), Token::random().unwrap()];
        assert_ne!(left.text(), right.text());
        assert_eq!(left.text().len(), 64);
    }
}
