//! Names of kernels, which run to hundreds of characters, as people can read them.

/// Parts of a name that say nothing about what a kernel does.
const NOISE: [&str; 4] = ["(anonymous namespace)::", "at::native::", "at_cuda_detail::", "c10::"];

/// Without its result, its arguments and the namespaces that most share, and at most so many characters.
pub fn kernel(name: &str, most: usize) -> String {
    let mut plain = name.strip_prefix("void ").unwrap_or(name).to_string();
    for noise in NOISE {
        plain = plain.replace(noise, "");
    }
    if let Some(end) = arguments(&plain) {
        plain.truncate(end);
    }
    shortened(&plain, most)
}

/// Where the arguments begin: the first bracket right behind a name and outside of all template parameters, if all ends
/// with one.
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

/// Cut at the end, said so by an ellipsis.
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
    fn other_names_stay_as_they_are() {
        for name in ["Memcpy HtoD (Pinned -> Device)", "sm80_xmma_gemm_f32f32", "a<b", "(odd)", "", "λ(x)y"] {
            assert_eq!(kernel(name, 80), name);
        }
    }
}
