// The positions of the k largest logits of each row, exactly: ascending, ties to the lowest position, -0 equals +0, all
// NaN equal and below -infinity. Same bits as the CPU's `top_k`, and the same however many blocks a row has.
//
// A radix select over the whole row, 11 + 11 + 10 bits from the top. No candidates are collected, so that no buffer can
// overflow. Counts are integers, so that the order of atomic additions does not matter.
//
// A row belongs to one cluster of 1 to 16 blocks. Each block has one part of the row, and keeps it in registers if it
// has at most 16,384 logits; a longer part is read again in each pass. Blocks add up their counts through each other's
// shared memory. A cluster is scheduled as a whole, and all of its threads come to all of its barriers.
//
// Rows shorter than k give all their positions and then -1. A length is taken as 0 if negative, and cut to len_max.
// stats[row] = {NaN logits, logits left out although they equal the smallest selected one}.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 1024
#define WARPS 32
#define VECTORS 4 // of four logits, that a thread keeps
#define CHUNK (THREADS * VECTORS * 4)
#define BINS 2048
#define BLOCKS_MAX 16
#define ALL 0xffffffffu

// One of the three digits of a rank.
struct Digit {
    u32 shift, mask, above; // above: the bits of all digits before this one

    __device__ __forceinline__ explicit Digit(int pass)
        : shift(pass == 0 ? 21 : pass == 1 ? 10 : 0), mask(pass == 2 ? 1023 : 2047),
          above(pass == 0 ? 0 : pass == 1 ? 0xffe00000u : 0xfffffc00u) {}

    __device__ __forceinline__ u32 of(u32 rank) const { return rank >> shift & mask; }
    // Whether the digits before this one are those found so far.
    __device__ __forceinline__ bool is_candidate(u32 rank, u32 found) const { return ((rank ^ found) & above) == 0; }
};

// What is known of the k-th largest rank.
struct State {
    u32 found;  // its upper digits; in the end, the threshold
    u32 wanted; // how many of the ranks with these digits are selected
    u32 equal;  // how many ranks have these digits
    u32 done;   // all of them are selected: no further digit matters
};

struct Block {
    u32 bins[BINS];   // counts of this block
    u32 totals[BINS]; // counts of the row
    u32 of_warp[WARPS];
    u32 over; // logits of this block that are above the threshold
    State state;
    uint2 of_block[BLOCKS_MAX]; // of each block of the cluster: logits above the threshold, and at it
};

// ---- The cluster.

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ u32 blocks_of_cluster() {
    u32 blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// A barrier for all threads of all blocks; what they wrote before, all see after.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of another block's copy of something in this block's shared memory.
__device__ __forceinline__ u32 of_block(const void *at, u32 rank) {
    u32 own = (u32)__cvta_generic_to_shared(at), other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
    return other;
}

__device__ __forceinline__ u32 read_other(u32 at) {
    u32 value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
    return value;
}

__device__ __forceinline__ void write_other(u32 at, u32 value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(at), "r"(value) : "memory");
}

// ---- Logits of a block.

// Monotone in the logit; NaN is 0 and both zeros are the same. Nothing else is below 2^21.
__device__ __forceinline__ u32 rank_of(float logit) {
    u32 bits = __float_as_uint(logit), magnitude = bits & 0x7fffffffu;
    u32 ordered = bits >> 31 && magnitude ? ~bits : magnitude | 0x80000000u;
    return magnitude > 0x7f800000u ? 0 : ordered;
}

__device__ __forceinline__ u32 length_of(const int *lens, u32 row, u32 len_max) {
    int len = lens[row];
    return len < 0 ? 0 : (u32)len < len_max ? (u32)len : len_max;
}

// Four logits from position `at` on; what is at or behind `end` is 0.
__device__ __forceinline__ float4 load4(const float *row, u32 at, u32 end) {
    float4 v = make_float4(0, 0, 0, 0);
    if (at + 4 <= end) {
        v = __ldg((const float4 *)(row + at));
    } else if (at < end) {
        v.x = row[at];
        v.y = at + 1 < end ? row[at + 1] : 0;
        v.z = at + 2 < end ? row[at + 2] : 0;
    }
    return v;
}

// One chunk of a part: each warp has a run of it, in up to four rounds of four logits a lane.
struct Chunk {
    u32 first; // of this lane
    u32 end;   // of this warp
    u32 rank[VECTORS][4];

