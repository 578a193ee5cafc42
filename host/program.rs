//! A plan made ready to run: buffers, the arena, a bind group per command, and the pipelines of the variants chosen.
//!
//! Buffers and bind groups are made here, once. A pipeline is made when it is first needed ([`Program::prepare`] does so
//! for all that the choices ask for, in parallel), so that variants nobody runs cost nothing; the token loop creates
//! nothing.

use super::capabilities::Capabilities;
use super::faults::HostError;
use super::module;
use super::shaders::{self, Binding, Shader};
use super::variants::{self, CLASSES, Choice, Forced, Room, Variant};
use crate::record::{Args, BufId, Command, Op, Plan, Role};
use crate::stop::Stop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes between parameter structs in the arena: WebGPU's largest required uniform offset alignment.
pub(super) const SLOT: usize = 256;

/// Steps that may be under way at once: while one runs, the next is being written and the last one read.
pub(super) const AHEAD: usize = 2;

/// Where a buffer lives.
pub(super) enum Place {
    Own(wgpu::Buffer),
    /// input words, at this byte offset of the arena
    Arena(u64),
}

pub(super) struct Compiled {
    kind: usize,
    bind_group: wgpu::BindGroup,
    /// for a variant of two passes: parts in the place of what the first writes, and of what the second reads first
    two: Option<[wgpu::BindGroup; 2]>,
    /// the variant of each class of steps
    pub choice: Choice,
    /// positions seen of the page from which attention is split, where that is chosen
    pub split_from: usize,
    /// of a command that orders slots by expert: those that may look at the order
    readers: Vec<usize>,
}

/// An operation: its layouts, and a pipeline for each variant once it is needed.
struct Kind {
    op: Op,
    /// values of its shaders' overrides
    constants: Vec<(&'static str, f64)>,
    layout: wgpu::BindGroupLayout,
    pipeline_layout: wgpu::PipelineLayout,
    /// of each variant, and of the pass before it
    pipelines: Vec<[OnceLock<wgpu::ComputePipeline>; 2]>,
    /// a bit for each variant that a step has run
    ran: AtomicU32,
}

/// Which pass of a variant.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Last,
    Before,
}

/// A dispatch of a command. What its parameters are is no part of it: the arena has them.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Dispatch {
    command: usize,
    variant: usize,
    pass: Pass,
    groups: [u32; 3],
}

pub(super) struct Program {
    pub plan: Plan,
    pub places: Vec<Place>,
    pub arena: wgpu::Buffer,
    /// what the next step writes into the arena, in one write
    pub arena_bytes: Vec<u8>,
    device: wgpu::Device,
    cache: Option<wgpu::PipelineCache>,
    kinds: Vec<Kind>,
    room: Room,
    pub commands: Vec<Compiled>,
    pub logits_staging: wgpu::Buffer,
    /// one for each step that may be under way
    pub selected_staging: [wgpu::Buffer; AHEAD],
}

/// The buffers of a plan, and where each of its buffers lies.
struct Buffers {
    places: Vec<Place>,
    arena: wgpu::Buffer,
    arena_bytes: Vec<u8>,
    logits_staging: wgpu::Buffer,
    selected_staging: [wgpu::Buffer; AHEAD],
}

impl Buffers {
    /// `in_place`: those of weights may be mapped. Errors: one is larger than a binding.
    fn new(device: &wgpu::Device, plan: &Plan, max_binding: u64, in_place: bool) -> Result<Buffers, HostError> {
        use wgpu::BufferUsages as Usages;
        let mut arena_len = plan.recording.commands.len() * SLOT;
        let mut places = Vec::with_capacity(plan.buffers.len());
        for b in &plan.buffers {
            let bytes = (b.words * 4).max(16) as u64;
            if bytes > max_binding {
                return Err(HostError::TooLarge { buffer: b.name.clone(), bytes, limit: max_binding });
            }
            if b.role == Role::Input {
                places.push(Place::Arena(arena_len as u64));
                arena_len += (bytes as usize).next_multiple_of(SLOT);
            } else {
                let mut usage = Usages::STORAGE | Usages::COPY_DST | Usages::COPY_SRC;
                usage.set(Usages::MAP_WRITE, in_place && b.role.is_loaded());
                places.push(Place::Own(buffer(device, &b.name, bytes, usage)));
            }
        }
        let usage = Usages::STORAGE | Usages::UNIFORM | Usages::COPY_DST | Usages::COPY_SRC;
        let arena = buffer(device, "arena", arena_len.max(SLOT) as u64, usage);
        let read_back = |label, bytes| buffer(device, label, bytes, Usages::MAP_READ | Usages::COPY_DST);
        let logits_bytes = (plan.max_out * plan.width * 4).max(16) as u64;
        let selected_bytes = plan.selected.map_or(16, |id| plan.buffers[id].words as u64 * 4);
        Ok(Buffers {
            places,
            arena,
            arena_bytes: vec![0; arena_len],
            logits_staging: read_back("logits read-back", logits_bytes),
            selected_staging: std::array::from_fn(|_| read_back("selection read-back", selected_bytes)),
        })
    }

