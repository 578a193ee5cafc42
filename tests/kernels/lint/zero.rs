//! Which ORs are barriers, and whether the zero of each is one that no compiler can know.
//!
//! A barrier is an OR of the bits of a float with a value that is a pure copy of an allowed source: z of
//! `workgroup_id`, a load from a storage buffer the shader does not write, a uniform member used nowhere else. Copies
//! are followed through variables, arguments and return values, each member and component by itself, without regard
//! to the order of statements; that a variable is set before it is read is checked apart.
//!
//! A bad zero is reported here once, and the OR then counts as a barrier, so that one mistake in a helper does not
//! drown the report. An OR that is no barrier at all (bits put together) lets the float's history through to `taint`.
//! So does an XOR with a computed value (a sign flip). An XOR in a barrier's place is treated as one and reported:
//! `(x ^ zero) ^ zero` is `x` to every optimiser, and what was two barriers in a row is none.

use std::collections::{BTreeMap, BTreeSet};

use naga::{
    AddressSpace, BinaryOperator, Binding, Block, BuiltIn, Expression, Handle, Literal, ScalarKind, Statement,
    TypeInner,
};

use super::program::{LANE_EXTREME, Program, ResultOf, Root, value_operands};
use super::{BARRIER_CANCELS, FLOAT_SUBGROUP, Finding, ZERO_CONTROL_FLOW, ZERO_SHARED, ZERO_SOURCE, ZERO_UNSET};

/// One step into a composite: a member or element known when compiling, or any element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    At(u32),
    Any,
}

type Path = Vec<Step>;

/// Where a value was copied from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// A pipeline input, or a component of it.
    BuiltIn(BuiltIn, Path),
    /// An entry point's argument that is a struct of pipeline inputs (function, argument).
    Inputs(usize, usize),
    /// Part of a uniform or storage variable.
    Buffer(usize, Path),
    /// The literal or constant 0.
    Zero,
    /// Another literal or constant.
    NonZero,
    Override,
    /// A source that is never allowed, by name.
    Opaque(&'static str),
    /// Not a copy: the result of some operation.
    Computed,
}

type Origins = BTreeSet<Origin>;

/// The expressions that are barriers: (function, expression index).
pub type Barriers = BTreeSet<(usize, usize)>;

/// Proves every barrier of the module, adds what is wrong to `out`, and returns the barriers.
pub fn check(p: &Program, out: &mut Vec<Finding>) -> Barriers {
    let mut copies = Copies::new(p);
    copies.solve();
    let barriers = copies.classify(out);
    copies.lanes(out);
    unset(p, &copies, &barriers, out);
    reaches(p, &copies, &barriers, out);
    barriers.values.keys().copied().collect()
}

struct Classified {
    /// Barrier to the operand that carries the float.
    values: BTreeMap<(usize, usize), Handle<Expression>>,
    /// The allowed sources that serve as zeros.
    zeros: Vec<Origin>,
}

struct Copies<'p, 'm> {
    p: &'p Program<'m>,
    /// Per function and expression, where its value was copied from; empty for pointers and for what never runs.
    origins: Vec<Vec<Origins>>,
    /// Per function and expression: may it hold the raw bits of a float, in an integer?
    bits: Vec<Vec<bool>>,
    contents: BTreeMap<Root, BTreeMap<Path, Origins>>,
    bit_vars: BTreeSet<Root>,
    params: BTreeMap<(usize, usize), Origins>,
    bit_params: BTreeSet<(usize, usize)>,
    /// What a pointer argument may point to.
    points: BTreeMap<(usize, usize), BTreeSet<(Root, Path)>>,
    returns: Vec<Origins>,
    bit_returns: Vec<bool>,
    /// Variables that some statement stores to.
    written: BTreeSet<Root>,
    changed: bool,
}

impl<'p, 'm> Copies<'p, 'm> {
    fn new(p: &'p Program<'m>) -> Self {
        let lens: Vec<usize> = p.funs.iter().map(|f| f.fun.expressions.len()).collect();
        Copies {
            p,
            origins: lens.iter().map(|&n| vec![Origins::new(); n]).collect(),
            bits: lens.iter().map(|&n| vec![false; n]).collect(),
            contents: BTreeMap::new(),
            bit_vars: BTreeSet::new(),
            params: BTreeMap::new(),
            bit_params: BTreeSet::new(),
            points: BTreeMap::new(),
            returns: vec![Origins::new(); lens.len()],
            bit_returns: vec![false; lens.len()],
            written: BTreeSet::new(),
            changed: false,
        }
    }

