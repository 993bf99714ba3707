//! Names of Python functions in a trace: `folder/train.py(43): train`, `<built-in method item of Tensor …>`,
//! `nn.Module: Linear_3`.

use super::view::View;

/// A Python function's file, line and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub file: &'a str,
    pub line: u32,
    pub function: &'a str,
}

/// `None` for built-in functions and modules.
pub fn frame(name: &str) -> Option<Frame<'_>> {
    let (place, function) = name.split_once("): ")?;
    let (file, line) = place.rsplit_once('(')?;
    Some(Frame { file, line: line.parse().ok()?, function })
}

/// Removes what differs from run to run: addresses of objects.
pub fn frame_name(name: &str) -> String {
    match name.split_once(" at 0x") {
        Some((before, _)) => format!("{before}>"),
        None => name.to_string(),
    }
}

/// Whether a frame is the user's own code: not torch, the standard library or an installed package.
pub fn is_users(name: &str) -> bool {
    let Some(Frame { file, .. }) = frame(name) else {
        return false;
    };
    let file = file.replace('\\', "/");
    let is_library = ["torch/", "<", "threading.py", "contextlib.py", "importlib/", "runpy.py", "functools.py"]
        .iter()
        .any(|start| file.starts_with(start));
    !is_library && !["/torch/", "site-packages/", "dist-packages/", "lib/python"].iter().any(|part| file.contains(part))
}

/// The innermost frame of the user's own code in a stack (innermost first), and the call it made: the frame inside it,
/// or the next inside that if the first only forwards the call.
pub fn user_frame(view: &View, stack: &[usize]) -> (Option<usize>, Option<usize>) {
    match stack.iter().position(|&at| is_users(view.host_name(at))) {
        Some(index) => (Some(stack[index]), index.checked_sub(1).map(|inner| stack[inner])),
        None => (None, stack.last().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_file_line_and_function() {
        assert_eq!(
            frame("project/slow/train.py(50): train"),
            Some(Frame { file: "project/slow/train.py", line: 50, function: "train" })
        );
        assert_eq!(frame("<built-in method item of Tensor object at 0x7f>"), None);
        assert_eq!(
            frame_name("<built-in method item of Tensor object at 0x7f>"),
            "<built-in method item of Tensor object>"
        );
    }

    #[test]
    fn libraries_are_not_the_users_code() {
        let named = ["project/train.py(5): f", "torch/nn/modules/module.py(1783): _call_impl", "<string>(1): f"];
        assert_eq!(named.map(is_users), [true, false, false]);
        assert!(!is_users("/usr/lib/python3.11/site-packages/x/y.py(3): g"));
        assert!(!is_users("nn.Module: Linear_3"));
    }
}
