/* A libnvidia-ml.so.1 whose GPUs are lines of a text file, to test what asks NVML without one.
 *
 * The file is named by FAKE_NVML and read anew on every call, so that a fault can be switched on
 * while a program runs. A line is `key = value`, the last one of a key counts:
 *
 *   count = 8                      driver = 550.54.15            cuda = 12040
 *   gpu2.name = NVIDIA L4          and uuid, bus (0000:18:00.0), minor, capability (9.0), memory,
 *                                  used, compute_mode, mig (mig_devices: how many instances, 1),
 *                                  persistence; without gpuN. for all GPUs
 *   gpu2.temperature = 34          and slowdown_at, memory_max (else not supported), width,
 *                                  width_max, ecc_volatile, ecc_aggregate, remap_rows, remap_pending, remap_failure, retired_pending,
 *                                  virtual; reasons (0x8), and reasons2 from the second time on;
 *                                  numa (else not supported); power_limit (mW), ecc, clock (MHz),
 *                                  generation_max, vbios, board, ecc_corrected
 *   gpu2.busy = 95                 percent; clock_now (MHz), power (mW)
 *   gpu2.field.230 = 1             a field value (field.ID.SCOPE for one scope), else not supported
 *   gpu2.processes = 4242:2147483648,77:0       pid:bytes of compute programs; graphics: of others
 *   fabric_state = 3               and fabric_status, fabric_mask, fabric_summary, fabric_clique,
 *                                  fabric_cluster (a text of up to 16 bytes); fabric_version: the
 *                                  newest structure that this driver knows, 3
 *   error.nvmlInit = 18            this call answers with that nvmlReturn_t
 *   gpu2.error = 15                every call about this GPU does
 *   gpu2.lost_after = 6            every call about this GPU after the sixth answers 15
 *   sleep_ms.CALL = 3000, hang.CALL = 1, crash.CALL = 1         each also as gpu2.sleep_ms.CALL …
 *
 * CALL is the name without the version that it may end in: nvmlDeviceGetCount. A function that is
 * missing here is to a caller what it is with an old driver: NVML_ERROR_FUNCTION_NOT_FOUND.
 * To add a call: one line with TEXT, NUMBER or CALL below. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    LOST = 15,
    VERSION_MISMATCH = 25
};
enum { NO_GPU = -1, TEXT_MAX = 256, GPUS_MAX = 64 };

typedef struct gpu *gpu_t; /* the handle: its index + 1 */

static int users; /* nvmlInit without nvmlShutdown */
static int calls[GPUS_MAX]; /* about each GPU so far */

/* --- the scenario --- */

/* The value of a key into `value` (TEXT_MAX bytes); 0 when the file has no such line. */
static int look_up(const char *key, char *value)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[2 * TEXT_MAX];
    int found = 0;

    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        char *sign = strstr(line, " = ");
        if (!sign)
            continue;
        *sign = '\0';
        if (strcmp(line, key) != 0)
            continue;
        sign[3 + strcspn(sign + 3, "\n")] = '\0';
        snprintf(value, TEXT_MAX, "%s", sign + 3);
        found = 1;
    }
    fclose(file);
    return found;
}

/* `gpuN.key` when there is one and a GPU is asked for, else `key`. */
static int look_up_for(int gpu, const char *key, char *value)
{
    char own[TEXT_MAX];

    snprintf(own, sizeof own, "gpu%d.%s", gpu, key);
    return (gpu != NO_GPU && look_up(own, value)) || look_up(key, value);
}

static long long number(int gpu, const char *key, long long otherwise)
{
    char value[TEXT_MAX];

    return look_up_for(gpu, key, value) ? strtoll(value, NULL, 0) : otherwise;
}