    /// Repeats all transfers until nothing grows. Sets only grow and paths are no longer than types are deep, so it ends.
    fn solve(&mut self) {
        loop {
            self.changed = false;
            for f in 0..self.p.funs.len() {
                self.expressions(f);
                self.statements(f);
            }
            if !self.changed && !self.initialise() {
                return;
            }
        }
    }

    /// Gives variables that no statement stores to what their declaration says. Returns whether anything changed.
    ///
    /// A stored variable is left out: `unset` proves that it is never read before the store.
    fn initialise(&mut self) -> bool {
        let mut changed = false;
        for f in 0..self.p.funs.len() {
            for (h, v) in self.p.funs[f].fun.local_variables.iter() {
                let root = Root::Local(f, h.index());
                if !self.written.contains(&root) {
                    let from = match v.init {
                        Some(init) => self.origins[f][init.index()].clone(),
                        None => Origins::from([Origin::Zero]),
                    };
                    let slot = self.contents.entry(root).or_default().entry(Vec::new()).or_default();
                    let before = slot.len();
                    slot.extend(from);
                    changed |= slot.len() != before;
                }
            }
        }
        for (h, v) in self.p.module.global_variables.iter() {
            let root = Root::Global(h.index());
            if v.space == AddressSpace::Private && !self.written.contains(&root) {
                let from = match v.init.map(|init| self.constant_is_zero(init)) {
                    None | Some(Some(true)) => Origin::Zero,
                    Some(_) => Origin::NonZero,
                };
                let slot = self.contents.entry(root).or_default().entry(Vec::new()).or_default();
                changed |= slot.insert(from);
            }
        }
        changed
    }

    fn constant_is_zero(&self, h: Handle<Expression>) -> Option<bool> {
        match self.p.module.global_expressions[h] {
            Expression::Literal(l) => Some(literal_bits(l) == Some(0)),
            Expression::ZeroValue(_) => Some(true),
            Expression::Constant(c) => self.constant_is_zero(self.p.module.constants[c].init),
            Expression::Splat { value, .. } => self.constant_is_zero(value),
            Expression::Compose { ref components, .. } => {
                let all: Option<Vec<bool>> = components.iter().map(|&c| self.constant_is_zero(c)).collect();
                all.map(|a| a.into_iter().all(|z| z))
            }
            _ => None,
        }
    }

    fn expressions(&mut self, f: usize) {
        for (h, expr) in self.p.funs[f].fun.expressions.iter() {
            let from = self.origins_of(f, h, expr);
            let bits = self.bits_of(f, h, expr);
            let slot = &mut self.origins[f][h.index()];
            let before = slot.len();
            slot.extend(from);
            self.changed |= slot.len() != before;
            self.changed |= bits && !self.bits[f][h.index()];
            self.bits[f][h.index()] |= bits;
        }
    }

    fn origins_of(&self, f: usize, h: Handle<Expression>, expr: &Expression) -> Origins {
        let one = |o| Origins::from([o]);
        let of = |e: Handle<Expression>| self.origins[f][e.index()].clone();
        if self.p.is_pointer(f, h) {
            return Origins::new();
        }
        match *expr {
            Expression::Literal(l) => one(if literal_bits(l) == Some(0) { Origin::Zero } else { Origin::NonZero }),
            Expression::ZeroValue(_) => one(Origin::Zero),
            Expression::Constant(c) => one(match self.constant_is_zero(self.p.module.constants[c].init) {
                Some(true) => Origin::Zero,
                _ => Origin::NonZero,
            }),
            Expression::Override(_) => one(Origin::Override),
            Expression::Compose { ref components, .. } => components.iter().flat_map(|&c| of(c)).collect(),
            Expression::Splat { value, .. } => of(value),
            Expression::Access { base, .. } => self.step_all(&of(base), Step::Any),
            Expression::AccessIndex { base, index } => {
                // A component of a value built in place is that component; vectors built from vectors are not split.
                if let Expression::Compose { ref components, .. } = *self.p.expr(f, base)
                    && let Some(&c) = components.get(index as usize)
                    && components.iter().all(|&c| {
                        matches!(self.p.inner(f, c), TypeInner::Scalar(_))
                            || !matches!(self.p.inner(f, base), TypeInner::Vector { .. })
                    })
                {
                    of(c)
                } else {
                    self.step_all(&of(base), Step::At(index))
                }
            }
            Expression::Swizzle { size, vector, pattern } => {
                let base = of(vector);
                pattern[..size as usize].iter().flat_map(|&c| self.step_all(&base, Step::At(c as u32))).collect()
            }
            Expression::FunctionArgument(i) => {
                let i = i as usize;
                if !self.p.funs[f].is_entry {
                    return self.params.get(&(f, i)).cloned().unwrap_or_default();
                }
                match self.p.funs[f].fun.arguments[i].binding {
                    Some(Binding::BuiltIn(b)) => one(Origin::BuiltIn(b, Vec::new())),
                    Some(_) => one(Origin::Opaque("a stage input")),
                    None => one(Origin::Inputs(f, i)),
                }
            }
            Expression::Load { pointer } => self.load(f, pointer),
            // Bit casts, and conversions between integers, keep a zero what it is.
            Expression::As { expr, kind, convert } => {
                let integer = |k| matches!(k, Some(ScalarKind::Sint | ScalarKind::Uint));
                if convert.is_none() || integer(Some(kind)) && integer(self.p.kind(f, expr)) {
                    of(expr)
                } else {
                    one(Origin::Computed)
                }
            }
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupOperationResult { .. } => match self.p.funs[f].results.get(&h.index()) {
                Some(&ResultOf::Call(n)) => self.returns[self.p.funs[f].calls[n].callee].clone(),
                Some(ResultOf::Pointee(_)) => one(Origin::Opaque("workgroup memory or an atomic")),
                Some(ResultOf::Lanes(_)) => one(Origin::Opaque("a subgroup operation")),
                None => one(Origin::Opaque("an unknown result")),
            },
            Expression::ArrayLength(_) => one(Origin::Opaque("arrayLength")),
            Expression::GlobalVariable(_) => one(Origin::Opaque("a handle")),
            _ => one(Origin::Computed),
        }
    }