    __device__ __forceinline__ void load(const float *row, u32 begin, u32 stop) {
        u32 size = stop - begin < CHUNK ? stop - begin : CHUNK;
        u32 of_warp = ((size + WARPS - 1) / WARPS + 127) & ~127u;
        u32 from = (threadIdx.x >> 5) * of_warp < size ? (threadIdx.x >> 5) * of_warp : size;
        end = begin + (size - from < of_warp ? size : from + of_warp);
        first = begin + from + (threadIdx.x & 31) * 4;
        float4 v[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            v[j] = load4(row, first + j * 128, end);
        }
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            rank[j][0] = rank_of(v[j].x);
            rank[j][1] = rank_of(v[j].y);
            rank[j][2] = rank_of(v[j].z);
            rank[j][3] = rank_of(v[j].w);
        }
    }

    __device__ __forceinline__ bool there(int j, int i) const { return first + j * 128 + i < end; }
};

// Counts the digits of a chunk's candidates. Lanes with the same digit are added up by the hardware.
__device__ __forceinline__ void count(u32 *bins, const Chunk &chunk, u32 found, Digit digit) {
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (chunk.there(j, i) && digit.is_candidate(chunk.rank[j][i], found)) {
                atomicAdd(bins + digit.of(chunk.rank[j][i]), 1u);
            }
        }
    }
}

// What is selected: all ranks from `least` on, and the first `quota` of those that are `equal`.
struct Threshold {
    u32 least, equal, quota;

    // If all with the upper digits are selected, no rank is in question; no rank is 1.
    __device__ __forceinline__ explicit Threshold(const State &state)
        : least(state.done ? state.found : state.found + 1), equal(state.done ? 1 : state.found),
          quota(state.done ? 0 : state.wanted) {}
};

// ---- What the blocks of a row do together.

// The sum over the lanes below this one, and over all.
__device__ __forceinline__ u32 before_lane(u32 own, u32 &all) {
    u32 inclusive = own;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(ALL, inclusive, step);
        inclusive += (threadIdx.x & 31) >= step ? other : 0;
    }
    all = __shfl_sync(ALL, inclusive, 31);
    return inclusive - own;
}

// The sum over the warps below this one, and over all, once each warp has written its own.
__device__ __forceinline__ u32 before_warp(const Block &block, u32 &all) {
    u32 lane = threadIdx.x & 31, of_lane = block.of_warp[lane];
    all = __reduce_add_sync(ALL, of_lane);
    return __reduce_add_sync(ALL, lane < threadIdx.x >> 5 ? of_lane : 0);
}

// The row's counts, once every block has counted its own. Returns where they are.
__device__ __forceinline__ const u32 *gather(Block &block, u32 rank, u32 blocks) {
    if (blocks == 1) {
        __syncthreads();
        return block.bins;
    }
    cluster_barrier();
    // Each block adds up its share of the bins, and tells all.
    u32 share = BINS / blocks;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < share; i += THREADS) {
        u32 bin = rank * share + i, sum = 0;
#pragma unroll 8
        for (u32 other = 0; other < blocks; other++) {
            sum += read_other(of_block(block.bins + bin, other));
        }
#pragma unroll 8
        for (u32 other = 0; other < blocks; other++) {
            write_other(of_block(block.totals + bin, other), sum);
        }
    }
    cluster_barrier();
    return block.totals;
}

// Finds the digit in which the wanted rank lies, from the top, and narrows block.state. Adds to block.over what this
// block has above that digit.
__device__ __forceinline__ void narrow(Block &block, const u32 *totals, State before, Digit digit) {
    // Thread i has the bins BINS - 1 - 2 i and the one below.
    u32 top = BINS - 1 - threadIdx.x * 2;
    u32 upper = totals[top], lower = totals[top - 1], of_warp, all;
    u32 passed = before_lane(upper + lower, of_warp);
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[threadIdx.x >> 5] = of_warp;
    }
    __syncthreads();
    passed += before_warp(block, all);
    if (passed < before.wanted && before.wanted <= passed + upper + lower) {
        bool in_upper = before.wanted <= passed + upper;
        State after;
        after.found = before.found | (in_upper ? top : top - 1) << digit.shift;
        after.wanted = before.wanted - passed - (in_upper ? 0 : upper);
        after.equal = in_upper ? upper : lower;
        after.done = after.wanted == after.equal;
        block.state = after;
    }
    __syncthreads();
    u32 least = digit.of(block.state.found) + (block.state.done ? 0 : 1);
    u32 over = (top >= least ? block.bins[top] : 0) + (top - 1 >= least ? block.bins[top - 1] : 0);
    over = __reduce_add_sync(ALL, over);
    if ((threadIdx.x & 31) == 0 && over) {
        atomicAdd(&block.over, over);
    }
}

