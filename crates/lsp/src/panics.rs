//! Messages of panics, which must not take the server down.

use std::any::Any;

/// The message of a panic.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_string())
}