static int text(int gpu, const char *key, const char *otherwise, char *out, unsigned size)
{
    char value[TEXT_MAX];

    if (!look_up_for(gpu, key, value))
        snprintf(value, sizeof value, "%s", otherwise);
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

static long long about(const char *what, const char *call, int gpu)
{
    char key[TEXT_MAX];

    snprintf(key, sizeof key, "%s.%s", what, call);
    return number(gpu, key, 0);
}

/* What every call does first: misbehave as the scenario says, then the code to answer with. */
static int enter(const char *call, int gpu)
{
    char value[TEXT_MAX], key[TEXT_MAX];
    long long ms = about("sleep_ms", call, gpu);

    if (ms > 0)
        nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
    while (about("hang", call, gpu))
        usleep(10000);
    if (about("crash", call, gpu))
        raise(SIGSEGV);
    snprintf(key, sizeof key, "gpu%d.error", gpu);
    if (gpu != NO_GPU && look_up(key, value))
        return atoi(value);
    if (gpu != NO_GPU && gpu < GPUS_MAX && ++calls[gpu] > number(gpu, "lost_after", 1 << 30))
        return LOST;
    return (int)about("error", call, gpu);
}

enum { MIG_DEVICE = 256 }; /* its handle: that of its GPU, and this times its number + 1 */

static int index_of(gpu_t gpu)
{
    return (int)((long)gpu % MIG_DEVICE - 1);
}

static int mig_device_of(gpu_t gpu)
{
    return (int)((long)gpu / MIG_DEVICE - 1);
}

static int enter_gpu(const char *call, gpu_t gpu)
{
    if (!users)
        return UNINITIALIZED;
    if (!gpu || index_of(gpu) >= number(NO_GPU, "count", 0))
        return INVALID_ARGUMENT;
    return enter(call, index_of(gpu));
}

/* --- calls that follow a pattern --- */

/* A question about a GPU, with what it returns. */
#define CALL(call, symbol, parameters, answer) \
    int symbol parameters                      \
    {                                          \
        int code = enter_gpu(call, gpu);       \
        if (code != OK)                        \
            return code;                       \
        answer                                 \
        return OK;                             \
    }
#define TEXT(symbol, key, otherwise)                     \
    CALL(#symbol, symbol, (gpu_t gpu, char *out, unsigned size), \
         return text(index_of(gpu), key, otherwise, out, size);)
#define NUMBER(symbol, key, otherwise)            \
    CALL(#symbol, symbol, (gpu_t gpu, unsigned *out), \
         *out = (unsigned)number(index_of(gpu), key, otherwise);)

/* --- the library --- */

int nvmlInitWithFlags(unsigned flags)
{
    int code = enter("nvmlInit", NO_GPU);

    (void)flags;
    users += code == OK;
    return code;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return enter("nvmlShutdown", NO_GPU);
}

const char *nvmlErrorString(int code)
{
    return code == OK ? "Success" : "An error of the fake NVML";
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    int code = enter("nvmlSystemGetDriverVersion", NO_GPU);

    return code != OK ? code : text(NO_GPU, "driver", "550.54.15", out, size);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    return text(NO_GPU, "nvml", "12.550.54.15", out, size);
}

int nvmlSystemGetCudaDriverVersion(int *out)
{
    *out = (int)number(NO_GPU, "cuda", 12040);
    return enter("nvmlSystemGetCudaDriverVersion", NO_GPU);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    return nvmlSystemGetCudaDriverVersion(out);
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    if (!users)
        return UNINITIALIZED;
    *out = (unsigned)number(NO_GPU, "count", 0);
    return enter("nvmlDeviceGetCount", NO_GPU);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t *out)
{
    *out = (gpu_t)((long)index + 1);
    return enter_gpu("nvmlDeviceGetHandleByIndex", *out);
}

/* --- one GPU --- */

TEXT(nvmlDeviceGetName, "name", "NVIDIA H100 80GB HBM3")
TEXT(nvmlDeviceGetVbiosVersion, "vbios", "96.00.74.00.01")
NUMBER(nvmlDeviceGetIndex, "index", index_of(gpu))
NUMBER(nvmlDeviceGetMinorNumber, "minor", index_of(gpu))
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)

CALL("nvmlDeviceGetUUID", nvmlDeviceGetUUID, (gpu_t gpu, char *out, unsigned size),
     char own[48];
     if (mig_device_of(gpu) >= 0) {
         snprintf(out, size, "MIG-%08x-5f9e-4c1d-8a3b-%012x", 0x1a2b3c00 + index_of(gpu),
                  mig_device_of(gpu));
         return OK;
     }
     snprintf(own, sizeof own, "GPU-%08x-5f9e-4c1d-8a3b-0123456789ab", 0x1a2b3c00 + index_of(gpu));
     return text(index_of(gpu), "uuid", own, out, size);)

CALL("nvmlDeviceGetMigMode", nvmlDeviceGetMigMode, (gpu_t gpu, unsigned *now, unsigned *pending),
     *now = *pending = (unsigned)number(index_of(gpu), "mig", 0);)

CALL("nvmlDeviceGetMaxMigDeviceCount", nvmlDeviceGetMaxMigDeviceCount,
     (gpu_t gpu, unsigned *out),
     *out = number(index_of(gpu), "mig", 0) ? 7 : 0;)

CALL("nvmlDeviceGetMigDeviceHandleByIndex", nvmlDeviceGetMigDeviceHandleByIndex,
     (gpu_t gpu, unsigned index, gpu_t *out),
     if (index >= number(index_of(gpu), "mig_devices", 1))
         return NOT_FOUND;
     *out = (gpu_t)((long)gpu + MIG_DEVICE * (index + 1));)

