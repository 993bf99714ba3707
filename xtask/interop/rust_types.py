"""JSON schemas of the types that serde writes, read off the Rust sources: fields, optional ones, names of variants, and what
the comments say."""
import pathlib
import re

CRATES = ["diagnosis", "lint", "record", "rewrite", "trace"]
HEAD = re.compile(
    r"((?:[ \t]*#\[[^\n]*\]\n|[ \t]*///[^\n]*\n)*)[ \t]*pub(?:\([a-z:]+\))? (struct|enum) (\w+)(?:<[^>]*>)?\s*(\{|\()"
)
FIELD = re.compile(r"((?:\s*#\[[^\n]*\]|\s*///[^\n]*)*)\s*(?:pub(?:\([a-z:]+\))?\s+)?(\w+)\s*:\s*(.+)", re.S)
INTEGERS = {"u8", "u16", "u32", "u64", "usize", "i32", "i64"}
# Schemas of the values that `serialize_with` functions write.
WRITTEN = {"as_offsets": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}}
THROUGH = {"Box", "Arc", "Rc"}


class Unknown(Exception):
    pass


def body_at(text, start):
    """The text between a bracket and its partner."""
    pairs, depth = {"{": "}", "(": ")", "[": "]", "<": ">"}, 0
    opening = text[start]
    for at in range(start, len(text)):
        depth += (text[at] == opening) - (text[at] == pairs[opening])
        if depth == 0:
            return text[start + 1 : at]
    raise Unknown("a bracket without its partner")


