//! Rows of the tables, under a line of titles. Most have four cells, the last of which says where the row was met.

/// An enum whose members are called by their names in a table.
macro_rules! named {
    ($(#[$outer:meta])* $kind:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$doc])* $name,)* }

        impl $kind {
            const ALL: &[(&str, $kind)] = &[$((stringify!($name), $kind::$name),)*];

            fn named(name: &str) -> Option<$kind> {
                $kind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
            }
        }
    };
}

pub(super) use named;

/// The rows below the comments and the titles. A build for tests leaves out the one that the environment spells: a row
/// that no test misses has no evidence.
pub fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    let without = if cfg!(debug_assertions) { std::env::var("HEADROOM_LINT_WITHOUT").ok() } else { None };
    let rows = table.lines().skip_while(|line| line.starts_with('#')).skip(1);
    rows.filter(move |row| without.as_deref() != Some(*row))
}

pub fn of<const CELLS: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; CELLS]> {
    lines(table).filter_map(|row| row.split('\t').collect::<Vec<_>>().try_into().ok())
}

/// Every row has four cells that are not empty, is known, and stands once by its first cells.
#[cfg(test)]
pub fn check(table: &'static str, first: usize, is_known: impl Fn([&str; 4]) -> bool) {
    let mut seen = rustc_hash::FxHashSet::default();
    for row in of(table) {
        assert!(row.iter().all(|cell| !cell.is_empty()) && is_known(row), "{row:?}");
        assert!(seen.insert(row[..first].to_vec()), "{row:?} stands twice");
    }
    assert_eq!(seen.len() + 1, table.lines().count(), "a row of other than four cells");
}
