//! What naga says of an expanded shader: valid or not, and its row of the table that `host` compiles in.
//!
//! Part of `build.rs` and of the tests, not of the library. A shader that does not parse, needs an optional capability
//! that it does not name, or breaks the binding rules of `docs/architecture.md` is refused, at the line of its source.

use super::expand::{Expanded, Place, place_of};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, Scalar, ScalarKind, SourceLocation, StorageAccess, TypeInner};

/// What a shader names of optional features.
#[derive(Clone, Copy, Default)]
struct Needs {
    subgroups: bool,
    matrices: bool,
}

/// One row of the table: name, source, workgroup size, bindings in order, fields of the parameter struct, names of the
/// override constants, whether subgroups and matrices are needed. Errors: where in the sources, and what is wrong, in one line.
pub fn row(shader: &Expanded) -> Result<String, (Place, String)> {
    let here = |what: String| (shader.declared.clone(), what);
    let mut needs = Needs::default();
    let matrices = |name: &String| name == "wgpu_cooperative_matrix";
    for name in &shader.enables {
        match name.as_str() {
            "subgroups" => needs.subgroups = true,
            // the type of what matrices take, and of nothing else
            "f16" if shader.enables.iter().any(matrices) => {}
            _ if matrices(name) => needs.matrices = true,
            other => {
                let known = "of optional features only subgroups and matrices, with f16 for them, are known";
                return Err(here(format!("`enable {other};`: {known}")));
            }
        }
    }
    let module = valid(shader, needs)?;
    describe(shader, &module, needs).map_err(here)
}

/// The module, parsed and validated with no capability but those that are needed.
fn valid(shader: &Expanded, needs: Needs) -> Result<Module, (Place, String)> {
    let text = shader.text.as_str();
    let module = naga::front::wgsl::parse_str(text).map_err(|e| {
        let labels = e.labels().map(|(_, label)| label).filter(|label| !label.is_empty() && *label != e.message());
        let what: Vec<&str> = std::iter::once(e.message()).chain(labels).collect();
        (source(shader, e.location(text)), one_line(&what.join(": ")))
    })?;
    let mut granted = Capabilities::empty();
    granted.set(Capabilities::SUBGROUP, needs.subgroups);
    granted.set(Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX, needs.matrices);
    Validator::new(ValidationFlags::all(), granted).validate(&module).map_err(|e| {
        let mut what = e.as_inner().to_string();
        let mut cause = std::error::Error::source(e.as_inner());
        while let Some(c) = cause {
            what.push_str(&format!(": {c}"));
            cause = c.source();
        }
        (source(shader, e.location(text)), one_line(&what))
    })?;
    Ok(module)
}

/// Where a place of the text comes from; where the shader is declared, if naga names no place.
fn source(shader: &Expanded, at: Option<SourceLocation>) -> Place {
    let found = at.and_then(|at| Some((place_of(&shader.text, at.line_number as usize)?, at.line_position)));
    found.map_or_else(|| shader.declared.clone(), |(place, column)| Place { column: column as usize, ..place })
}

fn one_line(s: &str) -> String {
    s.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The row of a valid module. Errors: it breaks the rules of bindings.
fn describe(shader: &Expanded, module: &Module, needs: Needs) -> Result<String, String> {
    let [entry] = module.entry_points.as_slice() else {
        return Err(format!("{} entry points, expected one named main", module.entry_points.len()));
    };
    if entry.name != "main" {
        return Err(format!("entry point {}, expected main", entry.name));
    }
    let mut bindings = Vec::new();
    let mut fields = String::new();
    for (_, var) in module.global_variables.iter() {
        let Some(binding) = var.binding else { continue };
        if binding.group != 0 {
            return Err(format!("binding group {}, expected 0", binding.group));
        }
        let kind = match var.space {
            AddressSpace::Uniform => "Binding::Uniform",
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => "Binding::ReadWrite",
            AddressSpace::Storage { .. } => "Binding::Read",
            other => return Err(format!("binding in address space {other:?}")),
        };
        bindings.push((binding.binding, kind));
        if let (AddressSpace::Uniform, TypeInner::Struct { members, .. }) = (var.space, &module.types[var.ty].inner) {
            for m in members {
                let ty = match module.types[m.ty].inner {
                    TypeInner::Scalar(Scalar { kind: ScalarKind::Uint, width: 4 }) => "u32",
                    TypeInner::Scalar(Scalar { kind: ScalarKind::Float, width: 4 }) => "f32",
                    ref other => return Err(format!("parameter {:?} is {other:?}, expected u32 or f32", m.name)),
                };
                fields += &format!("({:?}, {}, {ty:?}), ", m.name.as_deref().unwrap_or(""), m.offset);
            }
        }
    }
    bindings.sort();
    for (i, (number, kind)) in bindings.iter().enumerate() {
        if *number as usize != i || (i == 0) != (*kind == "Binding::Uniform") {
            return Err(format!("bindings {bindings:?}: expected the parameters at 0, then inputs, then outputs"));
        }
    }
    if bindings.len() > 9 {
        return Err(format!("{} storage buffers, at most 8", bindings.len() - 1));
    }
    let kinds: Vec<&str> = bindings.iter().map(|(_, k)| *k).collect();
    let overrides: Vec<&str> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
    Ok(format!(
        "Shader {{ name: {:?}, source: {:?}, workgroup_size: {:?}, bindings: &[{}], params: &[{fields}], \
         overrides: &{overrides:?}, subgroups: {}, matrices: {} }},\n",
        shader.name,
        shader.text,
        entry.workgroup_size,
        kinds.join(", "),
        needs.subgroups,
        needs.matrices,
    ))
}
