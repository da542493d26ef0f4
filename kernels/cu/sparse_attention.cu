// Softmax attention over selected rows of latent KV: keys are all 576 values of a row, values its first 512.
//
// A block has 32 heads of one query and one part of its selection, in tiles of 32 rows: gathered into registers
// while the tile before is computed, decoded to bf16 into shared memory, scored and weighted with mma.sync bf16 and f32
// sums, softmax online. For scores, the four warps of 16 heads share out the dimensions, so that each keeps its part of the
// queries in registers; for values, warps share out the dimensions of the output. fp8 codes are exact in bf16: their scales
// (one for 128 values) are applied to sums of scores, and to weights before those are rounded. attention_merge.cu merges
// parts. sm_90 has a way of its own, sparse_attention_wgmma.cu.
//
// dynamic shared memory: at most 58880 bytes

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define HEADS 32
#define TILE 32
#define TOKENS 64
#define ROW 576
#define VALUES 512
#define THREADS 256

__device__ __forceinline__ u32 shared(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
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
    return position < 0 ? -1 : at < table_stride ? table[at] : -2;
}

// The tiles of a block, and where positions end.
struct Part {
    u32 begin, end, stop;

    __device__ __forceinline__ explicit Part(u32 k) {
        u32 tiles = (k + TILE - 1) / TILE, part = (tiles + gridDim.x - 1) / gridDim.x;
        begin = blockIdx.x * part < tiles ? blockIdx.x * part : tiles;
        end = begin + part < tiles ? begin + part : tiles;
        stop = end * TILE < k ? end * TILE : k;
    }
};

// Waits for the kernel before this one in its stream, and lets the one behind it come. Launches overlap (see launch.rs), so
// that what is read must not be taken for constant: no __ldg.
__device__ __forceinline__ void take_turn() {
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
}

#define PARAMETERS                                                                                                     \
    const u16 *q, u32 heads, const int *selected, u32 k, const int *table, u32 table_stride, const unsigned char *pool, \
    u64 page_stride, u32 pages, float scale, float *out, float2 *parts, u32 *violations

#define PITCH 584  // a row in shared memory, in bf16: 1168 bytes, so that eight rows begin in different banks
#define S_PITCH 40 // likewise for scores
#define SLICES 4   // of the dimensions: 128 with one scale, and 16 of the last 64
#define GROUPS 2 // of 16 heads, and of four warps: one for each slice

struct Memory {
    u16 keys[TILE * PITCH];                     // 37376 bytes
    float s[SLICES][HEADS * S_PITCH];     // 20480: parts of scores; the first then has the weights
    float scale[4][TILE];                       // 512: of the rows' codes
    u32 there[TILE];                            // 128
    float factor[HEADS];                  // what earlier sums are multiplied with
    float sum[HEADS];
    float max[HEADS];
};

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

// One row of a tile in the registers of eight threads.
template <bool FP8> struct Gathered {
    static constexpr int SHARERS = THREADS / TILE;
    static constexpr int CODES = FP8 ? VALUES / 16 / SHARERS : 0; // vectors of 16 codes
    static constexpr int VECTORS = CODES + (FP8 ? ROW - VALUES : ROW) / 8 / SHARERS;
    uint4 v[VECTORS];
    float scale;
    bool there;

    // row may be 0: then zeros.
    __device__ __forceinline__ void load(const unsigned char *row, u32 t) {
        there = row != 0;
        scale = FP8 && there && t < 4 ? *((const float *)(row + VALUES) + t) : 1.0f;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const uint4 *from = i < CODES ? (const uint4 *)row + i * SHARERS + t
                                          : (const uint4 *)(row + (FP8 ? VALUES + 16 : 0)) + (i - CODES) * SHARERS + t;
            v[i] = there ? *from : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void store(Memory &memory, u32 row, u32 t) const {
        uint4 *out = (uint4 *)(memory.keys + row * PITCH);
#pragma unroll
        for (int i = 0; i < CODES; i++) {
            uint4 first = make_uint4(decode2(v[i].x), decode2(v[i].x >> 16), decode2(v[i].y), decode2(v[i].y >> 16));
            uint4 second = make_uint4(decode2(v[i].z), decode2(v[i].z >> 16), decode2(v[i].w), decode2(v[i].w >> 16));
            // Eight threads write to different banks.
            u32 at = 2 * (i * SHARERS + t), turn = t >> 2;
            out[at + turn] = turn ? second : first;
            out[at + 1 - turn] = turn ? first : second;
        }
#pragma unroll
        for (int i = CODES; i < VECTORS; i++) {
            out[(FP8 ? VALUES / 8 : 0) + (i - CODES) * SHARERS + t] = v[i];
        }
        if (t < 4) {
            memory.scale[t][row] = scale;
        }
        if (t == 0) {
            memory.there[row] = there;
        }
    }
};

// This warp's part of 16 queries: eight steps of 16 dimensions of its slice, and one of the last 64.
struct Queries {
    u32 a[9][4];

    __device__ __forceinline__ void load(const u16 *q, u32 head, u32 heads, u32 slice, u32 lane) {
#pragma unroll
        for (int step = 0; step < 9; step++) {
            u32 dimension = (step < 8 ? slice * 128 + step * 16 : VALUES + slice * 16) + (lane & 3) * 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 own = head + (lane >> 2) + (i & 1) * 8;
                a[step][i] = own < heads ? *((const u32 *)(q + (u64)own * ROW + dimension + (i >> 1) * 8)) : 0;
            }
        }
    }
};

