//! Bounds how deep an expression nests, without recursion, so that no input can exhaust the stack of a recursive
//! reader.

use ruff_python_ast::PySourceType;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::AsMode;
use ruff_python_parser::lexer::lex;

pub const MOST_LEVELS: u32 = 400;

/// State that may still add levels within one bracket, or within the statement outside all brackets.
#[derive(Clone, Copy, Default)]
struct Open {
    levels: u32,
    /// Lambdas whose colon is still to come: commas before it separate their parameters.
    lambdas: u32,
    /// `yield a, yield b`: the second nests in the first, commas or not.
    yields: u32,
}

/// An upper bound from the parser's own tokens: within one bracket every operator and keyword up to the next comma may
/// add a level. String text adds none, and the expressions of an f-string count as code.
pub fn is_too_deep(text: &str, kind: PySourceType) -> bool {
    if is_too_short(text) {
        return false;
    }
    let mut tokens = lex(text, kind.as_mode());
    let mut outer: Vec<Open> = Vec::new();
    let mut here = Open::default();
    // Sum of the levels in `outer`.
    let mut around: u32 = 0;
    let mut blocks: u32 = 0;
    let mut strings: u32 = 0;
    let mut after_line = false;
    loop {
        let token = tokens.next_token();
        match token {
            TokenKind::EndOfFile => return false,
            TokenKind::Newline | TokenKind::Semi => here = Open::default(),
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            TokenKind::FStringStart | TokenKind::TStringStart => strings += 1,
            TokenKind::FStringEnd | TokenKind::TStringEnd => strings = strings.saturating_sub(1),
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => {
                around += here.levels;
                outer.push(here);
                here = Open { levels: 1, ..Open::default() };
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => {
                if let Some(open) = outer.pop() {
                    around -= open.levels;
                    // A call or a subscript may follow.
                    here = Open { levels: open.levels + 1, ..open };
                }
            }
            TokenKind::Comma if here.lambdas == 0 => here.levels = here.yields,
            // The bracket before it was never closed, and the parser gives up on it here.
            _ if after_line && begins_statement(token) => {
                outer.clear();
                (here, around) = (Open::default(), 0);
            }
            TokenKind::Yield => {
                here = Open { yields: here.yields + 1, levels: here.levels + 1, ..here };
            }
            TokenKind::Lambda => here = Open { lambdas: here.lambdas + 1, levels: here.levels + 1, ..here },
            TokenKind::Colon => {
                here = Open { lambdas: here.lambdas.saturating_sub(1), levels: here.levels + 1, ..here };
            }
            _ if token.is_operator() || token.is_keyword() => here.levels += 1,
            _ => {}
        }
        after_line = token == TokenKind::NonLogicalNewline || after_line && token == TokenKind::Comment;
        let brackets = outer.len() as u32 + strings;
        if around + here.levels > MOST_LEVELS * 4 || brackets > MOST_LEVELS || blocks > MOST_LEVELS / 4 {
            return true;
        }
    }
}

/// A text too short to hold that many operators, brackets or blocks need not be tokenized.
fn is_too_short(text: &str) -> bool {
    let opens = |byte: &u8| matches!(byte, b'(' | b'[' | b'{' | b'"' | b'\'');
    text.len() <= MOST_LEVELS as usize * 4 && text.bytes().filter(opens).count() <= MOST_LEVELS as usize
}

/// Keywords that cannot occur in an expression.
fn begins_statement(token: TokenKind) -> bool {
    use TokenKind as T;
    matches!(token, T::Def | T::Class | T::Return | T::While | T::With | T::Try | T::Raise | T::Assert | T::Import)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_deep(text: &str) -> bool {
        is_too_deep(text, PySourceType::Python)
    }

    #[test]
    fn ordinary_code_and_long_tables_are_not_deep() {
        assert!(!is_deep("x = f(a, [b, {c: (d)}])\n"));
        assert!(!is_deep(&format!("x = [\n{}]\n", "  -0.5, 1.25,\n".repeat(10_000))));
        assert!(!is_deep(&format!("\"\"\"{}\"\"\"\n", "a (long. text: ".repeat(5_000))));
        assert!(!is_deep(&"x = a + b\n".repeat(10_000)));
        assert!(!is_deep(&"x = a + \\\n  b\n".repeat(10_000)));
        assert!(!is_deep(&format!("x = [\n{}]\n", "  lambda a, b: a + b,\n".repeat(10_000))));
    }

    #[test]
    fn text_of_formatted_strings_is_not_code() {
        for line in [
            r#"print(f"{x}")"#,
            r#"print(f'{x} (and. more: text) is "{y!r:>{width}.{digits}}"')"#,
            r#"print(f"{d["key"]}", f"{f"{x + 1}"}")"#,
            r#"print(rf"\d{{1,2}} {x:\d(}", F'it''s (', fR"{x}\n")"#,
            r#"print(t"{x=} [", f"it's \" {x} '")"#,
            "print(f\"\"\"a \"quoted\" (line\n  of {x} '\"\"\")",
            "print(f\"{\n    x  # it's\n    }\")",
        ] {
            assert!(!is_deep(&format!("{line}\n").repeat(3_000)), "{line}");
        }
    }

    #[test]
    fn a_bracket_that_is_never_closed_does_not_swallow_the_file() {
        let text = format!("x = f(a,\n\n{}", "def g(x):\n    return x.a.b + x.c if x else -x\n\n".repeat(1_000));
        assert!(!is_deep(&text));
    }

    #[test]
    fn short_texts_are_deep_by_their_brackets_alone() {
        let levels = MOST_LEVELS as usize;
        assert!(is_deep(&"(".repeat(levels + 1)));
        assert!(!is_deep(&"(".repeat(levels)));
        let text = format!("x = {}", "not ".repeat(levels - 10));
        assert!(text.len() < levels * 4 && !is_deep(&text));
    }

    #[test]
    fn brackets_operators_words_and_blocks_are_counted() {
        let blocks: String = (0..200).map(|level| format!("{}if x:\n", " ".repeat(level))).collect();
        let others = [
            "(",
            "not ",
            "1+",
            "a.",
            "a\\\n.",
            "lambda a, b: ",
            "f\"{",
            "f\"{x:{",
            "()",
            "[b]",
            "x if y else ",
            "await ",
            "yield a, ",
        ];
        for deep in others.map(|piece| format!("x = {}", piece.repeat(5_000))).into_iter().chain([blocks]) {
            let first = deep.get(..16).unwrap_or_default();
            assert!(is_deep(&deep), "{first}");
        }
    }
}
