//! How results are shown: text, Markdown, JSON and SARIF. Everything here makes strings; the command line prints them.

pub mod lint;
