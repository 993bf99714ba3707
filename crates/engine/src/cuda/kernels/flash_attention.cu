// Causal attention on Hopper's tensor cores (sm_90a, wgmma), bf16 in and out, float accumulators.
//
// Compiled once per head size: -DHEAD_DIM=<multiple of 16, 16..128>. No atomics: the same input gives the same bits.
//
// A "tile" is 64 rows of one head in shared memory: ceil(HEAD_DIM/64) panels of 64 rows x 128 bytes, 16-byte
// chunks swizzled as the tensor cores expect (chunk index xor row mod 8). Every operand of every product below is
// such a tile, read either along its columns (scores) or along its rows (weighted sums): one layout serves both.
// A "group" is a warpgroup of 128 threads; it owns one tile of queries (forward, dq) or of keys (dk, dv).
//
// What the launching side mirrors (GROUPS is 2 for the plain names, 1 for the _small ones):
//   TILE_BYTES = 8192 * ceil(HEAD_DIM / 64)
//   block = 128 * GROUPS threads;   tiles(n) = ceil(seq / (64 * n))
//   flash_forward[_small]_bf16   grid tiles(GROUPS)*batch*heads     shared (GROUPS + 4)*TILE_BYTES + 1024
//   flash_backward_q_bf16        grid tiles(2)*batch*heads          shared 8*TILE_BYTES + 2048
//   flash_backward_kv_bf16       grid tiles(2)*batch*kv_heads       shared 8*TILE_BYTES + 2048
//   flash_backward_small_bf16    grid tiles(1)*batch*(heads + kv_heads)   shared 6*TILE_BYTES + 2048
//   flash_rotate_bf16            grid ceil(batch*seq*(heads + kv_heads)*(HEAD_DIM/16) / 256), block 256
// Backward is either the pair q then kv (q writes `delta`, kv reads it) or the one launch _small, which recomputes
// delta and takes delta = nullptr.
//
// Rotation: cos, sin are float [seq, HEAD_DIM/2] or nullptr. Forward turns q and k as it loads them. Backward does
// too unless `rotated` is 1 (q and k already turned in place by flash_rotate_bf16); it always turns dq and dk back.


#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM >= 16 && HEAD_DIM <= 128, "HEAD_DIM must be a multiple of 16 up to 128");

constexpr int TILE_ROWS = 64;
constexpr int PANEL_BYTES = TILE_ROWS * 128;
constexpr int PANELS = (HEAD_DIM + 63) / 64;
constexpr int TILE_BYTES = PANELS * PANEL_BYTES;
constexpr int CHUNK_PAIRS = HEAD_DIM / 16;  // 16-byte chunks c and c + CHUNK_PAIRS of a row rotate together
constexpr int SCORES = TILE_ROWS / 2;       // registers per thread of a 64 x 64 product
constexpr int OUTPUTS = HEAD_DIM / 2;       // registers per thread of a 64 x HEAD_DIM product
#define NEGATIVE_INFINITY __int_as_float(0xff800000)
constexpr float LOG2_E = 1.4426950408889634f;

// ---------------------------------------------------------------- asynchronous copies, barriers, small arithmetic

