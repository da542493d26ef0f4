// Scores of paged index keys, fp8 or bf16: logit = scale of the key * sum over heads of weight * relu(q . k).
//
// Two ways, of which each device has one. Both take keys from global memory straight to the registers of the matrix
// instruction, some pages ahead, and find queries in shared memory. A lane takes whole vectors of a row, which are not the
// dimensions that the instruction names for it; queries are staged in the same order, and a dot product does not mind.
//
// sm_90a: a warpgroup takes a page with wgmma, fp8 codes as f16, which holds them exactly: the fp8 form of wgmma keeps 14
// bits of a sum. Elsewhere (or with -DPORTABLE): a warp takes 32 fp8 keys or 16 bf16 keys with mma.sync, where e4m3 is an
// operand as it is (native on sm_89 and from sm_120 on, emulated on others).
//
// dynamic shared memory: at most 33280 bytes (128 heads: 256 bytes of queries and a weight each)

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(PORTABLE)
#define WGMMA 1
#else
#define WGMMA 0
#endif

#define TOKENS 64
#define ALL 0xffffffffu

template <bool FP8> struct Key {
    static constexpr u32 BYTES = FP8 ? 128 : 256;
};

__device__ __forceinline__ void halves(u32 codes, u32 &low, u32 &high) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(low), "=r"(high) : "r"(codes));
}

// Adds the weighted relu of one head to a sum; NaN stays NaN, so that a poisoned page shows. Of fp8, half the weight times
// twice the relu: e4m3 has no infinity, and an addition is twice as fast as a maximum.
template <bool FP8> __device__ __forceinline__ void add(float &sum, float weight, float dot) {
    float positive = dot + fabsf(dot);
    if (!FP8) {
        asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(dot));
    }
    sum = fmaf(weight, positive, sum);
}

template <bool FP8> __device__ __forceinline__ float staged(float weight) {
    return FP8 ? 0.5f * weight : weight;
}

// Waits for the kernel before this one in its stream, and lets the one behind it come. Launches overlap (see launch.rs), so
// that what is read must not be taken for constant: no __ldg.
__device__ __forceinline__ void take_turn() {
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
}

// Heads that there is room for, behind which weights begin.
__device__ __forceinline__ u32 room(u32 heads) {
    return heads <= 32 ? 32 : (heads + 63) & ~63u;
}

#if WGMMA

#define WARPGROUPS 2
#define THREADS (128 * WARPGROUPS)
#define BLOCKS_MIN (4 / WARPGROUPS)
#define WORKER 128 // threads that take a unit

template <bool FP8> struct Unit {
    static constexpr u32 TOKENS_OF = 64;
    static constexpr int VECTORS = FP8 ? 2 : 4; // of a row, a lane
    static constexpr int AHEAD = FP8 ? 2 : 1;
};

// A vector that nobody here reads again, of a line of which all is read.
__device__ __forceinline__ uint4 once(const uint4 *from) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}

// What a lane (g, t) of warp w has of a page: vectors t, t + 4, ... of rows 16 w + g and 8 further, and the scale of the
// row whose logit it will have.
template <bool FP8> struct Keys {
    static constexpr int VECTORS = Unit<FP8>::VECTORS;
    uint4 row[2][VECTORS];
    float scale;

    __device__ __forceinline__ void load(const unsigned char *page, u32, u32 lane) {
        u32 first = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        const uint4 *rows = (const uint4 *)(page + first * Key<FP8>::BYTES) + (lane & 3);
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            row[0][j] = once(rows + j * 4);
            row[1][j] = once(rows + j * 4 + 8 * Key<FP8>::BYTES / 16);
        }
        scale = FP8 ? *((const float *)(page + TOKENS * Key<FP8>::BYTES) + first + (lane & 1) * 8) : 1.0f;
    }

    __device__ __forceinline__ u32 word(int of_row, int i) const {
        const uint4 &v = row[of_row][i / 4];
        return i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
    }

    // The operand of the k-step of 16 dimensions.
    __device__ __forceinline__ void operand(u32 a[4], int step) const {
        if (FP8) {
            halves(word(0, step), a[0], a[2]);
            halves(word(1, step), a[1], a[3]);
        } else {
            a[0] = word(0, 2 * step);
            a[1] = word(1, 2 * step);
            a[2] = word(0, 2 * step + 1);
            a[3] = word(1, 2 * step + 1);
        }
    }
};