    fn bits_of(&self, f: usize, h: Handle<Expression>, expr: &Expression) -> bool {
        let holds = |e: Handle<Expression>| self.bits[f][e.index()];
        match *expr {
            Expression::As { expr, kind, convert } => {
                if matches!(kind, ScalarKind::Float | ScalarKind::Bool) {
                    false
                } else if self.p.is_float(f, expr) {
                    convert.is_none()
                } else {
                    holds(expr)
                }
            }
            Expression::FunctionArgument(i) => self.bit_params.contains(&(f, i as usize)),
            Expression::Load { pointer } => {
                self.places(f, pointer).iter().any(|(root, _)| self.bit_vars.contains(root))
            }
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupOperationResult { .. } => match self.p.funs[f].results.get(&h.index()) {
                Some(&ResultOf::Call(n)) => self.bit_returns[self.p.funs[f].calls[n].callee],
                Some(&ResultOf::Pointee(pointer)) => {
                    self.places(f, pointer).iter().any(|(root, _)| self.bit_vars.contains(root))
                }
                Some(&ResultOf::Lanes(e)) => holds(e),
                None => false,
            },
            _ if self.p.kind(f, h) == Some(ScalarKind::Bool) => false,
            _ => value_operands(expr).into_iter().any(holds),
        }
    }

    fn statements(&mut self, f: usize) {
        let p = self.p;
        for s in &p.funs[f].stores {
            let from = self.origins[f][s.value.index()].clone();
            let bits = self.bits[f][s.value.index()];
            for (root, path) in self.places(f, s.pointer) {
                self.changed |= self.written.insert(root);
                if bits {
                    self.changed |= self.bit_vars.insert(root);
                }
                let slot = self.contents.entry(root).or_default().entry(path).or_default();
                let before = slot.len();
                slot.extend(from.iter().cloned());
                self.changed |= slot.len() != before;
            }
        }
        for call in &p.funs[f].calls {
            for (i, &arg) in call.args.iter().enumerate() {
                let key = (call.callee, i);
                if p.is_pointer(f, arg) {
                    let places = self.places(f, arg);
                    let slot = self.points.entry(key).or_default();
                    let before = slot.len();
                    slot.extend(places);
                    self.changed |= slot.len() != before;
                } else {
                    let from = self.origins[f][arg.index()].clone();
                    let slot = self.params.entry(key).or_default();
                    let before = slot.len();
                    slot.extend(from);
                    self.changed |= slot.len() != before;
                    if self.bits[f][arg.index()] {
                        self.changed |= self.bit_params.insert(key);
                    }
                }
            }
        }
        for &value in &p.funs[f].returns {
            let from = self.origins[f][value.index()].clone();
            let before = self.returns[f].len();
            self.returns[f].extend(from);
            self.changed |= self.returns[f].len() != before;
            let bits = self.bits[f][value.index()];
            self.changed |= bits && !self.bit_returns[f];
            self.bit_returns[f] |= bits;
        }
    }

