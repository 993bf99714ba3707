//! Readable forms of kernel names, which may be hundreds of characters long.

/// Parts of a name that say nothing about what a kernel does.
const NOISE: [&str; 4] = ["(anonymous namespace)::", "at::native::", "at_cuda_detail::", "c10::"];

/// A kernel's name without return type, arguments and common namespaces, of at most this many characters.
pub fn kernel(name: &str, most: usize) -> String {
    let mut plain = name.strip_prefix("void ").unwrap_or(name).to_string();
    for noise in NOISE {
        plain = plain.replace(noise, "");
    }
    if let Some(end) = arguments(&plain) {
        plain.truncate(end);
    }
    shortened(&of_library(&plain).unwrap_or(plain), most)
}

/// Wrapper functions whose template argument is the actual kernel.
const WRAPPERS: [&str; 5] =
    ["cutlass::Kernel", "cutlass::Kernel2", "cutlass::device_kernel", "ck_tile::kentry", "kentry"];

/// A CUTLASS or Composable Kernel name, whose templates run to thousands of characters: its own name and its first tile
/// sizes.
fn of_library(name: &str) -> Option<String> {
    let (function, parameters) = name.split_once('<')?;
    if WRAPPERS.contains(&function) {
        let inner =
            top_level(parameters).into_iter().find(|part| part.starts_with(|letter: char| letter.is_alphabetic()))?;
        return Some(of_library(inner).unwrap_or_else(|| inner.to_string()));
    }
    let library = ["ck_tile", "cutlass", "ck", "cute"]
        .into_iter()
        .find(|library| function.strip_prefix(library).is_some_and(|rest| rest.starts_with("::")))?;
    let own = function.rsplit("::").next().unwrap_or(function);
    let sizes: Vec<&str> = parameters
        .split([',', '<', '>', ' '])
        .filter(|part| part.parse::<u32>().is_ok_and(|size| size > 1))
        .take(4)
        .collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!("<{}, …>", sizes.join(", ")) };
    Some(format!("{library}::{own}{sizes}"))
}

/// Splits a list of template parameters at its top level, up to the bracket that closes it.
fn top_level(parameters: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_usize, 0, Vec::new());
    for (at, letter) in parameters.char_indices() {
        match letter {
            '<' | '(' => depth += 1,
            '>' | ')' if depth == 0 => {
                parts.push(parameters[from..at].trim());
                return parts;
            }
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(parameters[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(parameters[from..].trim());
    parts
}

/// Start of the argument list: the first `(` right after a name and outside all template parameters, if the name ends
/// with `)`.
fn arguments(name: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let begin = name.char_indices().find_map(|(at, letter)| {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && at > 0 && !name[..at].ends_with(' ') => return Some(at),
            _ => {}
        }
        None
    });
    begin.filter(|_| name.ends_with(')'))
}

/// Truncates the name at the end and marks that with an ellipsis.
pub fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_string();
    }
    let kept: String = name.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_loses_what_says_nothing() {
        let long = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous \
                    namespace)::TensorListMetadata<2>, UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float> \
                    >(at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::Sqrt<float>)";
        let plain = "multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<float, 2, 1, 1>, Sqrt<float> >";
        assert_eq!(kernel(long, 200), plain);
        assert_eq!(kernel(long, 12), "multi_tenso…");
    }

    #[test]
    fn kernels_of_template_libraries_are_called_by_their_own_name() {
        let cutlass =
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(cutlass_80_tensorop::Params)";
        assert_eq!(kernel(cutlass, 160), "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4");
        let universal = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, \
                         cutlass::gemm::collective::CollectiveMma<cute::C<128>, cute::C<256>, cute::C<64> > > >(Params)";
        assert_eq!(kernel(universal, 160), "cutlass::GemmUniversal<128, 256, 64, …>");
        let tile =
            "void ck_tile::kentry<256, 1, ck_tile::FmhaFwdKernel<ck_tile::BlockFmha<128, 64> >, Arguments>(Arguments)";
        assert_eq!(kernel(tile, 160), "ck_tile::FmhaFwdKernel<128, 64, …>");
        let grid =
            "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl<256, 16, 128, 64, 8>, true>(ck::Argument)";
        assert_eq!(kernel(grid, 160), "ck::kernel_gemm_xdl_cshuffle_v3<256, 16, 128, 64, …>");
        assert_eq!(kernel("cutlass::Kernel2<", 160), "cutlass::Kernel2<");
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["Memcpy HtoD (Pinned -> Device)", "sm80_xmma_gemm_f32f32", "a<b", "(odd)", "", "λ(x)y"] {
            assert_eq!(kernel(name, 80), name);
        }
    }
}
