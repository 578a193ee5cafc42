//! A naga module flattened for data-flow analysis: per function, what is stored where, what is called, what decides.
//!
//! The analyses do not follow the order of statements (a variable holds whatever any store puts into it), so lists are
//! enough. Nothing here judges.

use std::collections::BTreeMap;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AtomicFunction, Block, Expression, Function, GatherMode, Handle, Module, ScalarKind, Span, Statement,
    SubgroupOperation, TypeInner,
};

/// How a subgroup operation that takes the least, the greatest or common bits is called.
pub const LANE_EXTREME: &str = "a subgroup minimum, maximum or bit operation";

/// Where a value can rest: a local of a function, a global, or what a pointer argument points to.
///
/// Numbers are indices into the arenas; the first of a pair is the function's place in [`Program::funs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// Local variable (function, variable).
    Local(usize, usize),
    /// Module-level variable.
    Global(usize),
    /// The pointee of a pointer argument (function, argument).
    Arg(usize, usize),
}

/// A store of `value` through `pointer`; atomics count as stores of their operand.
pub struct Store {
    pub pointer: Handle<Expression>,
    pub value: Handle<Expression>,
    pub line: u32,
}

/// A call of another function of the module.
pub struct Call {
    pub callee: usize,
    pub args: Vec<Handle<Expression>>,
    pub line: u32,
}

/// An expression that decides, what it is there, and the line of what it decides.
///
/// naga gives some loads no place of their own, so the line comes along.
pub struct Decision {
    pub expr: Handle<Expression>,
    pub what: &'static str,
    pub line: u32,
}

/// What an expression that stands for a statement's result holds.
#[derive(Clone, Copy)]
pub enum ResultOf {
    /// The return value of call number n of the function.
    Call(usize),
    /// What lies behind the pointer: an atomic's old value, a workgroup-uniform load.
    Pointee(Handle<Expression>),
    /// The argument of a subgroup operation.
    Lanes(Handle<Expression>),
}

/// A function or an entry point.
pub struct Fun<'a> {
    pub name: String,
    pub fun: &'a Function,
    info: &'a FunctionInfo,
    /// Entry points get their arguments from the pipeline, not from calls.
    pub is_entry: bool,
    pub stores: Vec<Store>,
    pub calls: Vec<Call>,
    pub returns: Vec<Handle<Expression>>,
    /// Expressions that decide what runs or which element is meant.
    pub decisions: Vec<Decision>,
    /// Values that leave the analysis: stored to images, voted on.
    pub leaving: Vec<Handle<Expression>>,
    pub results: BTreeMap<usize, ResultOf>,
    /// Subgroup operations that hand values on, none of which may be floats: operand, name, line.
    pub lanes: Vec<(Handle<Expression>, &'static str, u32)>,
    /// Atomic exchanges: line, what.
    pub atomic_order: Vec<(u32, &'static str)>,
    /// What atomics held before, used or not: result, line.
    pub atomics: Vec<(Handle<Expression>, u32)>,
    /// Can an entry point come here?
    pub reachable: bool,
}

impl Fun<'_> {
    fn decide(&mut self, expr: Handle<Expression>, what: &'static str, line: u32) {
        self.decisions.push(Decision { expr, what, line });
    }
}

/// The module, its functions first and its entry points after them.
///
/// naga puts a callee before its callers and WGSL has no recursion, so one pass in order sees summaries complete.
pub struct Program<'a> {
    pub module: &'a Module,
    pub info: &'a ModuleInfo,
    pub source: &'a str,
    pub funs: Vec<Fun<'a>>,
}

impl<'a> Program<'a> {
    /// Flattens a validated module.
    pub fn new(module: &'a Module, info: &'a ModuleInfo, source: &'a str) -> Self {
        let mut p = Program { module, info, source, funs: Vec::new() };
        for (handle, fun) in module.functions.iter() {
            let name = fun.name.clone().unwrap_or_default();
            let flat = p.flatten(name, fun, &info[handle], false);
            p.funs.push(flat);
        }
        for (i, entry) in module.entry_points.iter().enumerate() {
            let flat = p.flatten(entry.name.clone(), &entry.function, info.get_entry_point(i), true);
            p.funs.push(flat);
        }
        for i in (0..p.funs.len()).rev() {
            if p.funs[i].reachable {
                let callees: Vec<usize> = p.funs[i].calls.iter().map(|c| c.callee).collect();
                for c in callees {
                    assert!(c < i, "naga orders a callee before its caller");
                    p.funs[c].reachable = true;
                }
            }
        }
        p
    }