    /// The variables, and the parts of them, that a pointer may mean. Pointer arguments are followed to the callers.
    fn places(&self, f: usize, h: Handle<Expression>) -> Vec<(Root, Path)> {
        let step = |base, s| {
            let mut places = self.places(f, base);
            for (_, path) in &mut places {
                path.push(s);
            }
            places
        };
        match *self.p.expr(f, h) {
            Expression::LocalVariable(v) => vec![(Root::Local(f, v.index()), Vec::new())],
            Expression::GlobalVariable(v) => vec![(Root::Global(v.index()), Vec::new())],
            Expression::FunctionArgument(i) if self.p.is_pointer(f, h) => {
                self.points.get(&(f, i as usize)).map(|s| s.iter().cloned().collect()).unwrap_or_default()
            }
            Expression::Access { base, .. } => step(base, Step::Any),
            Expression::AccessIndex { base, index } => step(base, Step::At(index)),
            _ => Vec::new(),
        }
    }

    fn load(&self, f: usize, pointer: Handle<Expression>) -> Origins {
        let mut found = Origins::new();
        for (root, path) in self.places(f, pointer) {
            if let Root::Global(g) = root {
                match self.p.global(g).space {
                    AddressSpace::Uniform | AddressSpace::Storage { .. } => {
                        let mut o = Origin::Buffer(g, Vec::new());
                        for s in path {
                            o = self.step(&o, s);
                        }
                        found.insert(o);
                        continue;
                    }
                    AddressSpace::Private => {}
                    AddressSpace::WorkGroup => {
                        found.insert(Origin::Opaque("workgroup memory"));
                        continue;
                    }
                    _ => {
                        found.insert(Origin::Opaque("an address space of no barrier"));
                        continue;
                    }
                }
            }
            for (stored, from) in self.contents.get(&root).into_iter().flatten() {
                let shared = stored.len().min(path.len());
                if !stored.iter().zip(&path).all(|(a, b)| same_step(*a, *b)) {
                    continue;
                }
                if stored.len() > path.len() {
                    // A whole is read that was stored in parts.
                    found.insert(Origin::Opaque("a variable stored in parts"));
                }
                let mut from = from.clone();
                for s in &path[shared..] {
                    from = self.step_all(&from, *s);
                }
                found.extend(from);
            }
        }
        found
    }

    fn step_all(&self, origins: &Origins, s: Step) -> Origins {
        origins.iter().map(|o| self.step(o, s)).collect()
    }

    /// The origin of a part. What cannot be parted (a scalar that was splatted into a vector) stays what it is.
    fn step(&self, o: &Origin, s: Step) -> Origin {
        match *o {
            Origin::BuiltIn(b, ref path) if path.is_empty() => {
                let vector = matches!(
                    b,
                    BuiltIn::WorkGroupId
                        | BuiltIn::GlobalInvocationId
                        | BuiltIn::LocalInvocationId
                        | BuiltIn::NumWorkGroups
                        | BuiltIn::WorkGroupSize
                );
                Origin::BuiltIn(b, if vector { vec![s] } else { Vec::new() })
            }
            Origin::Inputs(f, i) => {
                let argument = &self.p.funs[f].fun.arguments[i];
                let member = match (&self.p.module.types[argument.ty].inner, s) {
                    (TypeInner::Struct { members, .. }, Step::At(m)) => members.get(m as usize),
                    _ => None,
                };
                match member.and_then(|m| m.binding.clone()) {
                    Some(Binding::BuiltIn(b)) => Origin::BuiltIn(b, Vec::new()),
                    _ => Origin::Opaque("a stage input"),
                }
            }
            Origin::Buffer(g, ref path) if self.has_parts(g, path) => {
                let mut path = path.clone();
                path.push(s);
                Origin::Buffer(g, path)
            }
            ref same => same.clone(),
        }
    }

    fn has_parts(&self, g: usize, path: &[Step]) -> bool {
        let mut inner = &self.p.module.types[self.p.global(g).ty].inner;
        for (i, s) in path.iter().enumerate() {
            inner = match (inner, s) {
                (TypeInner::Struct { members, .. }, Step::At(m)) => match members.get(*m as usize) {
                    Some(m) => &self.p.module.types[m.ty].inner,
                    None => return false,
                },
                (TypeInner::Array { base, .. } | TypeInner::BindingArray { base, .. }, _) => {
                    &self.p.module.types[*base].inner
                }
                (TypeInner::Matrix { .. }, _) => return path.len() == i + 1,
                _ => return false,
            };
        }
        !matches!(inner, TypeInner::Scalar(_) | TypeInner::Atomic(_))
    }

