//! Measured peaks of a GPU: the rate of large GEMMs in each precision, memory bandwidth, and the cost of a launch.

use super::driver::{self, Context, Event, Memory, Stream};
use super::error::CudaError;
use super::product::{Addresses, Arithmetic, Element, Products, Shape, Side};
use super::{Options, level, library, lower};
use crate::cuda::compile::{EXCHANGE, Kernels, NO_CONTRACTION, RANDOM, Unit};
use crate::cuda::launch::{Action, Arguments, Kernel};
use headroom_graph::Precision;

#[derive(Clone, Debug)]
pub struct Peaks {
    /// FLOP/s by precision: fp32, tf32, bf16, and fp8 if supported.
    pub products: Vec<(&'static str, f64)>,
    /// Bytes per second, read plus written, of a large copy.
    pub bytes: f64,
    /// Seconds from one small kernel to the next: launched by the host, and replayed.
    pub launch_seconds: f64,
    pub replay_seconds: f64,
}

/// Edge of the square products; at 8192 a bf16 product runs for more than a millisecond.
const EDGE: usize = 8192;
const COPY_BYTES: usize = 1 << 31;
const LAUNCHES: usize = 200;

pub fn measure_peaks(options: &Options) -> Result<Peaks, CudaError> {
    library::open()?;
    let context = Context::new(options.ordinal)?;
    let stream = Stream::new()?;
    let mut kernels = Kernels::new(context.capability, options.cache.as_deref());
    let mut products = Products::new(&context, options.cache.as_deref())?;
    let room = Memory::new(&context, 2 * COPY_BYTES)?;
    let one = Memory::of(&context, &1.0f32.to_le_bytes())?;
    let timer = Timer { stream: &stream, start: Event::timed()?, end: Event::timed()? };
    let mut rates = vec![];
    for (name, element, arithmetic) in [
        ("fp32", Element::F32, Arithmetic::Fp32),
        ("tf32", Element::F32, Arithmetic::Tf32),
        ("bf16", Element::Bf16, Arithmetic::Bf16),
        ("fp8", Element::E4m3, Arithmetic::Fp8Fast),
    ] {
        let is_fp8 = element == Element::E4m3;
        if is_fp8 && !level::has(context.capability, Precision::Fp8) {
            continue;
        }
        fill(&context, &mut kernels, &products, &stream, &room, element)?;
        let side = |transposed: bool| Side { pitch: EDGE, transposed };
        let shape = Shape {
            m: EDGE,
            n: EDGE,
            k: EDGE,
            a: side(false),
            b: side(true),
            c_pitch: EDGE,
            inputs: element,
            output: if is_fp8 { Element::Bf16 } else { element },
            arithmetic,
            adds: false,
        };
        let bytes = (EDGE * EDGE * 4) as u64;
        let at = Addresses { a: room.at, b: room.at + bytes, c: room.at + 2 * bytes };
        let scales = is_fp8.then_some([one.at; 2]);
        products.prepare(&stream, shape, at, scales)?;
        let seconds = timer.least(8, || match scales {
            Some(scales) => products.run_scaled(&stream, 0, &shape, at, scales),
            None => products.run(&stream, 0, &shape, at),
        })?;
        rates.push((name, 2.0 * (EDGE as f64).powi(3) / seconds));
    }
    products.keep();
    let (from, to) = (room.at, room.at + COPY_BYTES as u64);
    let copy = timer.least(8, || driver::copy(to, from, COPY_BYTES, &stream))?;
    let function = kernels.function(&Unit { source: EXCHANGE, options: vec![] }, "give_results", 0)?;
    let arguments = Arguments::default().none().none().pointer(room.at).pointer(room.at + 64).u32(4);
    let name = "give_results".to_string();
    let small = Action::Kernel(Kernel { function, name, grid: [1; 3], block: [32, 1, 1], shared: 0, arguments });
    let many = || (0..LAUNCHES).try_for_each(|_| small.run(&stream, 0, &products));
    let launch = timer.least(3, many)? / LAUNCHES as f64;
    let replay = stream.captured(many)?;
    let replayed = timer.least(3, || replay.launch(&stream))? / LAUNCHES as f64;
    Ok(Peaks {
        products: rates,
        bytes: 2.0 * COPY_BYTES as f64 / copy,
        launch_seconds: launch,
        replay_seconds: replayed,
    })
}

/// Sustained rates of bf16 products `[m, n, k]` in the three forms of a layer: what a model's own shapes can reach.
pub fn product_rates(options: &Options, shapes: &[[usize; 3]]) -> Result<Vec<(String, f64)>, CudaError> {
    library::open()?;
    let context = Context::new(options.ordinal)?;
    let stream = Stream::new()?;
    let mut kernels = Kernels::new(context.capability, options.cache.as_deref());
    let mut products = Products::new(&context, options.cache.as_deref())?;
    let room = Memory::new(&context, 6 << 30)?;
    fill(&context, &mut kernels, &products, &stream, &room, Element::Bf16)?;
    let timer = Timer { stream: &stream, start: Event::timed()?, end: Event::timed()? };
    let mut rates = vec![];
    for &[m, n, k] in shapes {
        for (form, a, b) in
            [("nt", (k, false), (k, true)), ("nn", (k, false), (n, false)), ("tn", (m, true), (n, false))]
        {
            let side = |(pitch, transposed): (usize, bool)| Side { pitch, transposed };
            let shape = Shape {
                m,
                n,
                k,
                a: side(a),
                b: side(b),
                c_pitch: n,
                inputs: Element::Bf16,
                output: Element::Bf16,
                arithmetic: Arithmetic::Bf16,
                adds: false,
            };
            let at = Addresses { a: room.at, b: room.at + (2 << 30), c: room.at + (4 << 30) };
            products.prepare(&stream, shape, at, None)?;
            let times = (0.2 / (2.0 * (m * n * k) as f64 / 7e14)).clamp(10.0, 5000.0) as usize;
            let many = || (0..times).try_for_each(|_| products.run(&stream, 0, &shape, at));
            let seconds = timer.least(2, many)? / times as f64;
            rates.push((format!("{m}x{n}x{k} {form}"), 2.0 * (m * n * k) as f64 / seconds));
        }
    }
    Ok(rates)
}

struct Timer<'a> {
    stream: &'a Stream,
    start: Event,
    end: Event,
}