// Where a word of a query is: for each N heads two tiles of N rows of 128 bytes, whose vectors are swizzled.
__device__ __forceinline__ u32 place(u32 n, u32 head, u32 vector, u32 word) {
    return head / n * n * 64 + (vector >> 3) * n * 32 + head % n * 32 + ((vector ^ head) & 7) * 4 + word;
}

// Queries in the order in which lanes have keys.
template <bool FP8>
__device__ __forceinline__ void stage(u32 *smem, float *weights, const unsigned char *q, const float *w, u32 heads) {
    constexpr u32 VECTORS = Key<FP8>::BYTES / 16;
    u32 n = heads <= 32 ? 32 : 64;
#pragma unroll VECTORS / 4
    for (u32 i = threadIdx.x; i < room(heads) * VECTORS; i += THREADS) {
        u32 head = i / VECTORS, t = i % 4, first = i % VECTORS / 4 * 4;
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (head < heads) {
            raw = ((const uint4 *)q)[i];
        }
        u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            if (FP8) {
                u32 low, high;
                halves(words[j], low, high);
                smem[place(n, head, 2 * (first + j), t)] = low;
                smem[place(n, head, 2 * (first + j) + 1, t)] = high;
            } else {
                smem[place(n, head, first + j, t)] = words[j];
            }
        }
    }
    for (u32 i = threadIdx.x; i < room(heads); i += THREADS) {
        weights[i] = i < heads ? staged<FP8>(w[i]) : 0.0f;
    }
    // wgmma reads shared memory on a way of its own.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A tile in shared memory: rows of 128 bytes, swizzled, eight rows every 1024 bytes.
__device__ __forceinline__ u64 descriptor(const void *tile) {
    u64 at = (u32)__cvta_generic_to_shared(tile);
    return (at & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)

// One k-step of 64 keys and N heads. The first one begins the sums.
template <bool FP8> __device__ __forceinline__ void wgmma(float (&d)[16], const u32 a[4], u64 b, bool first) {
#define TEXT(type)                                                                                                   \
    "{.reg .pred more; setp.eq.u32 more, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " "       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, more, 1, 1, 0;}"
#define OPERANDS F16(d, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)first)
    if (FP8) {
        asm volatile(TEXT("f16") : OPERANDS);
    } else {
        asm volatile(TEXT("bf16") : OPERANDS);
    }
#undef TEXT
#undef OPERANDS
}

template <bool FP8> __device__ __forceinline__ void wgmma(float (&d)[32], const u32 a[4], u64 b, bool first) {
#define TEXT(type)                                                                                                   \
    "{.reg .pred more; setp.eq.u32 more, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31}, {%32,%33,%34,%35}, %36, more, 1, 1, 0;}"
#define OPERANDS F16(d, 0), F16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)first)
    if (FP8) {
        asm volatile(TEXT("f16") : OPERANDS);
    } else {
        asm volatile(TEXT("bf16") : OPERANDS);
    }
#undef TEXT
#undef OPERANDS
}

// The logit of row 16 w + g + 8 (t % 2), without the key's scale. WHOLE: heads is a multiple of N.
template <bool FP8, int N, bool WHOLE>
__device__ __forceinline__ float score_by(const Keys<FP8> &keys, const u32 *smem, const float *weights, u32 heads, u32 lane) {
    u32 a[8][4];
#pragma unroll
    for (int step = 0; step < 8; step++) {
        keys.operand(a[step], step);
    }
    float low = 0, high = 0;
#pragma unroll 1
    for (u32 begin = 0; begin < heads; begin += N) {
        float d[N / 2];
        u64 queries = descriptor(smem + begin * 64);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < 8; step++) {
            wgmma<FP8>(d, a[step], queries + (step / 4 * N * 128 + step % 4 * 32) / 16, step == 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            u32 head = begin + n * 8 + (lane & 3) * 2;
            float2 w = *(const float2 *)(weights + head);
            // A head that is not there must not count: 0 times the NaN of a key would.
            if (WHOLE || head < heads) {
                add<FP8>(low, w.x, d[4 * n]);
                add<FP8>(high, w.x, d[4 * n + 2]);
            }
            if (WHOLE || head + 1 < heads) {
                add<FP8>(low, w.y, d[4 * n + 1]);
                add<FP8>(high, w.y, d[4 * n + 3]);
            }
        }
    }
    float other = __shfl_xor_sync(ALL, lane & 1 ? low : high, 1);
    float own = (lane & 1 ? high : low) + other;
    return own + __shfl_xor_sync(ALL, own, 2);
}

template <bool FP8>
__device__ __forceinline__ float score(const Keys<FP8> &keys, const u32 *smem, const float *weights, u32 heads, u32 lane) {
    float sum;
    // Registers of wgmma must be known: one branch for each.
    if (heads == 64) {
        sum = score_by<FP8, 64, true>(keys, smem, weights, 64, lane);
    } else if (heads == 32) {
        sum = score_by<FP8, 32, true>(keys, smem, weights, 32, lane);
    } else if (heads < 32) {
        sum = score_by<FP8, 32, false>(keys, smem, weights, heads, lane);
    } else {
        sum = score_by<FP8, 64, false>(keys, smem, weights, heads, lane);
    }
    return FP8 ? keys.scale * sum : sum;
}

// Which of the unit's tokens this lane's logit is; none from TOKENS on.
template <bool FP8> __device__ __forceinline__ u32 token_of(u32 lane) {
    return (lane & 3) < 2 ? (threadIdx.x >> 5 & 3) * 16 + (lane >> 2) + (lane & 1) * 8 : TOKENS;
}

#else

#define THREADS 128
#define BLOCKS_MIN (__CUDA_ARCH__ >= 1200 || __CUDA_ARCH__ == 890 ? 3 : 2)
#define WORKER 32
#define GROUPS 2 // of eight heads, at a time

template <bool FP8> struct Unit {
    static constexpr u32 TOKENS_OF = FP8 ? 32 : 16;
    static constexpr int VECTORS = FP8 ? 2 : 4; // of a row, a lane
    static constexpr int ROWS = FP8 ? 4 : 2;    // of a lane
    static constexpr int AHEAD = 1;
};

// What lane (g, t) has of a unit: VECTORS vectors of rows g, g + 8, ..., and the scale of row g + 8 t.
template <bool FP8> struct Keys {
    static constexpr int VECTORS = Unit<FP8>::VECTORS, ROWS = Unit<FP8>::ROWS;
    uint4 row[ROWS][VECTORS];
    float scale;

    __device__ __forceinline__ void load(const unsigned char *page, u32 unit, u32 lane) {
        u32 first = unit * Unit<FP8>::TOKENS_OF + (lane >> 2), t = lane & 3;
        const uint4 *rows = (const uint4 *)(page + first * Key<FP8>::BYTES) + t * VECTORS;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < VECTORS; j++) {
                row[i][j] = *(rows + i * 8 * Key<FP8>::BYTES / 16 + j);
            }
        }
        scale = FP8 ? *((const float *)(page + TOKENS * Key<FP8>::BYTES) + first + 8 * t) : 1.0f;
    }
};

