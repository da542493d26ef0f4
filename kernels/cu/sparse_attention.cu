// Softmax attention over selected rows of latent KV: keys are all 576 values of a row, values its first 512.
//
// A block has 16 heads of one query and one part of its selection, in tiles of 32 rows: gathered and decoded to bf16
// into shared memory, scored and weighted with mma.sync bf16 and f32 sums, softmax online. fp8 codes are exact in bf16:
// their scales (one for 128 values) are applied to sums of scores, and to weights before those are rounded. Parts are merged by a second kernel in a fixed order, so that the same input gives the same bits.
//
// dynamic shared memory: at most 58944 bytes

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define TOKENS 64
#define HEADS 16
#define TILE 32
#define ROW 576
#define VALUES 512
#define PITCH 584 // a row in shared memory, in bf16: 1168 bytes, so that eight rows begin in different banks
#define S_PITCH 34

struct Memory {
    u16 keys[TILE * PITCH];   // 37376 bytes
    u16 q[HEADS * PITCH];     // 18688
    float s[HEADS * S_PITCH]; // 2176: scores, then weights
    float scale[4][TILE];     // 512: of the rows' codes
    float factor[HEADS];      // what earlier sums are multiplied with
    float sum[HEADS];
    float max[HEADS];
};

__device__ __forceinline__ u32 shared(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void matrix4(u32 r[4], const void *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared(at)) : "memory");
}

__device__ __forceinline__ void matrix4_transposed(u32 r[4], const void *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared(at)) : "memory");
}

__device__ __forceinline__ void mma(float c[4], const u32 a[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 bf16x2(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

__device__ __forceinline__ u32 decode2(u32 codes) {
    u32 halves;
    float low, high;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)codes));
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(halves));
    return bf16x2(low, high);
}

// The page number of a selected position; -1 if there is no position, -2 if the table ends before it.
__device__ __forceinline__ int page_of(int position, const int *table, u32 table_stride) {
    u32 at = (u32)position / TOKENS;
    return position < 0 ? -1 : at < table_stride ? __ldg(table + at) : -2;
}

// Fills one row of the tile by 4 threads, and their one scale each.
__device__ __forceinline__ void gather(u16 *to, float *scale, const unsigned char *row, int fp8, u32 t) {
    uint4 *out = (uint4 *)to;
    float own = 1;
    if (!row) {
        for (u32 i = t; i < ROW / 8; i += 4) {
            out[i] = make_uint4(0, 0, 0, 0);
        }
    } else if (fp8) {
        uint4 codes[8], rope[2];
        own = __ldg((const float *)(row + VALUES) + t);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            codes[i] = __ldg((const uint4 *)row + i * 4 + t);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rope[i] = __ldg((const uint4 *)(row + VALUES + 16) + i * 4 + t);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint4 v = codes[i];
            out[2 * (i * 4 + t)] = make_uint4(decode2(v.x), decode2(v.x >> 16), decode2(v.y), decode2(v.y >> 16));
            out[2 * (i * 4 + t) + 1] = make_uint4(decode2(v.z), decode2(v.z >> 16), decode2(v.w), decode2(v.w >> 16));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            out[VALUES / 8 + i * 4 + t] = rope[i];
        }
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 v[9];
#pragma unroll
            for (int i = 0; i < 9; i++) {
                v[i] = __ldg((const uint4 *)row + (half * 9 + i) * 4 + t);
            }
#pragma unroll
            for (int i = 0; i < 9; i++) {
                out[(half * 9 + i) * 4 + t] = v[i];
            }
        }
    }
    scale[t * TILE] = own;
}

// Scores of 16 heads and this warp's 8 rows, to memory.s. Rows that are not there get -infinity.
__device__ __forceinline__ void scores(Memory &memory, u32 warp, u32 lane, float scale, u32 there) {
    float c[4] = {0, 0, 0, 0};
    u32 head = lane >> 2, column = warp * 8 + (lane & 3) * 2;
    // A: lanes 0..15 give rows, lanes 16..31 the same rows 8 values further. B: four groups of 8 values.
    const u16 *a_at = memory.q + (lane & 15) * PITCH + (lane >> 4) * 8;
    const u16 *b_at = memory.keys + (warp * 8 + (lane & 7)) * PITCH + (lane >> 3) * 8;
#pragma unroll
    for (int tile = 0; tile < 5; tile++) {
        // Four tiles of 128 values with a scale, and the 64 values without. Two chains of mma.
        float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#pragma unroll
        for (int step = 4 * tile; step < (tile < 4 ? 4 * tile + 4 : ROW / 32); step++) {
            u32 a[4], a_next[4], b[4];
            matrix4(b, b_at + step * 32);
            matrix4(a, a_at + step * 32);
            matrix4(a_next, a_at + step * 32 + 16);
            mma(even, a, b[0], b[1]);
            mma(odd, a_next, b[2], b[3]);
        }
        float2 of_columns = tile < 4 ? *(const float2 *)(memory.scale[tile < 4 ? tile : 0] + column) : make_float2(1, 1);
        c[0] += (even[0] + odd[0]) * of_columns.x;
        c[1] += (even[1] + odd[1]) * of_columns.y;
        c[2] += (even[2] + odd[2]) * of_columns.x;
        c[3] += (even[3] + odd[3]) * of_columns.y;
    }
    float nothing = __uint_as_float(0xff800000u);
    bool left = there >> column & 1, right = there >> (column + 1) & 1;
    memory.s[head * S_PITCH + column] = left ? c[0] * scale : nothing;
    memory.s[head * S_PITCH + column + 1] = right ? c[1] * scale : nothing;
    memory.s[(head + 8) * S_PITCH + column] = left ? c[2] * scale : nothing;
    memory.s[(head + 8) * S_PITCH + column + 1] = right ? c[3] * scale : nothing;
}

