//! Scripts and styles, embedded in the binary.

use super::shell::Page;

/// A file that pages request by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($name:literal $content_type:expr;)*) => {
        const ASSETS: &[Asset] =
            &[$(Asset { name: $name, content_type: $content_type, text: include_str!(concat!("assets/", $name)) }),*];
    };
}

assets! {
    "dashboard.css" "text/css; charset=utf-8";
    "icon.svg" "image/svg+xml";
    "charts.js" SCRIPT;
    "numbers.js" SCRIPT;
    "page.js" SCRIPT;
    "ranks.js" SCRIPT;
    "table.js" SCRIPT;
    "timeline_data.js" SCRIPT;
    "timeline_drawing.js" SCRIPT;
}

/// Shared files, and the script of each page.
fn all() -> impl Iterator<Item = Asset> {
    let scripts = Page::ALL.iter().map(|page| page.script());
    ASSETS.iter().copied().chain(scripts.map(|(name, text)| Asset { name, content_type: SCRIPT, text }))
}

pub fn asset(name: &str) -> Option<Asset> {
    all().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_asset_reaches_out_to_the_network() {
        for asset in all() {
            // SVG's namespace is a URL that is never fetched.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for scheme in ["http://", "https://", "//cdn", "ws://", "wss://"] {
                assert!(!text.contains(scheme), "{} mentions {scheme}", asset.name);
            }
        }
    }

    #[test]
    fn every_module_that_a_script_imports_is_there() {
        for script in all().filter(|asset| asset.content_type == SCRIPT) {
            for imported in script.text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(asset(imported).is_some(), "{} imports {imported}", script.name);
            }
        }
    }
}
