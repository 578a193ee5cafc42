//! What one expression alone gives away: forbidden builtins, divisions, widths, atomics, literals.
//!
//! Looks at every expression of every function, reached or not, because a helper that nobody calls today is called
//! tomorrow.

use naga::valid::GlobalUse;
use naga::{AddressSpace, BinaryOperator, Expression, Handle, Literal, MathFunction, ScalarKind, Type, TypeInner};

use super::program::{Program, Root, scalar_kind, value_operands};
use super::{
    ARRAY_VALUE, ATOMIC_ORDER, FLOAT_ATOMIC, FLOAT_DIVISION, FLOAT_IDENTITY, FLOAT_LITERAL, FLOAT_SUBGROUP,
    FLOAT_WIDTH, FORBIDDEN_BUILTIN, Finding, NOT_FINITE, WORKGROUP_UNWRITTEN,
};

/// Where min, max, clamp and rounding of floats, their comparisons and their conversions to integers may stand: shader
/// (`*`: any), function, and why no infinity or NaN comes there. WGSL lets a compiler take any answer for those, so that
/// everywhere else a shader decides by the bits.
pub const FINITE: &[(&str, &str, &str)] = &[
    ("*", "fexp", "x was brought to -87..88 by its bits, so k is within -126..127"),
    ("*", "round_away", "callers give a finite value times the inverse of the greatest magnitude, at most 2^15"),
    ("*", "c8_code", "elements that are not finite were marked and are 0"),
    (
        "*",
        "channel_code",
        "what is not finite is 0 by its bits; other quotients, and their sums with offsets, are finite",
    ),
    ("*", "nearest", "x was brought below 2^15 by its bits"),
    ("*", "q4_0_block", "elements that are not finite were marked and are 0"),
    ("*", "q4_0_code", "a finite element times the inverse of the greatest one's eighth"),
    ("*", "tq3_0_encode", "elements that are not finite were marked and are 0"),
    ("*", "tq3_1_encode", "elements that are not finite were marked and are 0, base is at least 2^-40"),
    ("*", "tq3_1_code", "a finite element in units of the block's scale"),
    ("q4_0_encode", "code", "weights are finite: loading refuses others"),
    ("q6k_coop8", "take", "sums of integers in f16, below 2^24"),
    ("q6k_coop16", "take", "sums of integers in f16, below 2^24"),
    ("float_probe", "main", "the probe's own operands, whose results qualification knows"),
];

/// The float builtins whose result IEEE fixes to the bit, for numbers. Everything else that takes or gives a float is refused, so a
/// builtin that a later naga adds is refused too until it is argued for here.
pub fn is_exact(fun: MathFunction) -> bool {
    matches!(
        fun,
        MathFunction::Abs
            | MathFunction::Min
            | MathFunction::Max
            | MathFunction::Clamp
            | MathFunction::Saturate
            | MathFunction::Ceil
            | MathFunction::Floor
            | MathFunction::Round
            | MathFunction::Trunc
            | MathFunction::Sign
            | MathFunction::Step
    )
}

/// Adds the findings of this module to `out`; `name` is the shader's.
pub fn check(p: &Program, name: &str, matrices: bool, out: &mut Vec<Finding>) {
    for f in 0..p.funs.len() {
        functions(p, name, matrices, f, out);
    }
    module_level(p, matrices, out);
    unwritten(p, out);
}

