//! Matrix products through cuBLASLt: descriptors created once per shape, the algorithm chosen by measurement and kept
//! on disk.

use super::driver::{Context, Event, Memory, Replay, Stream};
use super::error::CudaError;
use cudarc::cublaslt::sys as lt;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Bytes of workspace that a product may use beside its operands.
pub const WORKSPACE: usize = 32 << 20;

/// Number of cuBLASLt's proposals that are timed, and repetitions of each.
const CANDIDATES: usize = 16;
const REPEATS: usize = 10;

/// Number of finalists that are timed again, and for how long each.
const FINALISTS: usize = 4;
const FINAL_SECONDS: f64 = 0.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    F32,
    Bf16,
    /// Eight bits; the right operand of a product is always `e4m3`.
    E4m3,
    E5m2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arithmetic {
    Fp32,
    Tf32,
    /// Operands in bf16, sums in single precision.
    Bf16,
    /// Operands in eight bits, each with a scale; sums in single precision, or in the tensor cores' fastest
    /// accumulation.
    Fp8,
    Fp8Fast,
}

/// One row-major operand: its row stride in elements, and whether it is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Side {
    pub pitch: usize,
    pub transposed: bool,
}

/// `c[m, n] = a · b (+ c)`, all row-major; `a` is `[m, k]`, or `[k, m]` if transposed, and `b` `[k, n]` or `[n, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Side,
    pub b: Side,
    pub c_pitch: usize,
    pub inputs: Element,
    pub output: Element,
    pub arithmetic: Arithmetic,
    /// Whether the product is added to the contents of `c`.
    pub adds: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: Side| format!("{}{}", if side.transposed { "t" } else { "n" }, side.pitch);
        let (a, b) = (side(self.a), side(self.b));
        write!(
            f,
            "{}x{}x{}-{a}-{b}-{}-{:?}-{:?}-{:?}{}",
            self.m,
            self.n,
            self.k,
            self.c_pitch,
            self.inputs,
            self.output,
            self.arithmetic,
            if self.adds { "-adds" } else { "" }
        )
    }
}

/// Addresses of one call's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

/// A shape with its descriptors and the chosen algorithm.
pub struct Product {
    shape: Shape,
    operation: lt::cublasLtMatmulDesc_t,
    x: lt::cublasLtMatrixLayout_t,
    y: lt::cublasLtMatrixLayout_t,
    d: lt::cublasLtMatrixLayout_t,
    algorithm: lt::cublasLtMatmulAlgo_t,
}

macro_rules! lt {
    ($shape:expr, $call:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are live, and pointers are to live locals or to device memory that the caller owns.
        check(stringify!($call), unsafe { lt::$call($($argument),*) }, $shape)
    };
}

fn check(call: &'static str, status: lt::cublasStatus_t, shape: Option<&Shape>) -> Result<(), CudaError> {
    if status == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Product { call, status: format!("{status:?}"), shape: shape.map(Shape::to_string) })
}

/// cuBLASLt, the products prepared so far, and the choices kept on disk.
pub struct Products {
    handle: lt::cublasLtHandle_t,
    made: BTreeMap<Shape, Product>,
    kept: BTreeMap<String, [u64; 8]>,
    file: Option<PathBuf>,
    /// Number of new choices that are not on disk yet.
    fresh: usize,
    /// One per stream that products run on.
    workspaces: [Memory; 2],
}

