// Writes index keys into pages of 64 tokens: one warp a key, four values a lane.
//
// fp8 page: 64 x 128 bytes of e4m3, then 64 f32 scales (8448 bytes). bf16 page: 64 x 256 bytes (16384 bytes).
// The CPU reference is `write_key`; bytes are equal to its bytes, for NaN and infinities too.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

// Like f32::max: NaN values are passed over.
__device__ __forceinline__ float warp_amax(float v) {
    for (int step = 16; step > 0; step >>= 1) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    }
    return v;
}

__device__ __forceinline__ u32 e4m3x2(float low, float high) {
    u16 out;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
    return out;
}

// To nearest, ties to even; a NaN keeps its sign and upper bits and becomes quiet.
__device__ __forceinline__ u32 bf16_bits(float value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return bits >> 16 | 0x40u;
    }
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// Reads keys[key][4 * lane ..][..4].
__device__ __forceinline__ void read4(const void *keys, int keys_are_bf16, u64 key, u32 lane, float v[4]) {
    if (keys_are_bf16) {
        uint2 raw = ((const uint2 *)keys)[key * 32 + lane];
        v[0] = __uint_as_float(raw.x << 16);
        v[1] = __uint_as_float(raw.x & 0xffff0000u);
        v[2] = __uint_as_float(raw.y << 16);
        v[3] = __uint_as_float(raw.y & 0xffff0000u);
    } else {
        float4 raw = ((const float4 *)keys)[key * 32 + lane];
        v[0] = raw.x;
        v[1] = raw.y;
        v[2] = raw.z;
        v[3] = raw.w;
    }
}

// slots[key] = (page, token). A slot outside of `pages` pages of 64 tokens is skipped and counted in *violations.
// rule: 0 = max(1e-4, amax) / 448, 1 = that rounded up to a power of two.
extern "C" __global__ void __launch_bounds__(256) index_k_write_fp8(
    const void *keys, int keys_are_bf16, const int2 *slots, u32 count, unsigned char *pool, u64 page_stride, u32 pages,
    int rule, u32 *violations) {
    u32 lane = threadIdx.x & 31;
    u64 key = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (key >= count) {
        return;
    }
    int2 slot = slots[key];
    if (slot.x < 0 || (u32)slot.x >= pages || (u32)slot.y >= 64) {
        if (lane == 0) {
            atomicAdd(violations, 1u);
        }
        return;
    }
    float v[4];
    read4(keys, keys_are_bf16, key, lane, v);
    float amax = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
    float scale = __fdiv_rn(fmaxf(warp_amax(fmaxf(amax, 0.0f)), 1e-4f), 448.0f);
    if (rule) {
        scale = __uint_as_float((__float_as_uint(scale) + 0x7fffffu) & 0x7f800000u);
    }
    u32 codes = e4m3x2(__fdiv_rn(v[0], scale), __fdiv_rn(v[1], scale))
        | e4m3x2(__fdiv_rn(v[2], scale), __fdiv_rn(v[3], scale)) << 16;
    unsigned char *page = pool + (u64)slot.x * page_stride;
    ((u32 *)(page + slot.y * 128))[lane] = codes;
    if (lane == 0) {
        ((float *)(page + 8192))[slot.y] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(256) index_k_write_bf16(
    const void *keys, int keys_are_bf16, const int2 *slots, u32 count, unsigned char *pool, u64 page_stride, u32 pages,
    u32 *violations) {
    u32 lane = threadIdx.x & 31;
    u64 key = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (key >= count) {
        return;
    }
    int2 slot = slots[key];
    if (slot.x < 0 || (u32)slot.x >= pages || (u32)slot.y >= 64) {
        if (lane == 0) {
            atomicAdd(violations, 1u);
        }
        return;
    }
    float v[4];
    read4(keys, keys_are_bf16, key, lane, v);
    uint2 out;
    out.x = bf16_bits(v[0]) | bf16_bits(v[1]) << 16;
    out.y = bf16_bits(v[2]) | bf16_bits(v[3]) << 16;
    ((uint2 *)(pool + (u64)slot.x * page_stride + slot.y * 256))[lane] = out;
}
