//! Builds traces in Kineto's format, event by event.

use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_trace::Trace;

use crate::held::held;

/// A run in microseconds. The host launches ten kernels of 900 µs per step and stays ahead; each test adds its fault.
pub struct Run {
    pub events: Vec<String>,
    pub rank: u32,
    pub world: u32,
    /// When the device's first stream is free again.
    pub device_free: f64,
    pub host: f64,
    pub next_id: u32,
    /// Prefix of the vendor's calls: `cuda` or `hip`.
    pub vendor: &'static str,
    /// Members of the top-level object, each with its comma.
    pub header: &'static str,
}

/// An H200, as torch describes it.
pub const H200: &str =
    r#""deviceProperties":[{"id":0,"name":"NVIDIA H200","totalGlobalMem":150000000000,"numSms":132}],"#;

impl Run {
    pub fn new() -> Run {
        Run {
            events: Vec::new(),
            rank: 0,
            world: 1,
            device_free: 0.0,
            host: 1000.0,
            next_id: 1,
            vendor: "cuda",
            header: "",
        }
    }

    pub fn host_span(&mut self, category: &str, name: &str, duration: f64, id: Option<u32>) {
        let arguments = match (category, id) {
            ("cpu_op", Some(id)) => format!(r#","args":{{"External id":{id}}}"#),
            (_, Some(id)) => format!(r#","args":{{"correlation":{id},"External id":{id}}}"#),
            _ => String::new(),
        };
        let at = self.host;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{at:.3},"dur":{duration:.3}{arguments}}}"#
        ));
    }

    #[expect(clippy::too_many_arguments, reason = "an event's own fields, in the order of the file")]
    pub fn device_span(
        &mut self,
        category: &str,
        name: &str,
        stream: u32,
        at: f64,
        duration: f64,
        id: u32,
        more: &str,
    ) {
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{at:.3},"dur":{duration:.3},"args":{{"device":0,"stream":{stream},"correlation":{id}{more}}}}}"#
        ));
    }

    /// An operator that launches one kernel: 30 µs on the host.
    pub fn kernel(&mut self, operator: &str, name: &str, duration: f64) {
        let id = self.next_id;
        self.next_id += 1;
        self.host_span("cpu_op", operator, 30.0, Some(id));
        self.host += 10.0;
        self.host_span("cuda_runtime", &format!("{}LaunchKernel", self.vendor), 10.0, Some(id));
        let at = self.device_free.max(self.host + 12.0);
        self.device_span("kernel", name, 7, at, duration, id, "");
        self.device_free = at + duration;
        self.host += 20.0;
    }

    /// A GEMM of bf16 or fp32 matrices of 4096 × 4096, with its shapes.
    pub fn product(&mut self, element: &str, name: &str, duration: f64) {
        let id = self.next_id;
        self.next_id += 1;
        let at = self.host;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{at:.3},"dur":30,"args":{{"External id":{id},"Input Dims":[[4096,4096],[4096,4096]],"Input type":["{element}","{element}"]}}}}"#
        ));
        self.host += 10.0;
        self.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
        let at = self.device_free.max(self.host + 12.0);
        let more = r#","grid":[2048,1,1],"block":[128,1,1],"est. achieved occupancy %":12"#;
        self.device_span("kernel", name, 7, at, duration, id, more);
        self.device_free = at + duration;
        self.host += 20.0;
    }

    /// The host waits until the device has finished everything.
    pub fn synchronise(&mut self, name: &str) {
        let waits = (self.device_free - self.host).max(0.0) + 8.0;
        self.host_span("cuda_runtime", name, waits, None);
        self.host += waits;
    }

    /// A step of `body` under the profiler's mark; the host continues at once.
    pub fn step_ahead(&mut self, number: u32, body: impl FnOnce(&mut Run)) {
        let start = self.host;
        body(self);
        let duration = self.host - start;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
        ));
    }

    /// A step of `body` under the profiler's mark; the host then waits for the device, so that all steps are equally
    /// long.
    pub fn step(&mut self, number: u32, body: impl FnOnce(&mut Run)) {
        self.step_ahead(number, |run| {
            body(run);
            let wait = format!("{}DeviceSynchronize", run.vendor);
            run.synchronise(&wait);
        });
    }

    pub fn work(&mut self) {
        for _ in 0..10 {
            self.kernel("aten::mm", "nvjet_tst_128x256_h_bz_coopA_NNT", 900.0);
        }
    }

    pub fn text(&self) -> String {
        format!(
            r#"{{"schemaVersion":1,{}"distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},"traceEvents":[{}]}}"#,
            self.header,
            self.rank,
            self.world,
            self.events.join(",")
        )
    }

    pub fn trace(&self) -> Trace {
        headroom_trace::read_bytes(self.text().as_bytes()).expect("is a trace")
    }

    pub fn analysis(&self) -> Analysis {
        held(analyze(&[self.trace()], &Options::default()).expect("there is a trace"))
    }
}

pub fn steps(body: impl Fn(&mut Run, u32)) -> Run {
    let mut run = Run::new();
    for number in 0..4 {
        run.step(number, |run| body(run, number));
    }
    run
}

/// Five steps in which the host never waits: it launches work faster than the device runs it.
pub fn steps_ahead(header: &'static str, body: impl Fn(&mut Run)) -> Run {
    let mut run = Run { header, ..Run::new() };
    for number in 0..5 {
        run.step_ahead(number, &body);
    }
    run
}

pub fn codes(analysis: &Analysis) -> Vec<&'static str> {
    analysis.findings.iter().map(|finding| finding.code).collect()
}

/// The share of the first finding of a rule.
pub fn share(analysis: &Analysis, code: &str) -> f64 {
    let found = analysis.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} among {:?}", codes(analysis))).share_of_step.unwrap_or(0.0)
}

pub fn assert_near(found: f64, want: f64) {
    assert!((found - want).abs() < 0.03, "{found} is not {want}");
}
