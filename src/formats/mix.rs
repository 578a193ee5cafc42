//! llama.cpp's mixes of types: their names, their numbers, and what they store in another type than most of a model.
//!
//! The one table of these ([`RECIPES`]), and of what stands in for a type that rows do not fit ([`that_fits`]): `quantize`
//! makes files by it, `synthetic` models that never were files. What holds for all of them (the output matrix, models of
//! 70B, eight experts) `quantize::choose` decides, and `synthetic` for itself.

use crate::blocks::BlockType;

/// What is made of a model's matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// one type for all, but for what llama.cpp's rules raise (the output matrix)
    Plain(BlockType),
    /// a row of [`RECIPES`]
    Recipe(&'static Recipe),
    /// every tensor as it is
    Copy,
}

/// A mix of llama.cpp's quantiser.
#[derive(PartialEq, Eq, Debug)]
pub struct Recipe {
    /// as its tool has it, in small letters
    pub name: &'static str,
    /// `general.file_type`
    pub number: u32,
    /// the type of what no rule names
    pub base: BlockType,
    /// the type of the output matrix
    pub output: BlockType,
    /// of those that hold for a tensor the first counts
    pub rules: &'static [Rule],
}

/// What some tensors are stored in.
#[derive(PartialEq, Eq, Debug)]
pub struct Rule {
    part: Part,
    when: &'static [When],
    ty: BlockType,
}

/// A kind of matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// token_embd
    Embedding,
    /// attn_q
    Query,
    /// attn_k
    Key,
    /// attn_v, and what holds values among others: attn_qkv, attn_kv_b
    Value,
    /// attn_output
    Attention,
    /// ffn_gate, of all experts too
    Gate,
    /// ffn_up, of all experts too
    Up,
    /// ffn_down, of all experts too
    Down,
    /// any other; in a rule: every tensor
    Any,
}

impl Part {
    /// By a tensor's name in a GGUF file.
    pub fn of(gguf: &str) -> Part {
        let within = gguf.strip_prefix("blk.").and_then(|rest| rest.split('.').nth(1));
        match within.unwrap_or(gguf) {
            "token_embd.weight" | "per_layer_token_embd.weight" => Part::Embedding,
            "attn_q" => Part::Query,
            "attn_k" => Part::Key,
            "attn_v" | "attn_qkv" | "attn_kv_b" => Part::Value,
            "attn_output" => Part::Attention,
            name if name.starts_with("ffn_gate") => Part::Gate,
            name if name.starts_with("ffn_up") => Part::Up,
            name if name.starts_with("ffn_down") => Part::Down,
            _ => Part::Any,
        }
    }
}

/// A condition of a rule; several in a rule must all hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    /// four heads or more share a key-value head
    Shared,
    /// nothing says how important columns are
    Blind,
    /// something does
    Sighted,
    /// one of the first so many
    First(usize),
    /// among the first of so many parts
    Under(usize),
    /// neither in the first eighth nor in the last
    Middle,
    /// the first and last eighth, and every third between
    More,
    /// eight experts
    Eight,
    /// four experts or more
    Four,
    /// the tensor is a stack of matrices
    Stacked,
}

/// What rules ask about a tensor and its model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// kind
    pub part: Part,
    /// its number among its kind, and how many there are; `None` outside the layers
    pub index: Option<(usize, usize)>,
    /// heads to a key-value head
    pub shared: u64,
    /// experts of a layer, 0 where there are none
    pub experts: u64,
    /// the tensor has a third dimension
    pub stacked: bool,
    /// the columns' importances are known
    pub importances: bool,
}

impl When {
    fn holds(self, p: &Place) -> bool {
        let index = |holds: fn(usize, usize, usize) -> bool, by: usize| p.index.is_some_and(|(i, n)| holds(i, n, by));
        match self {
            When::Shared => p.shared >= 4,
            When::Blind => !p.importances,
            When::Sighted => p.importances,
            When::First(n) => index(|i, _, n| i < n, n),
            When::Under(parts) => index(|i, n, parts| i < n / parts, parts),
            When::Middle => index(|i, n, _| i >= n / 8 && i < 7 * n / 8, 0),
            When::More => index(|i, n, _| more_bits(i, n), 0),
            When::Eight => p.experts == 8,
            When::Four => p.experts >= 4,
            When::Stacked => p.stacked,
        }
    }
}