    /// Line of a span, from 1; 0 when naga kept none.
    pub fn line(&self, span: Span) -> u32 {
        if span.is_defined() { span.location(self.source).line_number } else { 0 }
    }

    /// Line of an expression.
    pub fn line_of(&self, f: usize, h: Handle<Expression>) -> u32 {
        self.line(self.funs[f].fun.expressions.get_span(h))
    }

    /// The expression behind a handle.
    pub fn expr(&self, f: usize, h: Handle<Expression>) -> &'a Expression {
        &self.funs[f].fun.expressions[h]
    }

    /// Type of an expression.
    pub fn inner(&self, f: usize, h: Handle<Expression>) -> &'a TypeInner {
        self.funs[f].info[h].ty.inner_with(&self.module.types)
    }

    /// Is it a pointer?
    pub fn is_pointer(&self, f: usize, h: Handle<Expression>) -> bool {
        matches!(self.inner(f, h), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
    }

    /// Scalar kind of a scalar, vector or matrix expression.
    pub fn kind(&self, f: usize, h: Handle<Expression>) -> Option<ScalarKind> {
        scalar_kind(self.inner(f, h))
    }

    /// Is it a float scalar, vector or matrix?
    pub fn is_float(&self, f: usize, h: Handle<Expression>) -> bool {
        self.kind(f, h) == Some(ScalarKind::Float)
    }

    /// The variable that a pointer expression leads into, without following pointer arguments.
    pub fn root(&self, f: usize, h: Handle<Expression>) -> Option<Root> {
        match *self.expr(f, h) {
            Expression::LocalVariable(v) => Some(Root::Local(f, v.index())),
            Expression::GlobalVariable(v) => Some(Root::Global(v.index())),
            Expression::FunctionArgument(i) if self.is_pointer(f, h) => Some(Root::Arg(f, i as usize)),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.root(f, base),
            _ => None,
        }
    }

    /// Does any other expression or statement take the expression?
    pub fn is_used(&self, f: usize, h: Handle<Expression>) -> bool {
        let fun = &self.funs[f];
        fun.fun.expressions.iter().any(|(_, e)| value_operands(e).contains(&h))
            || fun.stores.iter().any(|s| s.value == h)
            || fun.calls.iter().any(|c| c.args.contains(&h))
            || fun.decisions.iter().any(|d| d.expr == h)
            || fun.lanes.iter().any(|l| l.0 == h)
            || fun.returns.contains(&h)
            || fun.leaving.contains(&h)
    }

    /// How a variable is called in messages.
    pub fn root_name(&self, root: Root) -> String {
        match root {
            Root::Local(f, v) => {
                self.funs[f].fun.local_variables.iter().find(|(h, _)| h.index() == v).and_then(|(_, v)| v.name.clone())
            }
            Root::Global(g) => self.global(g).name.clone(),
            Root::Arg(f, i) => self.funs[f].fun.arguments.get(i).and_then(|a| a.name.clone()),
        }
        .unwrap_or_else(|| "(unnamed)".to_owned())
    }

    /// The module-level variable with this index.
    pub fn global(&self, index: usize) -> &'a naga::GlobalVariable {
        self.module
            .global_variables
            .iter()
            .find(|(h, _)| h.index() == index)
            .map(|(_, v)| v)
            .expect("the index came from this arena")
    }

    fn flatten(&self, name: String, fun: &'a Function, info: &'a FunctionInfo, is_entry: bool) -> Fun<'a> {
        let mut flat = Fun {
            name,
            fun,
            info,
            is_entry,
            stores: Vec::new(),
            calls: Vec::new(),
            returns: Vec::new(),
            decisions: Vec::new(),
            leaving: Vec::new(),
            results: BTreeMap::new(),
            lanes: Vec::new(),
            atomic_order: Vec::new(),
            atomics: Vec::new(),
            reachable: is_entry,
        };
        for (h, expr) in fun.expressions.iter() {
            let line = self.line(fun.expressions.get_span(h));
            match *expr {
                Expression::Access { index, .. } => flat.decide(index, "an index", line),
                Expression::Select { condition, .. } => {
                    flat.decide(condition, "a select condition", line);
                }
                _ => {}
            }
        }
        self.block(&fun.body, &mut flat);
        flat
    }

    fn block(&self, block: &Block, flat: &mut Fun<'a>) {
        for (statement, span) in block.span_iter() {
            let line = self.line(*span);
            match *statement {
                Statement::Block(ref inner) => self.block(inner, flat),
                Statement::If { condition, ref accept, ref reject } => {
                    flat.decide(condition, "an if or loop condition", line);
                    self.block(accept, flat);
                    self.block(reject, flat);
                }
                Statement::Switch { selector, ref cases } => {
                    flat.decide(selector, "a switch", line);
                    for case in cases {
                        self.block(&case.body, flat);
                    }
                }
                Statement::Loop { ref body, ref continuing, break_if } => {
                    self.block(body, flat);
                    self.block(continuing, flat);
                    if let Some(condition) = break_if {
                        flat.decide(condition, "a loop condition", line);
                    }
                }
                Statement::Return { value: Some(value) } => flat.returns.push(value),
                Statement::Store { pointer, value } => flat.stores.push(Store { pointer, value, line }),
                Statement::CooperativeStore { target, ref data } => {
                    flat.stores.push(Store { pointer: data.pointer, value: target, line });
                }
                Statement::Atomic { pointer, ref fun, value, result } => {
                    flat.stores.push(Store { pointer, value, line });
                    if let AtomicFunction::Exchange { compare: Some(c) } = *fun {
                        flat.leaving.push(c);
                    }
                    if let Some(result) = result {
                        flat.results.insert(result.index(), ResultOf::Pointee(pointer));
                    }
                    match *fun {
                        AtomicFunction::Exchange { compare: Some(_) } => {
                            flat.atomic_order.push((line, "an atomic compare and exchange"));
                        }
                        AtomicFunction::Exchange { compare: None } => {
                            flat.atomic_order.push((line, "an atomic exchange"));
                        }
                        _ => flat.atomics.extend(result.map(|r| (r, line))),
                    }
                }
                Statement::WorkGroupUniformLoad { pointer, result } => {
                    flat.results.insert(result.index(), ResultOf::Pointee(pointer));
                }
                Statement::Call { function, ref arguments, result } => {
                    if let Some(result) = result {
                        flat.results.insert(result.index(), ResultOf::Call(flat.calls.len()));
                    }
                    flat.calls.push(Call { callee: function.index(), args: arguments.clone(), line });
                }
                Statement::SubgroupGather { ref mode, argument, result } => {
                    if let GatherMode::Broadcast(i)
                    | GatherMode::Shuffle(i)
                    | GatherMode::ShuffleDown(i)
                    | GatherMode::ShuffleUp(i)
                    | GatherMode::ShuffleXor(i)
                    | GatherMode::QuadBroadcast(i) = *mode
                    {
                        flat.decide(i, "a lane index", line);
                    }
                    flat.lanes.push((argument, "a subgroup shuffle or broadcast", line));
                    flat.results.insert(result.index(), ResultOf::Lanes(argument));
                }
                Statement::SubgroupCollectiveOperation { op, argument, result, .. } => {
                    flat.lanes.push((
                        argument,
                        match op {
                            SubgroupOperation::Add => "a subgroup sum",
                            SubgroupOperation::Mul => "a subgroup product",
                            _ => LANE_EXTREME,
                        },
                        line,
                    ));
                    flat.results.insert(result.index(), ResultOf::Lanes(argument));
                }
                Statement::SubgroupBallot { predicate: Some(predicate), .. } => flat.leaving.push(predicate),
                Statement::ImageStore { value, .. } | Statement::ImageAtomic { value, .. } => {
                    flat.leaving.push(value);
                }
                _ => {}
            }
        }
    }
}

