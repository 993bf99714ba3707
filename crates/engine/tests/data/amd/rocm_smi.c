/* Stands in for librocm_smi64.so in tests: one MI210 at 0000:c3:00.0, whose used memory it does not tell. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int rsmi_init(uint64_t flags) { return flags == 0 ? 0 : 1; }
int rsmi_shut_down(void) { return 0; }

int rsmi_num_monitor_devices(uint32_t *count) {
    *count = 1;
    return 0;
}

int rsmi_dev_pci_id_get(uint32_t gpu, uint64_t *address) {
    *address = 0xc300;
    return gpu == 0 ? 0 : 1;
}

int rsmi_dev_name_get(uint32_t gpu, char *name, size_t room) {
    snprintf(name, room, "Instinct MI210");
    return gpu == 0 ? 0 : 1;
}

int rsmi_dev_memory_total_get(uint32_t gpu, int type, uint64_t *bytes) {
    *bytes = 68702699520;
    return gpu == 0 && type == 0 ? 0 : 1;
}

int rsmi_dev_memory_usage_get(uint32_t gpu, int type, uint64_t *bytes) {
    (void)gpu, (void)type, (void)bytes;
    return 2;
}