__device__ __forceinline__ void copy16(u32 to, const void* from, int bytes) {  // bytes 0: writes zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Ordinary writes to shared memory become visible to the tensor cores only behind this fence.
__device__ __forceinline__ void publish_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void group_barrier(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ float low_of(u32 packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float high_of(u32 packed) { return __uint_as_float(packed & 0xffff0000u); }

__device__ __forceinline__ uint4 read_shared16(u32 address) {
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(address) : "memory");
    return value;
}
__device__ __forceinline__ void write_shared16(u32 address, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}

// ---------------------------------------------------------------- warpgroup products

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING committed groups are unfinished; pins the registers so that no read moves above it.
template <int PENDING, int COUNT>
__device__ __forceinline__ void wait_products(float (&values)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(values[i])::"memory");
}

#define REGISTERS_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define REGISTERS_1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define REGISTERS_2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define REGISTERS_3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define REGISTERS_4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define REGISTERS_5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define REGISTERS_6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define REGISTERS_7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define LIST_8 REGISTERS_0
#define LIST_16 LIST_8 "," REGISTERS_1
#define LIST_24 LIST_16 "," REGISTERS_2
#define LIST_32 LIST_24 "," REGISTERS_3
#define LIST_64 LIST_32 "," REGISTERS_4 "," REGISTERS_5 "," REGISTERS_6 "," REGISTERS_7
#define USE_8(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7])
#define USE_16(d) USE_8(d), USE_8((d) + 8)
#define USE_24(d) USE_16(d), USE_8((d) + 16)
#define USE_32(d) USE_16(d), USE_16((d) + 16)
#define USE_64(d) USE_32(d), USE_32((d) + 32)

template <int COLUMNS>
struct Product {  // of no columns
    static __device__ __forceinline__ void add(float*, const u32*, u64) {}
};

// sum += a[64 x 16] (registers) * b[16 x COLUMNS] (16 rows of a tile, read across its columns)
#define DEFINE_PRODUCT(COLUMNS, LIST, USE, A0, A1, A2, A3, B)                                                          \
    template <>                                                                                                        \
    struct Product<COLUMNS> {                                                                                          \
        static __device__ __forceinline__ void add(float* sum, const u32* a, u64 b) {                                  \
            asm volatile("{.reg .pred always; setp.eq.u32 always, 0, 0;"                                               \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" LIST "},"                  \
                         "{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", always, 1, 1, 1;}"                           \
                         : USE(sum) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");                  \
        }                                                                                                              \
    };
DEFINE_PRODUCT(16, LIST_8, USE_8, 8, 9, 10, 11, 12)
DEFINE_PRODUCT(32, LIST_16, USE_16, 16, 17, 18, 19, 20)
DEFINE_PRODUCT(48, LIST_24, USE_24, 24, 25, 26, 27, 28)
DEFINE_PRODUCT(64, LIST_32, USE_32, 32, 33, 34, 35, 36)
DEFINE_PRODUCT(128, LIST_64, USE_64, 64, 65, 66, 67, 68)

// Where an operand starts: 128-byte swizzle, 1024 bytes between groups of 8 rows, PANEL_BYTES between panels.
__device__ __forceinline__ u64 operand(u32 address) {
    return (1ull << 62) | ((u64)(1024 >> 4) << 32) | ((u64)(PANEL_BYTES >> 4) << 16) | (u64)((address & 0x3ffff) >> 4);
}

// scores = a * b^T over HEAD_DIM, both tiles of 64 rows.
__device__ __forceinline__ void multiply_tiles(float (&scores)[SCORES], u32 a, u32 b) {
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 offset = (k / 4) * PANEL_BYTES + (k % 4) * 32;
        asm volatile("{.reg .pred add; setp.ne.b32 add, %34, 0;"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST_32 "}, %32, %33, add, 1, 1, 0, 0;}"
                     : USE_32(scores) : "l"(operand(a + offset)), "l"(operand(b + offset)), "r"(k) : "memory");
    }
}

// sums += weights[64 x 64] * tile[64 x HEAD_DIM]; weights hold one 64 x 16 operand per four registers.
__device__ __forceinline__ void add_weighted_rows(float (&sums)[OUTPUTS], const u32 (&weights)[SCORES / 2], u32 tile) {
    constexpr int WHOLE = HEAD_DIM / 64 * 64, REST = HEAD_DIM % 64;
#pragma unroll
    for (int k = 0; k < TILE_ROWS / 16; k++) {
        u32 rows = tile + k * 16 * 128;
        Product<WHOLE>::add(sums, weights + 4 * k, operand(rows));
        Product<REST>::add(sums + WHOLE / 2, weights + 4 * k, operand(rows + WHOLE / 64 * PANEL_BYTES));
    }
}

// ---------------------------------------------------------------- tiles in and out

__device__ __forceinline__ u32 chunk_offset(int row, int chunk) {
    return (chunk / 8) * PANEL_BYTES + row * 128 + (((chunk % 8) ^ (row & 7)) << 4);
}

// Starts copying rows row0..row0+63 of one head; rows past `seq` become zeros. A thread copies the chunks that
// rotate together, so that it may turn them itself once its own copies have landed.
template <int THREADS>
__device__ __forceinline__ void load_tile(u32 tile, const bf16* head, int stride, int row0, int seq) {
#pragma unroll
    for (int i = threadIdx.x; i < TILE_ROWS * CHUNK_PAIRS; i += THREADS) {
        int row = i / CHUNK_PAIRS, chunk = i % CHUNK_PAIRS;
        int bytes = row0 + row < seq ? 16 : 0;
        const bf16* from = head + (size_t)(bytes ? row0 + row : 0) * stride + chunk * 8;
        copy16(tile + chunk_offset(row, chunk), from, bytes);
        copy16(tile + chunk_offset(row, chunk + CHUNK_PAIRS), from + HEAD_DIM / 2, bytes);
    }
}

__device__ __forceinline__ void rotate_pair(u32& first, u32& second, float c0, float c1, float s0, float s1) {
    float a0 = low_of(first), a1 = high_of(first), b0 = low_of(second), b1 = high_of(second);
    first = pack(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
    second = pack(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1);
}

// Turns 8 pairs; `turn` points at their 8 cosines, `lean` at their 8 sines.
__device__ __forceinline__ void rotate_chunks(uint4& first, uint4& second, const float* turn, const float* lean) {
    float4 c0 = __ldg((const float4*)turn), c1 = __ldg((const float4*)turn + 1);
    float4 s0 = __ldg((const float4*)lean), s1 = __ldg((const float4*)lean + 1);
    rotate_pair(first.x, second.x, c0.x, c0.y, s0.x, s0.y);
    rotate_pair(first.y, second.y, c0.z, c0.w, s0.z, s0.w);
    rotate_pair(first.z, second.z, c1.x, c1.y, s1.x, s1.y);
    rotate_pair(first.w, second.w, c1.z, c1.w, s1.z, s1.w);
}

// Turns a landed tile in place: each thread the chunks that it copied itself, so no barrier comes before.
template <int THREADS>
__device__ __forceinline__ void rotate_tile(u32 tile, const float* cosines, const float* sines, int row0, int seq) {
#pragma unroll
    for (int i = threadIdx.x; i < TILE_ROWS * CHUNK_PAIRS; i += THREADS) {
        int row = i / CHUNK_PAIRS, chunk = i % CHUNK_PAIRS;
        int position = min(row0 + row, seq - 1) * (HEAD_DIM / 2) + chunk * 8;
        u32 at = tile + chunk_offset(row, chunk), partner = tile + chunk_offset(row, chunk + CHUNK_PAIRS);
        uint4 first = read_shared16(at), second = read_shared16(partner);
        rotate_chunks(first, second, cosines + position, sines + position);
        write_shared16(at, first);
        write_shared16(partner, second);
    }
}

// This thread's rows within its group's tile are row_of_thread() and 8 below; in a product register i belongs to
// row (i / 2) % 2 of the two and to column column_of(i).
__device__ __forceinline__ int row_of_thread() { return (threadIdx.x % 128) / 32 * 16 + (threadIdx.x % 32) / 4; }
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + (threadIdx.x % 4) * 2 + i % 2; }

// Gradients of turned rows, turned back.
__device__ __forceinline__ void rotate_back(float (&values)[OUTPUTS], const float* cosines, const float* sines, int row0, int seq) {
#pragma unroll
    for (int i = 0; i < OUTPUTS / 2; i += 2) {
        int row = min(row0 + row_of_thread() + (i / 2 % 2) * 8, seq - 1);
        float2 c = __ldg((const float2*)(cosines + row * (HEAD_DIM / 2) + column_of(i)));
        float2 s = __ldg((const float2*)(sines + row * (HEAD_DIM / 2) + column_of(i)));
        float a0 = values[i], a1 = values[i + 1], b0 = values[i + OUTPUTS / 2], b1 = values[i + OUTPUTS / 2 + 1];
        values[i] = a0 * c.x + b0 * s.x;
        values[i + 1] = a1 * c.y + b1 * s.y;
        values[i + OUTPUTS / 2] = b0 * c.x - a0 * s.x;
        values[i + OUTPUTS / 2 + 1] = b1 * c.y - a1 * s.y;
    }
}

// Writes 64 x HEAD_DIM registers times a factor per row as bf16, through `tile` (which the group no longer reads
// after a group_barrier) so that global stores are 16 bytes wide. Each warp writes and reads back its own 16 rows.
__device__ __forceinline__ void store_tile(const float (&values)[OUTPUTS], float factor0, float factor1, u32 tile, bf16* head,
                                           int stride, int row0, int seq) {
#pragma unroll
    for (int i = 0; i < OUTPUTS; i += 2) {
        int row = row_of_thread() + (i / 2 % 2) * 8;
        float factor = i / 2 % 2 ? factor1 : factor0;
        u32 address = tile + chunk_offset(row, i / 4) + (threadIdx.x % 4) * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(pack(values[i] * factor, values[i + 1] * factor)) : "memory");
    }
    __syncwarp();
    int first_row = (threadIdx.x % 128) / 32 * 16;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * HEAD_DIM / 8; i += 32) {
        int row = first_row + i / (HEAD_DIM / 8), chunk = i % (HEAD_DIM / 8);
        if (row0 + row < seq) *(uint4*)(head + (size_t)(row0 + row) * stride + chunk * 8) = read_shared16(tile + chunk_offset(row, chunk));
    }
}

__device__ __forceinline__ float dot_chunk(const bf16* x, const bf16* y) {
    uint4 a = __ldg((const uint4*)x), b = __ldg((const uint4*)y);
    return low_of(a.x) * low_of(b.x) + high_of(a.x) * high_of(b.x) + low_of(a.y) * low_of(b.y) + high_of(a.y) * high_of(b.y) +
           low_of(a.z) * low_of(b.z) + high_of(a.z) * high_of(b.z) + low_of(a.w) * low_of(b.w) + high_of(a.w) * high_of(b.w);
}

__device__ __forceinline__ u32 shared_tiles() {
    extern __shared__ unsigned char shared_memory[];
    return ((u32)__cvta_generic_to_shared(shared_memory) + 1023) & ~1023u;  // the swizzle repeats every 1024 bytes
}

// ---------------------------------------------------------------- forward

struct Forward {
    const bf16 *q, *k, *v;
    bf16* out;
    float* lse;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo;
    float scale;
};

template <int GROUPS>
__device__ __forceinline__ void forward(const Forward& p) {
    constexpr int THREADS = 128 * GROUPS, QUERIES = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = threadIdx.x / 128;
    int pairs = p.batch * p.heads, pair = blockIdx.x % pairs;
    int b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int block0 = ((p.seq + QUERIES - 1) / QUERIES - 1 - (int)blockIdx.x / pairs) * QUERIES;  // the longest rows first
    const bf16* q = p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM;
    const bf16* k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM;
    const bf16* v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    int steps = (min(block0 + QUERIES, p.seq) + TILE_ROWS - 1) / TILE_ROWS;
    int row0 = block0 + group * TILE_ROWS;
    u32 q_tile = tiles + group * TILE_BYTES, stages = tiles + GROUPS * TILE_BYTES;
    float scale = p.scale * LOG2_E;

#pragma unroll
    for (int g = 0; g < GROUPS; g++) load_tile<THREADS>(tiles + g * TILE_BYTES, q, p.ldq, block0 + g * TILE_ROWS, p.seq);
    load_tile<THREADS>(stages, k, p.ldk, 0, p.seq);
    load_tile<THREADS>(stages + TILE_BYTES, v, p.ldv, 0, p.seq);

    float sums[OUTPUTS], highest[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, total[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) sums[i] = 0;

    for (int step = 0; step < steps; step++) {
        u32 k_tile = stages + (step & 1) * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
        wait_copies();
        if (p.cosines) {
            if (step == 0)
                for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
            rotate_tile<THREADS>(k_tile, p.cosines, p.sines, step * TILE_ROWS, p.seq);
        }
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 1 < steps) {
            u32 next = stages + ((step + 1) & 1) * 2 * TILE_BYTES;
            load_tile<THREADS>(next, k, p.ldk, (step + 1) * TILE_ROWS, p.seq);
            load_tile<THREADS>(next + TILE_BYTES, v, p.ldv, (step + 1) * TILE_ROWS, p.seq);
        }
        if (step * TILE_ROWS > row0) continue;  // this group's rows see none of these keys

        float scores[SCORES];
        begin_products();
        multiply_tiles(scores, q_tile, k_tile);
        commit_products();
        wait_products<0>(scores);
        if (step * TILE_ROWS == row0) {
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                if (column_of(i) > row_of_thread() + (i / 2 % 2) * 8) scores[i] = NEGATIVE_INFINITY;
        }
        float before[2] = {highest[0], highest[1]};
#pragma unroll
        for (int i = 0; i < SCORES; i++) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            highest[r] = fmaxf(highest[r], __shfl_xor_sync(~0u, highest[r], 1));
            highest[r] = fmaxf(highest[r], __shfl_xor_sync(~0u, highest[r], 2));
            before[r] = exp2_fast((before[r] - highest[r]) * scale);  // what earlier sums shrink by
            total[r] *= before[r];
        }
        float offset[2] = {highest[0] * scale, highest[1] * scale};
        u32 weights[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 2) {
            int r = i / 2 % 2;
            float w0 = exp2_fast(scores[i] * scale - offset[r]), w1 = exp2_fast(scores[i + 1] * scale - offset[r]);
            total[r] += w0 + w1;
            weights[i / 2] = pack(w0, w1);
        }
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) sums[i] *= before[i / 2 % 2];
        begin_products();
        add_weighted_rows(sums, weights, v_tile);
        commit_products();
        wait_products<0>(sums);
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(~0u, total[r], 1);
        total[r] += __shfl_xor_sync(~0u, total[r], 2);
        int row = row0 + row_of_thread() + r * 8;
        if (threadIdx.x % 4 == 0 && row < p.seq) p.lse[(size_t)pair * p.seq + row] = highest[r] * p.scale + logf(total[r]);
    }
    group_barrier(group);
    store_tile(sums, 1 / total[0], 1 / total[1], q_tile, p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM, p.ldo, row0, p.seq);
}

