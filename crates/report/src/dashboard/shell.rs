//! The HTML around every page: its title, the links to other pages, and the element that its script fills.

use crate::svg::escape;

macro_rules! pages {
    (alone { $($alone:ident $alone_name:literal;)* } of_a_run { $($page:ident $name:literal;)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Page { $($alone,)* $($page,)* }

        impl Page {
            pub const ALL: &[Page] = &[$(Page::$alone,)* $(Page::$page,)*];

            /// Pages of one run, in the order of their tabs.
            pub const OF_A_RUN: &[Page] = &[$(Page::$page,)*];

            pub fn title(self) -> &'static str {
                match self { $(Page::$alone => stringify!($alone),)* $(Page::$page => stringify!($page),)* }
            }

            /// The name of its script without the extension; also the page's name in the URL, for pages of a run.
            pub fn name(self) -> &'static str {
                match self { $(Page::$alone => $alone_name,)* $(Page::$page => $name,)* }
            }

            /// The name of its script file, and its content.
            pub fn script(self) -> (&'static str, &'static str) {
                match self {
                    $(Page::$alone => (concat!($alone_name, ".js"), include_str!(concat!("assets/", $alone_name, ".js"))),)*
                    $(Page::$page => (concat!($name, ".js"), include_str!(concat!("assets/", $name, ".js"))),)*
                }
            }
        }
    };
}

pages! {
    alone {
        Runs "runs";
        Compare "compare";
    }
    of_a_run {
        Overview "overview";
        Operators "operators";
        Timeline "timeline";
        Memory "memory";
        Roofline "roofline";
        Live "live";
        Attribution "attribution";
    }
}

impl Page {
    pub fn of_a_run(name: &str) -> Option<Page> {
        Page::OF_A_RUN.iter().copied().find(|page| page.name() == name)
    }

    /// The other pages have their own heading.
    fn needs_heading(self) -> bool {
        Page::OF_A_RUN.contains(&self) && self != Page::Overview
    }
}

/// The run a page is about.
pub struct Subject<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// The pages that have something to show; the others get no tab.
    pub pages: &'a [Page],
}

pub fn page(page: Page, subject: Option<&Subject>) -> String {
    let title = match subject {
        Some(subject) => format!("{} · {} · Headroom", page.title(), subject.name),
        None => format!("{} · Headroom", page.title()),
    };
    let run = subject.map_or(String::new(), |subject| format!(r#" data-run="{}""#, escape(subject.id)));
    let name = page.name();
    let heading = match page.needs_heading() {
        true => format!(r#"<h1 class="unseen">{}</h1>"#, page.title()),
        false => String::new(),
    };
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/assets/icon.svg">
<link rel="stylesheet" href="/assets/dashboard.css">
<script type="module" src="/assets/{name}.js"></script>
</head>
<body data-page="{name}"{run}>
<a class="skip" href="#main">Skip to the content</a>
<header>
<a class="brand" href="/"><img src="/assets/icon.svg" alt="" width="18" height="18"> Headroom</a>
{way}
<button type="button" id="theme" aria-label="Light or dark">◐</button>
</header>
<main id="main" tabindex="-1">
{heading}
<p id="status" role="status">Loading…</p>
</main>
</body>
</html>
"##,
        title = escape(&title),
        way = subject.map_or(String::new(), |subject| navigation(page, subject)),
    )
}

fn navigation(current: Page, subject: &Subject) -> String {
    let tab = |page: &Page| {
        let here = if *page == current { r#" aria-current="page""# } else { "" };
        format!(r#"<a href="/runs/{}/{}"{here}>{}</a>"#, escape(subject.id), page.name(), page.title())
    };
    let tabs: Vec<String> = subject.pages.iter().map(tab).collect();
    format!(
        r#"<span class="run-name" title="{name}">{name}</span><nav aria-label="Pages of this run">{}</nav>"#,
        tabs.join(""),
        name = escape(subject.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_markup_stays_text() {
        let subject = Subject { id: "ab12", name: "<script>alert(1)</script>", pages: &[Page::Overview] };
        let html = page(Page::Overview, Some(&subject));
        assert!(!html.contains("<script>alert"), "{html}");
        assert!(html.contains(r#"<a href="/runs/ab12/overview" aria-current="page">Overview</a>"#), "{html}");
    }
}