fn functions(p: &Program, shader: &str, matrices: bool, f: usize, out: &mut Vec<Finding>) {
    let fun = &p.funs[f];
    let finite = FINITE.iter().any(|(s, name, _)| (*s == "*" || *s == shader) && *name == fun.name);
    let mut add = |line, rule, message: String| {
        out.push(Finding { line, rule, function: fun.name.clone(), message });
    };
    for (h, expr) in fun.fun.expressions.iter() {
        let line = p.line_of(f, h);
        let taken = matrices && taken_by_matrices(expr, p.inner(f, h), &|o| p.inner(f, o));
        if let Some((rule, message)) = judge(expr, p.inner(f, h), &|o| p.inner(f, o))
            && !taken
        {
            add(line, rule, message);
        }
        if has_width(p, p.inner(f, h)) && !taken {
            add(line, FLOAT_WIDTH, "a float that is not 32 bits wide".into());
        }
        if let Some(what) = asks_for_a_number(p, f, h, expr)
            && !finite
        {
            add(
                line,
                NOT_FINITE,
                format!(
                    "{what} of floats: for an infinity or NaN a compiler may take any answer; decide by the bits, or say \
                     in the lint's list why `{}` never meets one",
                    fun.name
                ),
            );
        }
        // The probe asks devices for what kernels must not.
        if let Some(what) = identity(p, f, h, expr)
            && shader != "float_probe"
        {
            add(line, FLOAT_IDENTITY, format!("{what}: a compiler may leave it out or not; write what is meant"));
        }
    }
    let held = fun.atomics.iter().filter(|(result, _)| p.is_used(f, *result));
    let held = held.map(|&(_, line)| (line, "what an atomic held before"));
    for (line, what) in fun.atomic_order.iter().copied().chain(held) {
        add(line, ATOMIC_ORDER, format!("{what}: the order in which invocations come is the scheduler's"));
    }
    for &(argument, name, line) in &fun.lanes {
        if p.is_float(f, argument) {
            add(
                line,
                FLOAT_SUBGROUP,
                format!(
                    "{name} on floats: who is in which lane is the driver's; use integers, or a tree in workgroup memory"
                ),
            );
        }
    }
    for store in &fun.stores {
        let pointee = match *p.inner(f, store.pointer) {
            TypeInner::Pointer { base, .. } => Some(&p.module.types[base].inner),
            _ => None,
        };
        if let Some(TypeInner::Atomic(s)) = pointee
            && s.kind == ScalarKind::Float
        {
            add(store.line, FLOAT_ATOMIC, "an atomic float".into());
        }
    }
    for (h, v) in fun.fun.local_variables.iter() {
        let matrix = |t: &TypeInner| matrices && matches!(t, TypeInner::CooperativeMatrix { .. });
        if type_any(p, v.ty, &|t| is_other_width(t) && !matrix(t)) {
            let line = p.line(fun.fun.local_variables.get_span(h));
            add(line, FLOAT_WIDTH, "a variable with a float that is not 32 bits wide".into());
        }
    }
    let signature = fun.fun.arguments.iter().map(|a| a.ty).chain(fun.fun.result.iter().map(|r| r.ty));
    for ty in signature {
        if type_any(p, ty, &is_other_width) {
            add(0, FLOAT_WIDTH, "a signature with a float that is not 32 bits wide".into());
        }
    }
}

/// What in the expression has an answer of its own only for numbers.
fn asks_for_a_number(p: &Program, f: usize, h: Handle<Expression>, expr: &Expression) -> Option<&'static str> {
    match *expr {
        Expression::Math { fun, .. } if p.is_float(f, h) => match fun {
            MathFunction::Min => Some("min"),
            MathFunction::Max => Some("max"),
            MathFunction::Clamp | MathFunction::Saturate => Some("clamp"),
            MathFunction::Ceil | MathFunction::Floor | MathFunction::Round | MathFunction::Trunc => Some("rounding"),
            MathFunction::Sign | MathFunction::Step => Some("a comparison"),
            _ => None,
        },
        Expression::Binary { op, left, .. } if is_comparison(op) && p.is_float(f, left) => Some("a comparison"),
        Expression::As { expr, kind, convert: Some(_) } if kind != ScalarKind::Float && p.is_float(f, expr) => {
            Some("a conversion to integers")
        }
        _ => None,
    }
}

/// Is it a comparison?
pub fn is_comparison(op: BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Equal
            | BinaryOperator::NotEqual
            | BinaryOperator::Less
            | BinaryOperator::LessEqual
            | BinaryOperator::Greater
            | BinaryOperator::GreaterEqual
    )
}

/// Float arithmetic with a literal that leaves the other operand as it is, or that gives 0 for every number.
fn identity(p: &Program, f: usize, h: Handle<Expression>, expr: &Expression) -> Option<&'static str> {
    let Expression::Binary { op, left, right } = *expr else { return None };
    if !p.is_float(f, h) {
        return None;
    }
    let has = |value: f32| [left, right].iter().any(|&o| is_literal(p, f, o, value));
    match op {
        BinaryOperator::Multiply if has(1.0) => Some("a product with 1"),
        BinaryOperator::Multiply if has(0.0) => Some("a product with 0"),
        BinaryOperator::Add | BinaryOperator::Subtract if has(0.0) => Some("a sum with a literal 0"),
        _ => None,
    }
}