// Eight threads a head: weights in place of scores, and what earlier sums must be multiplied with. NaN reaches weight and sum.
__device__ __forceinline__ void weights(Memory &memory) {
    u32 head = threadIdx.x >> 3, part = threadIdx.x & 7;
    float s[4], before = memory.max[head], max = before, sum = 0;
    float nothing = __uint_as_float(0xff800000u);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = memory.s[head * S_PITCH + part * 4 + i];
        max = fmaxf(max, s[i]);
    }
    for (int step = 1; step < 8; step <<= 1) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // Not max - max where both are -infinity.
        s[i] = s[i] == nothing ? 0.0f : exp2f(s[i] - (max == nothing ? 0.0f : max));
        sum += s[i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        memory.s[head * S_PITCH + part * 4 + i] = s[i];
    }
    for (int step = 1; step < 8; step <<= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    // All have read the largest score so far before one writes it.
    __syncwarp();
    if (part == 0) {
        float factor = before == max ? 1.0f : exp2f(before - max);
        memory.factor[head] = factor;
        memory.sum[head] = memory.sum[head] * factor + sum;
        memory.max[head] = max;
    }
}

// Adds the weighted rows: 16 heads, this warp's 128 dimensions.
__device__ __forceinline__ void values(Memory &memory, float o[16][4], u32 warp, u32 lane) {
    float low = memory.factor[lane >> 2], high = memory.factor[(lane >> 2) + 8];
    // This warp's dimensions are one tile of 128: weights times its scales, as the operand of mma.
    u32 p[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 head = (lane >> 2) + (i & 1) * 8, row = (i >> 2) * 16 + (i >> 1 & 1) * 8 + (lane & 3) * 2;
        float2 weight = *(const float2 *)(memory.s + head * S_PITCH + row);
        float2 of_rows = *(const float2 *)(memory.scale[warp] + row);
        p[i >> 2][i & 3] = bf16x2(weight.x * of_rows.x, weight.y * of_rows.y);
    }
#pragma unroll
    for (int n = 0; n < 16; n++) {
        u32 v[4];
        // Rows 0..31 of the tile, eight dimensions, as columns.
        matrix4_transposed(v, memory.keys + lane * PITCH + warp * 128 + n * 8);
        o[n][0] *= low;
        o[n][1] *= low;
        o[n][2] *= high;
        o[n][3] *= high;
        mma(o[n], p[0], v[0], v[1]);
        mma(o[n], p[1], v[2], v[3]);
    }
}