impl Products {
    pub fn new(context: &Context, cache: Option<&Path>) -> Result<Products, CudaError> {
        let mut handle = null_mut();
        lt!(None, cublasLtCreate(&mut handle))?;
        // SAFETY: it takes nothing and has no preconditions.
        let version = unsafe { lt::cublasLtGetVersion() };
        let device: String = context.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = cache.map(|folder| folder.join(format!("products-{device}-cublaslt-{version}.txt")));
        let kept = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).map(|text| read_kept(&text));
        let workspaces = [Memory::new(context, WORKSPACE)?, Memory::new(context, WORKSPACE)?];
        Ok(Products { handle, made: BTreeMap::new(), kept: kept.unwrap_or_default(), file, fresh: 0, workspaces })
    }

    pub fn workspace_bytes(&self) -> usize {
        self.workspaces.iter().map(|memory| memory.bytes).sum()
    }

    /// Prepares a shape. Without a kept choice, its proposals are timed on `at`, whose output is overwritten.
    pub fn prepare(
        &mut self,
        stream: &Stream,
        shape: Shape,
        at: Addresses,
        scales: Option<[u64; 2]>,
    ) -> Result<(), CudaError> {
        if self.made.contains_key(&shape) {
            return Ok(());
        }
        let mut product = describe(shape)?;
        product.scale(scales)?;
        match self.kept.get(&shape.to_string()) {
            Some(&data) if self.still_valid(&product, data) => product.algorithm = lt::cublasLtMatmulAlgo_t { data },
            _ => {
                product.algorithm = self.fastest(stream, &product, at)?;
                self.kept.insert(shape.to_string(), product.algorithm.data);
                self.fresh += 1;
            }
        }
        self.made.insert(shape, product);
        Ok(())
    }

    /// Queues a prepared product; `workspace` is the index of its workspace.
    pub fn run(&self, stream: &Stream, workspace: usize, shape: &Shape, at: Addresses) -> Result<(), CudaError> {
        let product = &self.made[shape];
        self.queue(stream, workspace, product, &product.algorithm, at)
    }

    /// A kept choice between two implementations, stored beside the products': whether the second is faster.
    pub fn kept_choice(&self, key: &str) -> Option<bool> {
        self.kept.get(key).map(|words| words[0] == 1)
    }

    pub fn keep_choice(&mut self, key: &str, second: bool) {
        self.kept.insert(key.into(), [u64::from(second), 0, 0, 0, 0, 0, 0, 0]);
        self.fresh += 1;
    }

    /// The same for eight-bit operands; `scales` are the addresses of the units of `a` and `b`.
    pub fn run_scaled(
        &self,
        stream: &Stream,
        workspace: usize,
        shape: &Shape,
        at: Addresses,
        scales: [u64; 2],
    ) -> Result<(), CudaError> {
        let product = &self.made[shape];
        product.scale(Some(scales))?;
        self.queue(stream, workspace, product, &product.algorithm, at)
    }

    /// Saves the choices made since the last call; a failure to save is not a reason to stop.
    pub fn keep(&mut self) {
        let text = self.kept_text();
        let Some(file) = self.file.as_ref().filter(|_| self.fresh > 0) else { return };
        let partial = file.with_extension(format!("{}.partial", std::process::id()));
        let made = file.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok());
        if made && std::fs::write(&partial, text).is_ok() && std::fs::rename(&partial, file).is_ok() {
            self.fresh = 0;
        }
    }

    /// Choices as they are kept on disk.
    pub fn kept_text(&self) -> String {
        let line = |(shape, data): (&String, &[u64; 8])| {
            let words: Vec<String> = data.iter().map(|word| format!("{word:016x}")).collect();
            format!("{shape} {}\n", words.join(" "))
        };
        self.kept.iter().map(line).collect()
    }

    /// Takes over the choices of another process.
    pub fn take_kept(&mut self, text: &str) {
        self.kept.extend(read_kept(text));
    }

    /// One line per shape with its choice, for a run's notes.
    pub fn choices(&self) -> Vec<String> {
        self.made.iter().map(|(shape, product)| format!("{shape} {:016x}", product.algorithm.data[0])).collect()
    }

    fn queue(
        &self,
        stream: &Stream,
        workspace: usize,
        product: &Product,
        algorithm: &lt::cublasLtMatmulAlgo_t,
        at: Addresses,
    ) -> Result<(), CudaError> {
        let (alpha, beta) = (1.0f32, if product.shape.adds { 1.0f32 } else { 0.0 });
        let pointer = |address: u64| address as *mut c_void;
        lt!(
            Some(&product.shape),
            cublasLtMatmul(
                self.handle,
                product.operation,
                (&raw const alpha).cast(),
                pointer(at.b),
                product.x,
                pointer(at.a),
                product.y,
                (&raw const beta).cast(),
                pointer(at.c),
                product.d,
                pointer(at.c),
                product.d,
                algorithm,
                pointer(self.workspaces[workspace].at),
                WORKSPACE,
                stream.0.cast(),
            )
        )
    }

    fn still_valid(&self, product: &Product, data: [u64; 8]) -> bool {
        let algorithm = lt::cublasLtMatmulAlgo_t { data };
        let mut result = none_yet();
        let Product { operation, x, y, d, .. } = *product;
        lt!(None, cublasLtMatmulAlgoCheck(self.handle, operation, x, y, d, d, &algorithm, &mut result)).is_ok()
            && result.workspaceSize <= WORKSPACE
    }

    fn fastest(
        &self,
        stream: &Stream,
        product: &Product,
        at: Addresses,
    ) -> Result<lt::cublasLtMatmulAlgo_t, CudaError> {
        let proposals = self.proposals(product)?;
        // Proposals that cannot run or be captured are skipped.
        let mut ran: Vec<(f64, lt::cublasLtMatmulAlgo_t)> = proposals
            .iter()
            .filter_map(|proposal| {
                let replay = self.repeated(stream, product, &proposal.algo, at, REPEATS).ok()?;
                Some((least_seconds(stream, &replay, 2).ok()? / REPEATS as f64, proposal.algo))
            })
            .collect();
        ran.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(fastest, _)) = ran.first() else {
            return Err(CudaError::Product {
                call: "cublasLtMatmul",
                status: format!("none of {} algorithms ran", proposals.len()),
                shape: Some(product.shape.to_string()),
            });
        };
        // Times the best few again, alternately and for longer: a short run does not show the rate of a warm device.
        ran.truncate(FINALISTS);
        let repeats = ((FINAL_SECONDS / fastest) as usize).clamp(REPEATS, 2000);
        let replays: Vec<Replay> = ran
            .iter()
            .map(|(_, algorithm)| self.repeated(stream, product, algorithm, at, repeats.min(100)))
            .collect::<Result<_, _>>()?;
        let mut seconds = vec![0.0; ran.len()];
        for _ in 0..repeats.div_ceil(100).max(3) {
            for (total, replay) in seconds.iter_mut().zip(&replays) {
                *total += least_seconds(stream, replay, 1)?;
            }
        }
        let best = (0..ran.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).unwrap_or(0);
        Ok(ran[best].1)
    }

    /// A product repeated this often, replayed from a graph so that launch overhead is not measured.
    fn repeated(
        &self,
        stream: &Stream,
        product: &Product,
        algorithm: &lt::cublasLtMatmulAlgo_t,
        at: Addresses,
        times: usize,
    ) -> Result<Replay, CudaError> {
        self.queue(stream, 0, product, algorithm, at)?;
        stream.wait()?;
        stream.captured(|| (0..times).try_for_each(|_| self.queue(stream, 0, product, algorithm, at)))
    }

    fn proposals(&self, product: &Product) -> Result<Vec<lt::cublasLtMatmulHeuristicResult_t>, CudaError> {
        use lt::cublasLtMatmulPreferenceAttributes_t as P;
        let shape = Some(&product.shape);
        let mut preference = null_mut();
        lt!(shape, cublasLtMatmulPreferenceCreate(&mut preference))?;
        let most = WORKSPACE;
        let size = P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        lt!(shape, cublasLtMatmulPreferenceSetAttribute(preference, size, (&raw const most).cast(), 8))?;
        // Partial sums are added in the workspace in a fixed order, never by atomics into the result.
        let in_order: u32 = 2 | 4;
        let reduction = P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        lt!(shape, cublasLtMatmulPreferenceSetAttribute(preference, reduction, (&raw const in_order).cast(), 4))?;
        let mut found = vec![none_yet(); CANDIDATES];
        let mut count = 0;
        let Product { operation, x, y, d, .. } = *product;
        let asked = lt!(
            shape,
            cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation,
                x,
                y,
                d,
                d,
                preference,
                CANDIDATES as i32,
                found.as_mut_ptr(),
                &mut count
            )
        );
        lt!(None, cublasLtMatmulPreferenceDestroy(preference))?;
        asked?;
        found.truncate(count as usize);
        found.retain(|result| result.state == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(found)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let _ = lt!(None, cublasLtDestroy(self.handle));
    }
}

