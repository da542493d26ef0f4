// Softmax attention over selected rows of latent KV as in sparse_attention.cu, for sm_90a.
//
// A block has 64 heads of one query and one part of its selection, in tiles of 64 rows: gathered into shared memory while
// the tile before is computed, decoded to bf16 there, scored and weighted with wgmma, softmax online. Two warpgroups score the
// same rows, so that each has all weights in its registers as they are needed there, and share out the dimensions of the
// output.
//
// dynamic shared memory: at most 222336 bytes

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define HEADS 64
#define TILE 64
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

#define SHARERS 8          // threads that gather a row
#define ROWS 2             // that they gather: one of each half of a tile
#define BLOCK_BYTES 8192   // 64 rows of 64 values
#define TILE_BYTES 73728   // nine of them

// fp8 is gathered as it is stored: each thread has its own place, [ROWS][RAW][256] vectors, and decodes what it finds there.
#define RAW 6
#define CODES 4 // vectors of codes, then one of the last 64 values, and one of scales for the first thread of a row

struct Memory {
    char q[TILE_BYTES];
    char keys[TILE_BYTES]; // in blocks of 64 rows of 128 bytes, swizzled
    char next[TILE_BYTES]; // bf16: the other tile; fp8: the next tile as it is stored
    float scale[4][TILE];
    u32 there[2][TILE / 4]; // eight bits a row
};

// Where a vector of a row of a tile is.
__device__ __forceinline__ u32 place(u32 row, u32 vector) {
    return vector / 8 * BLOCK_BYTES + row * 128 + ((vector ^ row) & 7) * 16;
}

// 16 bytes, or zeros.
__device__ __forceinline__ void copy(u32 to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copies_are_here() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// wgmma reads shared memory on a way of its own: before the barrier behind which it does.
__device__ __forceinline__ void hand_over() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Rows of 128 bytes, swizzled, eight rows every 1024 bytes. Where rows are read across, blocks of 64 values follow each other.
__device__ __forceinline__ u64 descriptor(u32 at) {
    return (at & 0x3ffff) >> 4 | (u64)(BLOCK_BYTES / 16) << 16 | 64ull << 32 | 1ull << 62;
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)

// Scores of 64 heads and 64 rows: 16 dimensions. The first step begins the sums.
__device__ __forceinline__ void score(float (&d)[32], u64 q, u64 keys, bool first) {
    asm volatile(
        "{.reg .pred more; setp.eq.u32 more, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31}, %32, %33, more, 1, 1, 0, 0;}"
        : F16(d, 0), F16(d, 16)
        : "l"(q), "l"(keys), "r"((u32)first));
}

// Adds 16 weighted rows to 128 dimensions of 64 heads. Rows are read across.
__device__ __forceinline__ void weigh(float (&d)[64], const u32 p[4], u64 rows) {
    asm volatile(
        "{.reg .pred more; setp.eq.u32 more, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, more, 1, 1, 1;}"
        : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(rows), "r"(0));
}

__device__ __forceinline__ void matrix_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void matrix_end() {
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ float power2(float v) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
    return out;
}

// A thread's share of a row of 576 bf16 to its place in a tile.
__device__ __forceinline__ void copy_row(u32 tile, u32 row, const uint4 *vectors, bool there) {
    u32 t = threadIdx.x % SHARERS;
#pragma unroll
    for (u32 i = 0; i < ROW / 8 / SHARERS; i++) {
        copy(tile + place(row, i * SHARERS + t), vectors + i * SHARERS + t, there);
    }
}

// Begins to gather a thread's rows; from is 0 for none.
template <bool FP8>
__device__ __forceinline__ void gather(Memory &memory, u32 tile, const unsigned char *const from[ROWS], const void *any) {
    u32 t = threadIdx.x % SHARERS;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        bool there = from[r] != 0;
        const uint4 *vectors = (const uint4 *)(there ? from[r] : any);
        u32 ballot = __ballot_sync(ALL, there), row = r * (TILE / ROWS) + threadIdx.x / SHARERS;
        if (threadIdx.x % 32 == 0) {
            memory.there[tile & 1][row / 4] = ballot;
        }
        if (FP8) {
            u32 to = shared(memory.next) + (r * RAW * THREADS + threadIdx.x) * 16;
#pragma unroll
            for (u32 i = 0; i < CODES; i++) {
                copy(to + i * THREADS * 16, vectors + i * SHARERS + t, there);
            }
            copy(to + CODES * THREADS * 16, vectors + VALUES / 16 + 1 + t, there);
            if (t == 0) {
                copy(to + (CODES + 1) * THREADS * 16, vectors + VALUES / 16, there);
            }
        } else {
            copy_row(shared(tile & 1 ? memory.next : memory.keys), row, vectors, there);
        }
    }
}

