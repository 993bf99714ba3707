//! Statements about trained modules, before the statement that constructs their first optimizer.

use super::{Outcome, Writer, shown, spot};
use crate::places::Trained;
use crate::remedies::Remedy;
use crate::remedies::edit::{At, Edit};

impl Writer<'_> {
    pub(super) fn at_modules(&mut self, remedy: &'static Remedy, edit: &Edit, outcome: &mut Outcome) {
        let places = self.places;
        for (number, module) in places.modules.iter().enumerate() {
            let is_asked = match edit {
                // Modules without such parts are left alone.
                Edit::PerBlock { .. } => module.expression.is_none() || !module.blocks.is_empty(),
                Edit::PerEagerModel { .. } => !module.eager.is_empty(),
                _ => true,
            };
            if is_asked {
                let result = self.at_module(remedy, edit, number, module);
                outcome.take(At::Module, result);
            }
        }
    }

    fn at_module(
        &mut self,
        remedy: &'static Remedy,
        edit: &Edit,
        number: usize,
        module: &Trained,
    ) -> Result<(), String> {
        let Some(place) = &module.place else {
            return Err(format!("the script's own files never reach the optimizer of {}", module.class));
        };
        let Some(expression) = &module.expression else {
            return Err(format!("{} has no name for {}", shown(place), module.class));
        };
        let base = expression.split(['.', '[']).next().unwrap_or(expression);
        if self.files.change(&place.file, remedy)?.rewrite.binds_within(spot(place), base) {
            return Err(format!("{} has no name for {}", shown(place), module.class));
        }
        let device = self.note.modules.get(number).map_or("cuda", |facts| facts.device.as_str());
        let file = self.files.change(&place.file, remedy)?;
        let lines = match *edit {
            Edit::BeforeOptimizer { statement } => vec![statement.replace("{module}", expression)],
            Edit::CallBeforeOptimizer { function, text, imports } => {
                file.after_imports(&text.replace("{device}", device), imports);
                vec![format!("{function}({expression})")]
            }
            Edit::PerEagerModel { statement } => {
                let models = module.eager.iter().map(|suffix| format!("{expression}{suffix}"));
                models.map(|model| statement.replace("{module}", &model)).collect()
            }
            Edit::PerBlock { statement } => {
                let lists = module.blocks.iter().map(|suffixes| over(expression, suffixes));
                lists.flat_map(|list| [format!("for block in {list}:"), format!("    {statement}")]).collect()
            }
            _ => vec![],
        };
        if lines.iter().any(|line| line.contains("torch.")) {
            file.rewrite.import("torch");
        }
        let result = file.rewrite.insert_before(spot(place), &lines);
        result.map_err(|refusal| format!("{}: {refusal}", place.file.display()))
    }
}

/// `model.layers`, or `(model[0], model[2])`.
fn over(expression: &str, suffixes: &[String]) -> String {
    let all: Vec<String> = suffixes.iter().map(|suffix| format!("{expression}{suffix}")).collect();
    match all.as_slice() {
        [list] => list.clone(),
        _ => format!("({})", all.join(", ")),
    }
}
