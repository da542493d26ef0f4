// What keeps stale pages visible: poison for pages that nobody owns, and checksums of pages against expected ones.
// A page outside of 0..pages is skipped and counted in *violations.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 mix64(u64 word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ word >> 27) * 0x94d049bb133111ebull;
    return word ^ word >> 31;
}

__device__ __forceinline__ u64 warp_sum(u64 v) {
    for (int step = 16; step > 0; step >>= 1) {
        v += __shfl_xor_sync(0xffffffffu, v, step);
    }
    return v;
}

// Fills pages with 0xff, which is NaN in e4m3, bf16 and f32. page_bytes is a multiple of 16. Any grid, 256 threads.
extern "C" __global__ void __launch_bounds__(256) page_poison(
    unsigned char *pool, u64 page_stride, u32 page_bytes, u32 pages, const int *list, u32 count, u32 *violations) {
    uint4 poison = make_uint4(~0u, ~0u, ~0u, ~0u);
    for (u32 i = blockIdx.x; i < count; i += gridDim.x) {
        int page = list[i];
        if (page < 0 || (u32)page >= pages) {
            if (threadIdx.x == 0) {
                atomicAdd(violations, 1u);
            }
            continue;
        }
        uint4 *at = (uint4 *)(pool + (u64)page * page_stride);
        for (u32 j = threadIdx.x; j < page_bytes / 16; j += blockDim.x) {
            at[j] = poison;
        }
    }
}

// result = {mismatches, the lowest position in the list with one (~0 before)}. checksums [count] may be 0.
// expected [count] and keys [count] belong to list [count]. Any grid, 256 threads.
extern "C" __global__ void __launch_bounds__(256) page_verify(
    const unsigned char *pool, u64 page_stride, u32 page_bytes, u32 pages, const int *list, const u64 *keys,
    const u64 *expected, u32 count, u64 *checksums, u32 *result, u32 *violations) {
    __shared__ u64 partial[8];
    for (u32 i = blockIdx.x; i < count; i += gridDim.x) {
        int page = list[i];
        if (page < 0 || (u32)page >= pages) {
            if (threadIdx.x == 0) {
                atomicAdd(violations, 1u);
            }
            continue;
        }
        const uint4 *at = (const uint4 *)(pool + (u64)page * page_stride);
        u64 key = keys[i], sum = 0;
#pragma unroll 4
        for (u32 j = threadIdx.x; j < page_bytes / 16; j += blockDim.x) {
            uint4 v = at[j];
            u64 low = v.x | (u64)v.y << 32, high = v.z | (u64)v.w << 32;
            sum += mix64(low ^ mix64(key + 2 * (u64)j)) + mix64(high ^ mix64(key + 2 * (u64)j + 1));
        }
        sum = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) {
            partial[threadIdx.x >> 5] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            sum = 0;
            for (int warp = 0; warp < 8; warp++) {
                sum += partial[warp];
            }
            if (checksums) {
                checksums[i] = sum;
            }
            if (sum != expected[i]) {
                atomicAdd(result, 1u);
                atomicMin(result + 1, i);
            }
        }
        __syncthreads();
    }
}
