//! Follows the results of float adds, subtracts and multiplies until a barrier, and reports those that reach another one,
//! a comparison, a rounding, a conversion to integers, or integer arithmetic on their bits: a compiler may answer
//! `a + b > a` by `b > 0`, and round a product and its sum once. A result may be stored and handed on without a barrier.
//!
//! Anything that hands a float on unchanged, or that a compiler sees through, keeps the history: negate, min, max,
//! select, vectors, variables, arrays, arguments, return values, and the bits in integers. Converting to an integer by
//! value, comparing, and the barriers that `zero` proved end it. Variables hold what any store put there, buffers
//! included: a compiler forwards a store to a later load of the same buffer.
//!
//! Functions are summarised: an argument that reaches an operation inside is reported at the call that passes a result
//! without a barrier, because that is where the barrier is missing.

use std::collections::{BTreeMap, BTreeSet};

use naga::{BinaryOperator, Expression, Handle, MathFunction, ScalarKind};

use super::program::{Program, ResultOf, Root, value_operands};
use super::zero::Barriers;
use super::{Finding, UNBARRIERED};

/// What an expression's value may come from without a barrier between.
#[derive(Clone, Default, PartialEq, Eq)]
struct Taint {
    /// Line of a float operation (the first found).
    op: Option<u32>,
    /// Arguments of the function at hand.
    params: BTreeSet<usize>,
}

