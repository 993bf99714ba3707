//! The `headroom` program: everything is in the library, which the hooks' own program starts too.

fn main() -> std::process::ExitCode {
    headroom_cli::main()
}
