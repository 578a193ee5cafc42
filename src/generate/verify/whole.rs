//! The same for encoders: texts of their own instead of steps of one, and hidden states of every token instead of logits.

use super::super::session::{Session, Want};
use super::{Prefixes, Report, Script, Walk, pieces, worth_comparing};

/// What the script's prompt becomes: a text for each piece of it, one of a single token, and the whole.
fn texts(prompt: &[u32], most: usize) -> Vec<&[u32]> {
    let mut rest = prompt;
    let mut list = Vec::new();
    for n in pieces(prompt.len(), most) {
        let (text, others) = rest.split_at(n);
        list.push(text);
        rest = others;
    }
    list.extend([&prompt[..1], prompt]);
    list
}

/// Texts side by side, then on each device alone, a submit for each.
pub(super) async fn verify(
    mut sessions: Vec<Session<'_>>,
    names: &[String],
    script: &Script,
    mut tick: impl FnMut(),
) -> anyhow::Result<Report> {
    let list = texts(&script.prompt, sessions[0].built().plan.max_tokens);
    let (mut walk, mut rows) = (Walk::default(), Prefixes::default());
    for text in &list {
        let found = walk.step(&mut sessions, names, text, text.len()).await?;
        tick();
        for (i, row) in found.logits.chunks_exact(sessions[0].width()).enumerate() {
            let row: &[f32] = bytemuck::cast_slice(row);
            if let Err(e) = worth_comparing(i, row) {
                // a device that differs is the greater news
                if walk.report.mismatches == 0 {
                    return Err(walk.blamed(e));
                }
                walk.report.digest = rows.digest();
                return Ok(walk.report);
            }
            rows.push_row(row);
        }
    }
    let mut report = walk.report;
    report.digest = rows.digest();
    report.covered.positions = script.prompt.len();
    report.covered.pages = walk.pages.len();
    for (s, name) in sessions.iter_mut().zip(names) {
        let mut alone = Prefixes::default();
        for text in &list {
            let each = |_, row: &[f32]| {
                alone.push_row(row);
                Ok(())
            };
            s.feed(text, Want::From(0), each).await?;
        }
        let first = rows.rows.iter().zip(&alone.rows).position(|(a, b)| a != b);
        report.differs = report.differs.or(first);
        report.digests.push((name.clone(), 0, alone.digest()));
        tick();
        let kernels = s.device().kernels();
        if !kernels.is_empty() {
            report.covered.kernels.push((name.clone(), kernels));
        }
    }
    Ok(report)
}