// Scores of 16 heads and the tile's 32 rows over this warp's slice, to memory.s.
template <bool FP8>
__device__ __forceinline__ void scores(Memory &memory, const Queries &queries, u32 warp, u32 lane) {
    u32 slice = warp % SLICES, head = warp / SLICES * 16 + (lane >> 2), column = (lane & 3) * 2;
    float c[4][4] = {};
    const u16 *at = memory.keys + (lane & 7) * PITCH + slice * 128 + (lane >> 3) * 8;
#pragma unroll
    for (int step = 0; step < 8; step += 2) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            u32 b[4];
            matrix4(b, at + n * 8 * PITCH + step * 16);
            mma(c[n], queries.a[step], b[0], b[1]);
            mma(c[n], queries.a[step + 1], b[2], b[3]);
        }
    }
    if (FP8) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 of_columns = *(const float2 *)(memory.scale[slice] + n * 8 + column);
            c[n][0] *= of_columns.x;
            c[n][1] *= of_columns.y;
            c[n][2] *= of_columns.x;
            c[n][3] *= of_columns.y;
        }
    }
    at = memory.keys + ((lane >> 4) * 8 + (lane & 7)) * PITCH + VALUES + slice * 16 + (lane >> 3 & 1) * 8;
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
        u32 b[4];
        matrix4(b, at + n * 8 * PITCH);
        mma(c[n], queries.a[8], b[0], b[1]);
        mma(c[n + 1], queries.a[8], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        *(float2 *)(memory.s[slice] + head * S_PITCH + n * 8 + column) = make_float2(c[n][0], c[n][1]);
        *(float2 *)(memory.s[slice] + (head + 8) * S_PITCH + n * 8 + column) = make_float2(c[n][2], c[n][3]);
    }
}

// Eight threads a head: weights in place of scores, and what earlier sums must be multiplied with. NaN reaches weight and sum.
__device__ __forceinline__ void weights(Memory &memory, float scale) {
    u32 head = threadIdx.x >> 3, row = (threadIdx.x & 7) * 4, place = head * S_PITCH + row;
    float s[4] = {0, 0, 0, 0}, before = memory.max[head], max = before, sum = 0;
    float nothing = __uint_as_float(0xff800000u);
#pragma unroll
    for (int slice = 0; slice < SLICES; slice++) {
        float4 part = *(const float4 *)(memory.s[slice] + place);
        s[0] += part.x;
        s[1] += part.y;
        s[2] += part.z;
        s[3] += part.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = memory.there[row + i] ? s[i] * scale : nothing;
        max = fmaxf(max, s[i]);
    }
    for (int step = 1; step < 8; step <<= 1) {
        max = fmaxf(max, __shfl_xor_sync(ALL, max, step));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // Not max - max where both are -infinity.
        s[i] = s[i] == nothing ? 0.0f : exp2f(s[i] - (max == nothing ? 0.0f : max));
        sum += s[i];
    }
    *(float4 *)(memory.s[0] + place) = make_float4(s[0], s[1], s[2], s[3]);
    for (int step = 1; step < 8; step <<= 1) {
        sum += __shfl_xor_sync(ALL, sum, step);
    }
    // All have read the largest score so far before one writes it.
    __syncwarp();
    if (row == 0) {
        float factor = before == max ? 1.0f : exp2f(before - max);
        memory.factor[head] = factor;
        memory.sum[head] = memory.sum[head] * factor + sum;
        memory.max[head] = max;
    }
}

// Adds the weighted rows: all heads of the block, this warp's 128 / GROUPS dimensions.
__device__ __forceinline__ void values(Memory &memory, float o[GROUPS][16 / GROUPS][4], u32 warp, u32 lane) {
    // This warp's dimensions are in one tile of 128: weights times its scales, as the operand of mma.
    u32 p[GROUPS][2][4];
#pragma unroll
    for (int m = 0; m < GROUPS; m++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            u32 head = m * 16 + (lane >> 2) + (i & 1) * 8, row = (i >> 2) * 16 + (i >> 1 & 1) * 8 + (lane & 3) * 2;
            float2 weight = *(const float2 *)(memory.s[0] + head * S_PITCH + row);
            float2 of_rows = *(const float2 *)(memory.scale[warp / GROUPS] + row);
            p[m][i >> 2][i & 3] = bf16x2(weight.x * of_rows.x, weight.y * of_rows.y);
        }
        float low = memory.factor[m * 16 + (lane >> 2)], high = memory.factor[m * 16 + (lane >> 2) + 8];
#pragma unroll
        for (int n = 0; n < 16 / GROUPS; n++) {
            o[m][n][0] *= low;
            o[m][n][1] *= low;
            o[m][n][2] *= high;
            o[m][n][3] *= high;
        }
    }
