// The positions of the k largest logits of each row, exactly: ascending, ties to the lowest position, -0 equals +0, all
// NaN equal and below -infinity. Same bits as the CPU's `top_k`, and the same however many blocks a row has.
//
// A radix select over the whole row, 11 + 11 + 10 bits from the top. No candidates are collected, so that no buffer can
// overflow. Counts are integers, so that the order of atomic additions does not matter.
//
// A row belongs to one cluster of 1 to 16 blocks. Each block has one part of the row, and keeps it in registers if it
// has at most 16,384 logits; a longer part is read again in each pass. Blocks add up their counts by writing into each
// other's shared memory: each sends every other one the bins that this adds up, and gets the sums back. They wait for
// bytes, at barriers in their own memory. A cluster is scheduled as a whole, so that what is waited for comes.
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
    u32 bins[2][BINS]; // counts of this block, of one pass and the next in turn
    u32 parts[BINS];   // [blocks][share]: counts of the bins that this block adds up
    u32 totals[BINS];  // counts of the row
    u64 parts_come, totals_come, tallies_come;
    u32 of_warp[WARPS];
    u32 over;  // logits of this block that are above the digits so far
    u32 at_it; // and those that have them
    State state;
    uint2 of_block[BLOCKS_MAX]; // (over, at_it) of every block of the row
};

// Waits for the kernel before this one in its stream, and lets the one behind it come. Launches overlap (see launch.rs), so
// that what is read must not be taken for constant: no __ldg.
__device__ __forceinline__ void take_turn() {
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- The cluster.

__device__ __forceinline__ u32 rank_in_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ u32 blocks_of_cluster() {
    u32 blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

__device__ __forceinline__ u32 shared(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

// The address of another block's copy of something in this block's shared memory.
__device__ __forceinline__ u32 of_block(u32 own, u32 rank) {
    u32 other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
    return other;
}

// Writes into a block's memory, and lets that block's barrier know.
__device__ __forceinline__ void send(u32 at, u32 barrier, uint4 v) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1,%2,%3,%4}, [%5];"
                 :: "r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}

__device__ __forceinline__ void send(u32 at, u32 barrier, uint2 v) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1,%2}, [%3];"
                 :: "r"(at), "r"(v.x), "r"(v.y), "r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_init(u64 *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(barrier)) : "memory");
}