fn is_literal(p: &Program, f: usize, h: Handle<Expression>, value: f32) -> bool {
    match *p.expr(f, h) {
        Expression::Literal(Literal::F32(v)) => v == value,
        Expression::ZeroValue(_) => value == 0.0,
        Expression::Splat { value: of, .. } => is_literal(p, f, of, value),
        Expression::Compose { ref components, .. } => components.iter().all(|&c| is_literal(p, f, c, value)),
        Expression::Constant(c) => match p.module.global_expressions[p.module.constants[c].init] {
            Expression::Literal(Literal::F32(v)) => v == value,
            _ => false,
        },
        _ => false,
    }
}

/// Workgroup memory that is read and never written: wgpu clears it or not, as the program asks.
fn unwritten(p: &Program, out: &mut Vec<Finding>) {
    let written = |global: usize| {
        p.funs.iter().enumerate().any(|(f, fun)| {
            let here = |h| p.root(f, h) == Some(Root::Global(global));
            // through a pointer argument it may be written too
            fun.stores.iter().any(|s| here(s.pointer)) || fun.calls.iter().any(|c| c.args.iter().any(|&a| here(a)))
        })
    };
    for (h, v) in p.module.global_variables.iter() {
        let read = |i| p.info.get_entry_point(i)[h].contains(GlobalUse::READ);
        if v.space == AddressSpace::WorkGroup && (0..p.module.entry_points.len()).any(read) && !written(h.index()) {
            out.push(Finding {
                line: p.line(p.module.global_variables.get_span(h)),
                rule: WORKGROUP_UNWRITTEN,
                function: String::new(),
                message: format!("`{}` is read and never written", v.name.as_deref().unwrap_or("(unnamed)")),
            });
        }
    }
}

fn module_level(p: &Program, matrices: bool, out: &mut Vec<Finding>) {
    let mut add = |line, rule, message: String| {
        out.push(Finding { line, rule, function: String::new(), message });
    };
    for (h, v) in p.module.global_variables.iter() {
        let line = p.line(p.module.global_variables.get_span(h));
        if type_any(p, v.ty, &is_other_width) && !(matrices && v.space == AddressSpace::WorkGroup) {
            add(line, FLOAT_WIDTH, "a variable with a float that is not 32 bits wide".into());
        }
        if type_any(p, v.ty, &|t| matches!(t, TypeInner::Atomic(s) if s.kind == ScalarKind::Float)) {
            add(line, FLOAT_ATOMIC, "an atomic float".into());
        }
    }
    for (h, expr) in p.module.global_expressions.iter() {
        let line = p.line(p.module.global_expressions.get_span(h));
        let inner = |o: Handle<Expression>| p.info[o].inner_with(&p.module.types);
        if let Some((rule, message)) = judge(expr, inner(h), &inner) {
            add(line, rule, message);
        }
        if has_width(p, inner(h)) {
            add(line, FLOAT_WIDTH, "a float that is not 32 bits wide".into());
        }
    }
}

