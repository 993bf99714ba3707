//! The software bill of materials: every package that is compiled into the binary, as CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::digest;

/// A package of Cargo.lock, by name and version.
type Locked<'t> = BTreeMap<(&'t str, &'t str), &'t str>;

/// The release's own entry in the bill.
pub struct Subject<'t> {
    pub version: &'t str,
    pub commit: &'t str,
    /// Time of the commit in ISO 8601: the same sources give the same bill.
    pub time: &'t str,
}

/// Built from `cargo metadata` for the released platform, and the text of Cargo.lock.
pub fn bill(metadata: &Value, lock: &str, subject: &Subject) -> Result<Value> {
    let packages = by_id(metadata);
    let root = packages
        .values()
        .find(|package| package["name"] == "headroom-cli")
        .context("cargo metadata names no package headroom-cli")?;
    let root = text(root, "id");
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).iter().map(|node| (text(node, "id"), node)).collect();
    let shipped = reached(&[root], &nodes, &packages, Edges::Shipped);
    let used = reached(&[root], &nodes, &packages, Edges::Built);
    let checksums = locked(lock);
    let mut components = vec![];
    for id in used.iter().filter(|id| **id != root) {
        components.push(component(packages[id], &checksums, shipped.contains(id)));
    }
    components.extend(sqlite(&packages)?);
    let of = |id: &str| reference(packages[id]);
    let dependencies: Vec<Value> = used
        .iter()
        .map(|id| {
            let mut on: Vec<String> = targets(nodes[id], Edges::Built).filter(|on| used.contains(on)).map(of).collect();
            on.sort();
            on.dedup();
            json!({ "ref": of(id), "dependsOn": on })
        })
        .collect();
    let mut bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": subject.time,
            "component": {
                "type": "application", "bom-ref": of(root), "name": "headroom", "version": subject.version,
                "licenses": [{ "expression": text(packages[root], "license") }],
                "properties": [{ "name": "headroom:commit", "value": subject.commit }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    bill["serialNumber"] = json!(serial(&bill));
    Ok(bill)
}

#[derive(Clone, Copy, PartialEq)]
enum Edges {
    /// Packages that end up in the binary.
    Shipped,
    /// Also those that only run during the build.
    Built,
}

/// All reachable packages, including the starting ones.
fn reached<'t>(
    from: &[&'t str],
    nodes: &BTreeMap<&'t str, &'t Value>,
    packages: &BTreeMap<&'t str, &'t Value>,
    edges: Edges,
) -> BTreeSet<&'t str> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut waiting = from.to_vec();
    while let Some(id) = waiting.pop() {
        if edges == Edges::Shipped && is_macro(packages[id]) {
            continue;
        }
        if seen.insert(id) {
            waiting.extend(targets(nodes[id], edges));
        }
    }
    seen
}

fn targets(node: &Value, edges: Edges) -> impl Iterator<Item = &str> {
    let counts = move |kind: &Value| kind.is_null() || (edges == Edges::Built && kind == "build");
    list(&node["deps"])
        .iter()
        .filter(move |dependency| list(&dependency["dep_kinds"]).iter().any(|kind| counts(&kind["kind"])))
        .map(|dependency| text(dependency, "pkg"))
}

fn is_macro(package: &Value) -> bool {
    list(&package["targets"]).iter().any(|target| list(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
}

fn component(package: &Value, checksums: &Locked, is_shipped: bool) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let mut component = json!({
        "type": "library", "bom-ref": reference(package), "name": name, "version": version,
        // `excluded` is the format's word for packages that are used but not delivered.
        "scope": if is_shipped { "required" } else { "excluded" },
    });
    if let Some(license) = package["license"].as_str() {
        // Old manifests separate alternatives with a slash.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if !package["source"].is_null() {
        component["purl"] = json!(reference(package));
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

/// SQLite's own source is part of the package that binds it, and is compiled with it.
fn sqlite(packages: &BTreeMap<&str, &Value>) -> Result<Option<Value>> {
    let Some(package) = packages.values().find(|package| package["name"] == "libsqlite3-sys") else { return Ok(None) };
    let manifest = Path::new(text(package, "manifest_path"));
    let header = manifest.with_file_name("sqlite3").join("sqlite3.h");
    let header = std::fs::read_to_string(&header).with_context(|| format!("cannot read {}", header.display()))?;
    let version = sqlite_version(&header).context("sqlite3.h states no SQLITE_VERSION")?;
    Ok(Some(json!({
        "type": "library", "bom-ref": format!("pkg:generic/sqlite@{version}"), "name": "sqlite", "version": version,
        "scope": "required", "purl": format!("pkg:generic/sqlite@{version}"),
        "licenses": [{ "license": { "name": "Public domain" } }],
    })))
}

fn sqlite_version(header: &str) -> Option<&str> {
    let line = header.lines().find(|line| line.starts_with("#define SQLITE_VERSION "))?;
    line.split('"').nth(1)
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

/// A serial number derived from the bill's content.
fn serial(bill: &Value) -> String {
    let digits = digest(bill.to_string().as_bytes());
    let [a, b, c, d, e] = [&digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32]];
    // The fixed digits mark a hash-based UUID in the usual layout.
    format!("urn:uuid:{a}-{b}-8{c}-8{d}-{e}")
}

fn locked(lock: &str) -> Locked<'_> {
    let field = |block: &'_ str, name: &str| -> Option<(usize, usize)> {
        let begin = block.find(&format!("\n{name} = \""))? + name.len() + 5;
        Some((begin, begin + block[begin..].find('"')?))
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let of = |name: &str| field(block, name).map(|(begin, end)| &block[begin..end]);
            Some(((of("name")?, of("version")?), of("checksum")?))
        })
        .collect()
}

