//! The folders that a process may search on its own.

use headroom_sources::within::{allows, stay};

#[test]
fn a_path_is_held_by_where_it_leads() {
    let place = tempfile::tempdir().unwrap();
    let top = std::fs::canonicalize(place.path()).unwrap();
    let (inside, outside) = (top.join("inside"), top.join("inside-not"));
    for folder in [&inside, &outside] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("pyproject.toml"), "").unwrap();
    }
    stay(vec![inside.clone()]);
    assert!(allows(&inside) && allows(&inside.join("pyproject.toml")));
    assert!(!allows(&outside.join("pyproject.toml")), "a name that begins alike");
    assert!(!allows(&top) && !allows(&inside.join("../inside-not")));
    assert!(!allows(&inside.join("missing")));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        assert!(!allows(&inside.join("link/pyproject.toml")), "a link that leads out");
    }
}
