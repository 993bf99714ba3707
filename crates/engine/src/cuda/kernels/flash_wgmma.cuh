// Causal attention on Hopper's tensor cores (sm_90a, wgmma), bf16 in and out, float accumulators.
//
// Compiled once per head size: -DHEAD_DIM=<multiple of 16, 16..128>. No atomics: the same input gives the same bits.
//
// A "tile" is 64 rows of one head in shared memory: ceil(HEAD_DIM/64) panels of 64 rows x 128 bytes, 16-byte
// chunks swizzled as the tensor cores expect (chunk index xor row mod 8). Every operand of every product below is
// such a tile, read either along its columns (scores) or along its rows (weighted sums): one layout serves both.
// A "group" is a warpgroup of 128 threads; it owns one tile of queries (forward, dq) or of keys (dk, dv).
//
// Mirrored by the launching side (GROUPS is 2 for the plain names, 1 for the _small ones):
//   TILE_BYTES = 8192 * ceil(HEAD_DIM / 64)
//   block = 128 * GROUPS threads;   tiles(n) = ceil(seq / (64 * n))
//   flash_forward[_small]_bf16   grid tiles(GROUPS)*batch*heads     shared (GROUPS + 4)*TILE_BYTES + 1024
//   flash_backward_q_bf16        grid tiles(2)*batch*heads          shared 8*TILE_BYTES + 2048
//   flash_backward_kv_bf16       grid tiles(2)*batch*kv_heads       shared 8*TILE_BYTES + 2048
//   flash_backward_small_bf16    grid tiles(1)*batch*(heads + kv_heads)   shared 6*TILE_BYTES + 2048
//   flash_rotate_bf16            grid ceil(batch*seq*(heads + kv_heads)*(HEAD_DIM/16) / 256), block 256
// Backward is either the pair q then kv (q writes `delta`, kv reads it) or the single launch _small, which recomputes
// delta and takes delta = nullptr.
//
// Rotation: cos, sin are float [seq, HEAD_DIM/2] or nullptr. Forward rotates q and k as it loads them. Backward does
// too unless `rotated` is 1 (q and k already rotated in place by flash_rotate_bf16); it always rotates dq and dk back.

// Ordinary writes to shared memory become visible to the tensor cores only after this fence.
__device__ __forceinline__ void publish_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void group_barrier(int group) { meet(group + 1, 128); }

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
struct Product {  // zero columns: does nothing
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
// between panels. Shared addresses stay below 2^18, so offsets can be added to the low word alone.
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

// The same with `a` already in registers, which saves one of the two reads of shared memory.
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

// Rotates gradients of rotated rows back.
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

// Warpgroup of the block; read through a shuffle, which tells the compiler that it is uniform across a warp.
__device__ __forceinline__ int group_of_thread() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }
