// Merges the parts of attention over selected rows, in a fixed order.

typedef unsigned int u32;
typedef unsigned long long u64;

#define VALUES 512
#define GROUPS_MAX 4

// Waits for the kernel before this one in its stream, and lets the one behind it come. Launches overlap (see launch.rs), so
// that what is read must not be taken for constant: no __ldg.
__device__ __forceinline__ void take_turn() {
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
}

// Merges the parts of a head: out [rows, heads, 512] f32 and lse [rows, heads], the natural logarithm of the sum of
// weights without the sink. sink [heads] may be 0. Nothing selected gives 0 and -infinity. grid (heads, rows), 128 threads for
// each of at most GROUPS_MAX groups.
extern "C" __global__ void __launch_bounds__(128 * GROUPS_MAX) attention_merge(
    const float *from, const float2 *parts, u32 splits, u32 heads, const float *sink, float *out, float *lse) {
    __shared__ float4 values[GROUPS_MAX][128];
    __shared__ float sums[GROUPS_MAX];
    take_turn();
    u64 row = blockIdx.y;
    u32 head = blockIdx.x, group = threadIdx.x / 128, t = threadIdx.x % 128, groups = blockDim.x / 128;
    float nothing = __uint_as_float(0xff800000u), max = nothing, sum = 0;
    bool poisoned = false;
#pragma unroll 8
    for (u32 i = 0; i < splits; i++) {
        float2 part = parts[(row * splits + i) * heads + head];
        max = fmaxf(max, part.x);
        poisoned |= part.y != part.y;
    }
    float4 value = make_float4(0, 0, 0, 0);
    // Groups take parts in turn, for more loads at a time.
#pragma unroll 8
    for (u32 i = group; i < splits; i += groups) {
        u64 at = (row * splits + i) * heads + head;
        float2 part = parts[at];
        // A part without rows, or with NaN scores only: its factor is 1, so that NaN stays and 0 stays.
        float factor = part.x == nothing ? 1.0f : exp2f(part.x - max);
        float4 v = ((const float4 *)(from + at * VALUES))[t];
        sum += part.y * factor;
        value.x += v.x * factor;
        value.y += v.y * factor;
        value.z += v.z * factor;
        value.w += v.w * factor;
    }
    values[group][t] = value;
    if (t == 0) {
        sums[group] = sum;
    }
    __syncthreads();
    if (group > 0) {
        return;
    }
    for (u32 i = 1; i < groups; i++) {
        float4 v = values[i][t];
        sum += sums[i];
        value.x += v.x;
        value.y += v.y;
        value.z += v.z;
        value.w += v.w;
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
    ((float4 *)(out + (row * heads + head) * VALUES))[t] = value;
    if (t == 0) {
        lse[row * heads + head] = logarithm;
    }
}