    fn is_allowed(&self, o: &Origin) -> bool {
        match *o {
            Origin::BuiltIn(BuiltIn::WorkGroupId, ref path) => path == &[Step::At(2)],
            Origin::Buffer(g, _) => !self.written.contains(&Root::Global(g)),
            _ => false,
        }
    }

    fn describe(&self, o: &Origin) -> String {
        match *o {
            Origin::BuiltIn(b, ref path) => match path[..] {
                [Step::At(c)] => format!("{b:?}.{}", ["x", "y", "z"][c.min(2) as usize]),
                _ => format!("{b:?}"),
            },
            Origin::Inputs(..) => "a whole struct of inputs".into(),
            Origin::Buffer(g, _) => {
                let name = self.p.root_name(Root::Global(g));
                if self.written.contains(&Root::Global(g)) {
                    format!("`{name}`, which this shader also writes")
                } else {
                    format!("`{name}`")
                }
            }
            Origin::Zero => "the constant 0 (or a variable that is never set)".into(),
            Origin::NonZero => "a constant".into(),
            Origin::Override => "an override".into(),
            Origin::Opaque(what) => what.into(),
            Origin::Computed => "a computed value".into(),
        }
    }

    /// Sorts every OR and XOR on the bits of a float into barriers and others, and reports bad ones.
    fn classify(&self, out: &mut Vec<Finding>) -> Classified {
        let mut values = BTreeMap::new();
        let mut zeros = BTreeSet::new();
        for (f, fun) in self.p.funs.iter().enumerate() {
            let back_to_float: BTreeSet<usize> = fun
                .fun
                .expressions
                .iter()
                .filter_map(|(_, e)| match *e {
                    Expression::As { expr, kind: ScalarKind::Float, convert: None } => Some(expr.index()),
                    _ => None,
                })
                .collect();
            for (h, expr) in fun.fun.expressions.iter() {
                let Expression::Binary {
                    op: op @ (BinaryOperator::InclusiveOr | BinaryOperator::ExclusiveOr),
                    left,
                    right,
                } = *expr
                else {
                    continue;
                };
                let cancels = op == BinaryOperator::ExclusiveOr;
                let (value, zero) = match (self.bits[f][left.index()], self.bits[f][right.index()]) {
                    (true, false) => (left, right),
                    (false, true) => (right, left),
                    // Two floats' bits (a sign of a product), or none: integer work.
                    _ => continue,
                };
                let from = &self.origins[f][zero.index()];
                let mut add = |rule, message| {
                    out.push(Finding { line: self.p.line_of(f, h), rule, function: fun.name.clone(), message });
                };
                let bad: Vec<&Origin> = from.iter().filter(|o| !self.is_allowed(o)).collect();
                let constant = !from.is_empty() && from.iter().all(|o| *o == Origin::NonZero);
                let computed = bad.contains(&&Origin::Computed);
                // Bits put together by OR are the rule and a barrier is plain; an XOR is a barrier unless it is plainly none.
                let integer_work = if cancels {
                    !back_to_float.contains(&h.index()) || self.is_sign_mask(f, zero)
                } else {
                    !from.iter().any(|o| self.is_allowed(o))
                };
                if constant || computed && integer_work {
                    // A sign flip or other work on bits.
                    continue;
                }
                if cancels && bad.is_empty() && !from.is_empty() {
                    add(
                        BARRIER_CANCELS,
                        "a barrier by XOR: two in a row cancel each other; use OR, of which one always stays".into(),
                    );
                }
                if from.is_empty() {
                    if fun.reachable {
                        add(ZERO_UNSET, "the barrier's zero is never set".into());
                    }
                } else if !bad.is_empty() {
                    let what: Vec<String> = bad.iter().map(|o| self.describe(o)).collect();
                    add(
                        ZERO_SOURCE,
                        format!(
                            "the barrier's zero is {}; take workgroup_id.z, a storage buffer's word, or a uniform member used nowhere else",
                            what.join(", ")
                        ),
                    );
                }
                values.insert((f, h.index()), value);
                zeros.extend(from.iter().filter(|o| self.is_allowed(o)).cloned());
            }
        }
        Classified { values, zeros: zeros.into_iter().collect() }
    }

    /// Reports bits of floats that lanes hand to one another or add up. The greatest of such bits is an integer like others.
    fn lanes(&self, out: &mut Vec<Finding>) {
        for (f, fun) in self.p.funs.iter().enumerate() {
            for &(operand, name, line) in &fun.lanes {
                if self.bits[f][operand.index()] && name != LANE_EXTREME {
                    let message = format!("{name} of a float's bits: who is in which lane is the driver's");
                    out.push(Finding { line, rule: FLOAT_SUBGROUP, function: fun.name.clone(), message });
                }
            }
        }
    }

