/* Stands in for libamd_smi.so in tests: one MI210 at 0000:c3:00.0. START is the status that amdsmi_init returns. */
#include <stdint.h>
#include <string.h>

static int socket_handle, gpu_handle;

int amdsmi_init(uint64_t flags) { return flags == 2 ? START : 1; }
int amdsmi_shut_down(void) { return 0; }

static int one(void *handle, uint32_t *count, void **handles) {
    if (handles && *count >= 1)
        handles[0] = handle;
    *count = 1;
    return 0;
}

int amdsmi_get_socket_handles(uint32_t *count, void **handles) { return one(&socket_handle, count, handles); }

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
    return socket == &socket_handle ? one(&gpu_handle, count, handles) : 1;
}

int amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *address) {
    *address = 0xc300;
    return gpu == &gpu_handle ? 0 : 1;
}

int amdsmi_get_gpu_asic_info(void *gpu, char *name) {
    strcpy(name, "AMD Instinct MI210");
    return gpu == &gpu_handle ? 0 : 1;
}

int amdsmi_get_gpu_memory_total(void *gpu, int type, uint64_t *bytes) {
    *bytes = 68702699520;
    return gpu == &gpu_handle && type == 0 ? 0 : 1;
}

int amdsmi_get_gpu_memory_usage(void *gpu, int type, uint64_t *bytes) {
    *bytes = 11116544;
    return gpu == &gpu_handle && type == 0 ? 0 : 1;
}
