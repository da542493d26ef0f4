// Scores of paged bf16 index keys: logit = sum over heads of weight * relu(q . k).
//
// As index_logits_fp8.cu, with 16 keys (a quarter of a page) a warp: lane t of a quad takes bytes [64 t, 64 t + 64) of
// its rows, which are the operands of mma.sync as they lie.
//
// dynamic shared memory: at most 33280 bytes (128 heads: 256 bytes of bf16 and a weight each)

typedef unsigned int u32;
typedef unsigned long long u64;

#define KEY_BYTES 256
#define WARPS 4
#define VECTORS 4

__device__ __forceinline__ void mma(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 0 for what is below 0; NaN stays NaN, so that a poisoned page shows.
__device__ __forceinline__ float relu(float v) {
    float out;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(out) : "f"(v));
    return out;
}

// Adds the weighted relu of one head to a sum. A head that is not there must not count: 0 times the NaN of a key would.
__device__ __forceinline__ void add(float &sum, float weight, float dot, bool there) {
    float with = fmaf(weight, relu(dot), sum);
    sum = there ? with : sum;
}

struct Keys {
    uint4 row[2][VECTORS];
};

// page < 0: absent. Lane (g, t) takes rows g and g + 8 of a quarter of a page.
__device__ __forceinline__ void load(Keys &keys, const unsigned char *pool, u64 page_stride, int page, u32 quarter, u32 g, u32 t) {
    if (page < 0) {
        return;
    }
    const uint4 *rows = (const uint4 *)(pool + (u64)page * page_stride + (quarter * 16 + g) * KEY_BYTES + t * 64);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        keys.row[0][j] = __ldg(rows + j);
        keys.row[1][j] = __ldg(rows + 8 * KEY_BYTES / 16 + j);
    }
}

// Queries, [heads16 / 8][vector][lane][16 bytes]: what lane (g, t) needs of head 8 n + g, in the order of the mma.
__device__ __forceinline__ void stage(uint4 *smem, float *weights, const unsigned char *q, const float *w, u32 heads, u32 heads16) {
    for (u32 i = threadIdx.x; i < heads16 * 16; i += blockDim.x) {
        u32 head = i >> 4, t = i >> 2 & 3, j = i & 3;
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (head < heads) {
            raw = __ldg((const uint4 *)(q + head * KEY_BYTES) + t * VECTORS + j);
        }
        smem[((head >> 3) * VECTORS + j) * 32 + (head & 7) * 4 + t] = raw;
    }
    for (u32 i = threadIdx.x; i < heads16; i += blockDim.x) {
        weights[i] = i < heads ? w[i] : 0.0f;
    }
}

__device__ __forceinline__ float score(const Keys &keys, const uint4 *smem, const float *weights, u32 heads, u32 lane) {
    float low = 0, high = 0;
#pragma unroll 1
    for (u32 n = 0; n * 8 < heads; n += 2) {
        // 16 heads: two chains of mma that do not wait for each other.
        float c[2][4] = {};
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                uint4 b = smem[((n + pair) * VECTORS + j) * 32 + lane];
                uint4 a = keys.row[0][j], a8 = keys.row[1][j];
                mma(c[pair], a.x, a8.x, a.y, a8.y, b.x, b.y);
                mma(c[pair], a.z, a8.z, a.w, a8.w, b.z, b.w);
            }
        }
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            u32 head = (n + pair) * 8 + (lane & 3) * 2;
            float2 w = *(const float2 *)(weights + head);
            bool whole = (n + pair) * 8 + 8 <= heads;
            add(low, w.x, c[pair][0], whole || head < heads);
            add(high, w.x, c[pair][2], whole || head < heads);
            add(low, w.y, c[pair][1], whole || head + 1 < heads);
            add(high, w.y, c[pair][3], whole || head + 1 < heads);
        }
    }
    low += __shfl_xor_sync(0xffffffffu, low, 1);
    high += __shfl_xor_sync(0xffffffffu, high, 1);
    low += __shfl_xor_sync(0xffffffffu, low, 2);
    high += __shfl_xor_sync(0xffffffffu, high, 2);
    return lane & 1 ? high : low;
}

// q [rows, heads, 128] bf16, w [rows, heads], table [rows, table_stride] pages, lens [rows], out [rows, out_stride].
// Logits at or behind a row's length stay as they were. An absent page (not in 0..pages) gives -infinity.
// grid: (any, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3) index_logits_bf16(
    const unsigned char *q, const float *w, u32 heads, const int *table, u32 table_stride, const int *lens,
    const unsigned char *pool, u64 page_stride, u32 pages, float *out, u64 out_stride, u32 len_max, u32 *violations) {
    extern __shared__ uint4 smem[];
    u32 heads16 = (heads + 15) & ~15u;
    float *weights = (float *)(smem + heads16 * 4 * VECTORS);
    u64 row = blockIdx.y;
    int length = lens[row];
    u32 len = length < 0 ? 0 : (u32)length < len_max ? (u32)length : len_max;
    u32 quarters = (len + 15) / 16;
    if (blockIdx.x * WARPS >= quarters) {
        return;
    }
    stage(smem, weights, q + row * heads * KEY_BYTES, w + row * heads, heads, heads16);
    __syncthreads();
    u32 lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    u32 step = gridDim.x * WARPS;
    u32 at = blockIdx.x * WARPS + (threadIdx.x >> 5);
    const int *pages_of_row = table + row * table_stride;
    // A table entry is read two rounds ahead and keys one round ahead.
    int page = at < quarters ? __ldg(pages_of_row + at / 4) : -1;
    page = (u32)page < pages ? page : -1;
    int next = at + step < quarters ? __ldg(pages_of_row + (at + step) / 4) : -1;
    Keys keys;
    load(keys, pool, page_stride, page, at & 3, g, t);
    for (; at < quarters; at += step) {
        next = (u32)next < pages ? next : -1;
        int after = at + 2 * (u64)step < quarters ? __ldg(pages_of_row + (at + 2 * step) / 4) : -1;
        Keys ahead;
        load(ahead, pool, page_stride, next, (at + step) & 3, g, t);
        float logit = score(keys, smem, weights, heads, lane);
        if (page < 0) {
            logit = __uint_as_float(0xff800000u);
            if (lane == 0) {
                atomicAdd(violations, 1u);
            }
        }
        u32 token = at * 16 + g + 8 * (t & 1);
        if (t < 2 && token < len) {
            out[row * out_stride + token] = logit;
        }
        keys = ahead;
        page = next;
        next = after;
    }
}