def parts_of(text):
    """Split at commas outside of brackets; commas of comments do not count."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(text):
        if text.startswith("//", at):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        depth += (text[at] in "<([{") - (text[at] in ">)]}")
        if text[at] == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [part for part in [*parts, text[begin:]] if part.strip()]


def renamed(name, rule):
    words = re.findall(r"[A-Z]+[a-z0-9]*|[a-z0-9]+", name)
    match rule:
        case "lowercase":
            return name.lower()
        case "kebab-case":
            return "-".join(words).lower()
        case "snake_case":
            return "_".join(words).lower()
        case None:
            return name
    raise Unknown(f"rename_all = {rule}")


def about(attributes):
    lines = re.findall(r"///[ ]?([^\n]*)", attributes)
    return re.sub(r"\[`([^`]*)`\](\([^)]*\))?", r"`\1`", " ".join(line.strip() for line in lines))


def setting(attributes, key):
    found = re.search(rf'#\[serde\([^\]]*\b{key} = "([^"]*)"', attributes)
    return found and found.group(1)


def has(attributes, key):
    return re.search(rf"#\[serde\([^\]]*\b{key}\b(?!_)", attributes) is not None


class Types:
    def __init__(self, root):
        self.known = {}
        for crate in CRATES:
            for file in sorted((pathlib.Path(root) / "crates" / crate / "src").rglob("*.rs")):
                text = file.read_text()
                for found in HEAD.finditer(text):
                    attributes, kind, name, _ = found.groups()
                    if re.search(r"derive\([^)]*\bSerialize\b", attributes):
                        body = body_at(text, found.end() - 1)
                        self.known.setdefault(name, []).append((crate, file, attributes, kind, body))

    def find(self, path, near):
        """By its last name; of several, the one in the named module, the same file, an imported module, the same crate."""
        *modules, name = [part.strip() for part in path.split("::")]
        candidates = self.known.get(name)
        if not candidates:
            raise Unknown(f"{path} in {near and near[1]}")
        if len(candidates) > 1:
            rank = lambda one: (
                bool(modules) and modules[-1] in one[1].parts + (one[1].stem,),
                near and one[1] == near[1],
                near and self.imports(near, one, name),
                near and one[0] == near[0],
            )
            candidates = sorted(candidates, key=rank, reverse=True)
        return candidates[0]

    def imports(self, near, one, name):
        uses = re.findall(r"use ([^;]*);", near[1].read_text())
        modules = {module for use in uses for module in re.findall(rf"(\w+)::(?:{{[^{{}}]*)?\b{name}\b", use)}
        return one[1].stem in modules or f"headroom_{one[0]}" in modules


class Schema:
    """One document's schema: the root, and `$defs` of what it is made of."""

    def __init__(self, types):
        self.types, self.defs = types, {}

    def of(self, text, near=None):
        text = text.strip()
        text = re.sub(r"^&\s*('\w+\s+)?(mut )?", "", text)
        if text.startswith("["):
            inner = body_at(text, 0)
            element, _, count = inner.partition(";")
            schema = {"type": "array", "items": self.of(element, near)}
            if count:
                schema |= {"minItems": int(count), "maxItems": int(count)}
            return schema
        if text.startswith("("):
            items = [self.of(part, near) for part in parts_of(body_at(text, 0))]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if "<" in text:
            outer = text[: text.index("<")].strip()
            inner = parts_of(body_at(text, text.index("<")))
            return self.generic(outer.split("::")[-1], inner, near)
        name = text.split("::")[-1]
        if name in ("String", "str", "PathBuf"):
            return {"type": "string"}
        if name == "bool":
            return {"type": "boolean"}
        if name in ("f64", "f32"):
            return {"type": "number"}
        if name in INTEGERS:
            return {"type": "integer"} | ({"minimum": 0} if name[0] == "u" else {})
        if name == "Value":
            return {}
        return {"$ref": f"#/$defs/{self.define(text, near)}"}

    def generic(self, outer, inner, near):
        if outer == "Option":
            return nullable(self.of(inner[0], near))
        if outer in ("Vec", "BTreeSet"):
            return {"type": "array", "items": self.of(inner[0], near)}
        if outer in ("BTreeMap", "HashMap"):
            return {"type": "object", "additionalProperties": self.of(inner[1], near)}
        if outer in THROUGH or outer == "Cow":
            return self.of(inner[-1], near)
        raise Unknown(f"{outer}<…>")

    def define(self, path, near):
        found = self.types.find(path, near)
        crate, file, attributes, kind, body = found
        name = path.split("::")[-1].strip()
        if len(self.types.known[name]) > 1:
            name = f"{name}_of_{crate}_{file.stem}"
        if name not in self.defs:
            self.defs[name] = {}  # Types may hold themselves.
            self.defs[name] = self.structure(found) if kind == "struct" else self.choice(found)
        return name

    def structure(self, found):
        _, _, attributes, _, body = found
        if not FIELD.fullmatch(parts_of(body)[0].rstrip()):
            return described(self.of(body, found), about(attributes))
        properties, required = {}, []
        self.fields(body, found, properties, required)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return described(schema, about(attributes))

    def fields(self, body, found, properties, required):
        for part in parts_of(body):
            attributes, name, kind = FIELD.fullmatch(part.rstrip()).groups()
            if has(attributes, "skip"):
                continue
            if has(attributes, "flatten"):
                inner = self.types.find(kind.strip(), found)
                self.fields(inner[4], inner, properties, required)
                continue
            name = setting(attributes, "rename") or name
            written = setting(attributes, "serialize_with")
            schema = WRITTEN[written] if written else self.of(kind, found)
            properties[name] = described(schema, about(attributes))
            if not has(attributes, "skip_serializing_if"):
                required.append(name)

    def choice(self, found):
        _, _, attributes, _, body = found
        rule, tag = setting(attributes, "rename_all"), setting(attributes, "tag")
        names, others = [], []
        for part in parts_of(body):
            own = "".join(re.findall(r"#\[[^\n]*\]|///[^\n]*\n", part))
            plain = re.sub(r"#\[[^\n]*\]|//[^\n]*", "", part).strip()
            name = re.match(r"\w+", plain).group()
            shown, rest = setting(own, "rename") or renamed(name, rule), plain[len(name) :].strip()
            if not rest:
                names.append(shown)
            elif has(attributes, "untagged") and rest.startswith("("):
                others.append(self.of(body_at(rest, 0), found))
            elif tag and rest.startswith("{"):
                properties, required = {tag: {"const": shown}}, [tag]
                self.fields(body_at(rest, 0), found, properties, required)
                others.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
            elif rest.startswith("(") and not tag:
                inner = self.of(body_at(rest, 0), found)
                others.append({"type": "object", "properties": {shown: inner}, "required": [shown], "additionalProperties": False})
            else:
                raise Unknown(f"the variant {name} of {found[1]}")
        if tag:
            others += [{"type": "object", "properties": {tag: {"const": name}}, "required": [tag]} for name in names]
            names = []
        schemas = ([{"enum": names}] if names else []) + others
        return described(schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, about(attributes))


def nullable(schema):
    if isinstance(schema.get("type"), str):
        return schema | {"type": [schema["type"], "null"]}
    return {} if not schema else {"anyOf": [schema, {"type": "null"}]}


def described(schema, text):
    return {"description": text} | schema if text else schema