CALL("nvmlDeviceGetGpuInstanceId", nvmlDeviceGetGpuInstanceId, (gpu_t gpu, unsigned *out),
     *out = 7 + mig_device_of(gpu);)

CALL("nvmlDeviceGetComputeInstanceId", nvmlDeviceGetComputeInstanceId, (gpu_t gpu, unsigned *out),
     *out = 0;)

CALL("nvmlDeviceGetCudaComputeCapability", nvmlDeviceGetCudaComputeCapability,
     (gpu_t gpu, int *major, int *minor),
     char version[TEXT_MAX];
     text(index_of(gpu), "capability", "9.0", version, sizeof version);
     if (sscanf(version, "%d.%d", major, minor) != 2)
         return INVALID_ARGUMENT;)

struct memory {
    unsigned long long total, free, used;
};

CALL("nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo, (gpu_t gpu, struct memory *out),
     out->total = (unsigned long long)number(index_of(gpu), "memory", 85520809984LL);
     out->used = (unsigned long long)number(index_of(gpu), "used", 524288000LL);
     out->free = out->total - out->used;)

struct pci {
    char old_bus_id[16];
    unsigned domain, bus, device, model, subsystem;
    char bus_id[32];
};

/* by default the GPUs lie at 0000:18:00.0, 0000:28:00.0 … */
CALL("nvmlDeviceGetPciInfo", nvmlDeviceGetPciInfo_v3, (gpu_t gpu, struct pci *out),
     char own[32];
     char place[TEXT_MAX];
     snprintf(own, sizeof own, "0000:%02x:00.0", 0x18 + 0x10 * index_of(gpu));
     text(index_of(gpu), "bus", own, place, sizeof place);
     memset(out, 0, sizeof *out);
     if (sscanf(place, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
         return INVALID_ARGUMENT;
     out->model = 0x233010de;
     out->subsystem = (unsigned)number(index_of(gpu), "board", 0x16c110de);
     snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus,
              out->device);
     memcpy(out->old_bus_id, out->bus_id + 4, 13);)

/* --- what it does --- */

CALL("nvmlDeviceGetUtilizationRates", nvmlDeviceGetUtilizationRates,
     (gpu_t gpu, unsigned out[2]),
     out[0] = (unsigned)number(index_of(gpu), "busy", 0);
     out[1] = out[0] / 2;)

/* of the SMs only */
CALL("nvmlDeviceGetClockInfo", nvmlDeviceGetClockInfo, (gpu_t gpu, int kind, unsigned *out),
     if (kind != 1)
         return NOT_SUPPORTED;
     *out = (unsigned)number(index_of(gpu), "clock_now", 1980);)

NUMBER(nvmlDeviceGetPowerUsage, "power", 600000)

/* --- how well it is --- */

NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "width_max", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "generation_max", 5)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit", 700000)

CALL("nvmlDeviceGetEccMode", nvmlDeviceGetEccMode, (gpu_t gpu, unsigned *now, unsigned *pending),
     *now = *pending = (unsigned)number(index_of(gpu), "ecc", 1);)

CALL("nvmlDeviceGetApplicationsClock", nvmlDeviceGetApplicationsClock,
     (gpu_t gpu, int kind, unsigned *out),
     (void)kind;
     *out = (unsigned)number(index_of(gpu), "clock", 1980);)

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", 0)
NUMBER(nvmlDeviceGetVirtualizationMode, "virtual", 0)

CALL("nvmlDeviceGetNumaNodeId", nvmlDeviceGetNumaNodeId, (gpu_t gpu, int *out),
     *out = (int)number(index_of(gpu), "numa", -1);
     if (*out < 0)
         return NOT_SUPPORTED;)

CALL("nvmlDeviceGetTemperature", nvmlDeviceGetTemperature, (gpu_t gpu, unsigned sensor, unsigned *out),
     (void)sensor;
     *out = (unsigned)number(index_of(gpu), "temperature", 34);)

CALL("nvmlDeviceGetTemperatureThreshold", nvmlDeviceGetTemperatureThreshold,
     (gpu_t gpu, unsigned which, unsigned *out),
     *out = (unsigned)number(index_of(gpu), which == 1 ? "slowdown_at" :
                             which == 2 ? "memory_max" : "shutdown_at",
                             which == 1 ? 87 : which == 2 ? 0 : 92);
     if (!*out)
         return NOT_SUPPORTED;)