    /// Is it plainly a mask of sign bits, computed in place?
    fn is_sign_mask(&self, f: usize, h: Handle<Expression>) -> bool {
        let value = |e| self.literal(f, e);
        match *self.p.expr(f, h) {
            Expression::Binary { op: BinaryOperator::And, left, right } => {
                value(left) == Some(1 << 31) || value(right) == Some(1 << 31)
            }
            Expression::Binary { op: BinaryOperator::ShiftLeft, right, .. } => value(right) == Some(31),
            Expression::Select { accept, reject, .. } => {
                value(accept).is_some_and(|a| value(reject).is_some_and(|r| a != 0 || r != 0))
            }
            _ => false,
        }
    }

    fn literal(&self, f: usize, h: Handle<Expression>) -> Option<u32> {
        match *self.p.expr(f, h) {
            Expression::Literal(l) => literal_bits(l),
            Expression::Splat { value, .. } => self.literal(f, value),
            Expression::As { expr, convert: None, .. } => self.literal(f, expr),
            Expression::Constant(c) => match self.p.module.global_expressions[self.p.module.constants[c].init] {
                Expression::Literal(l) => literal_bits(l),
                _ => None,
            },
            _ => None,
        }
    }
}

fn literal_bits(l: Literal) -> Option<u32> {
    match l {
        Literal::U32(v) => Some(v),
        Literal::I32(v) => Some(v as u32),
        Literal::F32(v) => Some(v.to_bits()),
        Literal::AbstractInt(v) => u32::try_from(v).ok(),
        _ => None,
    }
}

fn same_step(a: Step, b: Step) -> bool {
    a == b || a == Step::Any || b == Step::Any
}

/// May the two origins be, or contain, the same word?
fn overlap(a: &Origin, b: &Origin) -> bool {
    let paths = |x: &Path, y: &Path| x.iter().zip(y).all(|(p, q)| same_step(*p, *q));
    match (a, b) {
        (Origin::BuiltIn(x, p), Origin::BuiltIn(y, q)) => {
            // The global id is made from the workgroup id, so what decides on its z decides on the workgroup's.
            let id = |b: &BuiltIn| {
                if *b == BuiltIn::GlobalInvocationId { BuiltIn::WorkGroupId } else { *b }
            };
            id(x) == id(y) && paths(p, q)
        }
        (Origin::Buffer(x, p), Origin::Buffer(y, q)) => x == y && paths(p, q),
        _ => false,
    }
}

/// Reports variables that carry a barrier's zero and may be read before they are set: a compiler knows that they are 0.
fn unset(p: &Program, copies: &Copies, barriers: &Classified, out: &mut Vec<Finding>) {
    let carriers: BTreeSet<Root> = copies
        .contents
        .iter()
        .filter(|(root, parts)| {
            copies.written.contains(root)
                && match **root {
                    Root::Global(g) => p.global(g).space == AddressSpace::Private,
                    _ => true,
                }
                && parts.values().flatten().any(|o| barriers.zeros.iter().any(|z| overlap(o, z)))
        })
        .map(|(root, _)| *root)
        .collect();
    let mut walk = Walk { p, copies, carriers, summaries: Vec::new() };
    for f in 0..p.funs.len() {
        let mut set = BTreeSet::new();
        let mut early = BTreeMap::new();
        walk.block(f, &p.funs[f].fun.body, &mut set, &mut early);
        for (root, line) in &early {
            let local = matches!(root, Root::Local(owner, _) if *owner == f);
            if local || p.funs[f].is_entry {
                out.push(Finding {
                    line: *line,
                    rule: ZERO_UNSET,
                    function: p.funs[f].name.clone(),
                    message: format!(
                        "`{}` carries a barrier's zero and may be read here before it is set",
                        p.root_name(*root)
                    ),
                });
            }
        }
        walk.summaries.push((early, set));
    }
}

struct Walk<'p, 'c, 'm> {
    p: &'p Program<'m>,
    copies: &'p Copies<'c, 'm>,
    carriers: BTreeSet<Root>,
    /// Per function done: carriers read before it sets them, and carriers that are set when it returns.
    summaries: Vec<(BTreeMap<Root, u32>, BTreeSet<Root>)>,
}

