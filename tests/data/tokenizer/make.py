"""Makes the golden data of tests/formats/tokenizer.rs. See README.md, section "How it was made".

usage: make.py CORPUS TINY_GGUF TINY_TOKENIZER_JSON TINY_REFERENCE_JSON OUT_DIR
needs: tokenizers 0.23.2, sentencepiece 0.2.x, gguf 0.19.0
"""
import json, os, sys, tempfile
import sentencepiece as spm
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

corpus_path, gguf_path, tokenizer_json, reference_json, out = sys.argv[1:6]

# ---- the published split rules, as a tokenizer.json would carry them -------------------------------------------------

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*{SUFFIX}|\p{{N}}{{1,3}}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NOT_HAN = "&&[^\\p{Han}]]"
UP_K, LOW_K = UP[:-1] + NOT_HAN, LOW[:-1] + NOT_HAN
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UP_K}*{LOW_K}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UP_K}+{LOW_K}*{SUFFIX}|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# cased letters, code point ranges: written out because some endpoints change under NFC
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
         "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
         "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
         "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
         "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113"
         "\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
         "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
         "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
         "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
RULES = {
    "gpt-2": [GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [QWEN35],
    "glm4": [LLAMA3],
    "tekken": [TEKKEN],
    "gpt-4o": [GPT4O],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""],
    "kimi-k2": [KIMI],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"],
    "starcoder": [r"\p{N}", GPT2],
    "default": [r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}

# ---- texts ----------------------------------------------------------------------------------------------------------

TEXTS = [
    "", " ", "  ", "   x", "\t", "\n", "\r\n", "\n\n\n", "a\nb\n\nc\n\n\nd", "a \n b \n\n  c", "line\r\nline\r\n\r\nline",
    "trailing  ", "trailing \n", "trailing\n ", "\n leading", "  \n  \n   x   \n", " \t \t x\t\ty", "\u000b\u000c\u0085x\u0085\u0085y",
    "\u00a0nbsp\u00a0\u00a0x\u2003em\u2003\u2003x\u3000\u3000wide\u202f1\u2009000", "\u2028line\u2029para\u1680ogham\u205f",
    "a\u200bb\u200cc\u200dd\ufeffe", "Hello, World! It's me. HELLO, WORLD! IT'S ME.",
    "don't you'll we've I'm he'd they're it's", "DON'T YOU'LL WE'VE I'M HE'D THEY'RE IT'S", "don\u2019t you\u2019ll we\u2019ve I\u2019m",
    "it'\u017f 'SS 'Re 'vE 'lL 'd'm't 'tis 'twas rock 'n' roll", "''s '''ll ' s 'x",
    "1 12 123 1234 12345 1234567890", "3.14159 1,000,000 2024-01-31 12:34:56 0x1F 1e-10 50%",
    "\u0661\u0662\u0663\u0664\u0665 \u0967\u0968\u0969\u096a x\u00b2 y\u00b3\u2074\u2075 \u2460\u2461 \u216b \u00bd\u00be \uff11\uff12\uff13\uff14",
    "abc123def456 a1b2c3 123abc", "caf\u00e9 cafe\u0301 na\u00efve nai\u0308ve \u00fcber u\u0308ber \u212bngstr\u00f6m",
    "Z\u0351\u036b\u0343a\u0328l\u0341g\u0315o\u0335 \u0301start", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587\u6587\u672c\uff0c\u6807\u70b9\u3002 \ud55c\uad6d\uc5b4 \ubb38\uc7a5",
    "\u4e2d\u6587English\u6df7\u5408123\u6587\u672c\u3001\u300c\u5f15\u7528\u300d\uff01\uff1f", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641 \u0627\u0644\u062d\u0627\u0644\u061f \u0627\u0644\u0633\u0651\u064e\u0644\u0627\u0645\u064f",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442, \u0423\u043a\u0440\u0430\u0457\u043d\u0430 \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u1f10\u03bd \u1f00\u03c1\u03c7\u1fc7 \u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u13e3\u13b3\u13a9",
    "\U0001f600\U0001f602\U0001f923 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1ee\U0001f1f8 \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3",
    "https://example.org/a/b?c=d&e=%20f#g user@mail.example +49 (0) 30-1234", "C:\\dir\\file.txt ~/x/../y ./z",
    "def f(x):\n    if x > 0:\n        return x**2\n\treturn None\n", "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; } // done\n\n}\n",
    "x=y+z;  // code() {}\r\n/* c */ #include <stdio.h>", "!!! ??? ... --- *** ### $$$ ~~~ ``` ||| <<>> ^^^ ((a)) [[b]] {{c}}",
    "!\n\n?\r\n.\n /\n//\n;/\n", "a/b/c //// \n/ x/\n\n/", "\"quoted\" 'single' \u201ccurly\u201d \u2018s\u2019 \u00abg\u00bb \u201elow\u201c",
    "\u2014dash\u2013en -- em \u2026 \u2022 \u00a7 \u00a9\u00ae\u2122 \u20ac5 $5 \u00a35 \u00a55 \u2211\u222b\u2202 \u2260\u2264 \u2192\u2190 \u2588\u2591",
    "\x00\x01\x02 \x1b[31mred\x1b[0m \x7f \u0080\u009f", "\ufffd lone \ufffd\ufffd", "\U0010ffff\ue000\ufdd0 private",
    "Pneumonoultramicroscopicsilicovolcanoconiosis" * 3, "a" * 200, " " * 100 + "x", "ab " * 40, "\n" * 50 + " y", "=" * 80 + "\n" + "-" * 80,
    "iPhone McDonald's JSONParser parseHTTPRequest snake_case CONST_NAME kebab-case camelCase2Go", "\u01c5ungla \u01f2 \u1d2c\u1d47\u1d9c \u02b0\u02b7 \u00aa\u00ba \u0149",
    "\ud7ff\uac00\u0800 \u9fa5\u9fa6\u4e00 \u30a0\u309f\u3040", "<|bos|>special<|eos|> <s>plain</s> <0x41>", "\u2581already\u2581here \u2581\u2581", "e\u0301\u0301 \u0301 \u093f",
    "The king had three sons, and the youngest of them was called Dummling.", " ?\u00a0! \u00a0\u00a0word  \u2003word\t word", "x \u0660 \u0661\u0662  12 \u00b2", "tab\tand\r\nCRLF\r\rCR\n\rLFCR",
]

MULTILINGUAL = [
    "The first thing the old woman did was to ask 3 questions; it's odd, isn't it? We'll see, I'm sure, they've 25 days.",
    "IT'S LOUD HERE. HE'D SAY SO! 2024-01-31, 12:34:56, 1,000,000 and 3.14159.",
    "Der alte M\u00f6nch \u00fcber den Flu\u00df: \u201eWie hei\u00dft du?\u201c \u2014 L'\u00e9t\u00e9 \u00e0 la for\u00eat, na\u00efve caf\u00e9. Ma\u00f1ana ser\u00e1 otro d\u00eda.",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442 \u043e \u0442\u043e\u043c, \u043a\u0430\u043a \u0432\u043e\u043b\u043a \u0438 \u043b\u0438\u0441\u0430 \u0436\u0438\u043b\u0438 \u0432 \u043b\u0435\u0441\u0443.",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\u72d0\u306f\u68ee\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002 \u4e2d\u6587\u6587\u672c\uff0c\u72d0\u72f8\u4f4f\u5728\u68ee\u6797\u91cc\u3002 \ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0643\u064a\u0641 \u0627\u0644\u062d\u0627\u0644 \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "def f(x):\n    return x + 1\n\nfor (int i = 0; i < n; ++i) { a[i] += 2; } // done\r\n\r\nhttps://example.org/a?b=c#d",
    "\U0001f600\U0001f602 \U0001f44d\U0001f3fd \u2764\ufe0f   spaces    and\t\ttabs\n\n\nnewlines  \n  here\u00a0\u00a0nbsp\u3000\u3000wide",
    "aaaaaaaaaaaaaaaa ======== -------- ........ !!!! ???? \u0661\u0662\u0663 \u0967\u0968\u0969 12 123 1234 12345 x\u00b2 \u00bd",
]


def corpus_chunks():
    """Chunks of several lines, so that merges over line ends, spaces and digits are learnt too."""
    text = open(corpus_path, encoding="utf-8").read()
    lines = text.split("\n")
    for i in range(0, len(lines), 4):
        yield "\n".join(lines[i:i + 4]) + "\n"
    for _ in range(30):
        yield from (m + "\n\n" for m in MULTILINGUAL)


def write(name, value):
    path = os.path.join(out, name)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")
    print(name, os.path.getsize(path))


def pre_tokenizer(rules):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r), "isolated") for r in rules] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def make_bpe():
    # Merges that cross every boundary a split rule may draw: a wrong split changes the ids.
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\s\S]{1,24}"), "isolated"),
                                                 pre_tokenizers.ByteLevel(False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=2300, special_tokens=["<|bos|>", "<|eos|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(corpus_chunks(), trainer)
    model = json.loads(tok.to_str())["model"]
    # words that no merge can make: only a tokeniser with ignore_merges finds them
    vocab, merges = model["vocab"], model["merges"]
    for word in ["\u0120youngest", "Pneumonoultramicroscopicsilicovolcanoconiosis" * 3, "\u0120McDonald"]:
        assert word not in vocab
        vocab[word] = len(vocab)
    tokens = [t for t, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
    assert [vocab[t] for t in tokens] == list(range(len(tokens)))
    write("bpe_vocab.json", {"tokens": tokens, "merges": [a + " " + b for a, b in merges]})
    golden = {}
    for name, rules in RULES.items():
        ref = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in merges], ignore_merges=name in ("llama-bpe", "tekken", "kimi-k2")))
        ref.pre_tokenizer = pre_tokenizer(rules)
        split_only = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in rules])
        golden[name] = {
            "ids": [ref.encode(t, add_special_tokens=False).ids for t in TEXTS],
            # lengths in code points of the pieces that the split rule makes
            "splits": [[b - a for _, (a, b) in split_only.pre_tokenize_str(t)] for t in TEXTS],
        }
    write("bpe_golden.json", {"texts": TEXTS, "rules": golden})