impl Timer<'_> {
    /// The shortest of several runs, after one warm-up.
    fn least(&self, times: usize, mut run: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
        run()?;
        let mut least = f64::INFINITY;
        for _ in 0..times {
            self.start.record(self.stream)?;
            run()?;
            self.end.record(self.stream)?;
            self.end.wait()?;
            least = least.min(self.end.seconds_since(&self.start)?);
        }
        Ok(least)
    }
}

/// Fills with random numbers: products of zeros are faster than real ones.
fn fill(
    context: &Context,
    kernels: &mut Kernels,
    products: &Products,
    stream: &Stream,
    room: &Memory,
    element: Element,
) -> Result<(), CudaError> {
    let unit = Unit { source: RANDOM, options: NO_CONTRACTION.iter().map(|option| option.to_string()).collect() };
    let function = kernels.function(&unit, "draw_normal", 0)?;
    let (single, half, bytes) = match element {
        Element::F32 => (room.at, 0, 4),
        Element::Bf16 | Element::E4m3 | Element::E5m2 => (0, room.at, 2),
    };
    let arguments =
        Arguments::default().pointer(single).pointer(half).u64(room.bytes / bytes).u32(1).u32(0).u32(1).u32(0).f32(1.0);
    let grid = [32 * context.multiprocessors, 1, 1];
    let launch = |name: &str, function, arguments| {
        let kernel = Kernel { function, name: name.into(), grid, block: [256, 1, 1], shared: 0, arguments };
        Action::Kernel(kernel).run(stream, 0, products)
    };
    launch("draw_normal", function, arguments)?;
    if element == Element::E4m3 {
        // Converts from the upper half of the memory to the lower one.
        let (function, half) = (kernels.function(&lower::fp8::unit(), "as_codes", 0)?, room.bytes as u64 / 2);
        let arguments = Arguments::default().pointer(room.at + half).pointer(room.at).u64(half as usize / 2);
        launch("as_codes", function, arguments)?;
    }
    Ok(())
}
