// The exact stand-in for attention: sums of the selected rows' first 512 values, which are small integers.
//
// As the CPU's `select_sum`: values are integers of at most 2^15 in size, sums at most 2^24; anything else is refused
// in status[row], zero before: bit 0 for a value, bit 1 for a sum. Integer sums do not depend on their order.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define TOKENS 64
#define WARPS 32
#define TILE 32 // values of a block
#define CHUNK (32 * WARPS)

struct Sums {
    int sum[4];
    bool unsound;
};

__device__ __forceinline__ void add(Sums &sums, int i, float value) {
    bool sound = fabsf(value) <= 32768.0f && rintf(value) == value;
    sums.unsound |= !sound;
    sums.sum[i] += sound ? __float2int_rn(value) : 0;
}

__device__ __forceinline__ float2 e4m3x2(u32 codes) {
    u32 halves;
    float2 out;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)codes));
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(out.x), "=f"(out.y) : "r"(halves));
    return out;
}

// What a lane reads of a row: 4 codes and their scale, or 4 values of bf16.
struct Part {
    uint2 raw;
    float scale;
    bool there;
};

// The values 4 * at .. of tile `tile` of 32 values of a row of 656 bytes (fp8) or 1152 bytes (bf16).
__device__ __forceinline__ void load(Part &part, const unsigned char *row, int fp8, u32 tile, u32 at) {
    if (fp8) {
        part.raw.x = __ldg((const u32 *)(row + tile * 32) + at);
        part.scale = __ldg((const float *)(row + 512) + tile / 4);
    } else {
        part.raw = __ldg((const uint2 *)(row + tile * 64) + at);
    }
}

__device__ __forceinline__ void add_part(Sums &sums, const Part &part, int fp8) {
    if (fp8) {
        float2 low = e4m3x2(part.raw.x), high = e4m3x2(part.raw.x >> 16);
        add(sums, 0, low.x * part.scale);
        add(sums, 1, low.y * part.scale);
        add(sums, 2, high.x * part.scale);
        add(sums, 3, high.y * part.scale);
    } else {
        add(sums, 0, __uint_as_float(part.raw.x << 16));
        add(sums, 1, __uint_as_float(part.raw.x & 0xffff0000u));
        add(sums, 2, __uint_as_float(part.raw.y << 16));
        add(sums, 3, __uint_as_float(part.raw.y & 0xffff0000u));
    }
}

// selected [rows, k]: positions, or negative for none; table [rows, table_stride] of pages of 64 rows. A position
// whose page is not in 0..pages, or is behind the table, is left out and counted in *violations.
// out [rows, 512] f32. grid (16 tiles, rows), 1024 threads.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) select_sum(
    const int *selected, u32 k, const int *table, u32 table_stride, const unsigned char *pool, u64 page_stride,
    u32 pages, int fp8, float *out, u32 *status, u32 *violations) {
    __shared__ int sums_of_warps[TILE];
    __shared__ u32 found[2];
    __shared__ const unsigned char *rows[CHUNK];
    u64 row = blockIdx.y;
    u32 tile = blockIdx.x, lane = threadIdx.x & 31;
    u32 row_bytes = fp8 ? 656 : 1152;
    if (threadIdx.x < TILE) {
        sums_of_warps[threadIdx.x] = 0;
    }
    if (threadIdx.x < 2) {
        found[threadIdx.x] = 0;
    }
    __syncthreads();
    Sums sums = {{0, 0, 0, 0}, false};
    for (u32 begin = 0; begin < k; begin += CHUNK) {
        // A thread finds one row; then a warp adds 32 of them, four at a time by eight lanes each.
        int position = begin + threadIdx.x < k ? __ldg(selected + row * k + begin + threadIdx.x) : -1;
        bool in_table = position >= 0 && (u32)position / TOKENS < table_stride;
        int page = in_table ? __ldg(table + row * table_stride + position / TOKENS) : -1;
        bool there = page >= 0 && (u32)page < pages;
        if (position >= 0 && !there && tile == 0) {
            atomicAdd(violations, 1u);
        }
        rows[threadIdx.x] = there ? pool + (u64)page * page_stride + position % TOKENS * row_bytes : 0;
        __syncthreads();
        u32 first = (threadIdx.x & ~31u) + (lane >> 3);
        Part part[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned char *at = rows[first + 4 * i];
            part[i].there = at != 0;
            if (part[i].there) {
                load(part[i], at, fp8, tile, lane & 7);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (part[i].there) {
                add_part(sums, part[i], fp8);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        atomicAdd(sums_of_warps + (lane & 7) * 4 + i, sums.sum[i]);
    }
    if (sums.unsound) {
        found[0] = 1;
    }
    __syncthreads();
    if (threadIdx.x < TILE) {
        int sum = sums_of_warps[threadIdx.x];
        if (sum > 1 << 24 || sum < -(1 << 24)) {
            found[1] = 1;
        }
        out[row * 512 + tile * TILE + threadIdx.x] = (float)sum;
    }
    __syncthreads();
    if (threadIdx.x == 0 && (found[0] || found[1])) {
        atomicOr(status + row, found[0] | found[1] << 1);
    }
}
