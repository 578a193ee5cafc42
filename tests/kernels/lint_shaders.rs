//! The exactness lint over every expanded shader: no finding may remain.

use crate::lint;
use naga::valid::Capabilities;

#[test]
fn every_shader_keeps_the_exactness_law() {
    let mut findings = String::new();
    for s in isobit::internals::host::shaders::SHADERS {
        let mut granted = Capabilities::empty();
        granted.set(Capabilities::SUBGROUP, s.subgroups);
        granted.set(Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX, s.matrices);
        for finding in lint::check_with(s.name, s.source, granted) {
            let place = isobit::internals::host::expand::place_of(s.source, finding.line as usize);
            let place = place.map_or_else(String::new, |p| format!("{p}: "));
            findings.push_str(&format!("{place}{}", lint::report(s.name, &[finding])));
        }
    }
    assert!(findings.is_empty(), "{} findings:\n{findings}", findings.lines().count());
}

#[test]
fn every_function_that_the_lint_excuses_is_there() {
    for (shader, function, _) in lint::FINITE {
        let of = |s: &&isobit::internals::host::shaders::Shader| *shader == "*" || *shader == s.name;
        let there = |s: &isobit::internals::host::shaders::Shader| s.source.contains(&format!("fn {function}("));
        assert!(isobit::internals::host::shaders::SHADERS.iter().filter(of).any(there), "no {function} in {shader}");
    }
}
