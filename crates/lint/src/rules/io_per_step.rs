//! TP603: files written, opened or flushed at every step.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let Some(what) = what_it_does(call) else { continue };
        // Appending a line to a log takes a few microseconds on the host; a checkpoint does not.
        let function = program.function_of(call.context).name.to_ascii_lowercase();
        let is_log = ["log", "print", "write", "report"].iter().any(|word| function.contains(word));
        let appends = call.name == "open"
            && matches!(call.arguments.get(1).or(call.keyword("mode")), Some(Value::Text(Some(mode))) if mode.starts_with('a'));
        let notice = if is_log || appends || call.name == "flush" {
            Notice::Pedantic
        } else {
            notice::in_step(program, call.context)
        };
        let message = format!("`{}` {what} at every step, and the device waits", call.name);
        // A flush comes again; a file that is written less often may be missing at the end.
        let edit = match call.statement {
            Stmt::Expr(_) if call.name == "flush" => guard_by_cadence(program, call.context, call.statement),
            _ => None,
        };
        let fix = Fix::unsafe_("do it every few steps, or at the end of the epoch", edit.into_iter().collect());
        check.report_as(notice, call, message, fix);
    }
}

fn what_it_does(call: &Call) -> Option<&'static str> {
    match &call.callee {
        Callee::External(dotted) => match dotted.as_str() {
            "torch.save" | "numpy.save" | "numpy.savez" | "pickle.dump" => Some("writes a file"),
            "builtins.open" => Some("opens a file"),
            "sys.stdout.flush" | "sys.stderr.flush" => Some("flushes"),
            "matplotlib.pyplot.savefig" | "torchvision.utils.save_image" => Some("writes an image"),
            _ => None,
        },
        Callee::Method if call.arguments.is_empty() && call.name == "flush" => Some("flushes"),
        Callee::Method if matches!(call.name, "save_pretrained" | "save_checkpoint") => Some("writes a checkpoint"),
        _ => None,
    }
}
