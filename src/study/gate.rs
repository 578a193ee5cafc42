//! Gates: a condition on a summary that makes a run fail.
//!
//! `GROUP.METRIC[@TYPE] OP NUMBER[%]`, for example `qkv.rmse_change > -5%` or `model.collapse@q4_k >= 1000`. GROUP is
//! qkv, o, gate_up, down, lm_head, embed or model. Without @TYPE the condition is asked of every type but the baseline
//! (of the baseline where it is the only one). OP is one of < <= > >= == !=.

use super::errors::change;
use super::measure::{Summary, TypeSummary};
use crate::blocks::BlockType;
use crate::formats::policy::Group;
use anyhow::{Context, bail, ensure};

/// The types that are studied cannot answer a gate; the whole line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TypesError(String);

/// A figure of a group under a type, `base` being the baseline.
type Figure = fn(base: &TypeSummary, of: &TypeSummary) -> f64;

/// How a metric's number is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// as it is
    Plain,
    /// in percent, and the sign must be there
    Percent,
}

const METRICS: [(&str, Unit, Figure); 15] = [
    ("rmse", Unit::Plain, |_, s| s.errors.rmse()),
    ("mae", Unit::Plain, |_, s| s.errors.mae()),
    ("max", Unit::Plain, |_, s| s.errors.max),
    ("nrmse", Unit::Plain, |_, s| s.errors.nrmse()),
    ("rel", Unit::Plain, |_, s| s.errors.rel()),
    ("collapse", Unit::Plain, |_, s| s.errors.collapsed as f64),
    ("spiky", Unit::Plain, |_, s| s.errors.spiky as f64),
    ("improved", Unit::Plain, |_, s| s.improved as f64),
    ("worse", Unit::Plain, |_, s| s.worse as f64),
    ("not_improved", Unit::Plain, |_, s| (s.layers - s.improved) as f64),
    ("rmse_change", Unit::Percent, |b, s| change(b.errors.rmse(), s.errors.rmse())),
    ("mae_change", Unit::Percent, |b, s| change(b.errors.mae(), s.errors.mae())),
    ("max_change", Unit::Percent, |b, s| change(b.errors.max, s.errors.max)),
    ("rel_change", Unit::Percent, |b, s| change(b.errors.rel(), s.errors.rel())),
    ("collapse_change", Unit::Percent, |b, s| change(b.errors.collapsed as f64, s.errors.collapsed as f64)),
];

/// A comparison of a figure with a bound.
type Comparison = fn(f64, f64) -> bool;

const OPS: [(&str, Comparison); 6] = [
    // the longer ones first: `<` is the beginning of `<=`
    ("<=", |a, b| a <= b),
    (">=", |a, b| a >= b),
    ("==", |a, b| a == b),
    ("!=", |a, b| a != b),
    ("<", |a, b| a < b),
    (">", |a, b| a > b),
];

/// A parsed gate.
#[derive(Clone, Debug)]
pub struct Gate {
    text: String,
    group: Option<Group>,
    metric: usize,
    ty: Option<BlockType>,
    op: Comparison,
    bound: f64,
}

/// What a gate found for one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// the type
    pub ty: BlockType,
    /// the figure
    pub value: f64,
    /// whether the condition holds, which means failure
    pub fails: bool,
    /// the unit, `%` or nothing
    pub unit: &'static str,
}

impl Finding {
    /// The figure with its unit, in as many digits as a reader needs.
    pub fn text(&self) -> String {
        match self.value {
            v if self.unit == "%" => format!("{v:.3}%"),
            v if v == v.trunc() && v.abs() < 1e15 => format!("{v}"),
            v => format!("{v:.6e}"),
        }
    }
}