    /// A command's bind groups: its own, and where `parts` are given those of two passes around them.
    fn bind(
        &self,
        device: &wgpu::Device,
        plan: &Plan,
        command: usize,
        layout: &wgpu::BindGroupLayout,
        parts: Option<&wgpu::Buffer>,
    ) -> (wgpu::BindGroup, Option<[wgpu::BindGroup; 2]>) {
        let c = &plan.recording.commands[command];
        let mut entries = vec![range(0, &self.arena, (command * SLOT) as u64, SLOT as u64)];
        for (n, &id) in c.binds.iter().enumerate() {
            let bytes = (plan.buffers[id].words * 4).max(16) as u64;
            entries.push(match &self.places[id] {
                Place::Own(b) => range(n as u32 + 1, b, 0, bytes),
                Place::Arena(at) => range(n as u32 + 1, &self.arena, *at, bytes),
            });
        }
        let group = |entries: &[wgpu::BindGroupEntry]| {
            let label = Some(c.op.stem());
            device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries })
        };
        let two = parts.map(|parts| {
            // the state from page to page is the fifth binding, the queries are the first
            [5, 1].map(|at| {
                let mut entries = entries.clone();
                entries[at] = range(at as u32, parts, 0, parts.size());
                group(&entries)
            })
        });
        (group(&entries), two)
    }
}

fn buffer(device: &wgpu::Device, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    let label = Some(label);
    device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
}

/// What each command of a plan starts with, and the words that any of its candidates leaves between two passes; those
/// are all that is forced or chosen, and all that may be measured where `tuned`.
fn choices(plan: &Plan, forced: &[Forced], tuned: bool, room: Room) -> Vec<(Choice, usize)> {
    let of = |c: &Command| {
        let choice = variants::initial(forced, c.op, &c.args, room);
        let free = tuned && variants::forced(forced, c.op).is_none();
        let candidates = variants::of(c.op).iter().enumerate();
        let candidates = candidates.filter(|(i, v)| choice.contains(i) || free && v.serves(&c.args, room));
        (choice, candidates.map(|(_, v)| v.words_before(&c.args, room)).max().unwrap_or(0))
    };
    plan.recording.commands.iter().map(of).collect()
}

/// The commands that may look at what a command orders by expert, before it is ordered anew; none for other operations.
fn readers_of_order(plan: &Plan, command: usize) -> Vec<usize> {
    let commands = &plan.recording.commands;
    if commands[command].op != Op::ExpertOrder {
        return Vec::new();
    }
    let order = commands[command].outputs()[0];
    let until_next = (command + 1..commands.len()).take_while(|&i| !commands[i].outputs().contains(&order));
    until_next.filter(|&i| commands[i].binds.contains(&order)).collect()
}

impl Program {
    /// `tuned`: any variant that is not forced may be measured. Pipelines are taken from `cache` and put into it, where the
    /// device has one.
    pub fn new(
        device: &wgpu::Device,
        plan: Plan,
        max_binding: u64,
        forced: &[Forced],
        tuned: bool,
        capabilities: Capabilities,
        cache: Option<wgpu::PipelineCache>,
    ) -> Result<Program, HostError> {
        let buffers = Buffers::new(device, &plan, max_binding, capabilities.in_place)?;
        let room = Room { capabilities, max_tokens: plan.max_tokens, max_binding };
        let choices = choices(&plan, forced, tuned, room);
        // what variants of two passes leave between them lies in one buffer, which all commands share
        let parts_bytes = 4 * choices.iter().map(|(_, words)| *words as u64).max().unwrap_or(0);
        let parts = (parts_bytes > 0).then(|| {
            log::info!("what attention leaves between two passes takes {parts_bytes} bytes");
            buffer(device, "parts of attention", parts_bytes, wgpu::BufferUsages::STORAGE)
        });
        let mut kinds: Vec<Kind> = Vec::new();
        let mut commands = Vec::with_capacity(plan.recording.commands.len());
        for ((i, c), (choice, words)) in plan.recording.commands.iter().enumerate().zip(choices) {
            let constants = [c.op.constants(), c.args.constants()].concat();
            let known = kinds.iter().position(|k| k.op == c.op && k.constants == constants);
            let kind = known.unwrap_or_else(|| {
                kinds.push(Kind::new(device, c.op, constants));
                kinds.len() - 1
            });
            let parts = parts.as_ref().filter(|_| words > 0);
            let (bind_group, two) = buffers.bind(device, &plan, i, &kinds[kind].layout, parts);
            let split_from = variants::split_from(forced, c.op);
            let readers = readers_of_order(&plan, i);
            commands.push(Compiled { kind, bind_group, two, choice, split_from, readers });
        }
        let Buffers { places, arena, arena_bytes, logits_staging, selected_staging } = buffers;
        let device = device.clone();
        Ok(Program {
            plan,
            places,
            arena,
            arena_bytes,
            device,
            cache,
            kinds,
            room,
            commands,
            logits_staging,
            selected_staging,
        })
    }