// q [rows, heads, 576] bf16; selected [rows, k] positions, negative for none; table [rows, table_stride].
// out [rows, splits, heads, 512] f32, unnormalised; parts [rows, splits, heads, 2] = (largest score, sum of weights), in
// powers of two. scale is that of the scores times log2(e). grid (splits, heads / 16 up, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128) sparse_attention(
    const u16 *q, u32 heads, const int *selected, u32 k, const int *table, u32 table_stride, const unsigned char *pool,
    u64 page_stride, u32 pages, int fp8, float scale, float *out, float2 *parts, u32 *violations) {
    extern __shared__ __align__(16) char bytes[];
    Memory &memory = *(Memory *)bytes;
    u64 row = blockIdx.z;
    u32 first_head = blockIdx.y * HEADS, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 i = threadIdx.x; i < HEADS * ROW / 8; i += 128) {
        u32 head = i / (ROW / 8), at = i % (ROW / 8);
        uint4 v = make_uint4(0, 0, 0, 0);
        if (first_head + head < heads) {
            v = __ldg((const uint4 *)(q + (row * heads + first_head + head) * ROW) + at);
        }
        *(uint4 *)(memory.q + head * PITCH + at * 8) = v;
    }
    if (threadIdx.x < HEADS) {
        memory.sum[threadIdx.x] = 0;
        memory.max[threadIdx.x] = __uint_as_float(0xff800000u);
    }
    float o[16][4] = {};
    u32 tiles = (k + TILE - 1) / TILE, part = (tiles + gridDim.x - 1) / gridDim.x;
    u32 begin = blockIdx.x * part, end = begin + part < tiles ? begin + part : tiles;
    u32 row_bytes = fp8 ? 656 : 1152, own_row = threadIdx.x >> 2;
    const int *positions = selected + row * k, *pages_of_row = table + row * table_stride;
    // Each warp gathers 8 rows, four threads a row. Positions are read two tiles ahead, page numbers one tile ahead.
    u32 stop = end * TILE < k ? end * TILE : k;
    u32 at = begin * TILE + own_row;
    int position = at < stop ? __ldg(positions + at) : -1;
    int position_next = at + TILE < stop ? __ldg(positions + at + TILE) : -1;
    int page = page_of(position, pages_of_row, table_stride);
    for (; at < end * TILE; at += TILE) {
        int page_next = page_of(position_next, pages_of_row, table_stride);
        int position_after = at + 2 * TILE < stop ? __ldg(positions + at + 2 * TILE) : -1;
        const unsigned char *from = 0;
        if (page >= 0 && (u32)page < pages) {
            from = pool + (u64)page * page_stride + (u32)position % TOKENS * row_bytes;
        } else if (position >= 0 && (threadIdx.x & 3) == 0 && blockIdx.y == 0) {
            atomicAdd(violations, 1u);
        }
        gather(memory.keys + own_row * PITCH, memory.scale[0] + own_row, from, fp8, threadIdx.x & 3);
        position = position_next;
        position_next = position_after;
        page = page_next;
        u32 threads_there = __ballot_sync(0xffffffffu, from != 0);
        u32 there = 0;
        for (int i = 0; i < 8; i++) {
            there |= (threads_there >> (4 * i) & 1) << i;
        }
        __syncthreads();
        scores(memory, warp, lane, scale, there << (warp * 8));
        __syncthreads();
        weights(memory);
        __syncthreads();
        values(memory, o, warp, lane);
        __syncthreads();
    }
    __syncthreads();
    u64 base = (row * gridDim.x + blockIdx.x) * heads + first_head;
    if (threadIdx.x < HEADS && first_head + threadIdx.x < heads) {
        parts[base + threadIdx.x] = make_float2(memory.max[threadIdx.x], memory.sum[threadIdx.x]);
    }
    for (int n = 0; n < 16; n++) {
        u32 head = lane >> 2, dimension = warp * 128 + n * 8 + (lane & 3) * 2;
        if (first_head + head < heads) {
            *(float2 *)(out + (base + head) * VALUES + dimension) = make_float2(o[n][0], o[n][1]);
        }
        if (first_head + head + 8 < heads) {
            *(float2 *)(out + (base + head + 8) * VALUES + dimension) = make_float2(o[n][2], o[n][3]);
        }
    }
}

// Merges the parts of a head: out [rows, heads, 512] f32 and lse [rows, heads], the natural logarithm of the sum of
// weights without the sink. sink [heads] may be 0. Nothing selected gives 0 and -infinity. grid (heads, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128) sparse_attention_merge(
    const float *from, const float2 *parts, u32 splits, u32 heads, const float *sink, float *out, float *lse) {
    u64 row = blockIdx.y;
    u32 head = blockIdx.x;
    float nothing = __uint_as_float(0xff800000u), max = nothing, sum = 0;
    bool poisoned = false;
#pragma unroll 8
    for (u32 i = 0; i < splits; i++) {
        float2 part = __ldg(parts + (row * splits + i) * heads + head);
        max = fmaxf(max, part.x);
        poisoned |= part.y != part.y;
    }
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (u32 i = 0; i < splits; i++) {
        u64 at = (row * splits + i) * heads + head;
        float2 part = __ldg(parts + at);
        // A part without rows, or with NaN scores only: its factor is 1, so that NaN stays and 0 stays.
        float factor = part.x == nothing ? 1.0f : exp2f(part.x - max);
        float4 v = __ldg((const float4 *)(from + at * VALUES) + threadIdx.x);
        sum += part.y * factor;
        value.x += v.x * factor;
        value.y += v.y * factor;
        value.z += v.z * factor;
        value.w += v.w * factor;
    }
    float logarithm = sum == 0 ? nothing : ((max == nothing && !poisoned ? 0.0f : max) + log2f(sum)) * 0.6931471805599453f;
    if (poisoned) {
        logarithm = __uint_as_float(0x7fffffffu);
    }
    float share = sum == 0 ? 0.0f : 1.0f / sum;
    if (sink && sum != 0) {
        share *= 1.0f / (1.0f + exp2f((sink[head] - logarithm) * 1.4426950408889634f));
    }
    value.x *= share;
    value.y *= share;
    value.z *= share;
    value.w *= share;
    ((float4 *)(out + (row * heads + head) * VALUES))[threadIdx.x] = value;
    if (threadIdx.x == 0) {
        lse[row * heads + head] = logarithm;
    }
}
