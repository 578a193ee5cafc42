// A plugin of QEMU 7 for scripts/instructions: the AArch64 instructions that ran, and of these the dots and products of
// bytes.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// what is used of qemu-plugin.h, which distributions do not package
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *to, uint64_t by);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
void qemu_plugin_outs(const char *);

#define API __attribute__((visibility("default")))
API int qemu_plugin_version = 1;

static uint64_t all, bytes;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    size_t n = qemu_plugin_tb_n_insns(block), of_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t word = *(const uint32_t *)qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, i));
        int sdot = (word & 0xffe0fc00) == 0x4e809400, smmla = (word & 0xffe0fc00) == 0x4e80a400;
        of_bytes += sdot || smmla;
    }
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &all, n);
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &bytes, of_bytes);
}

static void ended(qemu_plugin_id_t id, void *none) {
    char line[80];
    snprintf(line, sizeof line, "counted %" PRIu64 " %" PRIu64 "\n", all, bytes);
    qemu_plugin_outs(line);
}

API int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