impl Product {
    /// Sets the addresses of the next product's scales; they are read when it runs.
    fn scale(&self, scales: Option<[u64; 2]>) -> Result<(), CudaError> {
        let Some([a, b]) = scales else { return Ok(()) };
        use lt::cublasLtMatmulDescAttributes_t as D;
        // `b` comes first; see `describe`.
        for (attribute, at) in
            [(D::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b), (D::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a)]
        {
            let shape = Some(&self.shape);
            lt!(shape, cublasLtMatmulDescSetAttribute(self.operation, attribute, (&raw const at).cast(), 8))?;
        }
        Ok(())
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = lt!(None, cublasLtMatmulDescDestroy(self.operation));
        for layout in [self.x, self.y, self.d] {
            let _ = lt!(None, cublasLtMatrixLayoutDestroy(layout));
        }
    }
}

fn least_seconds(stream: &Stream, replay: &Replay, times: usize) -> Result<f64, CudaError> {
    let (start, end) = (Event::timed()?, Event::timed()?);
    let mut least = f64::INFINITY;
    for _ in 0..times {
        start.record(stream)?;
        replay.launch(stream)?;
        end.record(stream)?;
        end.wait()?;
        least = least.min(end.seconds_since(&start)?);
    }
    Ok(least)
}

fn none_yet() -> lt::cublasLtMatmulHeuristicResult_t {
    // SAFETY: plain numbers, for which zero is valid; cuBLASLt fills them in.
    unsafe { std::mem::zeroed() }
}

