//! Classifies kernels by name: what the device's time went into, and which kernels use tensor cores.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headroom_trace::Category;
use serde::{Deserialize, Serialize};

use super::collectives::is_communication;
use super::copies::{Direction, direction};
use super::intervals::seconds;
use super::view::View;
use crate::table;

/// Kind of a piece of device work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Product,
    Convolution,
    Attention,
    Normalisation,
    ElementWise,
    Reduction,
    /// Embeddings, gathers, scatters, sorts.
    Indexing,
    Optimizer,
    Communication,
    /// Copies and fills that stay on the device, transposes and layout changes.
    CopyOnDevice,
    CopyToOrFromHost,
    #[default]
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Product => "matrix products",
            Kind::Convolution => "convolutions",
            Kind::Attention => "attention",
            Kind::Normalisation => "norms",
            Kind::ElementWise => "element-wise",
            Kind::Reduction => "reductions",
            Kind::Indexing => "indexing and sorting",
            Kind::Optimizer => "optimizer",
            Kind::Communication => "communication",
            Kind::CopyOnDevice => "copies on the device",
            Kind::CopyToOrFromHost => "copies to or from the host",
            Kind::Other => "other kernels",
        }
    }

    /// Whether matrix units run it where possible.
    pub fn is_for_matrix_units(self) -> bool {
        matches!(self, Kind::Product | Kind::Convolution | Kind::Attention)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindRow {
    pub kind: Kind,
    pub name: &'static str,
    pub calls: u64,
    pub seconds: f64,
    /// Share of all device time.
    pub share: f64,
}

/// Device time by kind, the largest first. Concurrent work counts for each kind.
pub fn kinds(view: &View) -> Vec<KindRow> {
    let device = &view.trace.device;
    let range = view.steps.range();
    let of_name = kinds_of_names(view);
    let mut sums: BTreeMap<Kind, (u64, i64)> = BTreeMap::new();
    for at in device.busy().filter(|&at| (range.start..range.end).contains(&device.start[at])) {
        let sum = sums.entry(of_span(view, &of_name, at)).or_default();
        sum.0 += 1;
        sum.1 += device.duration[at];
    }
    let all: i64 = sums.values().map(|(_, nanos)| nanos).sum();
    let row = |(kind, (calls, nanos)): (Kind, (u64, i64))| KindRow {
        kind,
        name: kind.name(),
        calls,
        seconds: seconds(nanos),
        share: nanos as f64 / all.max(1) as f64,
    };
    let mut rows: Vec<KindRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|left, right| right.seconds.total_cmp(&left.seconds).then(left.kind.cmp(&right.kind)));
    rows
}

/// Kinds by name id; meaningless for names that are not kernels.
pub fn kinds_of_names(view: &View) -> Vec<Kind> {
    view.of_kernels(kind_of)
}

pub fn of_span(view: &View, of_name: &[Kind], at: usize) -> Kind {
    let device = &view.trace.device;
    match device.category[at] {
        Category::Memcpy if direction(view.name(device.name[at])) != Direction::Within => Kind::CopyToOrFromHost,
        Category::Memcpy | Category::Memset => Kind::CopyOnDevice,
        _ => of_name[device.name[at].index()],
    }
}

/// A row of `kernel_marks.tsv`: what the mark says of a kernel.
type Mark = (&'static str, &'static str);

static MARKS: LazyLock<(Vec<(Kind, &'static str)>, Vec<Mark>)> = LazyLock::new(|| {
    let rows = table::rows(include_str!("kernel_marks.tsv")).map(|[what, mark]| (what, mark));
    let (units, kinds): (Vec<Mark>, Vec<Mark>) = rows.partition(|(what, _)| what.ends_with("matrix-units"));
    let kind = |what: &str| serde_json::from_value(what.into()).expect("the table names kinds");
    (kinds.into_iter().map(|(what, mark)| (kind(what), mark)).collect(), units)
});

pub fn kind_of(kernel: &str) -> Kind {
    if is_communication(kernel) {
        return Kind::Communication;
    }
    let lower = kernel.to_ascii_lowercase();
    // PyTorch's own kernels name their form before their purpose: `elementwise_kernel<…threshold_kernel_impl…>`.
    if lower.contains("elementwise_kernel") || lower.contains("catarraybatchedcopy") || lower.starts_with("triton_poi")
    {
        return Kind::ElementWise;
    }
    if lower.contains("reduce_kernel") && !lower.contains("splitk") {
        return Kind::Reduction;
    }
    if lower.starts_with("triton_red") || lower.starts_with("triton_per") {
        return Kind::Reduction;
    }
    MARKS.0.iter().find(|(_, mark)| lower.contains(mark)).map_or(Kind::Other, |(kind, _)| *kind)
}