    /// Makes every pipeline that a step may need with the choices as they are, until it is asked to stop; in parallel where
    /// the backend allows it.
    pub fn prepare(&self, parallel: bool, stop: &Stop) {
        let mut wanted = Vec::new();
        for (compiled, c) in self.commands.iter().zip(&self.plan.recording.commands) {
            let classes =
                (0..CLASSES.len()).filter(|&class| variants::tokens_in(class, CLASSES[2], c, &self.plan).is_some());
            wanted.extend(classes.map(|class| (compiled.kind, compiled.choice[class])));
            // for the steps that are not split
            if compiled.choice.iter().any(|&v| variants::of(c.op)[v].is_split()) {
                wanted.push((compiled.kind, variants::first(c.op, &c.args)));
            }
        }
        self.make(wanted, parallel, stop);
    }

    /// Makes the pipelines of variants of commands, as [`prepare`](Self::prepare) does.
    pub fn prepare_variants(&self, of: impl Iterator<Item = (usize, usize)>, parallel: bool, stop: &Stop) {
        self.make(of.map(|(command, variant)| (self.commands[command].kind, variant)).collect(), parallel, stop);
    }

    /// Makes the pipelines of variants of kinds.
    fn make(&self, mut wanted: Vec<(usize, usize)>, parallel: bool, stop: &Stop) {
        wanted.sort();
        wanted.dedup();
        let make = |&(kind, variant): &(usize, usize)| {
            for pass in passes(self.kinds[kind].op, variant).iter().take_while(|_| !stop.asked()) {
                self.kinds[kind].pipeline(&self.device, self.cache.as_ref(), self.room.capabilities, variant, *pass);
            }
        };
        // a browser's device stays on its thread
        #[cfg(not(target_family = "wasm"))]
        if parallel {
            use rayon::prelude::*;
            return wanted.par_iter().for_each(make);
        }
        #[cfg(target_family = "wasm")]
        let _ = parallel;
        wanted.iter().for_each(make);
    }

    /// The variant chosen for a step's command, by the number of tokens and, where it may be split, of positions.
    fn chosen(&self, command: usize, args: &Args) -> usize {
        let c = &self.commands[command];
        variants::taken(self.kinds[c.kind].op, args, &c.choice, c.split_from)
    }

    /// Whether a command can run a variant: what it leaves between two passes has a place.
    pub fn can(&self, command: usize, variant: usize) -> bool {
        let c = &self.plan.recording.commands[command];
        let v = &variants::of(c.op)[variant];
        v.serves(&c.args, self.room) && (v.before().is_none() || self.commands[command].two.is_some())
    }

    /// Positions that commands of attention see at most of the first page; 0 of other operations.
    pub fn positions(&self, commands: &[usize]) -> usize {
        let page = |&c: &usize| variants::attention_of(&self.plan.recording.commands[c].args);
        let first = commands.iter().filter_map(page).filter(|p| p.page_first == 0);
        first.map(|p| p.page_len as usize).max().unwrap_or(0)
    }

    /// The dispatches of a step's commands, with the variants chosen for them.
    pub fn dispatches(&self, active: &[(usize, Args)]) -> Vec<Dispatch> {
        let mut dispatches = Vec::with_capacity(active.len() + active.len() / 8);
        for (command, args) in active.iter().filter(|(command, _)| !self.is_idle(active, *command)) {
            self.dispatches_of(*command, args, self.chosen(*command, args), |d| dispatches.push(d));
        }
        dispatches
    }

    /// Whether a command orders slots by expert and nobody looks at that: all who could are among `active`, and go slot by slot.
    /// Of a command that is run alone whoever runs it may look.
    fn is_idle(&self, active: &[(usize, Args)], command: usize) -> bool {
        let ordered = self.plan.recording.commands[command].op == Op::ExpertOrder && active.len() > 1;
        ordered
            && self.commands[command].readers.iter().all(|&reader| {
                let at = active.binary_search_by_key(&reader, |(command, _)| *command);
                let by_slots = |(i, args): &(usize, Args)| {
                    variants::of(self.kinds[self.commands[*i].kind].op)[self.chosen(*i, args)].goes_by_slots()
                };
                at.is_ok_and(|at| by_slots(&active[at]))
            })
    }

