//! Responses, with headers that isolate the pages.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::bodies::computed;
use super::guard::Refusal;

/// Pages load only our own scripts, styles and data.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A run's own report contains its script and styles; it may only display itself.
const REPORT_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                             sandbox allow-scripts; frame-ancestors 'none'";

pub fn html(text: String) -> Response<Body> {
    reply(StatusCode::OK, "text/html; charset=utf-8", text.into(), PAGE_POLICY)
}

pub fn report(text: Body) -> Response<Body> {
    reply(StatusCode::OK, "text/html; charset=utf-8", text, REPORT_POLICY)
}

pub fn file(content_type: &'static str, bytes: Body) -> Response<Body> {
    reply(StatusCode::OK, content_type, bytes, PAGE_POLICY)
}

pub fn asset(content_type: &'static str, text: &'static str) -> Response<Body> {
    reply(StatusCode::OK, content_type, text.into(), PAGE_POLICY)
}

pub fn bytes(bytes: Body) -> Response<Body> {
    reply(StatusCode::OK, "application/octet-stream", bytes, PAGE_POLICY)
}

pub fn json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => reply(StatusCode::OK, "application/json", computed(text), PAGE_POLICY),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A response with a sentence that says what is wrong.
pub fn problem(status: StatusCode, message: &str) -> Response<Body> {
    reply(status, "text/plain; charset=utf-8", format!("{message}\n").into(), PAGE_POLICY)
}

/// Refuses a request and closes the connection, which frees its slot.
pub fn refusal(refusal: Refusal) -> Response<Body> {
    let mut response = problem(refusal.0, refusal.1);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Redirects to the list of runs, with the cookie that grants access.
pub fn welcome(cookie: &str) -> Response<Body> {
    let mut response = reply(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Body::empty(), PAGE_POLICY);
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn reply(status: StatusCode, content_type: &'static str, body: Body, policy: &'static str) -> Response<Body> {
    let headers: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