__device__ __forceinline__ void expect(u64 *barrier, u32 bytes) {
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}"
                 :: "r"(shared(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait(u64 *barrier, u32 parity) {
    asm volatile("{.reg .pred done; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1; @!done bra again;}"
                 :: "r"(shared(barrier)), "r"(parity) : "memory");
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

// Four logits from position `at` on, a multiple of 4, of which at least the first is before `end`; otherwise zeros. The
// stride is a multiple of 4, so that all four are the row's.
__device__ __forceinline__ float4 load4(const float *row, u32 at, u32 end) {
    return at < end ? *(const float4 *)(row + at) : make_float4(0, 0, 0, 0);
}

// One chunk of a part: each warp has a run of it, in up to four rounds of four logits a lane.
struct Chunk {
    u32 first; // of this lane
    u32 left;  // positions from there on to the end of the warp's run
    u32 rank[VECTORS][4];

    __device__ __forceinline__ void load(const float *row, u32 begin, u32 stop) {
        u32 size = stop - begin < CHUNK ? stop - begin : CHUNK;
        u32 of_warp = ((size + WARPS - 1) / WARPS + 127) & ~127u;
        u32 from = (threadIdx.x >> 5) * of_warp < size ? (threadIdx.x >> 5) * of_warp : size;
        u32 end = begin + (size - from < of_warp ? size : from + of_warp);
        first = begin + from + (threadIdx.x & 31) * 4;
        left = first < end ? end - first : 0;
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

    __device__ __forceinline__ bool there(int j, int i) const { return (u32)(j * 128 + i) < left; }
};

// Counts the digits of a chunk's candidates. Lanes with the same digit are added up by the hardware.
__device__ __forceinline__ void count(u32 bins, const Chunk &chunk, u32 found, Digit digit) {
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 rank = chunk.rank[j][i], counts = chunk.there(j, i) && digit.is_candidate(rank, found);
            asm volatile("{.reg .pred counts; setp.ne.u32 counts, %1, 0; @counts red.shared::cta.add.u32 [%0], 1;}"
                         :: "r"(bins + digit.of(rank) * 4), "r"(counts) : "memory");
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
__device__ __forceinline__ const u32 *add_up(Block &block, const u32 *bins, u32 parity) {
    __syncthreads();
    u32 rank = rank_in_cluster(), blocks = blocks_of_cluster();
    if (blocks == 1) {
        return bins;
    }
    // Bins in groups of four; each block adds up its share of them, and tells all.
    u32 share = BINS / 4 / blocks, group = threadIdx.x;
    if (group < BINS / 4) {
        u32 place = shared((uint4 *)block.parts + rank * share + group % share);
        send(of_block(place, group / share), of_block(shared(&block.parts_come), group / share), ((const uint4 *)bins)[group]);
    }
    if (group < share) {
        wait(&block.parts_come, parity);
        uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 8
        for (u32 i = 0; i < blocks; i++) {
            uint4 part = ((const uint4 *)block.parts)[i * share + group];
            sum.x += part.x;
            sum.y += part.y;
            sum.z += part.z;
            sum.w += part.w;
        }
        u32 place = shared((uint4 *)block.totals + rank * share + group), barrier = shared(&block.totals_come);
#pragma unroll 8
        for (u32 i = 0; i < blocks; i++) {
            send(of_block(place, i), of_block(barrier, i), sum);
        }
    }
    wait(&block.totals_come, parity);
    if (threadIdx.x == 0) {
        // For the next pass.
        expect(&block.parts_come, BINS * 4);
        expect(&block.totals_come, BINS * 4);
    }
    return block.totals;
}

// Finds the digit in which the wanted rank lies, from the top, and narrows block.state. Adds to block.over what this
// block has above that digit, and clears its bins.
__device__ __forceinline__ void narrow(Block &block, const u32 *totals, u32 *bins, State before, Digit digit) {
    // Thread i has the bins BINS - 1 - 2 i and the one below.
    u32 top = BINS - 1 - threadIdx.x * 2;
    uint2 of_row = *(const uint2 *)(totals + top - 1), own = *(const uint2 *)(bins + top - 1);
    u32 of_warp, all, passed = before_lane(of_row.x + of_row.y, of_warp);
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[threadIdx.x >> 5] = of_warp;
    }
    __syncthreads();
    passed += before_warp(block, all);
    if (passed < before.wanted && before.wanted <= passed + of_row.x + of_row.y) {
        bool in_upper = before.wanted <= passed + of_row.y;
        State after;
        after.found = before.found | (in_upper ? top : top - 1) << digit.shift;
        after.wanted = before.wanted - passed - (in_upper ? 0 : of_row.y);
        after.equal = in_upper ? of_row.y : of_row.x;
        after.done = after.wanted == after.equal;
        block.state = after;
        block.at_it = after.done ? 0 : in_upper ? own.y : own.x;
    }
    __syncthreads();
    u32 least = digit.of(block.state.found) + (block.state.done ? 0 : 1);
    u32 over = __reduce_add_sync(ALL, (top >= least ? own.y : 0) + (top - 1 >= least ? own.x : 0));
    if ((threadIdx.x & 31) == 0 && over) {
        atomicAdd(&block.over, over);
    }
    *(uint2 *)(bins + top - 1) = make_uint2(0, 0);
}

// A lane's logits of one round: those above the threshold in the low half, and those at it in the high half.
__device__ __forceinline__ u32 selected(const Chunk &chunk, int j, Threshold threshold) {
    u32 own = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        own += chunk.there(j, i) && chunk.rank[j][i] >= threshold.least ? 1u : 0u;
        own += chunk.there(j, i) && chunk.rank[j][i] == threshold.equal ? 1u << 16 : 0u;
    }
    return own;
}

// Writes the selected positions of a chunk in their order. (over, at_it) are those of the row before the chunk, and then
// those before the next one.
__device__ __forceinline__ void emit(Block &block, const Chunk &chunk, Threshold threshold, u32 &over, u32 &at_it,
                                     int *out, u32 k) {
    // At most 16384 of either kind in a block.
    u32 own = 0, all;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        own += selected(chunk, j, threshold);
    }
    own = __reduce_add_sync(ALL, own);
    // What was there of the chunk before has been read.
    __syncthreads();
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[threadIdx.x >> 5] = own;
    }
    __syncthreads();
    u32 before = before_warp(block, all);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        u32 own = selected(chunk, j, threshold), of_round;
        if (!__any_sync(ALL, own != 0)) {
            continue;
        }
        u32 here = before + before_lane(own, of_round);
        u32 over_here = over + (here & 0xffff), at_here = at_it + (here >> 16);
        before += of_round;
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
    take_turn();
    __shared__ Block block;
    u32 rank = blockIdx.x, blocks = gridDim.x;
    const float *values = logits + blockIdx.y * stride;
    u32 len = length_of(lens, blockIdx.y, len_max);
    u32 part = ((len + blocks - 1) / blocks + 3) & ~3u;
    u32 begin = rank * part < len ? rank * part : len, end = len - begin < part ? len : begin + part;
    // A part of one chunk stays in registers.
    bool stays = end - begin <= CHUNK, all = len <= k || k == 0;
    if (threadIdx.x == 0) {
        block.over = 0;
        barrier_init(&block.parts_come);
        barrier_init(&block.totals_come);
        barrier_init(&block.tallies_come);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(&block.parts_come, BINS * 4);
        expect(&block.totals_come, BINS * 4);
        expect(&block.tallies_come, blocks * 8);
    }
    ((uint4 *)block.bins)[threadIdx.x] = make_uint4(0, 0, 0, 0);
    // Nobody sends before all barriers are there.
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    Chunk chunk;
    chunk.load(values, begin, end);
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    out += (u64)blockIdx.y * k;
    State state = {0, k, len, 0};
    // The first pass counts NaN in any case.
#pragma unroll 1
    for (int pass = 0; pass < 3 && !state.done && !(all && pass); pass++) {
        Digit digit(pass);
        u32 *bins = block.bins[pass & 1];
#pragma unroll 1
        for (u32 at = begin; at < end; at += CHUNK) {
            if (!stays) {
                chunk.load(values, at, end);
            }
            count(shared(bins), chunk, state.found, digit);
        }
        const u32 *totals = add_up(block, bins, pass & 1);
        if (pass == 0 && blockIdx.x == 0 && threadIdx.x == 0) {
            stats[2 * blockIdx.y] = totals[0];
        }
        if (!all) {
            narrow(block, totals, bins, state, digit);
            state = block.state;
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        stats[2 * blockIdx.y + 1] = all ? 0 : state.equal - state.wanted;
    }
    if (all) {
        for (u32 i = rank * THREADS + threadIdx.x; i < k; i += blocks * THREADS) {
            out[i] = i < len ? (int)i : -1;
        }
        return;
    }
    u32 over = 0, at_it = 0;
    if (blocks > 1) {
        __syncthreads();
        if (threadIdx.x < blocks) {
            u32 place = shared(block.of_block + rank), barrier = shared(&block.tallies_come);
            send(of_block(place, threadIdx.x), of_block(barrier, threadIdx.x), make_uint2(block.over, block.at_it));
        }
        wait(&block.tallies_come, 0);
#pragma unroll 1
        for (u32 i = 0; i < rank; i++) {
            over += block.of_block[i].x;
            at_it += block.of_block[i].y;
        }
    }
#pragma unroll 1
    for (u32 at = begin; at < end; at += CHUNK) {
        if (!stays) {
            chunk.load(values, at, end);
        }
        emit(block, chunk, Threshold(state), over, at_it, out, k);
    }
}