impl Walk<'_, '_, '_> {
    /// Walks a block in order. Returns whether control never comes out at its end.
    fn block(&self, f: usize, block: &Block, set: &mut BTreeSet<Root>, early: &mut BTreeMap<Root, u32>) -> bool {
        for (statement, span) in block.span_iter() {
            let line = self.p.line(*span);
            match *statement {
                Statement::Emit(ref range) => {
                    for h in range.clone() {
                        if let Expression::Load { pointer } = *self.p.expr(f, h) {
                            for (root, _) in self.copies.places(f, pointer) {
                                if self.carriers.contains(&root) && !set.contains(&root) {
                                    early.entry(root).or_insert(self.p.line_of(f, h));
                                }
                            }
                        }
                    }
                }
                Statement::Store { pointer, .. } => {
                    if let Some(root @ (Root::Local(..) | Root::Global(_))) = self.p.root(f, pointer) {
                        set.insert(root);
                    }
                }
                Statement::Call { function, .. } => {
                    let (reads, sets) = &self.summaries[function.index()];
                    for root in reads.keys() {
                        if !set.contains(root) {
                            early.entry(*root).or_insert(line);
                        }
                    }
                    set.extend(sets.iter().copied());
                }
                Statement::Block(ref inner) if self.block(f, inner, set, early) => return true,
                Statement::If { ref accept, ref reject, .. } => {
                    let (mut a, mut b) = (set.clone(), set.clone());
                    let gone_a = self.block(f, accept, &mut a, early);
                    let gone_b = self.block(f, reject, &mut b, early);
                    *set = match (gone_a, gone_b) {
                        (true, true) => return true,
                        (true, false) => b,
                        (false, true) => a,
                        (false, false) => a.intersection(&b).copied().collect(),
                    };
                }
                Statement::Switch { ref cases, .. } => {
                    for case in cases {
                        self.block(f, &case.body, &mut set.clone(), early);
                    }
                }
                Statement::Loop { ref body, ref continuing, .. } => {
                    // What a body sets may be skipped by a break, so nothing of it holds after the loop; its
                    // continuing part follows whatever leads there, so it starts from what held before.
                    self.block(f, body, &mut set.clone(), early);
                    self.block(f, continuing, &mut set.clone(), early);
                }
                Statement::Return { .. } | Statement::Break | Statement::Continue | Statement::Kill => return true,
                _ => {}
            }
        }
        false
    }
}

/// Reports zeros whose source also decides something, and uniform zeros with any other use.
fn reaches(p: &Program, copies: &Copies, barriers: &Classified, out: &mut Vec<Finding>) {
    if barriers.zeros.is_empty() {
        return;
    }
    let mut marks = Marks {
        p,
        copies,
        barriers,
        of: p.funs.iter().map(|f| vec![BTreeSet::new(); f.fun.expressions.len()]).collect(),
        vars: BTreeMap::new(),
        params: BTreeMap::new(),
        returns: vec![BTreeSet::new(); p.funs.len()],
    };
    while marks.round() {}
    let mut deciding = BTreeSet::new();
    for (f, fun) in p.funs.iter().enumerate() {
        for d in &fun.decisions {
            let found = marks.total(f, d.expr);
            let line = match p.line_of(f, d.expr) {
                0 => d.line,
                line => line,
            };
            for z in &found {
                out.push(Finding {
                    line,
                    rule: ZERO_CONTROL_FLOW,
                    function: fun.name.clone(),
                    message: format!(
                        "{} is a barrier's zero and reaches {} here: a driver that specialises on it removes the barrier",
                        copies.describe(&barriers.zeros[*z]),
                        d.what
                    ),
                });
            }
            deciding.extend(found);
        }
    }
    let uniforms: BTreeSet<usize> = barriers
        .zeros
        .iter()
        .enumerate()
        .filter(|(i, z)| {
            !deciding.contains(i) && matches!(z, Origin::Buffer(g, _) if p.global(*g).space == AddressSpace::Uniform)
        })
        .map(|(i, _)| i)
        .collect();
    let mut used = |f: usize, h: Handle<Expression>, line: u32| {
        for z in marks.own(f, h).intersection(&uniforms) {
            out.push(Finding {
                line,
                rule: ZERO_SHARED,
                function: p.funs[f].name.clone(),
                message: format!(
                    "the member of {} that is a barrier's zero is used here for something else",
                    copies.describe(&barriers.zeros[*z])
                ),
            });
        }
    };
    for (f, fun) in p.funs.iter().enumerate() {
        for (h, expr) in fun.fun.expressions.iter() {
            if !marks.is_copy(f, h, expr) {
                let barrier = barriers.values.get(&(f, h.index()));
                for o in value_operands(expr) {
                    if barrier.is_none_or(|value| *value == o) {
                        used(f, o, p.line_of(f, h));
                    }
                }
            }
        }
        for s in &fun.stores {
            let kept = match p.root(f, s.pointer) {
                Some(Root::Global(g)) => p.global(g).space == AddressSpace::Private,
                _ => true,
            };
            if !kept {
                used(f, s.value, s.line);
            }
        }
        for &h in &fun.leaving {
            used(f, h, p.line_of(f, h));
        }
    }
}