def make_spm():
    with tempfile.TemporaryDirectory() as d:
        text = os.path.join(d, "corpus.txt")
        with open(text, "w", encoding="utf-8", newline="\n") as f:
            for c in corpus_chunks():
                f.write(c)
        golden = {"texts": TEXTS, "models": {}}
        for name, dummy, user in [("prefix", True, []), ("no_prefix", False, ["<think>", "<thinking>", "[tool]"])]:
            spm.SentencePieceTrainer.train(
                input=text, model_prefix=os.path.join(d, name), model_type="bpe", vocab_size=1200, byte_fallback=True,
                normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=dummy,
                character_coverage=0.9995, split_digits=True, allow_whitespace_only_pieces=True, num_threads=1,
                user_defined_symbols=user, minloglevel=2)
            sp = spm.SentencePieceProcessor(model_file=os.path.join(d, name + ".model"))
            n = sp.get_piece_size()
            pieces = [sp.id_to_piece(i) for i in range(n)]
            types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 4 if pieces[i] in user else 1 for i in range(n)]
            write(f"spm_{name}_vocab.json", {"tokens": pieces, "scores": [sp.get_score(i) for i in range(n)], "types": types, "space_prefix": dummy})
            texts = TEXTS if dummy else TEXTS + ["a<think>b <thinking>c[tool][tool", "<think><thinking>", " <think> x"]
            golden["models"][name] = {"texts": texts[len(TEXTS):], "ids": [sp.encode(t) for t in texts], "decoded": [sp.decode(sp.encode(t)) for t in texts]}
        write("spm_golden.json", golden)


