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

// Makes the compiler finish writing registers here: none may be written while products that read them are queued.
template <typename T, int COUNT>
__device__ __forceinline__ void settle(T (&values)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if constexpr (sizeof(T) == 4 && T(0.5f) == T(0)) asm volatile("" : "+r"(values[i])::"memory");
        else asm volatile("" : "+f"(values[i])::"memory");
}
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
    template <int ACROSS>
    static __device__ __forceinline__ void run(float*, const u32*, u64, int) {}
};

// sum = (keep ? sum : 0) + a * b; a[64 x 16] in registers, b[16 x COLUMNS] in a tile: COLUMNS rows read along 16 of
// their columns (ACROSS 0) or 16 rows read across their columns (ACROSS 1).
#define DEFINE_PRODUCT(COLUMNS, LIST, USE, A0, A1, A2, A3, B, KEEP, WAY)                                               \
    template <>                                                                                                        \
    struct Product<COLUMNS> {                                                                                          \
        template <int ACROSS>                                                                                          \
        static __device__ __forceinline__ void run(float* sum, const u32* a, u64 b, int keep) {                        \
            asm volatile("{.reg .pred keep; setp.ne.b32 keep, %" #KEEP ", 0;"                                          \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" LIST "},"                  \
                         "{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", keep, 1, 1, %" #WAY ";}"                     \
                         : USE(sum) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(ACROSS) : "memory"); \
        }                                                                                                              \
    };
DEFINE_PRODUCT(16, LIST_8, USE_8, 8, 9, 10, 11, 12, 13, 14)
DEFINE_PRODUCT(32, LIST_16, USE_16, 16, 17, 18, 19, 20, 21, 22)
DEFINE_PRODUCT(48, LIST_24, USE_24, 24, 25, 26, 27, 28, 29, 30)
DEFINE_PRODUCT(64, LIST_32, USE_32, 32, 33, 34, 35, 36, 37, 38)
DEFINE_PRODUCT(128, LIST_64, USE_64, 64, 65, 66, 67, 68, 69, 70)

// Describes an operand at `address` + `offset`: 128-byte swizzle, 1024 bytes between groups of 8 rows, PANEL_BYTES
// between panels. Shared addresses stay below 2^18, so offsets add to the low word alone.
__device__ __forceinline__ u64 operand(u32 address, u32 offset) {
    u32 low = ((address >> 4) | (PANEL_BYTES >> 4) << 16) + (offset >> 4);
    return (u64)0x40000040 << 32 | low;
}
__device__ __forceinline__ constexpr u32 depth_offset(int k) { return (k / 4) * PANEL_BYTES + (k % 4) * 32; }

// scores = a * b^T over HEAD_DIM, both tiles of 64 rows.
__device__ __forceinline__ void multiply_tiles(float (&scores)[SCORES], u32 a, u32 b) {
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++)
        asm volatile("{.reg .pred keep; setp.ne.b32 keep, %34, 0;"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST_32 "}, %32, %33, keep, 1, 1, 0, 0;}"
                     : USE_32(scores) : "l"(operand(a, depth_offset(k))), "l"(operand(b, depth_offset(k))), "r"(k) : "memory");
}

// The same with `a` already in registers, which spares shared memory one of the two reads.
__device__ __forceinline__ void multiply_tiles(float (&scores)[SCORES], const u32 (&a)[HEAD_DIM / 4], u32 b) {
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) Product<64>::run<0>(scores, a + 4 * k, operand(b, depth_offset(k)), k);
}

// sums += weights[64 x 64] * tile[64 x HEAD_DIM]; weights hold one 64 x 16 operand per four registers.
__device__ __forceinline__ void add_weighted_rows(float (&sums)[OUTPUTS], const u32 (&weights)[SCORES / 2], u32 tile) {
    constexpr int WHOLE = HEAD_DIM / 64 * 64, REST = HEAD_DIM % 64;
#pragma unroll
    for (int k = 0; k < TILE_ROWS / 16; k++) {
        Product<WHOLE>::template run<1>(sums, weights + 4 * k, operand(tile, k * 16 * 128), 1);
        Product<REST>::template run<1>(sums + WHOLE / 2, weights + 4 * k, operand(tile, k * 16 * 128 + WHOLE / 64 * PANEL_BYTES), 1);
    }
}

// ---------------------------------------------------------------- tiles in and out

__device__ __forceinline__ u32 chunk_offset(int row, int chunk) {
    return (chunk / 8) * PANEL_BYTES + row * 128 + (((chunk % 8) ^ (row & 7)) << 4);
}

// How a block's threads share a tile: a thread owns chunk `own_chunk` and the chunk that rotates with it, of row
// `own_row` and of every SPREAD rows below. SPREAD is a multiple of 8, so that all its rows swizzle alike.
template <int THREADS>
struct Share {
    static constexpr int SLOTS = CHUNK_PAIRS > 4 ? 8 : CHUNK_PAIRS > 2 ? 4 : CHUNK_PAIRS;
    static constexpr int SPREAD = THREADS / SLOTS < TILE_ROWS ? THREADS / SLOTS : TILE_ROWS;
    static constexpr int PASSES = TILE_ROWS / SPREAD;
    static __device__ __forceinline__ int own_row() { return threadIdx.x / SLOTS; }
    static __device__ __forceinline__ int own_chunk() { return threadIdx.x % SLOTS; }
    static __device__ __forceinline__ bool idle() { return own_chunk() >= CHUNK_PAIRS || own_row() >= SPREAD; }
};

