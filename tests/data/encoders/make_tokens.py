#!/usr/bin/env python3
"""Makes the small tokenizers of tests/models/encoders.rs and records what their own programs make of texts.

    python3 make_tokens.py                # needs sentencepiece, tokenizers, transformers

unigram.json: what transformers' XLMRobertaTokenizer makes of a sentencepiece model trained here, with a map of a few characters
in the place of NFKC's (which takes 300 KB). bytes.json: byte-level BPE with RoBERTa's ends, trained by tokenizers. tokens.json:
texts, and their ids by sentencepiece itself (its ids as fairseq counts them: one higher, <s> 0, <pad> 1, </s> 2, <unk> 3), and by
transformers.
"""
import io, json, os, tempfile
import sentencepiece, tokenizers, transformers
from tokenizers import ByteLevelBPETokenizer
from transformers import RobertaTokenizerFast, XLMRobertaTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
# from, to: code points. White space as sentencepiece's own map has it; full width, ligatures, fractions, composed accents
MAP = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": " ", "\u00bd": "1\u20442", "\ufb01": "fi",
       "e\u0301": "\u00e9", "n\u0303": "\u00f1", "\u2026": "...", "\u2460": "1", "\u00ad": ""}
MAP |= {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}
CORPUS = [
    "Once upon a time there was a king who had three sons, and the youngest of them was called Simpleton.",
    "The quick brown fox jumps over the lazy dog, again and again; nobody knows why.",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund, immer wieder.",
    "Le petit chat est tomb\u00e9 de la fen\u00eatre, mais il est encore en vie; quel bonheur!",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440, \u043a\u0430\u043a \u0434\u0435\u043b\u0430 \u0441\u0435\u0433\u043e\u0434\u043d\u044f?",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "El ni\u00f1o come una manzana roja en el jard\u00edn de su abuela.",
    "Quarterly revenue grew by 12.5%, to $3.4 billion, in 2023.",
]
TEXTS = [
    "", " ", "a", "Once upon a time", "  leading and   many    spaces ", "tab\tand\nnew\r\nlines", "\u00a0hard\u3000space",
    "\uff26\uff35\uff2c\uff2c \uff57\uff49\uff44\uff54\uff48 \uff11\uff12", "\u00bd \ufb01ne caf\u00e9 cafe\u0301 \u2026 \u2460",
    "\u00fcber den faulen Hund", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u4f60\u597d\u4e16\u754c", "\u4eca\u5929 weather \u597d",
    "\u0645\u0631\u062d\u0628\u0627 unknown \U0001f600\U0001f600 letters \u0416\u0416", "\u2581already \u2581 a block", "x" * 40, "antidisestablishmentarianism",
    "12.5% of $3.4", "soft\u00adhyphen", "e\u0301e\u0301e\u0301", "The King's sons, don't they?", "a\u200bb",
]
SPECIAL = ["<s>", "</s> is written", "a <mask> here", "<unk><pad>", "Once<s>upon"]


def unigram(work):
    rules = os.path.join(work, "rules.tsv")
    with open(rules, "w") as f:
        for a, b in sorted(MAP.items()):
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 20), model_writer=model, vocab_size=240, model_type="unigram",
        character_coverage=0.995, normalization_rule_tsv=rules, minloglevel=2, num_threads=1, hard_vocab_limit=False)
    with open(os.path.join(work, "sentencepiece.bpe.model"), "wb") as f:
        f.write(model.getvalue())
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>",
             "pad_token": "<pad>", "mask_token": "<mask>"}
    with open(os.path.join(work, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "XLMRobertaTokenizer", **names}, f)
    fast = XLMRobertaTokenizer.from_pretrained(work)
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def ids(text):
        return [0] + [i + 1 if i else 3 for i in own.encode(text)] + [2]

    return fast, ids


def bytes_(work):
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS * 20, vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False)
    bpe.save_model(work)
    with open(os.path.join(work, "vocab.json")) as f:
        vocab = json.load(f)
    vocab["<mask>"] = len(vocab)
    with open(os.path.join(work, "vocab.json"), "w") as f:
        json.dump(vocab, f)
    return RobertaTokenizerFast.from_pretrained(work)


out = {"versions": {"sentencepiece": sentencepiece.__version__, "tokenizers": tokenizers.__version__, "transformers": transformers.__version__}}
with tempfile.TemporaryDirectory() as work:
    fast, own = unigram(work)
    fast.backend_tokenizer.save(os.path.join(HERE, "unigram.json"), pretty=False)
    out["unigram"] = {"texts": TEXTS, "sentencepiece": [own(t) for t in TEXTS], "transformers": [fast(t)["input_ids"] for t in TEXTS],
                      "special": SPECIAL, "parsed": [fast(t)["input_ids"] for t in SPECIAL], "plain": [own(t) for t in SPECIAL]}
with tempfile.TemporaryDirectory() as work:
    fast = bytes_(work)
    fast.backend_tokenizer.save(os.path.join(HERE, "bytes.json"), pretty=False)
    out["bytes"] = {"texts": TEXTS, "transformers": [fast(t)["input_ids"] for t in TEXTS],
                    "special": SPECIAL, "parsed": [fast(t)["input_ids"] for t in SPECIAL],
                    "plain": [fast(t, split_special_tokens=True)["input_ids"] for t in SPECIAL]}
for text, a, b in zip(TEXTS, out["unigram"]["sentencepiece"], out["unigram"]["transformers"]):
    if a != b:
        print("sentencepiece and transformers differ:", repr(text), a, b)
with open(os.path.join(HERE, "tokens.json"), "w") as f:
    json.dump(out, f)
