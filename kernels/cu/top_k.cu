// The positions of the k largest logits of each row, exactly: ascending, ties to the lowest position, -0 equals +0, all
// NaN equal and below -infinity. Same bits as the CPU's `top_k`, and the same whether a row is split or not.
//
// A radix select over the whole row, 11 + 11 + 10 bits from the top. No candidates are collected, so that no buffer can
// overflow. Counts are integers, so that the order of atomic additions does not matter. No block waits for another.
//
// Rows shorter than k give all their positions and then -1. A length is taken as 0 if negative, and cut to len_max.
// stats[row] = {NaN logits, logits left out although they equal the smallest selected one}.

typedef unsigned int u32;
typedef unsigned long long u64;

#define BINS 2048
#define ALL 0xffffffffu

// Shifts and widths of the three digits.
__device__ __forceinline__ u32 shift_of(int pass) { return pass == 0 ? 21 : pass == 1 ? 10 : 0; }
__device__ __forceinline__ u32 digit_of(u32 rank, int pass) { return pass == 2 ? rank & 1023 : rank >> shift_of(pass) & 2047; }
// Whether the digits above this pass are those found so far.
__device__ __forceinline__ bool is_candidate(u32 rank, u32 found, int pass) {
    return pass == 0 || (rank ^ found) >> (pass == 1 ? 21 : 10) == 0;
}

// What is known of the k-th largest rank.
struct State {
    u32 found;  // its upper digits; in the end, the threshold
    u32 wanted; // how many of the ranks with these digits are selected
    u32 equal;  // how many ranks have these digits
    u32 done;   // all of them are selected: no further digit matters
};

struct Block {
    u32 bins[BINS];
    u32 of_warp[32];
    u32 of_warp_too[32];
    State state;
};

// Monotone in the logit; NaN is 0 and both zeros are the same.
__device__ __forceinline__ u32 rank_of(float logit) {
    u32 bits = __float_as_uint(logit), magnitude = bits & 0x7fffffffu;
    u32 ordered = bits >> 31 && magnitude ? ~bits : magnitude | 0x80000000u;
    return magnitude > 0x7f800000u ? 0 : ordered;
}

__device__ __forceinline__ u32 length_of(const int *lens, u64 row, u32 len_max) {
    int len = lens[row];
    return len < 0 ? 0 : (u32)len < len_max ? (u32)len : len_max;
}

// Adds to a bin. Two rounds take the bins of the first lanes for all lanes that share them, because a relu and close
// exponents put most ranks into few bins.
__device__ __forceinline__ void count(u32 *bins, u32 bin, bool active) {
    u32 mask = __ballot_sync(ALL, active);
#pragma unroll 1
    for (int round = 0; round < 2 && mask; round++) {
        int leader = __ffs(mask) - 1;
        u32 of_leader = __shfl_sync(ALL, bin, leader);
        u32 same = __ballot_sync(ALL, active && bin == of_leader);
        if ((threadIdx.x & 31) == leader) {
            atomicAdd(bins + of_leader, __popc(same));
        }
        active = active && bin != of_leader;
        mask &= ~same;
    }
    if (active) {
        atomicAdd(bins + bin, 1u);
    }
}

// Four logits from position `at` on; what is at or behind `end` is 0. Loads are issued a round before their use.
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

// The ranks of four logits, and which of them there are.
__device__ __forceinline__ void ranks_of(float4 v, u32 at, u32 end, u32 rank[4], bool there[4]) {
    rank[0] = rank_of(v.x);
    rank[1] = rank_of(v.y);
    rank[2] = rank_of(v.z);
    rank[3] = rank_of(v.w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        there[i] = at + i < end;
    }
}

// Counts the digits of candidates in begin..end into block.bins, which it clears first. Returns this thread's NaN logits.
__device__ __forceinline__ u32 histogram(Block &block, const float *row, u32 begin, u32 end, u32 found, int pass) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) {
        block.bins[i] = 0;
    }
    __syncthreads();
    u32 nan = 0, of_lane = (threadIdx.x & 31) * 4, step = blockDim.x * 4;
    // Whole warps stay together.
    u32 first = begin + (threadIdx.x & ~31u) * 4;
    float4 next = load4(row, first + of_lane, end);
