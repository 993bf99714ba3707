//! Builds made-up traces for unit tests, with times in nanoseconds and custom arguments.

use headroom_trace::{Trace, read_bytes};

use crate::measures::view::View;

/// Nanoseconds of a microsecond.
pub const MICRO: i64 = 1_000;

/// A trace built event by event; correlations are numbered in order.
#[derive(Default)]
pub struct Fabricated {
    /// Members of the file besides its events, each followed by a comma.
    pub header: String,
    events: Vec<String>,
    launches: u32,
}

fn micros(nanos: i64) -> String {
    format!("{}.{:03}", nanos / 1_000, nanos % 1_000)
}

impl Fabricated {
    pub fn on(device: &str) -> Fabricated {
        let header = format!(r#""deviceProperties":[{{"id":0,"name":"{device}"}}],"record_shapes":1,"#);
        Fabricated { header, ..Fabricated::default() }
    }

    pub fn span(&mut self, category: &str, name: &str, thread: u32, start: i64, end: i64, args: &str) {
        let (start, duration) = (micros(start), micros(end - start));
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{duration},"args":{{{args}}}}}"#
        ));
    }

    pub fn step(&mut self, number: u32, start: i64, end: i64) {
        self.span("user_annotation", &format!("ProfilerStep#{number}"), 1, start, end, "");
    }

    pub fn operator(&mut self, name: &str, start: i64, end: i64) {
        self.span("cpu_op", name, 1, start, end, "");
    }

    /// An operator on tensors of one type.
    pub fn shaped(&mut self, name: &str, start: i64, end: i64, dims: &str, kind: &str) {
        let inputs = dims.matches("],").count() + 1;
        let types = vec![format!("\"{kind}\""); inputs].join(",");
        self.span("cpu_op", name, 1, start, end, &format!(r#""Input Dims":{dims},"Input type":[{types}]"#));
    }

    /// A launch on the first thread and its kernel on stream 7, each as `(start, end)`.
    pub fn launch(&mut self, call: (i64, i64), kernel: &str, work: (i64, i64)) {
        self.launches += 1;
        let id = format!(r#""correlation":{}"#, self.launches);
        self.span("cuda_runtime", "cudaLaunchKernel", 1, call.0, call.1, &id);
        self.span("kernel", kernel, 7, work.0, work.1, &id);
    }

    pub fn trace(&self) -> Trace {
        let text = format!(r#"{{{}"traceEvents":[{}]}}"#, self.header, self.events.join(","));
        read_bytes(text.as_bytes()).expect("is a trace")
    }

    /// Measures the trace.
    pub fn viewed<T>(&self, measure: impl FnOnce(&View) -> T) -> T {
        measure(&View::new(&self.trace()))
    }
}
