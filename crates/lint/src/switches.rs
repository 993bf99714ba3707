//! Switches for reduced precision that are off by default: `fp16_run=False`, `"--amp", action="store_true"`.

use ruff_python_ast::token::TokenKind;

use super::vocabulary::Role;

/// Reads a file token by token and reports where a switch that is off ends.
#[derive(Default)]
pub struct Switches {
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Outside,
    /// After a switch's name, in code or as a key.
    Named,
    /// After the colon or equals sign that follows it.
    Given,
    /// After the name of a command-line option, until the end of the call.
    Option,
}

impl Switches {
    pub fn name(&mut self, word: &str) {
        self.state = match self.state {
            // An annotation: `amp: bool = False`.
            State::Given if Role::TruthType.fits(word) => State::Named,
            State::Option => State::Option,
            _ if Role::PrecisionSwitch.fits(word) => State::Named,
            _ => State::Outside,
        };
    }

    pub fn text(&mut self, text: &str) -> bool {
        let name = text.trim_start_matches('-').replace('-', "_");
        let is_switch = Role::PrecisionSwitch.fits(&name);
        if self.state == State::Option && Role::StoresTrue.fits(text) {
            self.state = State::Outside;
            return true;
        }
        self.state = match self.state {
            State::Option => State::Option,
            _ if is_switch && text.starts_with("--") => State::Option,
            _ if is_switch => State::Named,
            _ => State::Outside,
        };
        false
    }

    pub fn other(&mut self, kind: TokenKind) -> bool {
        let (state, found) = match (self.state, kind) {
            (State::Named, TokenKind::Equal | TokenKind::Colon) => (State::Given, false),
            (State::Given | State::Option, TokenKind::False) => (State::Outside, true),
            (State::Option, TokenKind::Newline) => (State::Outside, false),
            (State::Option, _) => (State::Option, false),
            _ => (State::Outside, false),
        };
        self.state = state;
        found
    }
}
