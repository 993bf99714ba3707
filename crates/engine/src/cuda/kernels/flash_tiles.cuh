// Attention tiles in shared memory: their layout, loading and rotation. bf16, head sizes that are multiples of 16 up to
// 128.
//
// Compiled once per head size: -DHEAD_DIM=<multiple of 16, 16..128>. A "tile" is 64 rows of one head in shared memory:
// ceil(HEAD_DIM/64) panels of 64 rows x 128 bytes, 16-byte chunks swizzled (chunk index xor row mod 8), as Hopper's
// tensor cores expect and as any device reads matrices without bank conflicts.
//
// Rotation: cos, sin are float [seq, HEAD_DIM/2] or nullptr. Forward rotates q and k as it loads them. Backward does
// too unless `rotated` is 1 (q and k already rotated in place by flash_rotate_bf16); it always rotates dq and dk back.

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

__device__ __forceinline__ u32 chunk_offset(int row, int chunk) {
    return (chunk / 8) * PANEL_BYTES + row * 128 + (((chunk % 8) ^ (row & 7)) << 4);
}

// How a block's threads share a tile: a thread owns chunk `own_chunk` and the chunk that rotates with it, of row
// `own_row` and of every SPREAD-th row below. SPREAD is a multiple of 8, so that all its rows swizzle alike.
template <int THREADS>
struct Share {
    static constexpr int SLOTS = CHUNK_PAIRS > 4 ? 8 : CHUNK_PAIRS > 2 ? 4 : CHUNK_PAIRS;
    static constexpr int SPREAD = THREADS / SLOTS < TILE_ROWS ? THREADS / SLOTS : TILE_ROWS;
    static constexpr int PASSES = TILE_ROWS / SPREAD;
    static __device__ __forceinline__ int own_row() { return threadIdx.x / SLOTS; }
    static __device__ __forceinline__ int own_chunk() { return threadIdx.x % SLOTS; }
    static __device__ __forceinline__ bool idle() { return own_chunk() >= CHUNK_PAIRS || own_row() >= SPREAD; }
};

// Starts copying rows row0..row0+63 of one head; rows past `seq` become zeros. A thread copies the chunks that rotate
// together, so that it can rotate them itself once its own copies have landed.
template <int THREADS>
struct TileCopy {
    typedef Share<THREADS> share;
    const bf16* from;
    u32 first, second;
    int left, stride;
    __device__ __forceinline__ TileCopy(u32 tile, const bf16* head, int stride, int row0, int seq) : stride(stride) {
        int row = share::own_row(), chunk = share::own_chunk();
        left = seq - row0 - row;
        first = tile + chunk_offset(row, chunk), second = tile + chunk_offset(row, chunk + CHUNK_PAIRS);
        from = head + (size_t)(row0 + row) * stride + chunk * 8;
    }
    // One of share::PASSES, in order.
    __device__ __forceinline__ void pass(int pass) {
        if (share::idle()) return;
        int bytes = pass * share::SPREAD < left ? 16 : 0;
        copy16(first + pass * share::SPREAD * 128, from, bytes);
        copy16(second + pass * share::SPREAD * 128, from + HEAD_DIM / 2, bytes);
        from += share::SPREAD * stride;
    }
};
template <int THREADS>
__device__ __forceinline__ void load_tile(u32 tile, const bf16* head, int stride, int row0, int seq) {
    TileCopy<THREADS> copy(tile, head, stride, row0, seq);
#pragma unroll
    for (int pass = 0; pass < Share<THREADS>::PASSES; pass++) copy.pass(pass);
}

__device__ __forceinline__ void rotate_pair(u32& first, u32& second, float c0, float c1, float s0, float s1) {
    float a0 = low_of(first), a1 = high_of(first), b0 = low_of(second), b1 = high_of(second);
    first = pack(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
    second = pack(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1);
}

// Rotates 8 pairs; `turn` points at their 8 cosines, `lean` at their 8 sines.
__device__ __forceinline__ void rotate_chunks(uint4& first, uint4& second, const float* turn, const float* lean) {
    float4 c0 = __ldg((const float4*)turn), c1 = __ldg((const float4*)turn + 1);
    float4 s0 = __ldg((const float4*)lean), s1 = __ldg((const float4*)lean + 1);
    rotate_pair(first.x, second.x, c0.x, c0.y, s0.x, s0.y);
    rotate_pair(first.y, second.y, c0.z, c0.w, s0.z, s0.w);
    rotate_pair(first.z, second.z, c1.x, c1.y, s1.x, s1.y);
    rotate_pair(first.w, second.w, c1.z, c1.w, s1.z, s1.w);
}

// Rotates a landed tile in place: each thread rotates the chunks that it copied itself, so no barrier is needed before.
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

__device__ __forceinline__ float dot_chunk(const bf16* x, const bf16* y) {
    uint4 a = __ldg((const uint4*)x), b = __ldg((const uint4*)y);
    return low_of(a.x) * low_of(b.x) + high_of(a.x) * high_of(b.x) + low_of(a.y) * low_of(b.y) + high_of(a.y) * high_of(b.y) +
           low_of(a.z) * low_of(b.z) + high_of(a.z) * high_of(b.z) + low_of(a.w) * low_of(b.w) + high_of(a.w) * high_of(b.w);
}

// x[row] . y[row] over HEAD_DIM, computed by LANES adjacent lanes together.
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