// Queries, [room / 8][vector][lane][16 bytes]: what lane (g, t) needs of head 8 n + g, in the order of the mma.
template <bool FP8>
__device__ __forceinline__ void stage(u32 *smem, float *weights, const unsigned char *q, const float *w, u32 heads) {
    constexpr u32 VECTORS = Unit<FP8>::VECTORS;
    for (u32 i = threadIdx.x; i < room(heads) * VECTORS * 4; i += THREADS) {
        u32 head = i / (VECTORS * 4), t = i / VECTORS % 4, j = i % VECTORS;
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (head < heads) {
            raw = ((const uint4 *)q)[i];
        }
        ((uint4 *)smem)[(head / 8 * VECTORS + j) * 32 + head % 8 * 4 + t] = raw;
    }
    for (u32 i = threadIdx.x; i < room(heads); i += THREADS) {
        weights[i] = i < heads ? staged<FP8>(w[i]) : 0.0f;
    }
}

// One k-step of 16 keys and 8 heads: 32 dimensions of e4m3 or 16 of bf16.
template <bool FP8> __device__ __forceinline__ void mma(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#define OPERANDS                                                                                                     \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1)
    if (FP8) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : OPERANDS);
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : OPERANDS);
    }
#undef OPERANDS
}

// Adds 8 * GROUPS heads to the sums of this lane's rows: chains of mma that do not wait for each other.
template <bool FP8>
__device__ __forceinline__ void heads_of(float sum[], const Keys<FP8> &keys, const uint4 *queries, const float *of_heads,
                                         u32 n, u32 heads, u32 lane) {
    constexpr int VECTORS = Unit<FP8>::VECTORS, ROWS = Unit<FP8>::ROWS;
    float c[GROUPS][ROWS / 2][4] = {};
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            uint4 b = queries[(group * VECTORS + j) * 32];
#pragma unroll
            for (int i = 0; i < ROWS; i += 2) {
                uint4 a = keys.row[i][j], a8 = keys.row[i + 1][j];
                mma<FP8>(c[group][i / 2], a.x, a8.x, a.y, a8.y, b.x, b.y);
                mma<FP8>(c[group][i / 2], a.z, a8.z, a.w, a8.w, b.z, b.w);
            }
        }
    }
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        u32 head = (n + group) * 8 + (lane & 3) * 2;
        float2 w = *(const float2 *)(of_heads + group * 8);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            // A head that is not there must not count: 0 times the NaN of a key would.
            if (head < heads) {
                add<FP8>(sum[i], w.x, c[group][i / 2][2 * (i & 1)]);
            }
            if (head + 1 < heads) {
                add<FP8>(sum[i], w.y, c[group][i / 2][2 * (i & 1) + 1]);
            }
        }
    }
}