impl Taint {
    /// Joins `more` in; returns whether anything grew.
    fn join(&mut self, more: &Taint) -> bool {
        let before = self.params.len();
        self.params.extend(&more.params);
        let grown = self.op.is_none() && more.op.is_some() || self.params.len() != before;
        self.op = self.op.or(more.op);
        grown
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Summary {
    result: Taint,
    /// Argument to the line of an operation it reaches.
    operations: BTreeMap<usize, u32>,
    /// Arguments that a global variable holds afterwards.
    globals: BTreeMap<usize, BTreeSet<usize>>,
    /// What is stored through a pointer argument.
    pointees: BTreeMap<usize, Taint>,
}

struct State<'p, 'm> {
    p: &'p Program<'m>,
    barriers: &'p Barriers,
    /// Global variables that hold the result of an operation: its line.
    globals: BTreeMap<usize, u32>,
    summaries: Vec<Summary>,
    found: BTreeMap<(usize, u32), String>,
}

/// Adds the findings of this module to `out`.
pub fn check(p: &Program, barriers: &Barriers, out: &mut Vec<Finding>) {
    let mut state = State {
        p,
        barriers,
        globals: BTreeMap::new(),
        summaries: vec![Summary::default(); p.funs.len()],
        found: BTreeMap::new(),
    };
    // Functions come in the order of calls, so summaries are whole at once; only globals need more rounds.
    loop {
        let before = state.globals.len();
        for f in 0..p.funs.len() {
            state.function(f);
        }
        if state.globals.len() == before {
            break;
        }
    }
    for ((f, line), message) in state.found {
        out.push(Finding { line, rule: UNBARRIERED, function: p.funs[f].name.clone(), message });
    }
    constants(p, out);
}

/// The work on one function: what its expressions and its own variables hold.
struct Frame {
    f: usize,
    of: Vec<Taint>,
    vars: BTreeMap<Root, Taint>,
    summary: Summary,
}

impl State<'_, '_> {
    fn function(&mut self, f: usize) {
        let p = self.p;
        let mut frame = Frame {
            f,
            of: vec![Taint::default(); p.funs[f].fun.expressions.len()],
            vars: BTreeMap::new(),
            summary: Summary::default(),
        };
        loop {
            let mut grown = false;
            for (h, expr) in p.funs[f].fun.expressions.iter() {
                let taint = self.transfer(&frame, h, expr);
                grown |= frame.of[h.index()].join(&taint);
            }
            for (h, v) in p.funs[f].fun.local_variables.iter() {
                if let Some(init) = v.init {
                    let taint = frame.of[init.index()].clone();
                    let root = Root::Local(f, h.index());
                    grown |= frame.vars.entry(root).or_default().join(&taint);
                }
            }
            grown |= self.statements(&mut frame);
            if !grown {
                break;
            }
        }
        self.operations(&mut frame);
        self.summaries[f] = frame.summary;
    }

    fn transfer(&self, frame: &Frame, h: Handle<Expression>, expr: &Expression) -> Taint {
        let (p, f) = (self.p, frame.f);
        let all = |operands: &[Handle<Expression>]| {
            let mut taint = Taint::default();
            for o in operands {
                taint.join(&frame.of[o.index()]);
            }
            taint
        };
        let clean = Taint::default();
        if p.kind(f, h) == Some(ScalarKind::Bool) {
            return clean;
        }
        match *expr {
            Expression::FunctionArgument(i) if !p.funs[f].is_entry => {
                Taint { op: None, params: BTreeSet::from([i as usize]) }
            }
            Expression::Load { pointer } => self.pointee(frame, pointer),
            Expression::CooperativeLoad { ref data, .. } => self.pointee(frame, data.pointer),
            // what it adds to may be a sum of its own: all are integers, which the shader's bounds answer for
            Expression::CooperativeMultiplyAdd { .. } => Taint { op: Some(p.line_of(f, h)), params: BTreeSet::new() },
            Expression::Binary { op, .. } => match op {
                BinaryOperator::Add
                | BinaryOperator::Subtract
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
                    if p.is_float(f, h) =>
                {
                    Taint { op: Some(p.line_of(f, h)), params: BTreeSet::new() }
                }
                BinaryOperator::InclusiveOr | BinaryOperator::ExclusiveOr
                    if self.barriers.contains(&(f, h.index())) =>
                {
                    clean
                }
                _ => all(&value_operands(expr)),
            },
            // Values of their own: comparisons in disguise, and what `builtins` refuses anyway.
            Expression::Math { fun, .. }
                if matches!(fun, MathFunction::Sign | MathFunction::Step)
                    || p.is_float(f, h) && !super::builtins::is_exact(fun) =>
            {
                clean
            }
            // By value, a float becomes an integer and an integer a float exactly; bits keep their history.
            Expression::As { expr: operand, kind, convert: Some(_) } => {
                let float = |k| k == Some(ScalarKind::Float);
                if float(Some(kind)) != float(p.kind(f, operand)) { clean } else { all(&[operand]) }
            }
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupOperationResult { .. } => match p.funs[f].results.get(&h.index()) {
                Some(&ResultOf::Call(n)) => {
                    let call = &p.funs[f].calls[n];
                    self.at_call(frame, &call.args, &self.summaries[call.callee].result)
                }
                Some(&ResultOf::Pointee(pointer)) => self.pointee(frame, pointer),
                Some(&ResultOf::Lanes(argument)) => all(&[argument]),
                None => clean,
            },
            _ => all(&value_operands(expr)),
        }
    }

    /// What a callee's taint means at a call: its arguments become what is passed.
    fn at_call(&self, frame: &Frame, args: &[Handle<Expression>], taint: &Taint) -> Taint {
        let mut here = Taint { op: taint.op, params: BTreeSet::new() };
        for &i in &taint.params {
            here.join(&self.passed(frame, args[i]));
        }
        here
    }

    /// What a call passes: the value, or for a pointer what lies behind it.
    fn passed(&self, frame: &Frame, arg: Handle<Expression>) -> Taint {
        if self.p.is_pointer(frame.f, arg) { self.pointee(frame, arg) } else { frame.of[arg.index()].clone() }
    }

    fn pointee(&self, frame: &Frame, pointer: Handle<Expression>) -> Taint {
        let Some(root) = self.p.root(frame.f, pointer) else {
            return Taint::default();
        };
        let mut taint = frame.vars.get(&root).cloned().unwrap_or_default();
        match root {
            Root::Global(g) => {
                taint.op = taint.op.or(self.globals.get(&g).copied());
            }
            Root::Arg(_, i) => {
                taint.params.insert(i);
            }
            Root::Local(..) => {}
        }
        taint
    }

    fn store(&mut self, frame: &mut Frame, pointer: Handle<Expression>, taint: &Taint) -> bool {
        let Some(root) = self.p.root(frame.f, pointer) else {
            return false;
        };
        if let (Root::Global(g), Some(line)) = (root, taint.op) {
            self.globals.entry(g).or_insert(line);
        }
        frame.vars.entry(root).or_default().join(taint)
    }

    fn statements(&mut self, frame: &mut Frame) -> bool {
        let p = self.p;
        let mut grown = false;
        for s in &p.funs[frame.f].stores {
            let taint = frame.of[s.value.index()].clone();
            grown |= self.store(frame, s.pointer, &taint);
        }
        for call in &p.funs[frame.f].calls {
            let callee = self.summaries[call.callee].clone();
            for (&g, params) in &callee.globals {
                let taint = self.at_call(frame, &call.args, &Taint { op: None, params: params.clone() });
                if let Some(line) = taint.op {
                    self.globals.entry(g).or_insert(line);
                }
                grown |= frame.vars.entry(Root::Global(g)).or_default().join(&taint);
            }
            for (&i, taint) in &callee.pointees {
                let taint = self.at_call(frame, &call.args, taint);
                grown |= self.store(frame, call.args[i], &taint);
            }
        }
        for &value in &p.funs[frame.f].returns {
            let taint = frame.of[value.index()].clone();
            frame.summary.result.join(&taint);
        }
        for (root, taint) in &frame.vars {
            match *root {
                Root::Global(g) if !taint.params.is_empty() => {
                    frame.summary.globals.entry(g).or_default().extend(&taint.params);
                }
                Root::Arg(_, i) => {
                    frame.summary.pointees.entry(i).or_default().join(taint);
                }
                _ => {}
            }
        }
        grown
    }

    /// What an expression does with its operands that none of them may come to without a barrier.
    fn asks(&self, f: usize, h: Handle<Expression>, expr: &Expression) -> Option<&'static str> {
        let p = self.p;
        match *expr {
            Expression::Binary { op, left, .. } => match op {
                BinaryOperator::Add if p.is_float(f, h) => Some("float add"),
                BinaryOperator::Subtract if p.is_float(f, h) => Some("float subtract"),
                BinaryOperator::Multiply if p.is_float(f, h) => Some("float multiply"),
                _ if super::builtins::is_comparison(op) => Some("comparison"),
                BinaryOperator::LogicalAnd | BinaryOperator::LogicalOr => None,
                _ if p.is_float(f, left) || self.barriers.contains(&(f, h.index())) => None,
                // Integers that hold bits of a float; others have no history.
                _ => Some("work on bits"),
            },
            Expression::As { expr, kind, convert: Some(_) } if kind != ScalarKind::Float && p.is_float(f, expr) => {
                Some("conversion to an integer")
            }
            Expression::Math { fun, .. } if p.is_float(f, h) => match fun {
                MathFunction::Ceil | MathFunction::Floor | MathFunction::Round | MathFunction::Trunc => {
                    Some("rounding")
                }
                MathFunction::Sign | MathFunction::Step => Some("comparison"),
                _ => None,
            },
            // clz, extractBits and the like.
            Expression::Math { .. } => Some("work on bits"),
            _ => None,
        }
    }

    /// Looks at every float operation, here and behind calls, once everything has settled.
    fn operations(&mut self, frame: &mut Frame) {
        let (p, f) = (self.p, frame.f);
        for (h, expr) in p.funs[f].fun.expressions.iter() {
            let Some(what) = self.asks(f, h, expr) else { continue };
            let line = p.line_of(f, h);
            for operand in value_operands(expr) {
                let taint = frame.of[operand.index()].clone();
                if let Some(from) = taint.op {
                    self.found.entry((f, line)).or_insert_with(|| {
                        format!("the {what} takes the rounded result of line {from} without a barrier")
                    });
                }
                for i in taint.params {
                    frame.summary.operations.entry(i).or_insert(line);
                }
            }
        }
        for call in &p.funs[f].calls {
            for (&i, &inside) in &self.summaries[call.callee].operations.clone() {
                let taint = self.passed(frame, call.args[i]);
                if let Some(from) = taint.op {
                    let callee = &p.funs[call.callee].name;
                    self.found.entry((f, call.line)).or_insert_with(|| {
                        format!(
                            "argument {i} of `{callee}` is the rounded result of line {from} without a barrier, and \
                             an operation that asks for one takes it on line {inside}"
                        )
                    });
                }
                for param in taint.params {
                    frame.summary.operations.entry(param).or_insert(inside);
                }
            }
        }
    }
}

/// The same rule for what the module computes outside functions, from overrides.
fn constants(p: &Program, out: &mut Vec<Finding>) {
    let mut tainted: BTreeMap<usize, u32> = BTreeMap::new();
    let overrides: BTreeMap<usize, Option<Handle<Expression>>> =
        p.module.overrides.iter().map(|(h, o)| (h.index(), o.init)).collect();
    for (h, expr) in p.module.global_expressions.iter() {
        let line = p.line(p.module.global_expressions.get_span(h));
        let float = p.info[h].inner_with(&p.module.types);
        let float = super::program::scalar_kind(float) == Some(ScalarKind::Float);
        let from = match *expr {
            Expression::Override(o) => overrides[&o.index()].into_iter().collect(),
            _ => value_operands(expr),
        };
        let from = from.iter().find_map(|o| tainted.get(&o.index()).copied());
        let arithmetic = matches!(
            *expr,
            Expression::Binary { op: BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply, .. }
        ) && float;
        if arithmetic {
            if let Some(from) = from {
                out.push(Finding {
                    line,
                    rule: UNBARRIERED,
                    function: String::new(),
                    message: format!("a float operation on overrides takes the rounded result of line {from}"),
                });
            }
            tainted.insert(h.index(), line);
        } else if let Some(from) = from {
            tainted.insert(h.index(), from);
        }
    }
}