    /// The dispatches of one command with a variant.
    pub fn dispatches_of(&self, command: usize, args: &Args, variant: usize, mut each: impl FnMut(Dispatch)) {
        let op = self.kinds[self.commands[command].kind].op;
        let v = &variants::of(op)[variant];
        for &pass in passes(op, variant) {
            let groups = if pass == Pass::Before { v.groups_before(args) } else { v.groups(args) };
            each(Dispatch { command, variant, pass, groups });
        }
    }

    /// Keeps in mind which variants a step ran, for [`Program::ran`].
    pub fn note(&self, dispatches: &[Dispatch]) {
        for d in dispatches {
            self.kinds[self.commands[d.command].kind].ran.fetch_or(1 << d.variant, Ordering::Relaxed);
        }
    }

    /// What steps have run, as `--variant` names it.
    pub fn ran(&self) -> Vec<String> {
        let of = |kind: &Kind| -> Vec<String> {
            let (op, ran) = (kind.op, kind.ran.load(Ordering::Relaxed));
            let names = variants::of(op).iter().enumerate().filter(|(i, _)| (ran >> i) & 1 == 1).map(|(_, v)| v.name);
            names.map(|name| if name.is_empty() { op.stem().into() } else { format!("{}={name}", op.stem()) }).collect()
        };
        let mut all: Vec<String> = self.kinds.iter().flat_map(of).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Encodes a dispatch.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, d: &Dispatch) {
        let c = &self.commands[d.command];
        let kind = &self.kinds[c.kind];
        let group = match (d.pass, &c.two) {
            (Pass::Before, Some([before, _])) => before,
            (Pass::Last, Some([_, last])) if variants::of(kind.op)[d.variant].before().is_some() => last,
            _ => &c.bind_group,
        };
        let capabilities = self.room.capabilities;
        pass.set_pipeline(kind.pipeline(&self.device, self.cache.as_ref(), capabilities, d.variant, d.pass));
        pass.set_bind_group(0, group, &[]);
        let [x, y, z] = d.groups;
        pass.dispatch_workgroups(x, y, z);
    }

    pub fn place(&self, id: BufId) -> (&wgpu::Buffer, u64) {
        match &self.places[id] {
            Place::Own(b) => (b, 0),
            Place::Arena(at) => (&self.arena, *at),
        }
    }
}

fn range(binding: u32, buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: std::num::NonZeroU64::new(size),
        }),
    }
}

/// The passes of a variant, in order.
fn passes(op: Op, variant: usize) -> &'static [Pass] {
    if variants::of(op)[variant].before().is_some() { &[Pass::Before, Pass::Last] } else { &[Pass::Last] }
}

/// The shader of a pass of a variant.
fn shader(op: Op, variant: &Variant, pass: Pass) -> &'static Shader {
    let before = variant.before().filter(|_| pass == Pass::Before);
    let stem = before.map_or_else(|| variant.stem(op), |b| b.stem().into());
    shaders::find(&stem).expect("tests check that every variant has its shaders")
}

impl Kind {
    fn new(device: &wgpu::Device, op: Op, constants: Vec<(&'static str, f64)>) -> Kind {
        let shader = shader(op, &variants::of(op)[0], Pass::Last);
        let entries: Vec<wgpu::BindGroupLayoutEntry> = (0u32..)
            .zip(shader.bindings)
            .map(|(binding, kind)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: match kind {
                        Binding::Uniform => wgpu::BufferBindingType::Uniform,
                        Binding::Read => wgpu::BufferBindingType::Storage { read_only: true },
                        Binding::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout = device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(shader.name), entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(shader.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipelines = variants::of(op).iter().map(|_| [OnceLock::new(), OnceLock::new()]).collect();
        Kind { op, constants, layout, pipeline_layout, pipelines, ran: AtomicU32::new(0) }
    }

    /// The pipeline of a pass, made when it is first asked for; what goes wrong is reported to the device's faults.
    fn pipeline(
        &self,
        device: &wgpu::Device,
        cache: Option<&wgpu::PipelineCache>,
        capabilities: Capabilities,
        variant: usize,
        pass: Pass,
    ) -> &wgpu::ComputePipeline {
        self.pipelines[variant][pass as usize].get_or_init(|| {
            let shader = shader(self.op, &variants::of(self.op)[variant], pass);
            let module = module::create(device, shader, capabilities.loops, capabilities.halves);
            // the passes and variants of an operation do not all have every constant
            let declared = |(name, _): &&(&str, f64)| shader.overrides.contains(name);
            let constants: Vec<(&str, f64)> = self.constants.iter().filter(declared).copied().collect();
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&self.op.title()),
                layout: Some(&self.pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &constants,
                    // no shader reads what it has not written; the zeros, element by element in GLSL, take GL drivers
                    // half a minute to compile
                    zero_initialize_workgroup_memory: false,
                },
                cache,
            })
        })
    }
}
