// Scores of paged fp8 index keys: logit = k_scale * sum over heads of weight * relu(q . k).
//
// A warp takes 32 keys (half a page) and all heads. Keys go from global memory straight to mma fragments: lane t of a
// quad takes bytes [32 t, 32 t + 32) of its row, queries use the same order of dimensions, and a dot product does not
// mind. Where e4m3 is native to mma.sync (sm_89 and up, but not sm_90 and sm_100, which emulate it) it is used as it is
// (QMMA); elsewhere codes become f16, which holds them exactly (HMMA). -DFORCE_QMMA takes the first way anywhere.
//
// dynamic shared memory: at most 33280 bytes (128 heads: 256 bytes of f16 and a weight each)

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#if defined(FORCE_QMMA) || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
#define QMMA 1
#define STEPS 4        // k-steps of 32 dimensions
#define QUERY_VECTORS 2 // 16-byte vectors of a lane and 8 heads
#else
#define QMMA 0
#define STEPS 8
#define QUERY_VECTORS 4
#endif
// Emulated QMMA needs more registers than three blocks leave.
#define BLOCKS_MIN (QMMA && __CUDA_ARCH__ < 1200 ? 2 : 3)
#define GROUPS 2 // of eight heads, at a time
#define KEY_BYTES 128
#define TOKENS 64
#define PAGE_BYTES 8448
#define WARPS 4

__device__ __forceinline__ void halves(u32 codes, u32 &low, u32 &high) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(low), "=r"(high) : "r"(codes));
}

// One k-step of 16 keys and 8 heads.
__device__ __forceinline__ void mma(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if QMMA
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// 0 for what is below 0; NaN stays NaN, so that a poisoned page shows.
__device__ __forceinline__ float relu(float v) {
    float out;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(out) : "f"(v));
    return out;
}

// Two vectors of each of four rows: half a page of which this warp's lanes hold one row in four each.
struct Keys {
    uint4 row[4][2];
};

// page < 0: absent. Lane (g, t) takes rows g, g + 8, g + 16, g + 24, and the scale of row g + 8 t.
__device__ __forceinline__ void load(Keys &keys, const unsigned char *pool, u64 page_stride, int page, u32 half, u32 g, u32 t) {
    if (page < 0) {
        return;
    }
    const unsigned char *at = pool + (u64)page * page_stride;
    const uint4 *rows = (const uint4 *)(at + (half * 32 + g) * KEY_BYTES + t * 32);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        keys.row[i][0] = __ldg(rows + i * 64);
        keys.row[i][1] = __ldg(rows + i * 64 + 1);
    }
}

// Queries, [heads16 / 8][vector][lane][16 bytes]: what lane (g, t) needs of head 8 n + g, in the order of the mma.
__device__ __forceinline__ void stage(uint4 *smem, float *weights, const unsigned char *q, const float *w, u32 heads, u32 heads16) {
    for (u32 i = threadIdx.x; i < heads16 * 8; i += blockDim.x) {
        // 16 bytes: vector j of quad lane t of head h.
        u32 head = i >> 3, t = i >> 1 & 3, j = i & 1;
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (head < heads) {
            raw = __ldg((const uint4 *)(q + head * KEY_BYTES) + t * 2 + j);
        }
        u32 lane = (head & 7) * 4 + t, n = head >> 3;
#if QMMA
        smem[(n * 2 + j) * 32 + lane] = raw;
#else
        uint4 a, b;
        halves(raw.x, a.x, a.y);
        halves(raw.y, a.z, a.w);
        halves(raw.z, b.x, b.y);
        halves(raw.w, b.z, b.w);
        smem[(n * 4 + 2 * j) * 32 + lane] = a;
        smem[(n * 4 + 2 * j + 1) * 32 + lane] = b;
#endif
    }
    for (u32 i = threadIdx.x; i < heads16; i += blockDim.x) {
        weights[i] = i < heads ? w[i] : 0.0f;
    }
}

// Adds the weighted relu of one head to a sum.
__device__ __forceinline__ void add(float &sum, float weight, float dot) {
    sum = fmaf(weight, relu(dot), sum);
}

// Adds 8 * GROUPS heads to the sums of this lane's four rows: chains of mma that do not wait for each other.
__device__ __forceinline__ void heads_of(float sum[4], const u32 a[4][2 * STEPS], const uint4 *queries, const float *of_heads,
                                         u32 n, u32 heads, u32 lane) {
    float c[GROUPS][2][4] = {};
#pragma unroll
    for (int j = 0; j < QUERY_VECTORS; j++) {
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            uint4 b = queries[(group * QUERY_VECTORS + j) * 32];
            int s = 2 * j;
            mma(c[group][0], a[0][2 * s], a[1][2 * s], a[0][2 * s + 1], a[1][2 * s + 1], b.x, b.y);
            mma(c[group][1], a[2][2 * s], a[3][2 * s], a[2][2 * s + 1], a[3][2 * s + 1], b.x, b.y);
            mma(c[group][0], a[0][2 * s + 2], a[1][2 * s + 2], a[0][2 * s + 3], a[1][2 * s + 3], b.z, b.w);
            mma(c[group][1], a[2][2 * s + 2], a[3][2 * s + 2], a[2][2 * s + 3], a[3][2 * s + 3], b.z, b.w);
        }
    }
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        u32 head = (n + group) * 8 + (lane & 3) * 2;
        float2 w = *(const float2 *)(of_heads + group * 8);
        // A head that is not there must not count: 0 times the NaN of a key would.
        if (head < heads) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                add(sum[i], w.x, c[group][i >> 1][2 * (i & 1)]);
            }
        }
        if (head + 1 < heads) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                add(sum[i], w.y, c[group][i >> 1][2 * (i & 1) + 1]);
            }
        }
    }
}

