//! Groups inputs into projects, and marks those that are asked about.

use super::Input;

/// One entry per input. Files that are not asked about are read as context for the others: an answer must not depend on
/// which files of a project happen to be named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projects {
    pub belongings: Vec<Belonging>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belonging {
    /// Files of different projects never see each other.
    pub project: usize,
    /// The path from the project's root, which determines the module name.
    pub within: String,
    pub asked: bool,
}

impl Projects {
    /// Treats all inputs as one project, and all of them as asked about.
    pub fn of_all(inputs: &[Input]) -> Projects {
        let belonging = |input: &Input| Belonging { project: 0, within: input.path.clone(), asked: true };
        Projects { belongings: inputs.iter().map(belonging).collect() }
    }

    pub fn is_asked(&self, input: usize) -> bool {
        self.belongings[input].asked
    }

    /// The inputs of every project, by index.
    pub fn members(&self) -> Vec<Vec<usize>> {
        let count = self.belongings.iter().map(|belonging| belonging.project + 1).max().unwrap_or(0);
        let mut projects = vec![Vec::new(); count];
        for (input, belonging) in self.belongings.iter().enumerate() {
            projects[belonging.project].push(input);
        }
        projects
    }
}