// ---------------------------------------------------------------- backward

struct Backward {
    const bf16 *q, *k, *v, *out, *dout;
    const float* lse;
    float* delta;
    bf16 *dq, *dk, *dv;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv, rotated;
    float scale;
};

// dq of GROUPS tiles of queries; writes delta = sum(dout * out) per row where p.delta is given.
template <int GROUPS>
__device__ __forceinline__ void backward_q(const Backward& p, int block) {
    constexpr int THREADS = 128 * GROUPS, QUERIES = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = threadIdx.x / 128;
    int pairs = p.batch * p.heads, pair = block % pairs;
    int b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int block0 = ((p.seq + QUERIES - 1) / QUERIES - 1 - block / pairs) * QUERIES;
    const bf16* q = p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM;
    const bf16* k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM;
    const bf16* v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    const bf16* out = p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM;
    const bf16* dout = p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM;
    int steps = (min(block0 + QUERIES, p.seq) + TILE_ROWS - 1) / TILE_ROWS;
    int row0 = block0 + group * TILE_ROWS;
    u32 q_tile = tiles + group * 2 * TILE_BYTES, dout_tile = q_tile + TILE_BYTES, stages = tiles + GROUPS * 2 * TILE_BYTES;
    bool turn = p.cosines && !p.rotated;
    float scale = p.scale * LOG2_E;

#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        load_tile<THREADS>(tiles + g * 2 * TILE_BYTES, q, p.ldq, block0 + g * TILE_ROWS, p.seq);
        load_tile<THREADS>(tiles + (g * 2 + 1) * TILE_BYTES, dout, p.lddo, block0 + g * TILE_ROWS, p.seq);
    }
    load_tile<THREADS>(stages, k, p.ldk, 0, p.seq);
    load_tile<THREADS>(stages + TILE_BYTES, v, p.ldv, 0, p.seq);

    float lse[2], delta[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row0 + row_of_thread() + r * 8;
        lse[r] = row < p.seq ? p.lse[(size_t)pair * p.seq + row] * LOG2_E : 0;
        if (row < p.seq)
            for (int c = threadIdx.x % 4; c < HEAD_DIM / 8; c += 4)
                delta[r] += dot_chunk(out + (size_t)row * p.ldo + c * 8, dout + (size_t)row * p.lddo + c * 8);
        delta[r] += __shfl_xor_sync(~0u, delta[r], 1);
        delta[r] += __shfl_xor_sync(~0u, delta[r], 2);
        if (p.delta && threadIdx.x % 4 == 0 && row < p.seq) p.delta[(size_t)pair * p.seq + row] = delta[r];
    }
    float sums[OUTPUTS];
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) sums[i] = 0;

    for (int step = 0; step < steps; step++) {
        u32 k_tile = stages + (step & 1) * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
        wait_copies();
        if (turn) {
            if (step == 0)
                for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
            rotate_tile<THREADS>(k_tile, p.cosines, p.sines, step * TILE_ROWS, p.seq);
        }
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 1 < steps) {
            u32 next = stages + ((step + 1) & 1) * 2 * TILE_BYTES;
            load_tile<THREADS>(next, k, p.ldk, (step + 1) * TILE_ROWS, p.seq);
            load_tile<THREADS>(next + TILE_BYTES, v, p.ldv, (step + 1) * TILE_ROWS, p.seq);
        }
        if (step * TILE_ROWS > row0) continue;

        float scores[SCORES], slopes[SCORES];  // q k^T and dout v^T
        begin_products();
        multiply_tiles(scores, q_tile, k_tile);
        commit_products();
        multiply_tiles(slopes, dout_tile, v_tile);
        commit_products();
        wait_products<1>(scores);