#pragma unroll 1
    for (u32 at = first; at < end; at += step) {
        u32 rank[4];
        bool there[4];
        float4 v = next;
        next = load4(row, at + step + of_lane, end);
        ranks_of(v, at + of_lane, end, rank, there);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            count(block.bins, digit_of(rank[i], pass), there[i] && is_candidate(rank[i], found, pass));
            nan += there[i] && rank[i] == 0;
        }
    }
    __syncthreads();
    return nan;
}

// Finds the digit in which the wanted rank lies, from the top, and narrows block.state. bins may be in any memory.
__device__ __forceinline__ void narrow(Block &block, const u32 *bins, State before, int pass) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u32 each = BINS / blockDim.x;
    // Thread i has the bins from BINS - 1 - i * each downwards.
    u32 top = BINS - 1 - threadIdx.x * each, sum = 0;
#pragma unroll 1
    for (u32 i = 0; i < each; i++) {
        sum += bins[top - i];
    }
    u32 inclusive = sum;
#pragma unroll 1
    for (int step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(ALL, inclusive, step);
        inclusive += lane >= step ? other : 0;
    }
    if (lane == 31) {
        block.of_warp[warp] = inclusive;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = 0; i < warp && i < warps; i++) {
        inclusive += block.of_warp[i];
    }
    u32 passed = inclusive - sum;
    if (passed < before.wanted && before.wanted <= inclusive) {
#pragma unroll 1
        for (u32 i = 0; i < each; i++) {
            u32 here = bins[top - i];
            if (before.wanted <= passed + here) {
                State after;
                after.found = before.found | (top - i) << shift_of(pass);
                after.wanted = before.wanted - passed;
                after.equal = here;
                after.done = after.wanted == here;
                block.state = after;
                break;
            }
            passed += here;
        }
    }
    __syncthreads();
}

// Above the threshold, or at it. If all with its upper digits are selected, they count as above.
__device__ __forceinline__ bool above(u32 rank, const State &state) {
    return state.done ? rank >= state.found : rank > state.found;
}

__device__ __forceinline__ bool at_threshold(u32 rank, const State &state) {
    return !state.done && rank == state.found;
}

// How many logits of begin..end are above the threshold and at it, in the calling warp: (above, at).
__device__ __forceinline__ uint2 tally(const float *row, u32 begin, u32 end, const State &state) {
    u32 over = 0, at_it = 0, first = begin + (threadIdx.x & 31) * 4;
    float4 next = load4(row, first, end);
#pragma unroll 1
    for (u32 at = first; at < end; at += 128) {
        u32 rank[4];
        bool there[4];
        float4 v = next;
        next = load4(row, at + 128, end);
        ranks_of(v, at, end, rank, there);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            over += there[i] && above(rank[i], state);
            at_it += there[i] && at_threshold(rank[i], state);
        }
    }
#pragma unroll 1
    for (int step = 16; step > 0; step >>= 1) {
        over += __shfl_xor_sync(ALL, over, step);
        at_it += __shfl_xor_sync(ALL, at_it, step);
    }
    return make_uint2(over, at_it);
}