const fn rule(part: Part, when: &'static [When], ty: BlockType) -> Rule {
    Rule { part, when, ty }
}

/// A row whose output matrix is Q6_K.
const fn row(name: &'static str, number: u32, base: BlockType, rules: &'static [Rule]) -> Recipe {
    Recipe { name, number, base, output: BlockType::Q6_K, rules }
}

/// A row whose output matrix is Q5_K.
const fn low(name: &'static str, number: u32, base: BlockType, rules: &'static [Rule]) -> Recipe {
    Recipe { name, number, base, output: BlockType::Q5_K, rules }
}

use BlockType::*;
use Part::{Any, Attention, Down, Embedding, Gate, Key, Query, Up, Value};
use When::{Blind, Eight, First, Four, Middle, More, Shared, Sighted, Stacked, Under};

/// What a mixture of eight experts spares.
const EIGHT: Rule = rule(Attention, &[Eight], Q5_K);

/// Of Q4_K_M and Q5_K_M.
const MEDIUM: &[Rule] = &[EIGHT, rule(Value, &[More], Q6_K), rule(Down, &[More], Q6_K)];
/// Of IQ2_XXS and IQ2_XS.
const IQ2: &[Rule] = &[
    rule(Embedding, &[], Q2_K),
    rule(Value, &[Shared], Q4_K),
    rule(Value, &[Four], Q4_K),
    rule(Value, &[], Q2_K),
    rule(Key, &[Eight], Q4_K),
    EIGHT,
    rule(Down, &[Under(8)], Q2_K),
];
/// Of IQ2_S and IQ2_M.
const IQ2_MORE: &[Rule] = &[
    rule(Embedding, &[], IQ3_S),
    rule(Value, &[Shared], Q4_K),
    rule(Value, &[Four], Q4_K),
    rule(Value, &[], IQ3_S),
    rule(Key, &[Eight], Q4_K),
    EIGHT,
    rule(Attention, &[], IQ3_S),
    rule(Down, &[Under(8)], IQ3_S),
];
/// Of IQ1_S and IQ1_M.
const IQ1: &[Rule] = &[
    rule(Embedding, &[], Q2_K),
    rule(Value, &[Shared], Q4_K),
    rule(Value, &[Four], Q4_K),
    rule(Value, &[], Q2_K),
    rule(Key, &[Eight], Q4_K),
    EIGHT,
    rule(Attention, &[], IQ2_XXS),
    rule(Down, &[Under(8)], Q2_K),
];
/// Of IQ4_NL and IQ4_XS.
const IQ4: &[Rule] = &[EIGHT, rule(Value, &[Shared], Q5_K), rule(Down, &[Blind, Under(8)], Q5_K)];
/// Of TQ1_0, TQ2_0 and Q2_0.
const TERNARY: &[Rule] = &[rule(Embedding, &[], Q4_K)];