def make_tiny():
    from gguf import GGUFReader
    r = GGUFReader(gguf_path)
    get = lambda k: r.fields["tokenizer.ggml." + k].contents()
    write("tiny_gguf_vocab.json", {k: get(k) for k in ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "add_bos_token") if "tokenizer.ggml." + k in r.fields})
    t = json.load(open(tokenizer_json, encoding="utf-8"))
    write("tiny_tokenizer.json", t)
    write("tiny_cases.json", json.load(open(reference_json, encoding="utf-8"))["tokenizer_cases"])


def make_sampling():
    """Draws of an independent implementation of the sampler, in Python's binary64."""
    import math, struct
    M = (1 << 64) - 1
    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
        return z ^ (z >> 31)
    f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    def logits(n, salt):
        # multiples of 1/64 with many ties, exact in binary32
        return [((mix((i * 7919 + salt) & M) >> 40) % 1024 - 512) / 64.0 for i in range(n)]
    def run(o, n, steps):
        history, got = [i * 37 % n for i in range(o["prompt"])], []
        for step in range(steps):
            l = logits(n, o["seed"] + step)
            last = set(history[max(0, len(history) - o["repeat_last_n"]):]) if o["repeat_last_n"] else set()
            if o["repeat_penalty"] != 1.0:
                for i in last:
                    l[i] = f32(l[i] * f32(o["repeat_penalty"])) if l[i] <= 0 else f32(l[i] / f32(o["repeat_penalty"]))
            order = sorted(range(n), key=lambda i: (-l[i], i))
            if o["temperature"] == 0:
                got.append(order[0]); history.append(order[0]); continue
            if o["top_k"]: order = order[:o["top_k"]]
            top = l[order[0]]
            w = [math.exp(l[i] - top) for i in order]
            p = f32(o["top_p"])
            if p < 1:
                total = 0.0
                for x in w: total += x
                acc, keep = 0.0, len(w)
                for k, x in enumerate(w):
                    acc += x
                    if acc >= p * total: keep = k + 1; break
                order, w = order[:keep], w[:keep]
            mp = f32(o["min_p"])
            keep = max(1, sum(1 for x in w if x >= mp))
            order = order[:keep]
            t = f32(o["temperature"])
            w = [math.exp((l[i] - top) / t) for i in order]
            total = 0.0
            for x in w: total += x
            # the number belongs to the position in the sequence, the prompt counted
            z = mix((mix(o["seed"]) + (len(history) + 1) * 0x9E3779B97F4A7C15) & M)
            target = (z >> 11) * 2.0 ** -53 * total
            acc, pick = 0.0, order[-1]
            for i, x in zip(order, w):
                acc += x
                if acc > target: pick = i; break
            got.append(pick); history.append(pick)
        return got
    base = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0, "repeat_last_n": 64, "seed": 1, "prompt": 0}
    cases = []
    for change in [{}, {"seed": 2**64 - 1}, {"temperature": 0.0}, {"temperature": 2.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}, {"top_k": 1}, {"top_p": 0.3},
                   {"min_p": 0.5}, {"repeat_penalty": 1.3}, {"repeat_penalty": 1.3, "repeat_last_n": 4, "temperature": 0.0}, {"temperature": 0.05, "top_k": 0},
                   {"prompt": 190}, {"prompt": 7, "repeat_penalty": 1.3}]:
        o = base | change
        cases.append({"options": o, "vocab": 300, "ids": run(o, 300, 40)})
    write("sampling_golden.json", cases)


make_bpe(); make_spm(); make_tiny(); make_sampling()
