//! The graph as text, one line per value or node. It parses back to the same graph.
//!
//! ```text
//! parameter w: f32[4, 3] as up at mlp.up_proj
//! input x: f32[2, 3]
//! %2: f32[2, 4] = matmul{form=nt}(x, w) @ forward mlp.up_proj as up
//! output y = %2
//! ```

use crate::graph::{Category, Graph, GraphError, Node, Phase, Source, Value, ValueId};
use crate::op::Op;
use crate::role::{Part, Role};
use crate::tensor::TensorType;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Graph {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        // Declarations are printed where their number falls, so that the parser gives every value the same number.
        let mut declared = self.values().iter().enumerate().peekable();
        for (index, node) in self.nodes().iter().enumerate() {
            let next_made = self.nodes()[index..].iter().find_map(|later| later.outputs.first());
            let limit = next_made.map_or(self.values().len(), |value| value.0);
            while let Some((_, value)) = declared.next_if(|&(number, _)| number < limit) {
                write_declaration(out, value)?;
            }
            write_node(out, self, node)?;
        }
        declared.try_for_each(|(_, value)| write_declaration(out, value))?;
        self.outputs().iter().try_for_each(|(name, value)| writeln!(out, "output {name} = {}", self.get(*value).name))
    }
}

fn write_declaration(out: &mut fmt::Formatter, value: &Value) -> fmt::Result {
    match value.source {
        Source::Input => writeln!(out, "input {}: {}", value.name, value.ty),
        Source::Parameter if value.part == Part::default() => writeln!(out, "parameter {}: {}", value.name, value.ty),
        Source::Parameter => {
            writeln!(out, "parameter {}: {} as {} at {}", value.name, value.ty, value.part.role, value.part.path)
        }
        Source::Constant => writeln!(out, "constant {}: {}", value.name, value.ty),
        Source::State(category) => writeln!(out, "state {}: {} {}", value.name, value.ty, category.name()),
        Source::Node(_) => Ok(()),
    }
}

fn write_node(out: &mut fmt::Formatter, graph: &Graph, node: &Node) -> fmt::Result {
    let typed = |id: &ValueId| format!("{}: {}", graph.get(*id).name, graph.ty(*id));
    let outputs = node.outputs.iter().map(typed).collect::<Vec<_>>().join(", ");
    if !outputs.is_empty() {
        write!(out, "{outputs} = ")?;
    }
    let attributes = node.op.attributes();
    write!(out, "{}", node.op.name())?;
    if !attributes.is_empty() {
        let list = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        write!(out, "{{{}}}", list.join(", "))?;
    }
    let inputs = node.inputs.iter().map(|id| &*graph.get(*id).name).collect::<Vec<_>>();
    write!(out, "({}) @ {} {}", inputs.join(", "), node.phase, node.module)?;
    match node.role {
        Role::Other => writeln!(out),
        role => writeln!(out, " as {role}"),
    }
}

impl FromStr for Graph {
    type Err = GraphError;

    fn from_str(text: &str) -> Result<Graph, GraphError> {
        let mut reader = Reader { graph: Graph::new(), names: BTreeMap::new() };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() {
                reader.line(line).map_err(|what| GraphError::Text { line: index + 1, what })?;
            }
        }
        reader.graph.validate("parsing")?;
        Ok(reader.graph)
    }
}

struct Reader {
    graph: Graph,
    names: BTreeMap<String, ValueId>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("input", rest) => self.declare(rest, |graph, name, ty| graph.input(name, ty)),
            ("parameter", rest) => {
                let (rest, part) = match rest.split_once(" as ") {
                    None => (rest, Part::default()),
                    Some((rest, part)) => {
                        let (role, path) = part.split_once(" at ").ok_or("a parameter's place is `as role at path`")?;
                        (rest, Part::new(path, role.parse()?))
                    }
                };
                self.declare(rest, |graph, name, ty| graph.weight(name, ty, part.clone()))
            }
            ("constant", rest) => self.declare(rest, |graph, name, ty| graph.constant(name, ty)),
            ("state", rest) => {
                let (rest, category) = rest.rsplit_once(' ').ok_or("a state needs a category")?;
                let category = Category::ALL
                    .into_iter()
                    .find(|known| known.name() == category)
                    .ok_or_else(|| format!("there is no category `{category}`"))?;
                self.declare(rest, |graph, name, ty| graph.state(name, ty, category))
            }
            ("output", rest) => {
                let (name, value) = rest.split_once(" = ").ok_or("an output is `output name = value`")?;
                let value = self.find(value)?;
                self.graph.output(name, value);
                Ok(())
            }
            _ => self.node(line),
        }
    }

    fn declare(&mut self, text: &str, make: impl Fn(&mut Graph, &str, TensorType) -> ValueId) -> Result<(), String> {
        let (name, ty) = typed_name(text)?;
        let id = make(&mut self.graph, name, ty);
        self.name(name, id)
    }

    fn node(&mut self, line: &str) -> Result<(), String> {
        let (call, place) = line.rsplit_once(" @ ").ok_or("a node ends with `@ phase module`")?;
        let (place, role) = match place.split_once(" as ") {
            None => (place, Role::Other),
            Some((place, role)) => (place, role.parse()?),
        };
        let (phase, module) = place.split_once(' ').unwrap_or((place, ""));
        let phase = Phase::ALL
            .into_iter()
            .find(|known| known.name() == phase)
            .ok_or_else(|| format!("there is no phase `{phase}`"))?;
        let (made, call) = call.split_once(" = ").unwrap_or(("", call));
        let (head, inputs) = call.strip_suffix(')').and_then(|call| call.split_once('(')).ok_or("no argument list")?;
        let (name, attributes) = match head.split_once('{') {
            None => (head, ""),
            Some((name, rest)) => (name, rest.strip_suffix('}').ok_or("attributes lack their closing brace")?),
        };
        let attributes = split(attributes)
            .into_iter()
            .map(|pair| pair.split_once('=').ok_or_else(|| format!("`{pair}` is not name=value")))
            .collect::<Result<Vec<_>, _>>()?;
        let op = Op::parse(name.trim(), &attributes)?;
        let inputs = split(inputs).into_iter().map(|name| self.find(name)).collect::<Result<Vec<_>, _>>()?;
        self.graph.enter_as(module, phase, role);
        let outputs = self.graph.add(op, &inputs).map_err(|error| error.to_string())?;
        let made = split(made);
        if made.len() != outputs.len() {
            return Err(format!("{name} makes {} values, {} are named", outputs.len(), made.len()));
        }
        for (text, id) in made.into_iter().zip(outputs) {
            let (name, ty) = typed_name(text)?;
            if *self.graph.ty(id) != ty {
                return Err(format!("{name} is written as {ty}, the op makes {}", self.graph.ty(id)));
            }
            self.name(name, id)?;
        }
        Ok(())
    }

    fn name(&mut self, name: &str, id: ValueId) -> Result<(), String> {
        match self.names.insert(name.into(), id) {
            None => Ok(()),
            Some(_) => Err(format!("`{name}` is named twice")),
        }
    }

    fn find(&self, name: &str) -> Result<ValueId, String> {
        self.names.get(name.trim()).copied().ok_or_else(|| format!("`{}` is not known here", name.trim()))
    }
}

fn typed_name(text: &str) -> Result<(&str, TensorType), String> {
    let (name, ty) = text.split_once(": ").ok_or_else(|| format!("`{text}` is not `name: type`"))?;
    Ok((name.trim(), ty.trim().parse()?))
}

/// Splits at commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, vec![]);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}