// The logit of row g + 8 t: of bf16, only lanes t < 2 have one.
template <bool FP8>
__device__ __forceinline__ float score(const Keys<FP8> &keys, const u32 *smem, const float *weights, u32 heads, u32 lane) {
    constexpr int VECTORS = Unit<FP8>::VECTORS, ROWS = Unit<FP8>::ROWS;
    float sum[ROWS] = {};
    const uint4 *queries = (const uint4 *)smem + lane;
    const float *of_heads = weights + (lane & 3) * 2;
    // A number that is known leaves out the question which heads there are.
    if (heads == 64) {
#pragma unroll 1
        for (u32 n = 0; n < 8; n += GROUPS, queries += GROUPS * VECTORS * 32, of_heads += GROUPS * 8) {
            heads_of<FP8>(sum, keys, queries, of_heads, n, 64, lane);
        }
    } else {
#pragma unroll 1
        for (u32 n = 0; n * 8 < heads; n += GROUPS, queries += GROUPS * VECTORS * 32, of_heads += GROUPS * 8) {
            heads_of<FP8>(sum, keys, queries, of_heads, n, heads, lane);
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        sum[i] += __shfl_xor_sync(ALL, sum[i], 1);
        sum[i] += __shfl_xor_sync(ALL, sum[i], 2);
    }
    u32 t = lane & 3;
    float own = sum[0];
#pragma unroll
    for (int i = 1; i < ROWS; i++) {
        own = t == i ? sum[i] : own;
    }
    return FP8 ? keys.scale * own : own;
}

// Which of the unit's tokens this lane's logit is; none from TOKENS on.
template <bool FP8> __device__ __forceinline__ u32 token_of(u32 lane) {
    return (lane & 3) < Unit<FP8>::ROWS ? (lane >> 2) + (lane & 3) * 8 : TOKENS;
}

#endif

#define PARAMETERS                                                                                                   \
    const unsigned char *q, const float *w, u32 heads, const int *table, u32 table_stride, const int *lens,            \
    const unsigned char *pool, u64 page_stride, u32 pages, float *out, u64 out_stride, u32 len_max, u32 *violations

template <bool FP8> __device__ __forceinline__ void logits(PARAMETERS) {
    take_turn();
    constexpr u32 UNIT = Unit<FP8>::TOKENS_OF, UNITS = TOKENS / UNIT; // of a page
    extern __shared__ __align__(1024) u32 smem[];
    float *weights = (float *)(smem + room(heads) * 64);
    u64 row = blockIdx.y;
    table += row * table_stride;
    u32 at = (blockIdx.x * THREADS + threadIdx.x) / WORKER, step = gridDim.x * (THREADS / WORKER), lane = threadIdx.x & 31;
    // Keys are read AHEAD rounds before they are needed, and table entries a round before that. An entry does not wait
    // for the length.
    constexpr int AHEAD = Unit<FP8>::AHEAD;
    auto entry = [&](u32 at) { return at / UNITS < table_stride ? table[at / UNITS] : -1; };
    int page[AHEAD + 1];
#pragma unroll
    for (int i = 0; i <= AHEAD; i++) {
        page[i] = entry(at + i * step);
    }
    int length = lens[row];
    u32 len = length < 0 ? 0 : (u32)length < len_max ? (u32)length : len_max;
    if (blockIdx.x * (THREADS / WORKER) * UNIT >= len) {
        return;
    }
    auto load = [&](Keys<FP8> &keys, int page, u32 at) {
        if ((u32)page < pages && at * UNIT < len) {
            keys.load(pool + (u64)page * page_stride, at % UNITS, lane);
        }
    };
    Keys<FP8> keys[AHEAD + 1];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        load(keys[i], page[i], at + i * step);
    }
    // While the first keys are on their way.
    stage<FP8>(smem, weights, q + row * heads * Key<FP8>::BYTES, w + row * heads, heads);
    __syncthreads();
    for (; at * UNIT < len; at += step) {
        load(keys[AHEAD], page[AHEAD], at + AHEAD * step);
        int after = entry(at + (AHEAD + 1) * step);
        float logit = score<FP8>(keys[0], smem, weights, heads, lane);
        if ((u32)page[0] >= pages) {
            logit = __uint_as_float(0xff800000u);
            if (threadIdx.x % WORKER == 0 && at % UNITS == 0) {
                atomicAdd(violations, 1u);
            }
        }
        u32 token = token_of<FP8>(lane);
        if (token < TOKENS && at * UNIT + token < len) {
            out[row * out_stride + at * UNIT + token] = logit;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            keys[i] = keys[i + 1];
            page[i] = page[i + 1];
        }
        page[AHEAD] = after;
    }
}

#define ARGUMENTS q, w, heads, table, table_stride, lens, pool, page_stride, pages, out, out_stride, len_max, violations

// q [rows, heads, 128] in the format of the keys, w [rows, heads], table [rows, table_stride] pages, lens [rows], out
// [rows, out_stride]. Logits at or behind a row's length stay as they were. An absent page (not in 0..pages) gives
// -infinity, and is counted. grid: (any, rows), index_logits_shape[0] threads.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_MIN) index_logits_fp8(PARAMETERS) {
    logits<true>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_MIN) index_logits_bf16(PARAMETERS) {
    logits<false>(ARGUMENTS);
}

// Threads of a block, blocks of a multiprocessor, and tokens that a block takes in a round: fp8, bf16.
extern "C" __constant__ u32 index_logits_shape[4] = {
    THREADS, BLOCKS_MIN, THREADS / WORKER * Unit<true>::TOKENS_OF, THREADS / WORKER * Unit<false>::TOKENS_OF};
