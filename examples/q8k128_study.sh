#!/bin/sh
# The Q8K128 study, end to end: does halving the scale block of Q8_K help a model?
#
#   examples/q8k128_study.sh OUT                  a synthetic Phi-3 (a few minutes)
#   examples/q8k128_study.sh OUT MODEL [TEXT]     a Hugging Face directory or F16/BF16 GGUF file of one's own
#
# Quantises the model by three policies (nothing, the first layer's qkv, every qkv in Q8K128; all else alike), checks
# that each loads strictly and gives the same words on two levels of the CPU, measures the errors of qkv, and only when
# Q8K128 is better in every layer scores the text. OUT then holds summary.txt, the packed models, hist/report.html, and
# for each policy original-POLICY.txt, compare-POLICY.txt and .svg. The synthetic model's weights are noise with outliers: its errors and
# differences are real, its perplexity says nothing about language.
#
# ISOBIT, SYNTH: the programs (built by cargo unless given). POLICIES, CTX (512), CHUNKS (16; 0: the whole text),
# GATE (ends the study when it holds). Exit: 0 done, 1 the gate or a check failed, 2 bad usage or file.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-}
if [ -z "$out" ] || [ $# -gt 3 ]; then
    echo "usage: $0 OUT [MODEL [TEXT]]" >&2
    exit 2
fi
model=${2:-}
text=${3:-$root/tests/data/tiny/valid.txt}
policies=${POLICIES:-off layer0-qkv qkv}
ctx=${CTX:-512}
chunks=${CHUNKS:-16}
gate=${GATE:-qkv.rmse_change > -1%}
if [ -e "$out" ] && [ -n "$(ls -A "$out")" ]; then
    echo "error: $out is not empty: give another name" >&2
    exit 2
fi
mkdir -p "$out"

if [ -z "${ISOBIT:-}" ]; then
    (cd "$root" && cargo build --release --quiet)
    ISOBIT=${CARGO_TARGET_DIR:-$root/target}/release/isobit
fi
isobit() { "$ISOBIT" "$@"; }
step() { printf '\n== %s\n' "$*"; }

noise=
if [ -z "$model" ]; then
    noise=yes
    model=$out/model
    step "a synthetic Phi-3: fused qkv and gate/up, 8 layers, outlying channels"
    set -- --out "$model" --preset phi3-tiny --format hf --shards 2 --outliers --rope plain \
        --dim 512 --heads 8 --kv-heads 8 --ffn 1536 --layers 8 --vocab 4096 --ctx 2048
    if [ -n "${SYNTH:-}" ]; then
        "$SYNTH" "$@"
    else
        (cd "$root" && cargo build --release --quiet --example synth_model)
        "${CARGO_TARGET_DIR:-$root/target}/release/examples/synth_model" "$@"
    fi
fi

for policy in $policies; do
    step "quantise and pack: $policy"
    isobit quantize "$model" "$out/packed-$policy" --to packed --policy "$policy" 2> "$out/quantize-$policy.log" || {
        code=$?
        tail -n 3 "$out/quantize-$policy.log" >&2
        exit $code
    }
    tail -n 1 "$out/quantize-$policy.log"
    isobit verify "$out/packed-$policy" -d cpu -d cpu:portable --tokens 8
done

step "histogram gate: qkv in Q8_K and in Q8K128"
isobit hist "$model" --types q8k,q8k128 --policy qkv -o "$out/hist" \
    --fail-if "qkv.not_improved > 0" --fail-if "$gate" > "$out/hist.txt" || {
    code=$?
    grep '^gate ' "$out/hist.txt" || true
    exit $code
}
sed -n '/^group/,/^Definitions/{/^$/d;/^Definitions/d;p;}' "$out/hist.txt"

base=${policies%% *}
for policy in $policies; do
    step "perplexity: $policy against the original"
    isobit compare "$model" "$out/packed-$policy" -f "$text" -c "$ctx" --chunks "$chunks" > "$out/original-$policy.txt"
    tail -n 1 "$out/original-$policy.txt"
    [ "$policy" != "$base" ] || continue
    step "perplexity: $policy against $base"
    isobit compare "$out/packed-$base" "$out/packed-$policy" -f "$text" -c "$ctx" --chunks "$chunks" \
        --svg "$out/compare-$policy.svg" > "$out/compare-$policy.txt"
    cat "$out/compare-$policy.txt"
done

step "summary"
{
    echo "model $model, text $text, windows of $ctx, A = $base"
    grep '^gate ' "$out/hist.txt" | sed 's/^gate /histogram: fails if /'
    [ -z "$noise" ] || echo "weights of noise: the errors and KL mean something, the perplexity and its differences do not"
    printf '%-12s %10s %12s %14s %24s %12s %s\n' \
        policy KiB PPL 'KL(original)' 'mean NLL, B minus A' 'KL(A)' 'B minus A'
    for policy in $policies; do
        size=$(du -k "$out/packed-$policy/model.safetensors" | cut -f 1)
        original=$out/original-$policy.txt
        against=/dev/null
        [ "$policy" = "$base" ] || against=$out/compare-$policy.txt
        case $(tail -n 1 "$against") in
            *"not distinguishable"*) verdict="not distinguishable" ;;
            *"which is distinguishable"*) verdict="distinguishable" ;;
            *) verdict="-" ;;
        esac
        # the last perplexity of a comparison is B's
        awk -v policy="$policy" -v size="$size" -v verdict="$verdict" '
            /^ *PPL = / { ppl = $3 }
            /^ *mean NLL / { nll = $3 " " $4 " " $5 }
            /^ *KL divergence / { if (NR == FNR) from = $3; else kl = $3 }
            NR == FNR { nll = "-" }
            END { if (kl == "") kl = "-"
                printf "%-12s %10s %12s %14s %24s %12s %s\n", policy, size, ppl, from, nll, kl, verdict
            }' "$original" "$against"
    done
} > "$out/summary.txt"
cat "$out/summary.txt"
echo "report: $out/hist/report.html"