impl Gate {
    /// Reads a gate. Errors: what is wrong with it, on one line.
    pub fn parse(text: &str) -> anyhow::Result<Gate> {
        let form = "expected GROUP.METRIC[@TYPE] OP NUMBER[%], as in \"qkv.rmse_change > -5%\"";
        let Some(at) = text.find(['<', '>', '=', '!']) else { bail!("no comparison in {text:?}; {form}") };
        let (left, rest) = (text[..at].trim(), &text[at..]);
        let Some((sign, op)) = OPS.iter().find(|(sign, _)| rest.starts_with(sign)) else {
            bail!("unknown comparison in {text:?}: one of < <= > >= == !=");
        };
        let number = rest[sign.len()..].trim();
        let (figure, ty) = match left.split_once('@') {
            Some((figure, ty)) => (figure.trim(), Some(parse_type(ty.trim())?)),
            None => (left, None),
        };
        let Some((group, metric)) = figure.split_once('.') else { bail!("no metric in {text:?}; {form}") };
        let group = match group.trim() {
            "model" => None,
            name => Some(*Group::ALL.iter().find(|g| g.name() == name).with_context(|| {
                let names: Vec<&str> = Group::ALL.iter().map(|g| g.name()).collect();
                format!("unknown group {name:?} in {text:?}: one of {}, model", names.join(", "))
            })?),
        };
        let metric = METRICS.iter().position(|m| m.0 == metric.trim()).with_context(|| {
            let names: Vec<&str> = METRICS.iter().map(|m| m.0).collect();
            format!("unknown metric {:?} in {text:?}: one of {}", metric.trim(), names.join(", "))
        })?;
        let (digits, percent) = match number.strip_suffix('%') {
            Some(digits) => (digits.trim_end(), true),
            None => (number, false),
        };
        let bound: f64 = digits
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite())
            .with_context(|| format!("no number after {sign} in {text:?}: found {number:?}"))?;
        let (name, unit, _) = METRICS[metric];
        match (unit, percent) {
            (Unit::Percent, false) => bail!("{name} is in percent: write {bound}% in {text:?}"),
            (Unit::Plain, true) => bail!("{name} is no percentage: write the number itself in {text:?}"),
            _ => {}
        }
        Ok(Gate { text: text.trim().to_string(), group, metric, ty, op: *op, bound })
    }

    /// The gate as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Refuses a gate that these types can never answer, before anything is measured.
    pub fn check(&self, types: &[BlockType]) -> anyhow::Result<()> {
        if let Some(ty) = self.ty {
            ensure!(
                types.contains(&ty),
                TypesError(format!("{:?} asks for {}, which is not among the types", self.text, ty.name()))
            );
        }
        ensure!(
            types.len() > 1 || METRICS[self.metric].1 == Unit::Plain,
            TypesError(format!(
                "{:?} asks for a change, and there is one type: give a baseline and another",
                self.text
            ))
        );
        Ok(())
    }

    /// Asks the gate. Errors: its group was not measured under every type.
    pub fn ask(&self, summaries: &[Summary], types: &[BlockType]) -> anyhow::Result<Vec<Finding>> {
        let summary = summaries.iter().find(|s| s.group == self.group).with_context(|| {
            let names: Vec<&str> = summaries.iter().map(Summary::name).collect();
            format!(
                "{:?} cannot be answered: no tensors of that group were compared; there are {}",
                self.text,
                names.join(", ")
            )
        })?;
        let (_, unit, figure) = METRICS[self.metric];
        let asked = |i: &usize| match self.ty {
            Some(ty) => types[*i] == ty,
            None => *i > 0 || types.len() == 1,
        };
        Ok((0..types.len())
            .filter(asked)
            .map(|i| {
                let value = figure(&summary.types[0], &summary.types[i]);
                let unit = if unit == Unit::Percent { "%" } else { "" };
                Finding { ty: types[i], value, fails: (self.op)(value, self.bound), unit }
            })
            .collect())
    }
}

/// The type of a name, capitals or not (`q4_k`, `Q8K128`; `q8k` and the like too).
pub fn parse_type(name: &str) -> anyhow::Result<BlockType> {
    BlockType::parse(name).with_context(|| {
        let names: Vec<String> = BlockType::ALL.iter().map(|t| t.name().to_lowercase()).collect();
        format!("unknown type {name:?}: one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::errors::Errors;

    fn summary(group: Option<Group>, rmse: &[f64]) -> Summary {
        let types = rmse
            .iter()
            .map(|r| TypeSummary {
                errors: Errors { n: 4, squares: 4.0 * r * r, ..Errors::default() },
                layers: 3,
                improved: usize::from(*r < rmse[0]) * 3,
                worse: 0,
            })
            .collect();
        Summary { group, tensors: 3, types }
    }

    const TYPES: [BlockType; 3] = [BlockType::Q8_K, BlockType::Q8K128, BlockType::Q4_K];

    fn ask(text: &str) -> Vec<bool> {
        let all = [summary(Some(Group::Qkv), &[1.0, 0.5, 4.0]), summary(None, &[1.0, 0.75, 2.0])];
        let gate = Gate::parse(text).unwrap();
        gate.check(&TYPES).unwrap();
        gate.ask(&all, &TYPES).unwrap().iter().map(|f| f.fails).collect()
    }

    #[test]
    fn a_gate_asks_every_type_but_the_baseline_or_the_one_it_names() {
        assert_eq!(ask("qkv.rmse_change > -5%"), [false, true]);
        assert_eq!(ask("qkv.rmse_change@q8k128>-5%"), [false]);
        assert_eq!(ask("qkv.rmse_change > -50 %"), [false, true]);
        assert_eq!(ask("qkv.rmse_change >= -50%"), [true, true]);
        assert_eq!(ask("model.rmse<1e0"), [true, false]);
        assert_eq!(ask("model.rmse@Q8_K == 1"), [true]);
        assert_eq!(ask(" qkv.improved != 3 "), [false, true]);
        assert_eq!(ask("qkv.not_improved > 0"), [false, true]);
    }

    #[test]
    fn a_bad_gate_says_on_one_line_what_is_wrong() {
        for (text, words) in [
            ("", "no comparison"),
            ("qkv.rmse_change", "no comparison"),
            ("qkv.rmse = 1", "unknown comparison"),
            ("rmse > 1", "no metric"),
            ("heads.rmse > 1", "unknown group \"heads\""),
            ("qkv.rmsd > 1", "unknown metric \"rmsd\""),
            ("qkv.rmse > one", "no number"),
            ("qkv.rmse > nan", "no number"),
            ("qkv.rmse >", "no number"),
            ("qkv.rmse_change > -5", "write -5%"),
            ("qkv.rmse > 5%", "no percentage"),
            ("qkv.rmse@q9 > 5", "unknown type"),
        ] {
            let e = Gate::parse(text).unwrap_err().to_string();
            assert!(e.contains(words) && !e.contains('\n'), "{text:?}: {e}");
        }
    }

    #[test]
    fn a_gate_that_cannot_be_answered_is_an_error_and_not_a_pass() {
        let gate = Gate::parse("down.rmse > 1").unwrap();
        assert!(gate.ask(&[summary(None, &[1.0])], &[BlockType::Q8_K]).is_err());
        assert!(Gate::parse("qkv.rmse_change > 1%").unwrap().check(&[BlockType::Q8_K]).is_err());
        assert!(Gate::parse("qkv.rmse@q5_k > 1").unwrap().check(&TYPES).is_err());
    }
}