/// The finding that an expression is by itself, if any.
fn judge<'a>(
    expr: &Expression,
    own: &'a TypeInner,
    inner: &dyn Fn(Handle<Expression>) -> &'a TypeInner,
) -> Option<(&'static str, String)> {
    let float = |t: &TypeInner| matches!(scalar_kind(t), Some(ScalarKind::Float | ScalarKind::AbstractFloat));
    match *expr {
        Expression::Math { fun, .. } if !is_exact(fun) => {
            let on_floats = float(own) || value_operands(expr).iter().any(|&o| float(inner(o)));
            on_floats.then(|| {
                (
                    FORBIDDEN_BUILTIN,
                    format!("{fun:?} on floats: WGSL leaves its result open; use the shared exact functions"),
                )
            })
        }
        Expression::Binary { op, left, right } => {
            let matrix = |o| matches!(inner(o), TypeInner::Matrix { .. } | TypeInner::CooperativeMatrix { .. });
            if matrix(left) || matrix(right) {
                return Some((FORBIDDEN_BUILTIN, "matrix arithmetic: its sums have no written order".into()));
            }
            let division = matches!(op, BinaryOperator::Divide | BinaryOperator::Modulo);
            (division && float(own))
                .then(|| (FLOAT_DIVISION, "float division is not correctly rounded everywhere; use fdiv".into()))
        }
        Expression::Derivative { .. } => Some((FORBIDDEN_BUILTIN, "a derivative".into())),
        Expression::Access { base, .. } if matches!(inner(base), TypeInner::Array { .. }) => {
            Some((ARRAY_VALUE, "an index into a copy of an array; index a variable, or make it a struct".into()))
        }
        Expression::ImageSample { .. } => {
            Some((FORBIDDEN_BUILTIN, "texture sampling: filtering has no fixed precision".into()))
        }
        Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => {
            Some((FORBIDDEN_BUILTIN, "a cooperative matrix: not qualified for exact work".into()))
        }
        Expression::Literal(Literal::F32(v)) => (!v.is_finite() || v.is_subnormal())
            .then(|| (FLOAT_LITERAL, format!("the literal {v:e} is subnormal or not finite; drivers may flush it"))),
        Expression::Literal(Literal::F16(_) | Literal::F64(_)) => {
            Some((FLOAT_WIDTH, "a literal that is not 32 bits wide".into()))
        }
        Expression::As { kind: ScalarKind::Float, convert: Some(width), .. } if width != 4 => {
            Some((FLOAT_WIDTH, format!("a conversion to a float of {width} bytes; narrow with integer operations")))
        }
        _ => None,
    }
}

/// Where matrices are granted: what they are made of and what they give, but for arithmetic on it. Integers become f16 to lie
/// in workgroup memory, and come back in matrices alone.
fn taken_by_matrices<'a>(
    expr: &Expression,
    own: &'a TypeInner,
    inner: &dyn Fn(Handle<Expression>) -> &'a TypeInner,
) -> bool {
    match *expr {
        Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => true,
        Expression::As { expr, kind: ScalarKind::Float, convert: Some(2) } => {
            matches!(scalar_kind(inner(expr)), Some(ScalarKind::Sint | ScalarKind::Uint))
        }
        Expression::Binary { .. } | Expression::Math { .. } => false,
        _ => match *own {
            TypeInner::CooperativeMatrix { .. } | TypeInner::Array { .. } => true,
            TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => {
                matches!(space, AddressSpace::WorkGroup | AddressSpace::Function)
            }
            _ => false,
        },
    }
}

/// Does the expression's own type, or what it points to, hold a float of another width?
fn has_width(p: &Program, inner: &TypeInner) -> bool {
    is_other_width(inner)
        || match *inner {
            TypeInner::Pointer { base, .. } | TypeInner::Array { base, .. } => type_any(p, base, &is_other_width),
            TypeInner::ValuePointer { scalar, .. } => scalar.kind == ScalarKind::Float && scalar.width != 4,
            _ => false,
        }
}

fn is_other_width(inner: &TypeInner) -> bool {
    match *inner {
        TypeInner::Scalar(s)
        | TypeInner::Vector { scalar: s, .. }
        | TypeInner::Matrix { scalar: s, .. }
        | TypeInner::CooperativeMatrix { scalar: s, .. }
        | TypeInner::Atomic(s) => s.kind == ScalarKind::Float && s.width != 4,
        _ => false,
    }
}

/// Does `test` hold for the type or for anything inside it?
fn type_any(p: &Program, ty: Handle<Type>, test: &dyn Fn(&TypeInner) -> bool) -> bool {
    let inner = &p.module.types[ty].inner;
    if test(inner) {
        return true;
    }
    match *inner {
        TypeInner::Pointer { base, .. } | TypeInner::Array { base, .. } | TypeInner::BindingArray { base, .. } => {
            type_any(p, base, test)
        }
        TypeInner::Struct { ref members, .. } => members.iter().any(|m| type_any(p, m.ty, test)),
        _ => false,
    }
}
