//! Expands, validates and reflects every shader, and writes the table that `host` compiles in.
//!
//! `#import NAME` stands for `shaders/shared/NAME.wgsl`, once per shader. A shader that does not parse, needs an
//! optional capability that it does not name, or breaks the binding rules of `docs/architecture.md` stops the build.
//! `enable subgroups;` names one; naga has the builtins and refuses the line, so the table has a flag in its place.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=shaders");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rustc-env=ISOBIT_WGPU_VERSION={}", locked_version("wgpu"));
    let dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("shaders");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("shaders.rs");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("shaders/ is readable")
        .map(|e| e.expect("shaders/ is readable").path())
        .filter(|p| p.extension().is_some_and(|e| e == "wgsl"))
        .collect();
    names.sort();
    let mut table = String::from("/// Every shader, by name.\npub static SHADERS: &[Shader] = &[\n");
    let mut failed = false;
    for path in names {
        let name = path.file_stem().and_then(|s| s.to_str()).expect("shader names are ASCII").to_string();
        let text = expand(&path, &dir.join("shared"), &mut Vec::new());
        let source = text.replacen(ENABLE_SUBGROUPS, "", 1);
        match reflect::row(&name, &source, source != text) {
            Ok(row) => table.push_str(&row),
            Err(e) => {
                println!("cargo::error=shaders/{name}.wgsl: {e}");
                failed = true;
            }
        }
    }
    table.push_str("];\n");
    std::fs::write(out, table).expect("OUT_DIR is writable");
    if failed {
        std::process::exit(1);
    }
}

/// The line of a shader that needs subgroups.
const ENABLE_SUBGROUPS: &str = "enable subgroups;\n";

/// The version of a crate in the lock file; empty where there is none.
fn locked_version(name: &str) -> String {
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or_default();
    after.split('"').next().unwrap_or_default().to_string()
}

fn expand(path: &Path, shared: &Path, done: &mut Vec<String>) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut out = String::new();
    for line in text.lines() {
        match line.strip_prefix("#import ") {
            Some(name) => {
                let name = name.trim().to_string();
                if !done.contains(&name) {
                    done.push(name.clone());
                    out.push_str(&expand(&shared.join(format!("{name}.wgsl")), shared, done));
                }
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(not(feature = "gpu"))]
mod reflect {
    pub fn row(_name: &str, _source: &str, _subgroups: bool) -> Result<String, String> {
        Ok(String::new())
    }
}

#[cfg(feature = "gpu")]
mod reflect {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    use naga::{AddressSpace, Scalar, ScalarKind, StorageAccess, TypeInner};

    /// One row of the table: name, source, workgroup size, bindings in order, fields of the parameter struct, whether
    /// subgroups are needed.
    pub fn row(name: &str, source: &str, subgroups: bool) -> Result<String, String> {
        let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
        let granted = if subgroups { Capabilities::SUBGROUP } else { Capabilities::empty() };
        Validator::new(ValidationFlags::all(), granted).validate(&module).map_err(|e| e.emit_to_string(source))?;
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
            if let (AddressSpace::Uniform, TypeInner::Struct { members, .. }) = (var.space, &module.types[var.ty].inner)
            {
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
        Ok(format!(
            "Shader {{ name: {name:?}, source: {source:?}, workgroup_size: {:?}, bindings: &[{}], params: &[{fields}], \
             subgroups: {subgroups} }},\n",
            entry.workgroup_size,
            kinds.join(", "),
        ))
    }
}