#pragma unroll
    for (int n = 0; n < 16 / GROUPS; n++) {
        u32 v[4];
        // Rows 0..31 of the tile, eight dimensions, as columns.
        matrix4_transposed(v, memory.keys + lane * PITCH + warp * (128 / GROUPS) + n * 8);
#pragma unroll
        for (int m = 0; m < GROUPS; m++) {
            mma(o[m][n], p[m][0], v[0], v[1]);
            mma(o[m][n], p[m][1], v[2], v[3]);
        }
    }
}

template <bool FP8> __device__ __forceinline__ void attend(PARAMETERS) {
    take_turn();
    extern __shared__ __align__(16) char bytes[];
    Memory &memory = *(Memory *)bytes;
    u64 row = blockIdx.z;
    u32 first_head = blockIdx.y * HEADS, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Part part(k);
    const int *positions = selected + row * k, *pages_of_row = table + row * table_stride;
    // Rows are gathered one tile ahead of their use, their page numbers are read a tile before that, and positions another.
    u32 own_row = threadIdx.x / (THREADS / TILE), t = threadIdx.x % (THREADS / TILE), at = part.begin * TILE + own_row;
    auto position_at = [&](u32 at) { return at < part.stop ? positions[at] : -1; };
    auto row_of = [&](int position, int page) {
        const unsigned char *from = 0;
        if (page >= 0 && (u32)page < pages) {
            from = pool + (u64)page * page_stride + (u32)position % TOKENS * (FP8 ? 656 : 1152);
        } else if (position >= 0 && t == 0 && blockIdx.y == 0) {
            atomicAdd(violations, 1u);
        }
        return from;
    };
    int position = position_at(at), position_next = position_at(at + TILE), position_after = position_at(at + 2 * TILE);
    int page = page_of(position, pages_of_row, table_stride), page_next = page_of(position_next, pages_of_row, table_stride);
    Gathered<FP8> gathered;
    gathered.load(row_of(position, page), t);
    Queries queries;
    queries.load(q + row * heads * ROW, first_head + warp / SLICES * 16, heads, warp % SLICES, lane);
    if (threadIdx.x < HEADS) {
        memory.sum[threadIdx.x] = 0;
        memory.max[threadIdx.x] = __uint_as_float(0xff800000u);
    }
    float o[GROUPS][16 / GROUPS][4] = {};
    for (; at < part.end * TILE; at += TILE) {
        gathered.store(memory, own_row, t);
        __syncthreads();
        position = position_next;
        position_next = position_after;
        page = page_next;
        gathered.load(row_of(position, page), t);
        page_next = page_of(position_next, pages_of_row, table_stride);
        position_after = position_at(at + 3 * TILE);
        scores<FP8>(memory, queries, warp, lane);
        __syncthreads();
        weights(memory, scale);
        __syncthreads();
        values(memory, o, warp, lane);
        __syncthreads();
    }
    u64 base = (row * gridDim.x + blockIdx.x) * heads + first_head;
    if (threadIdx.x < HEADS && first_head + threadIdx.x < heads) {
        parts[base + threadIdx.x] = make_float2(memory.max[threadIdx.x], memory.sum[threadIdx.x]);
    }
#pragma unroll
    for (int m = 0; m < GROUPS; m++) {
#pragma unroll
        for (int n = 0; n < 16 / GROUPS; n++) {
            u32 head = m * 16 + (lane >> 2), dimension = warp * (128 / GROUPS) + n * 8 + (lane & 3) * 2;
            if (first_head + head < heads) {
                *(float2 *)(out + (base + head) * VALUES + dimension) = make_float2(o[m][n][0], o[m][n][1]);
            }
            if (first_head + head + 8 < heads) {
                *(float2 *)(out + (base + head + 8) * VALUES + dimension) = make_float2(o[m][n][2], o[m][n][3]);
            }
        }
    }
}

#define ARGUMENTS q, heads, selected, k, table, table_stride, pool, page_stride, pages, scale, out, parts, violations

// q [rows, heads, 576] bf16; selected [rows, k] positions, negative for none; table [rows, table_stride].
// out [rows, splits, heads, 512] f32, unnormalised; parts [rows, splits, heads, 2] = (largest score, sum of weights), in
// powers of two. scale is that of the scores times log2(e). grid (splits, heads / 32 up, rows), 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_attention_fp8(PARAMETERS) {
    attend<true>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_attention_bf16(PARAMETERS) {
    attend<false>(ARGUMENTS);
}

// Heads of a block, and rows of a tile.
extern "C" __constant__ u32 sparse_attention_shape[2] = {HEADS, TILE};
