/* What joins the GPUs of the fake NVML; part of fake_nvml.c, which says what the lines are.
 *
 *   links = 18                     links that a GPU has; 18 by default of models whose board joins
 *                                  its GPUs, as of the H100 that all are by default, else 0
 *   gpu2.link4.state = 0           1 by default;  link_state for all links
 *   gpu2.link4.remote = 0000:28:00.0, remote_type (0 a GPU, 2 a switch: the default); both also
 *                                  without linkN. for all links
 *   nvlink_version = 4
 *   p2p = 0                        nvmlGpuP2PStatus_t of all pairs, p2p_nvlink over NVLink
 *   gpu0.p2p.3 = 4                 of one pair, whichever is asked first
 *   topology = 50, gpu0.topology.1 = 10 */

enum { P2P_NVLINK = 2 };

/* `linkN.key` of a GPU when there is one, else `link_key`. */
static int link_text(int gpu, unsigned link, const char *key, char *value)
{
    char own[TEXT_MAX];

    snprintf(own, sizeof own, "link%u.%s", link, key);
    if (look_up_for(gpu, own, value))
        return 1;
    snprintf(own, sizeof own, "link_%s", key);
    return look_up_for(gpu, own, value);
}

static long long link_number(int gpu, unsigned link, const char *key, long long otherwise)
{
    char value[TEXT_MAX];

    return link_text(gpu, link, key, value) ? strtoll(value, NULL, 0) : otherwise;
}

static unsigned links_of(int gpu)
{
    static const char *boards[] = {"80GB HBM3", "SXM", "H200", "B200"};
    char name[TEXT_MAX] = "";
    int joined;
    unsigned i;

    look_up_for(gpu, "name", name);
    joined = !*name;
    for (i = 0; i < sizeof boards / sizeof *boards; i++)
        joined |= strstr(name, boards[i]) != NULL;
    return (unsigned)number(gpu, "links", joined ? 18 : 0);
}

#define LINK(symbol, type, answer)                                   \
    CALL(#symbol, symbol, (gpu_t gpu, unsigned link, type *out),     \
         if (link >= links_of(index_of(gpu)))                        \
             return NOT_SUPPORTED;                                   \
         answer)

LINK(nvmlDeviceGetNvLinkState, unsigned,
     *out = (unsigned)link_number(index_of(gpu), link, "state", 1);)
LINK(nvmlDeviceGetNvLinkVersion, unsigned,
     *out = (unsigned)number(index_of(gpu), "nvlink_version", 4);)
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned,
     *out = (unsigned)link_number(index_of(gpu), link, "remote_type", 2);)

CALL("nvmlDeviceGetNvLinkRemotePciInfo", nvmlDeviceGetNvLinkRemotePciInfo_v2,
     (gpu_t gpu, unsigned link, struct pci *out),
     char place[TEXT_MAX] = "0000:c0:00.0";
     link_text(index_of(gpu), link, "remote", place);
     memset(out, 0, sizeof *out);
     if (sscanf(place, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
         return INVALID_ARGUMENT;
     snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus,
              out->device);)

/* A number of two GPUs: `gpuA.key.B` or `gpuB.key.A`, else `key`. */
static long long pair_number(int one, int other, const char *key, long long otherwise)
{
    char own[TEXT_MAX], value[TEXT_MAX];

    snprintf(own, sizeof own, "gpu%d.%s.%d", one, key, other);
    if (look_up(own, value))
        return strtoll(value, NULL, 0);
    snprintf(own, sizeof own, "gpu%d.%s.%d", other, key, one);
    if (look_up(own, value))
        return strtoll(value, NULL, 0);
    return number(NO_GPU, key, otherwise);
}

CALL("nvmlDeviceGetP2PStatus", nvmlDeviceGetP2PStatus,
     (gpu_t gpu, gpu_t other, unsigned index, unsigned *out),
     const char *key = index == P2P_NVLINK ? "p2p_nvlink" : "p2p";
     *out = (unsigned)pair_number(index_of(gpu), index_of(other), key, 0);)

CALL("nvmlDeviceGetTopologyCommonAncestor", nvmlDeviceGetTopologyCommonAncestor,
     (gpu_t gpu, gpu_t other, unsigned *out),
     *out = (unsigned)pair_number(index_of(gpu), index_of(other), "topology", 50);)