#pragma unroll
        for (int i = 0; i < SCORES; i++) scores[i] = exp2_fast(scores[i] * scale - lse[i / 2 % 2]);
        if (step * TILE_ROWS == row0) {
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                if (column_of(i) > row_of_thread() + (i / 2 % 2) * 8) scores[i] = 0;
        }
        wait_products<0>(slopes);
        u32 weights[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 2)
            weights[i / 2] = pack(scores[i] * (slopes[i] - delta[i / 2 % 2]), scores[i + 1] * (slopes[i + 1] - delta[i / 2 % 2]));
        begin_products();
        add_weighted_rows(sums, weights, k_tile);
        commit_products();
        wait_products<0>(sums);
    }
    if (p.cosines) rotate_back(sums, p.cosines, p.sines, row0, p.seq);
    group_barrier(group);
    store_tile(sums, p.scale, p.scale, q_tile, p.dq + (size_t)b * p.seq * p.lddq + h * HEAD_DIM, p.lddq, row0, p.seq);
}

// dk and dv of GROUPS tiles of keys of one kv head, over the query heads that share it. Scores are taken
// transposed (keys down, queries across), so that weights leave the product already laid out as the next operand.
template <int GROUPS>
__device__ __forceinline__ void backward_kv(const Backward& p, int block) {
    constexpr int THREADS = 128 * GROUPS, KEYS = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = threadIdx.x / 128;
    int pairs = p.batch * p.kv_heads, pair = block % pairs;
    int b = pair / p.kv_heads, kv = pair % p.kv_heads, sharing = p.heads / p.kv_heads;
    int block0 = block / pairs * KEYS, row0 = block0 + group * TILE_ROWS;  // the first keys have the most queries
    int first = block0 / TILE_ROWS, per_head = (p.seq + TILE_ROWS - 1) / TILE_ROWS - first, steps = per_head * sharing;
    u32 k_tile = tiles + group * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
    u32 stages = tiles + GROUPS * 2 * TILE_BYTES, rows = stages + 4 * TILE_BYTES;  // rows: per stage 64 lse, 64 delta
    bool turn = p.cosines && !p.rotated;
    float scale = p.scale * LOG2_E;

    auto load_step = [&](int step) {
        int h = kv * sharing + step / per_head, query0 = (first + step % per_head) * TILE_ROWS, i = threadIdx.x;
        u32 stage = stages + (step & 1) * 2 * TILE_BYTES, values = rows + (step & 1) * 512;
        const bf16* dout = p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM;
        load_tile<THREADS>(stage, p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM, p.ldq, query0, p.seq);
        load_tile<THREADS>(stage + TILE_BYTES, dout, p.lddo, query0, p.seq);
        // Past the end lse = delta = 0 does no harm: q and dout are zeros there, and so are their shares.
        size_t row = ((size_t)b * p.heads + h) * p.seq + min(query0 + i % 64, p.seq - 1);
        if (i < 64) copy4(values + i * 4, p.lse + row, query0 + i < p.seq ? 4 : 0);
        if (p.delta) {
            if (i >= 64 && i < 128) copy4(values + i * 4, p.delta + row, query0 + i - 64 < p.seq ? 4 : 0);
        } else if (i < 128) {
            int query = query0 + i / 2;
            float delta = 0;
            if (query < p.seq)
                for (int c = i % 2; c < HEAD_DIM / 8; c += 2)
                    delta += dot_chunk(p.out + ((size_t)b * p.seq + query) * p.ldo + h * HEAD_DIM + c * 8, dout + (size_t)query * p.lddo + c * 8);
            delta += __shfl_xor_sync(~0u, delta, 1);
            if (i % 2 == 0) asm volatile("st.shared.f32 [%0], %1;" ::"r"(values + 256 + i * 2), "f"(delta) : "memory");
        }
    };
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        load_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM, p.ldk, block0 + g * TILE_ROWS, p.seq);
        load_tile<THREADS>(tiles + (g * 2 + 1) * TILE_BYTES, p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM, p.ldv, block0 + g * TILE_ROWS, p.seq);
    }
    load_step(0);
    float dk[OUTPUTS], dv[OUTPUTS];
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) dk[i] = dv[i] = 0;

    for (int step = 0; step < steps; step++) {
        int query0 = (first + step % per_head) * TILE_ROWS;
        u32 q_tile = stages + (step & 1) * 2 * TILE_BYTES, dout_tile = q_tile + TILE_BYTES, values = rows + (step & 1) * 512;
        wait_copies();
        if (turn) {
            if (step == 0)
                for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
            rotate_tile<THREADS>(q_tile, p.cosines, p.sines, query0, p.seq);
        }
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 1 < steps) load_step(step + 1);
        if (query0 < row0) continue;  // every query comes before this group's keys

        float scores[SCORES], slopes[SCORES];  // k q^T and v dout^T
        begin_products();
        multiply_tiles(scores, k_tile, q_tile);
        commit_products();
        multiply_tiles(slopes, v_tile, dout_tile);
        commit_products();
        wait_products<1>(scores);
        u32 weights[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4) {
            float lse0, lse1;
            asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(lse0), "=f"(lse1) : "r"(values + column_of(i) * 4) : "memory");
            lse0 *= LOG2_E;
            lse1 *= LOG2_E;