/// cuBLASLt is column-major: the row-major product is its transpose, `cᵀ = bᵀ · aᵀ`, so `b` comes first.
fn describe(shape: Shape) -> Result<Product, CudaError> {
    use lt::cudaDataType_t as D;
    let named = Some(&shape);
    let data = |element: Element| match element {
        Element::F32 => D::CUDA_R_32F,
        Element::Bf16 => D::CUDA_R_16BF,
        Element::E4m3 => D::CUDA_R_8F_E4M3,
        Element::E5m2 => D::CUDA_R_8F_E5M2,
    };
    let compute = match shape.arithmetic {
        Arithmetic::Fp32 | Arithmetic::Bf16 | Arithmetic::Fp8 | Arithmetic::Fp8Fast => {
            lt::cublasComputeType_t::CUBLAS_COMPUTE_32F
        }
        Arithmetic::Tf32 => lt::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
    };
    let mut operation = null_mut();
    lt!(named, cublasLtMatmulDescCreate(&mut operation, compute, D::CUDA_R_32F))?;
    let transpose = |side: Side| side.transposed as i32;
    for (attribute, side) in [
        (lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, shape.b),
        (lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, shape.a),
    ] {
        let value = transpose(side);
        lt!(named, cublasLtMatmulDescSetAttribute(operation, attribute, (&raw const value).cast(), 4))?;
    }
    if shape.arithmetic == Arithmetic::Fp8Fast {
        let fast: i8 = 1;
        let attribute = lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_FAST_ACCUM;
        lt!(named, cublasLtMatmulDescSetAttribute(operation, attribute, (&raw const fast).cast(), 1))?;
    }
    let right = if inputs_are_eight_bits(shape.inputs) { Element::E4m3 } else { shape.inputs };
    let layout = |element: Element, rows: usize, columns: usize, pitch: usize| {
        let mut layout = null_mut();
        lt!(named, cublasLtMatrixLayoutCreate(&mut layout, data(element), rows as u64, columns as u64, pitch as i64))
            .map(|()| layout)
    };
    let Shape { m, n, k, a, b, c_pitch, inputs, output, .. } = shape;
    let (b_rows, b_columns) = if b.transposed { (k, n) } else { (n, k) };
    let (a_rows, a_columns) = if a.transposed { (m, k) } else { (k, m) };
    Ok(Product {
        shape,
        operation,
        x: layout(right, b_rows, b_columns, b.pitch)?,
        y: layout(inputs, a_rows, a_columns, a.pitch)?,
        d: layout(output, n, m, c_pitch)?,
        algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
    })
}

fn inputs_are_eight_bits(element: Element) -> bool {
    matches!(element, Element::E4m3 | Element::E5m2)
}

fn read_kept(text: &str) -> BTreeMap<String, [u64; 8]> {
    let line = |line: &str| {
        let (shape, words) = line.split_once(' ')?;
        let words: Vec<u64> = words.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        Some((shape.to_string(), words.try_into().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_choices_are_read_and_damaged_lines_passed_over() {
        let words = ["00000000000000ff"; 8].join(" ");
        let text = format!("1x2x3-n3-t3-2 {words}\n4x4x4-cut 00ff\n\nnothing\n");
        let kept = read_kept(&text);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept["1x2x3-n3-t3-2"], [255; 8]);
    }
}