// fp8: the gathered rows to where they are used.
__device__ __forceinline__ void decode(Memory &memory) {
    u32 t = threadIdx.x % SHARERS, turn = t / 4;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        u32 row = r * (TILE / ROWS) + threadIdx.x / SHARERS;
        const uint4 *raw = (const uint4 *)memory.next + r * RAW * THREADS + threadIdx.x;
#pragma unroll
        for (u32 i = 0; i < CODES; i++) {
            uint4 v = raw[i * THREADS];
            uint4 first = make_uint4(decode2(v.x), decode2(v.x >> 16), decode2(v.y), decode2(v.y >> 16));
            uint4 second = make_uint4(decode2(v.z), decode2(v.z >> 16), decode2(v.w), decode2(v.w >> 16));
            // Eight threads write to different banks.
            u32 at = 2 * (i * SHARERS + t);
            *(uint4 *)(memory.keys + place(row, at + turn)) = turn ? second : first;
            *(uint4 *)(memory.keys + place(row, at + 1 - turn)) = turn ? first : second;
        }
        *(uint4 *)(memory.keys + place(row, VALUES / 8 + t)) = raw[CODES * THREADS];
        if (t == 0) {
            float4 scale = *(const float4 *)(raw + (CODES + 1) * THREADS);
            memory.scale[0][row] = scale.x;
            memory.scale[1][row] = scale.y;
            memory.scale[2][row] = scale.z;
            memory.scale[3][row] = scale.w;
        }
    }
}

// What a lane has of 16 heads of its warp: those of rows g and g + 8 of the warp's part of a matrix.
struct Sums {
    float o[2][64]; // of this warpgroup's 256 dimensions
    float max[2], sum[2];
};

// Scores of a tile: s[4 n + 2 i + j] is that of head g + 8 i and row 8 n + 2 t + j.
template <bool FP8>
__device__ __forceinline__ void scores(const Memory &memory, u32 keys, float (&s)[32], u32 lane) {
    u64 q = descriptor(shared(memory.q)), k = descriptor(keys);
    matrix_begin();
    constexpr int FIRST = FP8 ? VALUES / 16 : 0; // fp8: without codes
#pragma unroll
    for (int step = FIRST; step < ROW / 16; step++) {
        u32 at = (step / 4 * BLOCK_BYTES + step % 4 * 32) / 16;
        score(s, q + at, k + at, step == FIRST);
    }
    matrix_end();
    if constexpr (FP8) {
#pragma unroll 1
        for (int slice = 0; slice < 4; slice++) {
            float d[32];
            matrix_begin();
#pragma unroll
            for (int step = 0; step < 8; step++) {
                u32 at = (step / 4 * BLOCK_BYTES + step % 4 * 32) / 16 + slice * (2 * BLOCK_BYTES / 16);
                score(d, q + at, k + at, step == 0);
            }
            matrix_end();
#pragma unroll
            for (int n = 0; n < 8; n++) {
                float2 scale = *(const float2 *)(memory.scale[slice] + n * 8 + (lane & 3) * 2);
                s[4 * n] = fmaf(d[4 * n], scale.x, s[4 * n]);
                s[4 * n + 1] = fmaf(d[4 * n + 1], scale.y, s[4 * n + 1]);
                s[4 * n + 2] = fmaf(d[4 * n + 2], scale.x, s[4 * n + 2]);
                s[4 * n + 3] = fmaf(d[4 * n + 3], scale.y, s[4 * n + 3]);
            }
        }
    }
}

