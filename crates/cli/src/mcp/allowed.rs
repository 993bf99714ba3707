//! The commands that a client may have run: those that the user listed, word by word.

use std::path::Path;

use anyhow::{Result, bail, ensure};

/// Commands as lists of words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed(Vec<Vec<String>>);

impl Allowed {
    /// From the values of `--allow-run`, each a command as one would type it.
    pub fn new(given: &[String]) -> Result<Allowed> {
        let mut commands = Vec::new();
        for text in given {
            // Earlier versions had a flag without a value, which may stand before a folder.
            if text.trim().is_empty() || Path::new(text).is_dir() {
                bail!(
                    "--allow-run needs the command that may be run{}\n  help: --allow-run \"python train.py\" allows exactly these \
                     words; repeat it for more commands, and name folders before it",
                    if text.trim().is_empty() { String::new() } else { format!(", and {text} is a folder") }
                );
            }
            commands.push(words_of(text)?);
        }
        Ok(Allowed(commands))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An error unless the user listed exactly this command.
    pub fn check(&self, command: &[String]) -> Result<()> {
        if self.0.iter().any(|listed| listed == command) {
            return Ok(());
        }
        if self.is_empty() {
            bail!(
                "a dry run of a script runs the script, and this server may not run commands\n  help: the user allows a command \
                 with `headroom mcp --allow-run \"python train.py\"`; `lint` and `analyze` examine a script and its trace without \
                 running it"
            );
        }
        let listed: Vec<String> = self.0.iter().map(|words| format!("{words:?}")).collect();
        bail!(
            "this server may not run {command:?}\n  help: it may run {}; the user allows others with --allow-run",
            listed.join(", ")
        )
    }
}

/// Splits a command at spaces. Quotes, single or double, keep a word together; nothing else is special, because no
/// shell ever sees it.
fn words_of(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    ensure!(
        quote.is_none(),
        "--allow-run {text}: a quote is not closed\n  help: close it, or write the words without quotes"
    );
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        words_of(text).unwrap()
    }

    #[test]
    fn a_command_is_split_at_spaces_outside_of_quotes() {
        assert_eq!(words("  python  train.py --lr 1e-3\n"), ["python", "train.py", "--lr", "1e-3"]);
        assert_eq!(
            words(r#"python 'my script.py' --name="a 'b'" '' $HOME"#),
            ["python", "my script.py", "--name=a 'b'", "", "$HOME"]
        );
        assert!(words_of("python 'train.py").unwrap_err().to_string().contains("a quote is not closed"));
    }

    #[test]
    fn only_the_listed_words_may_be_run() {
        let given = ["python train.py".to_string(), "python train.py --small".to_string()];
        let allowed = Allowed::new(&given).unwrap();
        let check = |text: &str| allowed.check(&words(text));
        assert!(check("python train.py").is_ok() && check("python train.py --small").is_ok());
        for other in
            ["python", "python train.py --large", "python train.py --small x", "python 'train.py --small'", "/bin/sh"]
        {
            let told = check(other).unwrap_err().to_string();
            assert!(told.contains(r#"it may run ["python", "train.py"], ["python", "train.py", "--small"]"#), "{told}");
        }
        let told = Allowed::default().check(&words("python train.py")).unwrap_err().to_string();
        assert!(told.contains("may not run commands") && told.contains("--allow-run \"python train.py\""), "{told}");
    }

    #[test]
    fn a_missing_command_and_a_folder_are_answered_with_the_new_form() {
        for given in ["", " ", "."] {
            let told = Allowed::new(&[given.to_string()]).unwrap_err().to_string();
            assert!(told.contains("needs the command") && told.contains("--allow-run \"python train.py\""), "{told}");
        }
    }
}
