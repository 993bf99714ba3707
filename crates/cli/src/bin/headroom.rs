//! The `headroom` program: all of it is in the library, which the hooks' own program starts as well.

fn main() -> std::process::ExitCode {
    headroom_cli::main()
}
