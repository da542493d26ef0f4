// Copies pages between any two memories that the device can address, mapped pinned host memory among them, and sums
// each page's checksum on the way: sum over 8-byte words i of mix64(word ^ mix64(key + i)), as the CPU's `checksum`.
//
// A job is {source, destination, bytes, slot, key}: addresses and bytes are multiples of 16. The checksum goes to
// checksums[slot].

typedef unsigned int u32;
typedef unsigned long long u64;

struct Job {
    const uint4 *source;
    uint4 *destination;
    u32 bytes;
    u32 slot;
    u64 key;
};

__device__ __forceinline__ u64 mix64(u64 word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ word >> 27) * 0x94d049bb133111ebull;
    return word ^ word >> 31;
}

// The terms of the two words of vector i.
__device__ __forceinline__ u64 terms(uint4 v, u64 key, u32 i) {
    u64 low = v.x | (u64)v.y << 32, high = v.z | (u64)v.w << 32;
    u64 at = key + 2 * (u64)i;
    return mix64(low ^ mix64(at)) + mix64(high ^ mix64(at + 1));
}

__device__ __forceinline__ u64 warp_sum(u64 v) {
    for (int step = 16; step > 0; step >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, step);
    }
    return v;
}

__device__ __forceinline__ uint4 load(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ void store(uint4 *at, uint4 v) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Through registers: four 16-byte vectors in flight a thread. 512 threads.
extern "C" __global__ void __launch_bounds__(512) page_copy_registers(const Job *jobs, u32 count, u64 *checksums) {
    __shared__ u64 partial[16];
    for (u32 job = blockIdx.x; job < count; job += gridDim.x) {
        Job own = jobs[job];
        u32 vectors = own.bytes / 16;
        u64 sum = 0;
        u32 i = threadIdx.x;
        for (; i + 3 * 512 < vectors; i += 4 * 512) {
            uint4 v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = load(own.source + i + j * 512);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                store(own.destination + i + j * 512, v[j]);
                sum += terms(v[j], own.key, i + j * 512);
            }
        }
        // What is left of the page: three rounds at most, their loads together.
        uint4 v[3];
#pragma unroll
        for (int j = 0; j < 3; j++) {
            if (i + j * 512 < vectors) {
                v[j] = load(own.source + i + j * 512);
            }
        }
#pragma unroll
        for (int j = 0; j < 3; j++) {
            if (i + j * 512 < vectors) {
                store(own.destination + i + j * 512, v[j]);
                sum += terms(v[j], own.key, i + j * 512);
            }
        }
        sum = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) {
            partial[threadIdx.x >> 5] = sum;
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            sum = warp_sum(threadIdx.x < 16 ? partial[threadIdx.x] : 0);
            if (threadIdx.x == 0) {
                checksums[own.slot] = sum;
            }
        }
        __syncthreads();
    }
}

// ---- Through a ring in shared memory, by bulk copies: one thread loads, one stores, eleven warps sum.
// dynamic shared memory: at most 95744 bytes
//
// What a block moves in a second is the bytes it has in flight over the time of a round trip: so slots are small, a page
// is cut into equal chunks that fill them, and each warp sums a chunk of its own while others sum the next ones. The
// loader alone reads jobs, a window of them by one bulk copy while it works on the window before; what the others must
// know of a chunk lies beside it.

#define SLOTS 22
#define SLOT_BYTES 4352u
#define HASH_WARPS 11
#define STORES_IN_FLIGHT 8
#define PAGES 64 // more than have chunks in the ring
#define WINDOW 32

// A barrier tells phases apart by parity only, so whoever waits for a slot must have waited for the chunk before in that slot.
// A warp that skipped it, because it was another warp's, could come while that chunk is still on its way (loads land in any
// order), take it for its own, and give the slot back twice: sums are wrong then, or the block hangs.
static_assert(SLOTS % HASH_WARPS == 0, "each slot belongs to one warp");