// Writes the selected positions of begin..end in their order, in the calling warp. (over, at_it) are those before begin.
__device__ __forceinline__ void emit(const float *row, u32 begin, u32 end, const State &state, u32 over, u32 at_it, int *out, u32 k) {
    u32 quota = state.done ? 0 : state.wanted, lane = threadIdx.x & 31;
    float4 next = load4(row, begin + lane * 4, end);
#pragma unroll 1
    for (u32 first = begin; first < end; first += 128) {
        u32 at = first + lane * 4, rank[4];
        bool there[4];
        float4 v = next;
        next = load4(row, at + 128, end);
        ranks_of(v, at, end, rank, there);
        // Counts of this lane, above in the low half: 512 at most for a warp.
        u32 own = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own += there[i] && above(rank[i], state) ? 1u : 0u;
            own += there[i] && at_threshold(rank[i], state) ? 1u << 16 : 0u;
        }
        if (!__any_sync(ALL, own != 0)) {
            continue;
        }
        u32 inclusive = own;
#pragma unroll 1
        for (int step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(ALL, inclusive, step);
            inclusive += lane >= step ? other : 0;
        }
        u32 before = inclusive - own, all = __shfl_sync(ALL, inclusive, 31);
        u32 over_here = over + (before & 0xffff), at_here = at_it + (before >> 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 place = over_here + (at_here < quota ? at_here : quota);
            bool is_above = there[i] && above(rank[i], state), is_at = there[i] && at_threshold(rank[i], state);
            if ((is_above || (is_at && at_here < quota)) && place < k) {
                out[place] = (int)(at + i);
            }
            over_here += is_above;
            at_here += is_at;
        }
        over += all & 0xffff;
        at_it += all >> 16;
    }
}

// Tallies and emits begin..end by the whole block, each warp a part of its own. (over, at_it) are those before begin.
__device__ __forceinline__ void emit_block(Block &block, const float *row, u32 begin, u32 end, const State &state, u32 over, u32 at_it,
                           int *out, u32 k) {
    u32 warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u32 part = ((end - begin + warps - 1) / warps + 127) & ~127u;
    u32 from = begin + warp * part < end ? begin + warp * part : end;
    u32 to = end - from > part ? from + part : end;
    uint2 own = tally(row, from, to, state);
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[warp] = own.x;
        block.of_warp_too[warp] = own.y;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = 0; i < warp; i++) {
        over += block.of_warp[i];
        at_it += block.of_warp_too[i];
    }
    emit(row, from, to, state, over, at_it, out, k);
}

// All positions, then -1.
__device__ __forceinline__ void emit_all(u32 len, int *out, u32 k) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < k; i += blockDim.x) {
        out[i] = i < len ? (int)i : -1;
    }
}

// One block a row: logits [rows, stride], stride a multiple of 4, out [rows, k], stats [rows, 2]. 1024 threads.
extern "C" __global__ void __launch_bounds__(1024, 1) top_k(
    const float *logits, u64 stride, const int *lens, u32 len_max, u32 k, int *out, u32 *stats) {
    __shared__ Block block;
    __shared__ u32 nan_of_row;
    u64 row = blockIdx.x;
    const float *values = logits + row * stride;
    u32 len = length_of(lens, row, len_max);
    if (threadIdx.x == 0) {
        nan_of_row = 0;
    }
    __syncthreads();
    State state = {0, k, len, 0};
    bool all = len <= k || k == 0;
    // The first pass counts NaN in any case.
#pragma unroll 1
    for (int pass = 0; pass < 3 && !state.done && !(all && pass); pass++) {
        u32 nan = histogram(block, values, 0, len, state.found, pass);
        if (pass == 0 && nan) {
            atomicAdd(&nan_of_row, nan);
        }
        if (!all) {
            narrow(block, block.bins, state, pass);
            state = block.state;
        }
    }
    __syncthreads();
    if (all) {
        emit_all(len, out + row * k, k);
    } else {
        emit_block(block, values, 0, len, state, 0, 0, out + row * k, k);
    }
    if (threadIdx.x == 0) {
        stats[2 * row] = nan_of_row;
        stats[2 * row + 1] = all ? 0 : state.equal - state.wanted;
    }
}

// ---- A row on several blocks: five launches, pass 0, 1, 2, then tally, then emit.

// A row's workspace, all zero before the first launch. states[p] is what is known after pass p.
struct Row {
    u32 bins[3][BINS];
    State states[3];
    u32 nan; // logits of the row that are NaN
    u32 rest[3];
};

// What is known before pass `pass` (3: in the end), from what the launch before left behind.
__device__ __forceinline__ State state_before(Block &block, Row &own, int pass, u32 len, u32 k) {
    State state = {0, k, len, 0};
    if (pass > 0) {
        state = pass > 1 ? own.states[pass - 2] : state;
        if (!state.done) {
            narrow(block, own.bins[pass - 1], state, pass - 1);
            state = block.state;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            own.states[pass - 1] = state;
        }
    }
    return state;
}

