//! Switches of a script and whether they are off unless asked for: argparse flags, dataclass fields, constants.

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, Stmt, StmtClassDef};

use super::file::SourceFile;
use super::ids::FileId;
use super::value::Value;

/// Defaults by file and name. A name that one file gives two defaults has none.
pub struct Settings<'a> {
    by_file: Vec<HashMap<String, Value>>,
    by_name: HashMap<String, Value>,
    files: &'a [SourceFile],
}

impl<'a> Settings<'a> {
    pub fn collect(files: &'a [SourceFile]) -> Settings<'a> {
        let by_file: Vec<_> = files.iter().map(collect_file).collect();
        let mut by_name: HashMap<String, Value> = HashMap::new();
        for (name, value) in by_file.iter().flatten() {
            by_name
                .entry(name.clone())
                .and_modify(|known| {
                    if known != value {
                        *known = Value::Unknown;
                    }
                })
                .or_insert_with(|| value.clone());
        }
        Settings { by_file, by_name, files }
    }

    /// The default of `args.name`, if the file that uses it, or another one, sets one.
    pub fn default_of(&self, file: FileId, name: &str) -> Option<&Value> {
        debug_assert!(file < self.files.len());
        self.by_file[file].get(name).or_else(|| self.by_name.get(name)).filter(|value| **value != Value::Unknown)
    }
}

/// `args`, `cfg`, `self.config`: objects that hold settings by what people call them.
pub fn is_settings_name(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "args",
        "arg",
        "cfg",
        "config",
        "conf",
        "opt",
        "opts",
        "options",
        "hparams",
        "hps",
        "hp",
        "flags",
        "FLAGS",
        "params",
        "settings",
        "CFG",
        "cli_args",
        "training_args",
        "model_args",
        "data_args",
        "script_args",
        "tcfg",
        "h",
        "_C",
        "C",
    ];
    NAMES.contains(&name) || name.ends_with("_args") || name.ends_with("_config") || name.ends_with("_cfg")
}

fn collect_file(file: &SourceFile) -> HashMap<String, Value> {
    let mut collector = Collector { found: HashMap::new() };
    for statement in &file.syntax.body {
        collector.visit_stmt(statement);
    }
    collector.found
}

struct Collector {
    found: HashMap<String, Value>,
}

impl Collector {
    fn add(&mut self, name: &str, value: Value) {
        let name = name.trim_start_matches('-').replace('-', "_");
        self.found.insert(name, value);
    }
}

impl<'a> Visitor<'a> for Collector {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if let Stmt::ClassDef(class) = statement
            && is_plain_record(class)
        {
            for field in &class.body {
                if let Stmt::AnnAssign(field) = field
                    && let (Expr::Name(name), Some(value)) = (&*field.target, &field.value)
                {
                    self.add(name.id.as_str(), literal(value));
                }
            }
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression
            && let Expr::Attribute(attribute) = &*call.func
            && attribute.attr.as_str() == "add_argument"
        {
            let long = call.arguments.args.iter().filter_map(text_of).find(|name| name.starts_with("--"));
            let name = call.arguments.find_keyword("dest").and_then(|dest| text_of(&dest.value)).or(long);
            let action = call.arguments.find_keyword("action").and_then(|action| text_of(&action.value));
            let default = call.arguments.find_keyword("default").map(|default| literal(&default.value));
            let value = match (action, default) {
                (_, Some(default)) => default,
                (Some("store_true"), None) => Value::Bool(Some(false)),
                (Some("store_false"), None) => Value::Bool(Some(true)),
                (None, None) => Value::Nothing,
                _ => Value::Unknown,
            };
            if let Some(name) = name {
                self.add(name, value);
            }
        }
        // `HParams(epochs=500, fp16_run=False)`
        if let Expr::Call(call) = expression
            && holds_settings(call)
        {
            for keyword in &call.arguments.keywords {
                if let Some(name) = &keyword.arg {
                    self.add(name.as_str(), literal(&keyword.value));
                }
            }
        }
        walk_expr(self, expression);
    }
}

/// Makers of bags of settings, by what libraries and people call them.
fn holds_settings(call: &ruff_python_ast::ExprCall) -> bool {
    let name = match &*call.func {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => return false,
    };
    matches!(name, "HParams" | "Namespace" | "SimpleNamespace" | "AttrDict" | "EasyDict" | "edict" | "ConfigDict")
}

fn is_plain_record(class: &StmtClassDef) -> bool {
    class.decorator_list.iter().any(|decorator| {
        let mut at = &decorator.expression;
        if let Expr::Call(call) = at {
            at = &call.func;
        }
        matches!(at, Expr::Name(name) if name.id.as_str() == "dataclass")
            || matches!(at, Expr::Attribute(attribute) if attribute.attr.as_str() == "dataclass")
    })
}

pub fn text_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::StringLiteral(text) => Some(text.value.to_str()),
        _ => None,
    }
}

/// The value of a literal; anything else is unknown.
pub fn literal(expression: &Expr) -> Value {
    match expression {
        Expr::BooleanLiteral(literal) => Value::Bool(Some(literal.value)),
        Expr::NoneLiteral(_) => Value::Nothing,
        Expr::StringLiteral(text) => Value::Text(Some(text.value.to_str().to_string())),
        Expr::NumberLiteral(number) => match &number.value {
            ruff_python_ast::Number::Int(int) => Value::Number { known: int.as_i64(), sized: true },
            _ => Value::SIZE,
        },
        _ => Value::Unknown,
    }
}