/// Scalar kind of a scalar, vector, matrix or atomic type.
pub fn scalar_kind(inner: &TypeInner) -> Option<ScalarKind> {
    match *inner {
        TypeInner::Scalar(s)
        | TypeInner::Vector { scalar: s, .. }
        | TypeInner::Matrix { scalar: s, .. }
        | TypeInner::CooperativeMatrix { scalar: s, .. }
        | TypeInner::Atomic(s) => Some(s.kind),
        _ => None,
    }
}

/// The operands whose values can reach the expression's value. Indices, conditions and pointers loaded from are not.
pub fn value_operands(expr: &Expression) -> Vec<Handle<Expression>> {
    match *expr {
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => vec![base],
        Expression::Splat { value, .. } => vec![value],
        Expression::Swizzle { vector, .. } => vec![vector],
        Expression::Unary { expr, .. } | Expression::Derivative { expr, .. } | Expression::As { expr, .. } => {
            vec![expr]
        }
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select { accept, reject, .. } => vec![accept, reject],
        Expression::Relational { argument, .. } => vec![argument],
        Expression::Math { arg, arg1, arg2, arg3, .. } => [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect(),
        Expression::CooperativeMultiplyAdd { a, b, c } => vec![a, b, c],
        _ => Vec::new(),
    }
}
