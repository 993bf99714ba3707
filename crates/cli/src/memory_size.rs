//! Memory sizes as people write them: `4GiB`, `512MB`, `1000000`.

use anyhow::{Context, bail, ensure};

/// `flag` is the option that the text was given to.
pub fn parse_bytes(flag: &str, text: &str) -> anyhow::Result<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let given = &text[digits.len()..];
    let unit = match given.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1024.0 * 1024.0,
        "mb" => 1e6,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "gb" => 1e9,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "tb" => 1e12,
        _ => bail!("{flag} {text}: `{given}` is not a unit of memory\n  help: 4GiB, 512MiB, 1000000"),
    };
    let not_an_amount = || format!("{flag} {text} is not an amount of memory\n  help: 4GiB, 512MiB, 1000000");
    let count: f64 = digits.trim().parse().ok().with_context(not_an_amount)?;
    ensure!(count.is_finite() && count > 0.0, not_an_amount());
    Ok((count * unit) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read_with_their_unit() {
        let read = ["4GiB", "512MB", "1000", "1.5k"].map(|text| parse_bytes("--memory-limit", text).unwrap());
        assert_eq!(read, [4 << 30, 512_000_000, 1000, 1536]);
        assert!(
            ["", "GiB", "-1", "4XiB", "inf", "0", "4 Gib B"]
                .iter()
                .all(|text| parse_bytes("--memory-limit", text).is_err())
        );
    }
}
