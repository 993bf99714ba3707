//! Declares a constant for each row of `src/constants.tsv`, in a module for its group, and two lists of all rows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const TABLE: &str = "src/constants.tsv";

fn main() {
    println!("cargo::rerun-if-changed={TABLE}");
    let text = std::fs::read_to_string(TABLE).expect("the table of constants can be read");
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut modules, mut triggers, mut models) = (BTreeMap::<&str, String>::new(), String::new(), String::new());
    for row in rows {
        let columns: Vec<&str> = row.split('\t').collect();
        let [group, name, value, kind, unit, why] = columns[..] else { panic!("{TABLE}: six columns in {row:?}") };
        let is_trigger =
            group.strip_prefix("tr").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let list = if is_trigger { &mut triggers } else { &mut models };
        write!(list, "&{group}::{name}.entry,").expect("a string");
        let module = modules.entry(group).or_default();
        writeln!(
            module,
            "#[doc = {why:?}]\npub static {name}: Constant<{kind}> =\n    \
             Constant::new([{group:?}, {name:?}], {value}f64, Unit::{}{}, {why:?});",
            unit[..1].to_uppercase(),
            &unit[1..]
        )
        .expect("a string");
    }
    let mut code = String::new();
    for (group, statics) in modules {
        writeln!(code, "pub mod {group} {{\nuse super::{{Constant, Unit}};\n{statics}}}").expect("a string");
    }
    writeln!(code, "pub static TRIGGERS: &[&Entry] = &[{triggers}];\npub static MODELS: &[&Entry] = &[{models}];")
        .expect("a string");
    let folder = std::env::var_os("OUT_DIR").expect("cargo names the folder");
    std::fs::write(Path::new(&folder).join("constants.rs"), code).expect("the constants can be written");
}
