//! Reports how well a model predicts data, in the terminal and as JSON.

use crate::numbers::{grouped, rate, seconds};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Family and size.
    pub model: String,
    /// Steps that the checkpoint was trained for, if it says so.
    pub step: Option<u64>,
    /// The data's description of itself.
    pub data: String,
    /// The part of the data that was read.
    pub part: String,
    /// Nats per token.
    pub loss: f64,
    pub perplexity: f64,
    /// Bits per byte of the text; `None` if the tokens came without text.
    pub bits_per_byte: Option<f64>,
    pub bytes_per_token: Option<f64>,
    pub tokens: u64,
    pub windows: u64,
    pub seq_len: u64,
    pub device: String,
    pub precision: String,
    pub seconds: f64,
}

pub fn text(evaluation: &Evaluation) -> String {
    let step = evaluation.step.map_or(String::new(), |step| format!(" after step {}", grouped(step)));
    let mut lines = vec![
        format!("{}{step} on {}: {}", evaluation.model, evaluation.data, evaluation.part),
        format!("  {:<14} {:.4} nats per token", "loss", evaluation.loss),
        format!("  {:<14} {:.4}", "perplexity", evaluation.perplexity),
    ];
    if let (Some(bits), Some(bytes)) = (evaluation.bits_per_byte, evaluation.bytes_per_token) {
        lines.push(format!("  {:<14} {bits:.4} ({bytes:.3} bytes per token)", "bits per byte"));
    }
    let speed = evaluation.tokens as f64 / evaluation.seconds.max(1e-9);
    lines.push(format!(
        "  {:<14} {} in {} windows of {}, {} on {} in {} ({} tokens/s)",
        "tokens",
        grouped(evaluation.tokens),
        grouped(evaluation.windows),
        evaluation.seq_len,
        evaluation.precision,
        evaluation.device,
        seconds(evaluation.seconds),
        rate(speed)
    ));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_in_the_text_and_bits_only_where_they_are_known() {
        let evaluation = Evaluation {
            model: "LLaMA tiny".into(),
            step: Some(1200),
            data: "text a.txt".into(),
            part: "the last 5%, held out".into(),
            loss: 1.5,
            perplexity: 1.5f64.exp(),
            bits_per_byte: Some(2.1640),
            bytes_per_token: Some(1.0),
            tokens: 12_800,
            windows: 100,
            seq_len: 128,
            device: "cpu".into(),
            precision: "fp32".into(),
            seconds: 2.0,
        };
        let shown = text(&evaluation);
        for words in ["after step 1,200", "1.5000 nats", "4.4817", "2.1640", "12,800 in 100 windows of 128"] {
            assert!(shown.contains(words), "`{words}` is not in: {shown}");
        }
        assert!(!text(&Evaluation { bits_per_byte: None, ..evaluation }).contains("bits per byte"));
    }
}
