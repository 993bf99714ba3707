//! Options of commands that shield a script.

use headroom_scripts::isolation::{Options, Way};
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct IsolationArguments {
    /// Let the script write to this folder or file of yours; everything else that it writes is thrown away (repeatable)
    #[arg(long, value_name = "PATH")]
    pub allow_write: Vec<PathBuf>,
    /// How the script is kept from your files [default: the first of them that works here]
    #[arg(long, value_enum, value_name = "WAY")]
    pub isolation: Option<WayArgument>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
pub enum WayArgument {
    /// Layers over all file systems, and processes in a namespace of their own
    Overlay,
    /// A copy of the working folder; all other writing is denied
    Landlock,
    /// A copy of the working folder; nothing else is kept from being written
    Copy,
}

impl From<&IsolationArguments> for Options {
    fn from(arguments: &IsolationArguments) -> Options {
        let way = |way| match way {
            WayArgument::Overlay => Way::Overlay,
            WayArgument::Landlock => Way::Landlock,
            WayArgument::Copy => Way::Copy,
        };
        Options { allow_write: arguments.allow_write.clone(), way: arguments.isolation.map(way) }
    }
}
