//! The course's `--analyze-existing DIR --output-dir OUT`: runs `headroom analyze DIR` and writes its report into a
//! folder.

use super::{Format, analysis_of, as_typed, measuring, print, show};
use anyhow::Result;
use headroom_record::atomic::{FileError, write_atomically};
use headroom_report::analyze::Invocation;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

const FILES: [(&str, Format); 3] =
    [("report.md", Format::Markdown), ("report.html", Format::Html), ("analysis.json", Format::Json)];

pub fn run(traces: &Path, into: Option<&Path>) -> Result<ExitCode> {
    let analysis = analysis_of(&[traces.to_path_buf()], &[], measuring::thresholds(&[])?)?;
    if let Some(folder) = into {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
        for (name, format) in FILES {
            write_atomically(&folder.join(name), show(&analysis, format).as_bytes())?;
        }
    }
    let asked = Invocation { traces: as_typed(&[traces.to_path_buf()]), ..Invocation::default() };
    print(std::slice::from_ref(&analysis), &[], Format::Text, &asked)?;
    if let Some(folder) = into {
        let names = FILES.map(|(name, _)| name).join(", ");
        crate::output::note(&format!("{names} are in {}", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}