/// Every mix that is more than one type, the smaller first.
#[rustfmt::skip]
pub const RECIPES: [Recipe; 31] = [
    low("iq1_s", 24, IQ1_S, IQ1),
    low("iq1_m", 31, IQ1_M, IQ1),
    row("tq1_0", 36, TQ1_0, TERNARY),
    low("iq2_xxs", 19, IQ2_XXS, IQ2),
    row("tq2_0", 37, TQ2_0, TERNARY),
    low("iq2_xs", 20, IQ2_XS, IQ2),
    row("q2_0", 41, Q2_0, TERNARY),
    low("iq2_s", 28, IQ2_XS, IQ2_MORE),
    low("iq2_m", 29, IQ2_S, IQ2_MORE),
    row("q2_k_s", 21, Q2_K, &[rule(Value, &[Shared], Q4_K), rule(Down, &[Under(8)], Q4_K)]),
    row("q2_k", 10, Q2_K, &[
        EIGHT, rule(Value, &[Shared], Q4_K), rule(Value, &[], Q3_K), rule(Attention, &[], Q3_K), rule(Down, &[], Q3_K),
    ]),
    low("iq3_xxs", 23, IQ3_XXS, &[
        EIGHT, rule(Embedding, &[], IQ3_S), rule(Value, &[Shared], Q4_K), rule(Value, &[Blind], IQ3_S),
        rule(Attention, &[], IQ3_S), rule(Down, &[Blind, Under(8)], Q4_K), rule(Down, &[Blind], Q3_K),
        rule(Query, &[], IQ2_S), rule(Key, &[], IQ2_S),
    ]),
    row("iq3_xs", 22, IQ3_S, &[
        EIGHT, rule(Value, &[Shared], Q4_K), rule(Query, &[], IQ3_XXS), rule(Key, &[], IQ3_XXS),
        rule(Gate, &[Middle], IQ3_XXS), rule(Up, &[Middle], IQ3_XXS),
    ]),
    row("iq3_s", 26, IQ3_S, &[EIGHT, rule(Value, &[Shared], Q4_K)]),
    row("q3_k_s", 11, Q3_K, &[EIGHT]),
    row("iq3_m", 27, IQ3_S, &[
        EIGHT, rule(Value, &[], Q4_K), rule(Attention, &[], Q4_K), rule(Down, &[Under(8)], Q4_K),
        rule(Down, &[Eight, More], Q4_K),
    ]),
    row("q3_k_m", 12, Q3_K, &[
        EIGHT, rule(Value, &[First(2)], Q5_K), rule(Value, &[], Q4_K), rule(Attention, &[], Q4_K),
        rule(Down, &[Under(16)], Q5_K), rule(Down, &[], Q4_K),
    ]),
    row("q3_k_l", 13, Q3_K, &[rule(Value, &[], Q5_K), rule(Attention, &[Eight], Q3_K), rule(Attention, &[], Q5_K), rule(Down, &[], Q5_K)]),
    row("iq4_xs", 30, IQ4_XS, IQ4),
    row("iq4_nl", 25, IQ4_NL, IQ4),
    row("q4_0", 2, Q4_0, &[rule(Down, &[Sighted, Under(8)], Q4_1)]),
    row("q4_k_s", 14, Q4_K, &[EIGHT, rule(Value, &[First(4)], Q5_K), rule(Down, &[Under(8)], Q5_K)]),
    row("q4_k_m", 15, Q4_K, MEDIUM),
    row("q4_1", 3, Q4_1, &[]),
    row("q5_0", 8, Q5_0, &[rule(Down, &[Sighted, Under(8)], Q5_1)]),
    row("q5_k_s", 16, Q5_K, &[]),
    row("q5_k_m", 17, Q5_K, &[rule(Value, &[More], Q6_K), rule(Down, &[More], Q6_K)]),
    row("q5_1", 9, Q5_1, &[]),
    row("q6_k", 18, Q6_K, &[]),
    Recipe { name: "q8_0", number: 7, base: Q8_0, output: Q8_0, rules: &[] },
    Recipe { name: "mxfp4_moe", number: 38, base: Q8_0, output: Q8_0, rules: &[rule(Any, &[Stacked], MXFP4)] },
];

impl Recipe {
    /// The type of a tensor of a layer, or of the embedding.
    pub fn pick(&self, place: &Place) -> BlockType {
        let holds = |r: &&Rule| (r.part == Any || r.part == place.part) && r.when.iter().all(|w| w.holds(place));
        self.rules.iter().find(holds).map_or(self.base, |r| r.ty)
    }

    /// Whether tensors of this type make no useful model where nothing says how important their columns are, other than
    /// the embedding and the output matrix.
    fn is_blind_in(&self, ty: BlockType) -> bool {
        ty == Q2_K && self.name == "q2_k_s"
    }
}

impl Mix {
    /// llama.cpp's q4_k_m.
    pub const Q4_K_M: Mix = Mix::Recipe(&RECIPES[22]);

    /// The mix of a name, in any case of letters.
    pub fn parse(name: &str) -> Option<Mix> {
        let name = name.to_lowercase();
        if name == "copy" {
            return Some(Mix::Copy);
        }
        let recipe = RECIPES.iter().find(|r| r.name == name).map(Mix::Recipe);
        recipe.or_else(|| BlockType::parse(&name).map(Mix::Plain))
    }

    /// The name [`Mix::parse`] takes.
    pub fn name(self) -> String {
        match self {
            Mix::Plain(ty) => ty.name().to_lowercase(),
            Mix::Recipe(r) => r.name.into(),
            Mix::Copy => "copy".into(),
        }
    }

