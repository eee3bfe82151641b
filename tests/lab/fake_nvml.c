/* A libnvidia-ml.so.1 whose GPUs are lines of a text file, to test what asks NVML without one.
 *
 * The file is named by FAKE_NVML and read anew on every call, so that a fault can be switched on
 * while a program runs. A line is `key = value`, the last one of a key counts:
 *
 *   count = 8                      driver = 550.54.15            cuda = 12040
 *   gpu2.name = NVIDIA L4          and uuid, bus (0000:18:00.0), minor, capability (9.0), memory,
 *                                  used, compute_mode, mig, persistence; without gpuN. for all GPUs
 *   error.nvmlInit = 18            this call answers with that nvmlReturn_t
 *   gpu2.error = 15                every call about this GPU does
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

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7 };
enum { NO_GPU = -1, TEXT_MAX = 256 };

typedef struct gpu *gpu_t; /* the handle: its index + 1 */

static int users; /* nvmlInit without nvmlShutdown */

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
    return (int)about("error", call, gpu);
}

static int index_of(gpu_t gpu)
{
    return (int)((long)gpu - 1);
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
NUMBER(nvmlDeviceGetIndex, "index", index_of(gpu))
NUMBER(nvmlDeviceGetMinorNumber, "minor", index_of(gpu))
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)

CALL("nvmlDeviceGetUUID", nvmlDeviceGetUUID, (gpu_t gpu, char *out, unsigned size),
     char own[48];
     snprintf(own, sizeof own, "GPU-%08x-5f9e-4c1d-8a3b-0123456789ab", 0x1a2b3c00 + index_of(gpu));
     return text(index_of(gpu), "uuid", own, out, size);)

CALL("nvmlDeviceGetMigMode", nvmlDeviceGetMigMode, (gpu_t gpu, unsigned *now, unsigned *pending),
     *now = *pending = (unsigned)number(index_of(gpu), "mig", 0);)

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
     snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus,
              out->device);
     memcpy(out->old_bus_id, out->bus_id + 4, 13);)
