//! Definitions and imports of a file: functions, classes, imported names, module-level constants.

use rustc_hash::FxHashMap;

use ruff_python_ast::{Expr, Stmt, StmtClassDef, StmtFunctionDef, StmtImportFrom};

use super::file::SourceFile;
use super::syntax::blocks_of;
use super::vocabulary::Role;

pub use super::ids::{ClassId, FileId, FunctionId};

/// A function, a method, or a module's top-level statements (`definition` is `None`).
pub struct Function<'a> {
    pub file: FileId,
    pub name: &'a str,
    /// `Class.method`, `outer.inner`, as traces name it.
    pub qualified: String,
    pub class: Option<ClassId>,
    pub parent: Option<FunctionId>,
    pub definition: Option<&'a StmtFunctionDef>,
    pub body: &'a [Stmt],
}

pub struct Class<'a> {
    pub file: FileId,
    pub name: &'a str,
    pub definition: &'a StmtClassDef,
    pub methods: FxHashMap<&'a str, FunctionId>,
}

#[derive(Default)]
pub struct FileSymbols<'a> {
    /// Local name to the dotted name it stands for, from any scope of the file.
    pub imports: FxHashMap<&'a str, String>,
    pub star_imports: Vec<String>,
    pub functions: FxHashMap<&'a str, FunctionId>,
    pub classes: FxHashMap<&'a str, ClassId>,
    /// Names assigned at module level.
    pub constants: FxHashMap<&'a str, &'a Expr>,
    pub body: FunctionId,
}

#[derive(Default)]
pub struct Symbols<'a> {
    pub files: Vec<FileSymbols<'a>>,
    pub functions: Vec<Function<'a>>,
    pub classes: Vec<Class<'a>>,
}

pub fn collect(files: &[SourceFile]) -> Symbols<'_> {
    let mut symbols = Symbols::default();
    for (file, source) in files.iter().enumerate() {
        let body = symbols.functions.len();
        symbols.files.push(FileSymbols { body, ..FileSymbols::default() });
        symbols.functions.push(Function {
            file,
            name: "<module>",
            qualified: "<module>".to_string(),
            class: None,
            parent: None,
            definition: None,
            body: &source.syntax.body,
        });
        let scope = Scope { file, source, class: None, function: None, prefix: String::new() };
        collect_body(&mut symbols, &scope, &source.syntax.body);
    }
    symbols
}

struct Scope<'a> {
    file: FileId,
    source: &'a SourceFile,
    class: Option<ClassId>,
    function: Option<FunctionId>,
    prefix: String,
}

fn collect_body<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, body: &'a [Stmt]) {
    for statement in body {
        collect_statement(symbols, scope, statement);
    }
}

fn collect_statement<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, statement: &'a Stmt) {
    let at_top = scope.class.is_none() && scope.function.is_none();
    match statement {
        Stmt::FunctionDef(definition) => collect_function(symbols, scope, definition),
        Stmt::ClassDef(definition) => collect_class(symbols, scope, definition),
        Stmt::Import(import) => {
            for alias in &import.names {
                let name = alias.name.as_str();
                let first = name.split('.').next().unwrap_or(name);
                let (local, stands_for) = alias.asname.as_ref().map_or((first, first), |local| (local.as_str(), name));
                add_import(symbols, scope, local, stands_for.to_string());
            }
        }
        Stmt::ImportFrom(import) => collect_names_from(symbols, scope, import),
        Stmt::Assign(assign) if at_top => {
            for target in &assign.targets {
                add_constant(symbols, scope.file, target, &assign.value);
            }
        }
        Stmt::AnnAssign(assign) if at_top => {
            if let Some(value) = &assign.value {
                add_constant(symbols, scope.file, &assign.target, value);
            }
        }
        _ => blocks_of(statement).into_iter().for_each(|block| collect_body(symbols, scope, block)),
    }
}

fn collect_names_from<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, import: &'a StmtImportFrom) {
    let module = import.module.as_ref().map_or("", |module| module.as_str());
    let base = absolute(scope.source, import.level, module);
    for alias in &import.names {
        let name = alias.name.as_str();
        if name == "*" {
            symbols.files[scope.file].star_imports.push(base.clone());
            continue;
        }
        let local = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
        let dotted = if base.is_empty() { name.to_string() } else { format!("{base}.{name}") };
        add_import(symbols, scope, local, dotted);
    }
}

fn add_import<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, local: &'a str, dotted: String) {
    let imports = &mut symbols.files[scope.file].imports;
    let at_top = scope.function.is_none();
    if at_top || !imports.contains_key(local) {
        imports.insert(local, dotted);
    }
}

fn add_constant<'a>(symbols: &mut Symbols<'a>, file: FileId, target: &'a Expr, value: &'a Expr) {
    match (target, value) {
        (Expr::Name(name), _) => {
            symbols.files[file].constants.insert(name.id.as_str(), value);
        }
        (Expr::Tuple(targets), Expr::Tuple(values)) if targets.elts.len() == values.elts.len() => {
            for (target, value) in targets.elts.iter().zip(&values.elts) {
                add_constant(symbols, file, target, value);
            }
        }
        _ => {}
    }
}

fn collect_function<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, definition: &'a StmtFunctionDef) {
    let id = symbols.functions.len();
    let qualified = format!("{}{}", scope.prefix, definition.name.as_str());
    let prefix = format!("{qualified}.");
    symbols.functions.push(Function {
        file: scope.file,
        name: definition.name.as_str(),
        qualified,
        class: scope.class,
        parent: scope.function,
        definition: Some(definition),
        body: &definition.body,
    });
    // `@rate.setter` under `@property` of the same name: a read runs the getter.
    let is_setter = definition.decorator_list.iter().any(
        |decorator| matches!(&decorator.expression, Expr::Attribute(part) if Role::Setter.fits(part.attr.as_str())),
    );
    if let Some(class) = scope.class {
        let methods = &mut symbols.classes[class].methods;
        if !is_setter || !methods.contains_key(definition.name.as_str()) {
            methods.insert(definition.name.as_str(), id);
        }
    } else if scope.function.is_none() {
        symbols.files[scope.file].functions.insert(definition.name.as_str(), id);
    }
    let inner = Scope { file: scope.file, source: scope.source, class: None, function: Some(id), prefix };
    collect_body(symbols, &inner, &definition.body);
}

fn collect_class<'a>(symbols: &mut Symbols<'a>, scope: &Scope<'a>, definition: &'a StmtClassDef) {
    let id = symbols.classes.len();
    let name = definition.name.as_str();
    symbols.classes.push(Class { file: scope.file, name, definition, methods: FxHashMap::default() });
    // A class inside a function is found by name from the whole file: good enough, and rare.
    symbols.files[scope.file].classes.insert(name, id);
    let prefix = format!("{}{name}.", scope.prefix);
    let inner = Scope { file: scope.file, source: scope.source, class: Some(id), function: scope.function, prefix };
    collect_body(symbols, &inner, &definition.body);
}

/// `from ..a import b` made absolute from its module.
fn absolute(source: &SourceFile, level: u32, module: &str) -> String {
    if level == 0 {
        return module.to_string();
    }
    let is_package = Role::PackageFile.fits(&source.path);
    let up = level as usize - usize::from(is_package);
    let keep = source.module.len().saturating_sub(up);
    let mut parts: Vec<&str> = source.module[..keep].iter().map(String::as_str).collect();
    parts.extend(module.split('.').filter(|part| !part.is_empty()));
    parts.join(".")
}