// Weights in place of scores, and sums brought to the new largest score. NaN reaches weight and sum.
__device__ __forceinline__ void weights(const u32 there[8], float (&s)[32], Sums &sums, float scale, u32 lane) {
    float nothing = __uint_as_float(0xff800000u), max[2] = {sums.max[0], sums.max[1]};
    u32 all = ALL;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        all &= there[i];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        s[i] *= scale;
    }
    if (all != ALL) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            s[i] = there[i / 4] >> ((lane & 1) * 16 + i % 2 * 8) & 1 ? s[i] : nothing;
        }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        max[i / 2 % 2] = fmaxf(max[i / 2 % 2], s[i]);
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        max[i] = fmaxf(max[i], __shfl_xor_sync(ALL, max[i], 1));
        max[i] = fmaxf(max[i], __shfl_xor_sync(ALL, max[i], 2));
        factor[i] = sums.max[i] == max[i] ? 1.0f : power2(sums.max[i] - max[i]);
        sums.max[i] = max[i];
        sums.sum[i] *= factor[i];
        // Not max - max where both are -infinity.
        max[i] = max[i] == nothing ? 0.0f : max[i];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        s[i] = power2(s[i] - max[i / 2 % 2]);
        sums.sum[i / 2 % 2] += s[i];
    }
    if (__any_sync(ALL, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < 64; i++) {
            sums.o[0][i] *= factor[i / 2 % 2];
            sums.o[1][i] *= factor[i / 2 % 2];
        }
    }
}

// Adds the weighted rows of a tile: 256 dimensions, in two tiles of 128 with one scale.
template <bool FP8>
__device__ __forceinline__ void values(const Memory &memory, u32 keys, const float (&s)[32], Sums &sums, u32 lane) {
    u32 warpgroup = threadIdx.x / 128, p[FP8 ? 2 : 1][4][4];
#pragma unroll
    for (int half = 0; half < (FP8 ? 2 : 1); half++) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float2 scale = make_float2(1, 1);
            if (FP8) {
                scale = *(const float2 *)(memory.scale[warpgroup * 2 + half] + i / 2 * 8 + (lane & 3) * 2);
            }
            p[half][i / 4][i % 4] = bf16x2(s[2 * i] * scale.x, s[2 * i + 1] * scale.y);
        }
    }
    u64 rows = descriptor(keys + warpgroup * 4 * BLOCK_BYTES);
    matrix_begin();
#pragma unroll
    for (int step = 0; step < TILE / 16; step++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            weigh(sums.o[half], p[FP8 ? half : 0][step], rows + (half * 2 * BLOCK_BYTES + step * 2048) / 16);
        }
    }
    matrix_end();
}