// Starts copying rows row0..row0+63 of one head; rows past `seq` become zeros. A thread copies the chunks that
// rotate together, so that it may turn them itself once its own copies have landed.
template <int THREADS>
__device__ __forceinline__ void load_tile(u32 tile, const bf16* head, int stride, int row0, int seq) {
    typedef Share<THREADS> share;
    if (share::idle()) return;
    int row = share::own_row(), chunk = share::own_chunk(), left = seq - row0 - row;
    u32 first = tile + chunk_offset(row, chunk), second = tile + chunk_offset(row, chunk + CHUNK_PAIRS);
    const bf16* from = head + (size_t)(row0 + row) * stride + chunk * 8;
#pragma unroll
    for (int pass = 0; pass < share::PASSES; pass++) {
        int bytes = pass * share::SPREAD < left ? 16 : 0;
        copy16(first + pass * share::SPREAD * 128, from, bytes);
        copy16(second + pass * share::SPREAD * 128, from + HEAD_DIM / 2, bytes);
        from += share::SPREAD * stride;
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
    typedef Share<THREADS> share;
    if (share::idle()) return;
    int row = share::own_row(), chunk = share::own_chunk();
    u32 at = tile + chunk_offset(row, chunk), partner = tile + chunk_offset(row, chunk + CHUNK_PAIRS);
#pragma unroll
    for (int pass = 0; pass < share::PASSES; pass++) {
        int position = min(row0 + row + pass * share::SPREAD, seq - 1) * (HEAD_DIM / 2) + chunk * 8;
        uint4 first = read_shared16(at + pass * share::SPREAD * 128), second = read_shared16(partner + pass * share::SPREAD * 128);
        rotate_chunks(first, second, cosines + position, sines + position);
        write_shared16(at + pass * share::SPREAD * 128, first);
        write_shared16(partner + pass * share::SPREAD * 128, second);
    }
}

// This thread's rows within its group's tile are row_of_thread() and 8 below; in a product register i belongs to
// row (i / 2) % 2 of the two and to column column_of(i).
__device__ __forceinline__ int row_of_thread() { return (threadIdx.x % 128) / 32 * 16 + (threadIdx.x % 32) / 4; }
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + (threadIdx.x % 4) * 2 + i % 2; }

// This warp's 16 rows of its group's tile, as operands in registers: four per 16 columns.
__device__ __forceinline__ void read_fragments(u32 (&fragments)[HEAD_DIM / 4], u32 tile) {
    int row = (threadIdx.x % 128) / 32 * 16 + threadIdx.x % 16;
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fragments[4 * k]), "=r"(fragments[4 * k + 1]), "=r"(fragments[4 * k + 2]), "=r"(fragments[4 * k + 3])
                     : "r"(tile + chunk_offset(row, 2 * k + threadIdx.x % 32 / 16)) : "memory");
}

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
    for (int pass = 0; pass < HEAD_DIM / 16; pass++) {
        int i = pass * 32 + threadIdx.x % 32, row = first_row + i / (HEAD_DIM / 8), chunk = i % (HEAD_DIM / 8);
        if (row0 + row < seq) *(uint4*)(head + (size_t)(row0 + row) * stride + chunk * 8) = read_shared16(tile + chunk_offset(row, chunk));
    }
}

__device__ __forceinline__ float dot_chunk(const bf16* x, const bf16* y) {
    uint4 a = __ldg((const uint4*)x), b = __ldg((const uint4*)y);
    return low_of(a.x) * low_of(b.x) + high_of(a.x) * high_of(b.x) + low_of(a.y) * low_of(b.y) + high_of(a.y) * high_of(b.y) +
           low_of(a.z) * low_of(b.z) + high_of(a.z) * high_of(b.z) + low_of(a.w) * low_of(b.w) + high_of(a.w) * high_of(b.w);
}

// x[row] . y[row] over HEAD_DIM, taken by LANES neighbouring lanes together.
template <int LANES>
__device__ __forceinline__ float dot_rows(const bf16* x, int stride_x, const bf16* y, int stride_y, int row) {
    float sum = 0;
#pragma unroll
    for (int pass = 0; pass < (HEAD_DIM / 8 + LANES - 1) / LANES; pass++) {
        int chunk = threadIdx.x % LANES + pass * LANES;
        if (HEAD_DIM / 8 % LANES == 0 || chunk < HEAD_DIM / 8)
            sum += dot_chunk(x + (size_t)row * stride_x + chunk * 8, y + (size_t)row * stride_y + chunk * 8);
    }
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
}

// Which warpgroup of the block; read through a shuffle, which tells the compiler that a warp agrees on it.
__device__ __forceinline__ int group_of_thread() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

__device__ __forceinline__ u32 shared_tiles() {
    extern __shared__ unsigned char shared_memory[];
    return ((u32)__cvta_generic_to_shared(shared_memory) + 1023) & ~1023u;  // the swizzle repeats every 1024 bytes
}
