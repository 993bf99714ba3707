//! Words that Rust code may contain only in some places: `unsafe`, stubs, printing, exiting.

use anyhow::Result;

use super::rust_code::find_word;
use super::{Problem, TextFile, Tree, line_of};

struct Forbidden {
    words: &'static [&'static str],
    allowed: fn(&TextFile) -> bool,
    /// Whether code below `#[cfg(test)]`, alone or with a condition, is exempt from the rule.
    unit_tests: UnitTests,
    instead: &'static str,
}

#[derive(PartialEq)]
enum UnitTests {
    Checked,
    Free,
}

const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        words: &["unsafe"],
        allowed: |file| file.path.starts_with("crates/engine/"),
        unit_tests: UnitTests::Checked,
        instead: "only crates/engine may hold it: move the code there behind a safe function",
    },
    Forbidden {
        words: &["todo!", "unimplemented!", "dbg!"],
        allowed: |_| false,
        unit_tests: UnitTests::Checked,
        instead: "finish it or take it out",
    },
    Forbidden {
        words: &["println!", "eprintln!", "print!", "eprint!"],
        allowed: may_print,
        unit_tests: UnitTests::Free,
        instead: "return the text; only cli, report and xtask print",
    },
    Forbidden {
        words: &["process::exit"],
        allowed: may_print,
        unit_tests: UnitTests::Free,
        instead: "return an error; only cli decides how the process ends",
    },
    Forbidden {
        words: &["fs::read", "fs::read_to_string"],
        allowed: may_read,
        unit_tests: UnitTests::Free,
        instead: "it waits for a FIFO and takes a file of any size: `headroom_record::reading` asks for kind and size first",
    },
];

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    Ok(tree.rust_files().flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let marks = ["#[cfg(test)]", "#[cfg(all(test,"];
    let unit_tests_start = marks.iter().filter_map(|mark| file.code.find(mark)).min().unwrap_or(file.code.len());
    for forbidden in FORBIDDEN.iter().filter(|forbidden| !(forbidden.allowed)(file)) {
        for word in forbidden.words {
            for offset in find_word(&file.code, word) {
                if offset < unit_tests_start || forbidden.unit_tests == UnitTests::Checked {
                    let message = format!("`{word}` here: {}", forbidden.instead);
                    problems.push(file.problem(line_of(&file.code, offset), message));
                }
            }
        }
    }
    problems
}

/// Also true for `build.rs`, which talks to cargo on standard output.
fn may_print(file: &TextFile) -> bool {
    let at_home = ["crates/cli/", "crates/report/", "xtask/"].iter().any(|folder| file.path.starts_with(folder));
    at_home || file.is_test() || file.path.contains("examples/") || file.path.ends_with("/build.rs")
}

/// The engine reads what the system and itself wrote: `/proc` and compiled kernels. Build scripts and `xtask` read this
/// repository.
fn may_read(file: &TextFile) -> bool {
    let is_test = file.is_test() || file.path.ends_with("_tests.rs") || file.path.contains("examples/");
    is_test
        || ["crates/engine/", "xtask/"].iter().any(|folder| file.path.starts_with(folder))
        || file.path.ends_with("/build.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_lines(path: &str, text: &str, lines: &[usize]) {
        let found = problems_in(check, &[(path, text)]);
        let want: Vec<String> = lines.iter().map(|line| format!("{path}:{line}:")).collect();
        let places: Vec<String> = found.iter().map(|text| text.split(' ').next().unwrap_or("").to_string()).collect();
        assert_eq!(places, want, "{found:?}");
    }

    #[test]
    fn unsafe_belongs_to_the_engine_alone() {
        let text = "//! unsafe\nfn f() {\n    unsafe { g() }\n}\n";
        check_lines("crates/graph/src/lib.rs", text, &[3]);
        check_lines("crates/engine/src/cpu.rs", text, &[]);
        check_lines("crates/graph/src/lib.rs", "#[cfg(test)]\nmod tests { unsafe {} }\n", &[2]);
    }

    #[test]
    fn stubs_are_refused_everywhere_and_their_names_in_text_are_not() {
        let text = "fn f() {\n    todo!()\n}\n// todo!()\nconst S: &str = \"dbg!\";\n";
        check_lines("crates/engine/src/cpu.rs", text, &[2]);
        check_lines("crates/cli/tests/cli.rs", "fn f() { unimplemented!(); }\nfn g() { dbg!(1); }\n", &[1, 2]);
    }

    #[test]
    fn printing_and_exiting_belong_to_cli_report_xtask_examples_and_tests() {
        let text = "fn f() {\n    println!();\n    std::process::exit(2);\n}\n";
        check_lines("crates/graph/src/lib.rs", text, &[2, 3]);
        for home in ["crates/cli/src/a.rs", "crates/report/src/a.rs", "xtask/src/a.rs"] {
            check_lines(home, text, &[]);
        }
        for free in ["crates/graph/examples/a.rs", "crates/graph/tests/a.rs", "crates/graph/src/ops/tests.rs"] {
            check_lines(free, text, &[]);
        }
        check_lines("crates/graph/src/lib.rs", "#[cfg(test)]\nmod tests { fn f() { print!(); } }\n", &[]);
    }

    #[test]
    fn files_are_read_by_the_reader_that_asks_for_kind_and_size() {
        let text = "fn f() {\n    std::fs::read(path);\n    fs::read_to_string(path);\n    fs::read_dir(path);\n}\n";
        check_lines("crates/cli/src/a.rs", text, &[2, 3]);
        for free in ["crates/engine/src/a.rs", "xtask/src/a.rs", "crates/lint/tests/a.rs", "crates/cli/src/a_tests.rs"]
        {
            check_lines(free, text, &[]);
        }
    }
}