__device__ __forceinline__ float score(const Keys &keys, const uint4 *smem, const float *weights, u32 heads, u32 lane) {
    u32 a[4][2 * STEPS];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 raw[8] = {keys.row[i][0].x, keys.row[i][0].y, keys.row[i][0].z, keys.row[i][0].w,
                      keys.row[i][1].x, keys.row[i][1].y, keys.row[i][1].z, keys.row[i][1].w};
#pragma unroll
        for (int j = 0; j < 8; j++) {
#if QMMA
            a[i][j] = raw[j];
#else
            halves(raw[j], a[i][2 * j], a[i][2 * j + 1]);
#endif
        }
    }
    float sum[4] = {0, 0, 0, 0};
    const uint4 *queries = smem + lane;
    const float *of_heads = weights + (lane & 3) * 2;
    // A number that is known leaves out the question which heads there are.
    if (heads == 64) {
#pragma unroll 1
        for (u32 n = 0; n < 8; n += GROUPS, queries += GROUPS * QUERY_VECTORS * 32, of_heads += GROUPS * 8) {
            heads_of(sum, a, queries, of_heads, n, 64, lane);
        }
    } else {
#pragma unroll 1
        for (u32 n = 0; n * 8 < heads; n += GROUPS, queries += GROUPS * QUERY_VECTORS * 32, of_heads += GROUPS * 8) {
            heads_of(sum, a, queries, of_heads, n, heads, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
    }
    u32 t = lane & 3;
    float own = t == 0 ? sum[0] : t == 1 ? sum[1] : t == 2 ? sum[2] : sum[3];
    return own;
}

// q [rows, heads, 128] e4m3, w [rows, heads], table [rows, table_stride] pages, lens [rows], out [rows, out_stride].
// Logits at or behind a row's length stay as they were. An absent page (not in 0..pages) gives -infinity.
// grid: (any, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS_MIN) index_logits_fp8(
    const unsigned char *q, const float *w, u32 heads, const int *table, u32 table_stride, const int *lens,
    const unsigned char *pool, u64 page_stride, u32 pages, float *out, u64 out_stride, u32 len_max, u32 *violations) {
    extern __shared__ uint4 smem[];
    u32 heads16 = (heads + 15) & ~15u;
    float *weights = (float *)(smem + heads16 * 4 * QUERY_VECTORS);
    u64 row = blockIdx.y;
    int length = lens[row];
    u32 len = length < 0 ? 0 : (u32)length < len_max ? (u32)length : len_max;
    u32 at = blockIdx.x * WARPS + (threadIdx.x >> 5), step = gridDim.x * WARPS;
    if (blockIdx.x * WARPS * 32 >= len) {
        return;
    }
    u32 lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    table += row * table_stride;
    // A table entry is read two rounds ahead and keys one round ahead.
    int page = at * 32 < len ? __ldg(table + at / 2) : -1;
    int next = (at + step) * 32 < len ? __ldg(table + (at + step) / 2) : -1;
    page = (u32)page < pages ? page : -1;
    Keys keys;
    load(keys, pool, page_stride, page, at & 1, g, t);
    // While the first keys are on their way.
    stage(smem, weights, q + row * heads * KEY_BYTES, w + row * heads, heads, heads16);
    __syncthreads();
    for (; at * 32 < len; at += step) {
        next = (u32)next < pages ? next : -1;
        Keys ahead;
        load(ahead, pool, page_stride, next, (at + step) & 1, g, t);
        int after = (at + 2 * step) * 32 < len ? __ldg(table + (at + 2 * step) / 2) : -1;
        float scale = page < 0 ? 0 : __ldg((const float *)(pool + (u64)page * page_stride + TOKENS * KEY_BYTES) + (at & 1) * 32 + g + 8 * t);
        float logit = scale * score(keys, smem, weights, heads, lane);
        if (page < 0) {
            logit = __uint_as_float(0xff800000u);
            if (lane == 0) {
                atomicAdd(violations, 1u);
            }
        }
        u32 token = at * 32 + g + 8 * t;
        if (token < len) {
            out[row * out_stride + token] = logit;
        }
        keys = ahead;
        page = next;
        next = after;
    }
}