__device__ __forceinline__ u32 shared(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void barrier_init(u64 *barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ void arrive(u64 *barrier) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" :: "r"(shared(barrier)) : "memory");
}

__device__ __forceinline__ void wait(u64 *barrier, u32 parity) {
    asm volatile("{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again;}"
                 :: "r"(shared(barrier)), "r"(parity) : "memory");
}

// What lies in a slot.
struct Chunk {
    char *destination;
    u64 key; // of its first word
    u32 bytes;
    u32 slot;   // of the page's checksum
    u32 page;   // a number of the page, below PAGES
    u32 chunks; // of the page; 0: no more chunks come
};

struct Ring {
    u64 full[SLOTS];
    u64 empty[SLOTS];
    Chunk chunks[SLOTS];
    u64 sums[PAGES];    // of the chunks of a page so far
    u32 counted[PAGES]; // how many these are
    __align__(16) Job jobs[2][WINDOW];
    u64 read[2]; // a window of jobs is there
};

// Where in the ring a role is.
struct Place {
    u32 slot;
    u32 parity;

    __device__ __forceinline__ void advance(u32 by) {
        slot += by;
        if (slot >= SLOTS) {
            slot -= SLOTS;
            parity ^= 1;
        }
    }
};

// A bulk copy into shared memory, or nothing, that ends a phase of the barrier.
__device__ __forceinline__ void fetch(void *to, const void *from, u32 bytes, u64 *barrier) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}"
                 :: "r"(shared(barrier)), "r"(bytes) : "memory");
    if (bytes) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(shared(to)), "l"(from), "r"(bytes), "r"(shared(barrier)) : "memory");
    }
}

__device__ __forceinline__ void put(Ring &ring, char *slots, Place &place, const char *source, Chunk chunk) {
    wait(&ring.empty[place.slot], place.parity);
    ring.chunks[place.slot] = chunk;
    fetch(slots + place.slot * SLOT_BYTES, source, chunk.bytes, &ring.full[place.slot]);
    place.advance(1);
}

// Jobs begin..end as far as a window goes; how many.
__device__ __forceinline__ u32 read_jobs(Ring &ring, u32 window, const Job *jobs, u32 begin, u32 end) {
    u32 count = begin >= end ? 0 : end - begin < WINDOW ? end - begin : WINDOW;
    // What was read from the window before must have been read.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    fetch(ring.jobs[window], jobs + begin, count * (u32)sizeof(Job), &ring.read[window]);
    return count;
}

__device__ __forceinline__ void load_chunks(const Job *jobs, u32 count, char *slots, Ring &ring) {
    Place place = {0, 1};
    u32 page = 0, bytes_before = ~0u, chunks = 1, most = 0, window = 0, parity = 0;
    u32 begin = (u64)count * blockIdx.x / gridDim.x, end = (u64)count * (blockIdx.x + 1) / gridDim.x;
    for (u32 here = read_jobs(ring, 0, jobs, begin, end), there; here; here = there, parity ^= window, window ^= 1) {
        begin += here;
        there = read_jobs(ring, window ^ 1, jobs, begin, end);
        wait(&ring.read[window], parity);
        for (u32 job = 0; job < here; job++, page = (page + 1) % PAGES) {
            Job own = ring.jobs[window][job];
            // Divisions take long, and pages are mostly of one size.
            if (own.bytes != bytes_before) {
                bytes_before = own.bytes;
                chunks = own.bytes <= SLOT_BYTES ? 1 : (own.bytes + SLOT_BYTES - 1) / SLOT_BYTES;
                // Whole lines of memory: a link moves parts of lines no faster.
                most = ((own.bytes + chunks - 1) / chunks + 127) & ~127u;
                chunks = own.bytes <= most ? 1 : (own.bytes + most - 1) / most;
            }
            for (u32 i = 0, done = 0; i < chunks; i++, done += most) {
                u32 bytes = own.bytes - done < most ? own.bytes - done : most;
                put(ring, slots, place, (const char *)own.source + done,
                    {(char *)own.destination + done, own.key + done / 8, bytes, own.slot, page, chunks});
            }
        }
    }
    // One end for each warp that sums.
    for (u32 i = 0; i < HASH_WARPS; i++) {
        put(ring, slots, place, 0, {0, 0, 0, 0, 0, 0});
    }
}

