//! `headroom --version`: version and commit of this build, and the devices it finds.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cuda;
use headroom_engine::machine::Machine;
use headroom_engine::machine::amd::{self, Places};

/// For `-V`, and the first line of `--version`.
pub const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("HEADROOM_COMMIT"), ")");

/// Everything known without querying the machine.
pub const LONG: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("HEADROOM_COMMIT"), ")\nbuilt for ", env!("HEADROOM_TARGET"),);

/// Everything that a bug report needs; `asked` is the version text from clap.
pub fn with_devices(asked: &str) -> String {
    let mut lines = vec![asked.trim_end().to_string()];
    // `-V` is one line, for programs that compare it.
    if lines[0].contains('\n') {
        lines.push(format!("cpu: {}", processor()));
        lines.extend(gpus());
        lines.extend(amd::devices(&Places::of_this_machine()).iter().map(|device| format!("rocm: {}", device.name)));
    }
    lines.join("\n") + "\n"
}

fn processor() -> String {
    let machine = Machine::detect();
    let cores = if machine.cores == 1 { "1 core".into() } else { format!("{} cores", machine.cores) };
    format!("{}, {cores}, {}", machine.cpu_name, Isa::detect())
}

fn gpus() -> Vec<String> {
    match cuda::listed() {
        Ok(names) if names.is_empty() => vec!["cuda: the driver shows no device".into()],
        Ok(names) => names.iter().enumerate().map(|(at, name)| format!("cuda:{at}: {name}")).collect(),
        // The first line is enough here; commands that need the device print the details.
        Err(error) => vec![format!("cuda: {}", error.to_string().lines().next().unwrap_or_default())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_stays_one_line_and_the_long_one_says_all() {
        assert_eq!(with_devices("headroom 0.1.0 (commit 0123)\n"), "headroom 0.1.0 (commit 0123)\n");
        let long = with_devices(&format!("headroom {LONG}\n"));
        let begins = ["headroom ", "built for ", "cpu: ", "cuda"];
        for (line, begin) in long.lines().zip(begins) {
            assert!(line.starts_with(begin), "{line} does not begin with {begin}");
        }
        assert!(long.lines().count() >= begins.len(), "{long}");
    }
}