    /// The type most matrices get; `None` for a copy.
    pub fn base(self) -> Option<BlockType> {
        match self {
            Mix::Plain(t) => Some(t),
            Mix::Recipe(r) => Some(r.base),
            Mix::Copy => None,
        }
    }

    /// The type of the output matrix, before its row length is looked at.
    pub fn output(self) -> Option<BlockType> {
        match self {
            Mix::Plain(t) if t == Q8_0 || t.is_float() => Some(t),
            Mix::Plain(_) => Some(Q6_K),
            Mix::Recipe(r) => Some(r.output),
            Mix::Copy => None,
        }
    }

    /// `general.file_type`: llama.cpp's number. Of a type that is no mix it is that of the mix that has most of it.
    pub fn file_type(self) -> Option<u32> {
        match self {
            Mix::Recipe(r) => Some(r.number),
            Mix::Copy => None,
            Mix::Plain(t) => match t {
                F32 => Some(0),
                F16 => Some(1),
                BF16 => Some(32),
                Q3_K => Some(11),
                Q4_K => Some(14),
                Q5_K => Some(16),
                MXFP4 => Some(38),
                NVFP4 => Some(39),
                Q1_0 => Some(40),
                _ => RECIPES.iter().find(|r| BlockType::parse(r.name) == Some(t)).map(|r| r.number),
            },
        }
    }

    /// Whether attn_v (or attn_qkv) and ffn_down of this layer are stored in more bits (Q6_K).
    pub fn raises(self, layer: usize, layers: usize) -> bool {
        let index = Some((layer, layers));
        let place = Place { part: Down, index, shared: 1, experts: 0, stacked: false, importances: false };
        matches!(self, Mix::Recipe(r) if r.pick(&place) == Q6_K && r.base != Q6_K)
    }

    /// Whether llama.cpp refuses to store a tensor in this type where nothing says how important its columns are: it would
    /// be useless. The embedding and the output matrix are never refused.
    pub fn needs_importances(self, gguf: &str, ty: BlockType) -> bool {
        let low = matches!(ty, IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS);
        let blind = matches!(self, Mix::Recipe(r) if r.is_blind_in(ty));
        (low || blind) && !matches!(gguf, "token_embd.weight" | "per_layer_token_embd.weight" | "output.weight")
    }
}

/// `ty`, or what llama.cpp stores instead where rows of `columns` are not whole blocks of it, and F16 where rows are not
/// whole blocks of that either. `None` for the two types that nothing stands in for.
pub fn that_fits(ty: BlockType, columns: u64) -> Option<BlockType> {
    let fits = |t: &BlockType| columns.is_multiple_of(t.elems() as u64);
    let instead = match ty {
        IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_XS => IQ4_NL,
        Q2_0 | Q2_K | Q3_K | TQ1_0 | TQ2_0 => Q4_0,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        other => other,
    };
    let found = [ty, instead].into_iter().find(fits);
    found.or((!matches!(ty, NVFP4 | Q1_0)).then_some(F16))
}