#pragma unroll
            for (int j = i; j < i + 4; j++) {
                scores[j] = exp2_fast(scores[j] * scale - (j % 2 ? lse1 : lse0));
                if (query0 == row0 && column_of(j) < row_of_thread() + (j / 2 % 2) * 8) scores[j] = 0;
            }
            weights[i / 2] = pack(scores[i], scores[i + 1]);
            weights[i / 2 + 1] = pack(scores[i + 2], scores[i + 3]);
        }
        begin_products();
        add_weighted_rows(dv, weights, dout_tile);
        commit_products();
        wait_products<1>(slopes);
        u32 changes[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4) {
            float delta0, delta1;
            asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(delta0), "=f"(delta1) : "r"(values + 256 + column_of(i) * 4) : "memory");
            changes[i / 2] = pack(scores[i] * (slopes[i] - delta0), scores[i + 1] * (slopes[i + 1] - delta1));
            changes[i / 2 + 1] = pack(scores[i + 2] * (slopes[i + 2] - delta0), scores[i + 3] * (slopes[i + 3] - delta1));
        }
        begin_products();
        add_weighted_rows(dk, changes, q_tile);
        commit_products();
        wait_products<0>(dv);
        wait_products<0>(dk);
    }
    if (p.cosines) rotate_back(dk, p.cosines, p.sines, row0, p.seq);
    group_barrier(group);
    store_tile(dk, p.scale, p.scale, k_tile, p.dk + (size_t)b * p.seq * p.lddk + kv * HEAD_DIM, p.lddk, row0, p.seq);
    store_tile(dv, 1, 1, v_tile, p.dv + (size_t)b * p.seq * p.lddv + kv * HEAD_DIM, p.lddv, row0, p.seq);
}