CALL("nvmlDeviceGetTotalEccErrors", nvmlDeviceGetTotalEccErrors,
     (gpu_t gpu, unsigned uncorrected, unsigned aggregate, unsigned long long *out),
     const char *key = aggregate ? "ecc_aggregate" : "ecc_volatile";
     *out = (unsigned long long)number(index_of(gpu), uncorrected ? key : "ecc_corrected", 0);)

CALL("nvmlDeviceGetRemappedRows", nvmlDeviceGetRemappedRows,
     (gpu_t gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed),
     *corrected = 0;
     *uncorrected = (unsigned)number(index_of(gpu), "remap_rows", 0);
     *pending = (unsigned)number(index_of(gpu), "remap_pending", 0);
     *failed = (unsigned)number(index_of(gpu), "remap_failure", 0);)

/* 0x1: idle */
#define REASONS(symbol)                                                           \
    CALL(#symbol, symbol, (gpu_t gpu, unsigned long long *out),                   \
         static int asked[GPUS_MAX];                                              \
         int index = index_of(gpu) % GPUS_MAX;                                    \
         long long first = number(index_of(gpu), "reasons", 1);                   \
         *out = (unsigned long long)(asked[index]++ ?                             \
             number(index_of(gpu), "reasons2", first) : first);)
REASONS(nvmlDeviceGetCurrentClocksEventReasons)
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons)

struct field {
    unsigned id, scope;
    long long when, took;
    unsigned type, code;
    unsigned long long value;
};

CALL("nvmlDeviceGetFieldValues", nvmlDeviceGetFieldValues,
     (gpu_t gpu, int count, struct field *fields),
     for (int i = 0; i < count; i++) {
         char key[TEXT_MAX];
         char value[TEXT_MAX];
         snprintf(key, sizeof key, "field.%u.%u", fields[i].id, fields[i].scope);
         int found = look_up_for(index_of(gpu), key, value);
         snprintf(key, sizeof key, "field.%u", fields[i].id);
         found = found || look_up_for(index_of(gpu), key, value);
         fields[i].code = found ? OK : NOT_SUPPORTED;
         fields[i].type = 1; /* an unsigned int */
         fields[i].value = found ? strtoull(value, NULL, 0) : 0;
     })

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

/* What `key` lists as pid:bytes,… into an array with room for *count. */
static int processes(int gpu, const char *key, unsigned *count, struct process *out)
{
    char list[TEXT_MAX] = "";
    unsigned room = *count;

    *count = 0;
    look_up_for(gpu, key, list);
    for (char *one = strtok(list, ","); one; one = strtok(NULL, ",")) {
        struct process found = { 0, 0, ~0u, ~0u };
        if (sscanf(one, "%u:%llu", &found.pid, &found.memory) != 2)
            return INVALID_ARGUMENT;
        if (out && *count < room)
            out[*count] = found;
        ++*count;
    }
    return *count > room || (*count && !out) ? INSUFFICIENT_SIZE : OK;
}

CALL("nvmlDeviceGetComputeRunningProcesses", nvmlDeviceGetComputeRunningProcesses_v3,
     (gpu_t gpu, unsigned *count, struct process *out),
     return processes(index_of(gpu), "processes", count, out);)
CALL("nvmlDeviceGetGraphicsRunningProcesses", nvmlDeviceGetGraphicsRunningProcesses_v3,
     (gpu_t gpu, unsigned *count, struct process *out),
     return processes(index_of(gpu), "graphics", count, out);)

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned mask;
    unsigned char summary;
};

/* the version is the topmost byte, the size the others, as in nvml.h: 0x3000028 */
CALL("nvmlDeviceGetGpuFabricInfo", nvmlDeviceGetGpuFabricInfoV, (gpu_t gpu, struct fabric *out),
     unsigned version = out->version >> 24;
     if (version > number(NO_GPU, "fabric_version", 3))
         return VERSION_MISMATCH;
     char cluster[TEXT_MAX];
     text(index_of(gpu), "fabric_cluster", "", cluster, sizeof cluster);
     memset(out->cluster, 0, sizeof out->cluster);
     memcpy(out->cluster, cluster, strnlen(cluster, sizeof out->cluster));
     out->clique = (unsigned)number(index_of(gpu), "fabric_clique", 0);
     out->state = (unsigned char)number(index_of(gpu), "fabric_state", 0);
     out->status = (unsigned)number(index_of(gpu), "fabric_status", 0);
     out->mask = (unsigned)number(index_of(gpu), "fabric_mask", 0);
     if (version > 2)
         out->summary = (unsigned char)number(index_of(gpu), "fabric_summary", 0);)

#include "fake_nvml_links.h"
