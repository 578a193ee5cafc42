//! A lint that proves a WGSL compute shader keeps the exactness law (`docs/exactness.md` section 1).
//!
//! It reads naga's IR of one expanded shader and reports, with a line each, everything that could give other bits on
//! another driver: a float builtin that WGSL leaves open, a float add, subtract or multiply that feeds another one
//! without a barrier, and a barrier whose zero a compiler could know. Where it cannot tell, it reports: a false alarm
//! costs one barrier, a missed one costs the promise of the engine.
//!
//! The parts: `program` flattens the module, `builtins` looks at one expression at a time, `zero` proves the barriers,
//! `taint` follows unbarriered results, `words` looks at the text for what naga folds before it makes IR.
//!
//! It must not judge what it cannot see: the magnitude of integers before `f32(i)`, the order of a sum, races in workgroup
//! memory, the value of a buffer that should hold zero, z of a dispatch. Twins and the device's qualification answer for
//! those, and `scripts/isa` for what compilers make of it all.
#![allow(dead_code, reason = "each test target that mounts this module uses another part of it")]

mod builtins;
mod program;
mod taint;
mod words;
mod zero;

pub use builtins::FINITE;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use program::Program;

/// The text is not WGSL that naga accepts.
pub const PARSE: &str = "parse";
/// The module does not validate with the capabilities granted.
pub const VALIDATE: &str = "validate";
/// A builtin, a texture or a matrix operation whose float result WGSL leaves open.
pub const FORBIDDEN_BUILTIN: &str = "forbidden-builtin";
/// `/` or `%` on floats.
pub const FLOAT_DIVISION: &str = "float-division";
/// A float of another width than 32 bits.
pub const FLOAT_WIDTH: &str = "float-width";
/// An atomic float.
pub const FLOAT_ATOMIC: &str = "float-atomic";
/// An atomic whose effect depends on the order in which invocations come.
pub const ATOMIC_ORDER: &str = "atomic-order";
/// A float moved or combined by subgroup operations.
pub const FLOAT_SUBGROUP: &str = "float-subgroup";
/// A float literal that is subnormal, infinite or not a number.
pub const FLOAT_LITERAL: &str = "float-literal";
/// Float arithmetic that a compiler may leave out: times 1, times 0, plus a literal 0.
pub const FLOAT_IDENTITY: &str = "float-identity";
/// An operation whose answer for infinities and NaN is the compiler's, outside the functions listed for it.
pub const NOT_FINITE: &str = "not-finite";
/// An array taken out of a variable whole and then indexed by a number that is not constant: compilers of SPIR-V and GLSL
/// make a copy of it, which Mesa has been seen to take for the variable itself, with what was written to that later.
pub const ARRAY_VALUE: &str = "array-value";
/// Workgroup memory that nothing writes.
pub const WORKGROUP_UNWRITTEN: &str = "workgroup-unwritten";
/// A rounded float result reaches another float add, subtract or multiply without a barrier.
pub const UNBARRIERED: &str = "unbarriered";
/// A barrier of a form that another barrier undoes.
pub const BARRIER_CANCELS: &str = "barrier-cancels";
/// The zero of a barrier comes from where a compiler may know it, or from where it is not sure to be zero.
pub const ZERO_SOURCE: &str = "barrier-zero-source";
/// The zero of a barrier is read before it is set.
pub const ZERO_UNSET: &str = "barrier-zero-unset";
/// The source of a barrier's zero also reaches a branch, a loop bound or an index.
pub const ZERO_CONTROL_FLOW: &str = "barrier-zero-control-flow";
/// The uniform member that gives a barrier's zero is used for something else.
pub const ZERO_SHARED: &str = "barrier-zero-shared";

/// One breach of the law.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Line in the source that was checked, from 1; 0 when naga keeps no place for it.
    pub line: u32,
    /// Which rule: one of the constants of this module.
    pub rule: &'static str,
    /// The function it is in; empty outside functions.
    pub function: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Checks one expanded shader with no capability granted: the baseline of every device.
///
/// `name` is what messages call the shader, `source` its text without imports left. Findings come by line; none means
/// that the shader passed.
pub fn check(name: &str, source: &str) -> Vec<Finding> {
    check_with(name, source, Capabilities::empty())
}

/// [`check`] for a shader that declares what it needs: validation grants `capabilities` and no others.
///
/// Everything else stays as strict: granting `SHADER_FLOAT16`, say, lets a module validate but not pass. Granting
/// `COOPERATIVE_MATRIX` lets f16 be made of integers and lie in workgroup memory, for matrices to take, and nowhere else;
/// their sums are results like any other. That they are integers below 2^24 is for the shader's bounds to say.
pub fn check_with(name: &str, source: &str, capabilities: Capabilities) -> Vec<Finding> {
    let module = match naga::front::wgsl::parse_str(source) {
        Ok(module) => module,
        Err(e) => {
            return vec![Finding {
                line: e.location(source).map_or(0, |l| l.line_number),
                rule: PARSE,
                function: String::new(),
                message: format!("{name}: {}", e.message()),
            }];
        }
    };
    let mut findings = Vec::new();
    let info = match Validator::new(ValidationFlags::all(), capabilities).validate(&module) {
        Ok(info) => info,
        Err(e) => {
            let mut message = format!("{name}: {}", e.as_inner());
            let mut cause = std::error::Error::source(e.as_inner());
            while let Some(c) = cause {
                message.push_str(&format!(": {c}"));
                cause = c.source();
            }
            findings.push(Finding {
                line: e.location(source).map_or(0, |l| l.line_number),
                rule: VALIDATE,
                function: String::new(),
                message,
            });
            // The other rules still have something to say about a module that is only short of a capability.
            match Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module) {
                Ok(info) => info,
                Err(_) => return findings,
            }
        }
    };
    let program = Program::new(&module, &info, source);
    let matrices = capabilities.contains(Capabilities::COOPERATIVE_MATRIX);
    builtins::check(&program, name, matrices, &mut findings);
    words::check(&program, source, &mut findings);
    let barriers = zero::check(&program, &mut findings);
    taint::check(&program, &barriers, &mut findings);
    findings.sort();
    findings.dedup_by(|a, b| (a.line, a.rule) == (b.line, b.rule));
    findings
}

/// The findings as text, one a line, for the message of a failing test.
pub fn report(name: &str, findings: &[Finding]) -> String {
    let mut text = String::new();
    for f in findings {
        text.push_str(&format!("{name}:{}: {} in `{}`: {}\n", f.line, f.rule, f.function, f.message));
    }
    text
}