fn by_id(metadata: &Value) -> BTreeMap<&str, &Value> {
    list(&metadata["packages"]).iter().map(|package| (text(package, "id"), package)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'t>(value: &'t Value, key: &str) -> &'t str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: &str) -> Value {
        json!({ "id": name, "name": name, "version": "1.2.3", "license": "MIT/Apache-2.0", "source": "registry",
            "manifest_path": "Cargo.toml", "targets": [{ "kind": [kind] }] })
    }

    fn node(name: &str, on: &[(&str, Value)]) -> Value {
        let deps: Vec<Value> =
            on.iter().map(|(on, kind)| json!({ "pkg": on, "dep_kinds": [{ "kind": kind }] })).collect();
        json!({ "id": name, "deps": deps })
    }

    fn example() -> Value {
        let names = [("headroom-cli", "bin"), ("inside", "lib"), ("derive", "proc-macro"), ("quote", "lib")];
        let packages: Vec<Value> =
            names.iter().chain(&[("cc", "lib"), ("insta", "lib")]).map(|(name, kind)| package(name, kind)).collect();
        let nodes = vec![
            node("headroom-cli", &[("inside", json!(null)), ("insta", json!("dev"))]),
            node("inside", &[("derive", json!(null)), ("cc", json!("build"))]),
            node("derive", &[("quote", json!(null))]),
            node("quote", &[]),
            node("cc", &[]),
            node("insta", &[]),
        ];
        json!({ "packages": packages, "resolve": { "nodes": nodes } })
    }

    const SUBJECT: Subject = Subject { version: "0.1.0", commit: "0123", time: "2026-11-17T00:00:00Z" };
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"inside\"\nversion = \"1.2.3\"\nsource = \"registry\"\n\
                        checksum = \"abcd\"\n\n[[package]]\nname = \"other\"\nversion = \"1.2.3\"\n";

    #[test]
    fn what_is_delivered_is_told_from_what_only_builds() {
        let bill = bill(&example(), LOCK, &SUBJECT).expect("a bill");
        let scopes: Vec<(&str, &str)> = list(&bill["components"])
            .iter()
            .map(|component| (text(component, "name"), text(component, "scope")))
            .collect();
        // Packages used only by tests are in neither.
        assert_eq!(scopes, [("cc", "excluded"), ("derive", "excluded"), ("inside", "required"), ("quote", "excluded")]);
    }

    #[test]
    fn a_component_has_its_licence_and_the_checksum_that_cargo_holds_it_to() {
        let bill = bill(&example(), LOCK, &SUBJECT).expect("a bill");
        let inside = &bill["components"][2];
        assert_eq!(inside["hashes"][0]["content"], "abcd");
        assert_eq!(inside["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][0]["hashes"], Value::Null);
    }

    #[test]
    fn the_same_sources_give_the_same_serial_number_and_others_another() {
        let serial = |lock: &str| text(&bill(&example(), lock, &SUBJECT).expect("a bill"), "serialNumber").to_string();
        assert_eq!(serial(LOCK), serial(LOCK));
        assert_ne!(serial(LOCK), serial(""));
        let dashes: Vec<usize> = serial(LOCK).trim_start_matches("urn:uuid:").split('-').map(str::len).collect();
        assert_eq!(dashes, [8, 4, 4, 4, 12]);
    }

    #[test]
    fn the_version_of_sqlite_is_read_from_its_header() {
        let header = "#define SQLITE_VERSION_NUMBER 3050002\n#define SQLITE_VERSION        \"3.50.2\"\n";
        assert_eq!(sqlite_version(header), Some("3.50.2"));
        assert_eq!(sqlite_version("nothing"), None);
    }
}
