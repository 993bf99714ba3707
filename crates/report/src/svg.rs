//! The few parts of SVG that our plots need: escaping, axes and ticks.

/// Escapes text for HTML and SVG, in content and in quoted attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A plot's area inside its picture, in user units.
#[derive(Clone, Copy)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// Maps a value to a position along an axis.
#[derive(Clone, Copy)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    pub scale: Scale,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Log,
}

impl Axis {
    /// 0 at the start, 1 at the end.
    pub fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln(),
        }
    }

    /// Positions of ticks: powers of ten, or four to eight round steps.
    pub fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Log {
            let (first, last) = (self.from.log10().ceil() as i32, self.to.log10().floor() as i32);
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|unit| unit * power).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        (first..).map(|count| count as f64 * step).take_while(|tick| *tick <= self.to * (1.0 + 1e-9)).collect()
    }
}

impl Frame {
    pub fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + self.width * axis.share(value)
    }

    /// The y coordinate of a value; values grow upwards.
    pub fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.top + self.height * (1.0 - axis.share(value))
    }

    /// Grid lines with their labels, and the names of both axes.
    pub fn grid(&self, x: (&Axis, &str), y: (&Axis, &str), label: fn(f64) -> String) -> String {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        let mut out = String::new();
        for tick in x.0.ticks() {
            let at = self.x(x.0, tick);
            out += &format!(
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{:.1}" y2="{bottom:.1}"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                self.top,
                bottom + 16.0,
                escape(&label(tick))
            );
        }
        for tick in y.0.ticks() {
            let at = self.y(y.0, tick);
            out += &format!(
                r#"<line class="grid" x1="{:.1}" x2="{right:.1}" y1="{at:.1}" y2="{at:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                self.left,
                self.left - 6.0,
                at + 4.0,
                escape(&label(tick))
            );
        }
        out += &format!(
            r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            self.left + self.width / 2.0,
            bottom + 36.0,
            escape(x.1)
        );
        out += &format!(
            r#"<text class="axis" transform="translate({:.1} {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            self.left - 52.0,
            self.top + self.height / 2.0,
            escape(y.1)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Axis { from: 0.0, to: 63.0, scale: Scale::Linear };
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0, 60.0]);
        let log = Axis { from: 0.05, to: 250.0, scale: Scale::Log };
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0]);
        assert!((log.share(0.05), log.share(250.0)) == (0.0, 1.0));
    }

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