// ---------------------------------------------------------------- entry points

#define FORWARD_PARAMETERS                                                                                             \
    const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse, const float *cosines, const float *sines, int batch, \
        int heads, int kv_heads, int seq, int ldq, int ldk, int ldv, int ldo, float scale
#define FORWARD_ARGUMENTS \
    Forward { q, k, v, out, lse, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, scale }
#define BACKWARD_PARAMETERS                                                                                            \
    const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out, const bf16 *dout, const float *lse, float *delta, bf16 *dq, \
        bf16 *dk, bf16 *dv, const float *cosines, const float *sines, int batch, int heads, int kv_heads, int seq, int ldq, \
        int ldk, int ldv, int ldo, int lddo, int lddq, int lddk, int lddv, int rotated, float scale
#define BACKWARD_ARGUMENTS                                                                                             \
    Backward { q, k, v, out, dout, lse, delta, dq, dk, dv, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, \
               lddo, lddq, lddk, lddv, rotated, scale }

extern "C" __global__ void __launch_bounds__(256, 2) flash_forward_bf16(FORWARD_PARAMETERS) { forward<2>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM > 64 ? 2 : 4) flash_forward_small_bf16(FORWARD_PARAMETERS) {
    forward<1>(FORWARD_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(256, HEAD_DIM > 64 ? 1 : 2) flash_backward_q_bf16(BACKWARD_PARAMETERS) {
    backward_q<2>(BACKWARD_ARGUMENTS, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(256, 1) flash_backward_kv_bf16(BACKWARD_PARAMETERS) {
    backward_kv<2>(BACKWARD_ARGUMENTS, blockIdx.x);
}
// Both roles in one launch, the blocks of keys (more work each) first.
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM > 64 ? 2 : 3) flash_backward_small_bf16(BACKWARD_PARAMETERS) {
    int key_blocks = (seq + TILE_ROWS - 1) / TILE_ROWS * batch * kv_heads, block = blockIdx.x;
    if (block < key_blocks) backward_kv<1>(BACKWARD_ARGUMENTS, block);
    else backward_q<1>(BACKWARD_ARGUMENTS, block - key_blocks);
}

// Turns q and k in place, 16 bytes and their partners per thread.
extern "C" __global__ void __launch_bounds__(256) flash_rotate_bf16(bf16* q, bf16* k, const float* cosines, const float* sines, int batch,
                                                                    int heads, int kv_heads, int seq, int ldq, int ldk) {
    int i = blockIdx.x * 256 + threadIdx.x, chunk = i % CHUNK_PAIRS, h = i / CHUNK_PAIRS % (heads + kv_heads);
    int row = i / CHUNK_PAIRS / (heads + kv_heads);
    if (row >= batch * seq) return;
    bf16* at = (h < heads ? q + (size_t)row * ldq + h * HEAD_DIM : k + (size_t)row * ldk + (h - heads) * HEAD_DIM) + chunk * 8;
    int position = row % seq * (HEAD_DIM / 2) + chunk * 8;
    uint4 first = *(const uint4*)at, second = *(const uint4*)(at + HEAD_DIM / 2);
    rotate_chunks(first, second, cosines + position, sines + position);
    *(uint4*)at = first;
    *(uint4*)(at + HEAD_DIM / 2) = second;
}