/// Whether a kernel uses matrix units, by the marks that vendors put into names: `Some(true)` for tensor cores, MFMA
/// and similar, `Some(false)` for kernels known to do without, `None` if the name does not say.
pub fn uses_matrix_units(kernel: &str) -> Option<bool> {
    let lower = kernel.to_ascii_lowercase();
    let has = |units: &str| MARKS.1.iter().any(|(what, mark)| *what == units && lower.contains(mark));
    let (with, without) = (has("matrix-units"), has("no-matrix-units"));
    match (with, without) {
        (true, false) => Some(true),
        // `…sgemm…tensorop…` names a single-precision GEMM on tensor cores; likewise `…f32f32_tf32f32…`.
        (true, true) => Some(lower.contains("tf32") || lower.contains("tensorop") || lower.contains("xf32")),
        (false, true) => Some(false),
        // Tensile writes its matrix instruction into the name; a single-precision GEMM without one does not use any.
        (false, false) => (lower.starts_with("cijk_") && lower.contains("_sb_")).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_say_in_their_names_what_they_do() {
        let cases = [
            ("volta_sgemm_128x64_nt", Kind::Product),
            ("nvjet_tst_128x64_64x7_1x2_h_bz_TNN", Kind::Product),
            ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1", Kind::Product),
            ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)", Kind::Convolution),
            ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", Kind::Convolution),
            ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", Kind::Convolution),
            ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32", Kind::Convolution),
            ("attn_fwd", Kind::Attention),
            ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64> >", Kind::Attention),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl<float>",
                Kind::ElementWise,
            ),
            ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>", Kind::ElementWise),
            ("triton_poi_fused_addmm_gelu_view_15", Kind::ElementWise),
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps>",
                Kind::Reduction,
            ),
            (
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
                Kind::Normalisation,
            ),
            ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)", Kind::Normalisation),
            ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>", Kind::Optimizer),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Kind::Communication),
            // Names of ROCm's libraries as they stand in public traces of MI210 and MI300X (those of TraceLens' tests), cut
            // short; AOTriton's and MIOpen's others are the functions' names in their sources.
            ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", Kind::Communication),
            ("Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0_ACED0", Kind::Product),
            ("_ZN7ck_tile6kentryILi1ENS_19UniversalGemmKernelINS_29GemmTileNChunked1DPartitioner", Kind::Product),
            ("rocblas_ger_kernel", Kind::Product),
            ("_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_27BlockFmhaPipelineQRKSVSAsync", Kind::Attention),
            ("bwd_preprocess", Kind::Attention),
            ("bwd_kernel_dk_dv", Kind::Attention),
            ("bwd_kernel_dq", Kind::Attention),
            ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePass", Kind::Normalisation),
            ("MIOpenBatchNormFwdTrainSpatialMeanVariance", Kind::Normalisation),
            ("MIOpenBatchNormBwdSpatial", Kind::Normalisation),
            ("SubTensorOpWithScalar1d", Kind::ElementWise),
            ("SubTensorOpWithCastTensor1d", Kind::ElementWise),
            ("_ZN7ck_tile6kentryILi1ENS_16MoeSortingKernel", Kind::Indexing),
            ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47Gridwise", Kind::Convolution),
            ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8_ws1x1_wr1x1", Kind::Convolution),
            ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", Kind::Convolution),
            ("miopenGcnAsmConv1x1U", Kind::Convolution),
            ("Im2d2Col_v2", Kind::Convolution),
            ("Op2dTensorLite", Kind::ElementWise),
            ("MIOpenActiveFwd2DLite", Kind::ElementWise),
            ("transpose_NCHW2CNHW_V2_2D_WG_off64", Kind::CopyOnDevice),
            ("__amd_rocclr_copyBuffer", Kind::CopyOnDevice),
            ("__amd_rocclr_fillBufferAligned", Kind::CopyOnDevice),
            ("batched_transpose_32x32_half", Kind::CopyOnDevice),
            ("my_kernel", Kind::Other),
        ];
        for (kernel, want) in cases {
            assert_eq!(kind_of(kernel), want, "{kernel}");
        }
    }

    #[test]
    fn kernels_say_in_their_names_whether_they_use_matrix_units() {
        let with = [
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16",
            "nvjet_tst_128x64_64x7_1x2_h_bz_TNN",
            "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
            "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1",
            "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN_LDSB0",
            "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8",
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3",
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>",
        ];
        let without = [
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8",
            "ampere_sgemm_128x64_nn",
            "volta_scudnn_128x128_stridedB_splitK_small_nn_v1",
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)",
            "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>",
        ];
        for kernel in with {
            assert_eq!(uses_matrix_units(kernel), Some(true), "{kernel}");
        }
        for kernel in without {
            assert_eq!(uses_matrix_units(kernel), Some(false), "{kernel}");
        }
        assert_eq!(uses_matrix_units("attn_fwd"), None);
    }
}