__device__ __forceinline__ void store_chunks(const char *slots, Ring &ring) {
    Place place = {0, 0};
    u32 chunks = 0, oldest = 0;
    for (;; place.advance(1)) {
        wait(&ring.full[place.slot], place.parity);
        const Chunk &chunk = ring.chunks[place.slot];
        if (chunk.chunks == 0) {
            break;
        }
        if (chunk.bytes) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         :: "l"(chunk.destination), "r"(shared(slots + place.slot * SLOT_BYTES)), "r"(chunk.bytes)
                         : "memory");
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        // The store before the last ones has read its slot: give it back.
        if (chunks == STORES_IN_FLIGHT) {
            asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(STORES_IN_FLIGHT) : "memory");
            arrive(&ring.empty[oldest]);
            oldest = oldest + 1 == SLOTS ? 0 : oldest + 1;
        } else {
            chunks++;
        }
    }
    // The ends that follow have slots of their own to come.
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    for (; chunks; chunks--) {
        arrive(&ring.empty[oldest]);
        oldest = oldest + 1 == SLOTS ? 0 : oldest + 1;
    }
    // Written, not only read: the kernel's end must mean that the bytes are there.
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// The chunks of a warp's slots, in the calling warp. The warp that sums the last chunk of a page writes the page's checksum.
__device__ __forceinline__ void sum_chunks(const char *slots, Ring &ring, u64 *checksums, u32 warp) {
    u32 lane = threadIdx.x & 31;
    for (Place place = {warp, 0};; place.advance(HASH_WARPS)) {
        wait(&ring.full[place.slot], place.parity);
        Chunk chunk = ring.chunks[place.slot];
        if (chunk.chunks == 0) {
            return;
        }
        const uint4 *slot = (const uint4 *)(slots + place.slot * SLOT_BYTES);
        u64 sum = 0;
        u32 i = lane;
        // Rows of the whole warp, so that all lanes go the same way, and then what is left.
#pragma unroll 4
        for (u32 rows = chunk.bytes / 512; rows; rows--, i += 32) {
            sum += terms(slot[i], chunk.key, i);
        }
        if (i < chunk.bytes / 16) {
            sum += terms(slot[i], chunk.key, i);
        }
        // All lanes have read the slot and what lies beside it.
        __syncwarp();
        if (lane == 0) {
            arrive(&ring.empty[place.slot]);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            atomicAdd(&ring.sums[chunk.page], sum);
            __threadfence_block();
            if (atomicAdd(&ring.counted[chunk.page], 1u) + 1 == chunk.chunks) {
                __threadfence_block();
                // For the next page of this number, which comes when this one's chunks have left the ring.
                checksums[chunk.slot] = atomicExch(&ring.sums[chunk.page], 0ull);
                ring.counted[chunk.page] = 0;
            }
        }
    }
}

// 416 threads.
extern "C" __global__ void __launch_bounds__(64 + 32 * HASH_WARPS) page_copy_ring(const Job *jobs, u32 count, u64 *checksums) {
    extern __shared__ __align__(128) char slots[];
    __shared__ Ring ring;
    if (threadIdx.x < PAGES) {
        ring.sums[threadIdx.x] = 0;
        ring.counted[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) {
        barrier_init(&ring.read[0], 1);
        barrier_init(&ring.read[1], 1);
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(&ring.full[i], 1);
            // The store, and the warp that sums.
            barrier_init(&ring.empty[i], 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        load_chunks(jobs, count, slots, ring);
    } else if (threadIdx.x == 32) {
        store_chunks(slots, ring);
    } else if (threadIdx.x >= 64) {
        sum_chunks(slots, ring, checksums, threadIdx.x / 32 - 2);
    }
    // Nobody leaves while a copy into the block's memory is on its way.
    __syncthreads();
}
