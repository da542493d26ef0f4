// Copies pages between any two memories that the device can address, mapped pinned host memory among them, and sums
// each page's checksum on the way: sum over 8-byte words i of mix64(word ^ mix64(key + i)), as the CPU's `checksum`.
//
// A job is {source, destination, bytes, slot, key}: addresses and bytes are multiples of 16. The checksum goes to
// checksums[slot]. A block takes the jobs blockIdx.x, blockIdx.x + gridDim.x, ...

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

// ---- Through a ring in shared memory, by bulk copies: one thread loads, one stores, the other warps sum.
// dynamic shared memory: at most 95744 bytes
//
// What a block moves in a second is the bytes it has in flight over the time of a round trip: so slots are small, and a
// page is cut into equal chunks that fill them.

#define SLOTS 22
#define SLOT_BYTES 4352u
#define HASH_WARPS 9 // a chunk has at most 272 vectors: one a thread
#define HASH_THREADS (32 * HASH_WARPS)
#ifndef STORES_IN_FLIGHT
#define STORES_IN_FLIGHT 8
#endif

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

struct Ring {
    u64 full[SLOTS];
    u64 empty[SLOTS];
    u64 partial[2][HASH_WARPS];
};

// Where in the ring a role is: every role walks through the same chunks of the same jobs.
struct Place {
    u32 slot;
    u32 parity;
    __device__ __forceinline__ void next() {
        if (++slot == SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// Into how many bytes a page is cut: equal multiples of 16, but for the last one.
__device__ __forceinline__ u32 chunk_bytes(u32 page_bytes) {
    u32 chunks = (page_bytes + SLOT_BYTES - 1) / SLOT_BYTES;
    return chunks == 0 ? SLOT_BYTES : ((page_bytes + chunks - 1) / chunks + 15) & ~15u;
}

__device__ __forceinline__ void load_chunks(const Job *jobs, u32 count, char *slots, Ring &ring) {
    Place place = {0, 1};
    for (u32 job = blockIdx.x; job < count; job += gridDim.x) {
        Job own = jobs[job];
        u32 chunk = chunk_bytes(own.bytes);
        for (u32 done = 0; done < own.bytes; done += chunk) {
            u32 bytes = own.bytes - done < chunk ? own.bytes - done : chunk;
            u64 *full = &ring.full[place.slot];
            wait(&ring.empty[place.slot], place.parity);
            asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}"
                         :: "r"(shared(full)), "r"(bytes) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                         :: "r"(shared(slots + place.slot * SLOT_BYTES)), "l"((const char *)own.source + done),
                            "r"(bytes), "r"(shared(full)) : "memory");
            place.next();
        }
    }
}

__device__ __forceinline__ void store_chunks(const Job *jobs, u32 count, const char *slots, Ring &ring) {
    Place place = {0, 0};
    u64 chunks = 0;
    u32 oldest = 0;
    for (u32 job = blockIdx.x; job < count; job += gridDim.x) {
        Job own = jobs[job];
        u32 chunk = chunk_bytes(own.bytes);
        for (u32 done = 0; done < own.bytes; done += chunk) {
            u32 bytes = own.bytes - done < chunk ? own.bytes - done : chunk;
            wait(&ring.full[place.slot], place.parity);
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         :: "l"((char *)own.destination + done), "r"(shared(slots + place.slot * SLOT_BYTES)),
                            "r"(bytes) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            place.next();
            // The store before the last ones has read its slot: give it back.
            if (++chunks > STORES_IN_FLIGHT) {
                asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(STORES_IN_FLIGHT) : "memory");
                arrive(&ring.empty[oldest]);
                oldest = oldest + 1 == SLOTS ? 0 : oldest + 1;
            }
        }
    }
    // Written, not only read: the kernel's end must mean that the bytes are there.
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ void sum_chunks(const Job *jobs, u32 count, const char *slots, Ring &ring, u64 *checksums) {
    Place place = {0, 0};
    u32 thread = threadIdx.x - 64, warp = thread >> 5, lane = thread & 31, turn = 0;
    for (u32 job = blockIdx.x; job < count; job += gridDim.x, turn ^= 1) {
        Job own = jobs[job];
        u32 chunk = chunk_bytes(own.bytes);
        u64 sum = 0;
        for (u32 done = 0; done < own.bytes; done += chunk) {
            u32 bytes = own.bytes - done < chunk ? own.bytes - done : chunk;
            // While the bytes are on their way.
            u64 at = own.key + 2 * (u64)(done / 16 + thread), low = mix64(at), high = mix64(at + 1);
            wait(&ring.full[place.slot], place.parity);
            if (thread < bytes / 16) {
                uint4 v = ((const uint4 *)(slots + place.slot * SLOT_BYTES))[thread];
                sum += mix64((v.x | (u64)v.y << 32) ^ low) + mix64((v.z | (u64)v.w << 32) ^ high);
            }
            // Every thread, not one for its warp: so that a race checker can follow.
            arrive(&ring.empty[place.slot]);
            place.next();
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            ring.partial[turn][warp] = sum;
        }
        // Two tables in turn, so that one barrier a job is enough.
        asm volatile("bar.sync 1, %0;" :: "n"(HASH_THREADS) : "memory");
        if (thread == 0) {
            u64 of_page = 0;
#pragma unroll
            for (int i = 0; i < HASH_WARPS; i++) {
                of_page += ring.partial[turn][i];
            }
            checksums[own.slot] = of_page;
        }
    }
}

// 352 threads.
extern "C" __global__ void __launch_bounds__(64 + HASH_THREADS) page_copy_ring(const Job *jobs, u32 count, u64 *checksums) {
    extern __shared__ __align__(128) char slots[];
    __shared__ Ring ring;
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(&ring.full[i], 1);
            barrier_init(&ring.empty[i], 1 + HASH_THREADS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        load_chunks(jobs, count, slots, ring);
    } else if (threadIdx.x == 32) {
        store_chunks(jobs, count, slots, ring);
    } else if (threadIdx.x >= 64) {
        sum_chunks(jobs, count, slots, ring, checksums);
    }
    // Nobody leaves while a copy into the block's memory is on its way.
    __syncthreads();
}
