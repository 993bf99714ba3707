//! The part of a project that code belongs to: training, or tests, benchmarks, inference and data preparation.
//!
//! Findings outside training are held back: a read-back in a test or in a conversion script does not slow a training
//! step.

use super::context::ContextId;
use super::program::Program;
use super::topics::Topic;
use super::vocabulary::Role;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Training,
    Test,
    Benchmark,
    Inference,
    DataPreparation,
    /// Shows how to use a library, on little data.
    Example,
}

/// Words in folder and file names, by scope. Tests come first: a test of a benchmark is a test.
const WORDS: &[(Scope, Role)] = &[
    (Scope::Test, Role::TestFile),
    (Scope::Benchmark, Role::BenchmarkFile),
    (Scope::Inference, Role::InferenceFile),
    (Scope::DataPreparation, Role::PreparationFile),
];

impl Program<'_> {
    pub fn scope(&self, context: ContextId) -> Scope {
        let function = self.function_of(context);
        // `test_step`, `TestLoader`, `LoaderTest`: names that test runners collect.
        if function.qualified.split('.').any(|part| Role::TestName.fits(part)) {
            return Scope::Test;
        }
        let is_benchmark = function.qualified.split('.').any(|part| of_words(part) == Some(Scope::Benchmark));
        let module = &self.source(context).module;
        let known = if is_benchmark { Some(Scope::Benchmark) } else { of_module(module) };
        match known {
            Some(scope @ (Scope::Test | Scope::Benchmark)) => scope,
            _ if is_example(module) => Scope::Example,
            // Adapters are merged into weights when a model is saved or served.
            _ if Role::Merges.fits(function.name) => Scope::DataPreparation,
            _ if self.is_of_metric(context) && !self.is_in_sight(context) => Scope::Inference,
            // A script that trains is training code wherever it is; tests and benchmarks train for other purposes.
            Some(Scope::Inference | Scope::DataPreparation)
                if self.groups.mentions_itself(function.file, Topic::Trains) =>
            {
                Scope::Training
            }
            scope => scope.unwrap_or(Scope::Training),
        }
    }

    /// Whether the code is in a metrics folder, or in a class that is a metric by name: computed at the end of an
    /// epoch.
    fn is_of_metric(&self, context: ContextId) -> bool {
        folders_of(&self.source(context).module).iter().any(|folder| Role::MetricFolder.fits_any_case(folder))
            || self.function_of(context).qualified.split('.').any(|part| Role::MetricClass.fits(part))
    }
}

fn folders_of(module: &[String]) -> &[String] {
    module.split_last().map_or(&[][..], |(_, folders)| folders)
}

/// Whether the file is below a folder of examples or tutorials, or in a well-known library deep inside a package of
/// another name: vendored, and rarely trained there.
fn is_example(module: &[String]) -> bool {
    let folders = folders_of(module);
    folders.iter().any(|folder| Role::ExampleFolder.fits_any_case(folder))
        || folders.iter().skip(2).any(|folder| Role::CopiedLibrary.fits(folder))
}

/// The scope from the parts of the module's name: its folders and the file's own name.
fn of_module(parts: &[String]) -> Option<Scope> {
    let (stem, folders) = parts.split_last()?;
    let by_name = if Role::TestScript.fits(stem) { None } else { of_words(stem) };
    let known: Vec<Scope> = by_name.into_iter().chain(folders.iter().filter_map(|folder| of_words(folder))).collect();
    WORDS.iter().map(|(scope, _)| *scope).find(|scope| known.contains(scope))
}

fn of_words(name: &str) -> Option<Scope> {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(['_', '-', '.']).filter(|word| !word.is_empty()).collect();
    let trains = words.iter().any(|word| Role::TrainingFile.fits(word));
    let (scope, _) = WORDS.iter().find(|(_, role)| words.iter().any(|word| role.fits(word)))?;
    (!trains || *scope == Scope::Test).then_some(*scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_file_names_tell_tests_and_inference_from_training() {
        for (path, want) in [
            ("tests/unit/model_helper.py", Some(Scope::Test)),
            ("test_loader.py", Some(Scope::Test)),
            ("src/pkg/loader_test.py", Some(Scope::Test)),
            ("benchmarks/attention.py", Some(Scope::Benchmark)),
            ("pkg/inference/engine.py", Some(Scope::Inference)),
            ("tools/convert_checkpoint.py", Some(Scope::DataPreparation)),
            ("pkg/model.py", None),
            ("examples/train_and_generate.py", None),
            // A script called `test.py` in a training project evaluates; its contents decide.
            ("test.py", None),
        ] {
            let parts: Vec<String> = path.trim_end_matches(".py").split('/').map(str::to_string).collect();
            assert_eq!(of_module(&parts), want, "{path}");
        }
    }
}