/// Which expressions depend, by computing, on which zeros (indices into `Classified::zeros`).
struct Marks<'a, 'c, 'm> {
    p: &'a Program<'m>,
    copies: &'a Copies<'c, 'm>,
    barriers: &'a Classified,
    of: Vec<Vec<BTreeSet<usize>>>,
    vars: BTreeMap<Root, BTreeSet<usize>>,
    params: BTreeMap<(usize, usize), BTreeSet<usize>>,
    returns: Vec<BTreeSet<usize>>,
}

impl Marks<'_, '_, '_> {
    /// The zeros that the expression is a copy of, or contains.
    fn own(&self, f: usize, h: Handle<Expression>) -> BTreeSet<usize> {
        let from = &self.copies.origins[f][h.index()];
        (0..self.barriers.zeros.len()).filter(|&z| from.iter().any(|o| overlap(o, &self.barriers.zeros[z]))).collect()
    }

    fn total(&self, f: usize, h: Handle<Expression>) -> BTreeSet<usize> {
        let mut all = self.own(f, h);
        all.extend(&self.of[f][h.index()]);
        all
    }

    /// Does the expression pass on (parts of) its operands and compute nothing?
    fn is_copy(&self, f: usize, h: Handle<Expression>, expr: &Expression) -> bool {
        match *expr {
            Expression::As { .. } => !self.copies.origins[f][h.index()].contains(&Origin::Computed),
            Expression::Compose { .. }
            | Expression::Splat { .. }
            | Expression::Swizzle { .. }
            | Expression::Access { .. }
            | Expression::AccessIndex { .. } => true,
            _ => false,
        }
    }

    /// One round of transfers; returns whether anything grew.
    fn round(&mut self) -> bool {
        let p = self.p;
        let mut changed = false;
        for (f, fun) in p.funs.iter().enumerate() {
            for (h, expr) in fun.fun.expressions.iter() {
                let found = self.transfer(f, h, expr);
                changed |= grow(&mut self.of[f][h.index()], found);
            }
            for s in &fun.stores {
                let found = self.of[f][s.value.index()].clone();
                if !found.is_empty() {
                    for (root, _) in self.copies.places(f, s.pointer) {
                        changed |= grow(self.vars.entry(root).or_default(), found.clone());
                    }
                }
            }
            for call in &fun.calls {
                for (i, &arg) in call.args.iter().enumerate() {
                    let found = self.of[f][arg.index()].clone();
                    changed |= grow(self.params.entry((call.callee, i)).or_default(), found);
                }
            }
            for &value in &fun.returns {
                let found = self.of[f][value.index()].clone();
                changed |= grow(&mut self.returns[f], found);
            }
        }
        changed
    }

    fn transfer(&self, f: usize, h: Handle<Expression>, expr: &Expression) -> BTreeSet<usize> {
        let of_vars = |pointer| -> BTreeSet<usize> {
            self.copies
                .places(f, pointer)
                .iter()
                .filter_map(|(root, _)| self.vars.get(root))
                .flatten()
                .copied()
                .collect()
        };
        match *expr {
            Expression::FunctionArgument(i) => self.params.get(&(f, i as usize)).cloned().unwrap_or_default(),
            Expression::Load { pointer } => of_vars(pointer),
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupOperationResult { .. } => match self.p.funs[f].results.get(&h.index()) {
                Some(&ResultOf::Call(n)) => self.returns[self.p.funs[f].calls[n].callee].clone(),
                Some(&ResultOf::Pointee(pointer)) => of_vars(pointer),
                Some(&ResultOf::Lanes(e)) => self.total(f, e),
                None => BTreeSet::new(),
            },
            // What comes out of a barrier depends on the zero in name only.
            Expression::Binary { .. } if self.barriers.values.contains_key(&(f, h.index())) => {
                self.total(f, self.barriers.values[&(f, h.index())])
            }
            _ => {
                let copy = self.is_copy(f, h, expr);
                value_operands(expr)
                    .into_iter()
                    .flat_map(|o| if copy { self.of[f][o.index()].clone() } else { self.total(f, o) })
                    .collect()
            }
        }
    }
}

fn grow(set: &mut BTreeSet<usize>, more: BTreeSet<usize>) -> bool {
    let before = set.len();
    set.extend(more);
    set.len() != before
}