// Pass 0, 1 or 2: grid (splits, rows), 512 threads; a block has `part` logits, a multiple of 4.
extern "C" __global__ void __launch_bounds__(512, 2) top_k_split_count(
    const float *logits, u64 stride, const int *lens, u32 len_max, u32 k, u32 part, int pass, Row *rows) {
    __shared__ Block block;
    u64 row = blockIdx.y;
    const float *values = logits + row * stride;
    u32 len = length_of(lens, row, len_max);
    u32 begin = blockIdx.x * part < len ? blockIdx.x * part : len;
    u32 end = len - begin > part ? begin + part : len;
    bool all = len <= k || k == 0;
    // The first pass counts NaN in any case.
    if (all && pass > 0) {
        return;
    }
    State state = state_before(block, rows[row], pass, len, k);
    if (state.done || begin == end) {
        return;
    }
    u32 nan = histogram(block, values, begin, end, state.found, pass);
    if (pass == 0 && nan) {
        atomicAdd(&rows[row].nan, nan);
    }
    if (all) {
        return;
    }
#pragma unroll 1
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) {
        if (block.bins[i]) {
            atomicAdd(rows[row].bins[pass] + i, block.bins[i]);
        }
    }
}

// tallies [rows, splits]: how many logits of a block are above the threshold, and at it. 512 threads.
extern "C" __global__ void __launch_bounds__(512, 2) top_k_split_tally(
    const float *logits, u64 stride, const int *lens, u32 len_max, u32 k, u32 part, Row *rows, uint2 *tallies) {
    __shared__ Block block;
    u64 row = blockIdx.y;
    const float *values = logits + row * stride;
    u32 len = length_of(lens, row, len_max);
    u32 begin = blockIdx.x * part < len ? blockIdx.x * part : len;
    u32 end = len - begin > part ? begin + part : len;
    if (len <= k || k == 0) {
        return;
    }
    State state = state_before(block, rows[row], 3, len, k);
    u32 warp = threadIdx.x >> 5, of_warp = ((end - begin + 15) / 16 + 3) & ~3u;
    u32 from = begin + warp * of_warp < end ? begin + warp * of_warp : end;
    uint2 own = tally(values, from, end - from > of_warp ? from + of_warp : end, state);
    if ((threadIdx.x & 31) == 0) {
        block.of_warp[warp] = own.x;
        block.of_warp_too[warp] = own.y;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint2 sum = make_uint2(0, 0);
#pragma unroll 1
        for (int i = 0; i < 16; i++) {
            sum.x += block.of_warp[i];
            sum.y += block.of_warp_too[i];
        }
        tallies[row * gridDim.x + blockIdx.x] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) top_k_split_emit(
    const float *logits, u64 stride, const int *lens, u32 len_max, u32 k, u32 part, const Row *rows,
    const uint2 *tallies, int *out, u32 *stats) {
    __shared__ Block block;
    __shared__ u32 before[2];
    u64 row = blockIdx.y;
    u32 len = length_of(lens, row, len_max);
    if (len <= k || k == 0) {
        if (blockIdx.x == 0) {
            emit_all(len, out + row * k, k);
            if (threadIdx.x == 0) {
                stats[2 * row] = rows[row].nan;
                stats[2 * row + 1] = 0;
            }
        }
        return;
    }
    State state = rows[row].states[2];
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        stats[2 * row] = rows[row].nan;
        stats[2 * row + 1] = state.equal - state.wanted;
    }
    u32 begin = blockIdx.x * part < len ? blockIdx.x * part : len;
    u32 end = len - begin > part ? begin + part : len;
    if (begin == end) {
        return;
    }
    if (threadIdx.x < 2) {
        before[threadIdx.x] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < blockIdx.x; i += blockDim.x) {
        uint2 other = tallies[row * gridDim.x + i];
        atomicAdd(before, other.x);
        atomicAdd(before + 1, other.y);
    }
    __syncthreads();
    emit_block(block, logits + row * stride, begin, end, state, before[0], before[1], out + row * k, k);
}
