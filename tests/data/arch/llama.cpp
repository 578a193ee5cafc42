// Logits of llama.cpp, for beside.py: `llama MODEL CONTEXT ID...` writes a row of f32 for each id to stdout. Weights as the
// file has them, a cache of f32, attention without the fused kernel (which takes keys and values as f16), steps of 48 ids.
#include "llama.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char ** argv) {
    const char * backends = getenv("GGML_BACKENDS");
    if (argc < 4 || !backends) {
        fprintf(stderr, "GGML_BACKENDS=FOLDER llama MODEL CONTEXT ID...\n");
        return 2;
    }
    std::vector<llama_token> ids;
    for (int i = 3; i < argc; i++) ids.push_back(atoi(argv[i]));
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    ggml_backend_load_all_from_path(backends);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    llama_context_params options = llama_context_default_params();
    options.n_ctx = options.n_batch = atoi(argv[2]);
    options.n_ubatch = 48;
    options.n_threads = options.n_threads_batch = 2;
    options.type_k = options.type_v = GGML_TYPE_F32;
    options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    options.swa_full = true;
    llama_context * context = llama_init_from_model(model, options);
    if (!context) return 1;
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (size_t from = 0; from < ids.size(); from += 48) {
        const int n = std::min<size_t>(48, ids.size() - from);
        llama_batch batch = llama_batch_init(n, 0, 1);
        batch.n_tokens = n;
        for (int i = 0; i < n; i++) {
            batch.token[i] = ids[from + i];
            batch.pos[i] = from + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch)) return 1;
        for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(context, i), sizeof(float), vocab, stdout);
        llama_batch_free(batch);
    }
    return 0;
}
