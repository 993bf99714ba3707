//! Folders in which libraries keep what they downloaded or compiled. All processes of a search share one layer over each,
//! so that nothing is downloaded or compiled twice, and the user's own stays as it is.

use super::copies::{Limits, Original};
use super::spec::Cache;
use headroom_record::atomic::FileError;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// A variable that names a cache, and the place in the home folder where it is without one.
const CACHES: [(&str, Option<&str>); 14] = [
    ("XDG_CACHE_HOME", Some(".cache")),
    ("CUDA_CACHE_PATH", Some(".nv")),
    ("TRITON_CACHE_DIR", Some(".triton")),
    ("KERAS_HOME", Some(".keras")),
    ("NLTK_DATA", Some("nltk_data")),
    ("HF_HOME", None),
    ("HF_HUB_CACHE", None),
    ("HF_DATASETS_CACHE", None),
    ("TRANSFORMERS_CACHE", None),
    ("TORCH_HOME", None),
    ("TORCH_EXTENSIONS_DIR", None),
    ("PIP_CACHE_DIR", None),
    ("NUMBA_CACHE_DIR", None),
    ("CUPY_CACHE_DIR", None),
];

/// The caches of this user, with their layers beneath `layers`. A cache around the working folder is none: a script's
/// results would reach its next process.
pub fn caches(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<&Path>,
    folder: &Path,
    layers: &Path,
) -> Vec<Cache> {
    let mut folders: Vec<PathBuf> = vec![];
    for (_, path) in places(variable, home, folder) {
        if folder.starts_with(&path) || path.components().count() < 2 {
            continue;
        }
        if !folders.iter().any(|other| path.starts_with(other)) {
            folders.retain(|other| !other.starts_with(&path));
            folders.push(path);
        }
    }
    let layer = |(number, folder)| Cache { folder, layer: layers.join(number_name(number)) };
    folders.into_iter().enumerate().map(layer).collect()
}

/// Variables that lead to the layers' own folders, for ways that cannot cover the user's.
pub fn redirected(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<&Path>,
    folder: &Path,
    caches: &[Cache],
) -> Vec<(&'static str, PathBuf)> {
    let led = |(name, path): (&'static str, PathBuf)| {
        let cache = caches.iter().find(|cache| path.starts_with(&cache.folder))?;
        Some((name, plain(cache).join(path.strip_prefix(&cache.folder).ok()?)))
    };
    places(variable, home, folder).filter_map(led).collect()
}

/// Each variable with the folder that it names, or else the place in the home folder.
fn places(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<&Path>,
    folder: &Path,
) -> impl Iterator<Item = (&'static str, PathBuf)> {
    CACHES.into_iter().filter_map(move |(name, without)| {
        let named = variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = named.or_else(|| Some(home?.join(without?)))?;
        Some((name, resolved(&folder.join(path))))
    })
}

/// Fills the layers' own folders with what the user's hold: small files as copies, large ones as links. Of the folder of all
/// caches only those of models, since the others may be as large as they like.
pub fn seed(caches: &[Cache]) -> Result<(), FileError> {
    for cache in caches {
        std::fs::create_dir_all(plain(cache)).map_err(FileError::new("make the folder", &plain(cache)))?;
        let names = match cache.folder.ends_with(".cache") {
            true => vec!["huggingface", "torch"],
            false => vec![""],
        };
        for name in names {
            let (from, to) = (cache.folder.join(name), plain(cache).join(name));
            if from.is_dir() {
                // Without it the script fills a new one.
                let _ = Original::new(&from, vec![], Limits::DENIED).copy_to(&to);
            }
        }
    }
    Ok(())
}

/// The folder that stands in for a cache.
fn plain(cache: &Cache) -> PathBuf {
    cache.layer.join("plain")
}

fn number_name(number: usize) -> String {
    format!("cache-{number}")
}

/// The path without links, as far as it exists.
pub fn resolved(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent(), path.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => resolved(parent).join(name),
        (Some(parent), Some(Component::ParentDir)) => {
            let parent = resolved(parent);
            parent.parent().map_or(parent.clone(), Path::to_path_buf)
        }
        (Some(parent), _) => resolved(parent),
        (None, _) => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_found_by_variable_or_in_the_home_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let home = root.join("home");
        std::fs::create_dir_all(home.join("far")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("far", home.join(".cache")).unwrap();
        let names = |variables: &[(&str, PathBuf)], folder: &Path| -> Vec<PathBuf> {
            let variable = |name: &str| {
                let found = variables.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| value.clone().into_os_string())
            };
            let found = caches(variable, Some(&home), folder, Path::new("/layers"));
            assert!(found.iter().enumerate().all(|(at, one)| one.layer.ends_with(number_name(at))));
            found.into_iter().map(|cache| cache.folder).collect()
        };
        let plain = names(&[], &root);
        #[cfg(unix)]
        assert_eq!(plain[0], home.join("far"), "links are followed");
        assert!(plain.contains(&home.join(".nv")) && plain.contains(&home.join("nltk_data")));
        let given = names(&[("HF_HOME", home.join("far/huggingface")), ("TORCH_HOME", "torch/../hub".into())], &root);
        assert_eq!(given.len(), plain.len() + 1, "one is within another: {given:?}");
        assert!(given.contains(&root.join("hub")), "{given:?}");
        let within = names(&[("HF_HOME", root.clone())], &root.join("work"));
        assert!(!within.contains(&root), "a cache around the working folder");
    }

    #[test]
    fn variables_lead_to_the_layers_with_the_rest_of_their_path() {
        let (home, folder) = (Path::new("/no-such-home"), Path::new("/no-such-folder"));
        let variable = |name: &str| match name {
            "HF_HOME" => Some(OsString::from("/no-such-home/.cache/models/mine")),
            "TORCH_HOME" => Some(OsString::new()),
            _ => None,
        };
        let found = caches(variable, Some(home), folder, Path::new("/layers"));
        let led = redirected(variable, Some(home), folder, &found);
        let of = |name: &str| led.iter().find(|(one, _)| *one == name).map(|(_, path)| path.as_path());
        assert_eq!(of("XDG_CACHE_HOME"), Some(Path::new("/layers/cache-0/plain")));
        assert_eq!(of("HF_HOME"), Some(Path::new("/layers/cache-0/plain/models/mine")));
        assert_eq!(of("TORCH_HOME"), None, "an empty variable names nothing");
    }
}