// Writes the selected positions of a chunk in their order. (over, at_it) are those of the row before the chunk, and then
// those before the next one.
__device__ __forceinline__ void emit(Block &block, const Chunk &chunk, Threshold threshold, u32 &over, u32 &at_it,
                                     int *out, u32 k) {
    // Counts above in the low half, at the threshold in the high half: at most 16384 each in a block.
    u32 before[VECTORS], of_warp = 0, all;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        u32 own = 0, of_round = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own += chunk.there(j, i) && chunk.rank[j][i] >= threshold.least ? 1u : 0u;
            own += chunk.there(j, i) && chunk.rank[j][i] == threshold.equal ? 1u << 16 : 0u;
        }
        before[j] = of_warp;
        if (__any_sync(ALL, own != 0)) {
            before[j] += before_lane(own, of_round);
            of_warp += of_round;
        }
    }
    // What was there of the chunk before has been read.
    __syncthreads();
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[threadIdx.x >> 5] = of_warp;
    }
    __syncthreads();
    u32 of_warps = before_warp(block, all);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        u32 over_here = over + (of_warps + before[j] & 0xffff), at_here = at_it + (of_warps + before[j] >> 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool is_above = chunk.there(j, i) && chunk.rank[j][i] >= threshold.least;
            bool is_at = chunk.there(j, i) && chunk.rank[j][i] == threshold.equal;
            // Below k, unless somebody writes logits meanwhile.
            u32 place = over_here + (at_here < threshold.quota ? at_here : threshold.quota);
            if ((is_above || (is_at && at_here < threshold.quota)) && place < k) {
                out[place] = (int)(chunk.first + j * 128 + i);
            }
            over_here += is_above;
            at_here += is_at;
        }
    }
    over += all & 0xffff;
    at_it += all >> 16;
}

// logits [rows, stride], stride a multiple of 4; out [rows, k]; stats [rows, 2]. grid (blocks, rows) in clusters of all
// blocks of a row, 1024 threads.
extern "C" __global__ void __launch_bounds__(THREADS, 1) top_k(
    const float *logits, u64 stride, const int *lens, u32 len_max, u32 k, int *out, u32 *stats) {
    __shared__ Block block;
    u32 rank = rank_in_cluster(), blocks = blocks_of_cluster();
    const float *values = logits + blockIdx.y * stride;
    u32 len = length_of(lens, blockIdx.y, len_max);
    u32 part = ((len + blocks - 1) / blocks + 3) & ~3u;
    u32 begin = rank * part < len ? rank * part : len, end = len - begin < part ? len : begin + part;
    // A part of one chunk stays in registers.
    bool stays = end - begin <= CHUNK, all = len <= k || k == 0;
    Chunk chunk;
    chunk.load(values, begin, end);
    State state = {0, k, len, 0};
    if (threadIdx.x == 0) {
        block.over = 0;
    }
    out += (u64)blockIdx.y * k;
    stats += 2 * blockIdx.y;
    // The first pass counts NaN in any case.
#pragma unroll 1
    for (int pass = 0; pass < 3 && !state.done && !(all && pass); pass++) {
        Digit digit(pass);
        block.bins[threadIdx.x] = 0;
        block.bins[threadIdx.x + THREADS] = 0;
        __syncthreads();
#pragma unroll 1
        for (u32 at = begin; at < end; at += CHUNK) {
            if (!stays) {
                chunk.load(values, at, end);
            }
            count(block.bins, chunk, state.found, digit);
        }
        const u32 *totals = gather(block, rank, blocks);
        if (pass == 0 && rank == 0 && threadIdx.x == 0) {
            stats[0] = totals[0];
        }
        if (!all) {
            narrow(block, totals, state, digit);
            state = block.state;
        }
        // Nobody clears what another thread still reads.
        __syncthreads();
    }
    if (rank == 0 && threadIdx.x == 0) {
        stats[1] = all ? 0 : state.equal - state.wanted;
    }
    if (all) {
        for (u32 i = rank * THREADS + threadIdx.x; i < k; i += blocks * THREADS) {
            out[i] = i < len ? (int)i : -1;
        }
        return;
    }
    if (threadIdx.x < blocks) {
        u32 place = of_block(block.of_block + rank, threadIdx.x);
        write_other(place, block.over);
        write_other(place + 4, state.done ? 0 : block.bins[Digit(2).of(state.found)]);
    }
    // From here on no block looks at another one, so that each may leave when it is done.
    cluster_barrier();
    u32 over = 0, at_it = 0;
#pragma unroll 1
    for (u32 i = 0; i < rank; i++) {
        over += block.of_block[i].x;
        at_it += block.of_block[i].y;
    }
#pragma unroll 1
    for (u32 at = begin; at < end; at += CHUNK) {
        if (!stays) {
            chunk.load(values, at, end);
        }
        emit(block, chunk, Threshold(state), over, at_it, out, k);
    }
}
