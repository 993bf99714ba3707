//! Finds a script's settings and their defaults: argparse flags, dataclass fields, constants.

use rustc_hash::{FxHashMap, FxHashSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, Stmt, StmtClassDef};

use super::file::SourceFile;
use super::ids::FileId;
use super::syntax::{called_name, keyword_of, last_name, method_of, name_of, text_of};
use super::value::Value;
use super::vocabulary::Role;

/// Defaults by file and name. A name with two defaults in one file has none.
#[derive(Default)]
pub struct Settings {
    by_file: Vec<FxHashMap<String, Value>>,
    by_name: FxHashMap<String, Value>,
}

impl Settings {
    pub fn collect(files: &[SourceFile]) -> Settings {
        let (mut by_file, mut given) = (Vec::with_capacity(files.len()), FxHashMap::default());
        let mut flags = Vec::with_capacity(files.len());
        for file in files {
            let mut collector = Collector::default();
            collector.visit_body(&file.syntax.body);
            by_file.push(collector.found);
            flags.push(collector.flags);
            for (name, value) in collector.given {
                agree(&mut given, &name, value);
            }
        }
        let mut by_name: FxHashMap<String, Value> = FxHashMap::default();
        for (name, value) in by_file.iter().flatten() {
            agree(&mut by_name, name, value.clone());
        }
        for (name, value) in given {
            // The file's own flag stays: the command line decides it, whatever a class's user passes elsewhere.
            let fields = by_file.iter_mut().zip(&flags).filter(|(_, flags)| !flags.contains(&name));
            fields.filter_map(|(found, _)| found.get_mut(&name)).for_each(|known| *known = value.clone());
            by_name.insert(name, value);
        }
        Settings { by_file, by_name }
    }

    /// The default of `args.name`, if the file that uses it or another one sets it.
    pub fn default_of(&self, file: FileId, name: &str) -> Option<&Value> {
        self.by_file[file].get(name).or_else(|| self.by_name.get(name)).filter(|value| **value != Value::Unknown)
    }
}

/// `cfg` in `cfg.DATALOADER.NUM_WORKERS`.
fn root_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => root_of(&attribute.value),
        _ => None,
    }
}

/// Records a value for a name; a name with two values has none.
fn agree(all: &mut FxHashMap<String, Value>, name: &str, value: Value) {
    match all.get_mut(name) {
        Some(known) if *known != value => *known = Value::Unknown,
        Some(_) => {}
        None => {
            all.insert(name.to_string(), value);
        }
    }
}

#[derive(Default)]
struct Collector {
    found: FxHashMap<String, Value>,
    /// `TrainerConfig(num_workers=4)`: loader options that a class's user passes, whatever its own defaults are.
    given: FxHashMap<String, Value>,
    /// Names that `add_argument` gave a default.
    flags: FxHashSet<String>,
}

impl Collector {
    /// `conf.num_workers = 4`, `_C.DATALOADER.NUM_WORKERS = 4`, and fields of `class Config:`: loader options, which no
    /// branch depends on.
    fn add_assigned(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Assign(assign) => {
                if let [Expr::Attribute(target)] = assign.targets.as_slice()
                    && root_of(&target.value).is_some_and(|root| Role::Settings.fits(root) || root == "__C")
                    && literal(&assign.value) != Value::Unknown
                {
                    self.add_option(target.attr.as_str(), &assign.value);
                }
            }
            Stmt::ClassDef(class) if Role::SettingsClass.fits_any_case(class.name.as_str()) => {
                for field in class.body.iter().filter_map(Stmt::as_assign_stmt) {
                    if let [Expr::Name(name)] = field.targets.as_slice() {
                        self.add_option(name.id.as_str(), &field.value);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_option(&mut self, name: &str, value: &Expr) {
        if Role::LoaderOption.fits_any_case(name) {
            let value = literal(value);
            let known = self.found.entry(name.to_string()).or_insert_with(|| value.clone());
            if *known != value && value != Value::Unknown {
                *known = Value::Unknown;
            }
        }
    }

    /// `parser.add_argument("--name", default=…)`.
    fn add_flag(&mut self, call: &ExprCall) {
        let long = call.arguments.args.iter().filter_map(text_of).find(|name| name.starts_with("--"));
        let Some(name) = keyword_of(call, "dest").and_then(text_of).or(long) else { return };
        let value = match (keyword_of(call, "action").and_then(text_of), keyword_of(call, "default")) {
            (_, Some(default)) => literal(default),
            (Some("store_true"), None) => Value::Bool(Some(false)),
            (Some("store_false"), None) => Value::Bool(Some(true)),
            (None, None) => Value::Nothing,
            _ => Value::Unknown,
        };
        self.flags.insert(plain_name(name));
        self.found.insert(plain_name(name), value);
    }
}

impl<'a> Visitor<'a> for Collector {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.add_assigned(statement);
        if let Stmt::ClassDef(class) = statement
            && is_plain_dataclass(class)
        {
            for field in class.body.iter().filter_map(Stmt::as_ann_assign_stmt) {
                if let (Expr::Name(name), Some(value)) = (&*field.target, &field.value) {
                    self.found.insert(name.id.to_string(), literal(value));
                }
            }
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression {
            if method_of(call).is_some_and(|(_, name)| name == "add_argument") {
                self.add_flag(call);
            }
            let is_made = name_of(&call.func).is_some_and(|name| Role::SettingsClass.fits_any_case(name));
            // `HParams(epochs=500, fp16_run=False)`
            let holds_all = last_name(&call.func).is_some_and(|name| Role::SettingsMaker.fits(name));
            for keyword in &call.arguments.keywords {
                let Some(name) = &keyword.arg else { continue };
                if is_made && Role::LoaderOption.fits_any_case(name.as_str()) {
                    agree(&mut self.given, name.as_str(), literal(&keyword.value));
                }
                if holds_all {
                    self.found.insert(name.to_string(), literal(&keyword.value));
                }
            }
        }
        walk_expr(self, expression);
    }
}

/// A flag's name as Python code writes it.
pub fn plain_name(flag: &str) -> String {
    flag.trim_start_matches('-').replace('-', "_")
}

fn is_plain_dataclass(class: &StmtClassDef) -> bool {
    class.decorator_list.iter().any(|decorator| called_name(&decorator.expression) == Some("dataclass"))
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