/// Layers whose attn_v (or attn_qkv) and ffn_down the `_M` mixes store in more bits: the first and last eighth, every
/// third between.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_eighth_and_every_third_layer_between_are_raised() {
        let raised = |mix: &str, n: usize| {
            let mix = Mix::parse(mix).unwrap();
            (0..n).filter(|l| mix.raises(*l, n)).collect::<Vec<_>>()
        };
        for mix in ["q4_k_m", "q5_k_m"] {
            assert_eq!(raised(mix, 22), [0, 1, 4, 7, 10, 13, 16, 19, 20, 21]);
            assert_eq!(raised(mix, 2), [1]);
        }
        assert!(["q4_k", "q6_k", "copy"].iter().all(|mix| raised(mix, 22).is_empty()));
    }

    #[test]
    fn every_mix_that_a_file_can_have_has_a_number_of_its_own() {
        let number = |n: &str| Mix::parse(n).unwrap().file_type().unwrap();
        let names =
            ["f32", "f16", "q4_0", "q4_1", "q8_0", "q5_0", "q5_1", "q4_k", "q4_k_m", "q5_k", "q5_k_m", "q6_k", "bf16"];
        assert_eq!(names.map(number), [0, 1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 18, 32]);
        // the numbers of the specification
        let names = [
            "q2_k",
            "q3_k_s",
            "q3_k_m",
            "q3_k_l",
            "iq2_xxs",
            "iq2_xs",
            "q2_k_s",
            "iq3_xs",
            "iq3_xxs",
            "iq1_s",
            "iq4_nl",
            "iq3_s",
            "iq3_m",
            "iq2_s",
            "iq2_m",
            "iq4_xs",
            "iq1_m",
            "tq1_0",
            "tq2_0",
            "mxfp4_moe",
            "nvfp4",
            "q1_0",
            "q2_0",
        ];
        let want = [10, 11, 12, 13, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 36, 37, 38, 39, 40, 41];
        assert_eq!(names.map(number), want);
        let mut all: Vec<u32> = RECIPES.iter().map(|r| r.number).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), RECIPES.len(), "two mixes have one number");
        assert_eq!(Mix::parse("COPY").unwrap().file_type(), None);
        assert_eq!(Mix::parse("q8k128").unwrap().file_type(), None);
        assert_eq!(Mix::parse("Q3_K_M").unwrap().name(), "q3_k_m");
        assert_eq!(Mix::parse("q9"), None);
        assert_eq!(Mix::parse("q4_k_m"), Some(Mix::Q4_K_M));
        // a file of one type has the number of the mix that has most of it
        assert_eq!(Mix::Plain(IQ4_XS).file_type(), Some(30));
    }

    #[test]
    fn rows_that_are_not_whole_blocks_fall_back_as_in_llama_cpp() {
        for (ty, at_896, at_100) in [
            (Q4_K, Some(Q5_0), Some(F16)),
            (Q5_K, Some(Q5_1), Some(F16)),
            (Q6_K, Some(Q8_0), Some(F16)),
            (Q4_0, Some(Q4_0), Some(F16)),
            (Q8_0, Some(Q8_0), Some(F16)),
            (MXFP4, Some(MXFP4), Some(F16)),
            (IQ4_NL, Some(IQ4_NL), Some(F16)),
            (BF16, Some(BF16), Some(BF16)),
            (Q2_K, Some(Q4_0), Some(F16)),
            (Q3_K, Some(Q4_0), Some(F16)),
            (TQ1_0, Some(Q4_0), Some(F16)),
            (TQ2_0, Some(Q4_0), Some(F16)),
            (IQ4_XS, Some(IQ4_NL), Some(F16)),
            (IQ3_S, Some(IQ4_NL), Some(F16)),
            (IQ3_XXS, Some(IQ4_NL), Some(F16)),
            (IQ2_S, Some(IQ4_NL), Some(F16)),
            (IQ2_XS, Some(IQ4_NL), Some(F16)),
            (IQ2_XXS, Some(IQ4_NL), Some(F16)),
            (IQ1_S, Some(IQ4_NL), Some(F16)),
            (IQ1_M, Some(IQ4_NL), Some(F16)),
            (Q2_0, Some(Q2_0), Some(F16)),
            (NVFP4, Some(NVFP4), None),
            (Q1_0, Some(Q1_0), None),
        ] {
            assert_eq!([512, 896, 100].map(|columns| that_fits(ty, columns)), [Some(ty), at_896, at_100], "{ty:?}");
        }
        assert_eq!((that_fits(Q2_0, 160), that_fits(Q1_0, 192), that_fits(NVFP4, 96)), (Some(Q4_0), None, None));
    }

    /// Part, layers (of 16) and type of what is not the base; of a model of gqa 2 or 4, without or with importances.
    type Wanted = Vec<(Part, fn(usize) -> bool, BlockType)>;

    /// The recipes written a second time: each as llama-quantize's dry runs showed it.
    fn wanted(name: &str, shared: bool, importances: bool) -> (BlockType, Wanted) {
        let all: fn(usize) -> bool = |_| true;
        let eighth: fn(usize) -> bool = |l| l < 2;
        let rest: fn(usize) -> bool = |l| l >= 2;
        let four: fn(usize) -> bool = |l| l < 4;
        let one: fn(usize) -> bool = |l| l < 1;
        let but_one: fn(usize) -> bool = |l| l >= 1;
        let more: fn(usize) -> bool = |l| [0, 1, 4, 7, 10, 13, 14, 15].contains(&l);
        let both = |a: Wanted, b: Wanted| a.into_iter().chain(b).collect::<Wanted>();
        let given = |holds: bool, what: Wanted| if holds { what } else { vec![] };
        match name {
            "q2_k" => {
                let v = if shared { Q4_K } else { Q3_K };
                (Q2_K, vec![(Value, all, v), (Attention, all, Q3_K), (Down, all, Q3_K)])
            }
            "q2_k_s" => (Q2_K, both(given(shared, vec![(Value, all, Q4_K)]), vec![(Down, eighth, Q4_K)])),
            "q3_k_s" => (Q3_K, vec![]),
            "q3_k_m" => {
                let down: Wanted = vec![(Down, one, Q5_K), (Down, but_one, Q4_K)];
                (Q3_K, both(down, vec![(Value, eighth, Q5_K), (Value, rest, Q4_K), (Attention, all, Q4_K)]))
            }
            "q3_k_l" => (Q3_K, vec![(Value, all, Q5_K), (Attention, all, Q5_K), (Down, all, Q5_K)]),
            "q4_k_s" => (Q4_K, vec![(Value, four, Q5_K), (Down, eighth, Q5_K)]),
            "q4_k_m" => (Q4_K, vec![(Value, more, Q6_K), (Down, more, Q6_K)]),
            "q5_k_m" => (Q5_K, vec![(Value, more, Q6_K), (Down, more, Q6_K)]),
            "iq4_nl" | "iq4_xs" => {
                let base = if name == "iq4_nl" { IQ4_NL } else { IQ4_XS };
                let down = given(!importances, vec![(Down, eighth, Q5_K)]);
                (base, both(given(shared, vec![(Value, all, Q5_K)]), down))
            }
            "iq3_xxs" => {
                let v = if shared {
                    Q4_K
                } else if importances {
                    IQ3_XXS
                } else {
                    IQ3_S
                };
                let always: Wanted = vec![
                    (Embedding, all, IQ3_S),
                    (Value, all, v),
                    (Attention, all, IQ3_S),
                    (Query, all, IQ2_S),
                    (Key, all, IQ2_S),
                ];
                (IQ3_XXS, both(always, given(!importances, vec![(Down, eighth, Q4_K), (Down, rest, Q3_K)])))
            }
            "iq3_xs" => {
                let middle: fn(usize) -> bool = |l| (2..14).contains(&l);
                let always: Wanted =
                    vec![(Query, all, IQ3_XXS), (Key, all, IQ3_XXS), (Gate, middle, IQ3_XXS), (Up, middle, IQ3_XXS)];
                (IQ3_S, both(given(shared, vec![(Value, all, Q4_K)]), always))
            }
            "iq3_s" => (IQ3_S, given(shared, vec![(Value, all, Q4_K)])),
            "iq3_m" => (IQ3_S, vec![(Value, all, Q4_K), (Attention, all, Q4_K), (Down, eighth, Q4_K)]),
            "iq2_xxs" | "iq2_xs" => {
                let base = if name == "iq2_xs" { IQ2_XS } else { IQ2_XXS };
                let v = if shared { Q4_K } else { Q2_K };
                (base, vec![(Embedding, all, Q2_K), (Value, all, v), (Down, eighth, Q2_K)])
            }
            "iq2_s" | "iq2_m" => {
                let base = if name == "iq2_s" { IQ2_XS } else { IQ2_S };
                let v = if shared { Q4_K } else { IQ3_S };
                let always: Wanted = vec![(Embedding, all, IQ3_S), (Attention, all, IQ3_S), (Down, eighth, IQ3_S)];
                (base, both(always, vec![(Value, all, v)]))
            }
            "iq1_s" | "iq1_m" => {
                let base = if name == "iq1_s" { IQ1_S } else { IQ1_M };
                let v = if shared { Q4_K } else { Q2_K };
                let always: Wanted = vec![(Embedding, all, Q2_K), (Attention, all, IQ2_XXS), (Down, eighth, Q2_K)];
                (base, both(always, vec![(Value, all, v)]))
            }
            "tq1_0" => (TQ1_0, vec![(Embedding, all, Q4_K)]),
            "tq2_0" => (TQ2_0, vec![(Embedding, all, Q4_K)]),
            "q2_0" => (Q2_0, vec![(Embedding, all, Q4_K)]),
            "q4_0" => (Q4_0, given(importances, vec![(Down, eighth, Q4_1)])),
            "q5_0" => (Q5_0, given(importances, vec![(Down, eighth, Q5_1)])),
            "mxfp4_moe" => (Q8_0, vec![]),
            one => (BlockType::parse(one.trim_end_matches("_s")).unwrap(), vec![]),
        }
    }

    #[test]
    fn recipes_give_every_tensor_the_type_of_the_dry_runs() {
        let mut asked = 0;
        for recipe in &RECIPES {
            for (shared, importances) in [(2, false), (2, true), (4, false), (4, true)] {
                let (base, rules) = wanted(recipe.name, shared == 4, importances);
                for part in [Embedding, Query, Key, Value, Attention, Gate, Up, Down] {
                    for layer in 0..if part == Embedding { 1 } else { 16 } {
                        let want = rules.iter().find(|(p, at, _)| *p == part && at(layer)).map_or(base, |r| r.2);
                        let index = (part != Embedding).then_some((layer, 16));
                        let place = Place { part, index, shared, experts: 0, stacked: false, importances };
                        let at = format!("{} {part:?} {layer} gqa {shared} {importances}", recipe.name);
                        assert_eq!(recipe.pick(&place), want, "{at}");
                        asked += 1;
                    }
                }
            }
            let q5 = recipe.name.starts_with("iq1") || recipe.name.starts_with("iq2") || recipe.name == "iq3_xxs";
            let output = match recipe.name {
                "mxfp4_moe" | "q8_0" => Q8_0,
                _ if q5 => Q5_K,
                _ => Q6_K,
            };
            assert_eq!(recipe.output, output, "{}", recipe.name);
        }
        assert_eq!(asked, RECIPES.len() * 4 * (7 * 16 + 1));
    }

    #[test]
    fn experts_change_what_the_table_says_they_do() {
        let pick = |name: &str, part: Part, experts: u64, stacked: bool| {
            let Some(Mix::Recipe(r)) = Mix::parse(name) else { panic!("{name}") };
            r.pick(&Place { part, index: Some((5, 16)), shared: 2, experts, stacked, importances: true })
        };
        assert_eq!([4, 8].map(|n| pick("iq2_xs", Value, n, false)), [Q4_K; 2]);
        assert_eq!([4, 8].map(|n| pick("iq2_xs", Key, n, false)), [IQ2_XS, Q4_K]);
        assert_eq!([4, 8].map(|n| pick("iq1_m", Attention, n, false)), [IQ2_XXS, Q5_K]);
        assert_eq!([4, 8].map(|n| pick("q3_k_m", Attention, n, false)), [Q4_K, Q5_K]);
        assert_eq!([Down, Up, Gate].map(|p| pick("mxfp4_moe", p, 32, true)), [MXFP4; 3]);
        assert_eq!(pick("mxfp4_moe", Down, 32, false), Q8_0);
    }

    #[test]
    fn names_say_what_a_tensor_is() {
        for (name, part) in [
            ("token_embd.weight", Embedding),
            ("blk.11.attn_q.weight", Query),
            ("blk.0.attn_qkv.weight", Value),
            ("blk.3.attn_kv_b.weight", Value),
            ("blk.3.ffn_down_exps.weight", Down),
            ("blk.3.ffn_gate_up_exps.weight", Gate),
            ("blk.3.ffn_down.7.weight", Down),
            ("blk.3.attn_q_norm.weight", Any),
            ("output.weight", Any),
            ("attn_q.weight", Any),
        ] {
            assert_eq!(Part::of(name), part, "{name}");
        }
    }

    #[test]
    fn the_types_of_two_bits_and_fewer_need_importances() {
        let needs = |mix: &str, name: &str, ty| Mix::parse(mix).unwrap().needs_importances(name, ty);
        let q = "blk.0.attn_q.weight";
        for ty in BlockType::ALL {
            let want = [IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS].contains(&ty);
            assert_eq!(needs("q4_k_m", q, ty), want, "{ty:?}");
            assert!(!needs("q2_k_s", "output.weight", ty) && !needs("iq1_s", "token_embd.weight", ty));
        }
        assert!(needs("q2_k_s", q, Q2_K) && !needs("q2_k", q, Q2_K));
    }
}