template <bool FP8> __device__ __forceinline__ void attend(PARAMETERS) {
    take_turn();
    extern __shared__ __align__(1024) char bytes[];
    Memory &memory = *(Memory *)bytes;
    u64 row = blockIdx.z;
    u32 first_head = blockIdx.y * HEADS, here = heads - first_head < HEADS ? heads - first_head : HEADS;
    u32 lane = threadIdx.x & 31;
    Part part(k);
    const int *positions = selected + row * k, *pages_of_row = table + row * table_stride;
    // Rows are gathered one tile ahead of their use, their page numbers are read a tile before that, and positions another.
    u32 at = part.begin * TILE + threadIdx.x / SHARERS, tiles = part.end - part.begin;
    auto position_at = [&](u32 at) { return at < part.stop ? positions[at] : -1; };
    auto row_of = [&](int position, int page) {
        const unsigned char *from = 0;
        if (page >= 0 && (u32)page < pages) {
            from = pool + (u64)page * page_stride + (u32)position % TOKENS * (FP8 ? 656 : 1152);
        } else if (position >= 0 && threadIdx.x % SHARERS == 0 && blockIdx.y == 0) {
            atomicAdd(violations, 1u);
        }
        return from;
    };
    int position[3][ROWS], page[2][ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            position[i][r] = position_at(at + i * TILE + r * (TILE / ROWS));
        }
    }
    const unsigned char *from[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        page[0][r] = page_of(position[0][r], pages_of_row, table_stride);
        page[1][r] = page_of(position[1][r], pages_of_row, table_stride);
        from[r] = row_of(position[0][r], page[0][r]);
    }
    gather<FP8>(memory, 0, from, q);
    q += (row * heads + first_head) * ROW;
#pragma unroll
    for (u32 head = threadIdx.x / SHARERS; head < HEADS; head += THREADS / SHARERS) {
        bool there = head < here;
        copy_row(shared(memory.q), head, (const uint4 *)(q + (there ? head * ROW : 0)), there);
    }
    Sums sums = {{}, {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u)}, {}};
#pragma unroll 1
    for (u32 tile = 0; tile < tiles; tile++) {
        copies_are_here();
        if (FP8) {
            __syncthreads();
            decode(memory);
        }
        hand_over();
        __syncthreads();
        u32 there[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            there[i] = memory.there[tile & 1][2 * i + lane % 4 / 2];
        }
        at += TILE;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            position[0][r] = position[1][r];
            position[1][r] = position[2][r];
            from[r] = row_of(position[0][r], page[1][r]);
        }
        if (tile + 1 < tiles) {
            gather<FP8>(memory, tile + 1, from, q);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            page[1][r] = page_of(position[1][r], pages_of_row, table_stride);
            position[2][r] = position_at(at + 2 * TILE + r * (TILE / ROWS));
        }
        u32 keys = shared(!FP8 && tile & 1 ? memory.next : memory.keys);
        float s[32];
        scores<FP8>(memory, keys, s, lane);
        weights(there, s, sums, scale, lane);
        values<FP8>(memory, keys, s, sums, lane);
    }
    u64 base = (row * gridDim.x + blockIdx.x) * heads + first_head;
    u32 warpgroup = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 head = threadIdx.x / 32 % 4 * 16 + i * 8 + lane / 4;
        float sum = sums.sum[i];
        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        if (head >= here) {
            continue;
        }
        if (warpgroup == 0 && lane % 4 == 0) {
            parts[base + head] = make_float2(sums.max[i], sum);
        }
        float *to = out + (base + head) * VALUES + warpgroup * 256 + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < 32; n++) {
            *(float2 *)(to + n * 8) = make_float2(sums.o[n / 16][n % 16 * 4 + 2 * i], sums.o[n / 16][n % 16 * 4 + 2 * i + 1]);
        }
    }
}

#define ARGUMENTS q, heads, selected, k, table, table_stride, pool, page_stride, pages, scale, out, parts, violations

// q [rows, heads, 576] bf16; selected [rows, k] positions, negative for none; table [rows, table_stride].
// out [rows, splits, heads, 512] f32, unnormalised; parts [rows, splits, heads, 2] = (largest score, sum of weights), in
// powers of two. scale is that of the scores times log2(e). grid (splits, heads / 64 up, rows), 256 threads.
extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_attention_fp8(PARAMETERS) {
    attend<true>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_attention_bf16(PARAMETERS) {
    attend<false>(ARGUMENTS);
}

// Heads of a block, and rows of a tile.
extern "C" __constant__ u32 sparse_attention_shape[2] = {HEADS, TILE};
